"""Triton's kernels by its interpreter, which needs no GPU, against the CPU.

In a process of its own, which this file is, too: Triton reads TRITON_INTERPRET when its
functions are defined.
"""

import dataclasses
import importlib
import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

from tests.benchmarks.counting import counted
from trainers.numerics import chacha, noise
from trainers.numerics.keys import Key
from trainers.numerics.noise import GAUSSIAN, LAPLACE, add_noise_, noisy

CPU = torch.device("cpu")
KEY = Key.study("tests of kernels")
#         runs, nodes, width, first run, release, power of the scale
SHAPES = [
    (2, 3, 37, 0, 0, 27.3),
    (1, 1, 2000, 5, 2**40 + 17, 30),
    (3, 2, 300, 2**20, 2**63 + 2**31, 4),
    (1, 1, 1, 0, 1, 20),
]


def by_kernels(call):
    real = noise.kernels
    noise.kernels = lambda *given: True
    try:
        return call()
    finally:
        noise.kernels = real


def rows_of(runs, nodes, width, first, release, marks):
    return KEY.rows(
        "noise", nodes=range(7, 7 + nodes), release=release, width=width,
        runs=range(first, first + runs), fingerprints=marks,
    )  # fmt: skip


def same_bits(one, other):
    return one.dtype == other.dtype and torch.equal(
        one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)
    )


def cases():
    generator = torch.Generator().manual_seed(0)
    for runs, nodes, width, first, release, power in SHAPES:
        values = torch.randn(runs, nodes, width, generator=generator).double() * 1e3
        values[..., ::2] *= 1e-20  # negative zeros come up where noise is little
        for law in (GAUSSIAN, LAPLACE):
            for kind in (torch.float32, torch.float64, torch.int64):
                marks = None
                if width < 100 and law is GAUSSIAN:
                    marks = KEY.fingerprints(values.long())
                at = rows_of(runs, nodes, width, first, release, marks)
                scale, given = 2.0**power, values.to(kind)
                if kind == torch.int64:
                    yield lambda g=given, a=at, s=scale, w=law: add_noise_(
                        g.clone(), a, s, w
                    )
                else:
                    yield lambda g=given, a=at, s=scale, w=law: noisy(g, 0.25, a, s, w)


def words():
    states = chacha.state(bytes(range(32)), bytes(12), 2**32 - 3)
    given = chacha.table(states + states[::-1][:56] + bytes(8), CPU).view(2, 16)
    ends, found = (2**32 - 3, 5), torch.empty(2, 8 * 70, dtype=torch.int64)
    chacha.operators.stream(found, given, [*ends, 140, 70])
    return torch.equal(found, chacha.blocks(given, ends, 70))


def refused(call):
    try:
        by_kernels(call)
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


def main():
    torch.set_num_threads(1)
    importlib.import_module("trainers.numerics.fused")
    differ = [
        number
        for number, call in enumerate(cases())
        if not same_bits(call(), by_kernels(call))
    ]
    at = rows_of(1, 1, 9, 0, 0, None)
    large = torch.zeros(1, 1, 9, dtype=torch.float64)
    large[0, 0, 8] = 2.0**53
    sums = torch.full((1, 1, 9), 2**62)
    told = [
        refused(lambda: noisy(large, 1.0, at, 16.0)),
        refused(lambda: noisy(large * float("nan"), 1.0, at, 16.0)),
        refused(lambda: add_noise_(sums, at, 16.0)),
    ]
    # More in doubt than there is room for: no law leaves as many.
    doubtful = dataclasses.replace(GAUSSIAN, reach=0.0, unit=2.0)
    noise.GAUSSIAN = doubtful
    wide = rows_of(1, 1, 1200, 0, 0, None)
    told.append(
        refused(lambda: noisy(torch.zeros(1, 1, 1200), 1.0, wide, 16.0, doubtful))
    )
    print(json.dumps({"differ": differ, "words": words(), "refused": told}))


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed: it comes with torch for CUDA",
)
def test_kernels_have_the_bits_of_the_cpu():
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainers.numerics.test_fused"],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["differ"] == []
    assert found["words"]
    wanted = "not finite or above", "not finite or above", "beyond 2^62", "in doubt"
    for one, part in zip(found["refused"], wanted, strict=True):
        assert part in one


class TestWhereKernelsAreUsed:
    CUDA = torch.device("cuda", 99)

    @pytest.fixture(autouse=True)
    def untried(self, monkeypatch):
        monkeypatch.setattr(chacha, "_tried", {})
        self.there = True
        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name: self.there if name == "triton" else find(name),
        )
        monkeypatch.setitem(sys.modules, "trainers.numerics.fused", noise)

    def test_where_triton_is_not(self):
        self.there = None
        assert not chacha.kernels(self.CUDA, "x", lambda device: True)

    def test_on_no_cpu(self):
        assert not chacha.kernels(CPU, "x", lambda device: True)

    def test_they_are_tried_once(self):
        tried = []

        def right(device):
            assert chacha.kernels(device, "x", right)  # what is tried uses them
            tried.append(device)
            return True

        assert all(chacha.kernels(self.CUDA, "x", right) for _ in range(3))
        assert tried == [self.CUDA]

    @pytest.mark.parametrize("error", [None, ValueError("no such instruction")])
    def test_what_fails_is_not_used(self, error):
        """A compiler that fails, or makes other numbers, ends no training."""

        def wrong(device):
            if error:
                raise error
            return False

        with pytest.warns(RuntimeWarning, match=str(error or "other numbers")):
            assert not chacha.kernels(self.CUDA, "x", wrong)
        assert not chacha.kernels(self.CUDA, "x", wrong)
        assert chacha.kernels(self.CUDA, "y", lambda device: True)


def test_a_release_takes_five_launches_and_few_bytes():
    """Counted where there are no numbers: kernels, and copies to and from the host."""
    meta, width = torch.device("meta"), 10**6
    at = KEY.rows("noise", nodes=[0], release=0, width=width)
    values = torch.empty(1, 1, width, device=meta)
    noisy(values, 0.25, at, 2.0**27)
    work = counted(lambda: noisy(values, 0.25, at, 2.0**27))
    assert work.launches == 5
    assert work.bytes < 20 * width


if __name__ == "__main__":
    main()
