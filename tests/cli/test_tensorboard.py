"""What --log-dir writes, read back frame by frame."""

import struct
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privaudit.cli import BAD_USAGE, COULD_NOT, FINE, main
from privaudit.report.load import load
from privaudit.results import single_above

SET = ("train=24", "rounds=4", "model=softmax", "digits=0,1", "batch_size=4", "nodes=2")
TRAIN = ["train", "dp-dsgd", "--epsilon", "4", *(x for s in SET for x in ("--set", s))]


def events(folder):
    """(tag, step, value) of all; a frame is length, checksum, content, checksum."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    (file,) = folder.iterdir()
    content, at = file.read_bytes(), 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        event = event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
        at += length + 16
        for value in event.summary.value:
            yield value.tag, event.step, value.simple_value


def test_they_are_the_figures_of_the_run(tmp_path):
    pytest.importorskip("tensorboardX")
    logs, out = tmp_path / "logs/one", tmp_path / "run"
    assert main([*TRAIN, "--out", str(out), "--log-dir", str(logs)]) == FINE
    found = {}
    for tag, step, value in events(logs):
        found.setdefault(tag, {})[step] = value
    run = load(out)
    for name in ("accuracy", "worst_accuracy", "consensus"):
        known = dict(zip(run.curves.rounds, getattr(run.curves, name), strict=True))
        assert found[name] == pytest.approx(
            {step: known[step] for step in found[name]}, rel=1e-6
        )
        assert 4 in found[name]
    spent = found.pop("epsilon_spent")
    assert spent[4] >= run.upper.epsilon  # an upper bound stays one in single precision
    assert spent[4] == pytest.approx(run.upper.epsilon, rel=1e-6)
    assert list(spent.values()) == sorted(spent.values())


@given(st.floats(0, 1e30))
def test_single_precision_is_never_below(value):
    assert value <= single_above(value) <= value * (1 + 2**-23) + 1e-44
    assert single_above(value) == np.float32(single_above(value))


def test_without_the_extra_nothing_is_begun(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    command = [*TRAIN, "--out", str(tmp_path / "run"), "--log-dir", str(tmp_path / "l")]
    assert main(command) == COULD_NOT
    assert "--log-dir needs tensorboardX" in (error := capsys.readouterr().err)
    assert "whl[tensorboard]" in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder(tmp_path, capsys):
    pytest.importorskip("tensorboardX")
    (tmp_path / "file").touch()
    assert main([*TRAIN, "--log-dir", str(tmp_path / "file")]) == BAD_USAGE
    assert "--log-dir" in capsys.readouterr().err
