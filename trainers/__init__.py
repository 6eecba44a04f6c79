"""Train decentralised algorithms, many runs at once, through one door to private data.

`trainers.oracles.oracle` is that door; `trainers.network.engine` runs rounds over
stacked node states; `trainers.algorithms` holds one file an algorithm.
"""
