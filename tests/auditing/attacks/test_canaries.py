"""What is planted: one sample of the data's shape, or a vector of norm 1."""

import pytest
import torch

from privaudit.auditing.attacks.canaries import CANARIES, all_gradients, is_silent
from tests.auditing.attacks.scenes import problem


@pytest.fixture(scope="module")
def of():
    return problem()


@pytest.mark.parametrize("name", CANARIES)
class TestSound:
    def test_it_is_one_sample_of_the_problem(self, of, name):
        canary = CANARIES[name](of, 0)
        assert len(canary.record) == 1
        assert canary.record.inputs.shape[1:] == of.test.inputs.shape[1:]
        assert canary.record.inputs.dtype == of.test.inputs.dtype
        assert 0 <= int(canary.record.targets) < 3
        if canary.direction is not None:
            assert canary.direction.shape == of.start(0).shape[2:]
            assert float(canary.direction.norm()) == pytest.approx(1)

    def test_equal_seeds_give_equal_canaries(self, of, name):
        one, other = CANARIES[name](of, 3), CANARIES[name](of, 3)
        assert torch.equal(one.record.inputs, other.record.inputs)
        assert torch.equal(one.record.targets, other.record.targets)
        if one.direction is not None:
            assert torch.equal(one.direction, other.direction)


class TestKinds:
    def test_blank(self, of):
        assert not CANARIES["blank"](of, 0).record.inputs.any()

    def test_mislabelled_is_held_out_and_wrong(self, of):
        record = CANARIES["mislabelled"](of, 0).record
        place = (of.test.inputs == record.inputs).flatten(1).all(1)
        assert place.any()
        assert not (of.test.targets[place] == record.targets).any()

    def test_out_of_distribution_fills_the_range(self, of):
        record = CANARIES["out-of-distribution"](of, 0).record
        own = of.shares[0].inputs
        assert own.min() <= record.inputs.min()
        assert record.inputs.max() <= own.max()
        other = CANARIES["out-of-distribution"](of, 1).record
        assert not torch.equal(record.inputs, other.inputs)

    def test_clipbkd_lies_where_the_records_vary_least(self, of):
        record = CANARIES["clipbkd"](of, 0).record
        own = of.shares[0].inputs.flatten(1)
        image = record.inputs.flatten()
        assert float(image.norm()) == pytest.approx(
            float(own.norm(dim=1).mean()), rel=1e-4
        )
        along = (own @ image / image.norm()).square().sum()
        random = torch.nn.functional.normalize(torch.randn(100, own.shape[1]), dim=1)
        assert along <= (own @ random.T).square().sum(0).min()

    def test_a_quiet_gradient_is_silent_where_pixels_are_dark(self, of):
        direction = CANARIES["gradient"](of, 0).direction
        assert is_silent(of, of.start(0)[0, 0], direction)
        # It stays so elsewhere: the weights of a dark pixel are never touched.
        elsewhere = torch.randn(len(direction), generator=torch.Generator())
        assert (all_gradients(of, elsewhere).double() @ direction).abs().max() == 0

    def test_where_none_is_silent_it_is_orthogonal_at_the_start(self):
        of = problem(model="small-cnn", hidden=4)
        direction = CANARIES["gradient"](of, 0).direction
        begin = of.start(0)[0, 0]
        along = all_gradients(of, begin).double() @ direction
        other = (
            all_gradients(of, begin).double()
            @ CANARIES["random-gradient"](of, 0).direction
        )
        assert along.abs().max() < 1e-3 * other.abs().max()

    def test_a_random_gradient_is_not_silent(self, of):
        direction = CANARIES["random-gradient"](of, 0).direction
        assert not is_silent(of, of.start(0)[0, 0], direction)
