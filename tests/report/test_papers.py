"""The programme of five papers: no item is missing, statuses come from settings."""

import fnmatch
import math
import re
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import ttest_ind

from reports import published, table
from reports.papers import networks, running
from reports.papers.cells import PAPERS
from reports.papers.page import judged, kind
from reports.papers.programme import (
    VERDICTS,
    Case,
    Claim,
    Found,
    Row,
    Search,
    above,
    both,
    claims_of,
    found,
    hours,
    lacking,
    loses,
    rows_of,
    searches_of,
    settle,
    within,
)
from reports.papers.size import Size, of_records
from reports.study import Results, Study
from trainers.network.graphs import normalised_fiedler, with_fiedler

# Counted in the papers: their tables and figures are numbered from 1 without a gap.
ITEMS = {
    "zhu": {"Table": 2, "Figure": 11},
    "bayrooti": {"Table": 5, "Figure": 3},
    "deep-q": {"Table": 2, "Figure": 4},
    "zhou": {"Table": 4, "Figure": 4},
    "xu": {"Table": 2, "Figure": 9},
}
# Their numbered algorithms, and results beyond lemmas.
NUMBERED = {
    "zhu": "Algorithms 1 and 3 to 5,Algorithm 2,Theorem 1,Corollary 1,Proposition 4",
    "bayrooti": "Algorithms 1 to 3,Theorem 5.1",
    "deep-q": "Algorithms 1 and 2,Theorem 1,Theorem 2,Theorems 3 and 4,Lemma 4",
    "zhou": "Algorithm 1,Algorithm 2,Theorem 1,Theorem 2",
    "xu": "Algorithm 1,Theorem 1,Theorem 2,Propositions 1 and 2,Remark 1",
}
ROMAN = {"I": "1", "II": "2"}
PAGES = {name: (Study("papers").folder / f"{name}.md").read_text() for name in PAPERS}
by_paper = pytest.mark.parametrize("name", PAPERS)


def test_fiedler_values_are_those_of_the_graphs_that_were_used():
    for name, value in published("bayrooti")["fiedler"].items():
        used = with_fiedler(10, float(name.partition(":")[2]), 0)
        assert normalised_fiedler(used) == pytest.approx(value, abs=5e-4)


def test_every_paper_is_here():
    assert set(PAPERS) == set(ITEMS)


@by_paper
class TestItems:
    def test_none_is_missing_and_none_is_invented(self, name):
        named = set()
        for row in rows_of(name):
            word, number = row.name.split(" ")
            named.add((word, int(ROMAN.get(number, number))))
        wanted = {
            (word, number)
            for word, count in ITEMS[name].items()
            for number in range(1, count + 1)
        }
        assert named == wanted

    def test_no_algorithm_or_theorem_is_missing(self, name):
        told = str(published(name)["part"])
        assert [one for one in NUMBERED[name].split(",") if one not in told] == []

    def test_each_has_a_line_with_its_status_on_the_page(self, name):
        known = Study("papers").results()
        for row in rows_of(name):
            (line,) = (
                line
                for line in PAGES[name].splitlines()
                if line.startswith(f"| {row.title} |")
            )
            of = found(row, known)
            why = " (nothing to compute)" if row.size is None else ""
            if row.missing and of.size is not None:
                why = ", but of other settings"
                assert kind(row, known) == "other settings"
            assert line.endswith(f"| **{of.status}**{why} |")

    def test_parts_of_an_item_have_names_of_their_own(self, name):
        names = [row.title for row in rows_of(name)]
        assert len(set(names)) == len(names)

    def test_what_was_not_run_says_why_and_at_what_cost(self, name):
        known = Study("papers").results()
        for row in rows_of(name):
            if row.size is None:
                assert "nothing to compute" in row.shows
            else:
                assert row.differs
                assert hours(row, known) > 0

    def test_claims_are_judged_in_one_of_four_words(self, name):
        for claim, one in judged(name, Study("papers").results()):
            assert one.word in VERDICTS
            assert f"**{one.word}**" in PAGES[name]
            assert claim.artefact in published(name)["artefacts"]

    def test_nothing_fails_without_an_equal_search(self, name):
        for claim, one in judged(name, Study("papers").results()):
            if one.word == "does not hold":
                assert "sides" in published(name)["missing"][claim.missing]
                assert not one.lacks

    def test_what_is_missing_stands_on_the_page_with_its_cost(self, name):
        for claim, one in judged(name, Study("papers").results()):
            if one.note == "missing":
                why = published(name)["missing"][claim.missing]["why"]
                assert one.hours > 0
                assert why in PAGES[name]

    def test_without_results_nothing_is_claimed_of_ours(self, name):
        """Judges of an empty programme speak of other studies, or cannot say."""
        for _, one in judged(name, Results({})):
            assert one.word in VERDICTS

    def test_facts_have_a_source(self, name):
        facts = published(name)
        known = {"source", "text", "grids", "seeds", "traces"}
        assert known <= set(facts["artefacts"])
        assert re.search(
            "^none: |, revision [0-9a-f]{12} ", facts["artefacts"]["source"]
        )
        assert all(one["source"] for one in facts["settings"])
        assert all(status for _, _, status, _ in facts["part"])
        kinds = {kind for kind, *_ in facts["part"]}
        assert {"algorithm", "formula", "data", "model"} <= kinds


class TestTraces:
    """Of the authors of PartPSP: 101 traces, of which 93 have an estimate."""

    STORED = table("zhou-traces")

    def test_all_are_here(self):
        named = [line["trace"].rpartition("/")[2] for line in self.STORED]
        assert len(named) == 101
        assert sum(not name.startswith("Real") for name in named) == 93
        assert sum(int(line["below"]) for line in self.STORED) == 28

    def test_their_settings_are_replayed(self):
        """All of the MLP whole; of ResNet-18 whole periods of synchronisation."""
        replays = list(PAPERS["zhou"].replays())
        assert len(replays) == 101
        for line, cell in replays:
            training, resnet = cell.settings["training"], "ResNet" in line["trace"]
            rounds = sum(stage[0] for stage in cell.settings["stages"])
            if resnet:
                assert rounds % training["sync_interval"] == 0 < rounds < 20
            else:
                assert rounds == int(line["rounds"])
            if training["sensitivity"] != "real":
                assert f"C{training['constant']:g}L" in line["trace"]

    def test_shared_parts_are_those_by_which_their_estimates_grow(self):
        """Of d parameters, lambda (1 + 2 C' gamma_n d / b) a round, far from a step."""
        module = networks.grey_resnet18((1, 28, 28), 10)
        for line, cell in PAPERS["zhou"].replays():
            training = cell.settings["training"]
            if "Network_Scale/ResNet" in line["trace"]:
                shared = training["shared"].split(",")
                dims = sum(
                    each.numel()
                    for name, each in module.named_parameters()
                    if any(fnmatch.fnmatchcase(name, part) for part in shared)
                )
                grows = 0.7 * (1 + 2 * 0.78 * 0.001 * dims / 5)
                first = 2 * 0.78 * training["step_size"] * training["clip_norm"]
                last = float(line["estimated at most"])
                assert last == pytest.approx(first * grows**3, rel=0.06)

    def test_figure_2_s_peaks_come_out_within_a_quarter(self):
        known = Study("papers").results()
        figure = [x for x in self.STORED if "Sensitivity/MLP/" in x["trace"]]
        peaks = [float(line["real at most"]) for line in figure]
        assert [round(peak) for peak in peaks] == [263, 899, 252, 895]
        for line, peak in zip(figure, peaks, strict=True):
            ours = known[f"trace {line['trace']}"]
            assert abs(ours["most"] / peak - 1) < 0.25
            assert ours["below"] == 0 == int(line["below"])


PRINTED = Size(rounds=100, nodes=10, batch=8, parameters=1000, runs=5, cells=6)


def records(seeds, **training):
    settings = {"rounds": 100, "nodes": 10, "batch_size": 8.0, "model": "softmax"}
    values = {**settings, "data": "digits", **training}
    return [
        {"settings": {"training": values, "seed": seed}, "result": {}}
        for seed in range(seeds)
    ]


class TestSize:
    """By hand: softmax on 8x8 images of ten classes has 650 parameters."""

    def test_of_records(self):
        found = of_records([*records(2), *records(2, step_size=0.1)])
        assert found == Size(100, 10, 8.0, 650, runs=2, cells=2)

    def test_seeds_of_a_cell_are_the_fewest(self):
        assert of_records([*records(3), *records(2, step_size=0.1)]).runs == 2

    def test_the_smallest_training_counts(self):
        assert of_records([*records(1), *records(1, rounds=50)]).rounds == 50

    def test_a_step_of_one_node_is_a_part_of_a_round(self):
        assert of_records(records(1, algorithm="adp2sgd")).rounds == 10

    def test_stages_are_one_training(self):
        (record,) = records(1)
        record["settings"]["stages"] = [[30, 1.0, 1.0], [12, 0.1, 0.1]]
        assert of_records([record]).rounds == 42

    @pytest.mark.parametrize(
        ("smaller", "factor"),
        [
            ({}, 1),
            ({"rounds": 50}, 2),
            ({"rounds": 50, "batch": 16}, 1),
            ({"rounds": 50, "runs": 1, "cells": 3}, 20),
            ({"rounds": 1000, "runs": 1}, 5),  # more rounds make up for no seeds
            ({"parameters": 10}, 100),
        ],
    )
    def test_reduced(self, smaller, factor):
        ours = Size(**{f: getattr(PRINTED, f) for f in PRINTED.__slots__} | smaller)
        assert PRINTED.reduced(ours) == pytest.approx(factor)

    @pytest.mark.parametrize(
        ("factor", "words"),
        [
            (1.0, "at size"),
            (1.01, "reduced 1.1 times"),
            (2.0, "reduced 2.0 times"),
            (139.0, "reduced 140 times"),
            (7501.0, "reduced 7,600 times"),
        ],
    )
    def test_is_told_rounded_up(self, factor, words):
        assert Found("x", PRINTED, "", factor).status == words

    def test_without_results_it_was_not_run(self):
        row = Row("Table 1", "", PRINTED, sources=(("papers", "x*"),))
        assert found(row, Results({})).status == "not run"
        assert found(row, Results({})).factor == math.inf

    def test_a_run_that_was_refused_is_no_result(self):
        row = Row("Table 1", "", PRINTED, sources=(("papers", "x*"),))
        (record,) = records(1)
        known = Results({"x 1": record | {"result": {"accuracy": None}}})
        assert found(row, known).status == "not run"
        known = Results({"x 1": record | {"result": {"accuracy": 0.5}}})
        # 1000 / 650 parameters, 5 seeds, 6 cells
        assert found(row, known).factor == pytest.approx(30 / 0.65)
        assert kind(row, known) == "reduced"


class TestCost:
    """By hand: a pilot of 4 rounds, 10 nodes and batches of 5 took 2 seconds."""

    @pytest.mark.parametrize(
        ("algorithm", "seconds"), [("dp-dsgd", 240.0), ("adp2sgd", 2400.0)]
    )
    def test_is_the_pilot_s_by_gradients(self, algorithm, seconds):
        (record,) = records(1, rounds=4, batch_size=5.0, algorithm=algorithm)
        known = Results({"pilot x": record | {"result": {"cpu": 2.0}}})
        printed = Size(rounds=4, nodes=10, batch=10, parameters=1, runs=10, cells=6)
        row = Row("Table 1", "", printed, pilot="x")
        assert hours(row, known) == pytest.approx(seconds / 3600)

    def test_is_unknown_without_a_pilot(self):
        assert hours(Row("Table 1", "", PRINTED, pilot="x"), Results({})) is None


class TestRuns:
    TRAINING: ClassVar = {
        "algorithm": "dp-dsgt",
        "data": "digits",
        "train": 300,
        "nodes": 3,
        "batch_size": 10.0,
        "model": "softmax",
        "rounds": 24,  # a point of the curve every second
    }

    def test_is_certified_in_both_relations(self):
        found = running.trained(self.TRAINING, 1.0, 1e-5, "certified", 3, points=10)
        assert 0.99 < found["add-or-remove-one"] <= 1.0
        assert found["replace-one"] > 1.5
        assert len(found["norms"]) == len(found["curve"])
        assert {len(of_nodes) for of_nodes in found["norms"]} == {3}


def cases(*told, seeds=3, epsilon=1.0):
    return [Case("a", holds, "+1.0", seeds, epsilon) for holds in told]


WHOLE = [Search("one", 1.0, 64, 64), Search("other", 1.0, 5, 5)]


class TestVerdicts:
    @pytest.mark.parametrize(
        ("told", "more", "word", "note"),
        [
            ([], {}, "cannot say", ""),
            ([True, True], {}, "holds", ""),
            ([True, True], {"lacks": True}, "cannot say", "missing"),
            ([True, False], {}, "holds in part", ""),
            ([True, False], {"always": True}, "cannot say", "search"),
            ([True, False], {"always": True, "searches": WHOLE}, "cannot say", "alone"),
            ([False, False], {}, "cannot say", "search"),
            ([False, False], {"searches": WHOLE}, "does not hold", ""),
            ([np.False_, np.False_], {"searches": WHOLE}, "does not hold", ""),
            ([False, False, None], {"searches": WHOLE}, "does not hold", ""),
            ([False, None], {"searches": WHOLE}, "cannot say", "alone"),
            ([False, False], {"searches": WHOLE, "seeds": 2}, "cannot say", "seeds"),
            ([False] * 2, {"searches": WHOLE, "lacks": True}, "cannot say", "missing"),
            ([None, None], {"searches": WHOLE}, "cannot say", ""),
            ([None, True], {"always": True}, "holds in part", ""),
        ],
    )
    def test_the_rule(self, told, more, word, note):
        given = cases(*told, seeds=more.pop("seeds", 3))
        assert settle(given, **more) == (word, note)

    @pytest.mark.parametrize(
        "searches",
        [
            [],
            WHOLE[:1],  # one side alone
            [WHOLE[0], WHOLE[0]._replace(tried=70)],  # the same side twice
            [WHOLE[0], Search("other", 1.0, 4, 5)],
            [Search("one", 1.0, 0, 0), Search("other", 1.0, 0, 0)],
            [one._replace(epsilon=3.0) for one in WHOLE],
            [WHOLE[0], WHOLE[1]._replace(epsilon=None)],
            [*WHOLE, Search("third", 1.0, 0, 5)],
        ],
    )
    def test_nothing_fails_by_a_search_that_is_not_equal_at_its_epsilon(self, searches):
        assert settle(cases(False, False), searches) == ("cannot say", "search")

    def test_one_case_at_another_epsilon_is_enough_to_say_nothing(self):
        given = cases(False, False) + cases(False, epsilon=0.3)
        assert settle(given, WHOLE) == ("cannot say", "search")

    def test_a_search_is_counted_in_what_is_stored(self, monkeypatch):
        """Dyn-D2P: three of 64 points at two of four epsilons; C0 = 2 is ours."""
        known = Study("papers").results()
        lacks, cost = lacking("zhu", "search", known)
        assert "dyn-d2p at 1.0: 3 of 64 points" in lacks
        assert "const-d2p at 0.7: 0 of 5 points" in lacks
        assert not any("const-d2p at 1.0" in each for each in lacks)
        runs = 2 * (64 - 3) + 2 * 64 + 4 * 3 + 2 * 5 + 2 * 3  # points, seeds a side
        (row,) = (row for row in rows_of("zhu") if row.title == "Table 2")
        assert cost == pytest.approx(hours(row, known) / (17 * 5) * runs)
        told = published("zhu")["missing"]["search"]
        for side in told["sides"].values():
            monkeypatch.setitem(side, "grid", {"clip_norm": [4.0]})
        monkeypatch.setitem(told, "epsilons", [1.0])
        assert [x.tried for x in searches_of("zhu", "search")] == [1, 0]

    @pytest.mark.parametrize(
        ("epsilon", "tried"),
        [
            (0.3, ["dynamic", "*"]),  # all cells, of which none is of this epsilon
            (1.0, ["dynamic", "tuning certified const-d2p *"]),  # of the other side
            (1.0, ["dynamic", *["tuning certified dyn-d2p *"] * 30]),  # each many times
            (1.0, ["dynamic", "tuning * dyn-d2p *"]),  # also by another noise
            (1.0, [""]),
        ],
    )
    def test_patterns_count_no_point_that_was_not_tried(
        self, monkeypatch, epsilon, tried
    ):
        told = published("zhu")["missing"]["search"]
        side = told["sides"]["dyn-d2p"] | {"tried": {str(epsilon): tried}}
        monkeypatch.setitem(told["sides"], "dyn-d2p", side)
        monkeypatch.setitem(told, "epsilons", [epsilon])
        found = {one.side: one for one in searches_of("zhu", "search")}["dyn-d2p"]
        assert (found.tried, found.grid) == (3 if "dyn-d2p" in str(tried) else 0, 64)

    def test_a_judge_has_arguments(self):
        claim = Claim("a", judge="both x,y z")
        judges = {"_both": lambda own, *told: cases(told == ("x", "y z"))}
        assert claim.judged("zhu", judges, Results({})).word == "holds"
        assert all(claim.of for claim in claims_of("zhou") if claim.judge)

    def test_student_s_quantile(self):
        """Of 1, 2, 3 the mean's standard error is 1 / sqrt(3); 4.303 at two degrees."""
        none = [0.0, 0.0, 0.0]
        assert above([0.035, 0.025, 0.015], none) == (True, "+2.5 ± 0.6", 3)
        assert above([0.034, 0.024, 0.014], none) == (None, "+2.4 ± 0.6", 3)
        assert above(none, [0.035, 0.025, 0.015])[0] is False

    @pytest.mark.parametrize(
        ("most", "kept"),
        [(9.0, True), (7.4, None), (5.0, None), (2.6, None), (2.4, False)],
    )
    def test_a_limit_is_kept_or_passed_beyond_error(self, most, kept):
        """5 ± 1 / sqrt(3) points are lost: beyond error from 2.5 and to 7.5."""
        none = [0.5, 0.5, 0.5]
        assert loses(none, [0.46, 0.45, 0.44], most) == (kept, "+5.0 ± 0.6", 3)

    def test_a_gain_keeps_any_limit(self):
        assert loses([0.1, 0.2, 0.3], [0.8, 0.9, 1.0], 0.0)[0] is True

    @pytest.mark.parametrize(
        ("cases", "all_hold"),
        [
            ((True, True), True),
            ((True, None), None),
            ((None, False), False),
            ((True, False), False),
        ],
    )
    def test_both(self, cases, all_hold):
        assert both(*cases) is all_hold

    def test_degrees_of_freedom_are_welch_s(self):
        """As scipy has them, of groups that differ in size and spread."""
        one = [0.31, 0.35, 0.30, 0.36, 0.33]
        for shift in range(1, 60):
            other = [0.20 + shift / 500, 0.28 + shift / 500, 0.22 + shift / 500]
            judged = above(one, other)[0]
            p = ttest_ind(one, other, equal_var=False).pvalue
            assert (judged is not None) == (p < 0.05)

    def test_two_seeds_are_too_few(self):
        assert above([0.9, 0.91], [0.1, 0.11])[0] is None

    def test_equal_means_without_an_error_are_not_told_apart(self):
        assert above([0.1] * 3, [0.1] * 3)[0] is None

    def test_an_upper_bound_above_a_claim_does_not_refute_it(self):
        told = within({"a": (1.0, 0.5), "b": (1.0, 2.0)})
        assert [case.holds for case in told] == [True, None]
        assert settle(within({"b": (1.0, 2.0)}), WHOLE)[0] == "cannot say"

    def test_one_seed_tells_no_error(self):
        assert above([0.9], [0.1, 0.2]) == (None, "+75.0", 1)

    def test_pairs_have_a_smaller_error(self):
        one, other = [0.1, 0.5, 0.9], [0.07, 0.47, 0.86]
        assert not above(one, other)[0]
        assert above(one, other, paired=True) == (True, "+3.3 ± 0.3", 3)
