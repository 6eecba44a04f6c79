"""Adversaries: each scores a run by how much it looks like one with the canary."""

from privaudit.auditing.attacks.actions import Actions
from privaudit.auditing.attacks.contract import Adversary as Adversary
from privaudit.auditing.attacks.contract import Scene as Scene
from privaudit.auditing.attacks.contract import Watcher as Watcher
from privaudit.auditing.attacks.final_loss import RMIA, AllLosses, FinalLoss, LiRA
from privaudit.auditing.attacks.likelihood import NoisyGradients
from privaudit.auditing.attacks.messages import (
    AllModels,
    FinalModels,
    FinalModelsOfColluders,
    Observing,
)
from privaudit.auditing.attacks.neighbour import Neighbour

ADVERSARIES: dict[str, type[Adversary]] = {
    adversary.name: adversary
    for adversary in (
        FinalLoss,
        AllLosses,
        LiRA,
        RMIA,
        AllModels,
        FinalModels,
        FinalModelsOfColluders,
        Neighbour,
        Observing,
        NoisyGradients,
        Actions,
    )
}
