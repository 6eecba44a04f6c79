"""Noise that releases share, by matrix factorisation: docs/factorisation.md."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from msgspec import Meta

from privaudit.accounting.factorization import MOST_BUFFERS, blt, toeplitz
from trainers.algorithms.butterfly import Butterfly, ButterflyFamily, ButterflyOptions
from trainers.algorithms.family import Family
from trainers.algorithms.setting import Options, OptionsType, Setting
from trainers.oracles.mechanism import MOST_BAND, Mechanism

_BAND = 8  # where none is given


class MfOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Noise that releases share, and the parts that records are drawn from in turn.

    Parameters
    ----------
    band
        How many releases share noise, 1 to 256. With 1 it is dp-sgd's. Default: 8, or
        as many batches as make up a node's records, or ``parts``, if these are fewer.
    parts
        Number of parts, each record in one: at least ``band``, which is the default.
        With as many as there are batches in an epoch a record is in each epoch once.
    buffers
        Number of buffers, 1 to 8, of noise that all releases share, without a band
        (BLT). ``parts`` is the number of batches in an epoch, and each is a batch.
    """

    band: Annotated[int, Meta(ge=1, le=MOST_BAND)] | None = None
    parts: Annotated[int, Meta(ge=1)] | None = None
    buffers: Annotated[int, Meta(ge=0, le=MOST_BUFFERS)] = 0

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.buffers and self.band not in (None, 1):
            raise ValueError("give one of band and buffers: what has buffers has none")
        if self.buffers and (self.parts is None or self.parts < 2):
            raise ValueError(
                "noise by buffers needs parts, the number of batches in an epoch, 2 or "
                f"more, got {self.parts}: how far a record moves sums depends on it"
            )

    def arguments(self, rounds: int) -> dict[str, object]:
        """All but how noise is made."""
        return {
            name: value
            for name, value in Options.arguments(self, rounds).items()
            if name not in MfOptions.__struct_fields__
        }

    def noise(self, releases: int, most: int = _BAND) -> dict[str, Any]:
        """Strategy and parts of a `Mechanism` that makes so many releases.

        ``most``: the band where none is given.
        """
        if self.buffers:
            assert self.parts is not None
            column = blt(releases, min(self.parts, releases), self.buffers)
            return {"buffers": column, "parts": self.parts}
        return _noise(self.band, self.parts, releases, most)


def _noise(
    band: int | None, parts: int | None, releases: int, most: int
) -> dict[str, Any]:
    if band is None:
        band = min(_BAND, most if parts is None else parts)
    column = toeplitz(releases, min(band, releases))
    return {"strategy": column, "parts": band if parts is None else parts}


def _most_parts(plain: Mechanism, sizes: tuple[int, ...]) -> int:
    """Number of parts of which each has a batch, at every node."""
    rates = (plain.sampling_rate(size) for size in sizes)
    return min((math.floor(1 / rate + 1e-9) for rate in rates), default=_BAND)


class MfFamily(Family[OptionsType]):
    """An algorithm whose noise is C^-1 times independent noise, C Toeplitz.

    The C of least mean square error of sums of gradients, for as many as it releases.
    """

    def mechanism(
        self, setting: Setting[OptionsType], noise_multiplier: float
    ) -> Mechanism:
        assert isinstance(setting.options, MfOptions)
        plain = super().mechanism(setting, noise_multiplier)
        most = _most_parts(plain, setting.sizes)
        noise = setting.options.noise(self.releases(setting), most)
        return dataclasses.replace(plain, **noise)


class MfButterflyOptions(ButterflyOptions, frozen=True, kw_only=True):
    """Options of `Butterfly`, and of noise that releases share.

    Parameters
    ----------
    band, parts
        As of `MfOptions`.
    """

    band: Annotated[int, Meta(ge=1, le=MOST_BAND)] | None = None
    parts: Annotated[int, Meta(ge=1)] | None = None


class MfButterflyFamily(ButterflyFamily):
    """Butterfly sums with noise that a node's releases share.

    Nodes send sums of C's rows, with fresh noise; who has the sum of all takes off what
    it has of earlier ones, so that the common model is as with shared noise.
    """

    def _noise(self, setting: Setting[ButterflyOptions]) -> dict[str, Any]:
        options = setting.options
        assert isinstance(options, MfButterflyOptions)
        most = _most_parts(super().mechanism(setting, 0.0), setting.sizes)
        return _noise(options.band, options.parts, self.releases(setting), most)

    def algorithm(self, setting: Setting[ButterflyOptions]) -> Butterfly:
        shares = self._noise(setting)["strategy"][1:]
        return dataclasses.replace(super().algorithm(setting), shares=shares)

    def mechanism(
        self, setting: Setting[ButterflyOptions], noise_multiplier: float
    ) -> Mechanism:
        plain = super().mechanism(setting, noise_multiplier)
        return dataclasses.replace(plain, **self._noise(setting))
