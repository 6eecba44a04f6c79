"""The certified account against dp-accounting, in one process: times and ratios.

Times are the processor's, medians of three.

Run as ``python tests/benchmarks/bench_accounts.py``. prv-accountant and Opacus are
measured too where they are installed; neither is needed for anything else.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import PLDAccountant

from privaudit.accounting.pld import CertifiedAccountant, compose_steps


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
    main()
