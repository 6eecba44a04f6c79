"""Contract of deep_q: it learns, by Adam, and resumes."""

import pytest
import torch

from trainers.algorithms.collaborative.deep_q import QNetworks, QSettings
from trainers.algorithms.optimisers import OPTIMISERS

SHAPE = (2, 3, 2)


def networks(turns=40, seed=0, **more):
    generator = torch.Generator().manual_seed(seed)

    def draw(size):
        return torch.rand((size[0], SHAPE[1], size[1]), generator=generator)

    return QNetworks(SHAPE, 5, turns, QSettings(**more), draw)


def play(q, turns, better):
    """A bandit: ``better`` is the action that is rewarded. Actions of all turns."""
    g = torch.Generator().manual_seed(9)
    state, chosen = torch.randn(*SHAPE, 5, generator=g), []
    for turn in range(turns):
        action = q.choose(state, turn)
        after = torch.randn(*SHAPE, 5, generator=g)
        q.remember(state, action, (action == better).float(), after)
        q.learn()
        state = after
        chosen.append(action)
    return torch.stack(chosen)


def test_it_has_the_paper_s_layers():
    """Input, 128 hidden units, output (section V): so many weights and biases."""
    shapes = [tuple(part.shape[-2:]) for part in networks().network]
    assert shapes == [(5, 128), (1, 128), (128, 2), (1, 2)]


def test_the_gradient_is_that_of_the_squared_error():
    q = networks()
    g = torch.Generator().manual_seed(1)
    states = torch.randn(*SHAPE, 7, 5, generator=g)
    wanted = torch.randn(*SHAPE, 7, 2, generator=g)
    parts = [part.clone().requires_grad_() for part in q.network]
    (q.values(parts, states) - wanted).square().mean(-2).sum().backward()
    error = 2 / 7 * (q.values(q.network, states) - wanted)
    for found, part in zip(q.gradient(states, error), parts, strict=True):
        torch.testing.assert_close(found, part.grad, rtol=1e-4, atol=1e-5)


def test_steps_are_adam_s():
    q, adam = networks(), OPTIMISERS["adam"]
    at = [part.clone() for part in q.network]
    kept = [adam.init(part) for part in at]
    for step in range(3):
        g = torch.Generator().manual_seed(step)
        down = [torch.randn(part.shape, generator=g) for part in at]
        for place, one in enumerate(down):
            at[place], kept[place] = adam.step(kept[place], at[place], one, 0.01)
        q._descend([one.clone() for one in down])
    for found, wanted in zip(q.network, at, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("better", [True, False])
def test_it_learns_which_action_is_better(better):
    chosen = play(networks(200, learning_rate=0.003), 200, better)
    late = (chosen[120:] == better).float().mean()
    early = (chosen[:40] == better).float().mean()
    # A tenth of the late choices are coins.
    assert late > 0.85
    assert late > early


def test_it_explores_first():
    chosen = play(networks(400), 400, better=True)
    assert chosen[:20].float().mean() == pytest.approx(0.5, abs=0.15)


def test_the_target_waits():
    q = networks(target_every=5)
    before = [part.clone() for part in q.target]
    play(q, 4, better=True)
    assert all(map(torch.equal, q.target, before))
    play(q, 1, better=True)
    assert all(map(torch.equal, q.target, q.network))


def test_only_the_last_transitions_are_remembered():
    q = networks(replay=4)
    for number in range(6):
        state = torch.full((*SHAPE, 5), float(number))
        q.remember(state, torch.zeros(SHAPE, dtype=torch.bool), state[..., 0], state)
    assert sorted(q._rewards[0, 0, 0].tolist()) == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden", 0), ("batch", 0), ("discount", 1.5), ("learning_rate", 0.0)],
)
def test_settings_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        QSettings(**{name: value})
