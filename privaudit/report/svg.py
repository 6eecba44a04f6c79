"""From a matplotlib figure to an SVG that lives inside the page.

Drawn in the colours of `COLOURS`, which become variables of the style sheet (light,
dark, paper). Nothing depends on time or chance, and coordinates are rounded.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import pathlib
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from privaudit.accounting import Certificate
from privaudit.files.folder import write_whole

if TYPE_CHECKING:  # most of a second of import time, and an extra
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Role -> colour while drawing; each must be unique. The two worlds are vermillion and
# blue of Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = {
    "ink": "#1a1c20",
    "faint": "#6b7078",
    "grid": "#d9dce1",
    "paper": "#fefefe",
    "member": "#c44f00",
    "non-member": "#0067a5",
    "allowed": "#7a5195",
    "audited": "#008163",
    "refuted": "#b3261e",
}
WIDTHS = {"wide": 860, "narrow": 400}  # of a drawing on a page, by its name
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "privaudit",
    "font.family": "DejaVu Sans",  # comes with matplotlib; only to measure with
    "font.size": 12,
    "text.color": COLOURS["ink"],
    "axes.edgecolor": COLOURS["faint"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelsize": 12.5,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.7,
    "xtick.color": COLOURS["faint"],
    "ytick.color": COLOURS["faint"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "legend.handlelength": 1.4,
    "figure.facecolor": "none",
    "mathtext.default": "regular",
    "path.simplify": False,
}
_DIGEST = re.compile(
    r'(?:(?<=\bid=")|(?<=#))(?:[a-z]|image|C[0-9a-f]+_[0-9a-f]+_)?[0-9a-f]{10}(?=[")])'
)
_COORDINATES = re.compile(r'(?:\s(?:d|[xy]\d?|width|height)="|translate\()[^")]*')
_DECIMAL = re.compile(r"-?\d+\.\d+")

# What drawings of matplotlib are made of: nothing that acts, loads or styles a page.
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_TAGS = {
    f"{{{_SVG}}}{name}"
    for name in ("svg", "g", "path", "use", "defs", "clipPath", "rect", "image", "text")
}
_ROUND = "*{stroke-linejoin: round; stroke-linecap: butt}"  # matplotlib's only style
_PLAIN = re.compile(r"(?:(?!(?i:url))[^\\@])*")
_STYLE = re.compile(
    r"(?:\s*(?:fill|stroke|font|opacity|text-anchor)(?:-[a-z]+)?\s*:"
    r"(?:[\w\s#',.%+-]|url\(#[\w-]+\))*(?:;|$))*\s*"
)
_VALUES = {
    **dict.fromkeys(("id", "d", "x", "y", "width", "height", "transform"), _PLAIN),
    **dict.fromkeys(("fill", "version", "type", "role", "aria-label"), _PLAIN),
    "style": _STYLE,
    "clip-path": re.compile(r"url\(#[\w-]+\)"),
    "href": re.compile(r"#[\w.-]+|data:image/png;base64,[\w+/=\s]*"),
    "viewBox": re.compile(r"0 0 (?:\d+(?:\.\d+)?|\.\d+) (?:\d+(?:\.\d+)?|\.\d+)"),
}

# Matplotlib's settings are a process's: drawings of two threads would leave theirs
# behind. Forks wait for it, or it were never released in a child.
_ONE = threading.RLock()
os.register_at_fork(
    before=_ONE.acquire, after_in_parent=_ONE.release, after_in_child=_ONE.release
)


@contextlib.contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure of so many points, and its axes, in the page's style."""
    import matplotlib
    from matplotlib.figure import Figure

    with _ONE, matplotlib.rc_context(_SETTINGS):  # pyrefly: ignore
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        yield figure, figure.add_subplot()


def write(figure: Figure, path: pathlib.Path) -> None:
    """Write ``figure`` in the format that the suffix of ``path`` names, or raise."""
    drawn, kind = io.BytesIO(), path.suffix.removeprefix(".")
    if kind == "svg":
        figure.savefig(drawn, format=kind, metadata={"Date": None})
        write_whole(path, steady(drawn.getvalue().decode()).encode())
    else:
        figure.savefig(drawn, format=kind)
        write_whole(path, drawn.getvalue())


def steady(text: str) -> str:
    """Number the ids of an SVG that matplotlib drew, and round it to .01 points.

    Its ids are digests of coordinates: where a last bit differs, so does all of an id.

    >>> steady('<path id="m0123456789" d="M 1.2345 0"/><use href="#m0123456789"/>')
    '<path id="id1" d="M 1.23 0"/><use href="#id1"/>'
    """
    known = dict.fromkeys(_DIGEST.findall(text))
    numbers = {old: f"id{number}" for number, old in enumerate(known, 1)}
    text = _DIGEST.sub(lambda found: numbers[found[0]], text)
    return _COORDINATES.sub(lambda found: _DECIMAL.sub(_rounded, found[0]), text)


def _rounded(found: re.Match[str]) -> str:
    shown = f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def inline(figure: Figure, name: str, description: str) -> str:
    """``figure`` as an ``<svg>`` element of ids by ``name``, with a ``description``."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing)
    text = embedded(steady(buffer.getvalue()), name, description)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--font)", text)
    for role, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{role})")
    return text


def embedded(text: str, name: str, description: str) -> str:
    """A drawing of matplotlib as an ``<svg>`` element, its ids after ``name``."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = text.replace("url(#", f"url(#{name}-")
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    head = f'<svg role="img" aria-label="{html.escape(description)}" {box.group()}>'
    return re.sub(r"^<svg[^>]*>", lambda _: head, text, count=1).strip()


def drawn_alone(text: str) -> str:
    """``text``, an SVG of somebody's, written anew; ``ValueError`` if it acts.

    Written anew, a page's HTML has the elements that were looked at, and no others.
    """
    from xml.etree import ElementTree

    if "<!ENTITY" in text:
        raise ValueError("it declares entities")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"it is no XML ({error})") from None
    for one in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(one)
    if root.tag != f"{{{_SVG}}}svg" or "viewBox" not in root.attrib:
        raise ValueError("it begins with no <svg> that has a viewBox")
    for one in root.iter():
        styles = one.tag == f"{{{_SVG}}}style" and one.text == _ROUND and not len(one)
        if one.tag not in _TAGS and not styles:
            raise ValueError(f"it has an element <{str(one.tag).rpartition('}')[2]}>")
        for key, value in one.attrib.items():
            name = key.removeprefix(f"{{{_LINK}}}")
            if name not in _VALUES or not _VALUES[name].fullmatch(value):
                raise ValueError(f"it has {name}={value[:60]!r}")
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    return ElementTree.tostring(root, encoding="unicode")


def guessing(axes: Axes, x: ArrayLike, y: ArrayLike) -> None:
    """Draw what an attack that guesses gets."""
    style = {"color": COLOURS["faint"], "lw": 1, "dashes": (1, 2)}
    axes.plot(x, y, label="guessing", **style)


def allowed(
    axes: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, label: str
) -> None:
    """Fill what is allowed, or ruled out, from ``low`` to ``high``."""
    style = {"facecolor": COLOURS["allowed"], "alpha": 0.16, "linewidth": 0}
    axes.fill_between(x, low, high, label=label, **style)


def from_zero(axes: Axes) -> None:
    """From 0 up to a little above all that is drawn, so that no curve is cut."""
    axes.set_ylim(0, 1.04 * axes.get_ylim()[1])


def percent(share: float) -> str:
    """A share as an axis shows it."""
    return f"{100 * share:.6g} %"


def draw_profile(certificate: Certificate, path: pathlib.Path) -> None:
    """Draw delta(epsilon), bounded from both sides; the chance of failure is in it."""
    from matplotlib.figure import Figure

    epsilons, lower, upper = certificate.profile()
    if upper.min() == 1:
        raise ValueError("nothing bounds epsilon here: there is no profile to draw")
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between(epsilons, np.maximum(lower, 1e-300), upper, alpha=0.3)
    axes.plot(epsilons, upper, label=f"{certificate.standing}: no more than")
    axes.plot(epsilons, np.maximum(lower, 1e-300), "--", label="no less than")
    axes.set(
        yscale="log",
        ylim=(1e-12, 1.5),
        xlabel="epsilon",
        ylabel="delta",
        title=f"Privacy profile under {certificate.relation}",
    )
    axes.legend()
    write(figure, path)
