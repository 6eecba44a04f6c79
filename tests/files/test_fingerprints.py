"""What a function reads is what it is; each case is patched and made anew."""

import collections
import copy
import dataclasses
import datetime
import functools
import logging
import random
import sys
import types
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest

from privaudit.files.fingerprints import check_differ, fingerprint

SCALE, LEVELS, DRAWS = 1.0, {"noise": [1.0]}, np.random.default_rng(0)
LOG = logging.getLogger(__name__)
HERE = sys.modules[__name__]
OTHER = types.ModuleType("somebodys")
exec("scale = 1.0\ndef noise(rng): return rng.laplace(scale=scale)", vars(OTHER))


class Settings:
    scale = 1.0


def noise(rng):
    return rng.laplace(scale=SCALE)


def by_global(data, rng):
    return sum(data) + rng.laplace(scale=SCALE)


def by_helper(data, rng):
    return sum(data) + noise(rng)


def by_nested(data, rng):
    return sum(data) + (lambda: noise(rng))()


def by_class(data, rng):
    return sum(data) + rng.laplace(scale=Settings.scale)


def by_dictionary(data, rng):
    return sum(data) + rng.laplace(scale=LEVELS["noise"][0])


def by_module(data, rng):
    return sum(data) + OTHER.noise(rng)


def by_import(data, rng):
    import somebodys

    return sum(data) + rng.laplace(scale=somebodys.scale)


def by_name(data, rng):
    return sum(data) + rng.laplace(scale=getattr(HERE, "SCALE"))  # noqa: B009


def by_itself(data, rng, depth=3):
    return by_itself(data, rng, depth - 1) if depth else noise(rng)


@functools.wraps(np.sum)
def wrapper(data, rng):
    return np.sum(data) + noise(rng)


@functools.cache
def cached(data, rng):
    return sum(data) + noise(rng)


class Mechanism:
    scale = 1.0

    def __call__(self, data, rng):
        return sum(data) + rng.laplace(scale=self.scale)


class Slotted:
    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 1.0

    def __call__(self, data, rng):
        return sum(data) + rng.laplace(scale=self.scale)


class Listed(list):
    scale = 1.0


@dataclasses.dataclass
class Declared:
    epsilon: float
    scale: dataclasses.InitVar[float] = 1.0

    def __post_init__(self, scale):
        self.kept = scale

    def __call__(self, data, rng):
        return sum(data) + rng.laplace(scale=self.kept)


@dataclasses.dataclass
class Inherits(Declared):
    pass


def local():
    class Local(Mechanism):
        pass

    return Local()


def instance(made, name, value=0.01):
    """A mechanism, and what changes it."""
    return made, mock.patch.object(made, name, value)


READ = {
    "a global": (by_global, mock.patch.object(HERE, "SCALE", 0.01)),
    "a false global": (by_global, mock.patch.object(HERE, "SCALE", 0)),
    "in a dictionary": (by_dictionary, mock.patch.dict(LEVELS, noise=[0.01])),
    "a helper": (by_helper, mock.patch.object(HERE, "noise", abs)),
    "a helper's global": (by_helper, mock.patch.object(HERE, "SCALE", 0.01)),
    "in nested code": (by_nested, mock.patch.object(HERE, "SCALE", 0.01)),
    "by its name": (by_name, mock.patch.object(HERE, "SCALE", 0.01)),
    "of itself": (by_itself, mock.patch.object(HERE, "SCALE", 0.01)),
    "of a class": (by_class, mock.patch.object(Settings, "scale", 0.01)),
    "of a module": (by_module, mock.patch.object(OTHER, "scale", 0.01)),
    "a module's function": (by_module, mock.patch.object(OTHER, "noise", abs)),
    "imported within": (by_import, mock.patch.object(OTHER, "scale", 0.01)),
    "a builtin": (by_global, mock.patch("builtins.sum", lambda data: data[0])),
    "of what wraps": (wrapper, mock.patch.object(HERE, "SCALE", 0.01)),
    "of what caches": (cached, mock.patch.object(HERE, "SCALE", 0.01)),
    "of a partial": (
        functools.partial(by_helper, rng=None),
        mock.patch.object(HERE, "SCALE", 0.01),
    ),
    "a method": (Mechanism(), mock.patch.object(Mechanism, "__call__", by_global)),
    "a class attribute": (Mechanism(), mock.patch.object(Mechanism, "scale", 0.01)),
    "of a bound method": (
        Mechanism().__call__,
        mock.patch.object(Mechanism, "scale", 0.01),
    ),
    "an attribute": instance(Mechanism(), "scale"),
    "of a local class": instance(local(), "scale"),
    "no field": instance(Declared(1.0), "kept"),
    "inherited": (Inherits(1.0), mock.patch.object(Declared, "__call__", by_global)),
    "of a list": (Listed([1]), mock.patch.object(Listed, "scale", 0.01)),
    "of a function": instance(by_helper, "__kwdefaults__", {"rng": None}),
}


@pytest.fixture(autouse=True)
def _somebodys(monkeypatch):
    monkeypatch.setitem(sys.modules, "somebodys", OTHER)


class TestFunctions:
    @pytest.mark.parametrize(("mechanism", "patched"), READ.values(), ids=READ)
    def test_what_is_read_counts(self, mechanism, patched):
        before = fingerprint(mechanism)
        assert fingerprint(mechanism) == before
        with patched:
            assert fingerprint(mechanism) != before
        assert fingerprint(mechanism) == before

    def test_an_attribute_kept_in_a_slot_counts(self):
        slotted = Slotted()
        before = fingerprint(slotted)
        slotted.scale = 0.01
        assert fingerprint(slotted) != before

    def test_what_is_made_anew_stays_the_same(self):
        assert fingerprint(local()) == fingerprint(local())
        assert fingerprint(Declared(1.0)) == fingerprint(Declared(1.0))
        assert fingerprint(Declared(1.0)) != fingerprint(Declared(1.0, 0.01))

    def test_what_draws_is_the_same_after_it_drew(self):
        def made():
            return lambda data, rng: LOG.debug(data) or DRAWS.laplace() + inner()

        inner = random.Random(0).random
        before = fingerprint(made())
        DRAWS.random(), inner()
        assert fingerprint(made()) == before

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (DRAWS.laplace, DRAWS.normal),
            (np.random.laplace, np.random.normal),
            (np.add, np.subtract),
            ([].append, [1].append),
            (len, sum),
            (functools.partial(by_helper, 1), functools.partial(by_helper, 2)),
            (functools.cache(by_helper), functools.cache(by_global)),
            (np.vectorize(lambda x: x), np.vectorize(lambda x: -x)),
        ],
    )
    def test_functions_of_libraries_are_told_apart(self, one, other):
        assert fingerprint(one) == fingerprint(one)
        assert fingerprint(one) != fingerprint(other)

    def test_libraries_are_known_by_their_names(self):
        def made(data, rng):
            return np.linalg.norm(data) + rng.laplace() + np.sum(DRAWS.random(2))

        walked = mock.patch.object(np.linalg, "norm", abs)
        before = fingerprint(made)
        with walked:
            assert fingerprint(made) == before


class TestData:
    def test_what_contains_itself(self):
        data = [1]
        data.append(data)
        other = [2]
        other.append(other)
        node = types.SimpleNamespace(value=1)
        node.next = {"set of": frozenset([lambda: node])}
        assert fingerprint(data) != fingerprint(other)
        assert fingerprint(data) == fingerprint(data)
        assert fingerprint(node) == fingerprint(node)
        check_differ((data, other))

    def test_nested_too_deeply(self):
        data = []
        for _ in range(10_000):
            data = [data]
        with pytest.raises(ValueError, match="nested too deeply"):
            check_differ((data, []))

    def test_long_chains_of_code_and_instances(self):
        first = types.SimpleNamespace(next=None)
        for _ in range(10_000):
            first = types.SimpleNamespace(next=first)
        assert len(fingerprint(first)) == 64

    def test_equal_values_however_they_are_shared(self):
        shared = [1.5]
        assert fingerprint([shared, shared]) == fingerprint([[1.5], [1.5]])
        day = collections.OrderedDict(a=shared)
        assert fingerprint([day, day]) == fingerprint([day, day.copy()])
        objects = np.array([shared, None], object)
        assert fingerprint(objects) == fingerprint(objects.copy())

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (Fraction(1, 2), Fraction(1, 3)),
            (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
            (collections.deque([1]), collections.deque([2])),
            (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
        ],
    )
    def test_values_of_other_kinds(self, one, other):
        assert fingerprint([one, one]) == fingerprint([one, one])
        assert fingerprint(one) == fingerprint(copy.deepcopy(one))
        assert fingerprint(one) != fingerprint(other)

    def test_times_of_pandas_and_half_tensors(self):
        pandas, torch = map(pytest.importorskip, ("pandas", "torch"))
        days = pandas.date_range("2020-01-01", periods=2)
        assert fingerprint(days[0]) == fingerprint(days[0]) != fingerprint(days[1])
        half = torch.ones(1, dtype=torch.bfloat16)
        assert fingerprint(half) == fingerprint(half.clone()) != fingerprint(2 * half)
        assert fingerprint(half) != fingerprint(half.float())
        hollow = torch.ones(1, device="meta")  # as an oracle's template is
        assert fingerprint(hollow) != fingerprint(hollow.repeat(2))

    def test_all_columns_of_wide_frames(self):
        pandas = pytest.importorskip("pandas")
        wide = pandas.DataFrame(np.zeros((1, 99)))
        other = wide.rename(columns={50: "fifty"})
        assert fingerprint(wide) != fingerprint(other)
        assert fingerprint(wide[0]) != fingerprint(wide[0].rename("first"))
