"""Comparison of a ledger with what its run's settings say would be released."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from privaudit.files import json as _json
from privaudit.files.folder import MODEL, RunFolder
from privaudit.files.user_code import is_place
from privaudit.ledger import COUNTED, OWN_ALGORITHM, RESUMED, Entry, Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    RandomAllocation,
    Release,
    SamplingWithoutReplacement,
)
from privaudit.report.difference import Difference, cannot_be, differ
from privaudit.report.load import Finished, FinishedTraining
from privaudit.task_settings import batches_taken, is_own
from privaudit.version import __version__

_FILES = "idx", "edges", "arcs", "matrix", "file"  # what names of files begin with
_ANY = Release.of_sum(norm_bound=1.0, noise_multiplier=1.0, sampling=NoSampling())


def ledger_by_settings(
    run: Finished, checked: list[str], unchecked: list[str]
) -> Difference | None:
    """The ledger against what the settings say would be released, to nodes so large."""
    try:
        from trainers.runs.training import Training
        from trainers.runs.tuned import changed, tuned_ledger, with_counts
    except ModuleNotFoundError as error:
        unchecked.append(f"the ledger against the settings, which needs {error.name}")
        return None
    name = run.config.settings.algorithm
    if is_place(name):  # evidence is read, code that it names is not run
        unchecked.append(f"the ledger against the settings, which needs {name} itself")
        return _by_own_algorithm(run)
    try:
        training = _json.convert(run.config.training, Training, strict=False)
        nodes = 1 if training.family.central else training.nodes
        party = getattr(run.config, "party", None)
        held = range(nodes) if party is None else party.nodes
        kept = getattr(run.config, "known_sizes", None)
        if kept is not None and len(kept) != nodes:
            return Difference(
                run.path / "config.json",
                "the number of nodes whose sizes are known",
                *(str(len(kept)), str(nodes), "its settings have"),
            )
        if len(run.ledger.nodes) != len(held):
            return unlike(run, "the number of nodes", len(run.ledger.nodes), len(held))
        # With a rate, batches of each size are; sizes are known where they are whole.
        batch = None if training.batch_size is UNSET else training.batch_size
        tuning = getattr(run.config, "tuning", None)
        if tuning is not None and (
            changed(training, tuning.best.settings) != training
            or tuning.best.noise_multiplier not in (0.0, run.config.noise_multiplier)
        ):
            file = run.path / "config.json"
            what = "the settings that came out of its tries"
            own = f"{tuning.best.settings}, of {len(tuning.sizes)} nodes"
            return Difference(file, what, own, "others", "its training has")
        known: tuple[int | None, ...] = kept or _sizes(run.ledger, batch)
        least = max(1, math.ceil(batch or 1))
        sizes = tuple(least if size is None else size for size in known)
        # How far noisy messages move depends on how many parameters are shared.
        places, plan = _places(run), training
        needs_model = not places and "shared" in plan.family.options.__struct_fields__
        if needs_model:
            places = {"*": range(1)}
            plan = msgspec.structs.replace(
                plan, options={**plan.options, "shared": "*"}
            )

        def planned_for(sizes: tuple[int, ...]) -> Ledger:
            if tuning is not None and tuning.is_charged:
                relation = run.upper.relation
                return tuned_ledger(training, tuning, relation)
            setting = plan.setting(sizes, places)
            whole = training.family.planned(setting, run.config.noise_multiplier)
            clip = getattr(run.config, "clip", None)
            noise = None if clip is None else clip.noise_multiplier
            return with_counts(whole, noise, first=True)

        expected = planned_for(sizes)
        if None in known and planned_for((2 * least,) * nodes) != planned_for(
            (least,) * nodes
        ):
            # Releases without sampling, where none was asked for, hide nothing more.
            wanted = {type(e.release.sampling) for n in expected.nodes for e in n}
            for node in run.ledger.nodes:
                had = {type(e.release.sampling) for e in node}
                if had and not had & wanted:
                    named = (
                        " and ".join(sorted(k.__name__ for k in each))
                        for each in (had, wanted)
                    )
                    return unlike(run, "how records are sampled", *named)
            unchecked.append(
                "the ledger against the settings, as it does not say how many records "
                "the nodes have"
            )
            return None
        most = training.family.plans_at_most(training.setting(sizes))
    except (ValueError, KeyError, OSError) as error:
        # Settings of this version were taken when it began, but for files that they
        # name, which may be others by now, and what promises nothing.
        own = run.config.settings
        files = own.data, own.graph, own.partition
        if not any(one.partition(":")[0] in _FILES for one in files) and (
            run.config.version == __version__ and promises(run)
        ):
            return cannot_be(run, error, "its ledger")
        unchecked.append(f"the ledger against the settings ({error})")
        return None
    whole = party is None and training.unit == "record"
    known_here = kept is not None or run.config.version == __version__
    whole = whole and (known_here or not is_own(training.data))
    if whole and None not in known and sum(sizes) != training.train:
        # Batches of random allocation are whole, and sizes known to within half of one.
        allocated = batches_taken(training.sampling) or training.options.get("buffers")
        slack = nodes * (1 + (batch or 1) / 2) if allocated and kept is None else 0
        if abs(sum(sizes) - training.train) > slack:
            what = "the number of records that its sampling rates are of"
            return unlike(run, what, f"{sum(sizes):,}", f"{training.train:,}")
    if (found := _overlap_unlike(run, training.overlap, training.unit)) is not None:
        return found
    if party is not None and party.shared is not None:
        expected = expected.assuming(COUNTED)
    for missing in set(expected.assumptions) - set(run.ledger.assumptions):
        return assumes_unlike(run, missing)
    unchecked.append("how many records each node has, which needs the data")
    if needs_model:
        unchecked.append("the noise of messages, which needs the model")
    checked.append("the ledger against the settings")
    planned_here = expected.nodes[held.start : held.stop]
    many = [
        [sum(entry.count for entry in node) for node in nodes]
        for nodes in (run.ledger.nodes, planned_here)
    ]
    if isinstance(run, FinishedTraining) and run.has_missed:
        unchecked.append("how many rounds it missed, which the others know")
        if (found := _missed_unlike(run, training.rounds, *many)) is not None:
            return found
    elif RESUMED in run.ledger.assumptions and not most:
        had, planned = map(sum, many)
        if had <= planned:
            what = "the number of releases, some made again with other sums,"
            return unlike(run, what, f"{had:,}", f"more than {planned:,}")
    for node, own, planned in zip(held, run.ledger.nodes, planned_here, strict=True):
        more = RESUMED in run.ledger.assumptions
        if needs_model:
            own, planned = (tuple(map(_counted, each)) for each in (own, planned))
        if _has_all(own, planned) and (more or _has_all(planned, own)):
            continue  # in whatever order
        if getattr(run, "has_missed", False) and _has_part(run.ledger, own, planned):
            continue
        counts = sum(e.count for e in own), sum(e.count for e in planned)
        if counts[0] > counts[1] or (counts[0] < counts[1] and not most):
            what = f"the number of releases of node {node}"
            return unlike(run, what, counts[0], f"{'at most ' * most}{counts[1]}")
        for one, other in zip(own, planned, strict=False):
            if one == other:
                continue
            pair = (msgspec.to_builtins(each) for each in (one, other))
            for where, had, wanted in differ(*pair, loose=False):
                if where != "count" or not most:
                    return unlike(run, f"{where} of node {node}", had, wanted)
    return None


def _counted(entry: Entry) -> Entry:
    """As many releases, of which no more is said."""
    return msgspec.structs.replace(entry, release=_ANY)


def promises(run: Finished) -> bool:
    """Return whether a finite epsilon is certified."""
    return math.isfinite(run.upper.epsilon)


def _by_own_algorithm(run: Finished) -> Difference | None:
    """Difference from the settings where the algorithm is code that is not run."""
    settings, party = run.config.settings, getattr(run.config, "party", None)
    assumed = OWN_ALGORITHM.format(name=settings.algorithm)
    if promises(run) and assumed not in run.ledger.assumptions:
        return assumes_unlike(run, assumed)
    kept = getattr(run.config, "known_sizes", None)
    held = kept if party is None else party.nodes
    if held is not None and len(run.ledger.nodes) != len(held):
        return unlike(run, "the number of nodes", len(run.ledger.nodes), len(held))
    return _overlap_unlike(run, settings.overlap, run.ledger.unit)


def _overlap_unlike(run: Finished, overlap: int, unit: str) -> Difference | None:
    """Difference of the number of nodes at which a unit may be from the settings."""
    ledger, party = run.ledger, getattr(run.config, "party", None)
    # Of a party that is said, since it cannot know what others have.
    unsaid = party is not None and ledger.overlap is UNSET and unit != "node"
    if ledger.most_nodes == overlap and not (unsaid and party.parties > 1):
        return None
    had = "not said" if unsaid else ledger.most_nodes
    return unlike(run, f"the number of nodes at which a {unit} may be", had, overlap)


def _missed_unlike(
    run: FinishedTraining, rounds: int, had: Sequence[int], planned: Sequence[int]
) -> Difference | None:
    """Difference of the rounds that a party missed from how many it released in."""
    pairs, wanted = run.result.missed or (), ""
    if run.config.party is None:
        wanted = "nothing: there are no parties"
    elif not pairs or any(not 0 <= one <= two <= rounds for one, two in pairs):
        wanted = f"some of its {rounds:,} rounds"
    else:
        done = rounds - len({k for pair in pairs for k in range(*pair)})
        for own, whole in zip(had, planned, strict=True):
            if own < whole * done // rounds:
                wanted = f"more rounds, as {own:,} of {whole:,} releases are there"
    if not wanted:
        return None
    file, by = run.path / "result.json", "config and ledger have"
    return Difference(file, "what it missed", str(pairs), wanted, by)


def _places(run: Finished) -> dict[str, range]:
    """Places of the parameters in the model that the run kept; empty if it kept none.

    As `trainers.gradients.per_sample.parameter_places` has them.
    """
    file = RunFolder(run.path) / MODEL
    if not file.is_file():
        return {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as model:
            about = _json.decode((model.metadata() or {})["privaudit"], dict)
        ends = [0, *itertools.accumulate(about["parameters"].values())]
        places = itertools.starmap(range, itertools.pairwise(ends))
        return dict(zip(about["parameters"], places, strict=True))
    except (SafetensorError, OSError, ValueError, LookupError, TypeError):
        return {}  # of an older version


def unlike(
    run: Finished, what: str, had: object, wanted: object, by: str = "config.json"
) -> Difference:
    """Difference of the ledger from the settings."""
    file = run.path / "ledger.json"
    return Difference(file, what, str(had), str(wanted), f"{by} says")


def assumes_unlike(run: Finished, wanted: str, by: str = "config.json") -> Difference:
    """Difference of what the ledger's account assumes."""
    had = "; ".join(run.ledger.assumptions) or "nothing"
    return unlike(run, "what its account assumes", had, wanted, by)


def _has_part(ledger: Ledger, own: Sequence[Entry], planned: Sequence[Entry]) -> bool:
    """Return whether ``own``, of a party that came back, is of what was planned."""
    if RESUMED in ledger.assumptions:
        own = [e for e in own if not isinstance(e.release.sampling, NoSampling)]
    return _has_all(planned, own)


def _has_all(own: Sequence[Entry], planned: Sequence[Entry]) -> bool:
    """Return whether ``own`` has what was planned, or more, as of a resumed run."""
    had, wanted = Counter[Any](), Counter[Any]()
    for counts, entries in ((had, own), (wanted, planned)):
        for entry in entries:
            counts[entry.release, entry.disjoint, entry.dealt] += entry.count
    return wanted <= had


def _sizes(ledger: Ledger, batch_size: float | None) -> tuple[int | None, ...]:
    """Number of records of each node, by its sampling; None where that says nothing."""
    sizes: list[int | None] = []
    for entries in ledger.nodes:
        # Further releases of a run that was resumed have none.
        known = (entry.release.sampling for entry in entries)
        sampling = next((one for one in known if not isinstance(one, NoSampling)), None)
        if isinstance(sampling, SamplingWithoutReplacement):
            sizes.append(sampling.population)
        elif batch_size is None:
            sizes.append(None)
        elif isinstance(sampling, PoissonSampling) and sampling.rate > 0:
            sizes.append(round(batch_size * sampling.parts / sampling.rate))
        elif isinstance(sampling, RandomAllocation):  # a number that gives as many
            sizes.append(max(round(batch_size / sampling.rate), math.ceil(batch_size)))
        else:
            sizes.append(None)
    return tuple(sizes)
