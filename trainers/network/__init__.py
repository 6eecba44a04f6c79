"""Graphs, mixing, push-sum, rounds, and nodes over processes."""
