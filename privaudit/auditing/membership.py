"""Scores of membership from reference models: LiRA and RMIA, black box.

Both read only losses, log(1 / p) of a record's label, under the model that is attacked
and under *reference models*: others, trained alike, of which the attacker knows what
they were trained on. A score is a number; what it shows of epsilon is for
`privaudit.lower_bound` or `Canaries.audit` to say, and holds however poor the score is,
so long as references know nothing of which records the attacked model was given.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from privaudit.files.arguments import public
from privaudit.files.npz import real_numbers

Floats = NDArray[np.float64]

_EACH = 64  # references from which a record has deviations of its own: Carlini et al.
_FLOOR = 1e-6  # of a deviation: models without noise have none
_LEAST = 1e-12  # of a loss that is taken to log odds


@public
def lira(
    losses: ArrayLike,
    references: ArrayLike,
    included: ArrayLike | None = None,
    *,
    pooled: bool | None = None,
    log_odds: bool = True,
) -> Floats:
    """Score each record by LiRA: a higher score says that the model was trained on it.

    LiRA fits one normal distribution to a record's log odds, log(p / (1 - p)), under
    the reference models that had the record, and one under those that had not (Carlini,
    Chien, Nasr, Song, Terzis and Tramer, "Membership inference attacks from first
    principles", S&P 2022).

    Parameters
    ----------
    losses
        Losses, log(1 / p) of the label, under the attacked model or several.
        # (..., records)
    references
        Losses of the same records under reference models.  # (models, records)
    included
        Which reference was trained on which record. The score is then the logarithm of
        the likelihood ratio ("online"). None: no reference was trained on any of them
        ("offline"); the score is the number of standard deviations by which the log
        odds lie above the references' mean.  # (models, records) bool
    pooled
        Whether all records share one standard deviation, for few reference models.
        None: if there are fewer than 64.
    log_odds
        False: fit minus the loss instead of log odds, for losses that are not the
        logarithm of a probability.

    Returns
    -------
    One score per loss.  # (..., records)

    Raises
    ------
    ValueError
        If shapes do not fit, a loss is not finite (or negative, for log odds), or a
        record has too few references with it or without it.

    Examples
    --------
    >>> import numpy as np
    >>> import privaudit as pa
    >>> random = np.random.default_rng(0)
    >>> hardness = random.uniform(0.5, 3, 200)  # what each record's loss is about
    >>> references = hardness + random.normal(0, 0.1, (32, 200))
    >>> member = random.random(200) < 0.5
    >>> losses = hardness - 0.3 * member + random.normal(0, 0.1, 200)
    >>> score = pa.lira(losses, references)
    >>> bool(score[member].mean() > 2 + score[~member].mean())
    True
    """
    attacked, known, had = _checked(losses, references, included, at_least_0=log_odds)
    shown, seen = (_log_odds(each) if log_odds else -each for each in (attacked, known))
    pooled = len(known) < _EACH if pooled is None else pooled
    without = _normal(seen, ~had, pooled, "without")
    if included is None:
        return (shown - without[0]) / without[1]
    return _log_density(shown, *_normal(seen, had, pooled, "with")) - _log_density(
        shown, *without
    )


@public
def rmia(
    losses: ArrayLike,
    references: ArrayLike,
    population: ArrayLike,
    population_references: ArrayLike,
    included: ArrayLike | None = None,
    *,
    gamma: float = 1.0,
    offline: float = 0.3,
) -> Floats:
    """Score each record by RMIA: a higher score says that the model was trained on it.

    The score of a record x is the share of records z of a population for which
    (p(x | model) / p(x)) / (p(z | model) / p(z)) > gamma, where p(x) is the mean over
    reference models (Zarifzadeh, Liu and Shokri, "Low-cost high-power membership
    inference attacks", ICML 2024). One or two reference models are enough.

    Parameters
    ----------
    losses, references, included
        As for `privaudit.lira`. With ``included``, p(x) is the mean of the means with
        and without x.
    population, population_references
        Losses of other records, on which none of the models was trained, under the
        attacked and the reference models.  # (..., population), (models, population)
    gamma
        The threshold in the formula: 1, as in the authors' code; their paper has 2, at
        which all scores are 0 if models hardly tell records apart.
    offline
        The constant a of p(x) = ((1 + a) p_out(x) + 1 - a) / 2, which is used if no
        reference was trained on the record; in [0, 1].

    Returns
    -------
    One score in [0, 1] per loss.  # (..., records)

    Raises
    ------
    ValueError
        As `privaudit.lira`, or if ``gamma`` is not > 0 or ``offline`` not in [0, 1].

    Examples
    --------
    >>> import privaudit as pa
    >>> pa.rmia([0.1, 2.0], [[1.0, 2.0]], [0.5, 1.5, 2.5], [[0.6, 1.5, 2.2]]).tolist()
    [1.0, 0.3333333333333333]
    """
    if not 0 < gamma < math.inf:
        raise ValueError(f"gamma must be > 0 and finite, got {gamma}")
    if not 0 <= offline <= 1:
        raise ValueError(f"offline must be in [0, 1], got {offline}")
    attacked, known, had = _checked(losses, references, included)
    others, known_others, _ = _checked(population, population_references, None)
    if others.shape[:-1] != attacked.shape[:-1] or len(known) != len(known_others):
        raise ValueError(
            "the population's losses must be under the same models as the records', "
            f"got shapes {attacked.shape} and {others.shape}, references "
            f"{known.shape} and {known_others.shape}"
        )
    usual, usual_others = _log_mean(known, ~had, "without"), _log_mean(known_others)
    if included is None:
        usual, usual_others = (
            np.log(((1 + offline) * np.exp(each) + 1 - offline) / 2)
            for each in (usual, usual_others)
        )
    else:
        usual = np.logaddexp(usual, _log_mean(known, had, "with")) - math.log(2)
    ratios = -attacked - usual - math.log(gamma)  # (..., records)
    beaten = np.sort(-others - usual_others, axis=-1)  # (..., population)
    rows = zip(
        ratios.reshape(-1, ratios.shape[-1]),
        beaten.reshape(-1, beaten.shape[-1]),
        strict=True,
    )
    found = [np.searchsorted(row, ratio, "left") / len(row) for ratio, row in rows]
    return np.array(found, float).reshape(ratios.shape)


def _log_odds(losses: Floats) -> Floats:
    losses = np.maximum(losses, _LEAST)
    return -losses - np.log(-np.expm1(-losses))


def _checked(
    losses: ArrayLike,
    references: ArrayLike,
    included: ArrayLike | None,
    *,
    at_least_0: bool = True,
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    attacked, known = real_numbers(losses), real_numbers(references)
    if known.ndim != 2 or not known.size:
        raise ValueError(
            f"references are (models, records), got losses of shape {known.shape}"
        )
    if attacked.ndim < 1 or attacked.shape[-1] != known.shape[1] or not attacked.size:
        raise ValueError(
            f"losses are (..., records) with a record for each of the references' "
            f"{known.shape[1]:,}, got shape {attacked.shape}"
        )
    for each in (attacked, known):
        if not np.isfinite(each).all():
            raise ValueError("losses must be finite numbers")
        if at_least_0 and (each < 0).any():
            raise ValueError(
                f"losses are log(1 / p) of a record's label, >= 0; got {each.min():g}"
            )
    had = np.zeros(known.shape, bool)
    if included is not None:
        had = np.asarray(included)
        if had.shape != known.shape or not np.isin(had, (0, 1)).all():
            raise ValueError(
                "included must say, True or False, for each reference and record "
                f"whether it was trained on, {known.shape}; got shape {had.shape}"
            )
        had = had.astype(bool)
    return attacked, known, had


def _count(of: NDArray[np.bool_], least: int, word: str) -> NDArray[np.intp]:
    count = of.sum(axis=0)
    if (count < least).any():
        raise ValueError(
            f"every record needs {least} or more references {word} it; record "
            f"{int(np.argmin(count))} has {int(count.min())}"
        )
    return count


def _normal(
    values: Floats, of: NDArray[np.bool_], pooled: bool, word: str
) -> tuple[Floats, Floats]:
    """Mean and deviation of each record's values, of those models.  # (records,)"""
    count = _count(of, 1 if pooled else 2, word)
    mean = np.where(of, values, 0.0).sum(axis=0) / count
    square = np.where(of, values - mean, 0.0) ** 2
    if pooled:
        free = int((count - 1).sum())
        if not free:
            raise ValueError(f"some record needs two or more references {word} it")
        deviation = np.full(len(mean), math.sqrt(square.sum() / free))
    else:
        deviation = np.sqrt(square.sum(axis=0) / (count - 1))
    return mean, np.maximum(deviation, _FLOOR * np.maximum(1.0, np.abs(mean)))


def _log_density(x: Floats, mean: Floats, deviation: Floats) -> Floats:
    """Log density of a normal law, but for a constant."""
    return -0.5 * ((x - mean) / deviation) ** 2 - np.log(deviation)


def _log_mean(
    losses: Floats, of: NDArray[np.bool_] | None = None, word: str = ""
) -> Floats:
    """Logarithm of the mean probability under those models.  # (records,)"""
    of = np.ones(losses.shape, bool) if of is None else of
    count = _count(of, 1, word)
    return special.logsumexp(np.where(of, -losses, -np.inf), axis=0) - np.log(count)
