"""Devices, random numbers, and checks that do not wait for the device."""
