"""Folders of finished runs, made without training."""

from __future__ import annotations

import dataclasses
import io
import pathlib
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from privaudit.accounting import account
from privaudit.auditing.bounds import ESTIMATORS, most_shown
from privaudit.auditing.experiments.outcome import AuditResult, Gap
from privaudit.auditing.experiments.presets import AUDITED
from privaudit.auditing.scores import Scores
from privaudit.files import json as _json
from privaudit.files.folder import RunFolder
from privaudit.ledger import Entry, Ledger
from privaudit.release import PoissonSampling, Release
from privaudit.report.load import AuditConfig, TrainingConfig
from privaudit.results import Claim, Finding, UpperBound
from trainers.runs.outcome import Curves, TrainingResult, protection

CURVES = Curves(
    rounds=(10, 50, 100),
    accuracy=(0.3, 0.5, 0.7),
    worst_accuracy=(0.2, 0.4, 0.6),
    consensus=(0.0, 0.2, 0.1),
)
TRAINING: dict[str, Any] = {
    "algorithm": "dp-dsgd",
    "graph": "complete",
    "weights": "uniform",
    **AUDITED,
}


def separated(members: int, others: int) -> tuple[np.ndarray, np.ndarray]:
    """Worlds, and scores without an error."""
    worlds = np.repeat([True, False], [members, others])
    return worlds, worlds + np.linspace(0, 0.5, len(worlds))


def noise(members: int, others: int) -> tuple[np.ndarray, np.ndarray]:
    """Worlds, and scores that know nothing of them."""
    worlds = np.repeat([True, False], [members, others])
    return worlds, np.random.default_rng(7).normal(size=len(worlds))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """An audit to be written down; its bound is computed from its scores."""

    worlds: tuple[np.ndarray, np.ndarray]
    claim: float = 1.0
    delta: float = 0.01
    upper: float = 0.99996
    source: str = "the command line"
    nodes: int = 3
    noise: float = 6.0
    training: dict[str, Any] = dataclasses.field(default_factory=lambda: TRAINING)
    disjoint: int | UnsetType = UNSET
    assumes: tuple[str, ...] = ()
    failure: float = 0.0
    gap: Gap | None = None
    estimator: str = "clopper-pearson"

    def write(self, path: pathlib.Path) -> AuditResult:
        """Fill the folder ``path``; what its result.json holds."""
        member, score = self.worlds
        ledger = msgspec.structs.replace(
            ledger_of(self.noise, self.nodes, self.disjoint),
            assumes=self.assumes,
            failure=self.failure,
        )
        claim = claim_of(self.claim, self.delta, self.source)
        config = AuditConfig(
            claim=claim,
            training=self.training,
            noise_multiplier=self.noise,
            adversary="final-loss",
            estimator=self.estimator,
            account="pld",
            confidence=0.95,
            runs=len(member),
            seed=3,
            torch_version="2.6.0",
            version="0.1.0",
        )
        bound = ESTIMATORS[self.estimator](
            Scores(member, score, "coin-flip"),
            self.delta,
            threat_model="the canary's loss",
            seed=3,
        )
        nodes = nodes_of(self.upper, self.delta, self.nodes)
        if self.assumes:
            nodes = tuple(
                msgspec.structs.replace(
                    node,
                    standing="conditional",
                    method="certified",
                    assumes=self.assumes,
                )
                for node in nodes
            )
        counts = int(member.sum()), int((~member).sum())
        most = most_shown(
            ESTIMATORS[self.estimator], *counts, self.delta, worlds=np.sort(member)
        )
        verdict = Finding(claim=claim, upper=nodes[0], lower=bound.lower, most=most)
        result = AuditResult(
            verdict=verdict,
            status=verdict.status,
            evidence=bound.evidence,
            nodes=nodes,
            noise_multiplier=self.noise,
            accuracy=0.71,
            member_runs=counts[0],
            non_member_runs=counts[1],
            seconds=12.5,
            gap=self.gap,
        )
        buffer = io.BytesIO()
        np.savez(buffer, member=member, score=score, design=np.array("coin-flip"))
        _write(path, config, ledger, result)
        RunFolder(path).write("scores.npz", buffer.getvalue())
        return result


def write_training(
    path: pathlib.Path,
    *,
    claim: float | None = 1.0,
    upper: float = 0.99996,
    remarks: tuple[str, ...] = (),
    test: tuple[int, int] | None = None,
) -> TrainingResult:
    """Fill the folder ``path`` with a training run, measured on so many of so many."""
    promised = None if claim is None else claim_of(claim, 1e-4, "the command line")
    nodes = nodes_of(upper, 1e-4, 1)
    verdict = None if promised is None else Finding(claim=promised, upper=nodes[0])
    protected, said = protection(6.0, 0, "0.1.0")
    result = TrainingResult(
        nodes=nodes,
        verdict=verdict,
        status=None if verdict is None else verdict.status,
        noise_multiplier=6.0,
        accuracy=0.7,
        worst_accuracy=0.6,
        seconds=2.5,
        remarks=remarks,
        protected=protected,
        noise=said,
        test_records=test and test[0],
        test_size=test and test[1],
    )
    config = TrainingConfig(
        claim=promised,
        training={**TRAINING, "algorithm": "dp-sgd"},
        noise_multiplier=6.0,
        account="pld",
        seed=0,
        torch_version="2.6.0",
        version="0.1.0",
    )
    _write(path, config, ledger_of(6.0, 1), result)
    return result


def accounted() -> float:
    """The epsilon of `write_training`'s ledger, which `show` and `report` want."""
    return account(ledger_of(6.0, 1), 1e-4, method="pld").epsilon


def claim_of(epsilon: float, delta: float, source: str) -> Claim:
    """A claim under add-or-remove-one."""
    return Claim(
        epsilon=epsilon, delta=delta, relation="add-or-remove-one", source=source
    )


def ledger_of(
    noise_multiplier: float, nodes: int, disjoint: int | UnsetType = UNSET
) -> Ledger:
    """A hundred noisy sums at each node, perhaps of one pass."""
    release = Release.of_sum(
        norm_bound=10.0,
        noise_multiplier=noise_multiplier,
        sampling=PoissonSampling(0.32),
    )
    return Ledger(nodes=((Entry(release, 100, disjoint),),) * nodes)


def nodes_of(epsilon: float, delta: float, nodes: int) -> tuple[UpperBound, ...]:
    """The account of each node; the first is the worst."""
    return tuple(
        UpperBound(
            epsilon=epsilon / (1 + node),
            delta=delta,
            relation="add-or-remove-one",
            method="pld",
            source="a paper",
            standing="certified",
            sampling="poisson",
        )
        for node in range(nodes)
    )


def _write(
    path: pathlib.Path, config: msgspec.Struct, ledger: Ledger, result: msgspec.Struct
) -> None:
    path.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(path)
    folder.write("config.json", _json.encode(config))
    folder.write("ledger.json", ledger.to_json().encode())
    folder.write("curves.json", _json.encode(CURVES))
    folder.write("result.json", _json.encode(result))
