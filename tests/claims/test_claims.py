"""The papers' claims: certified columns against dp-accounting, verdicts, JSON."""

import collections
import functools
import json
import math
import pathlib
import subprocess
import sys

import msgspec
import pytest
from scipy import stats

from privaudit import cli
from privaudit.accounting import Certificate
from privaudit.auditing.bounds import ESTIMATORS, ONE_RUN
from privaudit.auditing.bounds.one_run_curve import OneRunOfFamily
from privaudit.claims import PAPERS, all_claims, claims_of
from privaudit.claims.accounts import bracket, fixed, poisson, single
from privaudit.claims.claim import Certified, PaperFinding, judged
from privaudit.claims.papers.paper_000 import printed_noise
from privaudit.claims.sources import OF_METHOD, SOURCES, bibtex
from privaudit.ledger import Ledger
from privaudit.results import LowerBound

KEYS = [
    "paper",
    "claim",
    "where",
    "quantity",
    "delta",
    "relation",
    "unit",
    "claimed",
    "certified_as_printed",
    "certified_as_printed_lower",
    "audited_as_printed",
    "certified_as_corrected",
    "audited_as_corrected",
    "verdict",
]


@functools.cache
def found(key):
    (claim,) = [one for one in all_claims() if one.key == key]
    return judged(claim)


def independent(noise, steps, rate, delta, replace=False):
    """dp-accounting's PLD, pessimistic."""
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant

    relation = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    if replace:
        relation = dpa.NeighboringRelation.REPLACE_ONE
    event = dpa.GaussianDpEvent(noise)
    if rate < 1:
        event = dpa.PoissonSampledDpEvent(rate, event)
    accountant = PLDAccountant(relation, value_discretization_interval=1e-3)
    return accountant.compose(event, steps).get_epsilon(delta)


def lower_bound(epsilon, **change):
    values = {"delta": 1e-5, "relation": "add-or-remove-one", **change}
    said = dict.fromkeys(("method", "source", "threat_model"), "x")
    runs = {"member_runs": 1, "non_member_runs": 1}
    return LowerBound(epsilon=epsilon, confidence=0.99, **said, **runs, **values)


class TestAgainstIndependentAccount:
    @pytest.mark.full
    @pytest.mark.parametrize(
        ("epsilon", "steps"), [(1.0, 2500), (0.3, 2500), (3, 2500)]
    )
    def test_dyn_d2p(self, epsilon, steps):
        noise = printed_noise(epsilon, steps)
        ours = found(f"000/eq6-constant-epsilon{epsilon:g}-K{steps}").printed
        theirs = independent(noise, steps, 1 / 2500, 1e-4)
        assert ours.lower <= theirs
        assert ours.upper == pytest.approx(theirs, rel=5e-3)

    @pytest.mark.parametrize(
        ("name", "noise", "replace"),
        [
            ("rdp-add-remove-noise2", 2.0, False),
            ("rdp-replace-one-noise2", 2.0, True),
        ],
    )
    def test_bayrooti(self, name, noise, replace):
        ours = found(f"001/{name}").printed
        theirs = independent(noise, 2000, 256 / 6000, 1e-5, replace)
        assert ours.upper == pytest.approx(theirs, rel=1e-2)

    def test_what_the_page_lets_a_reader_check_by_hand(self):
        # The largest of 2,500 steps against 2.48 clip norms.
        noise, steps, rate, threshold = printed_noise(1.0, 2500), 2500, 1 / 2500, 2.48
        without = stats.norm.sf(threshold / noise)
        drawn = stats.norm.sf((threshold - 1) / noise)
        step = (1 - rate) * without + rate * drawn
        false, true = (-math.expm1(steps * math.log1p(-p)) for p in (without, step))
        shown = math.log((true - 1e-4) / false)
        assert false == pytest.approx(7.28e-6, rel=2e-3)
        assert true == pytest.approx(2.63e-4, rel=2e-3)
        assert shown == pytest.approx(3.11, abs=0.005)
        finding = found("000/eq6-constant-epsilon1-K2500")
        assert 1 < shown <= finding.printed.lower
        assert "3.11" in finding.claim.plain

    def test_ten_classes(self):
        # sqrt(10) times the sensitivity that the noise was made for.
        delta = 1 / 600_000**2
        noise = math.sqrt(2 * math.log(1.25 / delta)) / 0.5 / math.sqrt(10)
        ours = found("002/theorem2-ten-classes").printed
        assert ours.upper == pytest.approx(independent(noise, 1, 1, delta), rel=1e-2)


class TestVerdicts:
    @pytest.mark.sampled(40)
    @pytest.mark.parametrize(
        ("key", "verdict"),
        [
            ("000/eq6-constant-epsilon1-K2500", "disproved"),
            ("000/proposition4-mu-above-1", "disproved"),
            ("001/rdp-add-remove-epsilon1", "consistent"),
            ("001/rdp-replace-one-epsilon1", "disproved"),
            ("001/code-dinno-inner-steps", "disproved"),
            ("002/theorem2-one-class", "consistent"),
            ("002/choice-of-action", "unproven"),
            ("003/theorem1-round", "consistent"),
            ("003/equation22-constants", "disproved"),
            ("004/theorem2-epsilon1-T58500-K16-B256", "no theorem"),
            ("004/noise-on-sum-T1000-K8-B8", "disproved"),
        ],
    )
    def test_of_claims(self, key, verdict):
        assert found(key).verdict == verdict

    def test_corrected_forms_meet_what_was_claimed(self):
        for claim in (*claims_of("001"), *claims_of("002")):
            finding = judged(claim)
            if finding.corrected is not None:
                assert claim.claimed is not None
                assert finding.corrected.upper <= claim.claimed

    def test_an_audit_above_the_claim_refutes_and_one_at_it_does_not(self):
        finding = found("001/rdp-add-remove-epsilon1")

        def audited(epsilon):
            lower = lower_bound(epsilon)
            return PaperFinding(finding.claim, finding.printed, None, lower).verdict

        assert finding.claim.claimed is not None
        assert finding.printed is not None
        # Between them the audit contradicts the account, which then proves nothing.
        assert finding.printed.upper < finding.claim.claimed
        assert audited(finding.printed.upper) == "consistent"
        assert audited(finding.claim.claimed) == "unproven"
        assert audited(finding.claim.claimed + 1e-9) == "refuted"

    def test_an_audit_of_something_else_is_refused(self):
        finding = found("001/rdp-add-remove-epsilon1")
        for change in ({"relation": "replace-one"}, {"delta": 1e-6}):
            lower = lower_bound(9.0, **change)
            with pytest.raises(ValueError, match=next(iter(change))):
                PaperFinding(finding.claim, finding.printed, None, lower)

    def test_a_bracket_of_something_else_is_refused(self):
        claim = found("001/rdp-add-remove-epsilon1").claim
        certificate = Certificate.of(single(1.0), "replace-one")
        with pytest.raises(ValueError, match="relation"):
            PaperFinding(claim, Certified.of(certificate.epsilon(1e-5)), None)
        certificate = Certificate.of(single(1.0), "add-or-remove-one")
        assert PaperFinding(claim, Certified.of(certificate.epsilon(1e-5)), None)
        with pytest.raises(ValueError, match="delta"):
            PaperFinding(claim, Certified.of(certificate.epsilon(1e-6)), None)

    @pytest.mark.full
    def test_how_many_have_which(self):
        counts = collections.Counter(judged(claim).verdict for claim in all_claims())
        assert counts == {
            "disproved": 25,
            "consistent": 11,
            "no theorem": 3,
            "unproven": 2,
        }

    def test_a_bracket_is_one(self):
        with pytest.raises(ValueError, match="lower <= upper"):
            Certified(1.0, 2.0)


class TestAttacksOnRecord:
    """How often a claim was attacked is said, not only what one attack showed."""

    @pytest.mark.parametrize(
        ("key", "looks"),
        [
            (
                "000/eq6-growing-rho0.3-epsilon1-K2500",
                [(30_000, 7, 0.95), (100_000, 8, None)],
            ),
            (
                "000/eq6-constant-epsilon1-K2500",
                [(30_000, 7, None), (None, None, 1.177)],
            ),
            (
                "000/eq6-constant-epsilon1-K500",
                [(2000, None, None), (40_000, 7, None)],
            ),
            ("004/noise-on-sum-T1000-K8-B8", [(500, 1, None)]),
        ],
    )
    def test_all_are_named_in_order(self, key, looks):
        (claim,) = [one for one in all_claims() if one.key == key]
        attack = claim.attack
        assert [(one.runs, one.seed, one.epsilon) for one in attack.looks] == looks
        assert attack.record().startswith(f"{len(looks)}: ")
        for runs, seed, epsilon in looks:
            assert runs is None or f"{runs:,} runs" in attack.record()
            assert seed is None or f"seed {seed}" in attack.record()
            assert epsilon is None or f"at least {epsilon:.3f}" in attack.record()

    def test_every_attacked_claim_is_on_the_terminal_and_the_page(self):
        folder = pathlib.Path(__file__).parents[2] / "reports" / "claims"
        attacked = [claim for claim in all_claims() if claim.attack is not None]
        assert len(attacked) == 4
        for claim in attacked:
            finding = PaperFinding(claim, Certified(1.0), None)
            said = f"attacks on record: {claim.attack.record()}"
            assert f"  {said}" in finding.lines()
            for page in ("index.html", "README.md"):
                assert claim.attack.record() in (folder / page).read_text()


class TestBrackets:
    @pytest.mark.parametrize(
        ("ledger", "relation"),
        [
            (poisson(1.0, 100, 0.1), "add-or-remove-one"),
            (fixed(1.0, 10, 5, 50), "replace-one"),
            (single(2.0), "replace-one"),
        ],
    )
    def test_are_narrow(self, ledger, relation):
        both = bracket(ledger, 1e-5, relation)
        assert 0 < both.lower <= both.upper <= both.lower * 1.3

    def test_no_noise_is_infinite(self):
        assert bracket(single(0.0), 1e-5).lower == float("inf")

    def test_the_worst_node_counts(self):
        both = Ledger.joined([single(1.0), single(2.0)])
        assert (
            bracket(both, 1e-5, "replace-one").upper
            == bracket(single(1.0), 1e-5, "replace-one").upper
        )

    def test_a_sensitivity_that_may_fail_is_paid_for_out_of_delta(self):
        ledger = msgspec.structs.replace(single(2.0), failure=4e-6)
        paid = bracket(single(2.0), 6e-6, "replace-one").upper
        assert bracket(ledger, 1e-5, "replace-one").upper == paid
        assert bracket(ledger, 1e-5, "replace-one").lower == 0
        assert bracket(ledger, 4e-6, "replace-one").upper == math.inf

    def test_what_is_assumed_is_not_proved(self):
        ledger = msgspec.structs.replace(single(2.0), assumes=("nobody looks",))
        both = bracket(ledger, 1e-5, "replace-one")
        assert both.upper == math.inf
        assert both.lower == bracket(single(2.0), 1e-5, "replace-one").lower

    def test_what_is_known_of_nodes_is_an_upper_bound_only(self):
        ledger = msgspec.structs.replace(single(2.0), unit="node")
        both = bracket(ledger, 1e-5, "replace-one")
        assert both.lower == 0
        assert both.upper == bracket(single(2.0), 1e-5, "replace-one").upper

    def test_a_pass_over_disjoint_records_counts_once(self):
        (entry,) = single(2.0, 7).nodes[0]
        ledger = Ledger(nodes=((msgspec.structs.replace(entry, disjoint=0),),))
        once = bracket(single(2.0), 1e-5, "replace-one")
        both = bracket(ledger, 1e-5, "replace-one")
        assert (both.lower, both.upper) == (0, once.upper)


class TestRegistry:
    def test_names_are_unique_and_sources_known(self):
        claims = all_claims()
        assert len({claim.key for claim in claims}) == len(claims)
        for claim in claims:
            assert claim.paper in PAPERS
            assert bibtex(claim.methods).startswith("@")
            assert (claim.corrected is None) == (not claim.correction) or (
                claim.paper == "002"
            )

    def test_unknown_ones_are_told(self):
        with pytest.raises(ValueError, match="no paper '9'"):
            claims_of("9")
        with pytest.raises(ValueError, match="no source"):
            bibtex(["nothing"])
        assert len(bibtex(SOURCES).split("\n\n")) <= len(SOURCES) + 1  # one has two
        for methods in OF_METHOD.values():
            assert bibtex(methods).startswith("@")

    def test_estimators_are_cited(self):
        assert {*ESTIMATORS, *ONE_RUN, OneRunOfFamily.name} <= OF_METHOD.keys()


class TestCommands:
    def test_json_is_stable(self, capsys):
        assert cli.main(["claims", "002", "--quick", "--json"]) == cli.REFUTED
        first = capsys.readouterr().out
        cli.main(["claims", "002", "--quick", "--json"])
        assert capsys.readouterr().out == first
        claims = json.loads(first)["claims"]
        assert [list(claim) for claim in claims] == [KEYS] * len(claims)
        assert all(claim["audited_as_printed"] is None for claim in claims)

    def test_quick_imports_no_torch(self):
        code = (
            "import sys; from privaudit import cli; "
            "cli.main(['claims', '002', '--quick']); "
            "print('torch' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "False"

    def test_cite(self, capsys):
        assert cli.main(["cite", "000/uniform-sample"]) == 0
        assert "@article{dong2019gaussian" in capsys.readouterr().out
        assert cli.main(["cite", "000/no-such"]) == cli.BAD_USAGE

    @pytest.mark.sampled(5)
    @pytest.mark.parametrize("paper", PAPERS)
    def test_cite_begins_with_the_paper(self, capsys, paper):
        assert cli.main(["cite", paper]) == 0
        told = capsys.readouterr().out
        assert told.startswith("@misc{")


class TestOwnClaims:
    def write(self, tmp_path, epsilon, more=""):
        (tmp_path / "ledger.json").write_text(single(1.0).to_json())
        file = tmp_path / "claims.toml"
        file.write_text(
            f'[[claim]]\nname = "ours"\nepsilon = {epsilon}\ndelta = 1e-5\n'
            f'ledger = "ledger.json"\n{more}'
        )
        return str(file)

    def test_one_that_holds_and_one_that_does_not(self, tmp_path, capsys):
        assert cli.main(["claims", self.write(tmp_path, 5.0), "--json"]) == 0
        (claim,) = json.loads(capsys.readouterr().out)["claims"]
        assert list(claim) == KEYS
        assert claim["verdict"] == "consistent"
        assert cli.main(["claims", self.write(tmp_path, 4.0)]) == cli.REFUTED
        assert "DISPROVED" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("more", "told"),
        [
            ('function = "a:b"\n', "exactly one of"),
            ('try = ["audit"]\n', "only an algorithm"),
            ("confidense = 0.9\n", "confidense"),
            ('relation = "swap"\n', "add-or-remove-one, replace-one"),
            (
                '[[claim]]\nname = "ours"\nepsilon = 1\ndelta = 0.1\nledger = "a"',
                "two claims are called 'ours'",
            ),
        ],
    )
    def test_mistakes_are_told(self, tmp_path, capsys, more, told):
        assert cli.main(["claims", self.write(tmp_path, 5.0, more)]) == cli.BAD_USAGE
        assert told in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            (b"", "has no claim"),
            (b"claim = []\n", "has no claim"),
            (b"\xff\xfe", "is no UTF-8"),
            (b'[[claim]]\nname = "a"\ndelta = 1e-5\n', "`epsilon`"),
            (
                b'[[claim]]\nname = "a"\nepsilon = 1.0\ndelta = 1e-5\n'
                b'function = "json:dumps"\n',
                "json:dumps",
            ),
        ],
    )
    def test_files_that_are_none(self, tmp_path, capsys, text, told):
        file = tmp_path / "claims.toml"
        file.write_bytes(text)
        assert cli.main(["claims", str(file)]) == cli.BAD_USAGE
        assert told in capsys.readouterr().err

    def test_what_its_ledger_assumes_or_pays_is_not_forgotten(self, tmp_path, capsys):
        file = self.write(tmp_path, 5.0)
        ledger = msgspec.structs.replace(single(1.0), assumes=("nobody looks",))
        (tmp_path / "ledger.json").write_text(ledger.to_json())
        assert cli.main(["claims", file]) == 0
        assert "UNPROVEN" in capsys.readouterr().out
        ledger = msgspec.structs.replace(single(1.0), failure=1e-5)
        (tmp_path / "ledger.json").write_text(ledger.to_json())
        assert cli.main(["claims", file]) == 0
        assert "UNPROVEN" in capsys.readouterr().out

    def test_its_unit_is_that_of_its_ledger(self, tmp_path, capsys):
        ledger = msgspec.structs.replace(single(1.0), unit="node")
        file = self.write(tmp_path, 5.0)
        (tmp_path / "ledger.json").write_text(ledger.to_json())
        assert cli.main(["claims", file]) == cli.BAD_USAGE
        assert 'unit = "node"' in capsys.readouterr().err
        file = self.write(tmp_path, 5.0, 'unit = "node"\n')
        (tmp_path / "ledger.json").write_text(ledger.to_json())
        assert cli.main(["claims", file, "--json"]) == 0
        (claim,) = json.loads(capsys.readouterr().out)["claims"]
        assert (claim["unit"], claim["verdict"]) == ("node", "consistent")

    def test_a_users_guarantee_is_audited(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        file = tmp_path / "claims.toml"
        small = 'digits = [0, 1], train = 20, model = "softmax", rounds = 2, nodes = 2'
        file.write_text(
            '[[claim]]\nname = "ours"\nepsilon = 0.1\ndelta = 1e-2\nunit = "user"\n'
            'algorithm = "dp-fedavg"\nnoise_multiplier = 0.2\ntry = ["audit"]\n'
            'adversary = "noisy-gradients"\ncanary = "gradient"\nruns = 60\n'
            f"settings = {{ {small}, local_steps = 1 }}\n"
        )
        assert cli.main(["claims", str(file), "--json"]) == cli.REFUTED
        (claim,) = json.loads(capsys.readouterr().out)["claims"]
        assert (claim["unit"], claim["verdict"]) == ("user", "refuted")

    def test_a_ledger_of_nobody_meets_no_claim(self, tmp_path, capsys):
        file = self.write(tmp_path, 5.0)
        (tmp_path / "ledger.json").write_text(
            '{"format": "privaudit-ledger", "version": 1, "nodes": []}'
        )
        assert cli.main(["claims", file]) == cli.BAD_USAGE
        assert "must have a node" in capsys.readouterr().err

    def test_a_function(self, tmp_path, capsys):
        file = tmp_path / "claims.toml"
        file.write_text(
            '[[claim]]\nname = "f"\nepsilon = 5.0\ndelta = 1e-5\n'
            f'function = "{__name__}:made"\n'
        )
        assert cli.main(["claims", str(file)]) == 0
        capsys.readouterr()
        file.write_text(file.read_text().replace(":made", ":nothing"))
        assert cli.main(["claims", str(file)]) == cli.BAD_USAGE

    def test_an_attack_refutes_noise_that_is_too_small(self, tmp_path, capsys):
        file = tmp_path / "claims.toml"
        file.write_text(
            """
            [[claim]]
            name = "too little noise"
            epsilon = 1.0
            delta = 1e-3
            algorithm = "dp-dsgd"
            noise_multiplier = 0.1
            try = ["account", "audit"]
            runs = 100
            block = 25
            settings = {model = "privaudit.claims.probe:pixels", nodes = 2, \
digits = "0,1", train = 20, split = 0, rounds = 5, batch_size = 8, clip_norm = 1}
            """.replace("\\\n", "")
        )
        out = str(tmp_path / "runs")
        assert cli.main(["claims", str(file), "--out", out, "--json"]) == cli.REFUTED
        (claim,) = json.loads(capsys.readouterr().out)["claims"]
        assert claim["verdict"] == "refuted"
        assert 1 < claim["audited_as_printed"] <= claim["certified_as_printed"]
        assert cli.main(["claims", str(file), "--quick", "--json"]) == cli.REFUTED
        (claim,) = json.loads(capsys.readouterr().out)["claims"]
        assert claim["audited_as_printed"] is None
        assert cli.main(["cite", out + "/too little noise"]) == 0
        assert "@" in capsys.readouterr().out


class TestAttacks:
    def test_their_commands_are_those_that_the_page_prints(self):
        attacks = [claim for claim in all_claims() if claim.attack is not None]
        assert {claim.paper for claim in attacks} == {"000", "004"}
        for claim in attacks:
            assert claim.attack is not None
            assert claim.claimed is not None
            assert claim.attack.confidence == 0.99
            assert claim.attack.corrected_noise > claim.attack.noise_multiplier
            command = claim.attack.command(claim.claimed, claim.delta)
            assert f"--noise-multiplier {claim.attack.noise_multiplier!r} " in command
            again = claim.attack.command(claim.claimed, claim.delta, corrected=True)
            assert repr(claim.attack.corrected_noise) in again

    @pytest.mark.full
    def test_noise_of_corrected_attacks_is_certified(self):
        noises = {
            claim.key: claim.attack.corrected_noise
            for claim in all_claims()
            if claim.attack
        }
        for steps in (500, 2500):
            noise = noises[f"000/eq6-constant-epsilon1-K{steps}"]
            assert bracket(poisson(noise, steps, 1 / 2500), 1e-4).upper <= 1
        sums = fixed(noises["004/noise-on-sum-T1000-K8-B8"], 125, 8, 200)
        assert bracket(sums, 1e-5, "replace-one").upper <= 4


def made():
    """A ledger for `TestOwnClaims`."""
    return single(1.0)
