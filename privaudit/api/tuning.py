"""Tuning: the best of several trainings, with what looking at them costs."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from privaudit.accounting.tuning import draw_tries
from privaudit.api.console import watching
from privaudit.api.own_training import PLAIN, TrainedModels, models_of, trained_models
from privaudit.api.public_search import PublicJudge
from privaudit.api.training_plan import TrainingPlan, claimed, setting_of, training_of
from privaudit.api.trainings import Own, run_of, warnings_of
from privaudit.api.watch import Watch
from privaudit.files.arguments import near, public, with_changes
from privaudit.files.extras import need
from privaudit.files.folder import FolderError, RunFolder
from privaudit.records import CandidateRecord, TuningRecord
from privaudit.settings import TrainingSettings
from privaudit.task_settings import OPEN, laid_over

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainers.algorithms.family import Noise
    from trainers.runs.material import Material
    from trainers.runs.problem import Problem
    from trainers.runs.training import Training

TUNED = (*OPEN, "optimiser", "warm_up", "algorithm", "graph")
MOST_TRIES = 500.0  # on average
DRAWN = 30  # candidates of a strategy


@public
def tune(
    plan: TrainingPlan | str | os.PathLike[str],
    grid: Any,
    model: nn.Module | Callable[[], nn.Module] | str,
    shares: Any,
    *,
    tries: float | None = None,
    law: str | float = "poisson",
    like: Any = None,
    judge: Any = None,
    settings: TrainingSettings = PLAIN,
    loss: Callable[..., Any] | None = None,
    transform: Callable[[Tensor], Any] | None = None,
    test: Any = None,
    out: str | os.PathLike[str] | None = None,
    watch: Watch | str | None = None,
    **changes: Any,
) -> TrainedModels:
    """Train with several settings; return the best, within the budget of the plan.

    Tries on private data are charged: all of them have so much noise that the best one,
    as it comes out, meets the budget. That holds, and the certificate says so, for
    whoever sees the result and nothing of the other tries, nor how many there were, nor
    how long they took: for the public, and not for nodes that hear each other's
    messages. With ``law`` "all" it holds for these as well, without assuming anything.
    On public data (``like``) tuning costs nothing.

    Parameters
    ----------
    plan
        A `privaudit.plan`, or the file of one: the budget, and what is not tuned.
    grid
        Values by setting, such as ``{"step_size": [0.1, 0.3], "clip_norm": [0.5, 1]}``,
        of which all combinations are candidates; or a list of candidates, each such as
        ``{"step_size": 0.1, "rounds": 50}``; or a hypothesis strategy for these, of
        which 30 are drawn. Rounds, batches, clip norm, step size, schedule, warm_up,
        optimiser, algorithm and graph can be tuned.
    model, shares, loss, transform, test, watch
        As in `privaudit.train`.
    tries
        The number of tries on average, from 1 to 500; each is of a candidate drawn at
        random. None: as many as there are candidates.
    law
        "poisson" (at least one try), "geometric", "logarithmic" or a shape, of the
        secret number of tries, as `privaudit.repeat_and_select` has them; "all": each
        candidate once, and all that they release is in the account.
    like
        Public or made-up data, inputs and targets, of the shape of the shares. Each
        candidate is tried on them, with noise that leaves as much signal, and the best
        is trained on the shares, with the whole budget. None: tries are on the shares.
    judge
        A public data set on which tries on the shares are judged. None: by how many of
        their own records the nodes' models get right, with noise that is charged.
    settings, changes
        `TrainingSettings`, or fields of it by name, of which tries take those of
        `RunSettings`, classes and device; the plan has the rest. The public seed draws
        from a strategy.
    out
        A folder for the run, in which the same call goes on if it was stopped, with the
        tries that were drawn. Until the end its part ``tries``, which its owner alone
        can read, has what must stay secret: what was drawn, the best try so far and the
        one at work. None: tries are in memory only, and lost if the process ends.

    Returns
    -------
    The best try, a `TrainedModels`, whose certificate counts the tries.
    ``result.remarks`` say what was tuned and charged, and which candidate came out.

    Raises
    ------
    ValueError
        If a candidate has no meaning, the tries cannot be charged, or training diverges
        in all of them; and as `privaudit.train`.

    Examples
    --------
    >>> import privaudit as pa, torch
    >>> inputs = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    >>> shares = [(x, (x.sum(1) > 0).long()) for x in inputs.split(40)]
    >>> net = torch.nn.Linear(5, 2)
    >>> plan = pa.plan(net, shares, epsilon=4, rounds=5)
    >>> run = pa.tune(plan, {"step_size": [0.3, 3]}, net, shares, seed=0)
    >>> 3.9 < run.certificate.epsilon(1e-5).upper <= 4
    True
    """
    need("privaudit.tune", "train")
    from trainers.runs.material import Material
    from trainers.runs.tries import forget

    settings, plan = with_changes(settings, changes), TrainingPlan.of(plan)
    more = _taken(settings)
    candidates = _candidates(grid, plan, settings.public_seed)
    if like is not None and judge is not None:
        raise ValueError("on public data (like) a part of them judges: leave judge out")
    classes = settings.classes
    own = {"classes": classes, "loss": loss}
    tested = Material.own(model, shares, **own, test=judge).test if judge else None
    material = Material.own(model, shares, **own, test=test)
    if transform is not None:
        material = material.with_transform(transform)
    sizes = tuple(map(len, material.shares))
    plan.over({}, material.shares)  # raises, if it is for others
    run = {"out": out, "watch": watching(watch)}
    call = _Call(plan=plan, material=material, sizes=sizes, more=more, **run)
    if out is not None and RunFolder(out).has("result.json"):
        forget(RunFolder(out))  # if it was stopped at its very end
        raise ValueError(f"{out} holds a finished run: choose a new folder")
    if like is not None:
        return call.on_public(candidates, PublicJudge.of(like, model, classes, loss))
    if tries is None:
        tries = float(len(candidates))
    if not 1 <= tries <= MOST_TRIES:
        raise ValueError(f"tries on average are 1 to 500, got {tries:g}")
    try:
        return call.on_private(candidates, tries, law, tested)
    except FolderError as error:
        raise ValueError(str(error)) from error


def _taken(settings: TrainingSettings) -> dict[str, Any]:
    """Those of ``settings`` that are of all tries; ``ValueError`` for others."""
    found = settings.kept() | {"device": settings.device}
    settings.check_only(
        {*found, "classes"}, "the plan of privaudit.tune has it, or tries have none"
    )
    return found


def _candidates(grid: Any, plan: TrainingPlan, seed: int) -> list[dict[str, Any]]:
    """Settings to try, all with the same names; ``ValueError``."""
    from trainers.runs.search import combinations

    if isinstance(grid, Mapping):
        values = (
            isinstance(x, Sequence) and not isinstance(x, str) for x in grid.values()
        )
        found = combinations(grid) if all(values) else []
    elif hasattr(grid, "example"):
        found = _drawn(grid, seed)
    else:
        found = list(grid) if isinstance(grid, Sequence) else []
    if not found or not all(isinstance(one, Mapping) and one for one in found):
        raise ValueError(
            "grid has a list of values for each setting, such as "
            '{"step_size": [0.1, 0.3]}, or is a list of settings by name, or a '
            f"hypothesis strategy for these, got {grid!r}"
        )
    names = dict.fromkeys(name for one in found for name in one)
    for name in names:
        if name not in TUNED:
            raise ValueError(f"{name} is not tuned; {near(name, TUNED)}")
    if {"batch_size", "sampling_rate"} <= names.keys():
        raise ValueError("tune batch_size or sampling_rate, not both")
    planned = {name: plan.settings[name] for name in names if name in plan.settings}
    whole = [{**planned, **one} for one in found]
    for one in whole:
        if one.keys() != names.keys():
            raise ValueError(
                f"candidates set the same names: {dict(one)} has no "
                f"{', '.join(names.keys() - one.keys())}, nor has the plan"
            )
    return [one for i, one in enumerate(whole) if one not in whole[:i]]


def _drawn(strategy: Any, seed: int) -> list[Any]:
    """Values that a hypothesis strategy gives, drawn by ``seed``."""
    import hypothesis

    found: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=DRAWN,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def draw(one: Any) -> None:
        found.append(one)

    draw()
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Call:
    """A plan, data to train on, and arguments of all trainings."""

    plan: TrainingPlan
    material: Material
    sizes: tuple[int, ...]
    more: dict[str, Any]
    out: str | os.PathLike[str] | None
    watch: Watch

    @property
    def base(self) -> Training:
        """The plan's training, before anything is tuned."""
        return training_of(self.plan.settings, self.sizes)

    def claimed(self, training: Training) -> Any:
        """Claim of the budget, and settings of a training."""
        plan = self.plan
        own = {"delta": plan.delta, "noise": plan.noise, "relation": plan.relation}
        settings = TrainingSettings(**setting_of(plan.epsilon), **own, **self.more)
        return claimed(training, "privaudit.tune", settings), settings

    def on_public(
        self, candidates: list[dict[str, Any]], judge: PublicJudge
    ) -> TrainedModels:
        """Train with the candidate that is best on public data."""
        import torch

        from trainers.runs.planning import Task
        from trainers.runs.tuned import changed

        plan = self.plan
        for one in candidates:
            if other := {"algorithm", "graph"} & one.keys():
                raise ValueError(
                    f"public data are at one place, where {' and '.join(other)} cannot "
                    "be judged: leave like or these out"
                )
        task = Task(
            sizes=plan.sizes,
            parameters=plan.parameters,
            epsilon=plan.budgets,
            delta=plan.delta,
            overlap=plan.settings.get("overlap", 1),
        )
        self.warn_of(
            *(torch.cat(both) for both in zip(judge.own, judge.held_out, strict=True))
        )
        scores = []
        for done, one in enumerate(candidates, 1):
            self.watch.note(f"public data: candidate {done} of {len(candidates)}")
            scores.append(judge(laid_over(plan.settings, one), task))
        record = self.record("public", len(candidates), candidates, 0.0)
        record = dataclasses.replace(record, chosen=scores.index(max(scores)))
        training = changed(self.base, record.best.settings)
        claim, settings = self.claimed(training)
        own = Own(self.material, tuning=record)
        return trained_models(
            *(training, claim, settings, own), out=self.out, watch=self.watch
        )

    def warn_of(self, *public: Tensor) -> None:
        """Warn of public inputs and targets that are the shares' own."""
        from trainers.data import Dataset
        from trainers.runs.owner_advice import of_public

        for line in of_public(Dataset(*public), self.material.shares):
            self.watch.warn(line)

    def record(
        self,
        law: str | float,
        tries: float,
        candidates: Sequence[dict[str, Any]],
        noise: float | Sequence[Noise],
        score_noise: float | None = None,
    ) -> TuningRecord:
        """Record of tries; that of the best is another's ``chosen``."""
        each = noise if isinstance(noise, Sequence) else [noise] * len(candidates)
        return TuningRecord(
            law=law,
            tries=float(tries),
            candidates=tuple(
                CandidateRecord(settings=one, noise_multiplier=own)
                for one, own in zip(candidates, each, strict=True)
            ),
            chosen=0,
            sizes=self.sizes,
            score_noise=score_noise,
        )

    def on_private(
        self,
        candidates: list[dict[str, Any]],
        tries: float,
        law: str | float,
        judge: Any,
    ) -> TrainedModels:
        """Return the best of several tries on the shares, which are charged."""
        from trainers.network.ranks import launched
        from trainers.runs.problem import Problem
        from trainers.runs.real_clock import is_by_real_clock
        from trainers.runs.run import Assignment
        from trainers.runs.tries import Tries
        from trainers.runs.tuned import calibrated, changed, count_noise

        trainings = [changed(self.base, one) for one in candidates]
        claim, settings = self.claimed(trainings[0])
        problems = [
            Problem.of(one, seed=settings.public_seed, material=self.material)
            for one in trainings
        ]
        if launched() or any(map(is_by_real_clock, problems)):
            raise ValueError(
                "tries are trained in one process, by its own clock: leave torchrun "
                "and clock=real out"
            )
        count = None
        if judge is None:
            _check_counted(problems[0])
            count = count_noise(self.plan.budgets, claim.delta)
        else:
            self.warn_of(judge.inputs, judge.targets)
        self.watch.note("calibrating the noise of all tries ...")
        noise, count = calibrated(
            trainings, self.sizes, law, tries, count, claim, settings
        )
        # Of what a single try spends nothing is to be said.
        unclaimed = msgspec.structs.replace(claim, epsilon=math.inf)
        for line in warnings_of(problems[0], noise[0], unclaimed, settings):
            self.watch.warn(line)
        record = self.record(law, tries, candidates, noise, count)
        made = Tries(
            candidates=[
                Assignment(
                    run=run_of(
                        *(training, self.claimed(training)[0], settings, own),
                        tuning=dataclasses.replace(record, chosen=chosen),
                    ),
                    problem=problem,
                    delta=claim.delta,
                    relation=claim.relation,
                )
                for chosen, (training, problem, own) in enumerate(
                    zip(trainings, problems, noise, strict=True)
                )
            ],
            draw=lambda: list(_tries(len(candidates), tries, law, settings.seed)),
            score=lambda chosen, models, seed: _score(
                problems[chosen], models, judge, count, seed
            ),
            judge=judge,
        )
        with contextlib.ExitStack() as stack:
            kept = None
            if self.out is not None:
                kept = stack.enter_context(RunFolder.opened(self.out))
            best = made.made(kept)

            def trained(path: pathlib.Path) -> pathlib.Path:
                made.keep(best, kept or RunFolder(path))
                return path

            return models_of(trained, self.out, self.material, claim.relation)


def _tries(
    candidates: int, tries: float, law: str | float, seed: int | None
) -> Iterator[tuple[int, int | None]]:
    """Candidate and seed of each try; seeds None: of a secret key."""
    random_source = secrets.SystemRandom() if seed is None else random.Random(seed)

    def own_seed() -> int | None:
        return None if seed is None else random_source.randrange(1 << 31)

    if law == "all":
        yield from ((candidate, own_seed()) for candidate in range(candidates))
        return
    for _ in range(draw_tries(tries, law, random_source.random())):  # type: ignore[arg-type]
        yield random_source.randrange(candidates), own_seed()


def _check_counted(problem: Problem) -> None:
    """``ValueError`` unless a record moves the count of right ones by one at most."""
    if problem.material.quality != "accuracy" or problem.material.example[1].dim():
        raise ValueError(
            "tries are judged by how many records models get right, and these targets "
            "are not a class each: give public data to judge by, judge="
        )
    if problem.training.overlap > 1:
        raise ValueError(
            "a record that several nodes hold would be counted at each: give public "
            "data to judge by, judge="
        )


def _score(
    problem: Problem,
    models: Tensor,
    judge: Any,
    deviation: float | None,
    seed: int | None,
) -> float:
    """Score of a try: of public data, or the noisy count of right private records."""
    import torch

    from trainers.data import Dataset
    from trainers.numerics.keys import Key
    from trainers.numerics.randomness import Streams
    from trainers.runs.measures import quality

    models = models[None]  # (runs, nodes, dims)
    gradients, kind = problem.gradients(), problem.material.quality
    if judge is not None:
        found = float(quality(gradients, models, judge, kind).mean())
        found = found if kind == "accuracy" else -found
        return -math.inf if math.isnan(found) else found
    assert deviation is not None
    right = 0
    for node, share in enumerate(problem.material.in_memory().shares):
        assert isinstance(share, Dataset)
        own = quality(gradients, models[:, node : node + 1], share, "accuracy")
        right += round(float(own) * len(share))
    key = Key.secret() if seed is None else Key.study(f"score {seed}")
    count = torch.tensor([[[float(right)]]], dtype=torch.float64)
    return float(Streams(key).noisy(count, [0], 0, deviation))
