"""A user's own training loop: noisy gradients from an oracle that keeps the ledger."""

from __future__ import annotations

import copy
import math
import operator
import os
import pathlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from privaudit.api.console import watching
from privaudit.files import json as _json
from privaudit.files.arguments import public
from privaudit.files.extras import need
from privaudit.ledger import Ledger
from privaudit.release import NoSampling, RandomAllocation
from privaudit.results import DELTA
from privaudit.settings import BoundSettings, claim_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from privaudit.accounting.filters import Budget
    from privaudit.api.watch import Watch
    from privaudit.auditing.conclude import AuditedScores
    from trainers.numerics.keys import Key
    from trainers.numerics.releases import ReleaseJournal
    from trainers.oracles.mechanism import Mechanism
    from trainers.oracles.oracle import Oracle
    from trainers.runs.material import Material


class GradientOracle:
    """Gives noisy gradients of the nodes' data, and keeps their ledger; see `oracle`.

    Attributes
    ----------
    nodes
        Number of nodes.
    sizes
        How many records each has.
    start
        (nodes, dims): the model's parameters as a vector, in the order of
        ``module.parameters()``, once for each node.
    """

    def __init__(
        self,
        inner: Oracle,
        material: Material,
        budget: Budget | None = None,
        *,
        key: Key,
        key_file: pathlib.Path | None = None,
        journal: ReleaseJournal | None = None,
    ) -> None:
        from trainers.gradients.per_sample import parameter_vector

        self._inner, self._key, self._key_file = inner, key, key_file
        self._journal = journal
        self._has_asked = self._is_over = False
        self._material = material
        self._module = material.whole
        self._budget, self._charged = budget, 0
        self._terms = _terms(inner.mechanism, inner.data.sizes)
        self._independence = material.independence
        self.nodes, self.sizes = inner.nodes, tuple(inner.data.sizes)
        self.start: Tensor = parameter_vector(material.module).repeat(self.nodes, 1)
        self._process, self._lock = os.getpid(), threading.RLock()
        self._take_up(inner.state_dict())

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "an oracle is neither pickled nor copied: a copy would release what the "
            "folder of this one lacks; pass the one object on"
        )

    def _check_process(self) -> None:
        """``ValueError`` in a forked process: two would draw one batch and noise."""
        if os.getpid() != self._process:
            raise ValueError(
                "this oracle was made in another process, whose ledger and budget know "
                "of no release here: make it in the process that uses it"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return how many releases there were, and their ledger; nothing secret.

        Keep it with the state of your loop. It holds numbers and texts alone.
        """
        with self._lock:
            state = self._inner.state_dict()
        state.pop("past", None)  # noise: with what was released, sums
        return {"key": self._key.run.hex(), **state, "seal": self._seal(state)}

    def _seal(self, state: dict[str, Any]) -> str:
        """Keyed hash of a state: nothing can be taken out of a ledger."""
        text = _json.encode([self._terms, state["releases"], state["ledger"]])
        return self._key.derive(b"state", self._key.run + text)[:16].hex()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, before anything is asked.

        What was released after that state, by a process that was killed, is in the
        ledger by the journal beside the key's file. It is never released again: later
        calls have new batches and new noise. A budget is charged for all of it.

        Raises
        ------
        ValueError
            If this oracle has released something, ``state`` is not what ``state_dict``
            gave of one with its key and arguments, or the journal is older than it.
        BudgetExceeded
            If the budget is less than what was released.
        """
        if self._has_asked or self._is_over:
            raise ValueError(
                "this oracle has released something: make a new one, and load its "
                "state before anything is asked"
            )
        try:
            state = msgspec.to_builtins(_json.convert(state, _State))
        except msgspec.ValidationError as error:
            raise ValueError(
                f"state is not what state_dict() returned ({error}): give that "
                "unchanged, or begin again without a state"
            ) from None
        if state["key"] != self._key.run.hex():
            raise ValueError(
                "the key of this state was lost, or is another one: bring back "
                "the file of the key that it began with, or begin again without a state"
            )
        if state["seal"] != self._seal(state):
            raise ValueError(
                "the state was changed, or is of an oracle with other noise, batches "
                "or numbers of records: give what state_dict() returned unchanged, to "
                "an oracle with the same arguments"
            )
        self._take_up(state)

    def _take_up(self, state: dict[str, Any]) -> None:
        """Take all that was released: as in ``state``, and later as in the journal."""
        self._inner.load_state_dict(state)
        self._inner.skip_begun()
        state = self._inner.state_dict()
        if self._inner.mechanism.buffers and any(state["releases"]):
            raise ValueError(
                "noise in buffers is in memory alone, and the ledger is that of a loop "
                "which was not stopped: begin again with another key_file, or share "
                "noise in a band"
            )
        self._inner.load_state_dict(state)  # within an epoch that assumes an order
        if self._budget is None or not any(state["releases"]):
            return
        mechanism, sizes = self._inner.mechanism, self._inner.data.sizes
        # The node with the least records, as often as any node released: no less than
        # what each has released.
        release = mechanism.release(0, min(sizes))
        most = mechanism.most_turns(max(state["releases"]))
        if isinstance(release.sampling, RandomAllocation):
            hows = [how for size in sizes if (how := mechanism.allocation(size))]
            epochs = -(-most // min(how.batches for how in hows))
            release = msgspec.structs.replace(release, sampling=NoSampling())
            most = epochs * max(how.taken for how in hows)
        more = most - self._charged
        if more > 0:
            self._budget.spend(release, more)
            self._charged = most

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        delta: float = DELTA,
        epsilon: float | None = None,
    ) -> None:
        """Write the finished loop's ledger and account into ``folder``.

        `privaudit.verify`, ``privaudit show`` and the like read it. The key is
        forgotten, with its file: nothing more can be asked.

        Parameters
        ----------
        folder
            A new one, or an empty one.
        delta
            Delta of the account, in (0, 1).
        epsilon
            What was promised, if anything was: the folder then has a verdict.

        Raises
        ------
        ValueError
            If ``folder`` cannot be used, or the ledger has no release or no account.
        """
        from privaudit.accounting.recorded import RecordedRun, write
        from trainers.runs.run_keys import releases_file

        self._check_process()
        with self._lock:  # nothing is released meanwhile
            if not any(self.ledger.nodes):
                raise ValueError(
                    "this oracle released nothing, and nothing is known of what was "
                    "trained: train by its gradient() in this process"
                )
            how = "written by privaudit.oracle at each release"
            if self._key.seed is not None:
                how += f", with seed {self._key.seed}: a study, which protects nobody"
            run = RecordedRun.of(
                "a loop of the user's own", how, delta, epsilon=epsilon
            )
            write(folder, run, self.ledger)
            self._is_over = True
            if self._key_file is not None:
                self._key_file.unlink(missing_ok=True)
                releases_file(self._key_file).unlink(missing_ok=True)

    def close(self) -> None:
        """Give back the key's file and its journal; another oracle can go on with it.

        Nothing more can be asked.
        """
        with self._lock:
            self._is_over = True
            if self._journal is not None:
                self._journal.close()
                self._journal = None

    def gradient(self, at: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """Return each node's noisy mean gradient at parameters ``at``, (nodes, dims).

        Each node samples a batch, scales each record's gradient to at most the clip
        norm, sums them, adds noise and divides by the batch size. The release is in the
        ledger when this returns.

        Parameters
        ----------
        at
            (nodes, dims): the parameters of each node that is asked.
        nodes
            Numbers of the nodes that are asked. None: all.

        Raises
        ------
        ValueError
            If a node does not exist or is named twice, ``at`` has another shape, or a
            parameter is not finite, or this is not the process that made the oracle.
            Nothing is released and nothing is charged. Threads take turns.
        BudgetExceeded
            If the oracle holds a budget and this would exceed it; nothing is released.
        """
        self._check_process()
        with self._lock:  # a batch is drawn and paid for once
            return self._gradient(at, nodes)

    def _gradient(self, at: Tensor, nodes: Sequence[int] | None) -> Tensor:
        if self._is_over:
            raise ValueError("this oracle was closed, or its folder is written")
        asked = _numbers(range(self.nodes) if nodes is None else nodes)
        self._inner.next_release(asked)
        shape, is_tensor = (len(asked), self.start.shape[1]), hasattr(at, "detach")
        given = tuple(at.shape) if is_tensor else type(at).__name__
        if given != shape:
            raise ValueError(
                f"parameters are a tensor of shape (nodes, dims) = {shape}, got {given}"
            )
        at = at.detach().to(self.start.dtype)
        if not at.isfinite().all():
            raise ValueError("parameters are not finite: the training diverged")
        if self._budget is not None:  # last: what is refused is not paid for
            self._pay(self._budget, asked)
        self._has_asked = True
        found = self._inner.gradient(at[None], asked)[0]
        self._inner.sync()  # before anybody has seen it
        return found

    @public
    def audit(
        self,
        loop: Callable[[GradientOracle], object],
        *,
        epsilon: float,
        delta: float = DELTA,
        runs: int = 1000,
        seed: int = 0,
        confidence: float = 0.95,
        watch: Watch | str | None = None,
    ) -> AuditedScores:
        """Attack a loop of yours by runs of it with oracles like this one.

        In each run a fair coin decides whether node 0 has one more record, whose
        gradient is crafted: longer than the clip, and clipped as all others are. The
        attacker sees all that node 0 releases and knows its other records. Nothing is
        released by this oracle, whose budget is not charged: runs have noise by
        ``seed``, use the data again and again, and are in no account, so that what is
        found is as private as the data.

        Parameters
        ----------
        loop
            Called with an oracle, once a run: all that it does with private data it
            does by that.
        epsilon, delta
            The claim, when one record is added or removed.
        runs
            How many runs, in both worlds together.
        seed
            Of worlds, batches and noise.
        confidence
            Probability that the bound is not above the true epsilon, in (0, 1). It is
            the larger of one for any mechanism and one within the releases' family, at
            half of what is left each.
        watch
            As in `privaudit.train`.

        Returns
        -------
        An `AuditedScores` with ``status``, ``lower``, ``upper`` and ``most_shown``.

        Raises
        ------
        ValueError
            If a value is out of its range, batches are of fixed size, or the loop asks
            for nothing, or for something else each time.

        Examples
        --------
        >>> import privaudit as pa, torch
        >>> inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
        >>> data = inputs, (inputs.sum(1) > 0).long()
        >>> oracle = pa.oracle(
        ...     torch.nn.Linear(3, 2), data, nodes=1,
        ...     noise_multiplier=1.0, clip_norm=1.0, batch_size=40,
        ... )
        >>> loop = lambda each: each.gradient(each.start)
        >>> found = oracle.audit(loop, epsilon=1, runs=400)
        >>> found.status, found.lower.epsilon < found.upper.epsilon
        ('refuted', True)
        """
        from privaudit.auditing.programs.oracle_loop import audit

        claim = claim_of(epsilon, delta, "add-or-remove-one", source="privaudit.oracle")
        how = BoundSettings(runs=runs, seed=seed, confidence=confidence)
        own = self._shadow, self._inner, self._material
        with watching(watch).runs() as progress:
            return audit(loop, *own, claim, how, progress)

    def _shadow(self, inner: Oracle, key: Key) -> GradientOracle:
        """An oracle that a loop asks in this one's place."""
        return GradientOracle(inner, self._material, key=key)

    def _pay(self, budget: Budget, asked: Sequence[int]) -> None:
        """Spend what the node with the least records of those that ask releases.

        All have the same noise, so that no other's pays more. An epoch of random
        allocation is paid with its first batch: a record's releases, as if their places
        were known.
        """
        mechanism, sizes = self._inner.mechanism, self._inner.data.sizes
        releases_of, parts = self._inner.releases_of, mechanism.parts
        asked = [node for node in asked if releases_of(node) % parts == 0]
        if not asked:  # paid for with the turn of the first part
            return
        least = min(sizes[node] for node in asked)
        release = mechanism.release(releases_of(asked[0]), least)
        if not isinstance(release.sampling, RandomAllocation):
            budget.spend(release)
            return
        for node in asked:
            how = mechanism.allocation(sizes[node])
            if how is not None and releases_of(node) % how.batches == 0:
                plain = msgspec.structs.replace(release, sampling=NoSampling())
                budget.spend(plain, how.taken)
                return

    @property
    def ledger(self) -> Ledger:
        """Ledger of each node's releases so far.

        It says what its account assumes, if your code decides whether a record's
        gradient is its own.
        """
        with self._lock:
            return self._inner.ledger.independent(self._independence)

    def module(self, at: Tensor) -> nn.Module:
        """A copy of the model with the parameters ``at``, (dims,)."""
        from trainers.gradients.per_sample import trained

        copied = copy.deepcopy(self._module)
        parameters = trained(copied).values()
        parts = at.detach().split([one.numel() for one in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data.copy_(part.view_as(parameter))
        return copied


class _State(msgspec.Struct, forbid_unknown_fields=True):
    """Result of `GradientOracle.state_dict`."""

    key: str
    releases: list[int]
    ledger: list[str]
    seal: str


def _shared(correlated: Any, batches: int) -> dict[str, Any]:
    """Strategy, or buffers, and parts of a `Mechanism`."""
    from privaudit.accounting.factorization import toeplitz

    if not isinstance(correlated, Sequence):
        column = toeplitz(1000, correlated)
    elif correlated and all(isinstance(one, Sequence) for one in correlated):
        if not all(len(one) == 2 for one in correlated):
            raise ValueError(f"correlated must be pairs (m, l), got {correlated!r}")
        pairs = tuple((float(m), float(decay)) for m, decay in correlated)
        return {"buffers": pairs, "parts": batches}
    else:
        column = tuple(map(float, correlated))
    return {"strategy": column, "parts": len(column)}


def _terms(mechanism: Mechanism, sizes: Sequence[int]) -> str:
    """The ledger of a first release: what goes on from another would be another's."""
    return mechanism.ledger(sizes, 1).to_json()


def _numbers(nodes: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(operator.index(node) for node in nodes)
    except TypeError:
        raise ValueError(
            f"nodes must be a list of nodes' numbers, got {nodes!r}"
        ) from None


@public
def oracle(
    model: nn.Module | Callable[[], nn.Module],
    shares: Any,
    *,
    noise_multiplier: float,
    clip_norm: float,
    batch_size: float,
    sampling: str = "poisson",
    correlated: int | Sequence[float] | Sequence[tuple[float, float]] = 1,
    loss: Callable[..., Any] | None = None,
    nodes: int | None = None,
    split: str = "even",
    transform: Callable[[Tensor], Any] | None = None,
    budget: Budget | None = None,
    seed: int | None = None,
    key_file: str | os.PathLike[str] | None = None,
    device: str = "cpu",
) -> GradientOracle:
    """Give noisy gradients to a training loop of your own, and keep their ledger.

    Whatever the loop computes from them is post-processing: it costs no more privacy,
    as long as the loop reads the private data in no other way.

    Parameters
    ----------
    model, shares, loss, nodes, split, transform
        As in `privaudit.train`.
    noise_multiplier
        Standard deviation of the noise on the sum of a batch's clipped gradients, over
        the clip norm; > 0.
    clip_norm
        L2 bound on each record's gradient.
    batch_size
        Expected number of records in a node's batch, and the divisor of the sum.
    sampling
        How batches are drawn. "poisson": each record by its own coin.
        "random-allocation": each record in one of an epoch's batches, where an epoch is
        as many calls as bring the expected size nearest to ``batch_size``;
        "random-allocation:k": in k of them. A budget is then charged for a whole epoch
        as it begins, without amplification by sampling.
    correlated
        How many calls in a row share noise, so that much of it cancels in the sum of
        their gradients: matrix factorisation, with coefficients that are the best for
        1 000 calls; or these, 1 first, as `privaudit.accounting.factorization.toeplitz`
        gives them. Each record is in one of as many parts, from which batches are drawn
        in turn. An oracle that goes on from a state shares no noise with calls before.
        Or ``blt(steps, parts, buffers)``, of the same module: parts are batches then,
        and nothing goes on from a state.
    budget
        A `privaudit.Budget` that is charged before each call, so that the loop may
        choose its next step in view of earlier results. ``gradient`` raises
        ``BudgetExceeded`` instead of exceeding it.
    seed
        Seed of a study: makes noise and sampling repeatable. A model trained with a
        seed is not protected. None: a secret key.
    key_file
        Where the secret key is kept until `GradientOracle.save`, with a journal of
        releases beside it, so that a loop which was killed can go on with the same
        arguments: see `GradientOracle.load_state_dict`. Nobody else may read it. None:
        in memory.
    device
        "cpu" or "cuda".

    Returns
    -------
    An oracle with ``start``, ``gradient(at)``, ``ledger``, ``module(at)``,
    ``state_dict()``, ``load_state_dict(state)`` and ``save(folder)``.

    Raises
    ------
    ValueError
        If a value is out of its range, or model, data and loss do not fit each other.

    Examples
    --------
    >>> import privaudit as pa, torch
    >>> inputs = torch.randn(80, 5, generator=torch.Generator().manual_seed(0))
    >>> data = inputs, (inputs.sum(1) > 0).long()
    >>> oracle = pa.oracle(
    ...     torch.nn.Linear(5, 2), data, nodes=2,
    ...     noise_multiplier=1.0, clip_norm=1.0, batch_size=8, seed=0,
    ... )
    >>> at = oracle.start
    >>> for _ in range(5):  # gradient descent, and averaging over all nodes
    ...     at = (at - 0.5 * oracle.gradient(at)).mean(0).expand(2, -1)
    >>> pa.epsilon(ledger=oracle.ledger, delta=1e-5).upper < 7
    True
    """
    need("privaudit.oracle", "train")
    from privaudit.accounting.filters import Budget
    from trainers.data.shares import private_data
    from trainers.gradients.choose import differentiator
    from trainers.numerics.device import check_device
    from trainers.numerics.keys import Key
    from trainers.numerics.randomness import Streams
    from trainers.oracles.mechanism import Mechanism
    from trainers.oracles.oracle import Oracle
    from trainers.runs.material import Material
    from trainers.runs.owner_advice import of_nodes
    from trainers.runs.run_keys import kept_key

    if key_file is not None and seed is not None:
        raise ValueError("a study has no secret: leave key_file or seed out")
    for name, value in (
        ("noise_multiplier", noise_multiplier),
        ("clip_norm", clip_norm),
        ("batch_size", batch_size),
    ):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be > 0 and finite, got {value}")
    if budget is not None and not isinstance(budget, Budget):
        raise ValueError(f"budget must be a privaudit.Budget or None, got {budget!r}")
    check_device(device)
    material = Material.own(model, shares, loss=loss, nodes=nodes, split=split)
    if transform is not None:
        material = material.with_transform(transform)
    pay = "privaudit.Certificate.of(oracle.ledger, overlap=k) counts up to k nodes"
    for line in of_nodes(material.shares, pay=pay):
        watching(None).warn(line)
    file = None if key_file is None else pathlib.Path(key_file)
    data = material.data(private_data(material.shares).to(device))
    shared = _shared(correlated, max(2, round(data.sizes[0] / batch_size)))
    mechanism = Mechanism(batch_size, clip_norm, noise_multiplier, sampling, **shared)
    terms = _terms(mechanism, data.sizes)
    key, journal = (Key.secret(), None) if file is None else kept_key(file, terms)
    streams = Streams(key if seed is None else seed, device=device, journal=journal)
    gradients = differentiator(material.module, material.loss, *material.example)
    inner = Oracle(data, gradients, mechanism, streams)
    return GradientOracle(
        inner, material, budget, key=streams.key, key_file=file, journal=journal
    )
