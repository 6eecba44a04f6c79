"""The privacy profile of a ledger: both sides, with all that the ledger says."""

import msgspec
import numpy as np

from privaudit.ledger import Entry, Ledger
from privaudit.release import NoSampling, Release
from privaudit.report.profile import profile_of

RELEASE = Release.of_sum(norm_bound=1.0, noise_multiplier=2.0, sampling=NoSampling())
ONE = Ledger.of(RELEASE)


class TestSound:
    def test_the_chance_of_failure_is_part_of_delta(self):
        failing = msgspec.structs.replace(ONE, failure=1e-3)
        epsilons, _, upper = profile_of(ONE, "replace-one")
        same, lower, more = profile_of(failing, "replace-one")
        assert (same == epsilons).all()
        assert (more >= np.minimum(upper + 1e-3, 1)).all()
        assert (lower == 0).all()

    def test_no_data_are_known_to_attain_a_pass_or_the_distance_of_nodes(self):
        passed = Ledger(nodes=((Entry(RELEASE, 3, 0),),))
        for ledger in (passed, msgspec.structs.replace(ONE, unit="node")):
            _, lower, upper = profile_of(ledger, "replace-one")
            assert (lower == 0).all()
            assert (upper == profile_of(ONE, "replace-one")[2]).all()

    def test_both_sides_are_near_each_other_where_data_attain_it(self):
        _, lower, upper = profile_of(ONE, "replace-one")
        assert (lower <= upper).all()
        assert (upper <= 1.1 * lower + 1e-9).all()
