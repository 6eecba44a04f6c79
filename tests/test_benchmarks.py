"""The benchmarks that need what is not here say so; what is counted is right."""

import pathlib
import subprocess
import sys

import pytest
import torch

BENCHMARKS = pathlib.Path(__file__).parent / "benchmarks"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_sentence():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "bench_gpu.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("there is no GPU here")
    assert done.stderr.count("\n") == 1


def test_what_is_counted(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from counting import counted

    left, right = (torch.empty(2, 3, 4, device="meta") for _ in range(2))
    work = counted(lambda: torch.bmm(left, right.mT))
    assert work.flops == 2 * (2 * 3 * 3 * 4)
    assert work.bytes == 4 * (24 + 24 + 18)  # the view moves nothing
    assert work.launches == 1
