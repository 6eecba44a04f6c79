"""A static site of runs, sweeps, claims and studies: one overview, a page for each."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from privaudit.files import json as _json
from privaudit.files.folder import FolderError, content_of, numbered, write_whole
from privaudit.report.axis import Item, together
from privaudit.report.demo import is_demo, load_views, page_of
from privaudit.report.joining import join
from privaudit.report.page import fill, render
from privaudit.report.svg import WIDTHS, drawn_alone, embedded
from privaudit.report.sweep import is_sweep, load_sweep
from privaudit.report.verify import EvidenceError, verify
from privaudit.results import Relation, Status, decided

Path = str | os.PathLike[str]
SITE = "site.json"  # what a site's folder is known by
PARTIES = "party-*"  # folders of a run's parties, in one
_SCROLLS = (
    '<div class="scroll" tabindex="0" role="region" aria-label="table {}">\n{}\n</div>'
)
_NARROW = 340  # points: a picture that is read on a phone as it is
_PICTURES = re.compile(r"!\[([^\]]*)\]\(([^)]+\.svg)\)\n?")


_Figure = Annotated[float, msgspec.Meta(ge=0)] | None


class _Claim(msgspec.Struct, frozen=True):
    """Claim, as far as it is shown, in the output of `privaudit claims --json`."""

    paper: str
    claim: str
    claimed: _Figure
    certified_as_printed: _Figure
    certified_as_printed_lower: _Figure
    audited_as_printed: _Figure
    delta: Annotated[float, msgspec.Meta(ge=0, le=1)]
    relation: Relation
    verdict: Status | Literal["no theorem"]

    def __post_init__(self) -> None:
        given: str = "no theorem"
        if self.claimed is not None and self.verdict != given:
            upper, proved = self.certified_as_printed, self.certified_as_printed_lower
            audited = self.audited_as_printed
            claimed = float(f"{self.claimed:.12g}")  # as those of its account are
            given = decided(claimed, upper=upper, proved=proved, audited=audited)
        if self.verdict != given:
            raise ValueError(
                f"{self.paper}/{self.claim} is said to be {self.verdict}, and its "
                f"figures make it {given}"
            )


class _Claims(msgspec.Struct, frozen=True):
    claims: list[_Claim]


class Site:
    """Pages as they are made, by their place in the site; nothing is written yet."""

    def __init__(self, signer: Path | None = None) -> None:
        self.pages: dict[str, bytes] = {}
        self.items: list[Item] = []
        self.differs = False  # whether figures of some run disagree with its evidence
        self._signer = signer

    def add(self, path: Path) -> None:
        """A run, a sweep, the demo, a study, a folder of these, or a file of claims."""
        path = pathlib.Path(path)
        if path.is_file():
            self.items += self._claims(path)
        elif is_demo(path):
            self._shown(self._demo, path)
        elif is_sweep(path):
            self._shown(self._sweep, path)
        elif (path / "config.json").exists():
            self.items += [self._run(path, path.name)]
        elif (path / "README.md").exists() and (path / "results.json").exists():
            self._shown(self._study, path)
        else:
            self._several(path)

    def _shown(self, add: Callable[[pathlib.Path], None], path: pathlib.Path) -> None:
        """Add ``path``, or a row that says why it is not shown: others are."""
        try:
            add(path)
        except FolderError as error:
            self.items += [self._wrong(path.name, str(error))]

    def write(self, out: Path) -> pathlib.Path:
        """Put all pages into ``out``, a site's folder; return that of the overview."""
        folder = pathlib.Path(out)
        if folder.exists() and (
            not folder.is_dir()
            or (any(folder.iterdir()) and not (folder / SITE).exists())
        ):
            raise FolderError(
                f"{folder} holds something other than a site; choose a new or empty "
                "folder with --out"
            )
        overview = self._overview("Privacy, item by item", self.items, 0)
        pages = {**self.pages, "index.html": overview.encode()}
        known = [dataclasses.asdict(item) for item in self.items]
        pages[SITE] = _json.encode({"schema": 1, "items": known}, indent=1)
        for place, content in pages.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / place, content)
        return folder / "index.html"

    def _keep(self, name: str, html: str) -> str:
        """Keep a page at a place that no other has, which is returned."""
        plain = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or "page"
        places = (f"{one}.html" for one in numbered(pathlib.Path("pages", plain)))
        place = next(one for one in places if one not in self.pages)
        self.pages[place] = html.encode()
        return place

    def _run(self, path: pathlib.Path, name: str) -> Item:
        try:
            checked = verify(path, signer=self._signer)
        except FolderError as error:
            return self._wrong(name, str(error))
        if checked.differences:
            first = checked.differences[0]
            return self._wrong(name, f"disagrees with its evidence: {first}")
        run: Any = checked.found
        page = self._keep(name, render(run, str(checked)))
        return Item.of(checked, name, page)

    def _wrong(self, name: str, why: str) -> Item:
        self.differs = True
        return Item(name=name, kind="run", why=why)

    def _sweep(self, path: pathlib.Path) -> None:
        rows = load_sweep(path).rows
        items = [
            self._run(path / row.name, f"{path.name} {row.name}")
            if row.finished is not None
            else Item(name=f"{path.name} {row.name}", kind="audit", why=row.why)
            for row in rows
        ]
        short = [
            dataclasses.replace(item, name=row.name)
            for item, row in zip(items, rows, strict=True)
        ]
        page = self._overview(_titled("Sweep", path.name), short, 1)
        place = self._keep(path.name, page)
        self.items += [Item(name=path.name, kind="sweep", page=place), *items]

    def _demo(self, path: pathlib.Path) -> None:
        checked = verify(path, signer=self._signer)
        views = load_views(path)
        items = [self._run(path / v.name, f"{path.name} {v.name}") for v in views]
        page = None
        if not checked.differences:
            page = self._keep(path.name, page_of(path, views, str(checked)))
        self.items += [Item(name=path.name, kind="demo", page=page), *items]

    def _claims(self, path: pathlib.Path) -> Iterator[Item]:
        """Items of the output of `privaudit claims --json`."""
        try:
            found = _json.decode(content_of(path), _Claims).claims
        except (OSError, ValueError) as error:
            raise FolderError(
                f"{path} is no output of privaudit claims --json: {error}"
            ) from None
        items = [
            Item(
                name=f"{one.paper}/{one.claim}",
                kind="claim",
                claimed=one.claimed,
                certified=one.certified_as_printed,
                proved=one.certified_as_printed_lower or 0.0,
                standing="certified",
                audited=one.audited_as_printed,
                delta=one.delta,
                relation=one.relation,
                verdict=one.verdict,
            )
            for one in found
        ]
        page = self._overview(_titled("Claims", path.stem), items, 1)
        place = self._keep(path.stem, page)
        yield Item(name=path.stem, kind="claims", page=place)
        yield from items

    def _study(self, path: pathlib.Path) -> None:
        from markdown_it import MarkdownIt

        text = _text(path / "README.md")
        title, _, rest = text.partition("\n")
        charts = [
            (words, _drawing(path / file))
            for words, file in _PICTURES.findall(text)
            if (path / file).is_file()
        ]
        body = (
            MarkdownIt("commonmark", {"html": False})
            .enable("table")
            .render(_PICTURES.sub("", rest))
            .replace("<pre>", '<pre tabindex="0">')  # what scrolls is reached by keys
        )
        number = itertools.count(1)
        body = re.sub(
            "<table>.*?</table>",
            lambda found: _SCROLLS.format(next(number), _labelled(found.group())),
            body,
            flags=re.DOTALL,
        )
        drawn = {
            f"chart{n}": embedded(svg, f"chart{n}", words)
            for n, (words, svg) in enumerate(charts)
        }
        page = fill(
            "study.html.jinja", drawn | {"body": body}, title=title.lstrip("# "),
            charts={
                name: float(svg.partition('viewBox="0 0 ')[2].split()[0]) < _NARROW
                for name, (_, svg) in zip(drawn, charts, strict=True)
            },
        )  # fmt: skip
        place = self._keep(path.name, page)
        self.items += [Item(name=path.name, kind="study", page=place)]

    def _several(self, path: pathlib.Path) -> None:
        inside = sorted(x for x in path.glob("*/") if not x.name.startswith("."))
        before = len(self.items)
        self._parties(path)
        for each in inside:
            if each.match(PARTIES):
                continue
            if (each / "result.json").exists() or is_sweep(each) or is_demo(each):
                self._shown(self.add, each)
            self._parties(each)
        if len(self.items) == before:
            raise FolderError(
                f"{path} is no folder of a finished run, sweep or study, holds none, "
                "and is no file of privaudit claims --json"
            )

    def _parties(self, path: pathlib.Path) -> None:
        """The runs of the parties in a folder, and first what all state together."""
        folders = [found.parent for found in path.glob(f"{PARTIES}/result.json")]
        folders.sort(key=lambda folder: (len(folder.name), folder.name))
        if not folders:
            return
        name = path.resolve().name  # also of "."
        runs = [self._run(each, f"{name} {each.name}") for each in folders]
        signers = [] if self._signer is None else [self._signer] * len(folders)
        try:
            joint = join(folders, signers=signers)
            item = Item.joint(joint, name, self._keep(name, joint.page()))
        except EvidenceError as error:
            item = self._wrong(name, f"disagrees with its evidence: {error}")
        except (FolderError, ValueError) as error:  # such as a party that is missing
            item = Item(name=name, kind="joint", why=str(error))
        self.items += [item, *runs]

    def _overview(self, title: str, items: Sequence[Item], depth: int) -> str:
        drawn = {x: together(items, width=width, name=x) for x, width in WIDTHS.items()}
        words = (item.verdict or ("not shown" if item.why else "") for item in items)
        counts = Counter(filter(None, words))
        return fill(
            "overview.html.jinja",
            drawn,
            title=title,
            items=items,
            heads=[head for head, _, _ in Item(name="", kind="").cells()],
            up="../" * depth,
            counts=", ".join(f"{count} {word}" for word, count in counts.items()),
            judged=counts.total(),
            drawn=any(item.drawn for item in items),
        )


def _text(path: pathlib.Path) -> str:
    """Text of a file of a study; `FolderError` if it cannot be read."""
    try:
        return content_of(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FolderError(f"cannot read {path}: {error}") from None


def _drawing(path: pathlib.Path) -> str:
    """Read a drawing for a page; `FolderError` if it does more than draw."""
    try:
        return drawn_alone(_text(path))
    except ValueError as error:
        raise FolderError(
            f"{path} is no drawing such as matplotlib's: {error}; pages draw, and do "
            "nothing else"
        ) from None


def _labelled(table: str) -> str:
    """A table in HTML, each cell with its column's head: a card's lines, on a phone."""
    heads = re.findall("<th(?: [^>]*)?>(.*?)</th>", table, re.DOTALL)
    plain = itertools.cycle([re.sub("<[^>]*>", "", head) for head in heads])
    label = lambda _: f'<td data-label="{next(plain)}"'  # noqa: E731
    return re.sub("<td", label, table).replace("<th></th>", "<td></td>")  # no head


def _titled(kind: str, name: str) -> str:
    return kind if name.lower() == kind.lower() else f"{kind}: {name}"
