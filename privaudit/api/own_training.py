"""A user's own model and data: trained over a network of nodes, with an account."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from privaudit.accounting.certificate import Certificate
from privaudit.accounting.views import Observer, check_observer, observed_by
from privaudit.api.trainings import run_in_folder
from privaudit.api.watch import SILENT, Watch
from privaudit.files import manifest
from privaudit.files.extras import need
from privaudit.files.folder import MANIFEST, MODEL, FolderError, RunFolder, write_whole
from privaudit.files.notebook import box
from privaudit.ledger import Ledger
from privaudit.report import page
from privaudit.results import DELTA, Claim, Relation, Unit, symbols
from privaudit.settings import Evaluate, TrainingSettings
from privaudit.task_settings import OWN
from trainers.runs.outcome import Curves, TrainingResult

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainers.runs.training import Training

_NOT_OPTIONS = ("loss", "transform", "partition", "split", "digits", "hidden", "gain")


@dataclasses.dataclass(frozen=True)
class TrainedModels:
    """A finished training: the nodes' models, and what they are worth.

    Attributes
    ----------
    models
        One module a node, copies of the one that was given.
    ledger
        What each node released.
    curves
        How good models were, and how far apart, over the rounds.
    result
        All figures, as ``result.json`` holds them.
    relation
        What neighbouring data sets differ in.
    observer
        For whom the certificate holds; None: for an observer of all releases.
    """

    models: list[nn.Module]
    ledger: Ledger
    curves: Curves
    result: TrainingResult
    relation: Relation
    observer: str | None
    _algorithm: str
    _folder: pathlib.Path

    @functools.cached_property
    def certificate(self) -> Certificate:
        """What the ledger is worth to the observer; to all, from both sides."""
        seen = observed_by(self._algorithm, self.ledger, self.observer, self.relation)
        return Certificate.of(seen, self.relation)

    def save(self, folder: str | os.PathLike[str], *, public: bool = False) -> None:
        """Write the run into ``folder``, which ``privaudit verify`` accepts.

        With its page, ``report.html``, where what draws it is installed (the extra
        ``report``).

        Parameters
        ----------
        folder
            New, or empty.
        public
            Only what may leave the party: what the manifest does not call private.

        Raises
        ------
        ValueError
            If the folder holds something, or cannot be written; or nothing of the run
            may leave the party.
        """
        there = pathlib.Path(folder)
        source = RunFolder(self._folder)
        listed = manifest.read(source)
        names = [*(listed.files if listed else ()), MANIFEST]
        if public:
            files = {} if listed is None else listed.files
            names = [name for name, file in files.items() if not file.private]
            if not names:
                raise ValueError(
                    f"nothing of this run may leave the party: {self.result.warning}"
                )
        try:
            there.mkdir(parents=True, exist_ok=True)
            if any(there.iterdir()):
                raise ValueError(f"{there} is not empty; choose a new folder")
            for name in names:
                write_whole(there / name, (source / name).read_bytes())
        except OSError as error:
            raise ValueError(
                f"cannot write {there}: {error.strerror or error}"
            ) from error
        if not public:
            with contextlib.suppress(ModuleNotFoundError):
                page.write(there)

    def __str__(self) -> str:
        return "\n".join(
            [
                self.result.quality,
                str(self.result.upper()),
                *self.result.also(),
                self.result.warning,
            ]
        )

    def _repr_html_(self) -> str:
        upper = self.result.upper()
        head = f"{len(self.models)} models, {symbols(upper)}"
        return box(head, str(self).splitlines())


def _partition(split: str, nodes: int | None) -> dict[str, Any]:
    """How the records came to the nodes, as settings of a training."""
    kind, _, share = split.partition(":")
    if nodes is None:
        return {"partition": "given"}
    if kind == "classes" and share:
        return {"partition": kind, "split": float(share)}
    return {"partition": split}


def train(
    model: nn.Module | Callable[[], nn.Module] | str,
    shares: Any,
    algorithm: str | None = None,
    *,
    graph: str | None = None,
    epsilon: float | None = None,
    delta: float = DELTA,
    observer: str | int | Sequence[int] | None = None,
    noise_multiplier: float | None = None,
    relation: Relation | None = None,
    loss: Callable[..., Any] | None = None,
    rounds: int = 200,
    batch_size: float = 32,
    sampling: str = "poisson",
    clip_norm: float = 1.0,
    step_size: float = 0.1,
    schedule: str | None = None,
    warm_up: int = 0,
    optimiser: str | None = None,
    test: Any = None,
    evaluate: Evaluate = "tenth",
    nodes: int | None = None,
    split: str = "even",
    unit: Unit | None = None,
    users: Any = None,
    overlap: int = 1,
    transform: Callable[[Tensor], Any] | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int | None = None,
    public_seed: int = 0,
    device: str = "cpu",
    out: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    party: int | None = None,
) -> TrainedModels:
    """Train a user's model on the data of several nodes, with noise for a budget.

    Started by torchrun, each process trains some of the nodes; all call with equal
    arguments, and ``out`` is where they meet.

    ``model``, ``shares`` and a budget are enough. What else may be said is of the
    network (``algorithm``, ``graph``, ``options``), the training (``loss``, ``rounds``
    to ``step_size``, ``schedule``, ``warm_up``, ``optimiser``, ``transform``), the
    guarantee (``delta``, ``relation``, ``unit``, ``users``, ``overlap``), the data
    (``nodes``, ``split``, ``test``, ``evaluate``), and the run (``seed`` to ``watch``).

    Parameters
    ----------
    model
        A module, whose parameters are where all nodes start; those that require no
        gradient stay, and buffers are kept. They must not come from the private data:
        the account begins here. Or what makes one when called, or a name in
        `trainers.models.MODELS`, such as "softmax".
    shares
        A list with one data set a node: pairs of arrays or tensors, or of pandas'
        frames, or torch Datasets. With ``nodes``, one data set, dealt by ``split``:
        "even", "classes:T", "dirichlet:ALPHA". What numpy maps from a file, and torch
        Datasets, are read as records are drawn.
    algorithm, graph, options
        A name in `trainers.algorithms.ALGORITHMS` or ``module:Class``, "dp-dsgt" by
        default and "dp-fedavg" for users; the network, such as "ring", the algorithm's
        own or "complete" by default; and what else a training may be set to, by name.
    epsilon, delta
        The budget of one record, which one node holds, or of one user; the noise is
        the least that certifies it. An algorithm without noise, such as "dsgt", takes
        neither epsilon nor noise_multiplier, and promises nothing.
    observer
        For whom the budget is to hold, with "dp-butterfly" and "dp-chain": "any-node",
        each other node by itself, a node (3) or several that collude ([3, 5]). None:
        for an observer of all that is released.
    noise_multiplier
        The noise, in place of a budget.
    relation
        "add-or-remove-one" or "replace-one"; None: the former, but where the sampling
        has no meaning under it.
    loss
        From (outputs, targets) of a batch to the mean or the sum of the records' own
        losses, or to one number a record. None: cross entropy.
    rounds, batch_size, clip_norm, step_size
        Of the algorithm; ``batch_size`` is the expected number of records in a node's
        batch, or how many of a user's records are in that of a local step.
    sampling
        How a batch is drawn: "poisson", each record by its own coin;
        "random-allocation", each by itself in one of an epoch's batches;
        "random-allocation:k", in k of them.
    schedule, warm_up
        How step sizes change over the rounds: "cosine", down to 0;
        "parts:100=0.1,150=0.01", from these rounds on by other step sizes; None:
        constant. Before that, they rise from 0 over ``warm_up`` rounds.
    optimiser
        What makes a step of noisy gradients: "sgd", "momentum", "adam" or "adamw", with
        options as in "momentum:decay=0.8". It costs no privacy. None: "sgd", but that
        of the algorithm where it has its own.
    test
        A data set to measure models on, as one of ``shares``.
    evaluate
        On how many of its records: "tenth", so many, evenly drawn, that measuring takes
        about a tenth of the training's gradients, and 500 at least at the end
        (``result.test_records``); "all", the final models on all.
    nodes, split
        See ``shares``. The account takes it as given which node has which record, also
        where a split dealt them by their labels.
    transform
        What each record's input goes through each time that it is drawn, such as a
        random flip: from one input, without the rest of the batch, to one of the same
        shape. torch's, numpy's and Python's generators are seeded by a key of that
        record's own. It costs no privacy; ``test`` does not go through it.
    unit
        What the budget is of: "record", or "user", all records of one, for "dp-fedavg":
        each user makes ``options={"local_steps": 5}`` steps on its own records, and
        the whole update is clipped to ``clip_norm`` and noised. Each user takes part in
        a round with chance ``options={"user_rate": 1.0}``. None: the algorithm's.
    users
        With unit "user", whose each record is: labels as records are given, an array
        for each share, or one for the one data set, of which the split "even" then
        deals users. None: each node is one user.
    overlap
        At how many nodes a user may have records, which costs as many times the
        releases.
    seed
        Makes noise and sampling repeatable: a study, whose models are not protected.
        None: a secret key.
    public_seed
        Deals the data and decides random graphs. Everybody may know it.
    device
        "cpu" or "cuda".
    out
        A folder for the run, as of ``privaudit train``; an unfinished one goes on.
        None: a temporary one; see `TrainedModels.save`.
    watch
        Is told how far it is; see `privaudit.api.watch`.
    party
        This process is that party of several, each with its own data, key, ledger and
        folder ``out``/party-N: ``shares`` is its one data set, or a list of those of
        its nodes where ``nodes``, of the whole network, are more than parties. All call
        with equal other arguments, and WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the
        environment say how many there are and where party 0 is. Their models start at
        the same parameters.

    Returns
    -------
    The nodes' models, what was released, and what it is worth: ``models``, ``ledger``,
    ``certificate``, ``curves``; ``save``.

    Raises
    ------
    ValueError
        If model, data, loss and settings do not fit each other; if the model or the
        loss mixes records; if training diverges, or ``out`` is another run's.

    Examples
    --------
    >>> import privaudit as pa, torch
    >>> inputs = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    >>> data = inputs, (inputs.sum(1) > 0).long()
    >>> run = pa.train(
    ...     torch.nn.Linear(5, 2), data, nodes=2, epsilon=4, rounds=10, seed=0
    ... )
    >>> len(run.models), 3.9 < run.certificate.epsilon(1e-5).upper <= 4
    (2, True)
    """
    need("privaudit.train", "train")
    from trainers.algorithms import family_named
    from trainers.data.shares import Users
    from trainers.network.meeting import where_am_i
    from trainers.network.ranks import launched
    from trainers.runs.final_models import modules
    from trainers.runs.material import Material
    from trainers.runs.training import training_from

    if party is None and out is not None and RunFolder(out).has("result.json"):
        raise ValueError(
            f"{out} holds a finished run, perhaps of another model or other data: "
            "choose a new folder"
        )
    if unit not in (None, "record", "user"):
        raise ValueError(f"unit must be record or user, got {unit!r}")
    if algorithm is None:
        algorithm = "dp-fedavg" if unit == "user" else "dp-dsgt"
    paid = {} if overlap == 1 else {"overlap": overlap}
    changes = {"schedule": schedule, "warm_up": warm_up, "optimiser": optimiser}
    if sampling != "poisson":
        changes["sampling"] = sampling
    changed = {name: value for name, value in changes.items() if value}
    whole = nodes
    if party is not None:
        if isinstance(model, str):
            raise ValueError(
                f"with parties, the number of classes of the model {model} is not "
                "known: give a module"
            )
        whole, nodes = nodes or where_am_i(party)[1], None
        if not isinstance(shares, list):
            shares, users = [shares], None if users is None else [users]
    material = Material.own(
        model,
        shares,
        loss=loss,
        test=test,
        nodes=nodes,
        split=split,
        seed=public_seed,
        users=None if users is None else Users(users, overlap),
    )
    if transform is not None:
        material = material.with_transform(transform)
    given = {
        **_partition(split, nodes),
        "algorithm": algorithm,
        "nodes": len(material.shares) if party is None else whole,
        "graph": graph or family_named(algorithm).defaults.get("graph", "complete"),
        "data": OWN,
        "model": OWN,
        "train": sum(map(len, material.shares)),
        "rounds": rounds,
        "batch_size": batch_size,
        "clip_norm": clip_norm,
        "step_size": step_size,
        **changed,
        **paid,
    }
    for name in {*given, *changes, *_NOT_OPTIONS}.intersection(options or {}):
        raise ValueError(
            f"leave {name} out of options: an argument of privaudit.train, the model "
            "or the shares decide it"
        )
    training = training_from({**given, **(options or {})}, where="privaudit.train")
    _check_unit(training, unit, users)
    given = [value for value in (epsilon, noise_multiplier) if value is not None]
    if training.family.private and len(given) != 1:
        raise ValueError("give one of epsilon, a budget, and noise_multiplier")
    if given and not training.family.private:
        raise ValueError(
            f"{algorithm} adds no noise and keeps no budget: leave epsilon and "
            "noise_multiplier out, or use its private form"
        )
    settings = TrainingSettings(
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        observer=None
        if observer is None
        else check_observer(
            training.algorithm, Observer.named(observer), training.nodes
        ),
        relation=relation,
        seed=seed,
        public_seed=public_seed,
        device=device,
        evaluate=evaluate,
        parties=party is not None,
    )
    claim = Claim(
        epsilon=math.inf if epsilon is None else epsilon,
        delta=delta,
        relation=training.relation(relation),
        unit=training.unit,
        source="privaudit.train",
        observer=UNSET if settings.observer is None else settings.observer,
    )
    with contextlib.ExitStack() as stack:
        own_folder = out is None
        if out is None:
            if launched() and party is None:
                raise ValueError(
                    "under torchrun, give out=: the folder in which the ranks meet"
                )
            out = tempfile.mkdtemp(prefix="privaudit-")
            stack.callback(_remove, out)
        try:
            trained = run_in_folder(
                training,
                claim,
                settings,
                material=material,
                out=out,
                watch=SILENT if watch is None else watch,
                number=party,
            )
            folder = RunFolder(out if trained is None else trained.path)
            models = modules((folder / MODEL).read_bytes(), material.module)
            found = TrainedModels(
                models=models,
                ledger=folder.read("ledger.json", Ledger),
                curves=folder.read("curves.json", Curves),
                result=folder.read("result.json", TrainingResult),
                relation=claim.relation,
                observer=settings.observer,
                _algorithm=training.algorithm,
                _folder=folder.path,
            )
        except FolderError as error:
            raise ValueError(str(error)) from error
        stack.pop_all()
    if own_folder:
        weakref.finalize(found, _remove, out)
    return found


def _check_unit(training: Training, unit: Unit | None, users: Any) -> None:
    """``ValueError`` if the algorithm protects something else."""
    wanted = "user" if unit is None and users is not None else unit
    if wanted is not None and wanted != training.unit:
        what = "users=" if unit is None else f"unit={unit!r}"
        other = ", or use dp-fedavg, which protects a user" if wanted == "user" else ""
        raise ValueError(
            f"{training.algorithm} protects a {training.unit}: leave {what} out{other}"
        )


def _remove(folder: str | os.PathLike[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
