"""The form of account that fails: refuted as it runs, mended by more noise."""

import json

import pytest

from privaudit.claims import claims_of
from privaudit.claims.attacks import attacked
from privaudit.claims.claim import judged
from privaudit.cli import main


class TestNetwork:
    def test_by_accounts_alone_nothing_is_proved(self, capsys):
        assert main(["claims", "network", "--quick", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["claims"]
        assert [one["claim"] for one in found] == ["path-of-3", "path-of-5"]
        for one in found:
            assert one["verdict"] == "unproven"
            assert one["certified_as_corrected"] <= one["claimed"]
            assert one["claimed"] < 0.5 * one["certified_as_printed"]

    @pytest.mark.parametrize("claim", claims_of("network"), ids=lambda one: one.name)
    def test_it_is_refuted_and_the_corrected_form_is_not(self, claim, tmp_path):
        found = attacked(judged(claim), tmp_path, None)
        assert claim.attack.runs <= 2000
        assert found.audited.confidence == 0.99
        assert found.verdict == "refuted"
        assert found.audited_corrected.epsilon <= claim.claimed

    def test_its_methods_can_be_cited(self, capsys):
        assert main(["cite", "network/path-of-3"]) == 0
        assert "Gaussian Differential Privacy" in capsys.readouterr().out
