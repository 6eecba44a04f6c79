"""Private set intersection by openmined-psi: counts are those of plain sets."""

import random

import pytest
import torch

from tests.trainers.network.test_exchange import at_all
from trainers.network.exchange import InProcess
from trainers.network.intersection import _room, counted

psi = pytest.importorskip("private_set_intersection.python")


@pytest.mark.parametrize("size", [2, 4])
def test_counts_are_those_of_plain_sets(size):
    generator = random.Random(7)
    sets = [{"one", "\u00fc"}, *({"one"} for _ in range(size - 1))]
    for one in sets[1:]:
        one |= {str(generator.randrange(400)) for _ in range(300)}
    found = at_all(
        InProcess.all(size, 60), lambda one: counted(one, sorted(sets[one.rank]))
    )
    assert found == [tuple(len(one & two) for two in sets) for one in sets]


@pytest.mark.parametrize("many", [1, 3, 500])
def test_messages_have_room(many):
    server = psi.server.CreateWithNewKey(False)
    own = [str(i) for i in range(many)]
    setup = server.CreateSetupMessage(0.5, len(own), own, psi.DataStructure.RAW)
    request = psi.client.CreateWithNewKey(False).CreateRequest(own)
    for message in (setup, request, server.ProcessRequest(request)):
        assert len(message.SerializeToString()) + 8 <= _room(len(own))


@pytest.mark.parametrize("harm", ["more", "fewer", "bytes", "revealed"])
def test_what_is_no_set_is_refused(harm, monkeypatch):
    """A party that asks for more than it said, or for names, ends all by name."""
    here, there = InProcess.all(2, 10)

    def harmed(one):
        if one is here:
            return counted(one, ["a", "b"])
        many = {"more": 1, "fewer": 3}.get(harm, 2)
        one.told("identifiers", many, int)
        one.expects(1 << 16)
        client = psi.client.CreateWithNewKey(harm == "revealed")
        server = psi.server.CreateWithNewKey(False)
        own = ["a", "b"]
        setup = server.CreateSetupMessage(0.5, 2, own, psi.DataStructure.RAW)
        for name, message in ("setup", setup), ("request", client.CreateRequest(own)):
            content = message.SerializeToString()
            if harm == "bytes":
                content = content[:-1]
            whole = (len(content).to_bytes(8, "little") + content)[: _room(many)]
            rows = torch.frombuffer(
                bytearray(whole.ljust(_room(many), b"\0")), dtype=torch.int64
            )
            one.send(0, rows[None], 0, name)
        return None

    said, _ = at_all([here, there], harmed)
    assert "party 1 sent something malformed: no set of identifiers" in said
