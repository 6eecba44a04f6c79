"""What this report computes: calibrations, tuning, and cells of five seeds each."""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import json
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch

from privaudit.accounting import account, noise_multiplier
from trainers.algorithms.family import HasPaperNoise
from trainers.data import Dataset
from trainers.gradients.per_sample import PerSample
from trainers.models import cross_entropy
from trainers.numerics.randomness import Streams
from trainers.runs.measures import accuracy
from trainers.runs.problem import Problem
from trainers.runs.training import training_from

DELTA = 1e-4
EPSILONS = (0.3, 0.7, 1.0, 3.0)
TUNED_AT = 1.0
METHODS = ("const-d2p", "dyn-mu-d2p", "dyn-c-d2p", "dyn-d2p")
CALIBRATIONS = ("paper", "certified")
GRAPHS = ("directed-ring", "exponential", "complete")
NODES = (5, 10, 20, 40)

# Of the paper's grids, clip norms of its shallow CNN and 1/rho; and its C0 = 4 halved.
GRID: dict[str, list[dict[str, float]]] = {
    "const-d2p": [{"clip_norm": c} for c in (2.5, 2.0, 1.5, 1.0, 0.5)],
    "dyn-mu-d2p": [
        {"clip_norm": c, "rho_mu": 1 / r} for c in (1.0, 0.5) for r in (0.8, 0.5, 0.2)
    ],
    "dyn-c-d2p": [
        {"clip_norm": c, "rho_c": 1 / r} for c in (4.0, 2.0) for r in (0.5, 0.2, 0.1)
    ],
    "dyn-d2p": [
        {"clip_norm": c, "rho_c": 1 / r, "rho_mu": 1 / s}
        for c in (4.0, 2.0)
        for r, s in ((0.2, 0.8), (0.1, 0.8), (0.2, 0.5))
    ],
}


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large all of it is. J / sqrt(K) = 30, as with J = 3 000 and K = 10 000."""

    records: int = 900  # J, a node
    rounds: int = 900  # K
    seeds: int = 5
    epsilons: tuple[float, ...] = EPSILONS
    grid: int = 100  # of the grid, at most so many a method
    tested: int = 2000


QUICK = Scale(records=100, rounds=60, seeds=2, epsilons=(1.0,), grid=2, tested=200)


def key_of(how: str, method: str, epsilon: float, **network: Any) -> str:
    """By what a cell is kept; what is as in the tables is not said again."""
    usual = {"graph": "exponential", "nodes": 20}
    said = {name: value for name, value in network.items() if usual[name] != value}
    where = "".join(f" {name}={value}" for name, value in said.items())
    return f"cell {how} {method} epsilon={epsilon:g}{where}"


class Results:
    """A JSON file that has every cell as soon as it is computed, by any process."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    @property
    def cells(self) -> dict[str, Any]:
        """All that was computed so far."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def of(self, key: str, compute: Callable[[], Any]) -> Any:
        """What is kept as ``key``, computed if it is not there yet."""
        found = self.cells
        if key in found:
            return found[key]
        began = time.process_time()
        value = compute()
        took = time.process_time() - began
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # released with the descriptor
            cells = self.cells
            cells[key] = value
            cells["seconds"] = round(cells.get("seconds", 0.0) + took, 1)
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(cells, indent=1, sort_keys=True) + "\n")
            os.replace(part, self.path)
        finally:
            os.close(folder)
        print(f"{key}: {value} ({took:.1f} s)", flush=True)
        return value


class Study:
    """All cells, each computed when it is first asked for."""

    def __init__(self, scale: Scale, results: Results) -> None:
        self.scale, self.results = scale, results

    def settings(self, method: str, **more: Any) -> dict[str, Any]:
        """As the paper's Table 2, but for the size, the data and the model."""
        nodes = more.get("nodes", 20)
        return {
            "algorithm": method,
            "data": "glyphs",
            "partition": "even",
            "model": "reports.dynamic.model:halved_cnn",
            "gain": 2.0,
            "graph": "exponential",
            "weights": "column-stochastic",
            "rounds": self.scale.rounds,
            "lot_size": 1.0,
            "step_size": 0.05,
            "nodes": nodes,
            "train": nodes * self.scale.records,
            **more,
        }

    @functools.cache  # noqa: B019  # lives as long as the program
    def _problem(self, text: str) -> Problem:
        return Problem.of(training_from(json.loads(text), where="the report"))

    def problem(self, settings: dict[str, Any]) -> Problem:
        """Its data and model."""
        return self._problem(json.dumps(settings))

    def noise(
        self, method: str, options: dict[str, float], epsilon: float, how: str
    ) -> dict[str, float]:
        """Noise multiplier for a claim, and the certified epsilon of the run."""
        # Neither depends on clip norms, nor on the other nodes.
        growth = options.get("rho_mu", 1.0)
        key = f"noise {how} epsilon={epsilon:g} 1/rho_mu={1 / growth:.1f}"

        def compute() -> dict[str, float]:
            name = "const-d2p" if growth == 1 else "dyn-mu-d2p"
            more = {} if growth == 1 else {"rho_mu": growth}
            problem = self.problem(self.settings(name, nodes=1, **more))
            if how == "paper":
                family = problem.training.family
                assert isinstance(family, HasPaperNoise)
                z = family.paper_noise(problem.setting, epsilon, DELTA)
                bound = account(problem.ledger(z), DELTA)
            else:
                z, bound = noise_multiplier(problem.ledger, epsilon, DELTA)
            return {"multiplier": z, "certified": bound.epsilon}

        return self.results.of(key, compute)

    def trained(
        self, settings: dict[str, Any], multiplier: float, seeds: tuple[int, ...]
    ) -> list[float]:
        """Accuracy on test data of each seed's run, mean of nodes; one block of runs.

        Starts, lots and noise differ from run to run; the deal of the data does not.
        """
        problem = self.problem(settings)
        start = torch.cat([problem.start(seed) for seed in seeds])
        try:
            models, _ = problem.train(
                multiplier, Streams(seeds[0]), runs=len(seeds), start=start
            )
        except ValueError:  # it diverged
            return [0.1] * len(seeds)
        test = Dataset(
            problem.test.inputs[: self.scale.tested],
            problem.test.targets[: self.scale.tested],
        )
        right = accuracy(problem.gradients(), models, test)
        return [round(value, 4) for value in right.mean(1).tolist()]

    def tuned(self, method: str, how: str) -> dict[str, float]:
        """Of the grid, what is best at epsilon 1 with a seed that nothing else has."""
        if method == "sgp":
            return {}
        found = {}
        for options in GRID[method][: self.scale.grid]:
            z = self.noise(method, options, TUNED_AT, how)["multiplier"]
            words = " ".join(f"{name}={value:.3g}" for name, value in options.items())
            settings = self.settings(method, **options)
            found[json.dumps(options)] = self.results.of(
                f"tuning {how} {method} {words}",
                functools.partial(self.trained, settings, z, (1000,)),
            )[0]
        return json.loads(max(found, key=lambda text: found[text]))

    def cell(
        self, method: str, epsilon: float, how: str, **network: Any
    ) -> dict[str, Any]:
        """Accuracies of all seeds, with the noise and what it is certified for."""
        options = self.tuned(method, how)
        noise = (
            {"multiplier": 0.0}
            if method == "sgp"
            else self.noise(method, options, epsilon, how)
        )
        key = key_of(how, method, epsilon, **network)
        settings = self.settings(method, **options, **network)
        seeds = tuple(range(self.scale.seeds))
        return self.results.of(
            key,
            lambda: {
                "accuracy": self.trained(settings, noise["multiplier"], seeds),
                "options": options,
                **noise,
            },
        )

    def norms(self, method: str, epsilon: float) -> dict[str, float]:
        """Median norm of a record's gradient as training goes on, at node 0.

        The premise of a shrinking clip norm is that it falls.
        """
        options = self.tuned(method, "certified")
        z = (
            0.0
            if method == "sgp"
            else self.noise(method, options, epsilon, "certified")["multiplier"]
        )

        def compute() -> dict[str, float]:
            problem = self.problem(self.settings(method, **options))
            per_sample = PerSample(problem.module, cross_entropy)
            data = problem.shares[0].select(torch.arange(100))
            found: dict[str, float] = {}

            def after(done: int, models: torch.Tensor, ledger: Any) -> None:
                if done == 1 or done % (self.scale.rounds // 3) == 0:
                    gradients = per_sample.gradients(
                        models[:, 0], data.inputs[None], data.targets[None]
                    )
                    found[str(done)] = round(float(gradients.norm(dim=2).median()), 3)

            problem.train(z, Streams(1000), after_round=after)
            return found

        return self.results.of(f"norms {method} epsilon={epsilon:g}", compute)

    def everything(self, how: str) -> None:
        """All cells of one calibration; the studies of networks with the certified."""
        for epsilon in sorted(self.scale.epsilons, key=lambda e: abs(e - TUNED_AT)):
            for method in METHODS:
                self.cell(method, epsilon, how)
        if how == "certified":
            self.cell("sgp", 0.0, "none")
            self.norms("sgp", 0.0)
            self.norms("const-d2p", TUNED_AT)
            for graph in GRAPHS:
                self.cell("dyn-d2p", TUNED_AT, how, graph=graph)
            for nodes in NODES:
                self.cell("dyn-d2p", TUNED_AT, how, nodes=nodes)
