"""Train decentralised algorithms, many runs at once, through one door to private data.

`trainers.oracle` is that door; `trainers.engine` runs rounds over stacked node states;
`trainers.algorithms` holds one file an algorithm.
"""
