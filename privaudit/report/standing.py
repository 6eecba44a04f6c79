"""Words for the standing of an upper bound: certified, conditional, estimate."""

from __future__ import annotations

import dataclasses
import pathlib

from privaudit.files import toml
from privaudit.results import Standing


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """Words for a bound, and for the curve that it is a point of."""

    at_most: str  # beneath the figure
    meaning: str  # among what the figures stand on
    by: str  # before what the figure means
    is_so: str  # behind the figure, within a sentence
    # most, ruled_out: the curve, and the region beyond it, in a legend
    most: str
    ruled_out: str
    otherwise: str = ""  # what else is wrong if an attack gets there


TEXTS = toml.read(pathlib.Path(__file__).with_name("texts.toml"))
WORDS: dict[Standing, Words] = {
    name: Words(**texts) for name, texts in TEXTS["standing"].items()
}
