"""Results in notebooks: small, escaped, and readable on light and dark pages."""

import html.parser
import math
import re

import numpy as np
import pytest

import privaudit as pa
from privaudit.files.notebook import box

LEDGER = pa.ledger_from([(1.0, 0.01, 100)])
EVIL = "<script>alert(1)</script> & co"
ABOUT = {"delta": 1e-5, "relation": "replace-one", "source": EVIL}
UPPER = {"method": EVIL, "standing": "certified"}


def lower_bound():
    coins = np.arange(100) % 2 == 0
    return pa.lower_bound(coins * 1.0, coins, delta=1e-5)


class Reader(html.parser.HTMLParser):
    """Text, and whether tags are balanced and known."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text, self.attributes = [], "", []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag in ("div", "b", "table", "tr", "td")
        self.open.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            pa.epsilon(delta=1e-5, noise_multiplier=1.0),
            "4.377 ≤ ε ≤ 4.378 at δ = 1e-05",
        ),
        (pa.Certificate.of(LEDGER).delta(1.0), "δ ≤ "),
        (pa.Certificate.of(LEDGER).epsilon(0.0), "ε = ∞ at δ = 0"),
        (pa.Certificate.of(LEDGER), "Conditional"),
        (pa.UpperBound(epsilon=1 / 3, **ABOUT, **UPPER), "ε ≤ 0.3334"),
        (pa.UpperBound(epsilon=math.inf, **ABOUT, **UPPER), "ε: no bound"),
        (pa.Claim(epsilon=2.0, **ABOUT), "ε = 2 at δ = 1e-05"),
        (lower_bound(), "ε ≥ "),
        (pa.Finding(claim=pa.Claim(epsilon=2.0, **ABOUT)), "Unproven"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_is_small_escaped_and_takes_the_page_colours(result, said):
    page = result._repr_html_()
    read = Reader(page)
    assert said in read.text
    assert len(page) < 2000
    assert "<script" not in page
    if EVIL in str(result):
        assert EVIL in read.text
    styles = " ".join(value for name, value in read.attributes if name == "style")
    assert {name for name, _ in read.attributes} == {"style"}
    assert not re.search(r"#[0-9a-f]{3}|rgb|background|(?<!-)color:", styles)


def test_a_certificate_says_what_it_assumes_and_counts():
    text = Reader(pa.Certificate.of(LEDGER)._repr_html_()).text
    assert "1 node, 100 releases" in text
    assert "assuming that" in text
    assert "Poisson sampled" in text
    known = pa.Certificate.of(LEDGER).epsilon(1e-5)
    shown = re.search(r"ε ≤ ([\d.]+) at δ = 1e-05", text)
    assert shown is not None, text
    assert known.lower <= float(shown[1]) <= 1.05 * known.upper
    first, *rest = str(pa.Certificate.of(LEDGER)).splitlines()
    assert first.startswith("conditional, 1 node, 100 releases; under ")
    assert rest
    assert all(line.startswith("assuming that") for line in rest)


def test_a_certificate_without_a_figure_says_why():
    fixed = pa.Release.of_sum(
        norm_bound=1.0,
        noise_multiplier=1.0,
        sampling=pa.SamplingWithoutReplacement(1, 10),
    )
    shown = pa.Certificate.of(pa.Ledger.of(fixed), "add-or-remove-one")._repr_html_()
    assert "no sensitivity under add-or-remove-one" in Reader(shown).text


def test_cells_are_escaped():
    assert Reader(box(EVIL, [EVIL], [(EVIL, "c")])).text == f"{EVIL}{EVIL}c{EVIL}"


def test_a_run():
    torch = pytest.importorskip("torch")
    inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    data = inputs, (inputs.sum(1) > 0).long()
    run = pa.train(
        torch.nn.Linear(3, 2), data, nodes=2, epsilon=8, rounds=2, batch_size=5, seed=0
    )
    page = run._repr_html_()
    text = Reader(page).text
    assert "2 models, ε ≤ " in text
    assert "NOT PROTECTED" in text
    assert len(page) < 2000
