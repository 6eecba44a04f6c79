"""Xu, Zhang and Wang, A(DP)2SGD: every table and figure."""

from __future__ import annotations

from collections.abc import Iterator

from privaudit.results import round_up
from reports import unsettled
from reports.asynchronous.cells import (
    CASES,
    NODES,
    SIGMAS,
    asynchronous,
    synchronous,
)
from reports.papers.programme import (
    NOTHING,
    Claim,
    Judged,
    Row,
    Shown,
    above,
    both,
    loses,
    per_cent,
    results_of,
    unknown,
)
from reports.papers.running import pilot
from reports.papers.size import Size, parameters
from reports.study import Cell, Results

TITLE = "A(DP)2SGD: asynchronous training with noise"
LABELS = (
    "Theorem 2's formula, evaluated by us (its conditions are not met)",
    "certified, noise on the sum of a batch",
)
SETTING = "n = 3 125 a learner, delta 1e-5, clip norm 1, 58 560 steps (300 epochs)"
# 300 epochs of 50 000 records, 16 learners and batches of 256; 20 epochs of 4.2 million
# sequences, batches of 128.
EPOCHS_ROUNDS = 300 * 50_000 / (16 * 256)
SPEECH_ROUNDS = 20 * 4_200_000 / (16 * 128)
DIFFERS = (
    "{} on drawn digits for networks on CIFAR-10, which cannot be had offline; steps "
    "fall by equal factors"
)
NO_SPEECH = "SWB300 is not public"
LSTM = 43_000_000  # as printed
NETWORKS = {"lstm": "lstm:hidden=64", "resnet8": "reports.papers.networks:resnet8"}
ROUNDS = 100
DROPS = {160: 0.04, 240: 0.004}  # of 300 epochs


def _photos(cells: float) -> Size:
    size = parameters("resnet18", "cifar-10")
    return Size(EPOCHS_ROUNDS, 16, 256, size, cells=cells)


def _speech(cells: float) -> Size:
    return Size(SPEECH_ROUNDS, 16, 128, LSTM, cells=cells)


def _row(
    item: str,
    shows: str,
    cells: float,
    *patterns: str,
    part: str = "",
    model: str = "softmax regression",
) -> Row:
    every = "sync *" in patterns  # accuracies by network and noise
    networks = (("papers", "xu resnet8 *", "xu lstm *"),) if every else ()
    return Row(
        item,
        shows,
        _photos(cells),
        "CIFAR-10",
        part=part,
        differs=DIFFERS.format(model),
        sources=(("asynchronous", *patterns), *networks),
        pilot="xu resnet18",
    )


def _of_speech(item: str, shows: str, cells: float, part: str = "") -> Row:
    return Row(
        item,
        shows,
        _speech(cells),
        "SWB300",
        part=part,
        differs=NO_SPEECH,
        pilot="xu lstm",
    )


ROWS = [
    _row(
        "Table 1",
        "accuracy of nine networks, SYNC and A(DP)2SGD, four noise levels",
        72,
        "sync *",
        "adp2sgd * constant",
        part="CIFAR-10",
    ),
    _of_speech("Table 1", "held-out loss of an LSTM", 8, part="SWB300"),
    _row(
        "Figure 1",
        "accuracy by epoch of three networks and noise levels",
        24,
        "sync *",
        "adp2sgd * constant",
    ),
    _row(
        "Figure 2",
        "accuracy by time, a random learner slower by 2",
        6,
        "adp2sgd 2 random*",
    ),
    _row("Figure 3", "accuracy by time, one learner slower by 10", 6, "adp2sgd 2 one*"),
    _row(
        "Figure 4",
        "twice the batch and the step: who diverges",
        2,
        "large *",
        part="CIFAR-10",
        model="a small MLP",
    ),
    _of_speech("Figure 4", "the same", 2, part="SWB300"),
    _row(
        "Figure 5",
        "accuracy by epoch of the other networks",
        48,
        "sync *",
        "adp2sgd * constant",
    ),
    Row(
        "Table 2",
        "size of nine networks, and hours of training on one GPU",
        _photos(9),
        "CIFAR-10",
        part="CIFAR-10",
        differs="ResNet-18 alone, on one core; hours from a few rounds",
        sources=(("papers", "pilot xu resnet18"),),
        pilot="xu resnet18",
    ),
    _of_speech("Table 2", "the same of the LSTM", 1, part="SWB300"),
    _row(
        "Figure 6",
        "as Figure 3, of other networks",
        6,
        "adp2sgd 2 one*",
    ),
    _row("Figure 7", "as Figure 3, of other networks", 6, "adp2sgd 2 one*"),
    _of_speech("Figure 8", "loss by epoch and noise level", 8),
    _of_speech("Figure 9", "loss by time, both cases of slow learners", 4),
]


def pilots() -> Iterator[Cell]:
    """ResNet-18 of two workers and few images; a small LSTM on rows of features."""
    common = {"algorithm": "adp2sgd", "nodes": 2, "rounds": 1}
    for name, training, shape, classes in (
        (
            "xu resnet18",
            {**common, "model": "resnet18", "batch_size": 50.0},
            [3, 32, 32],
            10,
        ),
        (
            "xu lstm",
            {**common, "model": "lstm:hidden=512", "batch_size": 50.0},
            [1, 21, 260],
            1000,
        ),
    ):
        settings = {"training": training, "shape": shape, "classes": classes}
        yield Cell(f"pilot {name}", pilot, settings)


def network(of: str, method: str, sigma: float) -> Cell:
    """A network on Fashion-MNIST, with the printed step size and its two drops."""
    each = 1 if method == "sync" else NODES  # rounds there are one worker's steps
    drops = {ROUNDS * each * epoch // 300: size for epoch, size in DROPS.items()}
    training = {
        "data": "fashion-mnist",
        "train": 50_000,
        "partition": "even",
        "nodes": NODES,
        "batch_size": 64,
        "clip_norm": 1.0,
        "model": NETWORKS[of],
        "step_size": 0.4,
        "schedule": "parts:" + ",".join(f"{k}={size}" for k, size in drops.items()),
        "rounds": ROUNDS * each,
    }
    settings = {"training": training, "sigma": sigma, "seeds": 1}
    settings |= {"points": 10, "look": 500}
    name = f"xu {of} {method} sigma={sigma:g}"
    if method == "sync":
        return Cell(name, synchronous, {**settings, "cases": ["constant"]})
    return Cell(name, asynchronous, settings)


def cells() -> Iterator[Cell]:
    """Two networks of their kinds; all else was run in reports/asynchronous."""
    for sigma in (1.0, 0.0, 2.0, 4.0):
        for of in ("lstm", "resnet8"):
            for method in ("sync", "adp2sgd"):
                yield network(of, method, sigma)


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


def _alike(own: Results) -> Judged:
    known = results_of("asynchronous")
    cases, words = [], []
    for sigma in SIGMAS:
        sync, other = (
            known[name]["accuracy"]
            for name in (f"sync {sigma:g}", f"adp2sgd {sigma:g} constant")
        )
        cases.append(both(loses(sync, other, 2)[0], loses(other, sync, 2)[0]))
        words.append(f"{above(other, sync)[1]} at sigma {sigma:g}")
    return Judged.of(cases, f"points above SYNC: {', '.join(words)}")


def _faster(own: Results) -> Judged:
    known = results_of("asynchronous")
    cases, words = [], []
    for case in CASES[1:]:
        sync = known["sync 2"]["ends"][case]
        other = known[f"adp2sgd 2 {case}"]["ends"]
        cases.append(other < sync)
        words.append(f"{case}: {other:.0f} against {sync:.0f} virtual seconds")
    return Judged.of(cases, "; ".join(words))


def _collapses(own: Results) -> Judged:
    """Of the losses of each seed; a case where SYNC's is above 10 beyond error."""
    known = results_of("asynchronous").starting("large ")
    cases, words = [], []
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
        applies = above(sync, [0.1] * len(sync))[0]
        if applies:
            cases.append(above([loss / 2 for loss in sync], other)[0])
        beside = {None: " (unclear whether it applies)", False: " (does not apply)"}
        words.append(
            f"from step {step}: SYNC loses {above(sync, none)[1]}, the other "
            f"{above(other, none)[1]}{beside.get(applies, '')}"
        )
    note = f"in the {len(cases)} of {len(words)} where SYNC collapses"
    return Judged.of(cases, "; ".join(words))._replace(note=note)


def _theorem(own: Results, noise: str) -> Judged:
    """Of noise on the sum of a batch or on its mean, at 300 epochs.

    Where no mu meets its conditions the theorem promises nothing, whatever its formula
    says.
    """
    known = results_of("asynchronous").starting(f"epsilon 58560 {noise} ")
    silent = all(found["theorem"].get("silent") for found in known.values())
    told = ", ".join(
        f"{round_up(found['certified'])} where the formula has "
        f"{round_up(found['theorem']['epsilon'])} (sigma {sigma})"
        for sigma, found in known.items()
    )
    told = f"certified at most {told}, with noise on the {noise}; {SETTING}"
    if noise == "sum" and silent:
        why = "no mu in (0, 1) meets both conditions, so it promises nothing here; "
        return Judged("cannot say", why + told, note="does not apply")
    kept = [one["certified"] <= one["theorem"]["epsilon"] for one in known.values()]
    if all(kept):
        return Judged("holds", told)
    return Judged("cannot say", told, note="not certified")


def _networks(own: Results) -> Judged:
    cases, words = [], []
    for of in NETWORKS:
        for sigma in SIGMAS:
            found = [
                own.get(network(of, method, sigma).name)
                for method in ("sync", "adp2sgd")
            ]
            if all(found):
                sync, other = (100 * one["accuracy"][0] for one in found if one)
                cases.append(abs(sync - other) <= 2)
                words.append(f"{other - sync:+.1f} with {of} at sigma {sigma:g}")
    told = f"points above SYNC: {', '.join(words)} (one seed)"
    return Judged.of(cases, told if words else NOTHING)


CLAIMS = [
    Claim(
        "SYNC and A(DP)2SGD are alike in accuracy (within 2 points)",
        _alike,
        unsettled=unsettled.ADP2SGD,
    ),
    Claim(
        "Where learners are slow, A(DP)2SGD ends earlier",
        _faster,
        unsettled=unsettled.ADP2SGD,
    ),
    Claim(
        "Where SYNC collapses with twice the batch and step (by more than 10 points), "
        "A(DP)2SGD loses less than half as much",
        _collapses,
        unsettled=unsettled.ADP2SGD,
    ),
    Claim(
        "By Theorem 2 the listing, noise on the sum of a batch, is private",
        lambda own: _theorem(own, "sum"),
        "no epsilon is printed for sigma 1, 2 and 4",
    ),
    Claim(
        "With noise on the mean, of which it is proved, the formula's epsilon is "
        "certified, its conditions left aside",
        lambda own: _theorem(own, "mean"),
        ours=True,
    ),
    Claim(
        "Other networks behave alike: A(DP)2SGD is within 2 points of SYNC",
        _networks,
    ),
    Claim(
        "Nine networks on CIFAR-10 and an LSTM on SWB300 do",
        unknown("neither could be had"),
    ),
]


def answer(own: Results) -> str:
    """In a sentence."""
    return (
        "Here A(DP)2SGD is as accurate as SYNC and ends earlier where learners are "
        f"slow (not settled: {unsettled.ADP2SGD}); its Theorem 2 promises nothing at "
        "sigma 1 to 4: "
        f"{_theorem(own, 'sum').told.split('; ')[1]}."
    )
