"""The real FLARE, where it is installed: `make integrations`."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("nvflare")
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message

import privaudit as pa
from privaudit.api.federation import Job, write
from privaudit.ledger import Ledger
from trainers.network.by_flare import ByFlare, by_kit
from trainers.network.exchange import CameBack, PartyLostError
from trainers.network.kit import Kit

pytestmark = pytest.mark.filterwarnings("ignore")  # FLARE's own

MINE = """
import torch

def share(node):
    generator = torch.Generator().manual_seed(node)
    inputs = torch.randn(60 + 7 * node, 5, generator=generator)
    return inputs, (inputs.sum(1) > 0).long()

def all_shares():
    return [share(node) for node in range(3)]

def net():
    return torch.nn.Linear(5, 2)
"""
SETTINGS = {"noise_multiplier": 1.5, "epsilon": 1000.0, "seed": 3}
CHANGES = {"rounds": 8, "graph": "ring", "batch_size": 10, "model": "mine:net"}


def test_the_simulator_makes_the_bits_of_one_process(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    sites = ("site-1", "site-2", "site-3")
    job = Job(
        name="three", what="dp-dsgt", settings=SETTINGS, changes=CHANGES, sites=sites
    )
    write(tmp_path / "three", job, sealed=False)
    (tmp_path / "site.toml").write_text(
        f'out = "{tmp_path}/runs"\ndata = "mine:share"\nmodules = ["mine"]\n'
        "most_epsilon = 1000.0\nstudies = true\n"
    )
    local = tmp_path / "work" / "local"
    local.mkdir(parents=True)
    allowed = {"class_allow_list": ["privaudit.api.flare"]}
    (local / "resources.json").write_text(json.dumps(allowed))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.getcwd(), str(tmp_path)]),
        "PRIVAUDIT_SITE": str(tmp_path / "site.toml"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "nvflare.cli", "simulator", "-n", "3", "-t", "3"]
    command += ["-w", str(tmp_path / "work"), str(tmp_path / "three" / "job")]
    subprocess.run(command, env=environment, timeout=300, check=True)
    given = {"__name__": "mine"}
    exec(MINE, given)  # the sites import it by its name
    whole = pa.train(
        given["net"],
        given["all_shares"](),
        "dp-dsgt",
        **{"rounds": 8, "graph": "ring", "batch_size": 10},
        **{"noise_multiplier": 1.5, "seed": 3},
    )
    joint = pa.join([tmp_path / f"runs/three/party-{party}" for party in range(3)])
    assert joint.ledger == whole.ledger


def commands(tmp_path, *options):
    """Status of a training for each of ``options``, at once, and what it said."""
    environment = {**os.environ, "PYTHONPATH": f"{os.getcwd()}{os.pathsep}{tmp_path}"}
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "privaudit", "train", "dp-dsgt"]
    command += ["--model", "mine:net", "--noise-multiplier", "1.5", "--seed", "3"]
    for change in ("graph=ring", "rounds=8", "batch_size=10"):
        command += ["--set", change]
    piped = {"env": environment, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*command, *each], **piped) for each in options]
    said = [one.communicate(timeout=240)[1] for one in started]
    return [(one.returncode, text) for one, text in zip(started, said, strict=True)]


def with_kit(kit, out):
    words = ["--exchange", "flare", "--kit", str(kit), "--data", "mine:share"]
    return [*words, "--out", str(out)]


@pytest.fixture
def kits(tmp_path):
    """Kits of three sites, whose server runs."""
    (tmp_path / "mine.py").write_text(MINE)
    sites = ("ward", "clinic", "lab")
    job = Job(name="joint", what="dp-dsgt", settings={"epsilon": 4.0}, sites=sites)
    write(tmp_path / "joint", job)
    project = tmp_path / "joint/project.yml"
    with socket.socket() as one, socket.socket() as two:
        for held, port in ((one, "8002"), (two, "8003")):
            held.bind(("", 0))
            free = str(held.getsockname()[1])
            project.write_text(project.read_text().replace(port, free))
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project)]
    command += ["-w", str(tmp_path / "kits")]
    subprocess.run(command, env=environment, timeout=120, check=True)
    found = tmp_path / "kits/joint/prod_00"
    server = [sys.executable, "-m", "nvflare.private.fed.app.server.server_train"]
    server += ["-m", str(found / "localhost"), "-s", "fed_server.json", "--set"]
    server += ["secure_train=true", "org=ward", "config_folder=config"]
    with subprocess.Popen(server, env=environment) as running:
        yield [found / site for site in sites]
        running.kill()


def test_sites_train_by_their_kits(kits, tmp_path):
    """To the bits of one process; who has another's certificate is not let in."""
    out, one = tmp_path / "out", ["--data", "mine:all_shares", "--out"]
    found = commands(tmp_path, *(with_kit(kit, out) for kit in kits))
    assert [status for status, _ in found] == [0, 0, 0], found
    assert commands(tmp_path, [*one, str(tmp_path / "one")])[0][0] == 0
    joint = pa.join([out / f"party-{party}" for party in range(3)])
    kept = (tmp_path / "one/ledger.json").read_text()
    assert joint.ledger == Ledger.from_json(kept)
    whole = load_file(tmp_path / "one/model.safetensors")
    for party in range(3):
        kept = load_file(out / f"party-{party}/model.safetensors")
        assert {name: x.equal(whole[name]) for name, x in kept.items()} == {
            f"node{party}.{name}": True for name in ("weight", "bias")
        }
    file = kits[1] / "startup/fed_client.json"
    file.write_text(file.read_text().replace("clinic", "ward"))
    ((status, said),) = commands(tmp_path, with_kit(kits[1], tmp_path / "forged"))
    assert status == 3
    assert "FLARE's server does not let ward in" in said
    for _ in range(3):  # in one process, whose FLARE keeps what it has named
        with by_kit(Kit.read(kits[0]), 60) as exchange:
            assert exchange.rank == 0


class Cell:
    """A cell that delivers to others of this process what is signed by its own name."""

    def __init__(self, name, cells):
        self.name, self.cells, self.sealed = name, cells, True
        cells[name] = self

    def register_request_cb(self, channel, topic, cb):
        self.cb = cb

    def send_request(self, channel, topic, target, request, timeout, secure, optional):
        if target not in self.cells:
            return make_reply(ReturnCode.TARGET_UNREACHABLE)
        headers = {
            MessageHeaderKey.ORIGIN: self.name,
            MessageHeaderKey.SECURE: secure and self.sealed,
        }
        return self.cells[target].cb(Message(headers, bytearray(request.payload)))

    def fire_and_forget(self, channel, topic, targets, message, secure, optional):
        self.send_request(channel, topic, targets, message, 1, secure, optional)


@pytest.fixture
def pair():
    cells, places = {}, ["ward.job", "clinic.job"]
    both = [ByFlare(Cell(place, cells), places, i, 2) for i, place in enumerate(places)]
    for one in both:
        one.expects(1 << 20)
    return *both, cells


LIKE = torch.zeros(1, 1, 3)


def test_a_site_that_began_anew_is_lost(pair):
    """Its next process knows of nothing that was sent to the one before."""
    here, there, cells = pair
    there.send(0, LIKE, 4, "theta")
    again = ByFlare(cells["clinic.job"], ["ward.job", "clinic.job"], 1, 2)
    assert not again._carry(0, "words", "begin", b"[]", 1)
    with pytest.raises(PartyLostError, match="party 1 has ended"):
        here.check()


def test_a_site_that_was_lost_is_there_again():
    """It hears that it is to wait, and others that they are to begin anew."""
    cells, places = {}, ["ward.job", "clinic.job", "lab.job"]
    every = [ByFlare(Cell(x, cells), places, i, 2) for i, x in enumerate(places)]
    for one in every:
        one.may_go_on()
        one._say("begin", b"[]")
        one.begins(0)
    again = ByFlare(cells["clinic.job"], places, 1, 2)
    assert not again._carry(0, "words", "settings", b"[]", 1)
    assert again._busy.keys() == {0}
    here, _, third = every
    assert here.left.keys() == here.back == {1}
    for one in (here, third):
        one.kept(3)
    assert here.all_kept(3)
    assert third.all_kept(3)
    for one in (here, third):  # which has heard nothing of it itself
        with pytest.raises(CameBack, match="is there again"), one:
            one.begin_anew(3)
        assert one.failure is None


def test_messages_and_words_come(pair):
    here, there, _ = pair
    there.send(0, LIKE + 2, 4, "theta")
    assert here.receive(1, LIKE, 4, "theta").equal(LIKE + 2)
    there._say("begin", b"[1]")
    assert here.told("begin", [2], list[int]) == [[2], [1]]
    there.send(0, LIKE, 5, "theta")
    with pytest.raises(PartyLostError, match="theta of round 5"):
        here.receive(1, LIKE, 6, "theta")


def test_who_has_no_part_is_not_heard(pair):
    here, _, cells = pair
    stranger = ByFlare(Cell("other.job", cells), ["ward.job", "other.job"], 1, 0.5)
    with pytest.raises(PartyLostError, match="does not answer"):
        stranger.send(0, LIKE, 4, "theta")
    assert not here._messages[1]


def test_what_is_not_sealed_is_not_heard(pair):
    here, there, cells = pair
    cells["clinic.job"].sealed = False
    with pytest.raises(PartyLostError, match="does not answer"):
        there.send(0, LIKE, 4, "theta")
    assert not here._messages[1]


def test_a_site_that_is_gone_is_named(pair):
    here, there, cells = pair
    there._say("begin", b"[]")
    here._say("begin", b"[]")
    del cells["clinic.job"]
    with pytest.raises(PartyLostError, match="party 1 has ended"):
        here.send(1, LIKE, 4, "theta")


def test_a_job_that_is_aborted():
    one = ByFlare(Cell("a", {}), ["a", "b"], 0, 2, aborted=lambda: True)
    with pytest.raises(PartyLostError, match="the job was aborted"):
        one.receive(1, LIKE, 0, "theta")
