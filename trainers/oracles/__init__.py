"""Oracles, the only way to private data: each keeps the ledger of what it releases.

capabilities    what an oracle may be asked for, as protocols
oracle          noisy gradients: sample, clip, sum, add noise, divide, record
updates         noisy updates: some local steps of each user, clipped as a whole
secrets         noisy gradients with noise that cancels between pairs of nodes
messages        noisy messages: exact gradients stay at nodes, messages get noise
mechanism       batch size, clip norm and noise multiplier, and their release
sampler         which records are in a batch
recording       keeps an oracle's releases, and repeats them
"""
