"""Contract of trainers.network.kit: who a site is, and whom it trains with."""

import json

import pytest

import privaudit as pa
from privaudit.cli import main
from trainers.network.kit import Kit
from trainers.runs.parties import place_of


@pytest.fixture
def kit(tmp_path):
    for name in ("startup", "local"):
        (tmp_path / name).mkdir()
    service = {"target": "flare.example.org:8002", "scheme": "grpc"}
    given = {
        "servers": [{"name": "joint", "service": service, "identity": "flare"}],
        "client": {
            "ssl_private_key": "client.key",
            "ssl_cert": "client.crt",
            "ssl_root_cert": "rootCA.pem",
            "fqsn": "clinic",
        },
    }
    (tmp_path / "startup/fed_client.json").write_text(json.dumps(given))
    (tmp_path / "local/privaudit.toml").write_text('sites = ["ward", "clinic"]\n')
    return tmp_path


def test_what_it_says(kit):
    found = Kit.read(kit)
    assert (found.rank, found.project, found.server) == (1, "joint", "flare")
    assert (found.scheme, found.target) == ("grpc", "flare.example.org:8002")
    assert found.key == str(kit / "startup/client.key")
    assert found.places == {"ward": "ward", "clinic": "clinic"}
    settings = pa.TrainingSettings(exchange="flare", kit=kit)
    assert settings.parties
    assert place_of(settings) == (1, 2)


def test_a_relay(kit):
    relay = {"scheme": "grpc", "address": "here:8004", "fqcn": "relay"}
    file = kit / "local/relay__resources.json"
    file.write_text(json.dumps({"relay_config": relay}))
    found = Kit.read(kit)
    assert (found.target, found.relay) == ("here:8004", "relay")
    assert found.places == {"relay.ward": "ward", "relay.clinic": "clinic"}


@pytest.mark.parametrize(
    "sites", ['["ward", "lab"]', '["clinic"]', '["clinic", "ward", "ward"]', "[]", "7"]
)
def test_sites_that_cannot_be(kit, sites):
    (kit / "local/privaudit.toml").write_text(f"sites = {sites}\n")
    with pytest.raises(ValueError, match=r"must name the sites|no kit of a FLARE"):
        Kit.read(kit)


@pytest.mark.parametrize("text", [None, "", "[]", '{"servers": [], "client": {}}'])
def test_no_kit(kit, text, capsys):
    file = kit / "startup/fed_client.json"
    file.unlink()
    if text is not None:
        file.write_text(text)
    command = ["train", "dp-dsgt", "--exchange", "flare", "--kit", str(kit)]
    assert main([*command, "--epsilon", "4"]) == 2
    assert "is no kit of a FLARE site" in capsys.readouterr().err


@pytest.mark.parametrize("given", [{"exchange": "flare"}, {"kit": "kits/ward"}])
def test_a_kit_and_its_exchange_go_together(given):
    with pytest.raises(ValueError, match="give --exchange flare and --kit together"):
        pa.TrainingSettings(**given)
    with pytest.raises(ValueError, match="together"):
        pa.train("softmax", [], "dp-dsgt", epsilon=4, **given)
