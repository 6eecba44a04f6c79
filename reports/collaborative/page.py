"""README.md and epsilon.svg from results.json."""

from __future__ import annotations

import pathlib
import statistics

from privaudit.results import round_up

DATA = {
    "glyphs-pca": "Table II (MNIST): glyphs",
    "forest": "Table I (Covertype): forest",
}
CASES = ("convex", "strongly convex")
NODES = (1, 3, 5, 10, 20)
ROWS = (
    "noiseless",
    "fully collaborative",
    "deep-Q",
    "coin",
    "coin of 0.1",
    "DP-SGD with replacement",
    "local alone",
)
# Paper 002, Tables I and II, per cent.
PRINTED = {
    ("forest", "convex", "noiseless"): (56.24, 61.64, 61.90, 62.83, 64.10),
    ("forest", "convex", "fully collaborative"): (54.21, 58.22, 58.63, 59.82, 60.22),
    ("forest", "convex", "deep-Q"): (None, 59.05, 59.22, 60.65, 61.23),
    ("forest", "strongly convex", "noiseless"): (62.79, 64.44, 65.31, 65.96, 66.04),
    ("forest", "strongly convex", "fully collaborative"): (
        (50.60, 51.68, 52.60, 55.24, 57.73)
    ),
    ("forest", "strongly convex", "deep-Q"): (None, 55.25, 59.27, 61.34, 62.37),
    ("glyphs-pca", "convex", "noiseless"): (77.74, 84.07, 85.49, 86.83, 87.69),
    ("glyphs-pca", "convex", "fully collaborative"): (
        (63.86, 71.48, 74.04, 76.80, 78.17)
    ),
    ("glyphs-pca", "convex", "deep-Q"): (None, 77.17, 79.87, 80.52, 81.93),
    ("glyphs-pca", "strongly convex", "noiseless"): (
        (84.80, 88.13, 88.51, 88.76, 88.96)
    ),
    ("glyphs-pca", "strongly convex", "fully collaborative"): (
        (55.04, 63.46, 65.63, 68.00, 73.9)
    ),
    ("glyphs-pca", "strongly convex", "deep-Q"): (None, 71.03, 75.39, 80.93, 82.97),
}


def write(here: pathlib.Path, known: dict) -> None:
    """Write the page from ``known`` results; what was not run is left empty."""
    lines = [(here / "head.md").read_text()]
    for data, title in DATA.items():
        lines += [f"## {title}", ""]
        for case in CASES:
            for noise in ("joint", "paper"):
                lines += _table(known, data, case, noise)
    lines += ["## What the coin keeps", "", *_kept(known), ""]
    lines += ["## Accuracy by epsilon", "", "![accuracy by epsilon](epsilon.svg)", ""]
    lines += _sweep(known)
    lines.append((here / "findings.md").read_text())
    (here / "README.md").write_text("\n".join(lines))
    _draw(here, known)


def _found(known: dict, *key: object) -> dict | None:
    return known.get(" | ".join(map(str, key)))


def _mean(cell: dict) -> float:
    return 100 * statistics.mean(cell["accuracy"])


def _text(cell: dict | None) -> str:
    if cell is None:
        return ""
    values = [100 * value for value in cell["accuracy"]]
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def _cell(
    known: dict, data: str, nodes: int, case: str, policy: str, noise: str
) -> dict | None:
    if policy in ("noiseless", "local alone"):
        return _found(known, data, nodes, case, policy, "none", 0.0)
    return _found(known, data, nodes, case, policy, noise, 1.0)


def _table(known: dict, data: str, case: str, noise: str) -> list[str]:
    told = {
        "joint": "epsilon = 1 for all classes together, exact account",
        "paper": "the paper's noise, of one class, as printed for epsilon = 1",
    }[noise]
    lines = [
        f"### {case}; {told}",
        "",
        "| nodes | " + " | ".join(map(str, NODES)) + " | account of all classes |",
        "| --- " * (len(NODES) + 2) + "|",
    ]
    for policy in ROWS:
        cells = [_cell(known, data, nodes, case, policy, noise) for nodes in NODES]
        if not any(cells):
            continue
        printed = PRINTED.get((data, case, policy), (None,) * len(NODES))
        texts = []
        for cell, value in zip(cells, printed, strict=True):
            theirs = "" if value is None else f" (*{value:.1f}*)"
            texts.append(_text(cell) + theirs)
        accounts = [c["account"] for c in cells if c is not None and "account" in c]
        worst = ""
        if accounts:
            worst = f"epsilon ≤ {round_up(max(accounts), 3)}"
            if policy == "deep-Q":
                worst += ", *if nobody looks at the choices*"
        elif policy == "noiseless":
            worst = "none"
        elif policy == "local alone":
            worst = "nothing leaves a node"
        lines.append(f"| {policy} | " + " | ".join(texts) + f" | {worst} |")
    return [*lines, ""]


def _kept(known: dict) -> list[str]:
    lines = [
        "Per cent of the deep-Q networks' gain over full collaboration that each coin "
        "has, (coin - full) / (deep-Q - full), of mean accuracies; below 0 it is worse "
        "than full collaboration, above 100 better than deep-Q.",
        "",
        "| data | case | noise | coin | " + " | ".join(f"{n} nodes" for n in NODES[1:]),
        "| --- " * (4 + len(NODES) - 1) + "|",
    ]
    lines[2] += " |"
    for data in DATA:
        for case in CASES:
            for noise in ("joint", "paper"):
                for coin in ("coin", "coin of 0.1"):
                    texts = []
                    for nodes in NODES[1:]:
                        full, deep, own = (
                            _cell(known, data, nodes, case, policy, noise)
                            for policy in ("fully collaborative", "deep-Q", coin)
                        )
                        texts.append(_share(full, deep, own))
                    if any(texts):
                        cells = " | ".join(texts)
                        lines.append(
                            f"| {data} | {case} | {noise} | {coin} | {cells} |"
                        )
    return lines


def _share(full: dict | None, deep: dict | None, own: dict | None) -> str:
    if full is None or deep is None or own is None:
        return ""
    gain = _mean(deep) - _mean(full)
    if gain < 1:
        return f"no gain ({gain:+.1f})"
    return f"{100 * (_mean(own) - _mean(full)) / gain:.0f} (of {gain:.1f} points)"


def _points(known: dict, data: str, policy: str) -> dict[float, dict]:
    found = {}
    for key, cell in known.items():
        which, nodes, case, who, noise, epsilon = key.split(" | ")
        if (which, nodes, case, who, noise) == (data, "10", "convex", policy, "joint"):
            found[float(epsilon)] = cell
    return dict(sorted(found.items()))


def _sweep(known: dict) -> list[str]:
    epsilons = sorted({e for d in DATA for e in _points(known, d, "coin")})
    lines = [
        "Ten nodes, convex, all classes accounted together.",
        "",
        "| data | policy | " + " | ".join(f"{e:g}" for e in epsilons) + " |",
        "| --- " * (2 + len(epsilons)) + "|",
    ]
    for data in DATA:
        for policy in ROWS:
            points = _points(known, data, policy)
            if points:
                cells = " | ".join(_text(points.get(e)) for e in epsilons)
                lines.append(f"| {data} | {policy} | {cells} |")
    return [*lines, ""]


def _draw(here: pathlib.Path, known: dict) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "privaudit"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axes, data in zip(panels, DATA, strict=True):
        for policy in ROWS:
            points = _points(known, data, policy)
            if not points:
                continue
            values = [[100 * a for a in cell["accuracy"]] for cell in points.values()]
            axes.errorbar(
                list(points),
                [statistics.mean(v) for v in values],
                [statistics.stdev(v) for v in values],
                label=policy,
                marker="o",
                capsize=2,
            )
        for policy, style in (("noiseless", "-"), ("local alone", ":")):
            cell = _found(known, data, 10, "convex", policy, "none", 0.0)
            if cell is not None:
                axes.axhline(_mean(cell), color="gray", linestyle=style, label=policy)
        axes.set(xscale="log", xlabel="epsilon", title=data, ylabel="accuracy, %")
    panels[0].legend(fontsize=7)
    figure.savefig(here / "epsilon.svg", metadata={"Date": None})
    pyplot.close(figure)
