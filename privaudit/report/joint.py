"""A joint statement from the folders of all parties of one training.

No party's figure is believed: each folder is checked as `privaudit.report.verify` does,
and every account is computed again from its ledger.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from privaudit.accounting import account_nodes, verdict_on
from privaudit.files import json as _json
from privaudit.files.folder import FolderError, write_whole
from privaudit.ledger import Entry, Ledger
from privaudit.release import PoissonSampling
from privaudit.report.load import FinishedTraining
from privaudit.report.verify import EvidenceError, Verification, verify
from privaudit.results import Finding, UpperBound, symbols
from privaudit.settings import PartyRecord, is_own

_MOST_SETS = 300  # of nodes that share a record, each composed

# What parties may differ in: where they compute, what they did not agree on.
_EACH_ITS_OWN = ("device", "compiled", "torch_version", "party", "training")

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, slots=True)
class PartyStatement:
    """What one party's folder shows.

    Parameters
    ----------
    party, nodes
        Its number, and the nodes that it held.
    upper
        The account of its worst node, from its ledger.
    check
        What was compared in its folder.
    """

    party: int
    nodes: range
    upper: UpperBound
    check: Verification


@dataclasses.dataclass(frozen=True, slots=True)
class Joint:
    """What all parties of a training released, and what a record pays.

    Parameters
    ----------
    algorithm
        What they trained.
    upper
        Upper bound on the epsilon of a record that ``overlap`` parties hold, or fewer.
    overlap
        How many parties may hold one record, or user.
    worst
        The nodes that such a record pays most at.
    verdict
        The claim and ``upper`` together; None if nothing was claimed.
    parties
        One statement each.
    ledger
        Of all nodes.
    warning
        Whether the models are protected, in words.
    """

    algorithm: str
    upper: UpperBound
    overlap: int
    worst: tuple[int, ...]
    verdict: Finding | None
    parties: tuple[PartyStatement, ...]
    ledger: Ledger
    warning: str

    @property
    def status(self) -> str | None:
        """The verdict in a word; None if nothing was claimed."""
        return None if self.verdict is None else self.verdict.status

    def summary(self) -> dict[str, Any]:
        """All figures, for JSON."""
        claim = None if self.verdict is None else self.verdict.claim
        return {
            "algorithm": self.algorithm,
            "parties": len(self.parties),
            "nodes": len(self.ledger.nodes),
            "overlap": self.overlap,
            "claimed": None if claim is None else claim.epsilon,
            "certified": self.upper.epsilon,
            "standing": self.upper.standing,
            "delta": self.upper.delta,
            "relation": self.upper.relation,
            "unit": self.upper.unit,
            "verdict": self.status,
            "worst_nodes": list(self.worst),
            "protected": not self.warning.startswith("NOT"),
            "noise": self.warning,
            "each": [
                {
                    "party": one.party,
                    "folder": str(one.check.path),
                    "nodes": list(one.nodes),
                    "certified": one.upper.epsilon,
                    "signer": one.check.signer,
                    "checked": list(one.check.checked),
                    "not_checked": list(one.check.unchecked),
                }
                for one in self.parties
            ],
        }

    def lines(self) -> list[str]:
        """All figures, in sentences."""
        unit = self.upper.unit
        held = (
            f"a {unit} is held by one party alone, which is assumed"
            if self.overlap == 1
            else f"a {unit} is held by {self.overlap} parties at most, which is assumed"
        )
        lines = []
        for one in self.parties:
            nodes = f"{one.nodes.start} to {one.nodes[-1]}"
            what = f"node {one.nodes[0]}" if len(one.nodes) == 1 else f"nodes {nodes}"
            signed = (
                f"signed by {one.check.signer}"
                if one.check.signer
                else "by whom was not checked"
            )
            lines.append(f"party {one.party}, {what}: {symbols(one.upper)} ({signed})")
        worst = " and ".join(map(str, self.worst))
        many = "s" if len(self.worst) > 1 else ""
        lines.append(
            f"{self.algorithm}, {len(self.parties)} parties, "
            f"{len(self.ledger.nodes)} nodes: {held}; worst at node{many} {worst}"
        )
        lines.append(str(self.upper))
        if self.verdict is not None:
            lines += [str(self.verdict.claim), str(self.verdict)]
        return [*lines, self.warning]

    def save(self, path: Path) -> None:
        """Write `summary` and the ledger of all nodes as one JSON file."""
        content = {**self.summary(), "ledger": msgspec.to_builtins(self.ledger)}
        try:
            write_whole(path, _json.encode(content))
        except OSError as error:
            raise FolderError(
                f"cannot write {path}: {error.strerror or error}"
            ) from None


def join(
    folders: Iterable[Path], *, overlap: int = 1, signers: Sequence[Path] = ()
) -> Joint:
    """As `privaudit.api.evidence.join`."""
    paths = [pathlib.Path(folder) for folder in folders]
    if not paths:
        raise ValueError("give the folders of all parties, each as OUT/party-N")
    if signers and len(signers) != len(paths):
        raise ValueError(
            f"give one public key for each folder, in their order: {len(paths)} "
            f"folders, and {len(signers)} given"
        )
    keys = signers or [None] * len(paths)
    found = [_party(path, key) for path, key in zip(paths, keys, strict=True)]
    found.sort(key=lambda one: one[0].party)
    _check_all(found)
    if not 1 <= overlap <= len(found):
        raise ValueError(
            f"overlap is how many of the {len(found)} parties hold one record, got "
            f"{overlap}"
        )
    first = found[0][1]
    delta, relation = first.upper.delta, first.upper.relation
    statements = []
    for party, run, check in found:
        bounds = account_nodes(run.ledger, delta, relation, run.config.account)
        worst = max(bounds, key=lambda bound: bound.epsilon)
        statements.append(PartyStatement(party.party, party.nodes, worst, check))
    ledger = Ledger.joined(run.ledger for _, run, _ in found)
    upper, paid, nodes = _worst(ledger, overlap, delta, first)
    claim = first.config.claim
    unprotected = [run for _, run, _ in found if not run.result.protected]
    return Joint(
        algorithm=first.config.settings.algorithm,
        upper=upper,
        overlap=overlap,
        worst=nodes,
        verdict=None if claim is None else verdict_on(claim, paid, upper),
        parties=tuple(statements),
        ledger=ledger,
        warning=(unprotected or [first])[0].result.warning,
    )


Found = tuple[PartyRecord, FinishedTraining, Verification]


def _party(path: pathlib.Path, key: Path | None) -> Found:
    if not path.is_dir():
        raise FolderError(
            f"{path} is no folder; give those of the parties, OUT/party-N"
        )
    check = verify(path, settings=True, signer=key)
    if check.differences:
        raise EvidenceError(check.differences)
    run = check.found
    if not isinstance(run, FinishedTraining) or run.config.party is None:
        raise ValueError(
            f"{path} is not the folder of one party; parties are trained by "
            "privaudit train --parties, each in OUT/party-N"
        )
    if not check.has_manifest:
        raise ValueError(f"{path} has no manifest.json: nothing says what it holds")
    party = run.config.party
    if len(run.ledger.nodes) != len(party.nodes):
        raise ValueError(
            f"{path} has a ledger of {len(run.ledger.nodes)} nodes, and its party "
            f"held {len(party.nodes)}"
        )
    return party, run, check


def _check_all(found: Sequence[Found]) -> None:
    """``ValueError`` unless these are all parties of one run."""
    (first, run, check), *others = found
    for party, other, theirs in others:
        for name, one, two in (
            ("the run", first.run, party.run),
            ("parties", first.parties, party.parties),
            ("the nodes' sizes", first.sizes, party.sizes),
            ("delta", run.upper.delta, other.upper.delta),
            ("relation", run.upper.relation, other.upper.relation),
            *_settings(run, other),
        ):
            if one != two:
                raise ValueError(
                    f"{theirs.path} is of another training than {check.path}: {name} "
                    f"is {two}, and {one} there"
                )
    for (one, _, here), (two, _, there) in itertools.pairwise(found):
        if one.party == two.party:
            raise ValueError(
                f"{here.path} and {there.path} are both of party {one.party}"
            )
    here = {party.party for party, _, _ in found}
    missing = [str(n) for n in range(first.parties) if n not in here]
    if missing:
        many = "parties" if len(missing) > 1 else "party"
        raise ValueError(
            f"the folder of {many} {', '.join(missing)} is missing: a joint statement "
            f"is of all {first.parties}"
        )


def _settings(
    run: FinishedTraining, other: FinishedTraining
) -> Iterator[tuple[str, Any, Any]]:
    for field in dataclasses.fields(run.config):
        if field.name not in _EACH_ITS_OWN:
            yield (
                field.name,
                getattr(run.config, field.name),
                getattr(other.config, field.name),
            )
    one, two = run.config.training, other.config.training
    for name in {**one, **two}:
        if name == "data" and is_own(str(one.get(name))):
            continue
        yield name, one.get(name), two.get(name)


def _worst(
    ledger: Ledger, overlap: int, delta: float, run: FinishedTraining
) -> tuple[UpperBound, Ledger, tuple[int, ...]]:
    """The bound of a record at ``overlap`` nodes, what it pays, and which these are.

    All sets of nodes that may be the worst are composed: of nodes that differ in
    sampling rates alone, those of larger rates are worse.
    """
    alike: dict[tuple[Entry, ...], list[int]] = {}
    for node, entries in enumerate(ledger.nodes):
        alike.setdefault(entries, []).append(node)
    # As often as it can be in a set; not at all if others, enough of them, are worse.
    able = [
        (entries, nodes[:overlap])
        for entries, nodes in alike.items()
        if sum(
            len(theirs)
            for other, theirs in alike.items()
            if other != entries and _is_worse(other, entries)
        )
        < overlap
    ]
    pool = [(entries, node) for entries, nodes in able for node in nodes]
    sets: dict[tuple[tuple[Entry, ...], ...], tuple[int, ...]] = {}
    if math.comb(len(pool), overlap) <= 100 * _MOST_SETS:
        for chosen in itertools.combinations(pool, overlap):
            kinds = tuple(entries for entries, _ in chosen)
            sets.setdefault(kinds, tuple(sorted(node for _, node in chosen)))
    if not 0 < len(sets) <= _MOST_SETS:
        raise ValueError(
            f"there are too many sets of {overlap} nodes that may be the worst, as "
            f"{len(able)} of them released different things: compose those that hold "
            "one record by privaudit epsilon --ledger, once for each"
        )
    best: tuple[UpperBound, Ledger, tuple[int, ...]] | None = None
    for kinds, nodes in sets.items():
        paid = Ledger.composed(
            msgspec.structs.replace(ledger, nodes=(entries,)) for entries in kinds
        )
        (bound,) = account_nodes(paid, delta, run.upper.relation, run.config.account)
        if best is None or bound.epsilon > best[0].epsilon:
            best = bound, paid, nodes
    assert best is not None
    return best


def _is_worse(one: tuple[Entry, ...], other: tuple[Entry, ...]) -> bool:
    """Whether ``one`` releases the same as ``other`` with rates that are no smaller.

    A Poisson sampled release of rate p is one of rate q > p on a sample of the records:
    by convexity its loss is no larger, at each step and so in sequence.
    """
    if len(one) != len(other):
        return False
    for mine, theirs in zip(one, other, strict=True):
        how, their = mine.release.sampling, theirs.release.sampling
        if not isinstance(how, PoissonSampling) or not isinstance(
            their, PoissonSampling
        ):
            if mine != theirs:
                return False
            continue
        same = msgspec.structs.replace(mine.release, sampling=their)
        if (
            same != theirs.release
            or mine.count != theirs.count
            or mine.disjoint != theirs.disjoint
            or how.rate < their.rate
        ):
            return False
    return True
