"""What is seen: attackers who score each run by how much it looks like a member's.

One file an adversary, behind one contract.
"""

from privaudit.auditing.adversaries.actions import Actions
from privaudit.auditing.adversaries.contract import Adversary as Adversary
from privaudit.auditing.adversaries.contract import Scene as Scene
from privaudit.auditing.adversaries.contract import Watcher as Watcher
from privaudit.auditing.adversaries.final_loss import FinalLoss
from privaudit.auditing.adversaries.losses import AllLosses
from privaudit.auditing.adversaries.models import AllModels
from privaudit.auditing.adversaries.neighbour import Neighbour
from privaudit.auditing.adversaries.noisy_gradients import NoisyGradients

ADVERSARIES: dict[str, type[Adversary]] = {
    adversary.name: adversary
    for adversary in (
        FinalLoss,
        AllLosses,
        AllModels,
        Neighbour,
        NoisyGradients,
        Actions,
    )
}
