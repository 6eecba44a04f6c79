"""Train decentralised algorithms privately, many runs at once. Where what is:

    algorithms      one file an algorithm, one folder a family; ``ALGORITHMS`` by name
    contract        what every algorithm promises; ``check`` holds yours against it
    oracles         all access to private data: sampling, clipping, noise, the ledger
    gradients       per-sample gradients and the clip: ``clip_weights``, ``clipping``
    numerics        the noise (``noise``, proof in noise.md), secret keys, devices
    network         rounds (``engine``), graphs, mixing weights, nodes over processes
    data, models    by name, from files, or a user's own
    runs            settings, one training in a folder, checkpoints, the real clock
    recipes         the papers' settings

An algorithm asks its oracle for noisy gradients or messages, and the oracle writes down
what it gave out: `privaudit.accounting` computes epsilon from that ledger alone. How to
add an algorithm: CONTRIBUTING.md.
"""

from privaudit.files.shadowing import of_users as __getattr__  # noqa: F401
