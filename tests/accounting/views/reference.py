"""The brute force: exact fractions for who hears what, 60 digits for covariances."""

from __future__ import annotations

from fractions import Fraction

import mpmath as mp

mp.mp.dps = 60


def metropolis(edges: list[tuple[int, int]], nodes: int) -> list[list[Fraction]]:
    """Weights 1 / (1 + max degree) on the edges, exactly."""
    degree = [sum(node in edge for edge in edges) for node in range(nodes)]
    matrix = [[Fraction(0)] * nodes for _ in range(nodes)]
    for a, b in edges:
        matrix[a][b] = matrix[b][a] = Fraction(1, 1 + max(degree[a], degree[b]))
    for node in range(nodes):
        matrix[node][node] = 1 - sum(matrix[node])
    return matrix


def independent(rows: list[list[Fraction]]) -> list[list[Fraction]]:
    """The first rows that span all, by exact elimination."""
    kept, reduced = [], []
    for row in rows:
        left = list(row)
        for pivot, basis in reduced:
            factor = left[pivot] / basis[pivot]
            left = [x - factor * y for x, y in zip(left, basis, strict=True)]
        pivot = next((i for i, x in enumerate(left) if x), None)
        if pivot is not None:
            kept.append(row)
            reduced.append((pivot, left))
    return kept


def heard(
    cycle: list[list[list[Fraction]]], rounds: int, by: set[int]
) -> list[list[Fraction]]:
    """What ``by`` hear of averaging: each message as a combination of all vectors."""
    nodes = len(cycle[0])
    held = [[Fraction(int(i == j)) for j in range(nodes)] for i in range(nodes)]
    found = []
    for k in range(rounds):
        matrix = cycle[k % len(cycle)]
        for j in range(nodes):
            if j in by or any(matrix[v][j] for v in by):
                found.append(held[j])
        held = [
            [
                sum((matrix[i][m] * held[m][j] for m in range(nodes)), Fraction(0))
                for j in range(nodes)
            ]
            for i in range(nodes)
        ]
    return found


def squared_mu(rows: list[list[Fraction]], of: int, by: set[int]) -> mp.mpf:
    """a' S^-1 a for the vector of ``of``, unit noise, with those of ``by`` known."""
    hidden = [j for j in range(len(rows[0])) if j not in by]
    rows = independent([[row[j] for j in hidden] for row in rows])
    if not rows:
        return mp.mpf(0)
    matrix = mp.matrix([[mp.mpf(x.numerator) / x.denominator for x in r] for r in rows])
    signal = matrix[:, hidden.index(of)]
    return (signal.T * mp.lu_solve(matrix * matrix.T, signal))[0]


def gaussian_epsilon(mu: mp.mpf, delta: float) -> mp.mpf:
    """The least epsilon of a Gaussian mechanism, by bisection at 60 digits."""

    def short(epsilon: mp.mpf) -> mp.mpf:
        first = mp.ncdf(-epsilon / mu + mu / 2)
        return first - mp.e**epsilon * mp.ncdf(-epsilon / mu - mu / 2) - delta

    low, high = mp.mpf(0), mp.mpf(1)
    if short(low) <= 0:
        return low
    while short(high) > 0:
        high *= 2
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if short(middle) > 0 else (low, middle)
    return high
