"""The adversary who sees the models of all nodes after every round."""

from __future__ import annotations

from privaudit.auditing.attacks.messages import LinearAdversary


class AllModels(LinearAdversary):
    """Reads off the models what gradients were added to them."""

    name = "all-models"
    sees = "the models of all nodes after every round, with all other records known"
    models = True
