"""The plugin, in pytest processes of its own, with and without xdist."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

_ROOT = str(pathlib.Path(__file__).parents[2])
_INSTALLED = any(
    point.name == "privaudit"
    for point in importlib.metadata.entry_points(group="pytest11")
)

SUITE = """
    import networkx
    import pytest
    from hypothesis import given, settings, strategies as st
    from privaudit.testing import assert_accounts, neighbours

    def noisy_count(data, rng):
        return len(data) + rng.laplace(scale=1.0)

    @settings(max_examples=3, database=None)
    @given(neighbours(st.lists(st.floats(0, 1)), relation="add-or-remove-one"))
    def test_right(privacy, pair):
        privacy.assert_private(noisy_count, pair, epsilon=1.0, runs=500)

    @pytest.mark.parametrize("scale", [0.1, 0.2])
    def test_wrong(privacy, scale):
        def louder(data, rng):
            return len(data) + rng.laplace(scale=scale)

        privacy.assert_private(louder, ([], [1]), epsilon=1.0, seed=11)

    def test_weak(privacy):
        privacy.assert_private(noisy_count, ([], [1]), epsilon=9.0, runs=500)

    def test_blind(privacy):
        privacy.assert_private(lambda data, rng: 5, ([], [1]), epsilon=1.0, runs=500)

    def test_graph(privacy):
        def edges(data, rng):
            return data.number_of_edges() + rng.laplace(scale=0.2)

        pair = networkx.path_graph(2), networkx.path_graph(3)
        privacy.assert_private(edges, pair, epsilon=5.0, runs=2000)
        privacy.assert_probes(edges, pair, low_bits=False)

    def test_account():
        assert_accounts([(1.0, 0.01, 10)], 2.0, 1e-5, conditional=True)
"""


def run_pytest(folder, text, *options):
    lines = text.splitlines()
    (folder / "test_suite.py").write_text("\n".join(line[4:] for line in lines))
    plugin = [] if _INSTALLED else ["-p", "privaudit.testing.plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": _ROOT},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.mark.full
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_the_report_has_all_assertions_of_all_workers(tmp_path, workers):
    shown = run_pytest(tmp_path, SUITE, "--privacy-report", "page.md", *workers)
    assert "2 failed, 5 passed" in shown
    said = re.findall(r"::test_(\w+): (could not fail|saw nothing)", shown)
    assert sorted(said) == [("blind", "saw nothing"), ("weak", "could not fail")]
    assert "all outputs were the same" in shown
    assert "from test_suite import" not in shown  # louder is inside a test
    page = (tmp_path / "page.md").read_text()
    assert "2 fail, 0 stopped, 6 hold." in page
    rows = [line.split(" | ") for line in page.splitlines() if "| test_" in line]
    assert len(rows) == 8
    by_test = {row[0].removeprefix("| "): row for row in rows}
    wrong = by_test["test_suite.py::test_wrong[0.1]"]
    assert wrong[1:5] == ["assert_private", "louder", "(1, 0)-DP", "fails"]
    figure, stopped = wrong[5].split(" ", 1)
    assert float(figure) >= 1.0
    assert stopped == "(stopped there)"  # at the refutation: there may be more
    assert "with more of them the bound may be much larger" in page
    assert float(wrong[6]) > 7.0  # of 20,000 runs
    assert wrong[7] == "99.90 %"
    assert by_test["test_suite.py::test_weak"][4] == "holds (could not fail)"
    assert by_test["test_suite.py::test_right"][4] == "holds"
    # What failing tests said is there: the pair, and how to repeat it.
    (said,) = re.findall(
        r"## test_suite.py::test_wrong\[0.1\]\n\n((?: {4}.*\n)+)", page
    )
    assert "pair" in said
    assert "judge(" in said
    assert page.count("\n## test_suite.py::test_wrong") == 2
    # Pairs of tests that hold can be pasted.
    (lines,) = re.findall(r"test_graph, pair of .*\n\n((?: {4}.*\n)+)", page)
    made = {}
    exec(textwrap.dedent(lines), made)
    assert [len(one.edges) for one in made["pair"]] == [1, 2]
    # Checks that were not made are named.
    named = "scale of noise: none is promised"
    assert re.search(f"::test_graph: assert_probes edges: .*{named}", shown)
    assert named in page
    # The captured line has the bound of the page, rounded down.
    assert f"epsilon at least {wrong[5]}, seed 11" in shown
    # Seeds are in the failure, each case is a test of its own.
    assert len(re.findall(r"seed=11, k=1\)", shown)) >= 2


@pytest.mark.full
def test_as_a_web_page(tmp_path):
    run_pytest(tmp_path, SUITE, "--privacy-report", "page.html", "-k", "account")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert '<td data-label="claim">(2, 1e-05)-DP</td>' in page
    assert '<td data-label="of">history</td>' in page


@pytest.mark.full
def test_seconds_run_out(tmp_path):
    shown = run_pytest(
        tmp_path, SUITE, "--privacy-budget", "0.001", "--privacy-report", "page.md"
    )
    assert "seconds ran out" in shown
    assert "| stopped |" in (tmp_path / "page.md").read_text()


def test_a_budget_must_be_positive(tmp_path):
    done = run_pytest(tmp_path, SUITE, "--privacy-budget", "0")
    assert "passed" not in done


@pytest.mark.full
def test_a_test_that_is_executed_again_gives_the_same_verdict(tmp_path):
    text = """
    import re
    import pytest
    from privaudit.testing import assert_private, plugin

    def verdict():
        with pytest.raises(AssertionError) as caught:
            assert_private(lambda data, rng: data, (0, 1), epsilon=1.0)
        return re.findall(r"k=\\d+", str(caught.value))[-1]

    def test_k(request):
        assert verdict() == "k=1"
        plugin.pytest_runtest_setup(request.node)
        assert verdict() == "k=1"
        assert verdict() == "k=2"

    def test_generator(privacy_rng):
        assert privacy_rng.random() == 0.5
    """
    shown = [run_pytest(tmp_path, text) for _ in range(2)]
    assert all("1 failed, 1 passed" in one for one in shown)
    drawn = [re.search(r"assert (0\.\d+) == 0.5", one).group(1) for one in shown]
    assert drawn[0] == drawn[1]


def test_it_imports_nothing_heavy_until_it_is_used(tmp_path):
    text = """
    import sys

    def test_modules():
        heavy = {"hypothesis", "scipy", "torch", "privaudit.accounting", "msgspec"}
        assert not heavy & set(sys.modules)
    """
    # Hypothesis has a plugin of its own, which loads a part of it.
    shown = run_pytest(tmp_path, text, "-p", "no:hypothesispytest")
    assert "1 passed" in shown
