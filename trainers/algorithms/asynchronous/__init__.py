"""Asynchronous training: A(DP)2SGD, AD-PSGD and SYNC."""
