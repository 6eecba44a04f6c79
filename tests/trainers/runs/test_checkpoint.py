"""Contract of checkpoint and of what resumes: equal bits from anywhere."""

import dataclasses

import pytest
import torch

from tests.trainers.contract import CASES
from tests.trainers.problems import oracle, start
from trainers.runs import checkpoint

DIMS, ROUNDS = 15, 5


@dataclasses.dataclass(frozen=True)
class Inner:
    first: torch.Tensor
    steps: int


@dataclasses.dataclass(frozen=True)
class Outer:
    theta: torch.Tensor
    inner: Inner
    queue: tuple = ()
    clock: float = 0.0


class TestBytes:
    def test_there_and_back(self):
        value = Outer(torch.randn(2, 3), Inner(torch.ones(1), 7), ((1, 2.5),), 0.25)
        again = checkpoint.like(
            Outer(torch.zeros(2, 3), Inner(torch.zeros(1), 0)),
            checkpoint.unpack(checkpoint.pack(value)),
        )
        assert torch.equal(again.theta, value.theta)
        assert torch.equal(again.inner.first, value.inner.first)
        assert (again.inner.steps, again.queue, again.clock) == (7, ((1, 2.5),), 0.25)

    def test_what_is_no_data(self):
        with pytest.raises(TypeError, match="set cannot be kept"):
            checkpoint.pack({"a": {1, 2}})

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
    def test_what_was_cut_off(self, share):
        content = checkpoint.pack({"a": torch.arange(100)})
        with pytest.raises(ValueError, match=r"no checkpoint: it was cut or changed$"):
            checkpoint.unpack(content[: int(share * len(content))])

    @pytest.mark.filterwarnings("ignore:Detected pickle protocol")
    def test_what_was_changed(self):
        content, said = checkpoint.pack({"a": torch.arange(9), "b": ["c", 1.5]}), set()
        for place in range(0, len(content), 3):
            changed = content[place] ^ 0x80
            try:
                checkpoint.unpack(
                    content[:place] + bytes([changed]) + content[place + 1 :]
                )
            except ValueError as error:
                said.add(str(error))
        assert said == {"no checkpoint: it was cut or changed"}

    def test_another_state(self):
        kept = checkpoint.unpack(checkpoint.pack(Inner(torch.zeros(1), 1)))
        with pytest.raises(ValueError, match="no state of Outer"):
            checkpoint.like(Outer(torch.zeros(1), Inner(torch.zeros(1), 1)), kept)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_goes_on_with_equal_bits(case, stop):
    network, begin = case.network(), start(DIMS, runs=2)
    kept = {}
    private = oracle(runs=2)

    def keep(done, state):
        whole = {"state": state, "oracle": private.state_dict()}
        kept[done] = checkpoint.pack(whole)

    models = network.run(begin, private, ROUNDS, keep=keep)
    again = oracle(runs=2)
    middle = checkpoint.unpack(kept[stop])
    again.load_state_dict(middle["oracle"])
    state = checkpoint.like(network.begin(begin), middle["state"])
    assert torch.equal(network.run(begin, again, ROUNDS, resume=(stop, state)), models)
    assert again.ledger == private.ledger
