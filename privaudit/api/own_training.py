"""A user's own model and data: trained over a network of nodes, with an account."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from privaudit.accounting.certificate import Certificate
from privaudit.accounting.views import check_observer, observed_by
from privaudit.api.console import watching
from privaudit.api.planting import KeptTraining
from privaudit.api.run_audits import AuditedRun
from privaudit.api.training_plan import TrainingPlan, budget_of, claimed
from privaudit.api.trainings import Own, check_unit, run_in_folder
from privaudit.api.watch import Watch
from privaudit.files import manifest
from privaudit.files.arguments import public, with_changes
from privaudit.files.extras import need
from privaudit.files.folder import MANIFEST, MODEL, FolderError, RunFolder, write_whole
from privaudit.files.notebook import box
from privaudit.ledger import Ledger
from privaudit.report import page
from privaudit.results import DELTA, Claim, Relation, symbols
from privaudit.settings import TaskChanges, TrainingSettings
from privaudit.task_settings import OWN
from trainers.runs.outcome import Curves, TrainingResult

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainers.network.exchange import Exchange
    from trainers.runs.material import Material
    from trainers.runs.run import TrainingRun
    from trainers.runs.training import Training

PLAIN = TrainingSettings()
_TASK = {field.name for field in dataclasses.fields(TaskChanges)}
# Settings of the task that a plan leaves as they are.
NOT_PLANNED = (
    *("sampling", "final_step_size", "warm_up", "optimiser", "classes", "overlap"),
)
_NOT_OPTIONS = ("loss", "transform", "partition", "split", "digits", "hidden", "gain")


@dataclasses.dataclass(frozen=True)
class TrainedModels:
    """A finished training: the nodes' models, and the account of what was released.

    Attributes
    ----------
    models
        One trained module per node: copies of the module that was given, in evaluation
        mode.
    ledger
        What each node released.
    curves
        Quality of the models, and their distance from each other, over the rounds.
    relation
        What neighbouring data sets differ in.
    observer
        Against whom the certificate holds. None: an observer of all releases.
    """

    models: list[nn.Module]
    ledger: Ledger
    curves: Curves
    relation: Relation
    observer: str | None
    _trained: KeptTraining

    @property
    def result(self) -> TrainingResult:
        """All figures, as ``result.json`` holds them, with those of `audit`."""
        return self._trained.folder.read("result.json", TrainingResult)

    @property
    def config(self) -> TrainingRun:
        """Settings of the run, as ``config.json`` has them, with those of its tries."""
        return self._trained.config

    @functools.cached_property
    def certificate(self) -> Certificate:
        """The ledger's `Certificate`, against ``observer`` if one was named.

        Its brackets have a proved lower side as well if there is no observer.
        """
        name = self._trained.training.algorithm
        seen = observed_by(name, self.ledger, self.observer, self.relation)
        made = Certificate.of(seen, self.relation)
        how = self.result.independence or None
        return dataclasses.replace(made, independence=how)

    def save(self, folder: str | os.PathLike[str], *, public: bool = False) -> None:
        """Write the run's folder, which ``privaudit verify`` and ``show`` read.

        Each node's model is a file of its own as well, ``node-0.safetensors`` and so
        on: ``net.load_state_dict(load_file(path))``. The page, ``report.html``, is
        written if the extra ``report`` is installed.

        Parameters
        ----------
        folder
            A new or an empty folder.
        public
            Write nothing that the manifest calls private and must not leave the party.

        Raises
        ------
        ValueError
            If the folder is not empty or cannot be written, or if ``public`` is set and
            nothing of the run may leave the party.
        """
        there = pathlib.Path(folder)
        source = self._trained.folder
        listed = manifest.read(source)
        files = {} if listed is None else listed.files
        names = [*files, MANIFEST]
        for one in source.audits:
            kept = sorted(each.name for each in one.path.iterdir() if each.is_file())
            names += [f"{one.path.name}/{name}" for name in kept if name[0] != "."]
        if public:
            names = [name for name, file in files.items() if not file.private]
            if not names:
                raise ValueError(
                    f"nothing of this run may leave the party: {self.result.warning}"
                )
        try:
            there.mkdir(parents=True, exist_ok=True)
            if any(there.iterdir()):
                raise ValueError(f"{there} is not empty; choose a new folder")
            for name in dict.fromkeys(names):
                (there / name).parent.mkdir(exist_ok=True)
                write_whole(there / name, (source / name).read_bytes())
        except OSError as error:
            raise ValueError(
                f"cannot write {there}: {error.strerror or error}"
            ) from error
        if not public:
            page.keep(there)

    @public
    def audit(
        self,
        *,
        record: Any = None,
        workers: int | None = None,
        watch: Watch | str | None = None,
        **attack: Any,
    ) -> AuditedRun:
        """Attack this training in shadow runs of it; bound epsilon from below.

        Algorithm, model, data and settings are those of the run; noise and batches come
        from ``seed``. In each shadow run a fair coin decides whether node 0 has a
        canary as one more record (under replace-one, in the place of its first), and
        the attackers score which is which. Findings are kept in the run's folder, and
        stand on its page beside the certificate.

        The certificate covers none of it: shadow runs use the data many times over.
        Keep the figures and the folder with the data, or use ``random_records``.

        Parameters
        ----------
        runs
            How many shadow runs, with and without the canary together; 1000.
        adversary
            Who attacks, as in `privaudit.AuditSettings`, or a function that scores the
            final model of node 0; one or several, which score the same runs. None:
            every observer that the certificate is for, and who sees final models alone.
        canary
            What is planted, as in `privaudit.AuditSettings`. None: a crafted gradient,
            made longer than the clip and clipped as records are; it needs no data.
        record
            A record of yours to plant instead: an input and its target.
        estimator
            How scores become a lower bound, as in `privaudit.AuditSettings`. None:
            "both", where what is released is of a family, whose noise privaudit adds.
        confidence
            Probability that none of the attackers' bounds is above the true epsilon.
        seed
            Of the shadow runs' coins, batches and noise.
        block
            How many runs are trained at once. None: by the size of the model.
        random_records
            Train on random records of the same shapes in the place of the data: what
            is found tells of the program, and of nobody's records.
        workers
            Number of threads. None: one a processor. Results do not depend on it.
        watch
            As in `train`.

        Returns
        -------
        An `AuditedRun` with ``status``, ``lower``, ``upper``, ``results`` and ``path``.

        Raises
        ------
        ValueError
            If a setting is out of its range, or an attacker cannot work here.

        Examples
        --------
        >>> import privaudit as pa, torch
        >>> inputs = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
        >>> data = inputs, (inputs.sum(1) > 0).long()
        >>> how = {"rounds": 5, "settings": pa.TrainingSettings(seed=0)}
        >>> run = pa.train(torch.nn.Linear(5, 2), data, nodes=2, epsilon=4, **how)
        >>> found = run.audit(runs=200)
        >>> 0 < found.lower.epsilon < found.upper.epsilon <= 4
        True
        """
        from privaudit.api.run_audits import RunAttack, audit_run

        trained = self._trained
        if record is not None:
            if attack.get("canary") is not None:
                raise ValueError("a record is a canary: leave canary or record out")
            attack["canary"] = (record,) if isinstance(record, str) else record
        try:
            return audit_run(
                trained, RunAttack.of(attack), workers=workers, watch=watching(watch)
            )
        except FolderError as error:
            raise ValueError(str(error)) from error

    def __str__(self) -> str:
        result = self.result
        known = [result.quality, str(result.upper()), *result.also(), *result.shown()]
        return "\n".join([*known, result.warning])

    def _repr_html_(self) -> str:
        head = f"{len(self.models)} models, {symbols(self.result.upper())}"
        return box(head, str(self).splitlines())


@public
def train(
    model: nn.Module | Callable[[], nn.Module] | str,
    shares: Any,
    algorithm: str | None = None,
    *,
    graph: str | None = None,
    epsilon: float | Sequence[float] | None = None,
    rounds: int | None = None,
    plan: TrainingPlan | str | os.PathLike[str] | None = None,
    settings: TrainingSettings = PLAIN,
    options: Mapping[str, Any] | None = None,
    loss: Callable[..., Any] | None = None,
    transform: Callable[[Tensor], Any] | None = None,
    test: Any = None,
    nodes: int | None = None,
    split: str = "even",
    users: Any = None,
    out: str | os.PathLike[str] | None = None,
    watch: Watch | str | None = None,
    party: int | None = None,
    exchange: Exchange | str | None = None,
    **changes: Any,
) -> TrainedModels:
    """Train your model on the data of several nodes, with the noise for a budget.

    ``model``, ``shares`` and ``epsilon`` are enough. What else ``privaudit train``
    takes as options is given by name, or in ``settings``: of the guarantee (delta,
    relation, noise, overlap, ...), the training (batch_size, clip_norm, step_size, ...)
    and the run (seed, device, evaluate, ...).

    Under torchrun, each process trains some of the nodes. All processes must call with
    equal arguments, and ``out`` must be a folder that all of them can reach.

    Parameters
    ----------
    model
        A module, a function that makes one, or a name in `trainers.models.MODELS`, such
        as "softmax", with ``classes=``. All nodes start at its
        parameters; those that require no gradient, and buffers, stay as they are. Its
        parameters must not come from the private data: the account covers only what
        happens from here on. It is ``conditional`` on that your code holds nothing that
        was made of records, looks up none but the one it is given, nor what else runs,
        and keeps nothing of a record outside its process, unless model and loss are
        tensor operations that can be traced of one record, without ``if``, ``.item()``
        and the like, and take no tensors but parameters, and data are arrays
        (``result.independence``, and ``result.remarks`` say why).
    shares
        A list with one data set per node: pairs (inputs, targets) of arrays, tensors or
        pandas frames, or torch Datasets, or DataLoaders, of which the data set and
        ``collate_fn`` (of one record) are used, not the sampler and batch size. With
        ``nodes``, a single data set, which ``split`` deals to the nodes. Memory-mapped
        arrays and torch Datasets are read record by record, as batches are drawn; a
        Dataset's ``example``, a made-up record, says what shape and type all have.
    algorithm
        A name in `trainers.algorithms.ALGORITHMS`, or your own as ``module:Class``.
        Default: "dp-dsgt", or "dp-fedavg" with ``users`` or the unit "user".
    graph
        The network, such as "ring". Default: the algorithm's own, or "complete".
    epsilon
        The budget of one record, held by one node, or of one user; a list has that of
        each node. The noise is the least that is certified to meet it. An algorithm
        without noise, such as "dsgt", takes neither this nor a noise multiplier, and
        promises no privacy.
    rounds
        Number of updates of all nodes. Where rounds, batches, clip norm, step size or
        schedule are left open, they are chosen as `privaudit.plan` does, from sizes,
        model and budget; for algorithms that release no noisy gradients of records,
        they are 200, 32, 1, .1 and none.
    plan
        A `privaudit.plan`, or the file of one, for algorithm, graph, budget and
        settings; what is given beside it has precedence.
    settings, changes
        `TrainingSettings`, such as ``TrainingSettings(delta=1e-6, clip_norm=0.5)``, or
        fields of it by name, such as ``delta=1e-6, clip_norm=0.5``.
    options
        Options of the algorithm alone, by name, such as ``{"local_steps": 5}``.
    loss
        A function from (outputs, targets) of a batch to the mean or the sum of the
        records' losses, or to one loss per record. None: cross entropy.
    transform
        A function applied to a record's input each time that it is drawn, such as a
        random flip. It gets one input, never the batch, and returns one of the same
        shape. The generators of torch, numpy and Python are seeded by a key of that
        record's own. It costs no privacy, and is not applied to ``test``.
    test
        A data set, like one of ``shares``, on which the models are measured.
    nodes, split
        Number of nodes, and how a single data set is dealt to them: "even", or
        "file:PATH" with a node's number per record. Never by labels, which are private.
    users
        For "dp-fedavg", which protects all records of a user: the user of each record,
        as an array of labels per share, or one array for a single data set, of which
        the split "even" then deals whole users. Each user makes
        ``options={"local_steps": 5}`` steps on its own records, and its whole update is
        clipped and noised; it takes part in a round with probability
        ``options={"user_rate": 1.0}``. None: each node is one user.
    out
        The run's folder, as ``privaudit train`` writes it, and its page; an unfinished
        run in it is resumed. None: a temporary folder; see `TrainedModels.save`.
    watch
        "bar", "none", or an object that is told the progress, see
        `privaudit.api.watch`. None: bars in a terminal or a notebook.
    party
        Number of this process among several parties, each with its own data, key,
        ledger and folder ``out``/party-N. ``shares`` is then this party's data set, or
        a list with one per node of its own if there are more ``nodes`` in the whole
        network than parties. All other arguments must be equal at all parties.
        WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment say how many parties
        there are and where party 0 is. Their models start at the same parameters.
    exchange
        What carries messages between parties: "torch", "flare" (with ``kit=``), or a
        `trainers.network.exchange.Exchange`; the latter two know this one's number.
        None: torch.distributed.

    Returns
    -------
    A `TrainedModels`, with ``models``, ``ledger``, ``certificate``, ``curves`` and
    ``save``. ``certificate.epsilon(delta).upper`` is the epsilon to report.

    Raises
    ------
    ValueError
        If model, data, loss and settings do not fit each other; if the model or the
        loss mixes records, as batch normalisation does (see `replace_batch_norm`); if
        training diverges; or if ``out`` holds another run.

    Examples
    --------
    >>> import privaudit as pa, torch
    >>> inputs = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    >>> data = inputs, (inputs.sum(1) > 0).long()
    >>> net = torch.nn.Linear(5, 2)
    >>> run = pa.train(net, data, nodes=2, epsilon=4, rounds=10, seed=0)
    >>> len(run.models), 3.9 < run.certificate.epsilon(1e-5).upper <= 4
    (2, True)
    """
    need("privaudit.train", "train")
    from trainers.algorithms import family_named
    from trainers.data.shares import Users
    from trainers.runs.material import Material
    from trainers.runs.parties import place_of
    from trainers.runs.planning import training_for

    if isinstance(exchange, str):
        changes, exchange = {**changes, "exchange": exchange}, None
    settings = with_changes(settings, changes)
    if exchange is not None:
        party = exchange.rank
    elif settings.kit is not None or (party is None and settings.parties):
        party = place_of(settings)[0]
    if party is None and out is not None and RunFolder(out).has("result.json"):
        raise ValueError(
            f"{out} holds a finished run, perhaps of another model or other data: "
            "choose a new folder"
        )
    if settings.save != "models":
        raise ValueError("privaudit.train returns models: leave save out of settings")
    each = None if epsilon is None else budget_of(epsilon)
    many = isinstance(each, tuple)
    settings = settings.given(
        epsilon=None if many else epsilon,
        budgets=",".join(map(str, each)) if many else None,
        rounds=rounds,
    )
    if plan is not None:
        plan = TrainingPlan.of(plan)
        algorithm = algorithm or plan.settings["algorithm"]
        graph = graph or plan.settings["graph"]
        settings = plan.under(settings)
    settings = settings.over(delta=DELTA)
    if algorithm is None:
        unit = settings.unit or ("record" if users is None else "user")
        algorithm = "dp-fedavg" if unit == "user" else "dp-dsgt"
    assert settings.delta is not None
    asked = settings.changes()
    fixed = {x: asked.pop(x) for x in NOT_PLANNED if x in asked}
    whole = nodes
    if party is not None:
        size = place_of(settings, party)[1] if exchange is None else exchange.size
        whole, nodes = nodes or size, None
        if not isinstance(shares, list):
            shares, users = [shares], None if users is None else [users]
    material = Material.own(
        model,
        shares,
        classes=settings.classes,
        loss=loss,
        test=test,
        nodes=nodes,
        split=split,
        seed=settings.public_seed,
        users=None if users is None else Users(users, settings.overlap or 1),
    )
    if transform is not None:
        material = material.with_transform(transform)
    options = options or {}
    family = family_named(algorithm)
    given = {
        "partition": "given" if nodes is None else split,
        "algorithm": algorithm,
        "nodes": len(material.shares) if party is None else whole,
        "graph": graph or family.defaults.get("graph", "complete"),
        "data": OWN,
        "model": OWN,
        "train": sum(map(len, material.shares)),
        **{x: own for x, own in family.own_defaults.items() if x not in options},
        **fixed,
    }
    own = family.options.__struct_fields__
    _check_options({x: v for x, v in options.items() if x not in own}, given)
    if plan is not None:
        asked = plan.over(asked, None if party is not None else material.shares)
    choose = functools.partial(
        training_for,
        {**given, **options},
        asked,
        epsilon=settings.budget,
        delta=settings.delta,
        noise_multiplier=settings.noise_multiplier,
        where="privaudit.train",
    )
    training = choose(material, None)  # what is open is chosen once sizes are known
    check_unit(training, settings.unit, users)
    paid = [x for x in (settings.budget, settings.noise_multiplier) if x is not None]
    if training.family.private and len(paid) != 1:
        raise ValueError("give one of epsilon, a budget, and noise_multiplier")
    if paid and not training.family.private:
        raise ValueError(
            f"{algorithm} adds no noise and keeps no budget: leave epsilon and "
            "noise_multiplier out, or use its private form"
        )
    observer = settings.observer
    if observer is not None:
        observer = check_observer(training.algorithm, observer, training.nodes)
    seen_by = UNSET if observer is None else observer
    claim = claimed(training, "privaudit.train", settings, seen_by)
    return trained_models(
        training,
        claim,
        dataclasses.replace(settings, observer=observer, parties=party is not None),
        Own(material, None if plan is not None else choose),
        out=out,
        watch=watch,
        exchange=party if exchange is None else exchange,
    )


def _check_options(options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """``ValueError`` for one that has a place of its own."""
    for name in options:
        if name in _TASK:
            raise ValueError(
                f"leave {name} out of options: it is in settings, "
                f"privaudit.TrainingSettings({name}=...)"
            )
        if name in given or name in _NOT_OPTIONS:
            raise ValueError(
                f"leave {name} out of options: an argument of privaudit.train, the "
                "model or the shares decide it"
            )


def trained_models(
    training: Training,
    claim: Claim,
    settings: TrainingSettings,
    own: Own,
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watch | str | None = None,
    exchange: Exchange | int | None = None,
) -> TrainedModels:
    """Train as `train` does, with arguments that are put together: `run_in_folder`."""
    from trainers.network.ranks import launched

    if out is None and launched() and exchange is None:
        raise ValueError(
            "under torchrun, give out=: the folder in which the ranks meet"
        )

    def trained(path: pathlib.Path) -> pathlib.Path | None:
        done = run_in_folder(
            training,
            claim,
            settings,
            own=own,
            out=path,
            watch=watching(watch),
            exchange=exchange,
        )
        return None if done is None else done.path

    assert own.material is not None
    return models_of(trained, out, own.material, claim.relation)


def models_of(
    trained: Callable[[pathlib.Path], pathlib.Path | None],
    out: str | os.PathLike[str] | None,
    material: Material,
    relation: Relation,
) -> TrainedModels:
    """Return the models that ``trained`` keeps in a folder, ``out`` or a temporary one.

    ``trained`` is given the folder, and returns that which has the run, None at a rank
    for which another one speaks. One that is not temporary gets its page.
    """
    from trainers.runs.final_models import modules
    from trainers.runs.run import TrainingRun

    with contextlib.ExitStack() as stack:
        own_folder = out is None
        if out is None:
            out = tempfile.mkdtemp(prefix="privaudit-")
            stack.callback(_remove, out)
        try:
            path = trained(pathlib.Path(out))
            if path is not None and not own_folder:
                page.keep(path)
            folder = RunFolder(path or out)
            models = modules((folder / MODEL).read_bytes(), material.whole)
            config = folder.read("config.json", TrainingRun)
            found = TrainedModels(
                models=[*models.values()],
                ledger=folder.read("ledger.json", Ledger),
                curves=folder.read("curves.json", Curves),
                relation=relation,
                observer=config.observer,
                _trained=KeptTraining(
                    folder=folder,
                    config=config,
                    training=config.training,
                    material=material,
                    paged=not own_folder,
                ),
            )
        except FolderError as error:
            raise ValueError(str(error)) from error
        stack.pop_all()
    if own_folder:
        weakref.finalize(found, _remove, out)
    return found


def _remove(folder: str | os.PathLike[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
