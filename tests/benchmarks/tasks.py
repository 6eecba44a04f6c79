"""Small public tasks on which settings and algorithms are compared.

Inputs are scaled by what a field would know: ranges of pixels, mean and deviation of
reference data. Each is dealt to nodes by a seed, and has test data of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn

from privaudit.api.training_plan import training_of
from trainers.data import load_dataset
from trainers.numerics.randomness import Streams
from trainers.runs.material import Material
from trainers.runs.measures import quality
from trainers.runs.problem import Observers, Problem

Pair = tuple[Tensor, Tensor]


@dataclasses.dataclass(frozen=True)
class Task:
    """Data at nodes, a model and its loss.

    Parameters
    ----------
    shares, test
        Inputs and targets of each node, and of nobody.
    model
        Makes the model, by torch's own generator.
    loss
        As in `privaudit.train`.
    """

    shares: list[Pair]
    test: Pair
    model: Callable[[], nn.Module]
    loss: Any = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of records of each node."""
        return tuple(len(x) for x, _ in self.shares)

    def pooled(self) -> Task:
        """The same with all records at one place."""
        x, y = (torch.cat(part) for part in zip(*self.shares, strict=True))
        return dataclasses.replace(self, shares=[(x, y)])

    def score(self, problem: Problem, models: Tensor) -> float:
        """Mean accuracy of ``models``, (runs, nodes, dims); of losses, the R^2."""
        material = problem.material
        assert material.test is not None
        kind = material.quality
        found = quality(problem.gradients(), models, material.test, kind)
        mean = float(found.mean())
        if kind == "accuracy":
            return mean
        return 1 - mean / float(self.test[1].var())

    def trained(
        self, settings: dict[str, Any], noise: Any, *, runs: int, seed: int
    ) -> dict[str, float]:
        """Score of the last models, of those before, and of the average of the last.

        ``late`` is how much less the last score is than the best from half of the
        rounds on; ``averaged`` that of the mean of all models from there.
        """
        torch.manual_seed(seed)
        material = Material.own(self.model, self.shares, loss=self.loss, test=self.test)
        problem = Problem.of(training_of(settings, self.sizes), material=material)
        rounds, curve = problem.training.rounds, []
        mean, counted = None, 0

        def look(done: int, models: Tensor, ledger: object) -> None:
            nonlocal mean, counted
            if 2 * done < rounds:
                return
            counted += 1
            if mean is None:
                mean = models.clone()
            else:
                mean += (models - mean) / counted
            if done % max(1, rounds // 10) == 0:
                curve.append(self.score(problem, models))

        start = problem.start(seed, runs)
        models, _ = problem.train(
            noise,
            Streams(seed),
            runs=runs,
            start=start,
            observers=Observers(after_round=look),
        )
        last = self.score(problem, models)
        assert mean is not None
        return {
            "score": last,
            "late": max(0.0, max(curve, default=last) - last),
            "averaged": self.score(problem, mean),
        }


def dealt(x: Tensor, y: Tensor, sizes: list[int], seed: int) -> tuple[list[Pair], Pair]:
    """Nodes of these sizes, and what is left, in an order by ``seed``."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    x, y = x[order], y[order]
    ends = np.cumsum(sizes)
    parts = [(x[b - n : b], y[b - n : b]) for n, b in zip(sizes, ends, strict=True)]
    return parts, (x[ends[-1] :], y[ends[-1] :])


def by_class(x: Tensor, y: Tensor, classes: list[list[int]]) -> list[Pair]:
    """A node for each list of classes, with all records of these."""
    return [
        (x[rows], y[rows])
        for rows in (torch.isin(y, torch.tensor(own)) for own in classes)
    ]


def by_dirichlet(
    x: Tensor, y: Tensor, nodes: int, alpha: float, seed: int
) -> list[Pair]:
    """Shares of each class drawn from a Dirichlet law; no node has fewer than ten."""
    random = np.random.default_rng(seed)
    while True:
        node = np.empty(len(y), int)
        for label in np.unique(y):
            rows = np.flatnonzero(y.numpy() == label)
            share = random.dirichlet([alpha] * nodes)
            node[rows] = random.choice(nodes, len(rows), p=share)
        if np.bincount(node, minlength=nodes).min() >= 10:
            return [(x[node == own], y[node == own]) for own in range(nodes)]


def _table(load: Callable[..., Any]) -> Pair:
    x, y = load(return_X_y=True)
    return torch.tensor((x - x.mean(0)) / x.std(0)).float(), torch.tensor(y)


def cancer(seed: int) -> Task:
    """Breast cancer at five hospitals of uneven sizes."""
    shares, test = dealt(
        *_table(datasets.load_breast_cancer), [150, 110, 80, 50, 36], seed
    )
    return Task(shares, test, lambda: nn.Linear(30, 2))


def wine(seed: int) -> Task:
    """Wines of three growers, at two nodes: 120 records in all."""
    shares, test = dealt(*_table(datasets.load_wine), [70, 50], seed)
    return Task(shares, test, lambda: nn.Linear(13, 3))


def made_table(seed: int) -> Task:
    """A made-up table of 20 columns and three classes, for a perceptron."""
    x, y = datasets.make_classification(
        2500, 20, n_informative=8, n_classes=3, random_state=7
    )
    shares, test = dealt(
        torch.tensor(x / 3).float(), torch.tensor(y), [700, 500, 200, 100], seed
    )
    return Task(shares, test, lambda: _perceptron(20, 16, 3))


def _perceptron(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
    )


def _digits() -> Pair:
    x, y = datasets.load_digits(return_X_y=True)
    return torch.tensor(x / 16 - 0.3).float(), torch.tensor(y)


def digits(seed: int) -> Task:
    """Digits of 8 x 8 pixels, dealt evenly to five nodes."""
    shares, test = dealt(*_digits(), [280] * 5, seed)
    return Task(shares, test, lambda: nn.Linear(64, 10))


def digits_at_eight(seed: int) -> Task:
    """Digits, dealt evenly to eight nodes."""
    shares, test = dealt(*_digits(), [170] * 8, seed)
    return Task(shares, test, lambda: nn.Linear(64, 10))


def digits_apart(seed: int) -> Task:
    """Digits at eight nodes, classes by a Dirichlet law of .1."""
    ((x, y),), test = dealt(*_digits(), [1360], seed)
    return Task(by_dirichlet(x, y, 8, 0.1, seed), test, lambda: nn.Linear(64, 10))


def digits_by_class(seed: int) -> Task:
    """Digits at five nodes of two classes each."""
    ((x, y),), test = dealt(*_digits(), [1400], seed)
    shares = by_class(x, y, [[k, k + 1] for k in range(0, 10, 2)])
    return Task(shares, test, lambda: nn.Linear(64, 10))


def _fashion(train: int, test: int, seed: int) -> tuple[Pair, Pair]:
    """Fashion-MNIST at 14 x 14 pixels."""
    found = load_dataset(
        "fashion-mnist", train=train, labels=tuple(range(10)), seed=seed
    )
    (x, y), (tx, ty) = (
        (nn.functional.avg_pool2d(one.inputs, 2).flatten(1) - 0.3, one.targets)
        for one in found
    )
    return (x, y), (tx[:test], ty[:test])


def fashion(seed: int) -> Task:
    """Fashion-MNIST, 3 000 records dealt evenly to five nodes, for a perceptron."""
    own, test = _fashion(3000, 2000, seed)
    shares, _ = dealt(*own, [600] * 5, seed)
    return Task(shares, test, lambda: _perceptron(196, 16, 10))


def fashion_by_class(seed: int) -> Task:
    """Fashion-MNIST, 6 000 records, each of ten nodes has one class."""
    (x, y), test = _fashion(6000, 2000, seed)
    return Task(
        by_class(x, y, [[k] for k in range(10)]), test, lambda: nn.Linear(196, 10)
    )


def fashion_dirichlet(seed: int) -> Task:
    """Fashion-MNIST, 6 000 records, classes at ten nodes by a Dirichlet law of .1."""
    (x, y), test = _fashion(6000, 2000, seed)
    shares = by_dirichlet(x, y, 10, 0.1, seed)
    return Task(shares, test, lambda: nn.Linear(196, 10))


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square()


def housing(seed: int) -> Task:
    """Made-up houses of eight columns at six towns of uneven sizes and price levels."""
    random = np.random.default_rng(11)
    sizes = [900, 600, 300, 200, 100, 60]
    shares, tests = [], []
    for town, size in enumerate(sizes):
        x = random.normal(size=(size + 100, 8)) + random.normal(0, 0.3, 8)
        price = 0.8 * x[:, 0] - 0.4 * x[:, 1] * (x[:, 2] > 0) + 0.3 * np.tanh(x[:, 3])
        price += 0.3 * (town % 3 - 1) + random.normal(0, 0.3, size + 100)
        pair = torch.tensor(x).float(), torch.tensor(price).float()
        ((own, test),) = [dealt(*pair, [size], seed)]
        shares += own
        tests.append(test)
    test = tuple(torch.cat(part) for part in zip(*tests, strict=True))
    return Task(shares, test, lambda: _perceptron(8, 16, 1), _squares)


def patients(seed: int) -> Task:
    """Diabetes of 442 patients, a regression on ten columns, at three nodes."""
    x, y = datasets.load_diabetes(return_X_y=True)
    pair = torch.tensor(x * 21).float(), torch.tensor((y - 152) / 77).float()
    shares, test = dealt(*pair, [150, 120, 60], seed)
    return Task(shares, test, lambda: nn.Linear(10, 1), _squares)


class Bag(nn.Module):
    """The mean of tokens' embeddings."""

    def __init__(self, tokens: int, features: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, features)
        self.out = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.embed(x).mean(1))


class Reader(nn.Module):
    """A transformer of one block, over embedded tokens and positions."""

    def __init__(self, tokens: int, length: int, features: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, features)
        self.place = nn.Parameter(torch.randn(length, features) / features**0.5)
        self.query, self.key, self.value = (
            nn.Linear(features, features) for _ in range(3)
        )
        self.mix = nn.Sequential(
            nn.LayerNorm(features), nn.Linear(features, features), nn.GELU()
        )
        self.out = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.place
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / x.shape[-1] ** 0.5
        x = x + scores.softmax(-1) @ self.value(x)
        return self.out((x + self.mix(x)).mean(1))


def _sentences(count: int, random: np.random.Generator, topics: np.ndarray) -> Pair:
    """Sequences of 12 of 40 tokens, of one of four topics."""
    y = random.integers(0, len(topics), count)
    x = np.array([random.choice(40, 12, p=topics[own]) for own in y])
    return torch.tensor(x), torch.tensor(y)


def _sequences(seed: int, sizes: list[int], law: int) -> tuple[list[Pair], Pair]:
    random = np.random.default_rng(law)
    topics = random.dirichlet([0.3] * 40, 4)
    return dealt(*_sentences(sum(sizes) + 800, random, topics), sizes, seed)


def words(seed: int) -> Task:
    """Made-up sentences of four topics, even, for the mean of embeddings."""
    shares, test = _sequences(seed, [400] * 4, 3)
    return Task(shares, test, lambda: Bag(40, 8, 4))


def tokens(seed: int) -> Task:
    """Made-up sentences at five nodes of uneven sizes, for a small transformer."""
    shares, test = _sequences(seed, [900, 600, 300, 150, 80], 5)
    return Task(shares, test, lambda: Reader(40, 12, 8, 4))


SEARCH = {"wine": wine, "made table": made_table, "digits": digits, "words": words}
HELD_OUT = {
    **{"cancer": cancer, "fashion": fashion, "tokens": tokens},
    "patients": patients,
}
UNEVEN = {
    "cancer, five hospitals": cancer,
    "digits by class": digits_by_class,
    "fashion, a class a node": fashion_by_class,
    "fashion, Dirichlet .1": fashion_dirichlet,
    "housing, made": housing,
    "tokens": tokens,
}
