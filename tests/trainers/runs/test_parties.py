"""Contract of trainers.runs.parties: parties make what one process makes, and no more.

Parties here are threads of this process, each with connections of its own.
"""

import contextlib
import copy
import itertools
import json
import math
import re
import shutil
import threading
import traceback
from types import SimpleNamespace
from unittest import mock

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

import privaudit as pa
from privaudit.api.trainings import run_training
from privaudit.api.watch import Watch
from privaudit.cli import main
from privaudit.files import json as _json
from privaudit.files.folder import FolderError, RunFolder
from privaudit.files.manifest import seal
from privaudit.report import page as pages_of
from privaudit.report.joining import _at_most
from privaudit.report.site import Site
from privaudit.report.verify import EvidenceError
from privaudit.results import round_up
from privaudit.settings import TrainingSettings
from tests.cli.test_shapes import validator
from tests.report.test_verify import edited, fewer, forged
from tests.trainers.network.test_exchange import at_all
from trainers.data.shares import data_set
from trainers.network.exchange import InProcess, PartyLostError
from trainers.network.over_ranks import Party
from trainers.network.ranks import RankLostError
from trainers.numerics.randomness import Streams
from trainers.runs import parties
from trainers.runs.material import OwnData
from trainers.runs.parties import (
    Code,
    _same_code,
    check_parties,
    folder_of,
    kept_rounds,
    sizes_of,
)
from trainers.runs.training import Training

SIZES = (30, 41, 25, 37, 52)  # records of the nodes: no two alike


def shares(nodes=range(5)):
    found = []
    for node in nodes:
        generator = torch.Generator().manual_seed(node)
        inputs = torch.randn(SIZES[node], 4, generator=generator)
        found.append((inputs, (inputs.sum(1) > 0).long()))
    return found


def _net():
    generator = torch.Generator().manual_seed(9)
    module = nn.Linear(4, 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


NET = _net()  # once: making it draws, which a check of another thread's model would see


def net():
    return copy.deepcopy(NET)


def together(work):
    """What ``work`` gives or raises at two parties, called with their exchanges."""
    found, exchanges = [None, None], InProcess.all(2, 60)

    def run(party):
        try:
            found[party] = work(exchanges[party])
        except BaseException as error:
            found[party] = error
            traceback.print_exception(error)

    threads = [threading.Thread(target=run, args=(party,)) for party in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


HELD = (range(2), range(2, 5))
SETTINGS = {"noise_multiplier": 1.5, "batch_size": 8, "rounds": 12, "graph": "ring"}


def train(party, out, **changes):
    given = {**SETTINGS, "seed": 3, "nodes": 5, "test": shares([0])[0], **changes}
    return pa.train(net(), shares(HELD[party.rank]), exchange=party, out=out, **given)


def alone(tmp_path, **changes):
    given = {**SETTINGS, "seed": 3, "test": shares([0])[0], **changes}
    return pa.train(net(), shares(), out=tmp_path / "alone", **given)


@pytest.mark.parametrize("number", [0, -3, 1.5, "1", None])
def test_a_place_is_a_number_from_1_on(number, tmp_path, monkeypatch):
    """Whatever another party says of where it goes on."""
    monkeypatch.chdir(tmp_path)
    here, there = InProcess.all(2, 10)
    there._say("place", json.dumps({"number": number}).encode())
    with pytest.raises(PartyLostError, match=r"party 1 .* words on place that cannot"):
        folder_of(here, None, "mine")


def vectors(models):
    return [nn.utils.parameters_to_vector(model.parameters()) for model in models]


def same(parts, whole):
    ours = [vector for part in parts for vector in vectors(part.models)]
    theirs = vectors(whole.models)
    return all(one.equal(two) for one, two in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("parties")
    parts = together(lambda party: train(party, out / "all"))
    whole = alone(out)
    for part in parts:
        if isinstance(part, BaseException):
            raise part
    return out, parts, whole


class TestOneProcess:
    def test_models_are_equal_to_the_last_bit(self, trained):
        _, parts, whole = trained
        assert same(parts, whole)

    def test_each_has_the_ledger_of_its_nodes(self, trained):
        _, parts, whole = trained
        for part, held in zip(parts, HELD, strict=True):
            assert part.ledger.nodes == whole.ledger.nodes[held.start : held.stop]

    def test_what_each_sent_is_in_its_result(self, trained):
        """Of a ring of 5: two models, of 10 floats, of each node that the other hears.

        Party 0 has nodes 0 and 1, party 1 has 2, 3 and 4: 0 and 1, and 2 and 4.
        """
        _, parts, whole = trained
        for part in parts:
            assert part.result.messages_sent == 12 * 2 * 2
            assert part.result.bytes_sent == 12 * 2 * 2 * 10 * 4
            assert "sent to other processes: 48 messages, 1,920 bytes" in str(part)
        assert whole.result.bytes_sent is msgspec.UNSET

    def test_each_folder_agrees_with_its_evidence(self, trained):
        out, _, _ = trained
        for party in range(2):
            found = pa.verify(out / "all" / f"party-{party}")
            assert not found.differences
            assert found.is_proved
            assert "the ledger against the settings" in found.checked

    def test_what_others_models_are_is_not_measured(self, trained):
        out, parts, _ = trained
        for party, part in enumerate(parts):
            assert part.curves.consensus is None
            assert part.curves.accuracy is not None
            text = (out / "all" / f"party-{party}" / "rounds.csv").read_text()
            assert "consensus" not in text
            assert "not measured" in part.result.remarks[0]


class TestJoint:
    def test_is_the_worst_node(self, trained):
        out, _, whole = trained
        found = pa.join([out / "all/party-1", out / "all/party-0"])
        assert found.ledger == whole.ledger
        assert found.upper.epsilon == whole.result.upper().epsilon
        assert found.worst == (2,)  # the fewest records: the largest rate
        assert [list(one.nodes) for one in found.parties] == [[0, 1], [2, 3, 4]]
        printed = json.loads(_json.encode({"schema": 1, **found.summary()}))
        validator("join").validate(printed)
        assert str(found) == "\n".join(found.lines())
        assert "2 parties: ε ≤ " in repr(found)
        assert len(repr(found)) < 100  # not every release

    def test_overlap_composes_the_two_worst(self, trained):
        """Against dp-accounting, on the two nodes with the fewest records."""
        from dp_accounting.pld import PLDAccountant

        out, _, whole = trained
        found = pa.join([out / "all/party-0", out / "all/party-1"], overlap=2)
        assert found.worst == (0, 2)
        assert "parties at most, which is assumed; worst at nodes 0, 2" in "".join(
            found.lines()
        )
        other = PLDAccountant()
        for node in (0, 2):
            other.compose(whole.ledger.to_event(node))
        theirs = other.get_epsilon(1e-5)
        assert found.upper.epsilon == pytest.approx(theirs, rel=2e-3)

    @pytest.mark.parametrize(
        ("names", "overlap", "words"),
        [
            (["party-0"], 1, "party 1 is missing"),
            (["party-0", "party-0"], 1, "both of party 0"),
            (["party-0", "../alone"], 1, "not the folder of one party"),
            (["party-0", "party-1"], 3, "overlap is how many of the 2 parties"),
            (["party-0", "party-1"], 0, "overlap is how many of the 2 parties"),
        ],
    )
    def test_bad_input(self, trained, names, overlap, words):
        out, _, _ = trained
        with pytest.raises(ValueError, match=words):
            pa.join([out / "all" / name for name in names], overlap=overlap)

    def test_identifiers_that_are_counted(self, trained, tmp_path, monkeypatch):
        """Two parties of 71 and 114 records share 9, as plain sets tell."""

        def plainly(exchange, own):
            said = exchange.told("plain", own, list[str])
            return tuple(len({*own} & {*theirs}) for theirs in said)

        monkeypatch.setattr(parties, "need", lambda *_: None)
        monkeypatch.setattr(parties, "counted", plainly)
        for party, some in enumerate((range(71), range(62, 176))):
            (tmp_path / f"{party}.txt").write_text("\n".join(map(str, some)))
        done = together(
            lambda party: train(
                party, tmp_path, identifiers=tmp_path / f"{party.rank}.txt"
            )
        )
        assert not any(isinstance(one, BaseException) for one in done), done
        folders = [tmp_path / f"party-{party}" for party in range(2)]
        found = pa.join(folders)
        assert found.summary()["shared"] == [[0, 1, 9]]
        assert found.overlap == len(found.worst) == 2
        assert found.upper.standing == "conditional"
        plain = pa.join([trained[0] / "all" / one.name for one in folders], overlap=2)
        assert found.upper.epsilon == plain.upper.epsilon
        assert "by the identifiers given: shared by parties 0 and 1: 9" in str(found)
        for there, count, words in (
            (folders[1], 8, "counted otherwise .*: 9 and 8"),
            (trained[0] / "all/party-1", 9, "what its account assumes"),
        ):
            folder = RunFolder(tmp_path / "other/party-1")
            shutil.copytree(there, folder.path)
            config = folder.read("config.json", dict)
            config["party"]["shared"] = [count, 114]
            folder.write("config.json", json.dumps(config).encode())
            seal(folder)
            with pytest.raises((ValueError, EvidenceError), match=words):
                pa.join([folders[0], folder.path])
            shutil.rmtree(folder.path)

    def test_no_more_parties_may_hold_a_record_than_are_said_to(self):
        """Against the largest group in which all share with all."""
        generator = np.random.default_rng(5)
        for _ in range(200):
            pairs = [*itertools.combinations(range(generator.integers(2, 7)), 2)]
            share = generator.random()
            shared = [(*two, int(generator.random() < share)) for two in pairs]
            edges = {tuple(two) for *two, count in shared if count}
            groups = itertools.chain.from_iterable(
                itertools.combinations(range(6), k) for k in range(1, 7)
            )
            largest = max(
                len(group)
                for group in groups
                if edges >= {*itertools.combinations(group, 2)}
            )
            assert _at_most(shared) >= largest
            assert _at_most([(*two, 1) for two in pairs]) == pairs[-1][1] + 1

    def test_its_page_has_its_figures(self, trained, tmp_path):
        pytest.importorskip("matplotlib")
        out, _, _ = trained
        folders = [str(out / "all" / f"party-{party}") for party in range(2)]
        pages, bounds = [], []
        for overlap in (1, 2):
            to = tmp_path / f"{overlap}.html"
            asked = ["join", *folders, "--overlap", str(overlap), "--out", str(to)]
            assert main(asked) == 0
            pages.append(" ".join(re.sub("<[^>]*>", "", to.read_text()).split()))
            bounds.append(pa.join(folders, overlap=overlap).upper.epsilon)
        assert f"ε ≤ {round_up(bounds[0])}" in pages[0]
        assert f"ε ≤ {round_up(bounds[1])}" in pages[1]
        assert f"ε ≤ {round_up(bounds[0])} at" not in pages[1].partition("ledger")[0]
        assert "a record is held by one party alone, which is assumed" in pages[0]
        assert "the worst 2 nodes together" in pages[1]
        for page in pages:
            assert "Not protected: Study:" in page
            assert "party 1nodes 2 to 4: ε ≤ " in page
            assert "who wrote it was not checked" in page
            assert "not checked, in some or all: accuracies" in page

    @pytest.mark.full
    def test_a_site_has_it_before_its_parties(self, trained, tmp_path):
        pytest.importorskip("matplotlib")
        out, _, _ = trained
        shutil.copytree(out / "all", tmp_path / "all")
        for folder in (tmp_path, tmp_path / "all"):
            site = Site()
            site.add(folder)
            kinds = [(one.name, one.kind) for one in site.items]
            assert kinds == [
                ("all", "joint"),
                ("all party-0", "training"),
                ("all party-1", "training"),
            ]
            whole, *each = site.items
            assert whole.certified == max(one.certified for one in each)
            assert "joint statement" in site.pages[whole.page].decode().lower()
        shutil.rmtree(tmp_path / "all/party-0")
        site = Site()
        site.add(tmp_path)
        assert site.items[0].certified is None
        assert "party 0 is missing" in site.items[0].why
        assert not site.differs
        (tmp_path / "all/party-1/ledger.json").write_text("{}")
        site = Site()
        site.add(tmp_path)
        assert site.differs

    def test_a_changed_ledger_is_seen(self, trained, tmp_path):
        out, _, _ = trained
        for party in range(2):
            there = tmp_path / f"party-{party}"
            there.mkdir()
            for file in (out / "all" / there.name).iterdir():
                (there / file.name).write_bytes(file.read_bytes())
        ledger = tmp_path / "party-1" / "ledger.json"
        ledger.write_text(ledger.read_text().replace("1.5", "2.5"))
        with pytest.raises(EvidenceError, match="of node 2 is 2"):
            pa.join([tmp_path / "party-0", tmp_path / "party-1"])

    def test_another_run_is_seen(self, trained, tmp_path):
        out, _, _ = trained
        again = together(lambda party: train(party, tmp_path, rounds=11))
        assert not any(isinstance(one, BaseException) for one in again), again
        with pytest.raises(ValueError, match="rounds is 11, and 12 there"):
            pa.join([out / "all/party-0", tmp_path / "party-1"])


def test_secret_keys_are_each_partys_own(tmp_path):
    seen = {}

    class Keys(Watch):
        def __init__(self, party):
            self.party = party

        def training(self, algorithm, claim):
            def look(now):
                key = tmp_path / f"party-{self.party}" / "key"
                seen[self.party] = key.read_bytes()

            return contextlib.nullcontext(look)

    parts = together(
        lambda party: train(party, tmp_path, seed=None, watch=Keys(party.rank))
    )
    assert not any(isinstance(one, BaseException) for one in parts), parts
    assert len(set(seen.values())) == 2
    for party, part in enumerate(parts):
        assert part.result.protected
        left = {path.name for path in (tmp_path / f"party-{party}").iterdir()}
        assert not {name for name in left if name.startswith("key")}
    names = {
        RunFolder(tmp_path / f"party-{party}").read("config.json", dict)["party"]["run"]
        for party in range(2)
    }
    assert len(names) == 1


@pytest.mark.full
def test_noise_is_calibrated_from_all_sizes(tmp_path):
    """That of one process, though one party has the smallest node."""
    changes = {"noise_multiplier": None, "epsilon": 4.0}
    parts = together(lambda party: train(party, tmp_path / "two", **changes))
    whole = alone(tmp_path, **changes)
    assert {part.result.noise_multiplier for part in parts} == {
        whole.result.noise_multiplier
    }
    assert pa.join([tmp_path / "two/party-0", tmp_path / "two/party-1"]).status == (
        "consistent"
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "spent"),
    [
        ({"epsilon": 4.0, "noise": "per-node"}, [4] * 5),
        ({"epsilon": [4, 4, 2, 2, 1]}, [4, 4, 2, 2, 1]),
    ],
)
def test_noise_and_budgets_by_node(tmp_path, changes, spent):
    """Each party has its own nodes' noise, and the models are those of one process."""
    changes = {"noise_multiplier": None, **changes}
    parts = together(lambda party: train(party, tmp_path / "two", **changes))
    whole = alone(tmp_path, **changes)
    assert same(parts, whole)
    found = [node.epsilon for part in parts for node in part.result.nodes]
    assert found == [node.epsilon for node in whole.result.nodes]
    assert found == pytest.approx(spent, rel=0.01)
    folders = [tmp_path / f"two/party-{party}" for party in range(2)]
    assert pa.join(folders).status == "consistent"
    assert not any(pa.verify(folder).differences for folder in folders)


class TestDisagreements:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"rounds": 13}, "party 1 has other settings.*rounds is 13, and 12 there"),
            ({"seed": 4}, "party 1 has other settings.*seed is 4, and 3 there"),
            ({"noise_multiplier": 2.0}, "party 1 has other settings.*noise_multiplier"),
        ],
    )
    def test_settings_are_named_at_all(self, tmp_path, changes, words):
        found = together(
            lambda party: train(party, tmp_path, **(changes if party.rank else {}))
        )
        for error in found:
            assert isinstance(error, ValueError)
            assert pytest.raises(ValueError, match=words).matches(error)

    def test_other_records(self, tmp_path):
        def work(party):
            data = shares(HELD[party.rank])
            if party.rank:
                data = [(inputs.double().long(), targets) for inputs, targets in data]
            return pa.train(
                nn.Sequential(Float(), net()),
                *(data,),
                **{
                    **SETTINGS,
                    "seed": 3,
                    "nodes": 5,
                    "exchange": party,
                    "out": tmp_path,
                },
            )

        for error in together(work):
            assert "party 1 has records of another kind than party 0" in str(error)

    @pytest.mark.parametrize(
        ("other", "same"),
        [
            ('y = ["no", "yes"]\n[columns]\na = [0, 9]\nb = [0, 9]', True),
            ('y = ["no", "yes"]\n[columns]\nb = [0, 9]\na = [0, 9]', False),
            ('y = ["no", "yes"]\n[columns]\na = [0, 9]\nb = [0, 8]', False),
            ('y = ["yes", "no"]\n[columns]\na = [0, 9]\nb = [0, 9]', False),
            (None, True),  # no table, but made by a function
        ],
    )
    def test_tables_with_other_columns(self, tmp_path, other, same):
        first = 'y = ["no", "yes"]\n[columns]\na = [0, 9]\nb = [0, 9]'
        for party, told in enumerate((first, other or first)):
            (tmp_path / f"{party}.toml").write_text(
                f'file = "{party}"\n[target]\n{told}'
            )

        def work(party):
            data = "mine:share" if party.rank and other is None else ""
            data = data or str(tmp_path / f"{party.rank}.toml")
            training = Training(algorithm="dp-dsgt", data=data, nodes=2)
            here = [data_set(one, "a share") for one in shares([party.rank])]
            return sizes_of(Party(party, 2), here, training)

        for found in together(work):
            words = "party 1 says other things of its table's columns than others"
            assert found == SIZES[:2] if same else words in str(found)

    def test_other_starts(self, tmp_path):
        def work(party):
            given = {**SETTINGS, "seed": 3, "nodes": 5, "exchange": party}
            module = net()
            with torch.no_grad():
                module.weight.add_(float(party.rank))
            return pa.train(module, shares(HELD[party.rank]), out=tmp_path, **given)

        for error in together(work):
            assert "the models of party 1 start at other parameters" in str(error)

    @pytest.mark.parametrize(
        ("what", "first", "second", "words"),
        [
            ("loss", nn.MSELoss(), nn.L1Loss(), "MSELoss"),
            ("loss", nn.HuberLoss(delta=1.0), nn.HuberLoss(delta=2.0), "of other code"),
            ("loss", lambda x, y: (x - y).abs(), lambda x, y: x - y, "of other code"),
            ("transform", None, lambda x: 2 * x, "and none there"),
        ],
    )
    def test_other_functions(self, what, first, second, words):
        def refuse(message):
            raise ValueError(message)

        exchange = SimpleNamespace(disagree=refuse)
        said = [
            SimpleNamespace(python="3.11", **{what: Code.of(one)})
            for one in (first, second)
        ]
        assert _same_code(exchange, what, said[:1] * 3) is True
        with pytest.raises(ValueError, match=f"party 1 has another {what}.*{words}"):
            _same_code(exchange, what, said)

    def test_another_loss_ends_all(self, tmp_path):
        losses = (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1))
        for error in together(lambda p: train(p, tmp_path, loss=losses[p.rank])):
            assert isinstance(error, ValueError)
            assert "party 1 has another loss than party 0: CrossEntropyLoss" in str(
                error
            )

    def test_what_cannot_be_compared_is_said(self, tmp_path):
        class Own:
            def __call__(self, outputs, targets):
                return nn.functional.cross_entropy(outputs, targets)

        for run in together(lambda p: train(p, tmp_path, loss=Own(), rounds=2)):
            assert "the loss could not be compared" in " ".join(run.result.remarks)

    def test_too_few_nodes_here(self, tmp_path):
        def work(party):
            given = {**SETTINGS, "seed": 3, "nodes": 5, "exchange": party}
            return pa.train(net(), shares(HELD[0]), out=tmp_path, **given)

        for error in together(work):
            assert "party 1 says that it has records for 2 nodes" in str(error)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [({}, "MASTER_ADDR"), ({"nodes": 10}, "more than the 10 nodes")],
    )
    def test_nodes_are_parties(self, monkeypatch, tmp_path, changes, words):
        """Also where the algorithm has a number of its own, as PartPSP's ten."""
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "12")
        monkeypatch.delenv("MASTER_PORT", raising=False)  # refused when they meet
        settings = TrainingSettings(parties=True)
        with pytest.raises(ValueError, match=words):
            run_training("partpsp", settings, changes=changes, out=tmp_path)

    def test_a_file_that_cannot_be_read(self, tmp_path):
        (tmp_path / "node-1.npz").mkdir()
        with pytest.raises(ValueError, match=r"node-1.npz cannot be read: Is a dir"):
            OwnData.load(f"folder:{tmp_path}", held=[1])

    def test_algorithms_without_parties(self, tmp_path):
        with pytest.raises(ValueError, match="dp-sgd runs at one place"):
            train(InProcess.all(2)[0], tmp_path, algorithm="dp-sgd")

    @pytest.mark.parametrize(
        ("algorithm", "settings", "words"),
        [
            ("adp2sgd", {}, "adp2sgd averages two workers' models in one step"),
            (
                "dp-sgd-with-replacement",
                {"model": "one-vs-all"},
                "draws who updates next among all nodes",
            ),
            ("sgpdp", {"options": {"sensitivity": "real"}}, "asks what all nodes hold"),
        ],
    )
    def test_why_some_have_no_parties(self, algorithm, settings, words):
        training = Training(algorithm=algorithm, **settings)
        with pytest.raises(ValueError, match=f"{words}.*: leave --parties out"):
            check_parties(training, 2)


class Float(nn.Module):
    """Of whole numbers, floats."""

    def forward(self, x):
        return x.float()


class TestResumed:
    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        ("seed", "sensitivity"),
        [(3, None), (None, None), (3, "data-independent"), (3, "certified")],
    )
    def test_to_the_same_bits(self, tmp_path, seed, sensitivity, trained):
        """One stops in a round of its own; all go on; nothing is released twice.

        With noise of messages as well: by a public scale, and by one that nodes
        broadcast norms for, which no epsilon covers.
        """
        whole, changes = trained[2], {"seed": seed}
        if sensitivity:
            options = {"sensitivity": sensitivity}
            changes |= {"algorithm": "sgpdp", "options": options}
            changes |= {"noise_multiplier": 0.1, "batch_size": 20}
            whole = alone(tmp_path, **changes)

        class Stops(Watch):
            def training(self, algorithm, claim):
                def look(now):
                    if now.done == 7:
                        raise KeyboardInterrupt

                return contextlib.nullcontext(look)

        first = together(
            lambda party: train(
                party, tmp_path, watch=Stops() if party.rank else None, **changes
            )
        )
        assert isinstance(first[1], KeyboardInterrupt)
        assert isinstance(first[0], PartyLostError)
        assert "party 1 ended with an error of its own" in str(first[0])
        kept = [kept_rounds(RunFolder(tmp_path / f"party-{p}")) for p in range(2)]
        assert set(kept[0]) & set(kept[1])
        again = together(lambda party: train(party, tmp_path, **changes))
        for part in again:
            if isinstance(part, BaseException):
                raise part
        counts = [sum(e.count for e in node) for p in again for node in p.ledger.nodes]
        assert counts == [12] * 5
        assert not any("made again" in text for p in again for text in p.result.remarks)
        if seed is not None:
            assert same(again, whole)
            sent = [part.result.messages_sent for part in again]
            if sensitivity != "certified":  # norms are told again, to who goes on
                # Of 12 rounds, two messages of each node that another party hears.
                assert sent == [12 * 2 * 2, 12 * 2 * (3 if sensitivity else 2)]
            for part, held in zip(again, HELD, strict=True):
                assert part.ledger.nodes == whole.ledger.nodes[held.start : held.stop]
                is_private = math.isfinite(part.result.upper().epsilon)
                assert is_private == (sensitivity != "certified")

    def test_one_that_had_ended_waits_for_the_other(self, tmp_path, trained):
        """Killed between the last round and its result: it ends alone."""
        _, _, whole = trained
        parts = together(lambda party: train(party, tmp_path))
        assert same(parts, whole)
        again = together(lambda party: train(party, tmp_path))
        assert same(again, whole)

    def test_a_figure_that_was_changed_is_not_shown_again(self, tmp_path, monkeypatch):
        together(lambda party: train(party, tmp_path))
        monkeypatch.setattr(
            pages_of, "keep", lambda path: None
        )  # which verifies it, too
        file = tmp_path / "party-0" / "result.json"
        file.write_text(file.read_text().replace('"seconds"', '"seconds" '))
        wrong, right = together(lambda party: train(party, tmp_path))
        assert isinstance(wrong, EvidenceError), wrong
        assert str(file) in str(wrong)
        assert right.result.status is None

    def test_a_lost_folder(self, tmp_path):
        parts = together(lambda party: train(party, tmp_path))
        assert not any(isinstance(part, BaseException) for part in parts), parts
        for file in (tmp_path / "party-1").iterdir():
            file.unlink()
        for error in together(lambda party: train(party, tmp_path)):
            assert "party 1 has kept nothing of this run" in str(error)


BUTTERFLY = {"algorithm": "dp-butterfly", "rounds": 4, "noise_multiplier": 3.0}


class TestObserver:
    """Of all ledgers together, for an observer that sees a part."""

    def joined(self, tmp_path, held):
        given = {**SETTINGS, **BUTTERFLY, "seed": 3, "nodes": 4}
        given.pop("graph")

        def work(one):
            own = shares(held[one.rank])
            return pa.train(net(), own, exchange=one, out=tmp_path, **given)

        at_all(InProcess.all(len(held), 60), work)
        return [tmp_path / f"party-{party}" for party in range(len(held))]

    @pytest.mark.full
    def test_as_of_one_process(self, tmp_path):
        folders = self.joined(tmp_path, [[0], [1], [2], [3]])
        joint = pa.join(folders, observer="any-node")
        whole = pa.train(
            net(),
            shares(range(4)),
            batch_size=8,
            seed=3,
            observer="any-node",
            **BUTTERFLY,
        )
        assert joint.upper.epsilon == pytest.approx(
            whole.certificate.epsilon(1e-5).upper, rel=1e-9
        )
        assert joint.upper.epsilon < 0.9 * pa.join(folders).upper.epsilon
        assert "seen by any one other node" in str(joint)
        assert "--observer any-node" in joint.page()
        with pytest.raises(ValueError, match="leave observer or overlap out"):
            pa.join(folders, overlap=2, observer="any-node")

    def test_a_party_sees_what_all_of_its_nodes_do(self, tmp_path):
        folders = self.joined(tmp_path, [[0, 1], [2, 3]])
        for observer in ("any-node", "1"):
            with pytest.raises(
                ValueError, match="party 0 sees what all of its nodes 0"
            ):
                pa.join(folders, observer=observer)
        assert pa.join(folders, observer="0,1").worst[0] in (2, 3)


class TestDropped:
    """One of five parties is lost for good, and the others go on."""

    @pytest.fixture(autouse=True)
    def keeps_after_each_third_round(self, monkeypatch):
        monkeypatch.setattr("trainers.runs.run._ACCOUNTS", 4)

    @pytest.fixture
    def seen(self):
        """Sums with their noise, by node: what was released."""
        seen, noisy = {node: set() for node in range(5)}, Streams.noisy

        def noted(self, total, who, index, *how, **more):
            found = noisy(self, total, who, index, *how, **more)
            for row, node in enumerate(who):
                seen[node].add(found[0, row].numpy().tobytes())
            return found

        with mock.patch.object(Streams, "noisy", noted):
            yield seen

    def trained(self, tmp_path, ends=((4, 5),), size=5, drop=True, hears=(), **changes):
        """What all say; of ``ends`` each ends in that round.

        Who ``hears`` does so in that round, that party 4 is there again.
        """
        exchanges = InProcess.all(size, 60)

        def heard(call, back, when):
            def sends(other, rows, k, name):
                if k == when:
                    back.add(4)
                call(other, rows, k, name)

            return sends

        for party, k in dict(hears).items():
            one = exchanges[party]
            one.send = heard(one.send, one.back, k)

        def pulled_out(call, last):
            def fails(*given):
                if last in given[-2:]:
                    raise OSError("pulled out")
                call(*given)

            return fails

        for party, last in ends:
            one = exchanges[party]
            one.send = pulled_out(one.send, last)
            one.all_kept = pulled_out(one.all_kept, last)
        given = {**SETTINGS, "seed": 3, "nodes": 5, **changes}

        def work(one):
            if drop:
                one.may_go_on()
            own = shares([one.rank])
            try:
                return pa.train(net(), own, exchange=one, out=tmp_path / "out", **given)
            except ValueError as error:
                return str(error)

        return at_all(exchanges, work)

    def test_the_others_finish_with_a_certificate(self, tmp_path):
        *rest, lost = self.trained(tmp_path)
        assert "pulled out" in lost
        whole = pa.train(net(), shares(), **{**SETTINGS, "seed": 3})
        for party, one in enumerate(rest):
            assert one.ledger.nodes == whole.ledger.nodes[party : party + 1]
        folders = [tmp_path / f"out/party-{party}" for party in range(4)]
        for folder in folders:
            result = pa.verify(folder).found.result
            assert [party for party, _ in result.left or ()] in ([4], [])
        joint = pa.join(folders)
        assert joint.ledger.nodes[:4] == whole.ledger.nodes[:4]
        assert joint.ledger.nodes[4] == ()
        assert joint.worst[0] < 4
        (said,) = joint.left
        assert said.startswith("party 4 was lost in round ")
        assert said in str(joint)
        assert said in joint.page()
        with pytest.raises(ValueError, match="the folder of party 1 is missing"):
            pa.join([folders[0], *folders[2:]])
        with pytest.raises(ValueError, match=r"of the 4 .*released by 4, lost on"):
            pa.join(folders, overlap=5)
        edited(folders[0] / "config.json", lambda c: c["party"].update(run=""))
        seal(RunFolder(folders[0]))
        with pytest.raises(FolderError, match="a run of parties has a name"):
            pa.verify(folders[0])

    def test_without_being_asked_all_end(self, tmp_path):
        found = self.trained(tmp_path, drop=False)
        assert all("party 4 ended with an error" in words for words in found[:4])

    # Between checkpoints, which are after each third round, or after the last round.
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("stopped", [10, 12])
    def test_who_was_lost_comes_back_when_all_go_on(self, tmp_path, stopped, seen):
        """All that it released is in its ledger, and nothing is released twice."""
        ends = [(4, 4), *((party, stopped) for party in range(4))]
        assert {str} == {*map(type, self.trained(tmp_path, ends, seed=None))}
        *rest, back = self.trained(tmp_path, [], seed=None)
        folders = [tmp_path / f"out/party-{party}" for party in range(5)]
        for folder, run in zip(folders, [*rest, back], strict=True):
            assert not pa.verify(folder).differences
            (entries,) = run.ledger.nodes
            (node,) = run.config.party.nodes
            assert sum(entry.count for entry in entries) == len(seen[node])
        ((one, two),) = back.result.missed
        assert (one, two) == (3, stopped - stopped % 3)
        assert len(seen[4]) < len(seen[0])
        assert pa.join(folders).left == ()
        with pytest.raises(ValueError, match="folder of party 4 is missing"):
            pa.join(folders[:4])
        # As if nobody had missed it: its account is of fewer releases than are known.
        for folder in folders[:4]:
            edited(folder / "result.json", lambda c: c.pop("returned", None))
            assert forged(folder)
        with pytest.raises(ValueError, match="of which no other party's folder knows"):
            pa.join(folders)
        edited(folders[4] / "ledger.json", fewer)
        assert not forged(folders[4])

    @pytest.mark.full
    def test_who_comes_back_is_waited_for_at_a_checkpoint(self, tmp_path, seen):
        """All begin anew where one of them hears it: nothing is released twice."""
        said = self.trained(tmp_path, [(4, 4)], seed=None, hears={2: 5})
        assert ["is there again" in words for words in said] == [True] * 4 + [False]
        *rest, back = self.trained(tmp_path, [], seed=None)
        assert back.result.missed == ((3, 9),)
        for node, run in enumerate([*rest, back]):
            (entries,) = run.ledger.nodes
            assert sum(entry.count for entry in entries) == len(seen[node])
        assert {len(seen[node]) for node in range(4)} == {SETTINGS["rounds"]}

    @pytest.mark.full
    def test_who_came_back_goes_on_as_all_do(self, tmp_path, seen):
        """If all end again at once, it makes the same releases again, and no others."""
        self.trained(tmp_path, [(4, 4), *((n, 10) for n in range(4))], seed=None)
        ends = [(party, 11) for party in range(5)]
        for _ in range(2):  # nobody goes on without another, whose words came late
            self.trained(tmp_path, ends, drop=False, seed=None)
        *_, back = self.trained(tmp_path, [], seed=None)
        assert back.result.missed == ((3, 9),)
        assert sum(e.count for e in back.ledger.nodes[0]) == len(seen[4]) <= 5 + 3

    @pytest.mark.full
    def test_who_comes_back_after_the_end_has_its_account(self, tmp_path):
        self.trained(tmp_path, [(4, 4)], seed=None)
        *_, back = self.trained(tmp_path, [], seed=None)
        assert back.result.missed == ((3, 12),)
        (entries,) = back.ledger.nodes
        assert sum(entry.count for entry in entries) in (4, 5)
        folders = [tmp_path / f"out/party-{party}" for party in range(5)]
        assert len(pa.join(folders).ledger.nodes[4]) == len(entries)

    def test_who_lost_its_folder_does_not_come_back(self, tmp_path):
        ends = [(4, 5), *((party, 9) for party in range(4))]
        self.trained(tmp_path, ends, seed=None)
        shutil.rmtree(tmp_path / "out/party-4")
        assert all(
            "party 4 has kept nothing of this run" in words
            for words in self.trained(tmp_path, [], seed=None)
        )

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"algorithm": "dp-fedavg"}, "dp-fedavg cannot go on without a party"),
            ({"algorithm": "partpsp"}, "partpsp cannot go on without a party"),
            ({"algorithm": "dp-butterfly"}, "cannot go on without a party"),
            ({"graph": "exponential", "weights": "uniform"}, "symmetric weights"),
        ],
    )
    def test_what_cannot_go_on(self, changes, words):
        given = {"nodes": 4, **changes}
        training = Training(algorithm=given.pop("algorithm", "dp-dsgd"), **given)
        with pytest.raises(ValueError, match=words):
            check_parties(training, 4, drop_lost=True)


def test_lost_is_of_ranks():
    assert issubclass(PartyLostError, RankLostError)
    assert issubclass(RankLostError, OSError)  # status 3
