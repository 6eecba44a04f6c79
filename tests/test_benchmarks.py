"""The benchmarks that need what is not here say so; what is counted is right."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch

BENCHMARKS = pathlib.Path(__file__).parent / "benchmarks"


@pytest.mark.full
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


@pytest.mark.full
def test_of_a_gpu_one_object_is_told(monkeypatch, capsys):
    """By what needs none: counts, and the CPU in the GPU's place."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_gpu

    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", "--count", "rounds", "recipe"])
    monkeypatch.setattr(bench_gpu, "METHODS", ["dp-dsgd"])
    bench_gpu.main()
    told = json.loads(capsys.readouterr().out)
    assert told["device"] is None
    assert told["rounds"]["dp-dsgd"]["counted"]["gflop"] > 0
    assert bench_gpu.RECIPE in told["recipe"]["command"]
    some = {name: bench_gpu.ALGORITHMS[name] for name in ("dp-dsgt", "partpsp")}
    monkeypatch.setattr(bench_gpu, "ALGORITHMS", some)
    equal = bench_gpu.equality(False, "cpu")
    assert equal == {
        name: dict.fromkeys(("difference", "as a graph"), 0.0) for name in some
    }


@pytest.mark.full
def test_growth_is_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_growth

    row = bench_growth.network("ring", "4", "mlp:4", "4", "3")
    assert row["edges"] == 8
    assert min(row["mixing"], row["noise"], row["ms"]) > 0
    run = bench_growth.audit("100", "3", "4")
    assert run["per_second"] > 0


def test_what_is_counted(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from counting import counted

    left, right = (torch.empty(2, 3, 4, device="meta") for _ in range(2))
    work = counted(lambda: torch.bmm(left, right.mT))
    assert work.flops == 2 * (2 * 3 * 3 * 4)
    assert work.bytes == 4 * (24 + 24 + 18)  # the view moves nothing
    assert work.launches == 1


@pytest.mark.full
def test_ways_to_train_are_compared(monkeypatch, capsys, tmp_path):
    """The quickest task, by two algorithms, and their picture."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_choosing
    import tasks

    ways = {
        name: lambda task, seed, name=name: bench_choosing.algorithm_way(
            task, seed, name=name, epsilon=8.0, runs=1
        )
        for name in ("dp-sgd", "dp-dsgd")
    }
    found = bench_choosing.compare({"wine": tasks.wine, "again": tasks.wine}, ways, 1)
    assert found["dp-sgd"]["wine"] == found["dp-sgd"]["again"]
    assert all(0.8 < row["wine"]["score"] <= 1 for row in found.values())
    bench_choosing.show(found)
    assert capsys.readouterr().out.count("dp-dsgd") == 3
    bench_choosing.draw(found, str(tmp_path / "it.svg"))
    assert "<svg" in (tmp_path / "it.svg").read_text()


def test_the_page_on_choosing_has_the_figures_that_were_kept(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_choosing as bench

    text, known = bench.PAGE.read_text(), json.loads(bench.KEPT.read_text())
    assert bench.page(text, known) == text
    known["uneven"]["found"]["defaults"]["tokens"]["score"] = 0.123
    assert "12.3" in bench.page(text, known)
