"""The picture of a privacy profile: what it says of its curves."""

import msgspec
import pytest

from privaudit.accounting import Certificate
from privaudit.ledger import Ledger
from privaudit.release import NoSampling, Release
from privaudit.report.svg import draw_profile


def ledger(noise, **more):
    release = Release.of_sum(
        norm_bound=1.0, noise_multiplier=noise, sampling=NoSampling()
    )
    return msgspec.structs.replace(Ledger.of(release), **more)


class TestSound:
    @pytest.mark.parametrize(
        ("more", "worth"), [({}, "certified"), ({"assumes": ("x",)}, "conditional")]
    )
    def test_it_says_what_the_curve_is_worth(self, tmp_path, more, worth):
        path = tmp_path / "profile.svg"
        draw_profile(Certificate.of(ledger(2.0, **more)), path)
        drawn = path.read_text()
        other = {"certified": "conditional", "conditional": "certified"}[worth]
        assert f"{worth}: no more than" in drawn
        assert other not in drawn

    def test_without_noise_there_is_nothing_to_draw(self, tmp_path):
        with pytest.raises(ValueError, match="nothing bounds epsilon"):
            draw_profile(Certificate.of(ledger(0.0)), tmp_path / "profile.svg")
