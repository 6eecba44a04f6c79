"""Probes of an oracle: its noisy sums, compared with its ledger."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from privaudit.auditing.attacks.canaries import CANARY_NODE, mislabelled
from privaudit.auditing.probes import Check
from privaudit.auditing.probes import noise as law
from privaudit.auditing.probes import streams as drawn
from privaudit.figure_settings import ProbeSettings
from privaudit.ledger import Ledger
from privaudit.release import PoissonSampling, RandomAllocation, Release, Sampling
from trainers.data import Dataset, PrivateData
from trainers.numerics.randomness import Streams
from trainers.oracles.mechanism import Mechanism
from trainers.oracles.oracle import Oracle
from trainers.oracles.recording import Recording
from trainers.oracles.secrets import PairedMechanism
from trainers.runs.problem import Problem

WHAT = {  # that holds of an oracle, by the name of the check
    "sensitivity": "one record moves no release further than the ledger says",
    "sampling": "a record is in a batch at the ledger's rate, by a fresh draw",
    "unknown noise": "noise is not what known seeds of known generators give",
    "noise": "its standard deviation is the ledger's, no less and no more",
    "fresh noise": "no two releases, nodes or runs share noise",
    "grid": "last digits of releases show nothing: they are on a public grid",
    "fine noise": "noise has the values of at least single precision",
    "divisor": "what a sum is divided by does not depend on the data",
}
_SCALES = (0.1, 1.0, 100.0)  # of the record that is swapped; the last is clipped
_ROUNDING = 3e-5  # of a sum in single precision, relative to its norm


@dataclasses.dataclass(frozen=True, slots=True)
class Probed:
    """An algorithm's oracle, asked for a few releases at the start."""

    problem: Problem  # whose oracle
    # its noise; runs at once: what is estimated is so much the surer
    how: ProbeSettings
    releases: int  # how often it is asked

    def asked(
        self,
        noise_multiplier: float,
        canary: Dataset | None = None,
        planted: bool = False,
        streams: Streams | None = None,
        runs: int | None = None,
    ) -> tuple[Tensor, Oracle, Recording]:
        """Sums that it gave out, (releases, runs, nodes, dims), and what gave them.

        Random numbers are those of ``streams``; by default the seed's. ``runs``: at
        once, by default as many as were asked for.
        """
        training, recording = self.problem.training, Recording()
        runs = runs or self.how.runs
        mechanism = self.problem.mechanism(noise_multiplier)
        if isinstance(mechanism, PairedMechanism):
            # As whoever knows all secrets sees it: so much is in the ledger.
            mechanism = dataclasses.replace(mechanism, shared=0.0)
        private = training.family.oracle(
            PrivateData.of(
                self.problem.shares,
                canary=canary,
                canary_nodes=(CANARY_NODE,),
                replaces=mechanism.sampling == "without-replacement",
            ),
            self.problem.gradients(),
            mechanism,
            streams or Streams(self.how.seed),
            runs=runs,
            planted=None
            if canary is None
            else torch.full((runs,), planted, dtype=torch.bool),
            observers=[recording],
        )
        at = self.problem.start(self.how.seed, runs)
        means = torch.stack(
            [private.gradient(at).clone() for _ in range(self.releases)]
        )
        over = torch.tensor(mechanism.divisors(self.problem.sizes), dtype=torch.float64)
        return means * over[:, None].to(means), private, recording

    @property
    def _mechanism(self) -> Mechanism:
        return self.problem.mechanism(self.how.noise_multiplier)

    def _white(self, noisy: Tensor, exact: Tensor) -> Tensor:
        """Independent noise that what ``noisy`` has upon ``exact`` sums is made of."""
        shared = self._shared(noisy)
        rows = noisy if self._mechanism.summed else torch.tensordot(shared, noisy, 1)
        return rows - torch.tensordot(shared, exact, 1)

    def _sums(self, released: Tensor) -> Tensor:
        """Sums that ``released``, (releases, ...) without noise, are made of."""
        if not self._mechanism.summed:
            return released
        return torch.tensordot(torch.linalg.inv(self._shared(released)), released, 1)

    def _shared(self, rows: Tensor) -> Tensor:
        """C, by which releases share noise."""
        column = torch.tensor(self._mechanism.column(len(rows)), dtype=rows.dtype)
        back = torch.arange(len(rows))[:, None] - torch.arange(len(rows))
        return column[back.clamp_min(0)].tril_()

    def checks(self) -> list[Check]:
        """All that can be said of an oracle alone."""
        noisy, private, recording = self.asked(self.how.noise_multiplier)
        exact, _, _ = self.asked(0.0)
        ledger = private.ledger
        noise = self._white(noisy, exact)
        written = [
            [one.noise for one in each_release(ledger, node)[: self.releases]]
            for node in range(len(ledger.nodes))
        ]
        return [
            *self._of_one_record(noise),
            _check("unknown noise", self._unknown()),
            _check("noise", law.as_written(noise, written)),
            _check("fresh noise", [*law.fresh(noise), *drawn.proportional(noise)]),
            _check("grid", self._off_the_grid(recording, written)),
            _check("fine noise", law.fine(noise.flatten()[:, None])),
            _check("divisor", law.evenly_scaled(noise)),
            Check(
                name="written down",
                what="each release that the oracle makes is in the ledger",
                findings=tuple(counted(recording, ledger)),
            ),
        ]

    def _unknown(self) -> list[str]:
        """Under a key that only this process has, nobody else makes its noise again."""
        key, z = drawn.hidden(self.how.seed), self.how.noise_multiplier
        noisy, private, _ = self.asked(z, streams=Streams(key), runs=2)
        exact, _, _ = self.asked(0.0, streams=Streams(key), runs=2)
        noise = self._white(noisy, exact).double()
        for one, release in zip(noise, each_release(private.ledger, 0), strict=False):
            one /= release.noise
        return drawn.known(noise, self.how.search or drawn.SEARCH)

    def _off_the_grid(
        self, recording: Recording, written: list[list[float]]
    ) -> list[str]:
        if len({len(one) for one in written}) > 1:
            return []  # which release is which cannot be told; it is found elsewhere
        pairs = zip(
            (release for _, release in recording.releases),
            torch.tensor(written, dtype=torch.float64).T,
            strict=False,
        )
        over = self._mechanism.divisors(self.problem.sizes)
        return drawn.off_the_grid(pairs, over)

    def _of_one_record(self, noise: Tensor) -> list[Check]:
        """One record more, or another in its place, under the same noise."""
        too_far: list[str] = []
        batches: list[str] = []
        mechanism = self._mechanism
        # What opposes the node's other records moves their sum the furthest; what the
        # model finds unlikely is sure to move it, and comes last.
        against = mislabelled(self.problem, self.how.seed).record
        records = [Dataset(against.inputs * s, against.targets) for s in _SCALES]
        records += [self._unlikely(scale) for scale in _SCALES[1:]]
        for record in records:
            within, private, _ = self.asked(
                self.how.noise_multiplier, record, planted=True
            )
            without, _, _ = self.asked(self.how.noise_multiplier, record)
            moved = self._sums(within - without)[:, :, CANARY_NODE].norm(dim=2)
            rounding = _ROUNDING * without[:, :, CANARY_NODE].norm(dim=2).max().item()
            written = each_release(private.ledger, CANARY_NODE)[: self.releases]
            if len(written) != len(moved):
                continue  # which of them is which cannot be told; it is found elsewhere
            for index, (one, release) in enumerate(zip(moved, written, strict=True)):
                allowed = _sensitivity(release) / mechanism.spread_of(index)
                if one.max().item() > allowed * (1 + 1e-6) + rounding:
                    too_far.append(
                        f"one record moved the sum of release {index} by "
                        f"{one.max():.4g}; the ledger's sensitivity is {allowed:.4g}"
                    )
            if record is records[-1]:
                taken = moved > max(rounding, 1e-9)
                how = written[0].sampling
                if isinstance(how, RandomAllocation):
                    batches = law.allocated(taken, how)
                else:
                    once, batches = law.in_turns(taken, parts_of(how))
                    batches += law.sampled(once, how.rate)
                batches += drawn.told_by_noise(noise[:, :, CANARY_NODE], taken)
        return [
            _check("sensitivity", list(dict.fromkeys(too_far))),
            _check("sampling", batches),
        ]

    def _unlikely(self, scale: float) -> Dataset:
        """A held-out record, ``scale`` times, with the label least likely at the start.

        A label that the model is sure of has no gradient, and would hide everything.
        """
        inputs = self.problem.test.inputs[:1] * scale
        start = self.problem.start(self.how.seed)[:, CANARY_NODE]
        outputs = self.problem.gradients().outputs(start, inputs[None])[0]
        if outputs.shape[-1] == 1:  # one logit, of class 1
            return Dataset(inputs, (outputs[:, 0] < 0).long())
        return Dataset(inputs, outputs.argmin(-1))


def _check(name: str, findings: list[str]) -> Check:
    return Check(name=name, what=WHAT[name], findings=tuple(findings))


def parts_of(sampling: Sampling) -> int:
    """Number of releases of one turn, which an entry of the ledger stands for."""
    return sampling.parts if isinstance(sampling, PoissonSampling) else 1


def each_release(ledger: Ledger, node: int) -> list[Release]:
    """One after another, equal ones too, and as if the last turn was a whole one."""
    return [
        entry.release
        for entry in ledger.nodes[node]
        for _ in range(entry.count * parts_of(entry.release.sampling))
    ]


def counted(recording: Recording, ledger: Ledger) -> list[str]:
    """Return faults where the ledger has not what happened at each node, as often."""
    found = []
    for node, happened in enumerate(recording.happened(len(ledger.nodes))):
        written = each_release(ledger, node)
        least = len(written) + 1 - parts_of(written[-1].sampling) if written else 0
        if not least <= happened <= len(written):
            found.append(
                f"node {node}: {happened} releases happened, {len(written)} are in the "
                "ledger"
            )
    return found


def _sensitivity(release: Release) -> float:
    """Under the relation that the sampling has a meaning for."""
    bound = release.sensitivity
    allowed = bound.add_or_remove_one
    if allowed is None:
        allowed = bound.replace_one
    return math.inf if allowed is None else allowed
