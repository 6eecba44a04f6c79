"""README.md of the audits, from their figures."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from privaudit.results import round_down, round_up

_HEAD = """# Audits: what a neighbour learns, and what one loss shows

All figures at 95 % confidence; every run tosses its own coin for its world. Made by

    OMP_NUM_THREADS=1 python reports/audits/make.py

which goes on where it was stopped; `--quick` does it with a few runs. Settings stand in
`make.py`, all figures in `results.json`. Each audit has its own seed; each bound holds
for itself with 95 %, so that of many some may lie above the truth.

"""
_NEIGHBOUR = """## One neighbour's inbox, crafted gradient

Softmax on scikit-learn's 8x8 digits 0, 1, 2: 20 images a node, half of them in a lot,
16 rounds, {runs}. The canary's gradient has the norm of the clip and
points where no image reaches (weights of pixels that are always dark). The attacker is
one neighbour that hears all that the canary's node hears; it knows matrices, step
sizes, clip, noise and rate, reads the noisy gradients off the messages and adds up
their log likelihood ratios.

*family*: within the run's own releases with more or less noise (the top half of the
ranking against the certified trade-off curve). *best* (the rank walk) and
*Clopper-Pearson* hold for any mechanism; no attack can push these above about
ln(runs / 3) at delta 1e-5; the rank walk has been tuned since, and would give
slightly other ones of the same scores. The last columns split certified less family: slack of the
account, want of runs (what the best attack on this ledger would miss as well, about),
and the attack; below 0 the attack was luckier than the simulated ones.

At epsilon 1 the share is smaller for want of runs: with half of the records in a lot,
20 000 runs leave a fifth to a quarter unseen even by the best attack on the ledger.
The asynchronous workers lose a little more: what was said to other workers in between
never reaches the neighbour.

"""
_FULL = """### All records in every lot

The same with lots of a node's 20 records, all of them in every round. The trade-off
curve is then a Gaussian one, where the middle, which the family bound looks at, shows
most of what so few runs can show. Dyn-D2P's budget grows, so that its last round, which
no message carries, tells most; at epsilon 1 it is also the unluckiest of these audits.

"""
_PARTLY = """## A neighbour that does not hear all

The same, but part of what the canary's node hears is noise to the neighbour, which then
takes the best linear guess. Not its statistics but what it lacks keeps it below: the
messages of nodes that it does not hear, and their noise.

"""
_BLACK_BOX = """## Black box: the setting of appendix D of Bayrooti et al. 2023

One digit a node, clip 10, 100 rounds, claim (1, 1e-2), 5 000 runs a world, equal start;
the score is the canary's loss under the final model of node 0. The paper leaves open
model width, lot, step size and graph, and plants a blank image. Here: softmax on raw
pixels (0 to 16), lots of 8 of 100 (24 of 300 for the central one), step size 0.001, the
complete graph; the canary is ClipBKD's (Jagielski et al. 2020), a direction of pixels
that the images do not use, as long as an image. So what differs from the paper is data
(digits for MNIST), canary, model and estimator; the threat model and claim are its own.
What the paper leaves open was chosen by pilot runs with other seeds, after two earlier
settings (its small network, blank images) had shown less: these rows say how much can
be seen through one loss, not how much is seen at any setting.
On the complete graph the final model of a node holds the noise of all three, which
divides the canary's part of it by three and the noise by the square root of three: no
score of it alone can show as much as the central run's.

"""


def write(
    path: pathlib.Path, results: Mapping[str, Any], paper: Mapping[str, float]
) -> None:
    """Write the page to ``path``."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for key, figures in results.items():
        kinds.setdefault(key.split(" ")[0], []).append(figures)
    text = _HEAD
    if "neighbour" in kinds:
        counts = {f["epsilon"]: f["runs"] for f in kinds["neighbour"]}
        runs = ", ".join(f"{n:,} runs at epsilon {e:g}" for e, n in counts.items())
        text += _NEIGHBOUR.format(runs=runs) + _table(kinds["neighbour"])
    if "full" in kinds:
        text += _FULL + _table(kinds["full"])
    if "partly" in kinds:
        text += _PARTLY + _table(kinds["partly"])
    if "black-box" in kinds:
        text += _BLACK_BOX + _black_box(kinds["black-box"], paper)
    path.write_text(text.rstrip() + "\n")


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| algorithm | runs | certified | family | of certified | best | "
        "Clopper-Pearson | account | runs' share | attack's share | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        gap = row["family_gap"] or {}
        parts = [
            f"{gap[name]:.2f}" if gap else "-"
            for name in ("account", "statistics", "attack")
        ]
        lines.append(
            f"| {row['algorithm']} | {row['runs']:,} | {round_up(row['certified'])} | "
            f"{round_down(row['family'], 3)} | "
            f"{round_down(row['family'] / row['certified'], 2)} | "
            f"{round_down(row['best'], 3)} | {round_down(row['clopper_pearson'], 3)} | "
            f"{' | '.join(parts)} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n\n"


def _black_box(rows: list[dict[str, Any]], paper: Mapping[str, float]) -> str:
    lines = [
        "| algorithm | certified | best | Clopper-Pearson | paper | family | accuracy |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row['algorithm']} | {round_up(row['certified'])} | "
            f"{round_down(row['best'], 3)} | {round_down(row['clopper_pearson'], 3)} | "
            f"{paper[row['algorithm']]:.3f} | {round_down(row['family'], 3)} | "
            f"{row['accuracy']:.2f} |"
        )
    return "\n".join(lines) + "\n\n"
