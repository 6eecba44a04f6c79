"""Information in linear Gaussian releases, and independent releases above it.

Rows R g + C xi of signals g, xi standard normal, tell as much as g + N(0, M^-1) would,
M = R' (C C')^+ R (`information`). Independent releases g_t + N(0, 1 / D_t) tell at
least that if and only if M <= diag(D) (`dominating`). Proofs: ``views.md``.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.factorization import are_balanced

Floats = NDArray[np.float64]

_EPS = 2.0**-52
_ROUNDING = 8 * _EPS  # of one entry of a given array, relative
_DEPENDENT = 2.0**-40  # what is left of a row that follows from others, relative
_SMALL_PIVOT = 1e-6  # below, what rounding did to a direction is added
_CHUNK = 64
_ZERO, _CLEAR = 1e-12, 1e-6  # singular values of rows of length 1: no others between
_TURNED = 1e-14  # what rounding singular vectors does to a column, over its largest
_EVEN = 1e5  # of columns' largest entries
_EXACT_WORK = 3e7  # up to here, in long doubles
_SLACK = 1e-11  # relative, added to what dominates
_STEPS = 60  # of the semidefinite program
_GAP = 1e-11  # of its sum, relative, that is not worth another step


@dataclasses.dataclass(frozen=True, eq=False)
class Information:
    """Information that rows give on their signals."""

    matrix: Floats  # M, (signals, signals)
    # (signals,) bool: some combination of rows holds them without any noise
    bare: NDArray[np.bool_]
    rounding: float  # what rounding may have hidden, relative to the noise of the rows


def information(signal: Floats, noise: Floats) -> Information:
    """M of rows that hold ``signal`` (rows, signals) and ``noise`` (rows, noises).

    The noises are standard normal. By orthogonalising the noise of the rows, one after
    another, and their signals alike: row space is all that counts, so that rows of any
    size are alike, however diluted. What is left of a row counts as nothing if it is
    below 1e-12 of what was taken off, in every entry: it cannot be told from rounding.

    >>> two = np.array([[1.0, 0.0], [1.0, 1.0]])  # g + a, and g + a + h + b
    >>> np.round(information(two, two).matrix, 12) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """
    width, size = noise.shape[1], signal.shape[1]
    rows = np.concatenate([noise, signal], 1)
    rows = rows[(rows != 0).any(1)]
    small = len(rows) * rows.shape[1] * min(rows.shape) <= _EXACT_WORK
    rows = rows.astype(np.longdouble if small else np.float64)
    size_of = abs(rows[:, :width]).max(1, initial=0)
    size_of = np.where(size_of > 0, size_of, abs(rows).max(1, initial=0))
    rows /= size_of[:, None]
    basis = _Basis(width, abs(rows).max(0, initial=0), min(len(rows), width))
    bare = np.zeros(size, bool)
    for first in range(0, len(rows), _CHUNK):
        chunk = rows[first : first + _CHUNK]
        left, terms = basis.without(chunk, abs(chunk))
        began = basis.count
        for row, term in zip(left, terms, strict=True):
            row, term = basis.without(row[None], term[None], began)
            bare |= basis.take(row[0], term[0])
    told = basis.rows[:, width:].astype(np.float64)
    pivot = basis.least_pivot
    rounding = 1e3 * _EPS / pivot if pivot < _SMALL_PIVOT else 0.0
    by_gap = _by_gap(rows.astype(np.float64), width)
    if by_gap is not None and (rounding or by_gap[0] != basis.count):
        return by_gap[1]  # what is left over was rounding
    return Information(told.T @ told, bare, min(rounding, 1.0))


def _by_gap(rows: Floats, width: int) -> tuple[int, Information] | None:
    """Rank and information by singular values with a wide gap; or None."""
    if not rows.size:
        return None
    largest = abs(rows).max(0)
    used = largest > 0
    spread = [part[part > 0] for part in (largest[:width], largest[width:])]
    if any(part.size and part.max() > _EVEN * part.min() for part in spread):
        return None
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    least = 100 * _TURNED * abs(rows).max(0)
    if ((rows != 0) & (abs(rows) < least)).any():  # would be taken for rounding
        return None
    left, sizes, _ = np.linalg.svd(rows[:, :width], full_matrices=True)
    sizes = np.concatenate([sizes, np.zeros(len(rows) - len(sizes))])
    zero = sizes < _ZERO
    if (~zero & (sizes < _CLEAR)).any():
        return None
    mixed = left.T @ rows
    # What is left where the noise cancels must be rounding entry by entry, or clear.
    terms = abs(left.T[zero]) @ abs(rows)
    rounding = np.maximum(_DEPENDENT * terms, _TURNED * abs(rows).max(0))
    kept = abs(mixed[zero]) > rounding
    bare = abs(mixed[zero, width:]) >= _CLEAR
    if kept[:, :width].any() or (kept[:, width:] & ~bare).any():
        return None
    told = mixed[:, width:]
    scaled = told[~zero] / sizes[~zero, None]
    seen = bare.any(0) & used[width:]
    return int((~zero).sum()), Information(scaled.T @ scaled, seen, 0.0)


class _Basis:
    """Orthonormal in their first ``width`` entries; the others go along.

    Of every entry it keeps the size of the terms that made it: an entry is off by a
    rounding of that. No more than of the largest entry in its column, though: errors
    of orthogonal rows do not pile up, where sums of sizes do.
    """

    def __init__(self, width: int, largest: np.ndarray, most: int) -> None:
        self._width = width
        self._largest = 2 * largest
        self._rows = np.zeros((most, len(largest)), largest.dtype)
        self._terms = np.zeros_like(self._rows)
        self.count = 0
        self.least_pivot = 1.0

    @property
    def rows(self) -> np.ndarray:
        return self._rows[: self.count]

    def without(
        self, rows: np.ndarray, terms: np.ndarray, first: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """``rows`` less what the basis has of them, and the sizes of all terms."""
        basis = self._rows[first : self.count]
        if not len(basis):
            return rows, terms
        for _ in range(2):
            along = rows[:, : self._width] @ basis[:, : self._width].T
            terms = terms + abs(along) @ self._terms[first : self.count]
            rows = rows - along @ basis
        return rows, terms

    def take(self, row: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """Add what is left of a row. Which signals it holds without noise."""
        none = np.zeros(len(row) - self._width, bool)
        terms = np.minimum(terms, self._largest)
        told = abs(row) > _DEPENDENT * terms
        if not told[: self._width].any() or self.count == len(self._rows):
            return told[self._width :]
        row = np.where(abs(row) > _ROUNDING * terms, row, 0)
        norm = np.sqrt((row[: self._width] ** 2).sum())
        # Of entries that are there: the others are zero, not small.
        size = np.sqrt((terms[: self._width][row[: self._width] != 0] ** 2).sum())
        self.least_pivot = min(self.least_pivot, float(norm / size))
        again, _ = self.without(row[None] / norm, terms[None])
        self._rows[self.count] = again[0] / np.sqrt(
            (again[0, : self._width] ** 2).sum()
        )
        self._terms[self.count] = terms / norm
        self.count += 1
        return none


def dominating(matrix: Floats, unit: Floats | None = None) -> Floats:
    """D, (signals,), with ``matrix`` <= diag(D), of about the least sum D_t unit_t^2.

    By row sums of absolute values, which is the least where some signs of the signals
    make all entries positive (the signals that give most away); else a semidefinite
    program.

    ``matrix``: (signals, signals), positive semidefinite. ``unit``: (signals,): how
    large each signal can be; 1.

    >>> dominating(np.array([[1.0, -0.5], [-0.5, 1.0]])).round(9).tolist()
    [1.5, 1.5]
    """
    size = np.ones(len(matrix)) if unit is None else unit
    scaled = matrix * size[:, None] * size
    best = abs(scaled).sum(1)
    if len(scaled) > 2 and not _balanced(scaled):
        lifted = _program(scaled)
        if lifted.sum() < best.sum():
            best = lifted
    return best / size**2 * (1 + _SLACK)


def _balanced(matrix: Floats) -> bool:
    least = 1e-12 * abs(matrix).max(initial=0)
    return are_balanced(np.where(abs(matrix) > least, np.sign(matrix), 0))


def _program(matrix: Floats) -> Floats:
    """min sum D with diag(D) >= ``matrix``: an interior point, lifted until it holds.

    Helmberg, Rendl, Vanderbei and Wolkowicz 1996, with the dual max <M, X>, diag(X) =
    1.
    """
    used = matrix.diagonal() > 0
    largest = matrix.diagonal().max()
    inner = matrix[np.ix_(used, used)] / largest
    count = len(inner)
    found = 1.1 * abs(inner).sum(1)
    dual = np.eye(count)
    for _ in range(_STEPS):
        over = np.diag(found) - inner
        gap = float((over * dual).sum())
        if gap <= _GAP * found.sum():
            break
        less = gap / (4 * count)
        inverse = np.linalg.inv(over)
        step = np.linalg.solve(inverse * dual, less * inverse.diagonal() - 1)
        turn = less * inverse - dual - inverse * step @ dual
        turn = (turn + turn.T) / 2
        shares = _inside(dual, turn), _inside(over, np.diag(step))
        if not any(shares):
            break
        dual, found = dual + shares[0] * turn, found + shares[1] * step
    least = np.linalg.eigvalsh(np.diag(found) - inner)[0]
    result = np.zeros(len(matrix))
    result[used] = largest * (found + max(0.0, -least) + 1e-13 * found.max())
    return result


def _inside(matrix: Floats, step: Floats) -> float:
    """Largest part of ``step`` that leaves ``matrix`` positive definite, or 0."""
    share = 1.0
    while share > _GAP:
        try:
            np.linalg.cholesky(matrix + share * step)
        except np.linalg.LinAlgError:
            share *= 0.8
        else:
            return share if share == 1 else 0.95 * share
    return 0.0
