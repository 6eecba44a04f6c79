"""From settings or a ledger to an epsilon, and from a budget to noise."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from privaudit.accounting import calibration
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.plans import COLUMNS, Plan
from privaudit.figure_settings import Mechanism
from privaudit.files import json as _json
from privaudit.files.arguments import public
from privaudit.files.frames import columns_of, is_frame
from privaudit.integrations import flower, opacus
from privaudit.ledger import Ledger
from privaudit.results import Bracket, Relation

Path = str | os.PathLike[str]


@public
def epsilon(
    *,
    delta: float,
    noise_multiplier: float | None = None,
    sampling_rate: float = 1.0,
    steps: int = 1,
    schedule: Any = None,
    ledger: Ledger | Path | Sequence[Ledger | Path] | None = None,
    sampling: str = "poisson",
    mechanism: Mechanism = "gaussian",
    relation: Relation | None = None,
    group: int = 1,
    tolerance: float = 1e-4,
) -> Bracket:
    """Compute a proved upper and lower bound on the epsilon of DP-SGD or of a ledger.

    Give exactly one of ``noise_multiplier`` (all steps are noisy sums of clipped
    vectors with this noise), ``schedule`` and ``ledger``.

    Parameters
    ----------
    delta
        The delta of (epsilon, delta)-DP, in [0, 1].
    noise_multiplier
        Standard deviation (Laplace: scale) of the noise on the sum of a batch's clipped
        vectors, divided by the clip norm; the same in all steps.
    sampling_rate
        Expected batch size divided by the number of records, in (0, 1]. 1, the default,
        means that every record is used in every step.
    steps
        Number of noisy sums, one after another.
    schedule
        Noise and rate where steps differ: one (noise multiplier, sampling rate) a step,
        or (noise multiplier, sampling rate, steps) for a row of equal steps. Tuples, an
        array, a pandas frame with columns of these names (noise_multiplier, ...), or
        the path of a .csv or .toml file, as for the command's --schedule.
    ledger
        What was released, or a file that holds it (see `ledger_from`); the figure is
        that of the worst node. Several ledgers are taken as releases of the same data,
        and composed (`Ledger.composed`).
    sampling
        How batches are drawn. "poisson": each record by its own coin.
        "without-replacement": batches of a fixed size. "random-allocation": each record
        in one of an epoch's t batches, with ``sampling_rate`` 1 / t and ``steps`` the
        batches of all epochs; "random-allocation:k": in k of t, ``sampling_rate``
        k / t. "shuffled": passes over batches of fixed size, without amplification from
        above; from below each pass is shuffled anew, and the last batch dropped.
        "reshuffled": that is so from above, too: a uniform order of all records, anew
        and in secret for each pass.
    mechanism
        Distribution of the noise. "gaussian": the clip norm is an L2 norm. "laplace":
        it is an L1 norm.
    relation
        "add-or-remove-one" or "replace-one". None: add-or-remove-one, or replace-one
        if a release (a batch of fixed size) has no meaning under the former.
    group
        Number of records that are protected together, such as those of one user.
    tolerance
        The bracket is made narrower than .1 % of epsilon (1 % where more than 64 kinds
        of steps differ), or than this, whichever is wider. 0: however small epsilon is.

    Returns
    -------
    A `Bracket`. The least epsilon is proved to lie between ``lower`` and ``upper``,
    numerical error included; ``upper`` is the figure to report.

    Raises
    ------
    ValueError
        If a value is out of its range, or not exactly one of ``noise_multiplier``,
        ``schedule`` and ``ledger`` is given.

    Examples
    --------
    >>> import privaudit as pa
    >>> found = pa.epsilon(
    ...     delta=1e-5, noise_multiplier=1.0, sampling_rate=0.01, steps=10_000
    ... )
    >>> 6.18 < found.lower <= found.upper < 6.20
    True
    """
    given = [noise_multiplier is not None, schedule is not None, ledger is not None]
    if sum(given) != 1:
        raise ValueError(
            "give just one of noise_multiplier, schedule and ledger, got "
            f"{sum(given)} of them"
        )
    if noise_multiplier is None and (sampling_rate, steps) != (1.0, 1):
        raise ValueError(
            "a schedule or a ledger says sampling rate and steps: leave sampling_rate "
            "and steps out"
        )
    if ledger is not None:
        whole = Ledger.composed(_ledgers(ledger))
    elif noise_multiplier is None:
        whole = _planned(schedule, sampling, mechanism).ledger()
    elif not 0 < noise_multiplier < np.inf:
        raise ValueError(
            f"noise_multiplier must be > 0 and finite, got {noise_multiplier}"
        )
    else:
        run = noise_multiplier, sampling_rate, steps
        whole = Plan.constant(*run, sampling, mechanism).ledger()
    one = Certificate.of(whole, relation, group=group)
    return one.epsilon(delta, tolerance=tolerance)


@public
def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float = 1.0,
    steps: int = 1,
    schedule: Any = None,
    ledger: Ledger | Path | Sequence[Ledger | Path] | None = None,
    sampling: str = "poisson",
    mechanism: Mechanism = "gaussian",
    relation: Relation | None = None,
) -> float:
    """Find the least noise multiplier that is certified to meet (epsilon, delta).

    With a ``schedule``, find the least factor on all its noise multipliers instead.

    Parameters
    ----------
    epsilon, delta
        The budget: epsilon > 0, delta in [0, 1); 0 needs Laplace noise.
    sampling_rate, steps, schedule, sampling, mechanism
        As in `privaudit.epsilon`.
    ledger
        Other releases of the same data that the same budget has to pay for.
    relation
        As in `privaudit.epsilon`. None: replace-one for "without-replacement" and
        "shuffled" batches, else add-or-remove-one.

    Returns
    -------
    The noise multiplier (noise divided by clip norm), or the schedule's factor. It is
    within a relative 1e-4 of the least one that this account finds (5e-4 for schedules
    of more than 64 kinds of steps), and the budget is met.

    Raises
    ------
    ValueError
        If a value is out of its range, or no noise meets the budget.

    Examples
    --------
    >>> import privaudit as pa
    >>> run = {"delta": 1e-5, "sampling_rate": 0.01, "steps": 1000}
    >>> z = pa.noise_multiplier(epsilon=1, **run)
    >>> 0.999 < pa.epsilon(noise_multiplier=z, **run).upper < 1.001
    True
    >>> plan = [(2.0, 0.01), (1.0, 0.02)]
    >>> scale = pa.noise_multiplier(epsilon=1, delta=1e-5, schedule=plan)
    >>> scaled = [(scale * z, q) for z, q in plan]
    >>> 0.999 < pa.epsilon(delta=1e-5, schedule=scaled).upper <= 1
    True
    """
    if schedule is not None and (sampling_rate, steps) != (1.0, 1):
        raise ValueError(
            "a schedule says sampling rate and steps: leave sampling_rate and steps out"
        )
    if relation is None:
        fixed = sampling in ("without-replacement", "shuffled", "reshuffled")
        relation = "replace-one" if fixed else "add-or-remove-one"
    if schedule is None:
        plan = Plan.constant(1.0, sampling_rate, steps, sampling, mechanism)
        search = calibration.noise_multiplier
    else:
        plan = _planned(schedule, sampling, mechanism)
        search = calibration.noise_scale
    besides = [] if ledger is None else _ledgers(ledger)
    return search(plan.beside(besides), epsilon, delta, relation)[0]


def _ledgers(given: Any) -> list[Ledger]:
    one = isinstance(given, (Ledger, str, os.PathLike))
    return [ledger_from(each) for each in ([given] if one else given)]


def _planned(schedule: Any, sampling: str, mechanism: Mechanism) -> Plan:
    if isinstance(schedule, (str, os.PathLike)):
        return Plan.from_file(pathlib.Path(schedule), sampling, mechanism)
    if is_frame(schedule):
        table = columns_of(
            schedule, COLUMNS[:2], what="a schedule", optional=COLUMNS[2:]
        )
    else:
        try:
            table = np.asarray(schedule, float)
        except (TypeError, ValueError) as error:  # words, or rows of different lengths
            raise ValueError(
                f"a schedule has two numbers a row, {COLUMNS[0]} and {COLUMNS[1]}, or "
                f"three in every row, with {COLUMNS[2]} as the third: {error}"
            ) from error
    return Plan.from_table(table, sampling, mechanism)


@public
def ledger_from(source: Any) -> Ledger:
    """Read a ledger from dp-accounting, jax-privacy, Opacus or a JSON file.

    Parameters
    ----------
    source
        One of: a dp-accounting event; a jax-privacy plan, which contains such an event;
        an Opacus ``PrivacyEngine``, its accountant, or the accountant's history (its
        batches must have been Poisson sampled; the account is conditional on it); a
        Flower accountant, its state, or a strategy that has one (conditional too); an
        object with an attribute ``ledger``, such as a run of `train` or an `oracle`; or
        the path of a JSON file with a ledger or event (`privaudit.accounting.events`).

    Returns
    -------
    The ledger, for `privaudit.Certificate` and `privaudit.epsilon`.

    Raises
    ------
    ValueError
        If ``source`` is none of these, or has a mechanism that a ledger cannot express.

    Examples
    --------
    >>> import privaudit as pa
    >>> ledger = pa.ledger_from([(1.0, 0.01, 1000)])  # as Opacus keeps it
    >>> 1.82 < pa.epsilon(ledger=ledger, delta=1e-5).upper < 1.84
    True
    """
    known = getattr(source, "ledger", source)
    if isinstance(known, Ledger):
        return known
    if isinstance(source, (str, os.PathLike)):
        return _ledger_in(pathlib.Path(source))
    history = opacus.history_of(source)
    if history is not None or opacus.is_history(source):
        return opacus.ledger_of(source if history is None else history)
    if flower.is_flower(source):
        return flower.ledger_of(source)
    event = getattr(source, "dp_event", source)  # a plan of jax-privacy's has it
    if type(event).__module__.startswith("dp_accounting"):
        from privaudit.accounting import events

        return events.ledger_of(event)
    raise ValueError(
        "a ledger comes from an event of dp-accounting's, a plan of jax-privacy's, an "
        "Opacus engine, accountant or history, a Flower accountant, its state or its "
        "strategy, or a file's path, got "
        f"{type(source).__name__}"
    )


def _ledger_in(path: pathlib.Path) -> Ledger:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    try:
        if "class_name" not in _json.decode(content, dict):
            return Ledger.from_json(content)
        from privaudit.accounting import events

        return events.ledger_of(events.from_json(content))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
