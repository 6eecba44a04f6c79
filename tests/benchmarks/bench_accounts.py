"""The certified account against dp-accounting, in one process: times and ratios.

Times are the processor's, medians of three.

Run as ``python tests/benchmarks/bench_accounts.py``, or with ``--table`` for the six
works of the plan alone, beside dp-accounting at equal tightness: at the coarsest of its
grids whose epsilon is as near to the truth as was asked of ours; or with
``--mechanisms`` for every mechanism that both know, and random allocation beside
pld-accounting. prv-accountant, Opacus and pld-accounting are measured where they are
installed; none is needed for anything else.
"""

from __future__ import annotations

import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import dp_accounting as dpa
import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

import privaudit as pa
from privaudit.accounting.accountant import CertifiedAccountant
from privaudit.accounting.certificate import _above
from privaudit.accounting.pld import compose_steps


def timed(run: Callable[[], object], repeats: int = 3) -> tuple[object, float]:
    """The result of ``run`` and its median time."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    return result, statistics.median(times)


def theirs(z: float, q: float, steps: int, delta: float) -> Callable[[], object]:
    event = dpa.SelfComposedDpEvent(
        dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(z)), steps
    )
    return lambda: PLDAccountant().compose(event).get_epsilon(delta)


def calibrate(accountant: Callable[[], object]) -> Callable[[], object]:
    def event(z: float) -> dpa.DpEvent:
        return dpa.SelfComposedDpEvent(
            dpa.PoissonSampledDpEvent(256 / 60000, dpa.GaussianDpEvent(z)), 2000
        )

    return lambda: dpa.calibrate_dp_mechanism(accountant, event, 1.0, 1e-5, tol=1e-4)


def as_tight(
    z: float, q: float, steps: int, delta: float, most: float
) -> tuple[float, float]:
    """dp-accounting's epsilon on the coarsest grid that keeps to ``most``, and time."""
    event = dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(z))
    return as_tight_on(dpa.SelfComposedDpEvent(event, steps), delta, most)


def as_tight_on(
    event: dpa.DpEvent, delta: float, most: float, relation: str = "ADD_OR_REMOVE_ONE"
) -> tuple[float, float]:
    """The same, of any event."""
    value, seconds = math.inf, math.inf
    for interval in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5):

        def run(interval: float = interval) -> float:
            accountant = PLDAccountant(
                dpa.NeighboringRelation[relation],
                value_discretization_interval=interval,
            )
            return accountant.compose(event).get_epsilon(delta)

        value, seconds = timed(run)
        if value <= most:
            break
    return value, seconds


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def process(*arguments: object) -> float:
    """Processor time of Python with ``arguments``; median of five."""
    times = []
    for _ in range(5):
        before = children()
        line = [sys.executable, *map(str, arguments)]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        times.append(children() - before)
    return statistics.median(times)


def table() -> None:
    """The works that have an aim, each with its time and, where it can, the peer's."""

    def tell(work: str, seconds: float, more: str = "") -> None:
        print(f"{work:52s} {seconds:8.4f} s   {more}", flush=True)

    first = (1.0, 0.01, 10_000, 1e-5)
    found, ours = timed(lambda: compose_steps(*first[:3]).epsilon(1e-5, 1e-3), 15)
    value, theirs_ = as_tight(*first, found.lower * 1.001)
    tell("q .01, z 1, T 1e4, .1 %", ours, f"dp-accounting {value:.5f} {theirs_:.3f} s")
    print(f"{'':55s}[{found.lower:.5f}, {found.upper:.5f}] ratio {theirs_ / ours:.0f}")

    run = {"delta": 1e-5, "sampling_rate": 0.01, "steps": 2000}

    def calibrated() -> float:
        _above.cache_clear()
        return pa.noise_multiplier(epsilon=1, **run)

    z, ours = timed(calibrated, 9)
    one = dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.0))
    value, theirs_ = timed(
        lambda: dpa.calibrate_dp_mechanism(
            PLDAccountant,
            lambda z: dpa.SelfComposedDpEvent(
                dpa.PoissonSampledDpEvent(
                    one.sampling_probability, dpa.GaussianDpEvent(z)
                ),
                2000,
            ),
            *(1.0, 1e-5),
            tol=1e-4,
        ),
        1,
    )
    tell("noise for (1, 1e-5), T 2 000", ours, f"dp-accounting {theirs_:.2f} s")
    print(f"{'':55s}{z:.5f} against {value:.5f}, ratio {theirs_ / ours:.0f}")

    growing = 1 / (1.5 ** (np.arange(1, 10_001) / 10_000))
    rate = np.full(10_000, 0.01)
    tell(
        "growing budget, 10 000 steps: epsilon at .1 %",
        timed(lambda: compose_steps(1.5 * growing, rate).epsilon(1e-5, 1e-3))[1],
    )
    plan = np.stack([growing, rate], 1)
    tell(
        "the same: noise",
        timed(lambda: pa.noise_multiplier(epsilon=1, delta=1e-5, schedule=plan), 1)[1],
    )
    generator = np.random.default_rng(1)
    for steps in (1_000, 10_000, 100_000):
        z_, q_ = (
            generator.uniform(0.7, 2.0, steps),
            generator.uniform(2e-3, 2e-2, steps),
        )
        found, ours = timed(lambda z=z_, q=q_: compose_steps(z, q).epsilon(1e-5), 1)
        tell(f"noise and rate random, {steps:,}, 1 %", ours, f"reached {found.reached}")
    found, ours = timed(lambda: compose_steps(1000.0, 0.01, 10**9).epsilon(1e-5))
    tell("T 1e9, 1 %", ours, f"reached {found.reached}")

    call = (
        "pa.epsilon(delta=1e-5, noise_multiplier=1, sampling_rate=0.01, steps=10_000)"
    )
    script = process("-c", f"import privaudit as pa; print({call})")
    shell = process(
        *("-m", "privaudit", "epsilon", "--noise-multiplier", 1, "--delta", 1e-5),
        *("--sampling-rate", 0.01, "--steps", 10_000),
    )
    tell("the command", shell, f"a script of that call {script:.3f} s")
    print(f"{'':55s}ratio {shell / script:.2f}")


def mechanisms() -> None:
    """Mechanisms that both have, at dp-accounting's grid as tight as ours.

    Not the truncated Poisson batch: no grid of its pair comes as near.
    """
    gaussian = dpa.GaussianDpEvent(3.0)
    laplace, discrete = dpa.LaplaceDpEvent(4.0), dp_event.DiscreteLaplaceDpEvent(0.2, 1)
    mixture = dp_event.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0, 2.0], [0.7, 0.2, 0.1])
    answers = dpa.RandomizedResponseDpEvent(0.8, 4)
    some: list[tuple[str, str, list[tuple[dpa.DpEvent, int]]]] = [
        ("Laplace 4, T 100", "", [(laplace, 100)]),
        ("the same, q .1", "", [(dpa.PoissonSampledDpEvent(0.1, laplace), 100)]),
        ("discrete Laplace .2, T 100", "", [(discrete, 100)]),
        ("mixture of three Gaussians, T 100", "", [(mixture, 100)]),
        # One by one: dp-accounting 0.6 takes an event's 20 responses for one.
        ("randomised response .8 of 4, T 20", "REPLACE_ONE", [(answers, 1)] * 20),
        (
            "the first three unsampled",
            "",
            [(e, 10) for e in (laplace, discrete, mixture)],
        ),
        ("Gaussian and two more", "", [(gaussian, 5), (laplace, 3), (discrete, 3)]),
    ]
    for name, relation, parts in some:
        event = dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(*part) for part in parts])
        ledger = pa.ledger_from(event)
        said = "replace-one" if relation else "add-or-remove-one"

        def run(ledger: pa.Ledger = ledger, said: str = said) -> pa.Bracket:
            return pa.Certificate.of(ledger, said).epsilon(1e-5)

        found, ours = timed(run)
        most = max(found.lower * 1.001, found.upper)
        value, seconds = as_tight_on(event, 1e-5, most, relation or "ADD_OR_REMOVE_ONE")
        print(
            f"{name:38s} [{found.lower:.5f}, {found.upper:.5f}] {ours:8.3f} s", end=""
        )
        print(f"   dp-accounting {value:.5f} {seconds:7.3f} s", end="")
        missed = "" if value <= most else "  (never so tight)"
        print(f"  ratio {seconds / ours:.3g}{missed}", flush=True)
    for taken, batches, noise in ((1, 1000, 1.0), (1, 100, 0.8), (5, 100, 1.0)):
        how = pa.RandomAllocation(batches, taken)
        release = pa.Release.of_sum(
            norm_bound=1.0, noise_multiplier=noise, sampling=how
        )

        def allocated(release: pa.Release = release, t: int = batches) -> pa.Bracket:
            return pa.Certificate.of(pa.Ledger.of(release, t)).epsilon(1e-5)

        found, ours = timed(allocated)
        print(f"{taken} of {batches}, z {noise:g}: [{found.lower:.5f}, ", end="")
        print(
            f"{found.upper:.5f}] {ours:.3f} s{_allocation_peer(taken, batches, noise)}"
        )


def _allocation_peer(taken: int, batches: int, noise: float) -> str:
    try:
        from PLD_accounting import gaussian_allocation_epsilon_range as range_of
    except ImportError:
        return "   pld-accounting is not installed"
    given = {"delta": 1e-5, "sigma": noise, "num_steps": batches}
    value, seconds = timed(lambda: range_of(**given, num_selected=taken), 1)
    return f"   pld-accounting {value} {seconds:.3f} s"


def row(name: str, run: Callable[[], object], rival: Callable[[], object] | None):
    ours, seconds = timed(run)
    text = f"{ours:.5f}" if isinstance(ours, float) else ""
    if not text:
        text = f"[{ours.lower:.6g}, {ours.upper:.6g}]" + " " * (not ours.reached)
        text += "" if ours.reached else "(width not reached)"
    line = f"{name:38s} {text:44s} {seconds:8.3f} s"
    if rival is not None:
        value, their_seconds = timed(rival, 1)
        ratio = their_seconds / seconds
        line += (
            f"   dp-accounting {value:.5f} {their_seconds:7.3f} s  ratio {ratio:.0f}"
        )
    print(line, flush=True)


def other_peers(z: float, q: float, steps: int, delta: float) -> None:
    """The first problem by whichever other accountants are installed."""
    _, ours = timed(lambda: compose_steps(z, q, steps).epsilon(delta, 1e-3))
    problem = f"q {q:g}, z {z:g}, T {steps:,}"

    def tell(name: str, run: Callable[[], object]) -> None:
        value, seconds = timed(run, 1)
        print(f"{problem:38s} {name}: {value}  {seconds:.3f} s", end="")
        print(f"   ours {ours:.3f} s  ratio {seconds / ours:.3g}", flush=True)

    try:
        from prv_accountant import Accountant
    except ImportError:
        print("prv-accountant is not installed")
    else:

        def prv() -> object:
            # Its widths are absolute: epsilon to .1.
            account = Accountant(
                noise_multiplier=z,
                sampling_probability=q,
                delta=delta,
                max_compositions=steps,
                eps_error=0.1,
            )
            return account.compute_epsilon(num_compositions=steps)

        tell("prv-accountant", prv)
    try:
        from opacus.accountants import GaussianAccountant, PRVAccountant
    except ImportError:
        print("Opacus is not installed")
    else:
        for name, kind in (("PRV", PRVAccountant), ("GDP", GaussianAccountant)):

            def opacus(kind: type = kind) -> object:
                accountant = kind()
                accountant.history = [(z, q, steps)]
                return accountant.get_epsilon(delta)

            tell(f"Opacus {name}", opacus)


def main() -> None:
    shift = 0.8 * (1 / 0.3) ** (np.arange(1, 10_001) / 10_000)
    generator = np.random.default_rng(1)
    k = np.arange(100_000) / 1e5
    one = compose_steps(1.0, 0.01, 10_000)
    row(
        "z 1, q .01, T 1e4, delta 1e-5, 1.6e-4",
        lambda: one.epsilon(1e-5, 1.6e-4),
        theirs(1.0, 0.01, 10_000, 1e-5),
    )
    for delta in (1e-12, 1e-20, 1e-30):
        row(
            f"the same at delta {delta:g}, .1 %",
            lambda d=delta: one.epsilon(d, 1e-3),
            theirs(1.0, 0.01, 10_000, delta),
        )
    row(
        "noise for (1, 1e-5), q 256/60000",
        calibrate(CertifiedAccountant),
        calibrate(PLDAccountant),
    )
    for width in (1e-2, 1e-3):
        row(
            f"10 000 different steps, {width:g}",
            lambda w=width: compose_steps(1 / shift, 1 / 2500).epsilon(1e-4, w),
            None,
        )
    row(
        "100 000 steps on a schedule, 1 %",
        lambda: compose_steps(1.5 * 0.5**k, 2e-4 * 3**k).epsilon(1e-5),
        None,
    )
    for steps in (1_000, 10_000, 100_000):
        z = generator.uniform(0.7, 2.0, steps)
        for low, high in ((2e-3, 2e-2), (2e-4, 6e-4)):
            q = generator.uniform(low, high, steps)
            row(
                f"{steps:,} at random, q {low:g} to {high:g}, 1 %",
                lambda z=z, q=q: compose_steps(z, q).epsilon(1e-5),
                None,
            )
    row(
        "Gaussian z 1000, T 1e6",
        lambda: compose_steps(1e3, 1.0, 10**6).epsilon(1e-6),
        None,
    )
    row(
        "Laplace b 10, T 100, .1 %",
        lambda: compose_steps(10.0, 1.0, 100, noise="laplace").epsilon(1e-6, 1e-3),
        None,
    )
    for name, noise, rate, steps in (
        ("q 1e-6, z .3, T 1e7", 0.3, 1e-6, 10**7),
        ("q .01, z .05, T 1000", 0.05, 0.01, 1000),
        ("q .01, z .005, T 1000", 0.005, 0.01, 1000),
        ("q .01, z 1000, T 1e9", 1000.0, 0.01, 10**9),
    ):
        row(name, lambda a=(noise, rate, steps): compose_steps(*a).epsilon(1e-5), None)
    reached = 0
    for _ in range(97):
        z = 10 ** generator.uniform(-0.5, 3)
        q, delta = 10 ** generator.uniform(-6, -1), 10 ** generator.uniform(-12, -4)
        steps = int(10 ** generator.uniform(8, 9.3))
        reached += compose_steps(z, q, steps).epsilon(delta).reached
    print(f"T above 1e8, 1 %: reached by {reached} of 97", flush=True)
    other_peers(1.0, 0.01, 10_000, 1e-5)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of all {peak:.0f} MB")


if __name__ == "__main__":
    asked = {"--table": table, "--mechanisms": mechanisms}
    asked.get(" ".join(sys.argv[1:]), main)()
