"""The unit of privacy is a user: in Python, at the command line; what is refused."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import privaudit as pa
from privaudit.cli import FINE, main


def data():
    inputs = torch.randn(120, 5, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs.sum(1) > 0).long()


USERS = [f"user {row % 12}" for row in range(120)]


def trained(**changes):
    settings = {
        **{"nodes": 3, "unit": "user", "epsilon": 8.0, "rounds": 4, "seed": 0},
        **changes,
    }
    return pa.train(nn.Linear(5, 2), data(), **settings)


def test_the_budget_is_a_users(tmp_path):
    run = trained(users=USERS, options={"user_rate": 0.5, "local_steps": 2})
    found = run.certificate.epsilon(1e-5)
    assert found.unit == run.result.upper().unit == run.ledger.unit == "user"
    assert 7.9 < found.lower <= found.upper <= 8
    assert "(unit: user; a user is at one node only)" in str(run)
    (entry,) = run.ledger.nodes[0]
    assert (entry.count, entry.release.sampling.rate) == (4, 0.5)
    run.save(tmp_path / "run")
    assert not pa.verify(tmp_path / "run").differences


def test_the_page_and_the_lines_say_user(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    trained(users=USERS).save(tmp_path / "run")
    assert main(["show", str(tmp_path / "run")]) == FINE
    assert "(unit: user; a user is at one node only)" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run")]) == FINE
    page = (tmp_path / "run" / "report.html").read_text()
    assert "all records of one user" in page
    assert "one user more" in page
    assert "one record" not in page.split("<main", 1)[-1].split("Made again")[0]


def test_a_node_is_a_user_without_labels():
    run = trained()
    alone = pa.epsilon(
        noise_multiplier=run.result.noise_multiplier, steps=4, delta=1e-5
    )
    assert run.certificate.epsilon(1e-5).upper == pytest.approx(alone.upper, rel=1e-3)


def test_a_user_at_two_nodes_is_paid_or_refused():
    inputs, targets = data()
    shares = [(inputs[:60], targets[:60]), (inputs[60:], targets[60:])]
    users = [USERS[:60], USERS[60:]]
    how = {"users": users, "unit": "user", "noise_multiplier": 2.0, "rounds": 3}
    with pytest.raises(ValueError, match=r"records at 2 nodes \(0 and 1\).*overlap=2"):
        pa.train(nn.Linear(5, 2), shares, **how)
    run = pa.train(nn.Linear(5, 2), shares, **how, overlap=2)
    six = pa.epsilon(noise_multiplier=2.0, steps=6, delta=1e-5)
    assert run.certificate.epsilon(1e-5).upper == pytest.approx(six.upper, rel=1e-3)


def test_dealing_keeps_users_whole():
    from trainers.data.shares import Users, shares_of

    found = shares_of(data(), nodes=5, users=Users(USERS), seed=1)
    held = [set(share.users.tolist()) for share in found]
    assert sorted(len(users) for users in held) == [2, 2, 2, 3, 3]
    assert len(set.union(*held)) == 12
    assert sum(map(len, found)) == 120


def test_it_learns():
    run = trained(users=USERS, epsilon=200.0, rounds=30, step_size=0.5, test=data())
    assert run.result.accuracy > 0.9


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": "dp-dsgt"}, "dp-dsgt protects a record"),
        (
            {"unit": None, "users": USERS, "algorithm": "dp-dsgt"},
            "dp-dsgt protects a record: leave users=",
        ),
        ({"unit": "people"}, "unit must be record"),
        ({"unit": "record", "algorithm": "dp-fedavg"}, "dp-fedavg protects a user"),
        ({"users": USERS[:4]}, "120 records: give one label for each"),
        ({"users": 3}, "give one label for each"),
        ({"users": [0.5, np.nan] * 60}, "nan or infinity"),
        ({"users": ["one"] * 120}, "cannot be dealt to 3 nodes"),
        ({"options": {"user_rate": 0}}, "user_rate"),
        ({"options": {"local_steps": 0}}, "local_steps must be >= 1"),
        ({"overlap": 0}, "overlap must be >= 1"),
        ({"overlap": 4}, "overlap, at how many .* user .* at most .* 3, got 4"),
    ],
)
def test_what_is_wrong_is_said(changes, said):
    with pytest.raises(ValueError, match=said):
        trained(**changes)


def test_files_with_users_at_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    inputs, targets = data()
    users = np.repeat(np.arange(12), 10)
    for node in range(2):
        rows = slice(60 * node, 60 * node + 60)
        np.savez(
            tmp_path / "data" / f"node-{node}.npz",
            **{"inputs": inputs[rows], "targets": targets[rows], "users": users[rows]},
        )
    how = ["--data", "data", "--model", "softmax", "--set", "rounds=3", "--json"]
    how += ["--classes", "2"]
    assert main(["train", "dp-fedavg", *how, "--epsilon", "4", "--seed", "0"]) == FINE
    found = json.loads(capsys.readouterr().out)
    assert found["unit"] == "user"
    assert 3.9 < found["certified"] <= 4
