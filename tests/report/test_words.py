"""Contract of privaudit.report.words: what was done, as it was done."""

import dataclasses

import msgspec
import pytest

from privaudit.records import PartyRecord
from privaudit.report.command import command
from privaudit.report.load import load
from privaudit.report.words import story
from tests.report.runs import Made, noise, write_training


@pytest.fixture
def run(tmp_path):
    Made(worlds=noise(60, 40)).write(tmp_path)
    return load(tmp_path)


def told(run, *, relation="add-or-remove-one", canary="blank"):
    """The story, had the worlds differed so."""
    verdict = run.result.verdict
    lower = msgspec.structs.replace(verdict.lower, relation=relation)
    claim = msgspec.structs.replace(verdict.claim, relation=relation)
    upper = msgspec.structs.replace(verdict.upper, relation=relation)
    verdict = msgspec.structs.replace(verdict, lower=lower, claim=claim, upper=upper)
    return " ".join(
        story(
            dataclasses.replace(
                run,
                config=dataclasses.replace(run.config, canary=canary),
                result=msgspec.structs.replace(run.result, verdict=verdict),
            )
        )
    )


def test_a_record_more(run):
    text = told(run, canary="mislabelled")
    assert (
        "In 60 of the runs one record more, the canary (an image with a wrong label), "
        "was among the data of node 0; in the other 40 it was not." in text
    )


def test_a_record_in_anothers_place(run):
    text = told(run, relation="replace-one")
    assert "the canary (a blank image) stood in the place of the first record" in text
    assert "record more" not in text


def test_a_canary_that_is_not_known_has_its_name(run):
    assert "the canary (of-tomorrow)" in told(run, canary="of-tomorrow")


def test_an_audit_that_stopped_was_made_as_often_as_it_has_scores(tmp_path):
    Made(worlds=noise(30, 20)).write(tmp_path)
    run = load(tmp_path)
    planned = dataclasses.replace(run.config, runs=4000)
    run = dataclasses.replace(run, config=planned)
    assert " was trained 50 times " in story(run)[0]


def test_a_party_is_told_from_the_whole(tmp_path):
    write_training(tmp_path / "out" / "party-1")
    run = load(tmp_path / "out" / "party-1")
    party = PartyRecord(party=1, parties=2, sizes=(10, 20, 30, 40), run="it")
    with pytest.raises(ValueError, match=r"are counts >= 0, got \(0, -5\)"):
        dataclasses.replace(party, shared=(0, -5))
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, party=party))
    told = story(run)
    assert "dealt to 4 nodes" in told[0]
    assert told[1].startswith(
        "All figures here are of party 1 of 2 and its nodes 2 to 3 of 4;"
    )
    parts = command(run)
    assert parts[0] == "torchrun --nproc-per-node 2 -m privaudit train dp-sgd"
    assert "--parties" in parts
    assert parts[-1] == f"--out {tmp_path / 'out'}"
