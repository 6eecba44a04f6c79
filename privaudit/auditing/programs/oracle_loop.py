"""Audits of a loop of the user's own that asks an oracle of privaudit's.

It is run with oracles of other noise and batches, in half of the runs with a record
more. What the oracle adds is known: bounds within its family hold.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from privaudit.accounting import account_nodes
from privaudit.auditing.attacks.canaries import (
    CANARY_NODE,
    planted_together,
    quiet_gradients,
)
from privaudit.auditing.attacks.contract import Scene
from privaudit.auditing.attacks.likelihood import NoisyGradients
from privaudit.auditing.bounds.ledger_family import BOTH, has_family
from privaudit.auditing.conclude import BEST, AuditedScores, Tested, conclude, stronger
from privaudit.auditing.experiments.judgement import estimator_named
from privaudit.auditing.rates import attack_rates
from privaudit.auditing.scores import Scores
from privaudit.results import Claim, worst_bound
from privaudit.settings import BoundSettings
from trainers.data.shares import private_data
from trainers.gradients.choose import differentiator
from trainers.gradients.per_sample import parameter_vector
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.oracle import Oracle
from trainers.runs.material import Material
from trainers.runs.problem import crafted


def _asked(material: Material, made: Mechanism) -> Any:
    """Facts of a loop for an adversary, in place of a `Problem` and its training."""
    shares, module = material.shares, material.module
    found = types.SimpleNamespace(
        material=material,
        labels=(),
        shares=shares,
        module=module,
        sizes=tuple(map(len, shares)),
        mechanism=lambda noise_multiplier: made,
        gradients=lambda: differentiator(module, material.loss, *material.example),
        start=lambda seed: parameter_vector(module).repeat(1, len(shares), 1),
    )
    found.training = found
    return found


def audit(
    loop: Callable[[Any], object],
    shadow: Callable[[Oracle, Key], Any],
    inner: Oracle,
    material: Material,
    claim: Claim,
    how: BoundSettings,
    progress: Callable[[int, int], None],
) -> AuditedScores:
    """Run ``loop`` with and without a canary, and conclude from its releases.

    ``shadow`` makes what the loop is given of an oracle with a canary; ``inner`` is the
    user's own oracle, whose mechanism is that of all. ``progress`` is called with the
    runs done and all runs. ``ValueError`` if a value is out of its range, or the loop's
    releases are none, or differ from run to run.
    """
    if not callable(loop):
        raise ValueError(f"loop is a function of an oracle, got {type(loop).__name__}")
    if inner.mechanism.sampling == "without-replacement":
        raise ValueError("a loop with batches of fixed size has no canary to be added")
    material = material.in_memory()
    asked = _asked(material, inner.mechanism)
    runs, seed = how.runs, how.seed
    many = planted_together(asked, inner.mechanism.of(CANARY_NODE))
    canary = quiet_gradients(asked, many, seed)
    scene = Scene(
        problem=asked,
        canary=canary,
        noise_multiplier=0.0,  # the mechanism is made
        start=asked.start(seed)[0, 0],
    )
    attacker, gradients = NoisyGradients(scene), asked.gradients()
    data = private_data(
        material.shares, canary=canary.record, **crafted(canary.planted(torch.empty(0)))
    )
    data = material.data(data.to(inner.data.device))
    member = np.random.default_rng([seed, 0x0C02]).random((runs, many)) < 0.5
    score, ledger, key = np.zeros(member.shape), None, Key.study(seed)
    for run, there in enumerate(member):
        watcher = attacker.watch(1, gradients)
        oracle = Oracle(
            data,
            gradients,
            inner.mechanism,
            Streams(key, run, str(inner.data.device)),
            planted=torch.from_numpy(there[None]),
            observers=watcher.release_observers,
        )
        given = shadow(oracle, key)
        loop(given)
        if ledger not in (None, given.ledger):
            raise ValueError(
                f"run {run} released something else than those before it: a loop that "
                "is audited asks equally often each time, whatever it is told"
            )
        ledger = given.ledger
        score[run] = watcher.score(asked.start(seed))[0].numpy()
        progress(run + 1, runs)
    assert ledger is not None
    if not ledger.nodes[CANARY_NODE]:
        raise ValueError(
            "the loop asked node 0 for nothing: call gradient of the oracle that it is "
            "given, which is not the one that is audited"
        )
    scores = Scores.of_runs(member, score, "coin-flip")
    entries = ledger.nodes[CANARY_NODE]
    tested = Tested(
        scores=scores,
        claim=claim,
        sees=attacker.told,
        confidence=how.confidence,
        seed=seed,
    )
    found = conclude(
        tested,
        BOTH if has_family(entries) else BEST,
        lambda name: estimator_named(name, entries, claim.relation),
        ledger=ledger,
        upper=worst_bound(account_nodes(ledger, claim.delta, claim.relation)),
        ours=True,
        stronger=stronger("noisy-gradients", "gradient"),
    )
    return AuditedScores.of(found, scores, attack_rates(scores, how.confidence))
