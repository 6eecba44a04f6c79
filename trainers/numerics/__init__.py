"""Devices, keys and streams of random numbers, noise on a grid, deferred checks."""
