"""One training of an algorithm by name, or of a recipe."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from privaudit.accounting.views import check_observer
from privaudit.api.place import Place, short_name
from privaudit.api.planting import judged_in, planted_in
from privaudit.api.training_plan import check_planned
from privaudit.api.watch import SILENT, Watch
from privaudit.files.arguments import near
from privaudit.files.folder import RunFolder
from privaudit.files.json import Summary
from privaudit.files.user_code import is_place
from privaudit.records import TuningRecord
from privaudit.report.load import FIGURES
from privaudit.results import DELTA, Claim, Finding, Judged, Status, Unit, UpperBound
from privaudit.settings import TrainingSettings, claim_of
from privaudit.task_settings import OPEN, check_no_table, is_own, laid_over

if TYPE_CHECKING:
    from trainers.algorithms.family import Noise
    from trainers.network.exchange import Exchange
    from trainers.network.over_ranks import Party
    from trainers.recipes import Recipe
    from trainers.runs.material import Material
    from trainers.runs.outcome import TrainingResult
    from trainers.runs.problem import Problem
    from trainers.runs.run import OneProcess, TrainingRun
    from trainers.runs.training import Training


@dataclasses.dataclass(frozen=True, slots=True)
class Trained(Judged[Status | None, UpperBound]):
    """Result of a training, and the folder of its evidence."""

    path: pathlib.Path  # the run's folder
    run: TrainingRun  # the settings, and the claim if there was one
    result: TrainingResult  # accuracy, account and verdict
    remarks: tuple[str, ...] = ()  # what limits these figures, in sentences

    @property
    def verdict(self) -> Finding | None:
        """The claim, judged by the account; None if nothing was claimed."""
        return self.result.verdict

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self.run.training.algorithm

    summary = Summary(
        f"algorithm {FIGURES} noise_multiplier=run.noise_multiplier remarks "
        "unit=upper.unit claim_source=run.claim.source out=path *result.sent "
        "party?=run.party.party of?=run.party.parties"
    )

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        result, party = self.result, self.run.party
        who = "" if party is None else f"party {party.party} of {party.parties}: "
        return [
            f"{who}{self.algorithm}: {result.quality} ({result.seconds:.1f} s)",
            *([str(self.run.claim)] if self.run.claim else []),
            str(self.upper),
            *([str(result.verdict)] if result.verdict else []),
            *result.also(),
            *result.shown(),
            *self.remarks,
            result.warning,
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class Own:
    """A user's own part of a training: data, model and loss, or a plan."""

    material: Material | None = None  # None: data and model have names
    # from data and model, and the sizes of all nodes, to the training; None: it is made
    choose: Callable[[Material, tuple[int, ...]], Training] | None = None
    tuning: TuningRecord | None = None  # tries on public data of which it is the best
    planned: Sequence[int] | None = None  # sizes of the nodes that a plan is for


def run_training(
    what: str,
    settings: TrainingSettings,
    *,
    changes: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    claimed: bool = False,
    watch: Watch = SILENT,
    exchange: Exchange | None = None,
) -> Trained | None:
    """Train once, with noise for a budget, and account what was released.

    ``what`` is an algorithm, a recipe of `trainers.recipes` or a recipe's file, and
    ``changes`` are settings and options upon the recipe's. The same call goes on where
    it was stopped, in ``out`` or a new folder of ``runs``. With ``claimed``, an
    algorithm that makes no claim is refused; ``exchange`` carries a party's messages.
    Under torchrun None is returned at all ranks but the first. Raises ``ValueError``
    if settings do not go together or training diverges, and
    `privaudit.files.folder.FolderError` if ``out`` is another run's or damaged.
    """
    from trainers.runs.planning import training_for
    from trainers.runs.training import training_from

    recipe = recipe_of(what)
    changes = laid_over(settings.changes(), changes or {})
    values = laid_over(recipe.settings(settings.epsilon), changes)
    if settings.parties:
        from trainers.runs.parties import place_of

        size = place_of(settings)[1] if exchange is None else exchange.size
        given = is_own(str(values.get("data", "")))
        own = _unless_split(values, "given") if given else {}
        said = {"nodes": size, **recipe.values, **changes}
        values = {**own, **values, "nodes": said["nodes"]}
    elif is_own(str(values.get("data", ""))):
        values = own_data(values)
    set_by_name = changes.keys() - {"model", "data", "loss", "transform"}
    training = training_from(values, where="--set" if set_by_name else what)
    check_unit(training, settings.unit)
    if claimed and not training.family.private:
        raise ValueError(
            f"--require consistent is about a claim, and {training.algorithm} makes "
            "none: it has no noise"
        )
    if not training.family.private and settings.epsilon is not None:
        raise ValueError(
            f"{training.algorithm} adds no noise, so that no epsilon holds: leave "
            "--epsilon out, or use its private form"
        )
    # Of a noise that is given nobody claims what it is worth, unless they say so.
    is_claim = settings.noise_multiplier is None or settings.epsilon is not None
    if claimed and not is_claim:
        raise ValueError(
            "--require consistent is about a claim, and of this noise nothing is "
            "claimed: say what with --epsilon"
        )
    more = {"delta": DELTA, **recipe.run_settings()}
    if settings.epsilon is not None or settings.budgets is not None:
        more = {x: own for x, own in more.items() if x not in ("epsilon", "budgets")}
    elif "budgets" not in more:
        more.setdefault("epsilon", 1.0)
    settings = settings.over(**more)
    epsilon = max(settings.each_budget or (settings.epsilon or 1.0,))
    assert settings.delta is not None
    by_paper = settings.calibrate == "paper" and settings.noise_multiplier is None
    more = {"source": f"the paper's own account of {what}"} if by_paper else {}
    if settings.observer is not None:
        more["observer"] = check_observer(
            training.algorithm, settings.observer, training.nodes
        )
    claim = claim_of(
        epsilon,
        settings.delta,
        training.relation(settings.relation),
        training.unit,
        overlap=training.told_overlap,
        **more,
    )
    if not is_claim:
        claim = msgspec.structs.replace(claim, epsilon=math.inf)
    name = f"train-{short_name(what)}"
    where = {"out": out, "name": name, "watch": watch, "exchange": exchange}
    choose = None
    if is_own(training.data) and recipe.values.keys() == {"algorithm"}:
        choose = functools.partial(
            training_for,
            {name: x for name, x in values.items() if name not in OPEN},
            {name: getattr(training, name) for name in OPEN if name in changes},
            epsilon=None if settings.noise_multiplier else settings.budget,
            delta=settings.delta,
            noise_multiplier=settings.noise_multiplier,
            where="--set" if set_by_name else what,
        )
    planned = None if recipe.plan is None else recipe.plan.sizes
    own = Own(choose=choose, planned=planned)
    return run_in_folder(training, claim, settings, own=own, **where)


def run_in_folder(
    training: Training,
    claim: Claim,
    settings: TrainingSettings,
    *,
    own: Own = Own(),  # frozen
    out: str | os.PathLike[str] | None = None,
    name: str = "train",
    watch: Watch = SILENT,
    exchange: Exchange | int | None = None,
) -> Trained | None:
    """As `run_training`, of a training that is made.

    ``own`` has its data, model and loss, where they have no names. A ``claim``
    whose epsilon is infinite says at which delta the run is accounted, and is kept
    nowhere. ``exchange`` is what carries a party's messages, or its number, if its
    process was not told.
    """
    from trainers.runs.budget import noise_by_node
    from trainers.runs.material import Material
    from trainers.runs.parties import connected, settled
    from trainers.runs.private_clip import clip_record, clipped, known_clip
    from trainers.runs.problem import Problem, units
    from trainers.runs.real_clock import is_by_real_clock
    from trainers.runs.run import Assignment, OneProcess, TrainingRun, train

    compute = settings.compute
    joined = connected(
        training, settings, own.material, exchange, watch.note, own.choose
    )
    with joined as (training, material, party):
        problem_of = functools.partial(
            Problem.of,
            seed=settings.public_seed,
            data_dir=settings.data_dir,
            compiled=compute.compiled,
            precision=compute.precision,
            ranks=party,
        )
        if party is None and own.choose is not None:
            if material is None:
                material = Material.by_name(
                    training, settings.public_seed, settings.data_dir
                )
            sizes = units(material.shares, training.unit)
            training = own.choose(material, sizes)
        problem = problem_of(training, material=material)
        if own.planned is not None:
            check_planned(own.planned, problem.sizes)
        runner = _runner(settings, is_by_real_clock(problem), party)
        together = type(runner) is not OneProcess
        clip = None
        if settings.clip_quantile is not None:
            clip = clip_record(problem, claim, settings, together=together)
            problem = problem.with_counts(clip)
        known = party is None and claim.unit == "record"
        more = {"tuning": own.tuning, "sizes": problem.sizes if known else None}
        if party is None and clip is None:  # else it is not known yet what it will be
            Place(out, name).looked_at(
                lambda known: run_of(
                    *(training, claim, settings, known.noise_multiplier),
                    canary_nodes=known.canary_nodes,
                    **more,
                ),
                TrainingRun,
            )
        noise = noise_by_node(problem, claim, settings, watch.note)
        # Before a clip norm is found, of which nobody is to see more than is kept.
        for warning in warnings_of(problem, noise, claim, settings):
            watch.warn(warning)
        if clip is not None:
            watch.note("counting records by the norm of their gradients ...")
            path = Place(out, name).path
            training = clipped(problem, clip, settings, known_clip(path, clip))
            problem = problem_of(training, material=problem.material)
            problem = problem.with_counts(clip)
        planting = None
        if settings.canaries is not None:
            planting = planted_in(problem, settings, noise, together=together)
        record = None
        if party is not None:
            noise, out, record = settled(party, noise, out, name, settings.seed)
        run = run_of(
            *(training, claim, settings, noise),
            party=record,
            clip=clip,
            canary_nodes=(0,) if planting is None else planting.nodes,
            **more,
        )
        place = Place(out, name)
        opened = place.opened(RunFolder, run, watch)
        with watch.training(training.algorithm, run.claim) as show:
            given = Assignment(
                run=run,
                problem=problem,
                delta=claim.delta,
                relation=claim.relation,
                progress=show,
                save_models=settings.save == "models",
                planting=planting,
            )
            if planting is not None:
                judged = functools.partial(judged_in, planting, run)
                given = dataclasses.replace(given, judged=judged)
            result = train(given, opened, runner)
    if result is None:  # rank 0 speaks for all
        return None
    remarks = (*training.family.remarks(training.setting()), *result.remarks)
    return Trained(place.path, run, result, remarks)


def run_of(
    training: Training,
    claim: Claim,
    settings: TrainingSettings,
    noise: Noise,
    **more: Any,
) -> TrainingRun:
    """Contents of ``config.json``, of a training with this noise."""
    from trainers.runs.run import TrainingRun

    claims = training.family.private and claim.epsilon < math.inf
    return TrainingRun(
        **dataclasses.asdict(settings.compute),
        training=training,
        claim=claim if claims else None,
        noise_multiplier=noise,
        account=settings.account,
        budgets=settings.each_budget if claims else None,
        **settings.kept(),
        observer=claim.observer or None,
        canaries=settings.canaries or 0,
        **more,
    )


def check_unit(training: Training, unit: Unit | None, users: Any = None) -> None:
    """``ValueError`` if the algorithm protects something else."""
    wanted = "user" if unit is None and users is not None else unit
    if wanted is not None and wanted != training.unit:
        said = "users=" if unit is None else f"unit={unit!r}"
        other = ", or use dp-fedavg, which protects a user" if wanted == "user" else ""
        raise ValueError(
            f"{training.algorithm} protects a {training.unit}: leave {said} out{other}"
        )


def warnings_of(
    problem: Problem, noise: Noise, claim: Claim, settings: TrainingSettings
) -> list[str]:
    """Warnings that a user alone should see before a training begins, by line."""
    from trainers.gradients.per_sample import parameter_count
    from trainers.runs.advice import advice
    from trainers.runs.owner_advice import of_records

    training, found = problem.training, []
    if not training.family.private:
        return []
    if settings.seed is not None:
        found.append(
            "with a seed this is a study: whoever knows it can take the noise off the "
            "models; leave the seed out to protect them"
        )
    if problem.material.has_softmax:
        found.append(
            "the model ends in a softmax, and cross entropy, which has its own, takes "
            "what comes before it: leave it out, or learning is slow"
        )
    if is_own(training.data):
        found += of_records(problem)
    parameters = parameter_count(problem.module)
    return [*found, *advice(problem, noise, claim, settings.each_budget, parameters)]


def own_data(values: dict[str, Any]) -> dict[str, Any]:
    """``values``, with how many nodes and records the user's own data have."""
    from trainers.data.shares import data_set, shares_of
    from trainers.runs.material import OwnData

    data = OwnData.load(values["data"])
    if data.nodes is None:
        whole = {"train": len(data_set(data.shares, "the data set"))}
        return {**whole, **_unless_split(values, "even"), **values}
    found = shares_of(data.shares)
    given = {"train": sum(map(len, found)), **_unless_split(values, "given")}
    return {**given, **values, "nodes": len(found)}


def _unless_split(values: dict[str, Any], partition: str) -> dict[str, str]:
    """Partition to name, where ``values`` have no split, which is of another."""
    return {} if "split" in values else {"partition": partition}


def _runner(
    settings: TrainingSettings, by_real_clock: bool, party: Party | None
) -> OneProcess:
    """Runner of the nodes. ``ValueError`` for a key or a seed without effect."""
    from trainers.network.ranks import by_torchrun, launched
    from trainers.runs.over_ranks import OverRanks
    from trainers.runs.parties import Parties
    from trainers.runs.real_clock import ClockAlone, ClockParties
    from trainers.runs.run import OneProcess

    together = by_torchrun() if party is not None else launched()
    seed, key_file = settings.seed, settings.key_file
    if key_file is not None and (together or seed is not None):
        raise ValueError(
            "--key-file is for one process and a secret key: leave it out with --seed, "
            "and under torchrun, where each rank keeps its own key in the run's folder"
        )
    if seed is not None and by_real_clock:
        raise ValueError(
            "--seed is not for clock=real: workers' batches and noise come from secret "
            "keys, whatever the seed; --public-seed deals the data and draws the start"
        )
    if party is not None:
        runner = ClockParties if by_real_clock else Parties
        return runner(party, key_file)
    if launched() and by_real_clock:
        raise ValueError(
            "by the real clock processes share no memory and no key: each is a party; "
            "add --parties, or leave torchrun out"
        )
    if settings.shards is not None:
        if not launched() and not by_torchrun():
            raise ValueError(
                f"shards are ranks of torchrun: start {settings.shards} of them, or a "
                "multiple, or leave shards out"
            )
        from trainers.runs.over_shards import OverShards  # slow to import

        return OverShards(settings.shards)
    if launched():
        return OverRanks()
    return (ClockAlone if by_real_clock else OneProcess)(key_file)


def recipe_of(what: str) -> Recipe:
    from trainers.algorithms import ALGORITHMS
    from trainers.recipes import Recipe, named, names, read

    if what in ALGORITHMS or is_place(what):
        return Recipe(values={"algorithm": what})
    if what in names():
        return named(what)
    check_no_table(what)
    if what.endswith(".toml") or pathlib.Path(what).is_file():
        return read(what)
    files = [file.name for file in pathlib.Path().glob("*.toml")]
    close = near(what, [*ALGORITHMS, *names(), *files])
    hint = f"{close} " if close.startswith("did") else ""
    raise ValueError(
        f"there is no algorithm, recipe or file {what!r}; {hint}choose one of "
        f"{', '.join(ALGORITHMS)}, your own as module:Class, one of `privaudit "
        "recipes`, or the file of a plan or a recipe"
    )
