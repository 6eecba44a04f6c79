"""`privaudit train --observer`: for whom a budget holds, wherever it is said."""

import json

import pytest
import torch

import privaudit as pa
from privaudit.accounting.certificate import Certificate
from privaudit.accounting.views import observed
from privaudit.cli import main
from privaudit.ledger import Ledger
from privaudit.release import PoissonSampling, Release
from privaudit.report.numbers import up
from privaudit.results import symbols

RUN = ["train", "dp-butterfly", "--epsilon", "1", "--delta", "1e-4", "--seed", "0"]
for setting in ("nodes=4", "rounds=12", "train=300", "batch_size=10"):
    RUN += ["--set", setting]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run for any one node."""
    out = tmp_path_factory.mktemp("observer") / "run"
    assert main([*RUN, "--observer", "any-node", "--out", str(out)]) == 0
    return out


def read(folder, name):
    """One of its files."""
    return json.loads((folder / name).read_text())


class TestAnyNode:
    def test_the_budget_is_met_and_used_up(self, folder):
        result = read(folder, "result.json")
        found = max(node["epsilon"] for node in result["nodes"])
        assert 0.999 < found <= 1
        assert {node["observer"] for node in result["nodes"]} == {"any-node"}
        assert result["seen_by_all"]["epsilon"] > 1.2
        assert result["verdict"]["claim"]["observer"] == "any-node"
        assert result["status"] == "consistent"
        assert read(folder, "config.json")["observer"] == "any-node"

    def test_no_pair_of_nodes_is_above(self, folder):
        config = read(folder, "config.json")
        pairs = pa.views(
            "dp-butterfly",
            noise_multiplier=config["noise_multiplier"],
            delta=1e-4,
            **{"nodes": 4, "rounds": 12, "train": 300, "batch_size": 10},
        ).pairs
        assert 0.99 < max(pair.certified for pair in pairs) <= 1.001
        assert max(pair.everything_seen for pair in pairs) > 1.2

    def test_less_noise_than_for_all(self, folder, tmp_path, capsys):
        assert main([*RUN, "--json", "--out", str(tmp_path / "all")]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["observer"] is None
        assert found["everything_seen"] == found["certified"] <= 1
        noise = read(folder, "config.json")["noise_multiplier"]
        assert 1.1 * noise < found["noise_multiplier"]

    def test_it_is_verified_shown_and_on_the_page(self, folder, capsys):
        assert main(["verify", str(folder)]) == 0
        assert main(["show", str(folder)]) == 0
        out = capsys.readouterr().out
        assert out.count("seen by any one other node") == 2
        assert "for an observer of all releases" in out
        assert main(["report", str(folder)]) == 0
        page = (folder / "report.html").read_text()
        for words in ("seen by any one other node", "--observer any-node", "follows"):
            assert words in page

    def test_its_page_shows_who_learns_how_much_of_whom(self, folder):
        assert main(["report", str(folder)]) == 0
        page = (folder / "report.html").read_text()
        assert "What each node learns of each other" in page
        noise = read(folder, "config.json")["noise_multiplier"]
        pairs = pa.views(
            "dp-butterfly",
            noise_multiplier=noise,
            delta=1e-4,
            **{"nodes": 4, "rounds": 12, "train": 300, "batch_size": 10},
        ).pairs
        for value in (
            max(pair.certified for pair in pairs),
            max(pair.everything_seen for pair in pairs),
        ):
            assert f"at most {up(value)}" in page
        assert page.count(up(pairs[0].certified)) >= 1

    @pytest.mark.parametrize("forged", ["seen by all", "another one"])
    def test_a_claim_for_others_is_found_out(self, folder, tmp_path, forged, capsys):
        # What any one node learns, said of whoever sees everything or of another.
        for name in ("config.json", "result.json", "ledger.json", "curves.json"):
            text = (folder / name).read_text()
            if forged == "another one":
                text = text.replace("any-node", "everybody")
            elif name != "ledger.json":
                text = text.replace('"observer": "any-node"', '"observer": null')
                text = text.replace(',\n  "observer": null\n', "\n")
            (tmp_path / name).write_text(text)
        assert main(["verify", str(tmp_path)]) != 0
        capsys.readouterr()

    def test_a_stopped_run_goes_on_only_for_the_same_observer(self, folder, capsys):
        assert main([*RUN, "--out", str(folder)]) != 0
        assert "observer" in capsys.readouterr().err


def test_noise_that_releases_share(tmp_path, capsys):
    """The ledger alone says what each learns, from which all else follows."""
    run = ["train", "dp-mf-butterfly", *RUN[2:], "--set", "band=3"]
    noise = {}
    for name, more in (("all", []), ("any", ["--observer", "any-node"])):
        out = tmp_path / name
        assert main([*run, *more, "--out", str(out)]) == 0
        assert main(["verify", str(out)]) == 0
        noise[name] = read(out, "config.json")["noise_multiplier"]
    assert noise["any"] < 0.95 * noise["all"]
    result = read(out, "result.json")
    assert 0.999 < max(node["epsilon"] for node in result["nodes"]) <= 1
    ledger = Ledger.from_json((out / "ledger.json").read_text())
    assert len(ledger.nodes[0][0].release.sampling.shares) == 2
    seen = Certificate.of(observed(ledger, "any-node"), "add-or-remove-one")
    assert seen.epsilon(1e-4).upper == max(n["epsilon"] for n in result["nodes"])
    text = (out / "ledger.json").read_text()
    share = str(ledger.nodes[0][0].release.sampling.shares[1])
    assert text.count(share)
    (out / "ledger.json").write_text(text.replace(share, "1e-3"))
    capsys.readouterr()
    assert main(["verify", str(out)]) != 0


@pytest.mark.parametrize(
    ("observer", "more", "words"),
    [
        ("any-node", ["dp-dsgd"], "dp-chain, dp-mf-butterfly, not for dp-dsgd"),
        (
            "any-node",
            ["butterfly"],
            "proved for dp-butterfly, dp-chain, dp-mf-butterfly, not for butterfly",
        ),
        ("x", ["dp-butterfly"], "an observer is a node"),
        ("8", ["dp-butterfly"], "there is no node 8"),
        ("2,2", ["dp-butterfly"], "must differ"),
    ],
)
def test_bad_usage_is_one_sentence(capsys, tmp_path, observer, more, words):
    command = ["train", *more, "--observer", observer, "--out", str(tmp_path / "run")]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_several_that_collude_in_python():
    inputs = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    data = inputs, (inputs.sum(1) > 0).long()
    run = pa.train(
        torch.nn.Linear(3, 2),
        data,
        "dp-butterfly",
        nodes=4,
        epsilon=2,
        observer="2,1",
        rounds=12,
        seed=0,
    )
    assert run.observer == "1,2"
    right = Certificate.of(observed(run.ledger, "1,2")).epsilon(1e-5).upper
    assert run.certificate.epsilon(1e-5).upper == right <= 2
    for text in (str(run), str(run.certificate.epsilon(1e-5))):
        assert "seen by nodes 1,2 together" in text
    with pytest.raises(ValueError, match="proved for dp-butterfly"):
        pa.train(torch.nn.Linear(3, 2), data, nodes=2, epsilon=1, observer="any-node")


class TestSaid:
    """For whom a figure holds, wherever one stands by itself."""

    def test_on_the_page(self, folder):
        assert main(["report", str(folder)]) == 0
        page = (folder / "report.html").read_text()
        assert "who sees no more than any one other node and wrongly accuses" in page
        assert "an attacker who wrongly" not in page
        assert "as seen by any one other node" in page

    def test_in_notebooks_and_headlines(self):
        ledger = observed(plan_of(4, 6), "3")
        assert "seen by node 3" in Certificate.of(ledger)._repr_html_()
        found = Certificate.of(ledger).epsilon(1e-5)
        assert symbols(found).endswith("; seen by node 3")

    @pytest.mark.full
    def test_a_page_without_what_has_no_account_by_observer(self, tmp_path):
        run = str(tmp_path / "a")
        assert main([*RUN, "--sampling", "random-allocation", "--out", run]) == 0
        assert main(["report", run]) == 0
        assert "learned by node" not in (tmp_path / "a/report.html").read_text()


def plan_of(nodes, steps):
    """Every node releases alike."""
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=2.0, sampling=PoissonSampling(0.1)
    )
    return Ledger.of(release, steps, nodes=nodes)
