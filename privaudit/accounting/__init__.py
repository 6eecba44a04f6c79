"""Upper and lower bounds on epsilon from a ledger. Nothing here imports torch.

    certificate     what a ledger is worth: the best of all provers, above and below
    provers         one proof each; `pld` has the one by privacy loss distributions
    account         one call for every account, certified or for comparison
    calibration     the least noise, or most steps, for a budget
    papers          formulas of the papers, beside what is proved of them

How to add a prover: CONTRIBUTING.md.
"""

from privaudit.accounting.account import METHODS as METHODS
from privaudit.accounting.account import Method as Method
from privaudit.accounting.account import account as account
from privaudit.accounting.account import account_nodes as account_nodes
from privaudit.accounting.calibration import initial_budget as initial_budget
from privaudit.accounting.calibration import most_steps as most_steps
from privaudit.accounting.calibration import noise_multiplier as noise_multiplier
from privaudit.accounting.calibration import noise_scale as noise_scale
from privaudit.accounting.calibration import sampling_rate as sampling_rate
from privaudit.accounting.certificate import Certificate as Certificate
from privaudit.accounting.verdict import verdict_on as verdict_on
