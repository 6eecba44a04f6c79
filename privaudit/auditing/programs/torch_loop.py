"""Gradient canaries in a plain torch loop of the user's, and their audit.

The record under attack is in gradient space: a vector as long as the clip norm, in a
fixed direction, that joins the sum of a batch by its own coin in the runs that it is a
member of. Who attacks knows all other records and batches, which the guarantee allows,
sees every noisy sum, and scores by the likelihood ratio of what is left::

    def train(seed, canary):
        ...
        for batch in batches:                     # Poisson sampled at RATE
            total = clipped_gradients(batch).sum(0)
            total = canary.add(total, clip_norm=CLIP, sampling_rate=RATE)
            noisy = total + NOISE * CLIP * torch.randn_like(total)
            canary.see(noisy, noise_multiplier=NOISE)

    found = torch_loop.audit(train, epsilon=2.0, delta=1e-5)

What this cannot see: how the loop clips and samples its other records. `probe_loader`
looks at batches, and `privaudit.probe` at clipping. So the account is conditional, see
`TOLD`: a claim ends as refuted or disproved, and at best as unproven.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privaudit.accounting import account_nodes
from privaudit.auditing.bounds import Estimator
from privaudit.auditing.bounds.ledger_family import FAMILY
from privaudit.auditing.conclude import BEST, AuditedScores, Tested, conclude, stronger
from privaudit.auditing.experiments.judgement import estimator_named
from privaudit.auditing.experiments.one_run_bounds import one_run_estimator
from privaudit.auditing.probes import Check
from privaudit.auditing.probes.batches import check_batches
from privaudit.auditing.programs.targets import spread_seed
from privaudit.auditing.scores import Design, Scores
from privaudit.files.json import Summary
from privaudit.ledger import Ledger, Recorder
from privaudit.release import PoissonSampling, Release
from privaudit.results import DELTA, LowerBound, Relation, Status, UpperBound
from privaudit.settings import ProgramSettings, claim_of

_DIRECTION = 0x19  # seed of the canary's direction, which is the same in every run
RUNS = 10_000  # scores, by default
_MOST = 64  # canaries at once, by default
_PASSES = 8  # over the data, that a loader is asked for
TOLD = (
    "the training clips, samples and adds noise as its canary was told, each gradient "
    "is one record's alone, and floating point noise hides as much as exact noise"
)


class GradientCanary:
    """The canaries of one training, at right angles: ``member``, (canaries,) bool."""

    def __init__(self, member: NDArray[np.bool_], seed: int) -> None:
        self.member = np.atleast_1d(member)
        self.checks: list[Check] = []
        self._coins = np.random.default_rng([seed, 0xCA9A])
        self._scores = np.zeros(len(self.member))
        self.releases: list[tuple[float, float]] = []  # noise multiplier, rate
        self._others: NDArray[np.float64] | None = None  # in clip norms
        self._clip, self._rate = 1.0, 1.0
        self._before = np.zeros(0)  # marks of a sum, before there is noise on it
        self._noise: list[float] = []  # marks of the first releases' noise
        self._units: Tensor | None = None
        self._marks: Tensor | None = None

    @property
    def scores(self) -> NDArray[np.float64]:
        """The log likelihood ratios of all that was seen; higher says member."""
        if not self.releases:
            raise ValueError(
                "the training released nothing that the canary saw: call canary.add "
                "and canary.see in each step, or plant it with canary.on(optimizer)"
            )
        return self._scores

    @property
    def room(self) -> int:
        """Number of canaries that could be at right angles; 1 before any was seen."""
        return 1 if self._units is None else len(self._units)

    @property
    def noise(self) -> NDArray[np.float64]:
        """Some of the noise that was seen, over its deviation."""
        return np.array(self._noise[:_NOISE])

    @property
    def ledger(self) -> Ledger:
        """Ledger of the releases, by the noise and the rate that were stated."""
        recorder = Recorder(1)
        for noise, rate in self.releases:
            release = Release.of_sum(
                norm_bound=1.0, noise_multiplier=noise, sampling=PoissonSampling(rate)
            )
            recorder.record(0, release)
        return recorder.ledger()

    def add(self, total: Tensor, *, clip_norm: float, sampling_rate: float) -> Tensor:
        """The sum of a batch's clipped gradients with the canaries that are in it."""
        if self._others is not None:
            raise ValueError(
                "canary.add was called twice: call canary.see with the noisy sum after "
                "each"
            )
        units = self.directions(total)
        there = self.drawn(clip_norm, sampling_rate)
        self._others = self._along(total)
        if there.any():
            planted = units @ torch.as_tensor(there, device=units.device).double()
            total = total + (clip_norm * planted).to(total.dtype).view_as(total)
        self._before = self.marks(total)
        return total

    def see(self, noisy: Tensor, *, noise_multiplier: float) -> None:
        """The noisy sum, before it is divided by anything."""
        if self._others is None:
            raise ValueError("canary.see was called without canary.add before it")
        others, self._others = self._others, None
        noise = self.marks(noisy) - self._before
        self.weigh(self._along(noisy) - others, noise_multiplier, noise)

    def marks(self, vector: Tensor) -> NDArray[np.float64]:
        """Some numbers that tell one noise from another, in clip norms."""
        if self._marks is None:
            many = min(_MARKS, vector.numel())
            self._marks = _units(vector.numel(), many).to(vector.device)
        found = vector.detach().double().flatten() @ self._marks
        return found.cpu().numpy() / self._clip

    def directions(self, like: Tensor) -> Tensor:
        """(values, canaries): orthonormal columns, the same in every training."""
        if self._units is None:
            self._units = _units(like.numel(), len(self.member)).to(like.device)
        if len(self._units) != like.numel():
            raise ValueError(
                f"sums have {like.numel():,} values, and had {len(self._units):,} "
                "before: pass the same parameters in every step"
            )
        return self._units

    def drawn(self, clip_norm: float, rate: float) -> NDArray[np.bool_]:
        """Mask of the records in the next batch."""
        if not 0 < clip_norm < math.inf:
            raise ValueError(f"clip_norm must be > 0 and finite, got {clip_norm}")
        if not 0 < rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1], got {rate}")
        self._clip, self._rate = clip_norm, rate
        return self.member & (self._coins.random(len(self.member)) < rate)

    def weigh(
        self,
        left: NDArray[np.float64],
        noise_multiplier: float,
        noise: NDArray[np.float64],
    ) -> None:
        """Add what a noisy sum says, less what others gave, in clip norms.

        ``noise``: the `marks` of the noisy sum, less those of the sum.
        """
        if not 0 <= noise_multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier must be >= 0 and finite, got {noise_multiplier}"
            )
        if noise_multiplier and len(self._noise) < _NOISE:
            self._noise += (noise / noise_multiplier).tolist()
        exponent = (left - 0.5) / (noise_multiplier or 1.0) ** 2
        if self._rate < 1:
            exponent = np.logaddexp(
                exponent + math.log(self._rate), math.log1p(-self._rate)
            )
        self._scores = self._scores + exponent
        self.releases.append((float(noise_multiplier), float(self._rate)))

    def _along(self, vector: Tensor) -> NDArray[np.float64]:
        found = vector.detach().double().flatten() @ self.directions(vector)
        return found.cpu().numpy() / self._clip


@functools.lru_cache(maxsize=8)
def _units(values: int, canaries: int) -> Tensor:
    if canaries > values:
        raise ValueError(
            f"{canaries:,} canaries at right angles need as many parameters, and there "
            f"are {values:,}: use fewer"
        )
    generator = torch.Generator().manual_seed(_DIRECTION)
    drawn = torch.randn(values, canaries, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(drawn).Q


@dataclasses.dataclass(frozen=True, slots=True)
class AuditedTraining:
    """Finding of the audit of a user's loop.

    Parameters
    ----------
    audited
        Claim, account and audit together.
    ledger
        What a run releases.
    checks
        What was looked at without statistics.
    """

    audited: AuditedScores
    ledger: Ledger
    checks: tuple[Check, ...] = ()

    @property
    def status(self) -> Status:
        """The verdict in a word; never consistent where there are ``findings``."""
        return self.audited.status

    @property
    def lower(self) -> LowerBound:
        """Lower bound that the scores show."""
        return self.audited.lower

    @property
    def upper(self) -> UpperBound | None:
        """The account of the ledger; None where there are ``findings``."""
        return self.audited.upper

    @property
    def findings(self) -> list[str]:
        """Each bug that was found without statistics, in a sentence."""
        return [f"{one.name}: {bug}" for one in self.checks for bug in one.findings]

    summary = Summary("*audited findings")

    def __str__(self) -> str:
        return "\n".join([str(self.audited), *self.findings])


def audit(
    train: Callable[[int, Any], object],
    *,
    epsilon: float,
    delta: float = DELTA,
    runs: int = RUNS,
    seed: int = 0,
    ledger: Ledger | None = None,
    confidence: float = 0.95,
    canaries: int | None = None,
) -> AuditedTraining:
    """Test a claim about a user's loop by a canary in gradient space.

    Parameters
    ----------
    train
        Called with a seed and a `GradientCanary`, which it plants; its noise must come
        from the seed, or be fresh in each call.
    epsilon, delta
        The claim, when one record is added or removed.
    runs
        How many scores, at least: trainings with and without the canary, times
        ``canaries``. There is one training more, to see what a run releases: all
        release the same, or there is no account.
    seed
        Of the worlds and of the seeds.
    ledger
        What is accounted; by default what the canary was told of noise and rates. Where
        the two differ that is a finding.
    confidence
        Of each lower bound: that of the verdict is for any mechanism, and
        ``audited.beside`` is within the releases of the ledger, with more or less
        noise. That one contradicts the account where it is above it, and refutes
        nothing.
    canaries
        How many are planted at once, in directions at right angles, each by a coin of
        its own: as many scores from so many fewer trainings. Within the family they are
        independent; for any mechanism they are taken as those of one run. By default
        64, or one a parameter where there are fewer; at most ``runs``.

    Raises
    ------
    ValueError
        If a value is out of its range, or the training fails or plants no canary, or
        releases something else than before or with the same noise: no bound holds then.

    Examples
    --------
    >>> import torch
    >>> from privaudit.integrations import torch_loop
    >>> def train(seed, canary):
    ...     noise = torch.Generator().manual_seed(seed)
    ...     total = canary.add(torch.zeros(20), clip_norm=1.0, sampling_rate=1.0)
    ...     total = total + 0.5 * torch.randn(20, generator=noise)  # 1 is said
    ...     canary.see(total, noise_multiplier=1.0)
    >>> found = torch_loop.audit(train, epsilon=4.4, runs=2000)
    >>> found.status, found.audited.verdict.account_contradicted
    ('unproven', True)
    """
    how = ProgramSettings(
        epsilon=epsilon, delta=delta, runs=runs, seed=seed, confidence=confidence
    )
    return audit_with(GradientCanary, train, ledger, canaries, how)


def audit_with(
    kind: type[GradientCanary],
    train: Callable[[int, Any], object],
    ledger: Ledger | None,
    canaries: int | None,
    how: ProgramSettings,
) -> AuditedTraining:
    """As `audit`, by another kind of canary; ``how`` has the claim."""
    if not callable(train):
        raise ValueError(
            "train is a function of a seed and a canary, got " + type(train).__name__
        )
    if canaries is not None and not 1 <= canaries <= how.runs:
        raise ValueError(f"canaries must be >= 1 and <= runs, got {canaries}")
    first = kind(np.zeros(canaries or 1, bool), 0)
    first.checks.append(_PENDING)  # asks for the checks that one run is enough for
    train(how.seed, first)
    _ = first.scores  # raises
    many = canaries or min(_MOST, first.room, how.runs)
    seen = first.ledger
    checks = [one for one in first.checks if one is not _PENDING]
    if ledger is not None:
        checks.append(_against(seen, ledger))
    trainings = -(-how.runs // many)
    coins = np.random.default_rng([how.seed, 0x0C01])
    member = coins.random((trainings, many)) < 0.5
    begin = int(coins.integers(1 << 30))
    scores = np.zeros(member.shape)
    noises: list[NDArray[np.float64]] = []
    for place, worlds in enumerate(member):
        own = spread_seed(begin, place)
        canary = kind(worlds, own)
        train(own, canary)
        scores[place] = canary.scores
        noises.append(canary.noise)
        if canary.releases != first.releases:
            raise ValueError(
                f"a training made {len(canary.releases):,} releases where the first "
                f"made {len(first.releases):,}, or with other noise or rates: a loop "
                "that is audited releases the same each time, whatever its seed"
            )
    checks.append(_noise_of(np.stack(noises)))
    accounted = (seen if ledger is None else ledger).assuming(TOLD)
    audited = _judged(accounted, member.ravel(), scores.ravel(), many, how)
    found = AuditedTraining(audited, accounted, tuple(checks))
    if not found.findings:
        return found
    # The account is of another training than this one: it meets no claim.
    alone = msgspec.structs.replace(
        audited.verdict, upper=None, proved=None, misfit=None
    )
    audited = dataclasses.replace(audited, verdict=alone)
    return dataclasses.replace(found, audited=audited)


def _judged(
    ledger: Ledger,
    member: NDArray[np.bool_],
    scores: NDArray[np.float64],
    canaries: int,
    how: ProgramSettings,
) -> AuditedScores:
    """The verdict on all scores.

    For any mechanism canaries of one training depend on each other as those of one run
    do. Within the family they are independent: noise is, in all directions, what others
    gave was taken off, and no two canaries meet.
    """
    relation: Relation = "add-or-remove-one"
    assert how.epsilon is not None  # callers take it
    claim = claim_of(how.epsilon, how.delta, relation, source="privaudit.integrations")
    nodes = account_nodes(ledger, how.delta, relation)
    worst = max(range(len(nodes)), key=lambda node: nodes[node].epsilon)
    entries = ledger.nodes[worst]
    design: Design = "coin-flip" if canaries == 1 else "one-run"

    sees = "all noisy sums of gradients, with all other records known"
    if canaries > 1:
        sees += f"; {canaries} canaries a training"

    def named(name: str) -> Estimator:
        if name == FAMILY or canaries == 1:
            return estimator_named(name, entries, relation)
        return one_run_estimator(
            name,
            entries,
            relation,
            len(scores),
            delta=how.delta,
            confidence=how.confidence,
        )

    apart = Scores(member, scores, "coin-flip") if canaries > 1 else None
    tested = Tested(
        scores=Scores(member, scores, design, apart),
        claim=claim,
        sees=sees,
        confidence=how.confidence,
        seed=how.seed,
    )
    found = conclude(
        tested,
        BEST,
        named,
        ledger=ledger,
        upper=nodes[worst],
        stronger=stronger("noisy-gradients", "gradient"),
    )
    audited = AuditedScores.of(found, tested.scores)
    shown = audited.beside
    if shown is None or canaries == 1:
        return audited
    also = f"{shown.valid_for}, independent between trainings, steps and directions,"
    shown = msgspec.structs.replace(shown, valid_for=also)
    return dataclasses.replace(audited, beside=shown)


_PENDING = Check(name="pending", what="")
_NOISE = 16  # numbers of a training's noise that are compared with others'
_MARKS = 4  # of them, from a release
_ALIKE = 1e-4  # four numbers are never so by chance, and rounding moves them by less


def _noise_of(drawn: NDArray[np.float64]) -> Check:
    """Return whether there was noise; ``drawn``, (trainings, numbers), over its size.

    Raises ``ValueError`` if trainings had the same, which no bound here is for.
    """
    found = ()
    if drawn.size and np.abs(drawn).max() < _ALIKE:
        found = ("there was no noise where some was said",)
    elif drawn.size and len(drawn) > 1:
        ordered = drawn[np.argsort(drawn[:, 0])]
        same = np.abs(np.diff(ordered, axis=0)).max(1) < _ALIKE
        # Of fewer numbers some are like others' by chance, as answers of few values.
        if same.all() or (same.any() and drawn.shape[1] >= _MARKS):
            raise ValueError(
                "trainings had the same noise, so that no bound holds: seed theirs by "
                "the seed that train is given, or not at all"
            )
    return Check(name="noise", what="trainings have noise", findings=found)


def _against(seen: Ledger, ledger: Ledger) -> Check:
    """Return whether what was accounted is what the training said while it ran."""
    amounts = []
    for one in (seen, ledger):
        counts: dict[tuple[str, Any], int] = {}
        for entry in one.nodes[0]:
            release = entry.release
            ratio = round(release.noise / release.norm_bound, 9)
            key = (f"{release.mechanism} noise multiplier {ratio:g}", release.sampling)
            counts[key] = counts.get(key, 0) + entry.count
        amounts.append(counts)
    found = ()
    if amounts[0] != amounts[1]:
        words = [
            ", ".join(
                f"{count:,} releases of {noise} ({sampling})"
                for (noise, sampling), count in one.items()
            )
            for one in amounts
        ]
        found = (f"the training made {words[0]}; accounted are {words[1]}",)
    return Check(
        name="ledger", what="what a run releases is what is accounted", findings=found
    )


def probe_loader(
    loader: Any, *, sampling_rate: float | None = None, passes: int = _PASSES
) -> Check:
    """Return whether a torch ``DataLoader`` draws batches as Poisson sampling does.

    No record is read: only its batch sampler is asked, for some passes. It cannot see
    what the training does with a batch, such as cutting or repeating it.

    ``loader``: with a ``batch_sampler``, as `torch.utils.data.DataLoader` and Opacus'
    ``DPDataLoader`` have. ``sampling_rate``: what is accounted; by default the loader's
    own ``sample_rate``, or one over its number of batches, as Opacus has it.
    ``passes``: how many, >= 2. Raises ``ValueError`` if the loader has no batch
    sampler or no record, or the rate is not in (0, 1].

    Examples
    --------
    >>> import torch
    >>> from privaudit.integrations.torch_loop import probe_loader
    >>> data = torch.utils.data.TensorDataset(torch.zeros(100, 3))
    >>> loader = torch.utils.data.DataLoader(data, batch_size=10, shuffle=True)
    >>> probe_loader(loader).status
    'finding'
    """
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None or not hasattr(loader, "dataset"):
        raise ValueError(
            "a loader is probed by its batch sampler, and this one has none: "
            f"{type(loader).__name__}"
        )
    if passes < 2:
        raise ValueError(f"passes must be >= 2, got {passes}")
    records = len(loader.dataset)
    if not records:
        raise ValueError("the loader's data set is empty: give one with records")
    rate = sampling_rate
    if rate is None:
        rate = getattr(loader, "sample_rate", None)
    if rate is None:
        if not len(loader):
            raise ValueError("the loader has no batch that tells: give sampling_rate")
        rate = 1 / len(loader)
    if not isinstance(rate, numbers.Real) or not 0 < float(rate) <= 1:
        raise ValueError(f"sampling_rate must be a number in (0, 1], got {rate!r}")
    seen = [[list(batch) for batch in sampler] for _ in range(passes)]
    return check_batches(seen, records, float(rate))
