"""A joint statement from the folders of all parties of one training.

No party's figure is believed: each folder is checked as `privaudit.report.verify` does,
and every account is computed again from its ledger.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from privaudit.accounting import account_nodes, verdict_on
from privaudit.accounting.account import bound_of
from privaudit.accounting.certificate import Certificate
from privaudit.files import json as _json
from privaudit.files.folder import FolderError, write_whole
from privaudit.ledger import Entry, Ledger
from privaudit.records import PartyRecord
from privaudit.release import PoissonSampling
from privaudit.report.load import FinishedTraining
from privaudit.report.verify import EvidenceError, Verification, verify
from privaudit.results import Finding, UpperBound, symbols
from privaudit.task_settings import is_own

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


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Joint:
    """The result of `privaudit.join`: the epsilon of a training of several parties.

    Parameters
    ----------
    algorithm
        The algorithm that they trained by.
    upper
        Upper bound on the epsilon of a record that ``overlap`` parties hold, or fewer.
    overlap
        How many parties may hold one record, or user.
    worst
        The nodes whose releases together give ``upper``.
    verdict
        The claim and ``upper`` together; None if nothing was claimed.
    parties
        One statement per party.
    ledger
        The releases of all nodes.
    warning
        A sentence that says whether the models are protected.
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
                else "who wrote it was not checked"
            )
            lines.append(f"party {one.party}, {what}: {symbols(one.upper)} ({signed})")
        nodes = ", ".join(map(str, self.worst))
        many = "s" if len(self.worst) > 1 else ""
        which = "the worst are among" if len(self.worst) > self.overlap else "worst at"
        lines.append(
            f"{self.algorithm}, {len(self.parties)} parties, "
            f"{len(self.ledger.nodes)} nodes: {held}; {which} node{many} {nodes}"
        )
        lines.append(str(self.upper))
        if self.verdict is not None:
            lines += [str(self.verdict.claim), str(self.verdict)]
        return [*lines, self.warning]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        """The bound and how many parties it is of; ``ledger`` has every release."""
        many = len(self.parties)
        return f"<{self.algorithm}, {many} parties: {symbols(self.upper)}>"

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
    account = first.config.account
    ledger = Ledger.joined(run.ledger for _, run, _ in found)
    bounds = account_nodes(ledger, delta, relation, account)
    nodes = _may_be_worst(ledger, overlap)
    if overlap == 1:
        nodes = (max(nodes, key=lambda node: bounds[node].epsilon),)
    part = msgspec.structs.replace(
        ledger, nodes=tuple(ledger.nodes[node] for node in nodes)
    )
    upper = bound_of(Certificate.of(part, relation, overlap=overlap), delta, account)
    claim = first.config.claim
    unprotected = [run for _, run, _ in found if not run.result.protected]
    return Joint(
        algorithm=first.config.settings.algorithm,
        upper=upper,
        overlap=overlap,
        worst=nodes,
        verdict=None if claim is None else verdict_on(claim, ledger, upper),
        parties=tuple(
            PartyStatement(
                party.party,
                party.nodes,
                max((bounds[node] for node in party.nodes), key=lambda x: x.epsilon),
                check,
            )
            for party, _, check in found
        ),
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


def _may_be_worst(ledger: Ledger, overlap: int) -> tuple[int, ...]:
    """Nodes among which are the worst ``overlap``; of nodes alike, no more than that.

    Of nodes that differ in sampling rates alone, those of larger rates are worse.
    """
    alike: dict[tuple[Entry, ...], list[int]] = {}
    for node, entries in enumerate(ledger.nodes):
        alike.setdefault(entries, []).append(node)
    able = []
    for entries, nodes in alike.items():
        worse = [
            len(theirs) for other, theirs in alike.items() if _is_worse(other, entries)
        ]
        able += nodes[: max(0, overlap - sum(worse))]
    return tuple(sorted(able))


def _is_worse(one: tuple[Entry, ...], other: tuple[Entry, ...]) -> bool:
    """Whether ``one`` releases as ``other`` does, at larger rates or equal ones.

    A Poisson sampled release of rate p is one of rate q > p on a sample of the records:
    by convexity its loss is no larger, at each step and so in sequence.
    """
    if one == other or len(one) != len(other):
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
