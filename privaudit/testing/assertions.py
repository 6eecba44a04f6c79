"""The assertions of the package.

In one test a mechanism that is as private as it is said to be fails with probability at
most 1 - confidence, however many pairs there are and however they are chosen: see
`privaudit.testing.searching`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from privaudit.auditing.probes import pair as probes
from privaudit.files.arguments import number, public
from privaudit.files.pasting import called, dp, name_of, repeat
from privaudit.results import Relation, round_down, round_up
from privaudit.testing import record
from privaudit.testing.sampling import Mechanism, Scoring
from privaudit.testing.searching import Asked, verdict_of

__tracebackhide__ = True  # pytest shows where a test calls, and its mechanism


@public
def assert_private(
    mechanism: Mechanism,
    pair: tuple[Any, Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    confidence: float = 0.999,
    runs: int = 20_000,
    score: Scoring = None,
    seed: int = 0,
    vectorised: bool = False,
) -> None:
    """Fail if runs of a mechanism refute that it is (epsilon, delta)-DP on ``pair``.

    Both directions are tested, with either data set as the first. Runs stop at the
    first of a few looks that refutes the claim.

    Parameters
    ----------
    mechanism
        A function ``mechanism(data, rng)`` that returns a number, an array, a sequence
        or dictionary of these, or anything hashable. ``rng`` is a
        `numpy.random.Generator`; a parameter named seed gets a whole number below 2^32
        instead. Calls must be independent and must not change the data.
    pair
        Two neighbouring data sets.
    epsilon, delta
        The claim: epsilon >= 0 and finite, delta in [0, 1).
    confidence
        A mechanism that meets its claims fails a test function with probability at most
        1 - confidence, however many pairs that test tries.
    runs
        Most runs per pair; a fair coin chooses the data set of each run.
    score
        How an output becomes a number that is larger, or smaller, on one data set: a
        function, chosen before the runs. None: outputs are read as real numbers and as
        events, and attacks are learned on earlier runs. "bits": the lowest bits of
        floats are read, which alone may tell the data sets apart.
    seed
        Seed of everything random. A mechanism that takes random numbers from elsewhere
        is not repeatable.
    vectorised
        Whether the mechanism is ``mechanism(data, size, rng)`` and makes ``size``
        independent runs at once: an array whose first axis is the run, a dictionary or
        tuple of such arrays (missing values are nan, None or masked), or a list of
        outputs. A score then takes what it gives, and returns a number a run.

    Raises
    ------
    AssertionError
        If the claim is refuted. The message has the pair, a lower bound on epsilon, and
        the call of `privaudit.testing.judge` that repeats the verdict.
    ValueError
        If a value is out of its range, an output cannot be read, or data were changed.

    Notes
    -----
    A test that passes does not prove privacy: it made limited runs, on some pairs.

    Examples
    --------
    >>> from privaudit.testing import assert_private
    >>> def noisy_count(data, rng):
    ...     return len(data) + rng.laplace(scale=1.0)
    >>> assert_private(noisy_count, ([0.3], [0.3, 0.9]), epsilon=1.0)
    """
    test = record.current()
    asked = Asked(
        mechanism, pair, epsilon, delta, confidence, runs, score, seed, vectorised
    )
    found, shown = verdict_of("assert_private", test, asked)
    if found is not None and found.refuted:
        first, evidence, _ = test.evidence[asked.claim]
        text = (
            f"{name_of(mechanism)} is not {dp(asked.epsilon, asked.delta)}.\n{evidence}"
        )
        if first is not found:
            text += f"\nA later pair is refuted at its own level as well.\n{shown}"
        raise AssertionError(text)


@public
def assert_refuted(
    mechanism: Mechanism,
    pair: tuple[Any, Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    confidence: float = 0.999,
    runs: int = 20_000,
    score: Scoring = None,
    seed: int = 0,
    vectorised: bool = False,
) -> None:
    """Fail unless runs refute that a mechanism is (epsilon, delta)-DP on ``pair``.

    Use it on a planted bug, to see that your tests can find one. Parameters and errors
    are those of `assert_private`.

    >>> from privaudit.testing import assert_refuted
    >>> def exact_count(data, rng):
    ...     return len(data)
    >>> assert_refuted(exact_count, ([0.3], [0.3, 0.9]), epsilon=1.0)
    """
    asked = Asked(
        mechanism, pair, epsilon, delta, confidence, runs, score, seed, vectorised
    )
    found, shown = verdict_of("assert_refuted", record.current(), asked)
    assert found is not None
    if not found.refuted:
        few = f"so many runs show {round_down(found.most)} at most: try more"
        other = "try more runs, a pair that differs more, or a score"
        ended = {
            "runs": few if found.most <= asked.epsilon else other,
            "seconds": "the seconds of --privacy-budget ran out",
        }
        raise AssertionError(
            f"{name_of(mechanism)} is not refuted to be "
            f"{dp(asked.epsilon, asked.delta)}: "
            f"{ended.get(found.stopped, '')}.\n{shown}"
        )


@public
def assert_accounts(
    source: Any,
    epsilon: float,
    delta: float,
    relation: Relation | None = None,
    *,
    conditional: bool = False,
) -> None:
    """Fail unless a ledger is certified to be (epsilon, delta)-DP.

    Parameters
    ----------
    source
        A ledger, or what `privaudit.ledger_from` reads: a dp-accounting event, an
        Opacus engine, a file.
    epsilon, delta
        The budget that the ledger has to meet.
    relation
        As in `privaudit.epsilon`.
    conditional
        Whether to accept an account that rests on assumptions of its ledger. That of
        an Opacus history does, as the history does not show whether batches were
        Poisson sampled.

    Raises
    ------
    AssertionError
        If the certificate does not meet the budget, or meets it under assumptions and
        ``conditional`` is False.
    ValueError
        If ``source`` has no ledger, or a value is out of its range.

    >>> import dp_accounting as dp
    >>> from privaudit.testing import assert_accounts
    >>> step = dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0))
    >>> assert_accounts(dp.SelfComposedDpEvent(step, 1000), epsilon=1.84, delta=1e-5)
    >>> history = [(1.0, 0.01, 1000)]  # of Opacus: noise, sampling rate, steps
    >>> assert_accounts(history, epsilon=1.84, delta=1e-5, conditional=True)
    """
    from privaudit.accounting.certificate import Certificate
    from privaudit.api.accounts import ledger_from

    epsilon, delta = number("epsilon", epsilon), number("delta", delta)
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
    certificate = Certificate.of(ledger_from(source), relation)
    proved = certificate.standing == "certified"
    within = certificate.meets(epsilon, delta)
    met = within and (proved or conditional)
    named = {list: "history", str: str(source)}
    what = named.get(type(source), type(source).__name__)
    row = record.current().row("assert_accounts", what, dp(epsilon, delta))
    row.status = "holds" if met and row.status == "holds" else "fails"
    if met:
        return
    text = f"the account does not meet {dp(epsilon, delta)}"
    if within:
        assumed = "; ".join(certificate.ledger.assumptions)
        text += (
            f" without assumptions: it rests on this, that {assumed}; where so, "
            "say conditional=True"
        )
    found = certificate.epsilon(delta)
    raise AssertionError(
        f"{text}.\n  account:     epsilon is at most {round_up(found.upper)} and at "
        f"least {round_down(found.lower)} at delta {delta:g}, {certificate.relation}"
    )


@public
def assert_probes(
    release: Mechanism,
    pair: tuple[Any, Any],
    *,
    sensitivity: float | None = None,
    norm: int = 2,
    noise: float | None = None,
    low_bits: bool = True,
    deterministic: Callable[[Any], Any] | None = None,
    pairs: Any = None,
    spent: Callable[[], float] | None = None,
    budget: float | None = None,
    timing: bool = False,
    runs: int = 1000,
    seed: int = 0,
) -> dict[str, str]:
    """Fail if a few runs show a privacy bug that needs no statistical test to be seen.

    It looks for random numbers that are not from ``rng``; coordinates without noise;
    equal noise in two runs, two coordinates or on both data sets; runs that depend on
    the runs before, and such as set a generator that others draw from; noise of another
    scale than promised; a record that moves the release too far; low bits of floats
    that differ between the data sets (Mironov 2012); runs that are charged twice, or
    never; and, where asked for, times that do.

    Parameters
    ----------
    release
        A function ``release(data, rng)`` that returns a number, or an array or
        dictionary whose length never changes; or ``release(data, seed)``, as for
        `privaudit.probe`.
    pair
        Two neighbouring data sets. The more they differ, the more bugs are seen.
    sensitivity, norm
        The promised bound on how far the release moves between the two data sets with
        equal noise, and its norm, 1 or 2. The release must then draw its noise from
        ``rng`` in the same order for both. None: it is not checked.
    noise
        The promised standard deviation of the noise in each coordinate; for Laplace
        noise of scale b it is sqrt(2) b. None: it is not checked.
    low_bits
        Whether low bits are checked. Noise that is added in floating point mostly fails
        this check, and rightly: such bits may tell an attacker which data were used.
        Give False to accept that.
    deterministic
        What is released but for the noise, as a function of the data, on which the
        sensitivity is measured then; the noise may come from anywhere.
    pairs
        A strategy of pairs, see `privaudit.testing.neighbours`, that is searched, by
        climbing, for one that moves the release further than promised.
    spent, budget
        A function without parameters that reads how much of a budget was spent so far,
        and what one run is promised to cost. Each run on either data set must raise it,
        by just that if ``budget`` is given.
    timing
        Whether to hold the times of runs on both data sets against each other. It is
        this machine's clock that is read: a pass says little of another.
    runs
        Number of runs on each data set, >= 100; up to eight times as many where low
        bits are suspected.
    seed
        Seed of the generators.

    Returns
    -------
    dict
        Checks that were not made, and why: pytest's summary names them as well.

    Raises
    ------
    AssertionError
        If a bug is found. The message has all findings, and what was not checked.
    ValueError
        If a value is out of its range, or a release is not made of finite numbers.

    Notes
    -----
    Checks with random outcomes allow five standard deviations, or a chance of 1e-9, so
    that correct code practically never fails.

    >>> from privaudit.testing import assert_probes
    >>> def total(data, rng):
    ...     return round(1024 * (sum(data) + rng.normal(scale=2.0))) / 1024
    >>> assert_probes(total, ([0.5], [0.5, 1.0]), sensitivity=1.0, noise=2.0)
    {}
    """
    promises = probes.Promises(
        sensitivity=sensitivity,
        norm=norm,
        noise=noise,
        low_bits=low_bits,
        deterministic=deterministic,
        pairs=pairs,
        spent=spent,
        budget=budget,
        timing=timing,
    )
    checks = probes.probe(release, pair, promises, runs, seed)
    wrong = [check for check in checks if check.findings]
    skipped = {check.name: check.skipped for check in checks if check.skipped}
    row = record.current().row("assert_probes", name_of(release), "no findings")
    row.pairs += 1
    row.runs += 3 * runs
    row.seed = seed
    row.skipped = "; ".join(f"{name}: {why}" for name, why in skipped.items())
    row.status = "fails" if wrong or row.status == "fails" else "holds"
    if wrong:
        lines = [f"{name_of(release)} has findings of {runs:,} runs, seed {seed}."]
        for check in checks:
            lines += [f"  {check.name}: {finding}" for finding in check.findings]
        lines += [f"  {name}: not looked at, {why}" for name, why in skipped.items()]
        asked = {
            one.name: called(value) if callable(value) else repr(value)
            for one in dataclasses.fields(promises)
            if (value := getattr(promises, one.name)) != one.default
        }
        asked |= {"pairs": "pairs"} if pairs is not None else {}
        told = "".join(f"{name}={value}, " for name, value in asked.items())
        call = (
            f"privaudit.testing.assert_probes({called(release)}, pair, {told}"
            f"runs={runs}, seed={seed})"
        )
        given = release, deterministic, spent
        raise AssertionError("\n".join([*lines, *repeat(pair, call, *given)]))
    return skipped
