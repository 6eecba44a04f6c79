"""Events of dp-accounting, read as releases; and events in files."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import attrs
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent

from privaudit.files import json as _json
from privaudit.ledger import Entry, Ledger
from privaudit.release import (
    NoSampling,
    PoissonSampling,
    Release,
    Sampling,
    SamplingWithoutReplacement,
)

_NO_NOISE = Release.of_sum(norm_bound=1.0, noise_multiplier=0.0, sampling=NoSampling())


class UnknownEventError(ValueError):
    """An event that is no release that a ledger knows."""

    def __init__(self, event: DpEvent, why: str) -> None:
        super().__init__(f"{type(event).__name__}: {why}")
        self.event, self.why = event, why


def releases(event: DpEvent, count: int = 1) -> Iterator[tuple[Release, int, DpEvent]]:
    """The releases of an event, each with its number and the event that it was.

    A noise multiplier is noise over the bound on *one record's norm*, as the events'
    own documentation has it. Raises `UnknownEventError`.
    """
    match event:
        case dp_event.NoOpDpEvent():
            pass
        case dp_event.NonPrivateDpEvent():
            yield _NO_NOISE, count, event
        case dp_event.SelfComposedDpEvent():
            yield from releases(event.event, event.count * count)
        case dp_event.ComposedDpEvent():
            for part in event.events:
                yield from releases(part, count)
        case dp_event.PoissonSampledDpEvent():
            sampling = PoissonSampling(float(event.sampling_probability))
            yield _release(event, event.event, sampling), count, event
        case dp_event.SampledWithoutReplacementDpEvent():
            fixed = SamplingWithoutReplacement(
                event.sample_size, event.source_dataset_size
            )
            yield _release(event, event.event, fixed), count, event
        case _:
            yield _release(event, event, NoSampling()), count, event


def ledger_of(event: DpEvent) -> Ledger:
    """The ledger of one node that released ``event``. Raises `UnknownEventError`."""
    entries = [
        Entry(release, count)
        for release, count, _ in releases(event)
        if count and release.sampling.rate
    ]
    return Ledger(nodes=(tuple(entries),))


def to_json(event: DpEvent) -> str:
    """``event`` as JSON: its named tuple's fields, a dictionary for each event."""
    return _json.encode(_fields(event)).decode()


def from_json(text: str | bytes) -> DpEvent:
    """The event in ``text``, as `to_json` writes it.

    That is dp-accounting's own named tuple, ``DpEvent.to_named_tuple``, with its fields
    as keys, ``class_name`` among them. Raises ``ValueError`` if it is none.
    """
    return _event(_json.decode(text, dict))


def _release(event: DpEvent, inner: DpEvent, sampling: Sampling) -> Release:
    match inner:
        case dp_event.GaussianDpEvent():
            mechanism = "gaussian"
        case dp_event.LaplaceDpEvent():
            mechanism = "laplace"
        case _:
            raise UnknownEventError(
                event, "only Gaussian and Laplace events are accounted"
            )
    return Release.of_sum(
        norm_bound=1.0,
        noise_multiplier=float(inner.noise_multiplier),
        sampling=sampling,
        mechanism=mechanism,
    )


def _fields(value: Any) -> Any:
    if isinstance(value, DpEvent):
        return {
            "module_name": type(value).__module__,
            "class_name": type(value).__name__,
        } | {
            name: _fields(part)
            for name, part in attrs.asdict(value, recurse=False).items()
        }
    if isinstance(value, (list, tuple)):
        return [_fields(part) for part in value]
    return value


@functools.cache
def _known() -> dict[str, type[DpEvent]]:
    return {
        name: kind
        for name, kind in vars(dp_event).items()
        if isinstance(kind, type) and issubclass(kind, DpEvent) and kind is not DpEvent
    }


def _event(value: Any) -> Any:
    if isinstance(value, list):
        return [_event(part) for part in value]
    if not isinstance(value, dict):
        return value
    name = value.get("class_name")
    if name not in _known():
        raise ValueError(
            f"this is no event of dp-accounting's: its class_name is {name!r}; known: "
            f"{', '.join(_known())}"
        )
    fields = {
        key: _event(part)
        for key, part in value.items()
        if key not in ("module_name", "class_name")
    }
    try:
        return _known()[name](**fields)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
