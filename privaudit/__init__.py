"""Account for, and audit, differential privacy of decentralised learning.

    from privaudit.accounting import account, noise_multiplier
    from privaudit.ledger import Ledger
    from privaudit.release import PoissonSampling, Release

What needs torch (`trainers`, `privaudit.auditing.experiments.experiment`) is imported
by name.
"""

from privaudit.version import __version__ as __version__
