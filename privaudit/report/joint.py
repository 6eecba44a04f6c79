"""A joint statement of all parties of one training: as text, as JSON and as a page."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import shlex

import msgspec

from privaudit.files import json as _json
from privaudit.files.folder import FolderError, write_whole
from privaudit.files.json import Summary
from privaudit.ledger import Ledger
from privaudit.records import as_nodes
from privaudit.report.load import FinishedTraining
from privaudit.report.recorded import FinishedRecord
from privaudit.report.recorded import content as recorded_content
from privaudit.report.verify import Verification
from privaudit.results import Finding, UpperBound, symbols

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, slots=True)
class PartyStatement:
    """Statement of one party's folder."""

    # party, nodes: its number, and the nodes that it held
    party: int
    nodes: range
    upper: UpperBound  # the account of its worst node, from its ledger
    check: Verification  # what was compared in its folder
    summary = Summary(
        "party folder=check.path nodes certified=upper.epsilon signer=check.signer "
        "checked=check.checked not_checked=check.unchecked"
    )

    @property
    def run(self) -> FinishedTraining | FinishedRecord:
        """Its training, as its folder has it."""
        assert isinstance(self.check.found, FinishedTraining | FinishedRecord)
        return self.check.found

    @property
    def held(self) -> str:
        """Its nodes, in words."""
        return as_nodes(self.nodes)

    @property
    def written_by(self) -> str:
        """Signer of its folder, in words."""
        signer = self.check.signer
        return f"signed by {signer}" if signer else "who wrote it was not checked"


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Joint:
    """The result of `privaudit.join`: the epsilon of a training of several parties.

    ``algorithm``: the algorithm that they trained by. ``upper``: upper bound on the
    epsilon of a record that ``overlap`` parties hold, or fewer. ``overlap``: how many
    parties may hold one record, or user. ``worst``: the nodes whose releases together
    give ``upper``. ``verdict``: the claim and ``upper`` together; None if nothing was
    claimed. ``parties``: one statement per party. ``ledger``: the releases of all
    nodes. ``nodes``: upper bound on the epsilon of each node alone. ``warning``: a
    sentence that says whether the models are protected. ``left``: sentences on parties
    whose releases are not in ``ledger``: lost, or not given. ``observer``: for whom
    ``upper`` and ``nodes`` hold; None: for an observer of all releases. ``shared``:
    pairs of parties, and how many identifiers they share; None: they counted none.
    """

    algorithm: str
    upper: UpperBound
    overlap: int
    worst: tuple[int, ...]
    verdict: Finding | None
    parties: tuple[PartyStatement, ...]
    ledger: Ledger
    nodes: tuple[UpperBound, ...]
    warning: str
    left: tuple[str, ...] = ()
    observer: str | None = None
    shared: tuple[tuple[int, int, int], ...] | None = None

    @property
    def status(self) -> str | None:
        """The verdict in a word; None if nothing was claimed."""
        return None if self.verdict is None else self.verdict.status

    @property
    def protected(self) -> bool:
        """Return whether the noise of all parties is secret."""
        return not self.warning.startswith("NOT")

    summary = Summary(
        "algorithm parties=#parties nodes=#ledger.nodes overlap "
        "claimed=verdict.claim.epsilon certified=upper.epsilon standing=upper.standing "
        "delta=upper.delta relation=upper.relation unit=upper.unit verdict=status "
        "worst_nodes=worst protected noise=warning left shared observer each=parties"
    )

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        lines = [
            f"party {one.party}, {one.held}: {symbols(one.upper)} ({one.written_by})"
            for one in self.parties
        ]
        lines += self.left
        lines.append(
            f"{self.algorithm}, {self._many}, {len(self.ledger.nodes)} "
            f"node{'s' * (len(self.ledger.nodes) > 1)}: {self._held}; {self._where}"
            + ("" if self.observer is None else f"; for observer {self.observer}")
        )
        lines.append(str(self.upper))
        if self.verdict is not None:
            lines += [str(self.verdict.claim), str(self.verdict)]
        return [*lines, self.warning]

    @property
    def _many(self) -> str:
        return f"{len(self.parties)} part{'ies' if len(self.parties) > 1 else 'y'}"

    @property
    def _held(self) -> str:
        held = "one party alone"
        if self.overlap > 1:
            held = f"{self.overlap} parties at most"
        if self.shared is None:
            return f"a {self.upper.unit} is held by {held}, which is assumed"
        pairs = [f"{a} and {b}: {count}" for a, b, count in self.shared if count]
        by = f"shared by parties {'; '.join(pairs)}" if pairs else "none is shared"
        return f"a {self.upper.unit} is held by {held}, by the identifiers given: {by}"

    @property
    def _where(self) -> str:
        nodes = ", ".join(map(str, self.worst))
        which = "the worst are among" if len(self.worst) > self.overlap else "worst at"
        return f"{which} node{'s' if len(self.worst) > 1 else ''} {nodes}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        """The bound and how many parties it is of; ``ledger`` has every release."""
        return f"<{self.algorithm}, {self._many}: {symbols(self.upper)}>"

    def save(self, path: Path) -> None:
        """Write `page` if ``path`` ends in .html; else `summary` and ledger as JSON."""
        whole = {**self.summary(), "ledger": msgspec.to_builtins(self.ledger)}
        is_page = pathlib.Path(path).suffix == ".html"
        try:
            write_whole(path, self.page().encode() if is_page else _json.encode(whole))
        except OSError as error:
            raise FolderError(
                f"cannot write {path}: {error.strerror or error}"
            ) from None

    def page(self) -> str:
        """One HTML file with all this: no scripts, no network."""
        # Late: nothing but a page needs them, and they take a tenth of a second.
        from privaudit.report import command, meaning, page, plots, table, words

        verdict, runs = self.verdict, [one.run for one in self.parties]
        claim = None if verdict is None else verdict.claim
        of = "of all nodes' ledgers; the worst node"
        if self.overlap > 1:
            of = (
                f"of all nodes' ledgers; the worst {self.overlap} nodes together, and "
                "in the ledger's last column each by itself"
            )
        stands_on = words.of_figures(claim, self.upper, shared=True, of=of)
        checks = [one.check for one in self.parties]
        done = dict.fromkeys(what for check in checks for what in check.checked)
        missed = dict.fromkeys(what for check in checks for what in check.unchecked)
        again = ["privaudit", "join", *(str(one.check.path) for one in self.parties)]
        if self.overlap > 1:
            again += ["--overlap", str(self.overlap)]
        if self.observer is not None:
            again += ["--observer", self.observer]
        for one in self.parties:
            again += [] if one.check.signer is None else ["--signer", one.check.signer]
        versions = [
            recorded_content(run)["versions"]
            if isinstance(run, FinishedRecord)
            else command.versions(run)
            for run in runs
        ]
        one = runs[0]
        if isinstance(one, FinishedRecord):
            said = recorded_content(one)
            title, (first, *_) = said["title"], said["story"]
        else:
            title, (first, *_) = words.title(one.config.settings), words.story(one)
        content = page.of_figures(claim, self.upper, self.status) | {
            "kind": "joint",
            "title": title,
            "story": [
                first,
                f"The nodes are those of {self._many}. No party's figure is believed: "
                "each account was made again from the ledger in the party's folder.",
            ],
            "verdict": "Nothing was claimed of this observer, so that there is no "
            "verdict."
            if self.observer is not None
            else "Nothing was claimed of this training, so that there is no verdict."
            if verdict is None
            else verdict.reason,
            "noise": self.warning.removeprefix("NOT PROTECTED. "),
            "protected": self.protected,
            "assumptions": [
                *stands_on,
                ("who holds what", f"{self._held}; {self._where}"),
                *(("who is not in it", one) for one in self.left),
                *(
                    (
                        f"party {one.party}",
                        f"{one.held}: {symbols(one.upper)}; {one.written_by}",
                    )
                    for one in self.parties
                ),
            ],
            "ledger": table.rows(self.ledger, self.nodes),
            "written": "as each party's program wrote it down while it ran",
            "meaning": meaning.of_figures(claim, self.upper),
            "command": shlex.join(again),
            "versions": tuple(dict.fromkeys(itertools.chain(*versions))),
            "seconds": f"{max(run.result.seconds for run in runs):,.1f} s",
            "checked": f"checked against the evidence in all folders: {', '.join(done)}"
            + (f"; not checked, in some or all: {', '.join(missed)}" if missed else ""),
        }
        drawn = plots.epsilon_axes(claim, self.upper, [])
        return page.fill("page.html.jinja", drawn, **content)
