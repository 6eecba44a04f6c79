"""From attacks on running algorithms to lower bounds on epsilon.

`scores` and `bounds` need no torch; `experiment` trains, and needs the extra `train`.
"""
