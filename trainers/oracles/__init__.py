"""Oracles, the only way to private data: noisy gradients or messages, and ledgers.

capabilities    what an oracle may be asked for, as protocols
oracle          noisy gradients: sample, clip, sum, add noise, divide, write down
messages        noisy messages: exact gradients inside, a noisy channel out
mechanism       batch size, clip norm, noise multiplier, and what they release
sampler         which records are in a batch
recording       what was given out, kept and played again
"""
