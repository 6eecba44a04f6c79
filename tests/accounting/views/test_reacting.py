"""What reacting gradients give away, by quadrature: never more than is certified."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from privaudit.accounting.views import LinearProtocol, Observer, figures
from privaudit.ledger import Entry, Ledger
from tests.accounting.views.networks import releases
from tests.tiers import examples

DELTA = 1e-2


def true_epsilon(dilution, reaction, first, second):
    """Of what is heard, a x + f(x) + noise; x is 0 or 1, and noise. The worse way."""
    x = np.linspace(-8 * first, 1 + 8 * first, 1201)
    mean = dilution * x + reaction(x)
    heard = np.linspace(mean.min() - 8 * second, mean.max() + 8 * second, 3001)
    each = norm.pdf((heard[:, None] - mean) / second)
    one, none = (
        each @ (weights / weights.sum())
        for weights in (norm.pdf((x - 1) / first), norm.pdf(x / first))
    )
    one, none = one / one.sum(), none / none.sum()
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        odds = np.exp(middle)
        leak = max(
            np.maximum(one - odds * none, 0).sum(),
            np.maximum(none - odds * one, 0).sum(),
        )
        low, high = (middle, high) if leak > DELTA else (low, middle)
    return low


def accounts(dilution, first, second, whose):
    """u's sum, then a sum of ``whose`` taken there; a combination of them is heard."""
    protocol = LinearProtocol(
        3,
        [0, whose],
        [[dilution, 1.0]],
        [whose],
        [[0, 0, 1]],
        [first, second],
        points=[[0, 0], [1, 0]],
    )
    of_u = (Entry(releases(first)),)
    last = (Entry(releases(second)),)
    nodes = (of_u, last, ()) if whose else (of_u + last, (), ())
    return figures(protocol, Ledger(nodes=nodes), DELTA, [Observer.of(2)])[0]


@examples(40)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0, 1]),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.floats(0.3, 3.0),
    st.floats(0.3, 3.0),
)
def test_any_steps_that_others_take(seed, whose, dilution, first, second):
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.uniform(-2, 3, rng.integers(1, 6)))
    sizes = rng.normal(size=len(steps)) * rng.choice([1, 5, 30])

    def reaction(x):
        return (sizes * (x[:, None] > steps)).sum(1)

    found = accounts(dilution, first, second, whose)
    assert true_epsilon(dilution, reaction, first, second) <= found.certified + 1e-3


def test_the_linear_account_is_below_the_truth():
    found = accounts(0.1, 0.5, 1.0, 1)
    one_step = true_epsilon(0.1, lambda x: 20.0 * (x > 0.5), 0.5, 1.0)
    many_steps = true_epsilon(0.1, lambda x: 3.0 * np.round(20 * x), 0.5, 1.0)
    assert found.nobody_reacts < 0.5 < 1.5 < one_step < many_steps
    assert 0.98 * found.certified < many_steps <= found.certified


def test_with_fixed_gradients_it_is_the_truth():
    found = accounts(1.0, 0.7, 0.9, 1)
    truth = true_epsilon(1.0, lambda x: 0 * x, 0.7, 0.9)
    assert abs(found.nobody_reacts - truth) < 2e-2
