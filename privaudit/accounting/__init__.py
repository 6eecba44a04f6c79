"""From a ledger to an upper bound on epsilon. Nothing here imports torch."""

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
