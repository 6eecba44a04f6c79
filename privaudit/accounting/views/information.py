"""What linear releases with Gaussian noise tell, and independent releases above them.

Rows R g + C xi of signals g, xi standard normal, tell as much as g + N(0, M^-1) would,
M = R' (C C')^+ R (`information`). Independent releases g_t + N(0, 1 / D_t) tell at
least that if and only if M <= diag(D) (`dominating`). Proofs: ``views.md``.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_EPS = 2.0**-52
_ROUNDING = 8 * _EPS  # of one entry of a given array, relative
_DEPENDENT = 2.0**-40  # what is left of a row that follows from others, relative
_SMALL_PIVOT = 1e-6  # below, what rounding did to a direction is added
_CHUNK = 64
_EXACT_WORK = 3e7  # up to here, in long doubles
_SLACK = 1e-11  # relative, added to what dominates
_SWEEPS = 300


@dataclasses.dataclass(frozen=True, eq=False)
class Information:
    """What rows tell of their signals.

    Parameters
    ----------
    matrix
        M, (signals, signals).
    bare
        (signals,) bool: some combination of rows holds them without any noise.
    rounding
        What rounding may have hidden, relative to the noise of the rows.
    """

    matrix: Floats
    bare: NDArray[np.bool_]
    rounding: float


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
    size_of = np.where(size_of > 0, size_of, abs(rows).max(1))
    rows /= size_of[:, None]
    basis = _Basis(width, rows.shape[1], min(len(rows), width), rows.dtype)
    bare = np.zeros(size, bool)
    for first in range(0, len(rows), _CHUNK):
        chunk = rows[first : first + _CHUNK]
        left, seen = basis.without(chunk, abs(chunk))
        began = basis.count
        for row, bound in zip(left, seen, strict=True):
            row, bound = basis.without(row[None], bound[None], began)
            bare |= basis.take(row[0], bound[0])
    told = basis.rows[:, width:].astype(np.float64)
    pivot = basis.least_pivot
    rounding = 1e3 * _EPS / pivot if pivot < _SMALL_PIVOT else 0.0
    return Information(told.T @ told, bare, min(rounding, 1.0))


class _Basis:
    """Orthonormal in their first ``width`` entries; the others go along."""

    def __init__(self, width: int, length: int, most: int, dtype: np.dtype) -> None:
        self._width = width
        self._rows = np.zeros((most, length), dtype)
        self.count = 0
        self.least_pivot = 1.0

    @property
    def rows(self) -> np.ndarray:
        return self._rows[: self.count]

    def without(
        self, rows: np.ndarray, bound: np.ndarray, first: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """``rows`` less what the basis has of them, and the sizes of all terms."""
        basis = self._rows[first : self.count]
        if not len(basis):
            return rows, bound
        for _ in range(2):
            along = rows[:, : self._width] @ basis[:, : self._width].T
            bound = bound + abs(along) @ abs(basis)
            rows = rows - along @ basis
        return rows, bound

    def take(self, row: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Add what is left of a row. Which signals it holds without noise."""
        none = np.zeros(len(row) - self._width, bool)
        told = abs(row) > _DEPENDENT * bound
        if not told[: self._width].any() or self.count == len(self._rows):
            return told[self._width :]
        row = np.where(abs(row) > _ROUNDING * bound, row, 0)
        norm = np.sqrt((row[: self._width] ** 2).sum())
        # Of entries that are there: the others are zero, not small.
        size = np.sqrt((bound[: self._width][row[: self._width] != 0] ** 2).sum())
        self.least_pivot = min(self.least_pivot, float(norm / size))
        row = row / norm
        again, _ = self.without(row[None], abs(row)[None])
        norm = np.sqrt((again[0, : self._width] ** 2).sum())
        self._rows[self.count] = again[0] / norm
        self.count += 1
        return none


def dominating(matrix: Floats, unit: Floats | None = None) -> Floats:
    """D, (signals,), with ``matrix`` <= diag(D), of about the least sum D_t unit_t^2.

    By row sums of absolute values, which is the least where some signs of the signals
    make all entries positive (the signals that give most away); else a semidefinite
    program, solved from below and lifted until it holds.

    Parameters
    ----------
    matrix
        (signals, signals), positive semidefinite.
    unit
        (signals,): how large each signal can be; 1.

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
    """Whether signs of rows and columns alike make all entries >= 0."""
    least = 1e-12 * abs(matrix).max(initial=0)
    entries = np.where(abs(matrix) > least, np.sign(matrix), 0)
    signs = np.zeros(len(matrix))
    for start in range(len(matrix)):
        if signs[start]:
            continue
        signs[start], todo = 1, [start]
        while todo:
            one = todo.pop()
            fresh = (entries[one] != 0) & (signs == 0)
            signs[fresh] = entries[one, fresh] * signs[one]
            todo += np.flatnonzero(fresh).tolist()
    return bool((entries * signs[:, None] * signs >= 0).all())


def _program(matrix: Floats) -> Floats:
    """min sum D with diag(D) >= ``matrix``, by the dual's low-rank ascent.

    The dual: unit vectors v_t that maximise sum M_st <v_s, v_t>; then D_t = |sum_s M_st
    v_s|. Whatever it ends at is lifted by the least eigenvalue of diag(D) - M.
    """
    count = len(matrix)
    used = matrix.diagonal() > 0
    rank = int(np.sqrt(2 * count)) + 2
    vectors = np.random.default_rng(0).normal(size=(count, rank))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    last = -np.inf
    for _ in range(_SWEEPS):
        for t in range(count):
            pulled = matrix[t] @ vectors
            size = np.linalg.norm(pulled)
            if size > 0:
                vectors[t] = pulled / size
        value = float((vectors * (matrix @ vectors)).sum())
        if value - last <= 1e-13 * abs(value):
            break
        last = value
    found = np.linalg.norm(matrix @ vectors, axis=1)
    least = np.linalg.eigvalsh(np.diag(found) - matrix)[0]
    lift = max(0.0, -least) + 1e-13 * found.max(initial=0)
    return np.where(used, found + lift, 0.0)
