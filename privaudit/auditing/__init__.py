"""From attacks on running algorithms to lower bounds on epsilon.

    scores          attack scores of many runs, and which world each was in
    bounds          from scores to a lower bound: one estimator a file
    attacks         canaries (what is planted) and adversaries (what is seen)
    experiments     audits and sweeps of the algorithms here
    programs        audits of any training: a function or a command
    probes          privacy bugs that need no statistics
    selfcheck       whether the bounds keep their confidence

`scores`, `bounds` and `programs` need no torch; the others need the extra `train`. How
to add an estimator or an adversary: CONTRIBUTING.md.
"""
