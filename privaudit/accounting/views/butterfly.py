"""Sums by recursive doubling at a common model: what each node hears, in closed form.

Of 2^k nodes, node i is at place a_t i in step t, the product in GF(2^k) with a_t going
through all elements but 0. In exchange r the nodes whose places differ in bit r alone
swap what they have summed. So v first hears node u's release in a sum of 2^b releases,
b the highest bit in which their places differ, and every pair meets in a sum of 2^b
nodes 2^b times in 2^k - 1 steps. Theorem and proof: docs/butterfly.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privaudit.accounting.views.observer import Observer

_PRIMITIVE = {
    1: 0b11,
    2: 0b111,
    3: 0b1011,
    4: 0b10011,
    5: 0b100101,
    6: 0b1000011,
    7: 0b10000011,
    8: 0b100011101,
    9: 0b1000010001,
    10: 0b10000001001,
}


def exchanges(nodes: int) -> int:
    """How many exchanges make a step, k. ``ValueError`` unless 2 <= 2^k <= 1024.

    >>> exchanges(8)
    3
    """
    found = int(nodes).bit_length() - 1
    if found not in _PRIMITIVE or nodes != 1 << found:
        raise ValueError(
            f"a butterfly has 2, 4, 8, ... or 1024 nodes, a power of two, got {nodes}"
        )
    return found


def _product(one: int, other: int, bits: int) -> int:
    """In GF(2^bits)."""
    result = 0
    while other:
        if other & 1:
            result ^= one
        other >>= 1
        one <<= 1
        if one >> bits:
            one ^= _PRIMITIVE[bits]
    return result


def places(nodes: int) -> NDArray[np.int_]:
    """(nodes - 1, nodes): each node's place in the steps of a cycle.

    >>> places(4).tolist()
    [[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]]
    """
    bits = exchanges(nodes)
    return np.array(
        [[_product(a, i, bits) for i in range(nodes)] for a in range(1, nodes)]
    )


def fresh_noises(
    nodes: int, steps: int, of: int, observer: Observer
) -> NDArray[np.int_]:
    """(steps,): of how many releases the least sum is in which ``of`` is heard.

    1 for a wire, and for whoever hears everything.

    >>> fresh_noises(4, 6, 0, Observer.of(3)).tolist()
    [2, 1, 2, 2, 1, 2]
    """
    observer.check(nodes)
    if not observer.nodes:
        exchanges(nodes)
        return np.ones(steps, int)
    if of in observer.nodes:
        raise ValueError(f"node {of} is of the observer: nothing of it is hidden")
    where = places(nodes)
    apart = where[:, [of]] ^ where[:, list(observer.nodes)]
    nearest = apart.min(1)
    sizes = np.array([1 << (int(each).bit_length() - 1) for each in nearest])
    return np.resize(sizes, steps)
