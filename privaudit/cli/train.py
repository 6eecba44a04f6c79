"""`privaudit train`."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from privaudit.cli import FINE
from privaudit.cli.accounts import Account, Json, NoiseMultiplier
from privaudit.cli.live import live_view
from privaudit.cli.output import emit, note
from privaudit.cli.place import Out, Place, short_name
from privaudit.cli.runs import Settings
from privaudit.cli.signing import Sign, check_key, kept
from privaudit.cli.trainings import (
    Calibration,
    claim_of,
    noise_of,
    relation_of,
    split_settings,
)
from privaudit.cli.verdicts import Require, status_of
from privaudit.results import Relation

if TYPE_CHECKING:
    from trainers.recipes import Recipe

What = Annotated[
    str,
    Parameter(
        help="An algorithm (dp-sgd, dp-dsgd, dp-dsgt, dp-dinno, ...; sgd, dsgd, dsgt, "
        "dinno without clipping and noise), your own as module:Class, a recipe of "
        "`privaudit recipes`, or a recipe's file."
    ),
]
StudySeed = Annotated[
    int | None,
    Parameter(
        help="Seed of a study: makes sampling and noise repeatable. A model trained "
        "with a seed is not protected. Default: the recipe's seed, or a secret key."
    ),
]


def _recipe(what: str) -> Recipe:
    from privaudit.files.user_code import is_place
    from trainers.algorithms import ALGORITHMS
    from trainers.recipes import Recipe, named, names, read
    from trainers.runs.training import near

    if what in ALGORITHMS or is_place(what):
        return Recipe(values={"algorithm": what})
    if what in names():
        return named(what)
    if what.endswith(".toml") or pathlib.Path(what).is_file():
        return read(what)
    hint = near(what, [*ALGORITHMS, *names()])
    raise ValueError(
        f"there is no algorithm or recipe {what!r} ({hint}); choose one of "
        f"{', '.join(ALGORITHMS)}, your own as module:Class, a recipe or a file"
    )


def train(
    what: What,
    /,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    relation: Relation | None = None,
    noise_multiplier: NoiseMultiplier | None = None,
    account: Account = "certified",
    calibrate: Calibration = "certified",
    settings: Settings = (),  # type: ignore[assignment]  # cyclopts' empty list
    out: Out = None,
    data_dir: pathlib.Path | None = None,
    seed: StudySeed = None,
    public_seed: int = 0,
    key_file: pathlib.Path | None = None,
    device: str = "cpu",
    compiled: bool = False,
    precision: Literal["float32", "bf16"] = "float32",
    require: Require = None,
    save: Literal["models", "none"] = "models",
    sign: Sign = None,
    json: Json = False,
) -> int:
    """Train once, with noise for a budget, and account what was released.

    Status 1 if the account disproves the claim: it proves that epsilon is larger.

    Noise and sampling come from a secret key, which is removed when the run ends; with
    --seed the run is a study, and its model is not protected.

    Handwritten digits are the default data. A run that was stopped goes on from its
    last checkpoint, to the same bits. Started by torchrun, each rank holds some of the
    nodes, and messages go between ranks along the graph's edges. With --set clock=real,
    adp2sgd and adpsgd start a process a worker instead, and survive the death of some.

    Parameters
    ----------
    epsilon
        The claim, > 0; the noise is the least that certifies it. A recipe's, or 1.
    delta
        The claim, in (0, 1). A recipe's, or 1e-4.
    relation
        What neighbouring data sets differ in: add-or-remove-one, but replace-one for
        lots of fixed size.
    calibrate
        Noise by the certified account, or by the account of the algorithm's paper.
    data_dir
        Where data sets are kept.
    public_seed
        How data are dealt and where models start; everybody may know it.
    key_file
        Where the secret key is kept while the run can go on. Default: in its folder.
    device
        cpu, or cuda: the same noise, and other roundings.
    compiled
        Take gradients under torch.compile: a minute to begin with.
    precision
        bf16 takes gradients in bfloat16, and clips and sums them in float32.
    save
        models keeps every node's final model, model.safetensors; none does not.
    """
    from privaudit.files.folder import RunFolder
    from trainers.network.ranks import launched
    from trainers.runs.over_ranks import train_on_ranks
    from trainers.runs.problem import Problem
    from trainers.runs.real_clock import run as real_run
    from trainers.runs.run import TrainingRun
    from trainers.runs.run import train as train_in
    from trainers.runs.training import training_from

    check_key(sign)
    recipe = _recipe(what)
    values = {**recipe.settings(epsilon), **split_settings(list(settings))}
    training = training_from(values, where="--set" if settings else what)
    epsilon = next(e for e in (epsilon, recipe.epsilon, 1.0) if e is not None)
    delta = next(d for d in (delta, recipe.delta, 1e-4) if d is not None)
    seed = recipe.seed if seed is None else seed
    for name, value in (("--seed", seed), ("--public-seed", public_seed)):
        if value is not None and value < 0:
            raise ValueError(f"{name} must be >= 0, got {value}")
    if require and not training.family.private:
        raise ValueError(
            f"--require {require} is about a claim, and {training.algorithm} makes "
            "none: it has no noise"
        )
    relation = relation_of(training, relation or recipe.relation)
    by_paper = calibrate == "paper" and noise_multiplier is None
    source = f"the paper's own account of {what}" if by_paper else "the command line"
    claim = claim_of(epsilon, delta, relation, training.unit, source)
    distributed = launched()
    if key_file is not None and (distributed or seed is not None):
        raise ValueError(
            "--key-file is for one process and a secret key: leave it out with --seed, "
            "and under torchrun, where each rank keeps its own key in the run's folder"
        )
    problem = Problem.of(
        training,
        seed=public_seed,
        data_dir=data_dir,
        compiled=compiled,
        precision=precision,
    )
    by_real_clock = real_run.is_by_real_clock(problem)
    if key_file is not None and by_real_clock:
        raise ValueError(
            "--key-file is not for clock=real: each worker has a key of its own, which "
            "is kept nowhere, as such a run cannot go on"
        )
    if seed is not None and by_real_clock:
        raise ValueError(
            "--seed is not for clock=real: workers' lots and noise come from secret "
            "keys, whatever the seed; --public-seed deals the data and draws the start"
        )
    multiplier = noise_of(problem, noise_multiplier, claim, account, calibrate)
    run = TrainingRun(
        training=training,
        claim=claim if training.family.private else None,
        noise_multiplier=multiplier,
        account=account,
        seed=seed,
        public_seed=public_seed,
        device=device,
        compiled=compiled,
        precision=precision,
    )
    name = training.algorithm
    place = Place(out, f"train-{short_name(what)}")
    opened = place.opened(
        # By a real clock, a run that was stopped cannot go on.
        RunFolder,
        lambda there: not by_real_clock and there.awaits(run),
    )
    claimed = run.claim.epsilon if run.claim else None
    about: dict[str, Any] = {
        "delta": delta,
        "relation": relation,
        "save_models": save == "models",
    }
    with live_view(name, claimed) as show:
        if distributed:
            about["data_dir"] = data_dir
            result = train_on_ranks(run, opened, progress=show, **about)
        elif by_real_clock:
            with opened as folder:
                result = real_run.train(
                    run,
                    folder,
                    problem=problem,
                    data_dir=data_dir,
                    progress=show,
                    died=lambda death: note(str(death)),
                    **about,
                )
        else:
            with opened as folder:
                about |= {"problem": problem, "key_file": key_file}
                result = train_in(run, folder, progress=show, **about)
    if result is None:  # rank 0 speaks for all
        return FINE
    worst = result.upper()
    remarks = [*training.family.remarks(training.setting()), *result.remarks]
    emit(
        {
            "algorithm": name,
            "claimed": claimed,
            "certified": worst.epsilon,
            "certified_lower": result.verdict and result.verdict.certified_lower,
            "standing": worst.standing,
            "delta": delta,
            "relation": relation,
            "unit": worst.unit,
            "noise_multiplier": multiplier,
            "claim_source": run.claim.source if run.claim else None,
            "accuracy": result.accuracy,
            "worst_accuracy": result.worst_accuracy,
            "seconds": result.seconds,
            "verdict": result.status,
            "remarks": remarks,
            "protected": result.protected,
            "noise": result.noise,
            "out": str(place.path),
        },
        [
            f"{name}: {result.quality} ({result.seconds:.1f} s)",
            *([str(run.claim)] if run.claim else []),
            str(worst),
            *([str(result.verdict)] if result.verdict else []),
            *remarks,
            result.warning,
            kept(place.path, sign),
        ],
        as_json=json,
    )
    return FINE if result.verdict is None else status_of([result.status], require)
