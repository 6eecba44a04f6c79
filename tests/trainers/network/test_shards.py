"""Nodes in shards make what whole nodes make, to the last bit."""

import contextlib
import dataclasses
import hashlib
import multiprocessing
import os
import shutil
import socket
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from privaudit.files.folder import FolderError, RunFolder
from privaudit.ledger import Ledger
from tests.tiers import FULL, size
from trainers.data import Dataset
from trainers.gradients.per_sample import parameter_places
from trainers.network import mixing
from trainers.network import shards as shards_of_nodes
from trainers.network.ranks import gathered, joined
from trainers.numerics.keys import Key
from trainers.numerics.randomness import Streams
from trainers.runs.over_shards import OverShards, spread
from trainers.runs.problem import Problem
from trainers.runs.run import Assignment, TrainingRun, train
from trainers.runs.training import training_from

RANKS = size(4, 2)
SHARDS = size([1, 2, 4], [2])
LITTLE = 1 << 20  # bytes: so that a batch takes several calls


def training(algorithm, **more):
    values = {"nodes": 4, "train": 80, "rounds": 2, "batch_size": 15, "hidden": 6}
    values |= {"algorithm": algorithm, "graph": "ring", "step_size": 0.1, **more}
    return training_from(values, where="the test")


# 11 034 parameters: their averages and their pieces take other ways than short ones.
CASES = {
    "dp-dsgd": training("dp-dsgd", model="tanh-mlp"),
    "dp-dsgt": training("dp-dsgt", model="tanh-mlp", hidden=80, optimiser="momentum"),
}
CASES = size(CASES, {"dp-dsgt": CASES["dp-dsgt"]})


OTHERS = {"shards-1": "it is of another run", "key-0.releases": "it ends before"}


def run_of(seed):
    return TrainingRun(
        training=training("dp-dsgt", rounds=4),
        claim=None,
        noise_multiplier=2.0,
        seed=seed,
    )


class Stopped(Exception):
    pass


def trained(folder, shards, seed, stops=None):
    """Train in so many shards; all ranks stop after ``stops`` rounds."""

    def progress(now):
        if now.done == stops:
            raise Stopped

    run = run_of(seed)
    given = Assignment(run=run, problem=run.problem(), delta=1e-3, progress=progress)
    with contextlib.suppress(Stopped):
        train(given, RunFolder.opened(folder), OverShards(shards))


def work(rank, ports, folder):
    """One rank of all; each time that they meet it is at another port."""
    torch.set_num_threads(1)
    shards_of_nodes._AT_ONCE = 1000  # numbers of a sum, so that they go in pieces
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports.pop())}
    with joined():
        for name, each in CASES.items():
            for shards in SHARDS:
                ranks = (rank // shards, RANKS // shards)
                given = Problem.of(each, ranks=ranks)
                problem = spread(given, shards)
                models, ledger = problem.train(1.0, Streams(3), memory_limit=LITTLE)
                assert problem.shards is not None
                whole = problem.shards.whole(models[0])
                parts = gathered((whole, ledger.to_json()))
                if shards > 1:
                    first, *rest = given.shares
                    first = Dataset(first.inputs + rank % shards, first.targets)
                    other = dataclasses.replace(given, shares=[first, *rest])
                    with pytest.raises(ValueError, match="have different records"):
                        spread(other, shards)
                    own = bytes(32)
                    marks = problem.shards.marks([own])
                    problem.shards.agree("marks", marks)
                    # Of all shards' sums, the first one's too.
                    assert marks != problem.shards.marks([own[rank % shards == 0 :]])
                if parts is not None:
                    torch.save(parts[::shards], folder / f"{name}-{shards}.pt")
    for seed in (3, None) if FULL else ():
        os.environ["MASTER_PORT"] = str(ports.pop())
        trained(folder / f"{seed}", 4, seed, stops=2)
        if rank == 0:
            kept = sorted(one.name for one in (folder / f"{seed}").glob("shards-*/*"))
            (folder / f"kept-{seed}").write_text("\n".join(kept))
            shutil.copytree(folder / f"{seed}" / "shards-1", folder / f"shards-{seed}")
        for name, words in OTHERS.items() if seed is None else ():
            place, aside = folder / "None" / name, folder / "aside"
            if rank == 0:
                place.rename(aside)
                if name == "shards-1":
                    (folder / "shards-3").rename(place)
                else:
                    place.write_bytes(aside.read_bytes()[:64])
            os.environ["MASTER_PORT"] = str(ports.pop())
            with pytest.raises(FolderError, match=words):
                trained(folder / "None", 4, None)
            if rank == 0:
                place.rename(folder / f"other-{name}")
                aside.rename(place)
        os.environ["MASTER_PORT"] = str(ports.pop())
        trained(folder / f"{seed}", 4 if seed is None else 2, seed)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """What processes, started once, have made."""
    folder = tmp_path_factory.mktemp("shards")
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in range(5 + len(OTHERS))]
        for one in free:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in free]
    start = multiprocessing.get_context("fork").Process
    ranks = [start(target=work, args=(rank, ports, folder)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(300)
    codes = [one.exitcode for one in ranks]
    for one in ranks:
        one.kill()
    assert codes == [0] * RANKS
    return folder


@pytest.mark.sized
@pytest.mark.parametrize("name", CASES)
def test_bits_of_one_process(done, name, monkeypatch):
    """But for averages of long messages, of which each product is rounded here too."""
    monkeypatch.setattr(mixing, "_SHORT", 1 << 20)
    alone, ledger = Problem.of(CASES[name]).train(1.0, Streams(3), memory_limit=LITTLE)
    for shards in SHARDS:
        parts = torch.load(done / f"{name}-{shards}.pt", weights_only=True)
        assert torch.cat([models for models, _ in parts]).equal(alone[0])
        assert Ledger.joined(Ledger.from_json(text) for _, text in parts) == ledger


@pytest.mark.full
@pytest.mark.parametrize("seed", [3, None])
def test_a_run_that_stopped_goes_on(done, seed):
    """Begun in 4 shards, ended in 2, with a secret key in 4; each wrote its own."""
    run = run_of(3)
    problem = run.problem()
    start = problem.start(run.public_seed)
    whole, ledger = problem.train(2.0, Streams(3), start=start)
    models = load_file(done / f"{seed}" / "model.safetensors")
    for name, place in parameter_places(problem.module).items():
        same = models[f"node1.{name}"].flatten().equal(whole[0, 1, place])
        assert same == (seed is not None)
    kept = (done / f"kept-{seed}").read_text().split()
    assert {".metadata", *(f"__{rank}_0.distcp" for rank in range(RANKS))} <= {*kept}
    found = Ledger.from_json((done / f"{seed}" / "ledger.json").read_text())
    assert found.nodes == ledger.nodes
    left = (done / f"{seed}").glob
    assert not [*left("shards-*"), *left("key*"), *left("checkpoint*")]


@dataclasses.dataclass
class Part:
    """A shard whose others' fingerprint is known."""

    held: range
    dims: int
    other: bytes = b""

    def marks(self, own):
        made = (hashlib.blake2b(one + self.other, digest_size=32) for one in own)
        return tuple(one.digest() for one in made)

    def wait(self):
        pass


class TestNoise:
    dims = 3001

    def test_of_parts_is_that_of_the_whole(self):
        given = torch.zeros(1, 2, self.dims).double()
        whole = Streams(7).noisy(given.clone(), [4, 9], 2, 1.5)
        for held in (range(1504), range(1504, 3000), range(3000, 3001)):
            streams = Streams(7).within(Part(held, self.dims))
            part = streams.noisy(given[:, :, held], [4, 9], 2, 1.5)
            assert part.equal(whole[:, :, held])

    def test_of_a_part_is_of_the_whole_sum_under_a_secret_key(self):
        """Else who sees a release made again would learn which part is as before."""
        key, given, found = Key.secret(), torch.zeros(1, 1, 16).double(), []
        for other in (b"one sum", b"one sum", b"another"):
            part = Part(range(16), 32, other)
            found.append(Streams(key).within(part).noisy(given, [0], 0, 1.0))
        assert found[0].equal(found[1])
        assert not (found[0] == found[2]).any()

    def test_a_part_begins_where_a_block_does(self):
        streams = Streams(7).within(Part(range(4, 12), 32))
        with pytest.raises(ValueError, match="begin at a multiple of 8"):
            streams.noisy(torch.zeros(1, 1, 8).double(), [0], 0, 1.0)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"algorithm": "dp-dinno"}, "dp-dinno is not computed coordinate by"),
        ({"algorithm": "dp-dsgd", "optimiser": "adam"}, "not computed coordinate by"),
        ({"algorithm": "dp-decor"}, "the noise of dp-decor is not of one release"),
    ],
)
def test_what_is_refused(more, why):
    with pytest.raises(ValueError, match=f"{why}.*leave shards out"):
        Problem.of(training(**more)).over(mock.Mock())
