"""Xu, Zhang and Wang, A(DP)2SGD: cells, and what they say."""

from __future__ import annotations

from collections.abc import Iterator

from privaudit.results import round_up
from reports.asynchronous.cells import CASES, SIGMAS
from reports.papers.programme import (
    Case,
    Shown,
    above,
    both,
    loses,
    per_cent,
    results_of,
)
from reports.study import Results


def shown(own: Results) -> Iterator[Shown]:
    """Theorem 2's formula at 300 epochs, and accuracies of both methods here."""
    known = results_of("asynchronous")
    for sigma in SIGMAS:
        for name, key in (
            ("SYNC", "sync {:g}"),
            ("A(DP)2SGD", "adp2sgd {:g} constant"),
        ):
            found = known.get(f"epsilon 58560 sum {sigma:g}") if "A" in name else None
            yield Shown(
                f"{name}, sigma {sigma:g}",
                None if found is None else found["theorem"]["epsilon"],
                None if found is None else found["certified"],
                ours=per_cent(known[key.format(sigma)]["accuracy"]),
            )


def _alike(own: Results) -> Iterator[Case]:
    known = results_of("asynchronous")
    for sigma in SIGMAS:
        sync, other = (
            known[name]["accuracy"]
            for name in (f"sync {sigma:g}", f"adp2sgd {sigma:g} constant")
        )
        near = both(loses(sync, other, 2)[0], loses(other, sync, 2)[0])
        yield Case(f"sigma {sigma:g}", near, *above(other, sync)[1:])


def _faster(own: Results) -> Iterator[Case]:
    known = results_of("asynchronous")
    for case in CASES[1:]:
        sync, other = known["sync 2"]["ends"][case], known[f"adp2sgd 2 {case}"]["ends"]
        yield Case(case, other < sync, f"{other:.0f} against {sync:.0f}")


def _collapses(own: Results) -> Iterator[Case]:
    """Cases where the loss of SYNC is above 10 beyond error, by seed."""
    known = results_of("asynchronous").starting("large ")
    for step in (1, 2, 4, 8):
        sync, other = (
            [once - twice for once, twice in zip(*ends, strict=True)]
            if None not in ends
            else [1.0] * 3  # it diverged
            for ends in (
                [known[f"{algorithm} {step} {k}"]["accuracy"] for k in (1, 2)]
                for algorithm in ("dp-sync", "adp2sgd")
            )
        )
        none = [0.0] * len(sync)
        collapses = above(sync, [0.1] * len(sync))[0]
        half = above([loss / 2 for loss in sync], other)[0] if collapses else None
        unclear = ", unclear whether it collapses"
        word = {None: unclear, False: ", it does not", True: ""}
        told = f"{above(sync, none)[1]}{word[collapses]}, and {above(other, none)[1]}"
        yield Case(f"from step {step}", half, told, len(sync))


def _theorem(own: Results, noise: str) -> Iterator[Case]:
    """Cases of noise on the sum of a batch or on its mean, at 300 epochs.

    Where no mu meets its conditions the theorem promises nothing, whatever its formula
    says.
    """
    known = results_of("asynchronous").starting(f"epsilon 58560 {noise} ")
    for sigma, found in known.items():
        formula, certified = found["theorem"]["epsilon"], found["certified"]
        kept = (certified <= formula or None) if noise == "mean" else None
        told = f"{round_up(certified)} where the formula has {round_up(formula)}"
        yield Case(f"sigma {sigma}", kept, told)


def _networks(own: Results) -> Iterator[Case]:
    for sigma in SIGMAS:
        found = [
            per_cent(own.get(f"xu lstm {method} sigma={sigma:g}", {}).get("accuracy"))
            for method in ("sync", "adp2sgd")
        ]
        if all(found):
            gain = found[1][0] - found[0][0]
            yield Case(f"lstm, sigma {sigma:g}", abs(gain) <= 2, f"{gain:+.1f}", 1)
