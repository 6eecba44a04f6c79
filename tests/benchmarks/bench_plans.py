"""Plans whose steps all differ, drawn at random: times and widths of the certificate.

Run as ``python tests/benchmarks/bench_plans.py --seed N --plans 200``. Every third plan
is drawn as a run would be planned, the others from all that is promised: 1 to 100 000
steps, noise .2 to 50, rates 1e-6 to 1, delta 1e-12 to 1e-2. Times are the processor's,
beside dp-accounting's on plans of at most 100 steps. ``--check`` holds every bracket
against dp-accounting's finest grid that ends in a minute; its figures are rounded up,
so that one above a bracket is no fault, and one below is. ``--wide``: lognormal noise
and rates, some of them far from the others.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import resource
import time
import warnings

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import PLDAccountant

import privaudit as pa
from privaudit.accounting.certificate import _above, _steps
from privaudit.accounting.plans import Plan
from privaudit.ledger import Ledger

_FEW = 100  # steps that dp-accounting accounts in seconds


def likely(r: np.random.Generator) -> dict:
    """Noise falling or rising, rates spread by .3 around one."""
    steps = int(r.choice([100, 1000, 5000]))
    first, last = np.exp(r.uniform(math.log(0.4), math.log(8), 2))
    rate, delta = 10 ** r.uniform(-4.5, -1), 10 ** r.uniform(-9, -4)
    noise = first * (last / first) ** (np.arange(steps) / steps)
    r.random()
    rates = (rate * np.exp(r.normal(0, 0.3, steps))).clip(0, 0.3)
    return {"noise": noise, "rate": rates, "delta": delta, "kind": "likely"}


def any_plan(r: np.random.Generator) -> dict:
    """Any of the range that is promised."""
    steps = round(10 ** r.uniform(0, 5))
    k = np.arange(steps) / steps
    first, last = np.exp(r.uniform(math.log(0.2), math.log(50), 2))
    shape = r.choice(["monotone", "random", "waves"])
    if shape == "monotone":
        noise = first * (last / first) ** k
    elif shape == "random":
        noise = first * (last / first) ** r.random(steps)
    else:
        noise = first * (last / first) ** (0.5 - 0.5 * np.cos(2 * math.pi * 5 * k))
    low = 10 ** r.uniform(-6, 0)
    rates = np.full(steps, low)
    rated = r.choice(["equal", "spread", "trend", "range"])
    if rated == "spread":
        rates = low * np.exp(r.normal(0, 0.3, steps))
    elif rated == "trend":
        rates = low * (10 ** r.uniform(-6, 0) / low) ** k
    elif rated == "range":
        rates = low * (10 ** r.uniform(-6, 0) / low) ** r.random(steps)
    rates = rates.clip(1e-6, 1.0)
    if r.random() < 0.2:
        rates[r.random(steps) < 0.1] = 1.0
    relation = "replace-one" if r.random() < 0.15 else "add-or-remove-one"
    return {
        "noise": noise,
        "rate": rates,
        "delta": 10 ** r.uniform(-12, -2),
        "relation": relation,
        "laplace": relation == "add-or-remove-one" and r.random() < 0.15,
        "kind": f"{shape} {rated}",
    }


def wide_plan(r: np.random.Generator) -> dict:
    """Noise spread by a factor of e^.5 to e, rates by e^.7 to e^1.5."""
    steps = int(10 ** r.uniform(1, 4))
    off, more = r.uniform(0.5, 1), r.uniform(0.7, 1.5)
    noise = math.exp(r.uniform(0, math.log(20))) * np.exp(r.normal(0, off, steps))
    rates = 10 ** r.uniform(-5.5, -1) * np.exp(r.normal(0, more, steps))
    return {
        "noise": noise.clip(0.2, 300),
        "rate": rates.clip(1e-6, 1),
        "delta": 10 ** r.uniform(-9, -3),
        "kind": "wide",
    }


def draw(seed: int, plans: int, *, wide: bool = False) -> list[dict]:
    """As many plans whose epsilon is in the range that is promised."""
    r = np.random.default_rng(seed)
    found: list[dict] = []
    while len(found) < plans:
        often = likely if len(found) % 3 == 0 else any_plan
        plan = wide_plan(r) if wide else often(r)
        guess = certificate(plan).guess(plan["delta"])
        if 1e-3 < guess < 100:
            found.append(plan)
    return found


def certificate(plan: dict) -> pa.Certificate:
    """Of Gaussian steps, and where the plan says so some of Laplace noise."""
    table = np.stack([plan["noise"], plan["rate"]], axis=1)
    relation = plan.get("relation", "add-or-remove-one")
    if not plan.get("laplace"):
        return pa.Certificate.of(Plan.from_table(table).ledger(), relation)
    part = np.arange(len(table)) % 4 == 0
    parts = [(table[part], "laplace"), (table[~part], "gaussian")]
    ledgers = [
        Plan.from_table(some, "poisson", noise).ledger()
        for some, noise in parts
        if len(some)
    ]
    return pa.Certificate.of(Ledger.composed(ledgers), relation)


def peer(plan: dict, interval: float = 1e-4) -> float:
    """dp-accounting's epsilon."""
    relation = plan.get("relation", "add-or-remove-one").upper().replace("-", "_")
    accountant = PLDAccountant(
        dpa.NeighboringRelation[relation], value_discretization_interval=interval
    )
    for k, (z, q) in enumerate(zip(plan["noise"], plan["rate"], strict=True)):
        laplace = plan.get("laplace") and k % 4 == 0
        event = dpa.LaplaceDpEvent(z) if laplace else dpa.GaussianDpEvent(z)
        accountant.compose(event if q == 1 else dpa.PoissonSampledDpEvent(q, event))
    return float(accountant.get_epsilon(plan["delta"]))


def forget() -> None:
    """Let nothing be known of an account before."""
    _above.cache_clear()
    _steps.cache_clear()


def can_peer(plan: dict) -> bool:
    """Whether dp-accounting ends, and has the relation."""
    return len(plan["noise"]) <= _FEW and plan.get("relation") != "replace-one"


def show(name: str, values: list[float]) -> None:
    """Median, 90 % and worst."""
    if values:
        middle, most = np.quantile(values, [0.5, 0.9])
        print(f"{name:40s} {middle:10.4g} {most:10.4g} {max(values):10.4g}")


def main() -> None:
    """Draw, account, and print; or print the table of what parts have written."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--plans", type=int, default=200)
    options.add_argument("--start", type=int, default=0, help="plans to leave out")
    options.add_argument("--every", type=int, default=1, help="only one in so many")
    options.add_argument("--check", action="store_true")
    options.add_argument("--calibrate", action="store_true")
    options.add_argument("--wide", action="store_true")
    options.add_argument("--slow", type=float, default=2.0, help="seconds to name")
    options.add_argument("--merge", nargs="+", help="what parts have printed")
    asked = options.parse_args()
    if asked.merge:
        parts = [pathlib.Path(one).read_text() for one in asked.merge]
        lines = [line for part in parts for line in part.splitlines(keepends=True)]
        rows = [json.loads(line[1:]) for line in lines if line.startswith("#")]
        print(*sorted(line for line in lines if " steps, delta " in line), sep="")
        table(rows)
        return
    warnings.simplefilter("ignore")
    plans = list(enumerate(draw(asked.seed, asked.plans, wide=asked.wide)))
    rows = [row(i, plan, asked) for i, plan in plans[asked.start :: asked.every]]
    table(rows)
    if asked.every > 1:
        print(*(f"#{json.dumps(one)}" for one in rows), sep="\n")


def row(index: int, plan: dict, asked: argparse.Namespace) -> dict[str, float]:
    """Times and widths of one plan, which is printed."""
    one = certificate(plan)
    forget()
    start = time.process_time()
    upper = one.epsilon(plan["delta"], sides="upper").upper
    found = {"seconds, upper side": time.process_time() - start}
    forget()
    one, start = certificate(plan), time.process_time()
    both = one.epsilon(plan["delta"])
    found["seconds, both sides"] = seconds = time.process_time() - start
    gap = both.upper - both.lower
    wide = gap / max(both.lower, 1e-300) if gap > 1e-4 else 0.0
    found["open, where more than 1e-4"] = wide
    what = (
        f"{index:3d} {plan['kind']:18s} {len(plan['noise']):6d} steps, delta "
        f"{plan['delta']:.2g}: [{both.lower:.6g}, {both.upper:.6g}] {wide:8.2%} "
        f"{seconds:6.2f} s, upper {found['seconds, upper side']:6.2f} s"
    )
    if plan.get("relation") == "replace-one":
        what += " replace"
    what += " laplace" * bool(plan.get("laplace"))
    if asked.calibrate and plan["kind"] == "likely":
        schedule = np.stack([plan["noise"], plan["rate"]], axis=1)
        forget()
        start = time.process_time()
        pa.noise_multiplier(epsilon=upper, delta=plan["delta"], schedule=schedule)
        found["seconds, calibration"] = time.process_time() - start
        what += f", noise {found['seconds, calibration']:.2f} s"
    if can_peer(plan):
        start = time.process_time()
        value = peer(plan)
        found["dp-accounting, seconds"] = time.process_time() - start
        what += f", dp-accounting {value:.6g} {found['dp-accounting, seconds']:.2f} s"
        if asked.check:
            off = check(plan, value)
            if off < both.lower or abs(off - value) > 0.2 * off:
                what += f" finest {off:.6g}"
            found["outside"] = float(off < both.lower * (1 - 1e-9))
    slow = seconds > asked.slow or wide > 0.01 or not math.isfinite(both.upper)
    print(what + " <--" * slow, flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**found, "peak": peak}


def table(rows: list[dict[str, float]]) -> None:
    """Print medians, 90 % and the worst."""
    print(f"{'':40s} {'median':>10s} {'90 %':>10s} {'worst':>10s}")
    names = "seconds, both sides", "seconds, upper side", "open, where more than 1e-4"
    for name in (*names, "seconds, calibration", "dp-accounting, seconds"):
        show(name, [one[name] for one in rows if name in one])
    if outside := [one["outside"] for one in rows if "outside" in one]:
        print(f"above dp-accounting's finest grid: {sum(outside)} of {len(outside)}")
    within = sum(one[names[0]] <= 2 and one[names[2]] <= 0.01 for one in rows)
    print(f"within 2 s and 1 %: {within} of {len(rows)}")
    print(f"peak memory {max((one['peak'] for one in rows), default=0):.0f} MB")


def check(plan: dict, value: float) -> float:
    """dp-accounting's least figure, on finer grids while they end in a minute."""
    interval, start = 1e-4, time.process_time()
    while interval > 1e-7 and time.process_time() - start < 6:
        interval /= 4
        value = min(value, peer(plan, interval))
    return value


if __name__ == "__main__":
    main()
