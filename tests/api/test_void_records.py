"""One record that cannot be used neither starts, stops nor changes a training."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

import privaudit as pa
from tests.tiers import size

pytestmark = pytest.mark.sized
SIZE = size(30, 12)  # a process for each is read
random = np.random.default_rng(0)
INPUTS = random.normal(size=(SIZE, 4)).astype("float32")
TARGETS = (INPUTS[:, 0] > 0).astype(int)
TOKENS = random.integers(0, 9, (SIZE, 5))


class Source(Dataset):
    """Records one by one, the first of which may be anything or nothing."""

    def __init__(self, first, inputs=INPUTS):
        self.first, self.inputs = first, inputs
        self.example = torch.zeros_like(torch.from_numpy(inputs[0])), 0

    def __len__(self):
        return SIZE

    def __getitem__(self, row):
        if row == 0:
            return self.first()
        return torch.from_numpy(self.inputs[row]), int(TARGETS[row])


def unreadable():
    raise OSError("the disk has a hole")


def panics():
    raise type("PanicException", (BaseException,), {})("as Rust's code does")


FIRST = {
    "unreadable": unreadable,
    "beyond exceptions": panics,
    "sparse": lambda: (torch.tensor([0.0, 0, 0, torch.nan]).to_sparse(), 1),
    "not a number": lambda: (torch.full((4,), torch.nan), 1),
    "infinite": lambda: (torch.tensor([1.0, 2.0, torch.inf, 0.0]), 0),
    "another class": lambda: (torch.zeros(4), 7),
    "below all classes": lambda: (torch.zeros(4), -1),
    "another shape": lambda: (torch.zeros(5), 1),
    "another kind": lambda: (torch.zeros(4), 0.5),
    "no pair": lambda: None,
    "words": lambda: ("a", "b"),
}


def trained(share, module=None, **more):
    torch.manual_seed(0)
    return pa.train(
        nn.Linear(4, 2) if module is None else module(),
        [share],
        epsilon=3.0,
        delta=1e-3,
        rounds=3,
        batch_size=size(8, 4),
        seed=1,
        **more,
    )


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.models[0].parameters()])


@pytest.fixture(scope="module")
def without():
    """The model where the first record's gradient is 0, as its input is."""
    return weights(trained(Source(lambda: (torch.zeros(4), 0)), module=NoBias))


class NoBias(nn.Sequential):
    """Of an input of zeros, no gradient but 0."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(4, 2, bias=False))


class TestSound:
    @pytest.mark.sampled(8)
    @pytest.mark.parametrize("first", FIRST)
    def test_it_counts_nothing_in_a_data_set_of_others(self, without, first):
        found = weights(trained(Source(FIRST[first]), module=NoBias))
        assert torch.equal(found, without)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("value", "label"),
        [(np.nan, 0), (np.inf, 1), (-np.inf, 0), (0.0, 9), (0.0, -1), (np.nan, 9)],
    )
    def test_it_counts_nothing_in_arrays(self, without, value, label):
        inputs, targets = INPUTS.copy(), TARGETS.copy()
        inputs[0], targets[0] = value, label
        assert torch.equal(weights(trained((inputs, targets), module=NoBias)), without)

    def test_nor_in_what_is_mapped(self, without, tmp_path):
        inputs = np.memmap(tmp_path / "x", dtype="float32", mode="w+", shape=(SIZE, 4))
        inputs[:], targets = INPUTS, TARGETS.copy()
        inputs[0], targets[0] = np.nan, 9
        assert torch.equal(weights(trained((inputs, targets), module=NoBias)), without)

    @pytest.mark.full
    def test_nor_where_inputs_are_whole_numbers(self):
        def module():
            torch.manual_seed(0)
            return nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(15, 2))

        first = weights(trained(Source(unreadable, TOKENS), module=module))
        other = weights(
            trained(Source(lambda: (torch.zeros(5).long(), 9), TOKENS), module=module)
        )
        assert torch.equal(first, other)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("value", [np.inf, np.nan])
    def test_a_loss_that_is_not_finite(self, without, value):
        """Of one of the first records, on which nothing is tried."""

        def loss(outputs, targets):
            each = functional.cross_entropy(outputs, targets % 2, reduction="none")
            return torch.where(targets == 2, value * outputs.sum(1), each)

        targets = TARGETS.copy()
        targets[0] = 2
        found = weights(trained((INPUTS, targets), module=NoBias, loss=loss))
        inputs = INPUTS.copy()
        inputs[0] = 0
        other = weights(trained((inputs, TARGETS), module=NoBias, loss=loss))
        assert torch.equal(found, other)

    def test_a_transform_that_fails_on_it(self, without):
        def moved(input):
            if input[0] == 9:
                raise ArithmeticError
            return input

        first = Source(lambda: (torch.full((4,), 9.0), 0))
        found = weights(trained(first, module=NoBias, transform=moved))
        assert torch.equal(found, without)

    @pytest.mark.parametrize("unit", ["batch", "sample"])
    @pytest.mark.parametrize("value", [np.nan, 3e38])
    def test_messages(self, unit, value):
        """What is not finite is no message, and the other nodes' are as they were."""
        inputs = INPUTS.copy()
        inputs[0] = value
        sampling = "poisson" if unit == "batch" else "without-replacement"
        run = pa.train(
            nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)),
            [(inputs, TARGETS), (INPUTS, TARGETS)],
            "partpsp",
            noise_multiplier=1.0,
            rounds=4,
            batch_size=size(20, 8),
            options={"clip_by": unit, "sampling": sampling, "local_steps": 2},
            seed=1,
        )
        assert weights(run).isfinite().all()

    def test_one_record_does_not_say_what_all_are_like(self):
        run = trained(Source(lambda: (torch.zeros(2, 3), 0)))
        assert run.models[0].in_features == 4


class TestLaws:
    def test_data_of_which_nothing_can_be_read_are_told(self, without, caplog):
        """To their owner alone: that a run is refused would say so to others."""

        class Broken(Source):
            def __getitem__(self, row):
                raise OSError("no such disk")

        trained(Broken(unreadable))
        assert "count nothing: OSError: no such disk" in caplog.text
        caplog.clear()
        trained(Source(unreadable), module=NoBias)
        assert "first records" not in caplog.text

    def test_data_to_measure_on_are_public_and_checked(self):
        inputs = INPUTS.copy()
        inputs[2] = np.nan
        with pytest.raises(ValueError, match="test: the inputs of record 2 are not"):
            trained((INPUTS, TARGETS), test=(inputs, TARGETS))
