"""What a planted bug is, and how it is looked for."""

import dataclasses

from privaudit.auditing.experiments.presets import training_named
from privaudit.auditing.probes.algorithm import PROBED, probe
from privaudit.figure_settings import ProbeSettings
from tests.zoo.attacks import Attack
from trainers.algorithms import ALGORITHMS, Family
from trainers.oracles.oracle import Oracle


@dataclasses.dataclass(frozen=True)
class Bug:
    """A bug that the ledger does not know of, and what sees it.

    Parameters
    ----------
    oracle
        In the oracle's place.
    check
        The probe's check that is for it.
    words
        Of the finding.
    runs
        Made at once; the probe asks twelve times or so for as many.
    algorithm, settings
        Where it is planted.
    changes
        Of the algorithm's family, beside the oracle.
    attack
        The audit that is for it; None if no audit sees it, and ``unseen`` says why.
    """

    oracle: type[Oracle]
    check: str
    words: str
    runs: int = 60
    algorithm: str = "dp-dsgd"
    settings: tuple[str, ...] = ()
    changes: dict = dataclasses.field(default_factory=dict)
    attack: Attack | None = None
    unseen: str = ""

    @property
    def family(self) -> Family:
        """The algorithm's, with the bug in it."""
        right = ALGORITHMS[self.algorithm]
        return dataclasses.replace(right, oracle=self.oracle, **self.changes)


def probed(monkeypatch, bug, *, oracle=None, changes=None, seed=0):
    """The checks of the bug's algorithm: {name: findings}, by default with the bug."""
    right = ALGORITHMS[bug.algorithm]
    family = dataclasses.replace(
        right,
        oracle=oracle or bug.oracle,
        **(bug.changes if changes is None else changes),
    )
    monkeypatch.setitem(ALGORITHMS, bug.algorithm, family)
    training = training_named(bug.algorithm, list(bug.settings), **PROBED)
    checks = probe(training, ProbeSettings(runs=bug.runs, seed=seed))
    monkeypatch.setitem(ALGORITHMS, bug.algorithm, right)
    assert not any(check.skipped for check in checks)
    return {check.name: check.findings for check in checks}
