"""The rooms of each folder, the arrows between them, and what goes round or up.

Run as ``make house``; it draws ``docs/architecture.svg`` as well. Rooms are the files
and folders side by side in a folder, arrows are imports, those inside functions and
under TYPE_CHECKING counted. The order of the layers stands in pyproject.toml, where
`make lint` checks it.
"""

from __future__ import annotations

import pathlib
import tomllib

import grimp
import networkx as nx

PACKAGES = ("privaudit", "trainers")
PICTURE = pathlib.Path(__file__).parent.parent / "docs" / "architecture.svg"


def rooms(graph: grimp.ImportGraph, folder: str) -> nx.DiGraph:
    """The children of ``folder`` and the imports between them."""
    found = nx.DiGraph()
    found.add_nodes_from(graph.find_children(folder))
    level = folder.count(".") + 2
    for one in graph.find_descendants(folder):
        for other in graph.find_modules_directly_imported_by(one):
            if other.startswith(f"{folder}."):
                ends = [".".join(m.split(".")[:level]) for m in (one, other)]
                if ends[0] != ends[1]:
                    found.add_edge(*ends)
    return found


def layers() -> list[list[str]]:
    """From the top down."""
    path = pathlib.Path(__file__).parent.parent / "pyproject.toml"
    contracts = tomllib.loads(path.read_text())["tool"]["importlinter"]["contracts"]
    found = next(c["layers"] for c in contracts if c["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in found]


def room_of(module: str, known: list[str]) -> str | None:
    """The room of the layers that a module is in."""
    while module and module not in known:
        module = module.rpartition(".")[0]
    return module or None


def picture(graph: grimp.ImportGraph) -> str:
    """The layers as rows, their rooms as boxes, imports between them as lines (SVG)."""
    rows = layers()
    known = [name for names in rows for name in names]
    edges = set()
    for one in graph.modules:
        for other in graph.find_modules_directly_imported_by(one):
            ends = room_of(one, known), room_of(other, known)
            if None not in ends and ends[0] != ends[1]:
                edges.add(ends)
    width, high, step = 720, 30, 54
    place = {
        name: (width * (k + 1) / (len(names) + 1), 20 + row * step)
        for row, names in enumerate(rows)
        for k, name in enumerate(names)
    }
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
        f'{20 + len(rows) * step}" font-family="sans-serif" font-size="13">',
        "<title>Layers of privaudit, from the top down, and what imports what</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for one, other in sorted(edges):
        (x, y), (u, v) = place[one], place[other]
        skipped = round((v - y) / step) - 1
        bend = 36 * skipped * (1 if hash_of(one + other) else -1)
        found.append(
            f'<path d="M{x:.0f} {y + high:.0f}Q{(x + u) / 2 + bend:.0f} '
            f'{(y + high + v) / 2:.0f} {u:.0f} {v:.0f}" fill="none" '
            f'stroke="#777" stroke-opacity="{1 / (1 + skipped):.2f}"/>'
        )
    for name, (x, y) in place.items():
        label = name.removeprefix("privaudit.")
        found.append(
            f'<rect x="{x - 100:.0f}" y="{y}" width="200" height="{high}" rx="4" '
            f'fill="#eef3fa" stroke="#345"/><text x="{x:.0f}" y="{y + 20}" '
            f'text-anchor="middle">{label}</text>'
        )
    return "\n".join([*found, "</svg>", ""])


def hash_of(text: str) -> int:
    """0 or 1, by the letters: to which side a line bends."""
    return sum(map(ord, text)) % 2


def upward(graph: grimp.ImportGraph) -> list[tuple[str, str]]:
    """Imports of a layer above."""
    place = {name: level for level, names in enumerate(layers()) for name in names}

    def level(module: str) -> int:
        while module and module not in place:
            module = module.rpartition(".")[0]
        return place.get(module, -1)

    return [
        (one, other)
        for one in graph.modules
        for other in graph.find_modules_directly_imported_by(one)
        if -1 < level(other) < level(one)
    ]


def main() -> int:
    """Print all folders; 1 if something goes round or up."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    folders = [m for m in sorted(graph.modules) if graph.find_children(m)]
    wrong = 0
    for folder in folders:
        inside = rooms(graph, folder)
        circles = [c for c in nx.strongly_connected_components(inside) if len(c) > 1]
        wrong += len(circles)
        print(
            f"{folder:38} {inside.number_of_nodes():3} rooms "
            f"{inside.number_of_edges():3} arrows {len(circles)} circles"
        )
        for circle in circles:
            print(f"  circle: {', '.join(sorted(circle))}")
    up = upward(graph)
    for one, other in up:
        print(f"up: {one} imports {other}")
    known = [name for names in layers() for name in names]
    lost = [
        room
        for room in graph.find_children("privaudit")
        if not any(room == name for name in known)
    ]
    print(f"{len(up)} arrows up; rooms in no layer: {', '.join(lost) or 'none'}")
    PICTURE.write_text(picture(graph))
    return int(bool(wrong or up or lost))


if __name__ == "__main__":
    raise SystemExit(main())
