"""Bounds on what an observer of a decentralised training learns of one node."""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import UNSET

from privaudit.accounting.views import (
    ANY_NODE,
    ASSUMES,
    FOLLOWS,
    REACTS_NOT,
    SECRETS,
    LinearProtocol,
    Observer,
    Pair,
    diluted,
    figures,
    of_nodes,
)
from privaudit.figure_settings import ViewSettings, check_plot
from privaudit.files.arguments import public
from privaudit.files.json import Summary
from privaudit.results import Relation, Unit, check_delta, held_at, round_up

if TYPE_CHECKING:
    from trainers.runs.training import Training

_MOST_ROWS = 60  # of the table; JSON has all


@dataclasses.dataclass(frozen=True, eq=False)
class Views:
    """Upper bounds on epsilon of each node, for each observer.

    Attributes
    ----------
    pairs
        One for each node and observer, with the three figures.
    algorithm, noise_multiplier, delta, relation, unit
        What was accounted.
    protocol
        The messages that are sent, as arrays, for your own computations. None if the
        figures have a closed form.
    assumes
        What the first two figures assume; where nodes share secrets, all three.
    """

    pairs: tuple[Pair, ...]
    algorithm: str
    noise_multiplier: float
    delta: float
    relation: Relation
    unit: Unit
    protocol: LinearProtocol | None
    assumes: tuple[str, ...] = ASSUMES

    @property
    def has_secrets(self) -> bool:
        """Return whether nodes share secret noise, on which the figures depend."""
        protocol = self.protocol
        return (
            protocol is not None
            and np.unique(protocol.noise.nonzero()[1]).size > (protocol.noise.shape[0])
        )

    def _all_assumed(self) -> list[str]:
        return [*self.assumes, *([SECRETS] if self.has_secrets else [])]

    summary = Summary(
        "algorithm noise_multiplier delta relation unit views=pairs "
        "assumes.nobody_reacts=_if_nobody_reacts assumes.certified=_all_assumed "
        "assumes.everything_seen=_if_all_is_seen"
    )

    def _if_nobody_reacts(self) -> list[str]:
        return [*self._all_assumed(), REACTS_NOT]

    def _if_all_is_seen(self) -> list[str]:
        return self._all_assumed() if self.has_secrets else []

    def lines(self) -> list[str]:
        """A table of all figures, and what each column means."""
        head = "of    by      distance  nobody reacts  certified  everything seen"
        lines = [head]
        for pair in self.pairs[:_MOST_ROWS]:
            far = "-" if pair.distance is None else str(pair.distance)
            three = (pair.nobody_reacts, pair.certified, pair.everything_seen)
            one, two, last = map(round_up, three)
            row = f"{pair.of:<5} {pair.by!s:<7} {far:<9} {one:<14} {two:<10} {last}"
            lines.append(row)
        if len(self.pairs) > _MOST_ROWS:
            more = len(self.pairs) - _MOST_ROWS
            lines.append(f"and {more} more, which --json has")
        if not self.pairs:
            lines.append("nobody is left to be protected: all nodes collude")
        secrets = self.has_secrets
        return [
            *lines,
            f"epsilon is at most that, at delta {self.delta:.15g} under "
            f"{self.relation} (unit: {self.unit}"
            f"{held_at(UNSET if self.unit == 'node' else 1, self.unit)})",
            f"nobody reacts: if {REACTS_NOT}; training breaks it",
            "certified: valid for training as it is",
            "everything seen: all releases, but no secret of others; the ledger is for "
            "whoever knows all secrets"
            if secrets
            else "everything seen: each release by itself, as the ledger has it",
            f"{'all three' if secrets else 'the first two'} assume that "
            f"{'; and that '.join(self._all_assumed())}",
        ]


@public
def views(
    algorithm: str,
    *,
    noise_multiplier: float,
    delta: float,
    observer: str | int | Sequence[int] | Observer | None = None,
    relation: Relation | None = None,
    unit: Literal["record", "node"] = "record",
    final_models: bool = False,
    seed: int = 0,
    plot: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Views:
    """Bound what each node of a decentralised training learns of each other node.

    There are three upper bounds on epsilon, each at most the next: *nobody reacts*
    assumes that gradients do not depend on earlier messages, *certified* holds for
    training as it is, and *everything seen* is the account of all releases.

    Parameters
    ----------
    algorithm
        An algorithm's name, a recipe, or your own as ``module:Class``. Its messages
        must be linear in noisy gradients, as those of gossip, gradient tracking and
        push-sum.
    noise_multiplier
        Noise multiplier of the algorithm's mechanism, >= 0.
    delta
        The delta of all figures, in (0, 1).
    observer
        Who observes: a node (3), several that collude (``[3, 5]`` or ``"3,5"``), a wire
        (``"edge:1-2"``), or all messages (``"everybody"``). None: each node by itself.
    relation
        What neighbouring data sets differ in. None: as in training.
    unit
        What neighbours differ in: ``record``; or ``node``, all of whose records are
        replaced.
    final_models
        Whether all nodes' last models are published as well.
    seed
        Seed by which data are dealt, which decides how many records each node has.
    plot
        A file for a plot, such as views.svg.
    settings
        Settings of the training, by name, such as ``nodes=8, graph="ring", rounds=20``.

    Returns
    -------
    A `Views` with all ``pairs``, ``summary()`` for JSON and ``lines()`` in words.

    Raises
    ------
    ValueError
        If a setting is out of its range, or the algorithm is not linear or too large.

    Examples
    --------
    >>> import privaudit as pa
    >>> ring = {"nodes": 4, "graph": "ring", "rounds": 6}
    >>> ring |= {"train": 200, "batch_size": 50}
    >>> found = pa.views(
    ...     "dp-dsgd", noise_multiplier=4.0, delta=1e-5, observer=2, **ring
    ... )
    >>> far = next(pair for pair in found.pairs if pair.distance == 2)
    >>> far.nobody_reacts < far.certified <= far.everything_seen
    True
    """
    return views_of(
        algorithm,
        settings,
        noise_multiplier=noise_multiplier,
        how=ViewSettings(
            observer=None if observer is None else Observer.named(observer),
            relation=relation,
            unit=unit,
            final_models=final_models,
            seed=seed,
        ),
        delta=delta,
        plot=None if plot is None else pathlib.Path(plot),
    )


def views_of(
    what: str,
    changes: Mapping[str, Any],
    *,
    noise_multiplier: float,
    delta: float,
    how: ViewSettings,
    plot: pathlib.Path | None = None,
) -> Views:
    """As `views`, with settings as a mapping."""
    from privaudit.auditing.attacks.protocols import protocol_of
    from trainers.algorithms.butterfly import ButterflyFamily
    from trainers.runs.problem import Problem

    check_delta(delta)
    every = how.observer in (None, ANY_NODE)
    observers = None if every else [Observer.parse(str(how.observer))]
    number = isinstance(noise_multiplier, numbers.Real)
    if not (number and 0 <= noise_multiplier < math.inf):
        raise ValueError(
            f"noise_multiplier must be a finite number >= 0, got {noise_multiplier!r}"
        )
    if plot is not None:
        check_plot(plot)
    training = _training(what, changes)
    for one in observers or ():
        one.check(training.nodes)
    if training.family.central:
        raise ValueError(
            f"{training.algorithm} runs at one place: nobody hears anything; choose "
            "a decentralised algorithm"
        )
    problem = Problem.of(training, seed=how.seed)
    ledger = problem.ledger(noise_multiplier)
    family, protocol = training.family, None
    if not isinstance(family, ButterflyFamily):
        protocol = protocol_of(problem, ledger, final_models=how.final_models)
    relation = "replace-one" if how.unit == "node" else training.relation(how.relation)
    if how.unit == "node":
        ledger = of_nodes(ledger, problem.sizes)
    if isinstance(family, ButterflyFamily):  # however many rounds
        pairs = diluted(ledger, delta, observers, relation, family.graph)
    else:
        assert protocol is not None
        pairs = figures(protocol, ledger, delta, observers, relation)
    found = Views(
        pairs,
        training.algorithm,
        noise_multiplier,
        delta,
        relation,
        how.unit,
        protocol,
        (FOLLOWS,) if protocol is None else ASSUMES,
    )
    if plot is not None:
        from privaudit.report.views import draw_views

        joined = np.any(training.mixing().matrices > 0, axis=0)
        draw_views(found.pairs, joined, plot)
    return found


def _training(what: str, changes: Mapping[str, Any]) -> Training:
    from privaudit.api.trainings import recipe_of
    from privaudit.task_settings import laid_over
    from trainers.runs.training import training_from

    values = laid_over(recipe_of(what).settings(None), changes)
    return training_from(values, where="--set" if changes else what)
