"""Contract of privaudit.api.federation: a job has names; a site says what it runs."""

import json
import re

import pytest

from privaudit.api.federation import SITE, Job, SiteFile, write
from privaudit.cli import main

ASKED = {
    "name": "joint",
    "what": "dp-dsgt",
    "settings": {"epsilon": 4.0},
    "changes": {"graph": "ring", "model": "mine:net"},
    "sites": ("ward", "clinic"),
}


def site(**more):
    given = {"out": "/runs", "most_epsilon": 4.0, "modules": ("mine",), **more}
    return SiteFile(**given)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "../joint"}, "names of jobs and sites"),
        ({"sites": ("ward", "a/b")}, "names of jobs and sites"),
        ({"sites": ("ward", "ward")}, "one name twice"),
        ({"sites": ("ward",)}, "length >= 2"),
        ({"what": "recipes/mine.toml"}, "would be a file of each site"),
        ({"changes": {"graph": "edges:friends.csv"}}, "would be a file of each site"),
        ({"changes": {"partition": "file:nodes"}}, "would be a file of each site"),
        ({"changes": {"data": "folder:/etc"}}, "data is each site's own"),
        ({"changes": {"nodes": 7}}, "nodes is each site's own"),
        ({"settings": {"epsilon": 1.0, "key_file": "k"}}, "key_file is each site's"),
        ({"settings": {"epsilon": 1.0, "parties": False}}, "parties is each site's"),
        ({"settings": {"epsilon": -1.0}}, "epsilon must be"),
        ({"settings": {"run": "rm"}}, "there is no setting 'run'"),
        ({"command": "rm"}, "unknown field"),
        ({"changes": {"model": "os:_exit"}}, "code of os"),
        ({"what": "theirs:Algorithm"}, "code of theirs"),
        ({"changes": {"loss": "mine.more:loss"}}, "code of mine.more"),
        ({"settings": {"epsilon": 1.0, "seed": 3}}, "no studies"),
        ({"settings": {"epsilon": 4.01}}, "lets 4 be spent at most"),
        ({"settings": {}}, "asks for epsilon None"),
        ({"settings": {"epsilon": 1.0, "delta": 0.01}}, "delta 0.01"),
        ({"settings": {"epsilon": 1.0, "noise_multiplier": 0.1}}, "chooses its noise"),
        ({"settings": {"epsilon": 1.0, "account": "rdp"}}, "chooses its noise"),
        ({"settings": {"epsilon": 1.0, "calibrate": "paper"}}, "chooses its noise"),
        ({"what": "bayrooti-2023"}, "there is no algorithm 'bayrooti-2023'"),
    ],
)
def test_what_a_site_does_not_let_run(changed, words):
    with pytest.raises(ValueError, match=words):
        site().accepted({**ASKED, **changed})


def test_a_default_is_asked_for_too():
    with pytest.raises(ValueError, match="delta 1e-05, where this site lets 1e-06"):
        site(most_delta=1e-6).accepted(ASKED)


def test_what_a_site_lets_run(tmp_path):
    here = site(data=str(tmp_path), device="cpu", key_file="/keys/own")
    job = here.accepted(ASKED)
    assert here.changes(job.changes)["data"] == f"folder:{tmp_path}"
    settings = here.over(job.training_settings())
    assert settings.parties
    assert settings.epsilon == 4.0
    assert str(settings.key_file) == "/keys/own"
    study = {**ASKED, "settings": {"epsilon": 1.0, "seed": 3, "noise_multiplier": 0.1}}
    assert site(studies=True).accepted(study).training_settings().seed == 3


def test_the_file_of_a_site(tmp_path):
    file = tmp_path / "privaudit.toml"
    with pytest.raises(ValueError, match="it says where this site's data"):
        SiteFile.read(file)
    file.write_text(SITE)
    assert SiteFile.read(file).modules == ()
    assert not SiteFile.read(file).studies
    file.write_text(SITE + "anything = 1\n")
    with pytest.raises(ValueError, match=r"privaudit.toml: .* unknown field"):
        SiteFile.read(file)


def test_what_is_written(tmp_path):
    """A job without code, to be read by whoever approves it."""
    there = tmp_path / "joint"
    write(there, Job(**ASKED), server="flare.example.org")
    app = there / "job" / "app"
    assert [one.name for one in app.iterdir()] == ["config"]
    client = json.loads((app / "config/config_fed_client.json").read_text())
    (executor,) = client["executors"]
    sealed = executor["executor"]["args"].pop("sealed")
    assert sealed is True
    assert site().accepted(executor["executor"]["args"]) == Job(**ASKED)
    meta = json.loads((there / "job/meta.json").read_text())
    assert meta["mandatory_clients"] == ["ward", "clinic"]
    project = (there / "project.yml").read_text()
    assert "  - name: flare.example.org\n    type: server" in project
    assert "  - name: clinic\n    type: client" in project
    assert "sites: [ward, clinic]" in project
    assert "relay" not in project
    with pytest.raises(ValueError, match="is not empty"):
        write(there, Job(**ASKED))
    with pytest.raises(ValueError, match="the name of a server"):
        write(tmp_path / "two", Job(**ASKED), server="a: b")


def test_a_relay(tmp_path):
    """Sites know the relay alone, and it is reached as safely as the server."""
    write(tmp_path / "joint", Job(**ASKED), server="flare", relay="hub.example.org")
    project = (tmp_path / "joint/project.yml").read_text()
    # FLARE takes no name of a relay with dots.
    assert project.count("    connect_to:\n      name: hub-example-org\n") == 2
    (relay,) = re.findall(r"(?m)^  - name: hub.*(?:\n    .*)*", project)
    assert "type: relay" in relay
    assert "default_host: hub.example.org" in relay
    assert project.count("connection_security: mtls") == 2
    with pytest.raises(ValueError, match="names of their own"):
        write(tmp_path / "two", Job(**ASKED), server="flare", relay="ward")


def test_the_command(tmp_path, capsys):
    out = tmp_path / "joint"
    words = ["federation", "init", "dp-dsgt", "--site", "ward", "--site", "clinic"]
    assert (
        main([*words, "--epsilon", "4", "--set", "graph=ring", "--out", str(out)]) == 0
    )
    assert "nvflare provision" in capsys.readouterr().out
    args = json.loads((out / "job/app/config/config_fed_client.json").read_text())
    assert args["executors"][0]["executor"]["args"]["settings"] == {"epsilon": 4.0}
    assert main([*words, "--seed", "0", "--key-file", "k", "--out", str(out)]) == 2
