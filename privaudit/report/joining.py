"""Makes a joint statement from the folders of all parties, each of them checked."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from privaudit.accounting import verdict_on
from privaudit.accounting.account import bound_of
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.overlaps import may_be_worst
from privaudit.accounting.views import ANY_NODE, Observer, account_observed
from privaudit.files.arguments import public
from privaudit.files.folder import FolderError
from privaudit.files.signature import public_key
from privaudit.ledger import Ledger
from privaudit.records import PartyRecord, as_nodes, dealt
from privaudit.report.joint import Joint, PartyStatement
from privaudit.report.load import FinishedTraining
from privaudit.report.recorded import FinishedRecord
from privaudit.report.verify import Verification, verified
from privaudit.task_settings import is_own

# What parties may differ in: where they compute, what they did not agree on.
_EACH_ITS_OWN = ("device", "compiled", "torch_version", "party", "training")

Path = str | os.PathLike[str]


@public
def join(
    folders: Iterable[Path],
    *,
    overlap: int = 1,
    signers: Sequence[Path] = (),
    observer: str | None = None,
) -> Joint:
    """Join the folders of all parties of one training into a statement on its epsilon.

    Each folder is checked as by `verify`, and each account is computed again from the
    party's ledger, so that no party's figure has to be believed.

    Parameters
    ----------
    folders
        One folder per party, in any order.
    overlap
        At how many parties the same record (or user) may be. The bound composes the
        releases of the worst so many nodes.
    signers
        Files with the parties' public keys, one per folder in the same order: each
        party must have signed its folder. If empty, nothing proves who wrote them.
    observer
        For whom the statement holds, as of `privaudit.train`: "any-node", or a node's
        number as text. It rests on the noise of all others. None: for an observer of
        all releases, such as a server that relays what is not sealed.

    Returns
    -------
    A `Joint` with the bound ``upper``, the ``verdict``, and a statement of each of the
    ``parties``. ``save`` writes it as JSON, with the ledger of all nodes, or, to a name
    in .html, as a page.

    Raises
    ------
    privaudit.report.verify.EvidenceError
        If a folder's figures disagree with its evidence, or a signature does not hold.
    privaudit.files.folder.FolderError
        If a folder holds no finished training.
    ValueError
        If the folders are not those of all parties of one run; if ``overlap`` is larger
        than the number of parties; or if it makes too many combinations of nodes.

    Examples
    --------
    >>> import privaudit as pa
    >>> pa.join([])
    Traceback (most recent call last):
    ...
    ValueError: give the folders of all parties, each as OUT/party-N
    """
    single = isinstance(folders, (str, os.PathLike))
    paths = [] if single else [_path(folder) for folder in folders]
    if not paths:
        raise ValueError("give the folders of all parties, each as OUT/party-N")
    if signers and len(signers) != len(paths):
        raise ValueError(
            f"give one public key for each folder, in their order: {len(paths)} "
            f"folders, and {len(signers)} given"
        )
    keys = signers or [None] * len(paths)
    checked = [_checked(path, key) for path, key in zip(paths, keys, strict=True)]
    if isinstance(checked[0].found, FinishedRecord):
        found = _recorded(checked)
    else:
        found = [_party(check) for check in checked]
    found.sort(key=lambda one: one[0].party)
    left = _check_all(found)
    if not 1 <= overlap <= len(found):
        gone = ", ".join(
            map(str, sorted(left.keys() - {one.party for one, *_ in found}))
        )
        raise ValueError(
            f"overlap is how many of the {len(found)} parties hold one record, got "
            f"{overlap}"
            + f"; what was released by {gone}, lost on the way, is not here"
            * bool(gone)
        )
    first, parties = found[0][1], [party for party, _, _ in found]
    delta, relation = first.upper.delta, first.upper.relation
    account = first.account
    # Of who was lost there may be no folder: its nodes have no releases here.
    known = {party.party: run.ledger for party, run, _ in found}
    for number in left.keys() - known.keys():
        held = dealt(number, parties[0].parties, len(parties[0].sizes))
        nodes = ((),) * len(held)
        known[number] = msgspec.structs.replace(first.ledger, nodes=nodes)
    ledger = Ledger.joined(known[number] for number in sorted(known))
    shared = _shared(parties)
    overlap = max(overlap, ledger.most_nodes, _at_most(shared or ()))
    if observer is not None:
        if overlap > 1 or left:
            raise ValueError(
                "what an observer learns is accounted where a record is at one party "
                "and none was lost: leave observer or overlap out"
            )
        _check_whole(observer, parties)
    bounds = account_observed(
        first.trained_by, ledger, observer, delta, relation, account
    )
    nodes = may_be_worst(ledger.nodes, overlap)
    if overlap == 1:
        nodes = (max(nodes, key=lambda node: bounds[node].epsilon),)
    claim = first.config.claim
    if observer is not None:
        upper, claim = bounds[nodes[0]], None  # what was claimed is of all releases
    else:
        part = msgspec.structs.replace(
            ledger, nodes=tuple(ledger.nodes[node] for node in nodes)
        )
        certificate = Certificate.of(part, relation, overlap=overlap)
        upper = msgspec.structs.replace(
            bound_of(certificate, delta, account),
            overlap=UNSET if ledger.unit == "node" else overlap,
        )
    unprotected = [run for _, run, _ in found if not run.protected]
    return Joint(
        algorithm=first.trained_by,
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
        nodes=bounds,
        warning=(unprotected or [first])[0].warning,
        observer=observer,
        shared=shared,
        left=tuple(
            f"party {number} was lost in round {k}, and the others went on without it: "
            "what it had released by then is not in this statement"
            for number, k in left.items()
            if number not in {party.party for party in parties}
        )
        + (_not_known(checked) if isinstance(first, FinishedRecord) else ()),
    )


def _shared(parties: Sequence[PartyRecord]) -> tuple[tuple[int, int, int], ...] | None:
    """Pairs of parties, and how many identifiers they share; None: it is not known.

    Raises ``ValueError`` if they counted otherwise than each other.
    """
    counts: dict[tuple[int, int], int] = {}
    for one in parties:
        for other, count in enumerate(one.shared or ()):
            two = min(one.party, other), max(one.party, other)
            if other != one.party and counts.setdefault(two, count) != count:
                raise ValueError(
                    f"parties {two[0]} and {two[1]} counted otherwise how many "
                    f"identifiers they share: {counts[two]} and {count}"
                )
    if parties[0].shared is None:
        return None
    return tuple((*two, count) for two, count in sorted(counts.items()))


def _at_most(shared: Sequence[tuple[int, int, int]]) -> int:
    """The most parties of which each shares records with each: at least k - 1 of k."""
    many = Counter(n for *two, count in shared if count for n in two)
    ranked = sorted(many.values(), reverse=True)
    return sum(others >= place for place, others in enumerate(ranked)) or 1


def _check_whole(observer: str, parties: Sequence[PartyRecord]) -> None:
    """``ValueError`` if a party would see more than its part of ``observer`` does."""
    each = observer == ANY_NODE
    inside = (
        {*range(len(parties[0].sizes))} if each else {*Observer.parse(observer).nodes}
    )
    for party in parties:
        held = {*party.nodes}
        if held & inside and (len(held) > 1 if each else not held <= inside):
            raise ValueError(
                f"party {party.party} sees what all of its {as_nodes(party.nodes)} do: "
                "name these together as the observer"
            )


def _path(folder: Path) -> pathlib.Path:
    if not isinstance(folder, (str, os.PathLike)):
        raise ValueError(f"folders must be a list of paths, got {folder!r} in it")
    return pathlib.Path(folder)


Found = tuple[PartyRecord, FinishedTraining | FinishedRecord, Verification]


def _checked(path: pathlib.Path, key: Path | None) -> Verification:
    if not path.is_dir():
        raise FolderError(
            f"{path} is no folder; give those of the parties, OUT/party-N"
        )
    check = verified(path, settings=True, signer=key)
    if not check.has_manifest:
        raise ValueError(f"{path} has no manifest.json: nothing says what it holds")
    return check


def _recorded(checked: Sequence[Verification]) -> list[Found]:
    """Parties of another tool's run, in the order given: one node each."""
    found: list[Found] = []
    for number, check in enumerate(checked):
        run = check.found
        if not isinstance(run, FinishedRecord) or run.config.run is UNSET:
            raise ValueError(
                f"{check.path} is not of a run of several parties by another tool, as "
                "its other folders are: it does not say which run it is of"
            )
        if len(run.ledger.nodes) != 1:
            raise ValueError(
                f"{check.path} has a ledger of {len(run.ledger.nodes)} nodes, and a "
                "party of another tool's run has one"
            )
        for other in checked[:number]:
            keys = [public_key(x.signer) for x in (other, check) if x.signer]
            if other.path.samefile(check.path) or (keys and keys[0] == keys[-1]):
                raise ValueError(
                    f"{other.path} and {check.path} are one party's, by folder or key: "
                    "give each party once, each with a key of its own"
                )
        many = len(checked)
        party = PartyRecord(
            party=number, parties=many, sizes=(0,) * many, run=run.config.run
        )
        found.append((party, run, check))
    return found


def _not_known(checked: Sequence[Verification]) -> tuple[str, ...]:
    """Return what the evidence of another tool's parties does not tell."""
    many = (
        "how many parties there were is not in the evidence of another tool: this "
        "statement covers those given here, and nobody else"
    )
    if len({check.manifest for check in checked}) == len(checked):
        return (many,)
    return many, (
        "the evidence of some parties is the same, byte by byte, as it is of data of "
        "one size, and of one party given twice"
    )


def _party(check: Verification) -> Found:
    path, run = check.path, check.found
    if not isinstance(run, FinishedTraining) or run.config.party is None:
        raise ValueError(
            f"{path} is not the folder of one party; parties are trained by "
            "privaudit train --parties, each in OUT/party-N"
        )
    party = run.config.party
    if len(run.ledger.nodes) != len(party.nodes):
        raise ValueError(
            f"{path} has a ledger of {len(run.ledger.nodes)} nodes, and its party "
            f"held {len(party.nodes)}"
        )
    return party, run, check


def _check_all(found: Sequence[Found]) -> dict[int, int]:
    """Return who was lost, and in which round; ``ValueError`` for other folders."""
    (first, run, check), *others = found
    for party, other, theirs in others:
        for name, one, two in (
            ("the run", first.run, party.run),
            ("parties", first.parties, party.parties),
            ("the nodes' sizes", first.sizes, party.sizes),
            ("counted", first.shared is not None, party.shared is not None),
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
    for party, one, check in found:
        others = [run for other, run, _ in found if other is not party]
        known = (n for run in others for n, _ in (*run.left, *run.returned))
        if one.has_missed and party.party not in known:
            raise ValueError(
                f"{check.path} says that party {party.party} was lost and came back, "
                "of which no other party's folder knows"
            )
    here = {party.party for party, _, _ in found}
    left: dict[int, int] = {}
    for _, one, _ in found:
        for number, k in one.left:
            left[number] = max(k, left.get(number, 0))
    missing = [str(n) for n in range(first.parties) if n not in here and n not in left]
    if missing:
        many = "parties" if len(missing) > 1 else "party"
        raise ValueError(
            f"the folder of {many} {', '.join(missing)} is missing: a joint statement "
            f"is of all {first.parties}"
        )
    return left


def _settings(
    run: FinishedTraining | FinishedRecord, other: FinishedTraining | FinishedRecord
) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(run, FinishedRecord) or isinstance(other, FinishedRecord):
        yield "the tool", run.trained_by, other.trained_by
        yield "the claim", run.config.claim, other.config.claim
        return
    for field in dataclasses.fields(run.config):
        if field.name not in _EACH_ITS_OWN:
            one, two = (getattr(each.config, field.name) for each in (run, other))
            yield field.name, one, two
    one, two = run.config.training, other.config.training
    for name in {**one, **two}:
        if name == "data" and is_own(str(one.get(name))):
            continue
        yield name, one.get(name), two.get(name)
