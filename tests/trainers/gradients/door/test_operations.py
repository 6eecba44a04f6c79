"""Each operation that a graph may have, mapped over records: what it is of each."""

from __future__ import annotations

import functools
import operator

import pytest
import torch
from torch import fx, nn

from tests.trainers.gradients.door.architectures import MADE, record
from tests.trainers.gradients.door.functions import LOSSES, ROWS
from trainers.gradients.door.checks import MAPPED
from trainers.gradients.door.operators import OFF, WRITTEN_OUT, keyed_bernoulli
from trainers.gradients.door.trace import NotTraced, trace
from trainers.gradients.door.traced import Mapped, Traced, door_of
from trainers.gradients.per_sample import trained

NO_GRADIENT = ("steps",)
OF_RECORDS = {**dict.fromkeys(ROWS, (4, 6)), **dict.fromkeys(LOSSES, (3,))}


class Every(fx.Interpreter):
    """Gives what each node is, of those that are tensors."""

    def run_node(self, n):
        found = super().run_node(n)
        if n.op == "call_function":
            parts = found if isinstance(found, (tuple, list)) else [found]
            self.found += [part for part in parts if isinstance(part, torch.Tensor)]
            self.names += [str(n.target)] * (len(self.found) - len(self.names))
        return found

    def all(self, *flat):
        self.found, self.names = [], []
        self.run(*flat, enable_io_processing=False)
        return self.found


@functools.cache
def graph_of(name: str) -> tuple[fx.GraphModule, list[torch.Tensor], torch.Tensor]:
    """With its parameters, and records of its own."""
    if name in MADE:
        make, kind = MADE[name]
        torch.manual_seed(0)
        module = make()
        graph = door_of(Traced(module, record(kind)[0])).graph
        values = [each.detach() for each in trained(module).values()]
        return graph, values, record(kind, 3)[:, None]
    function = ROWS.get(name, LOSSES.get(name))
    generator = torch.Generator().manual_seed(0)
    records = torch.randn(3, 1, *OF_RECORDS[name], generator=generator)
    return trace(lambda p, x: function(x), [], [], [records[0]]), [], 0.5 * records


def operations(graph: fx.GraphModule) -> set[str]:
    return {
        node.target.overloadpacket.__name__
        for node in graph.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "overloadpacket")
    }


def check(name: str, own: bool) -> None:
    graph, values, records = graph_of(name)
    seeds = torch.arange(3)
    many = [each.expand(3, *each.shape).clone() for each in values]
    if own:
        for each in many:
            if each.is_floating_point():
                each *= torch.tensor([1.0, 0.9, 1.1]).view(3, *[1] * (each.dim() - 1))
    every = Every(graph)
    places = [0 if own else None] * len(values)
    given = (*(many if own else values), records, seeds)
    mapped = torch.func.vmap(every.all, (*places, 0, 0))(*given)
    for one in range(3):
        alone = every.all(*(each[one] for each in many), records[one], seeds[one])
        for what, ours, theirs in zip(every.names, mapped, alone, strict=True):
            torch.testing.assert_close(
                ours[one], theirs, rtol=1e-4, atol=1e-4, equal_nan=True, msg=what
            )
    if not values and name not in NO_GRADIENT:
        apart = records.clone().requires_grad_()
        rows = [graph(one, seed) for one, seed in zip(apart, seeds, strict=True)]
        both = torch.func.vmap(graph.forward)(apart, seeds), torch.stack(rows)
        weights = torch.linspace(0.5, 1.5, both[0].numel()).view(both[0].shape)
        ours, theirs = (
            torch.autograd.grad((weights * each).sum(), apart, allow_unused=True)[0]
            for each in both
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, equal_nan=True)
    if own or not values:
        unfolds = Mapped(graph)
        by_rules, *others = (unfolds(*given) for _ in range(5))
        assert unfolds._unfolded
        for each in others:
            torch.testing.assert_close(each, by_rules, rtol=0, atol=0, equal_nan=True)


def test_what_is_kept_is_of_its_shape_and_mode():
    records = torch.randn(4, 1, 2, 3)
    graph = trace(lambda p, x: x.flatten(1) * x.sum(), [], [], [records[0]])
    mapped = Mapped(graph)
    turned = records.transpose(2, 3).contiguous().transpose(2, 3)
    for given in (records, records[:2], turned, records.double(), records):
        for smooth in (False, True) * 4:
            rows = given.detach().requires_grad_(smooth)
            seeds = torch.zeros(len(rows), dtype=torch.long)
            found = mapped(rows, seeds)
            assert torch.equal(found, torch.func.vmap(graph.forward)(rows, seeds))
            assert found.requires_grad == smooth
            with torch.no_grad():
                assert not mapped(rows, seeds).requires_grad
    assert len(mapped._unfolded) == 4 * 4


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", OF_RECORDS)
def test_functions_mapped_are_one_by_one(name):
    check(name, False)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", MADE)
def test_models_mapped_are_one_by_one(name):
    check(name, False)
    check(name, True)  # each record with parameters of its own


def unlike(shape, seed):
    """Numbers of all kinds, (8, *shape)."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(8, *shape, generator=generator) / 2
    kinds = torch.tensor([0.0, 1e-9, 1e30, torch.nan, torch.inf, -7.3, 1e-42, 0.5])
    chosen = torch.rand(base.shape, generator=generator) < 0.4
    return base.where(~chosen, kinds.view(-1, *[1] * len(shape)))


def alone(node, values, seen):
    """Whether a record's result and gradient are of it, to the last bit."""
    inputs = list(dict.fromkeys(node.all_input_nodes))
    given = [values[one] for one in inputs]
    if not given or not all(isinstance(one, torch.Tensor) for one in given):
        return True
    kinds = str([(one.shape, one.dtype) for one in given])
    key = str(node.target), kinds, str((node.args, node.kwargs))
    if key in seen:
        return True
    seen.add(key)

    def one(*now):
        held = dict(zip(inputs, now, strict=True))
        args, kwargs = fx.map_arg((node.args, node.kwargs), held.__getitem__)
        found = node.target(*args, **kwargs)
        parts = found if isinstance(found, (tuple, list)) else [found]
        return tuple(part for part in parts if isinstance(part, torch.Tensor))

    def rows(seed):
        return [
            unlike(each.shape, seed + k).to(each.dtype)
            if each.is_floating_point()
            else each.expand(8, *each.shape)
            for k, each in enumerate(given)
        ]

    def found(own, others):
        now = [
            torch.cat([ours, theirs]).requires_grad_(ours.is_floating_point())
            for ours, theirs in zip(own, others, strict=True)
        ]
        results = list(torch.func.vmap(one)(*now))
        smooth = [each for each in results if each.requires_grad]
        if smooth:
            back = [torch.ones_like(each) for each in smooth]
            needed = [each for each in now if each.requires_grad]
            results += torch.autograd.grad(
                smooth, needed, back, allow_unused=True, materialize_grads=True
            )
        return [each.detach()[0].resolve_conj() for each in results]

    for kind in range(8):
        own = [each[kind : kind + 1] for each in rows(7)]
        # Zeros and others among the neighbours, or numbers like 7.3 alone.
        plain = [each[5:6].expand_as(each) for each in rows(0)]
        pairs = zip(found(own, rows(50)), found(own, plain), strict=True)
        if not all(torch.allclose(*pair, 0, 0, equal_nan=True) for pair in pairs):
            return False
    return True


# These raise for the numbers above, or have no gradient for what is made one here.
LEFT = ("binary_cross_entropy", "soft_margin_loss", "batch_norm", "floor_divide")


@pytest.mark.sampled(43)
@pytest.mark.parametrize("name", [*OF_RECORDS, *MADE])
def test_no_neighbour_moves_a_bit(name):
    """Nor which way its gradient is taken, as torch's of a product would be."""
    graph, parameters, records = graph_of(name)
    values, seen = {}, set()

    class Values(fx.Interpreter):
        def run_node(self, n):
            values[n] = super().run_node(n)
            return values[n]

    Values(graph).run(
        *parameters, records[0], torch.tensor(3), enable_io_processing=False
    )
    moved = [
        str(node.target)
        for node in graph.graph.nodes
        if node.op == "call_function"
        and node.target is not operator.getitem
        and not any(left in str(node.target) for left in (*LEFT, "heaviside"))
        and not alone(node, values, seen)
    ]
    assert not moved


NUMBERS = (torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 1e-30, 0.0, -7.3, 300.0)
TOKENS = (-1, -7, 10**6, 2**62, -(2**62))


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", [*OF_RECORDS, *MADE])
def test_no_record_makes_one_fail(name, capfd):
    graph, values, records = graph_of(name)
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)  # as by PerSample
    for value in NUMBERS if records.is_floating_point() else TOKENS:
        void = records[:2].clone()
        void[1] = value
        found = torch.func.vmap(graph.forward, (*(None for _ in values), 0, 0))(
            *values, void, torch.arange(2)
        )
        assert len(found) == 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_cells_that_are_written_out_are_torchs(kind, bias):
    cell = getattr(nn, f"{kind.upper()}Cell")(3, 4, bias=bias).double()
    x, *state = torch.randn(5, 3), torch.randn(5, 4), torch.randn(5, 4)
    x, *state = (each.double() for each in (x, *state))
    given = state if kind == "lstm" else state[0]
    theirs = cell(x, given)
    ours = WRITTEN_OUT[getattr(torch.ops.aten, f"{kind}_cell").default](
        x, given, *cell.parameters()
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("number", range(20))
def test_alignments_that_are_written_out_are_torchs(number):
    generator = torch.Generator().manual_seed(number)

    def whole(least, most, *shape):
        return torch.randint(least, most + 1, shape, generator=generator)

    steps, count, labels, blank = *(int(whole(1, 6)) for _ in range(3)), number % 3
    targets = whole(0, 1, count, labels)
    targets[targets == blank] = 2
    given, wanted = whole(1, steps, count), whole(0, labels, count)
    scores = torch.randn(steps, count, 3, generator=generator, dtype=torch.float64)
    for reduction in range(3):
        ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        settings = (targets, given, wanted, blank, reduction, bool(number % 2))
        found = WRITTEN_OUT[torch.ops.aten.ctc_loss.Tensor](
            ours.log_softmax(2), *settings
        )
        expected = torch.ctc_loss(theirs.log_softmax(2), *settings)
        torch.testing.assert_close(found, expected)
        if number % 2:  # else there may be none
            found.sum().backward()
            expected.sum().backward()
            torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.full
def test_chances_by_a_key():
    """Half of them and so on, each of its seed alone; where nothing is dropped, all."""
    chances = torch.tensor([0.0, 0.25, 1.0])

    def drawn(seed):
        return keyed_bernoulli(seed, chances, 1, (3,), torch.float32)

    found = torch.func.vmap(drawn)(torch.arange(4000))
    assert set(found.unique().tolist()) == {0.0, 1.0}
    assert (found.mean(0) - chances).abs().max() < 5 * (0.25 * 0.75 / 4000) ** 0.5
    assert torch.equal(found[7], drawn(torch.tensor(7)))
    assert torch.equal(drawn(torch.tensor(OFF)), chances)
    other = keyed_bernoulli(torch.tensor(7), 0.5, 2, (64,), torch.float32)
    again = keyed_bernoulli(torch.tensor(7), 0.5, 1, (64,), torch.float32)
    assert not torch.equal(other, again)


@pytest.mark.full
def test_all_that_are_relied_on_are_tested_and_no_others_are():
    names = [*MADE, *OF_RECORDS]
    assert set().union(*(operations(graph_of(name)[0]) for name in names)) == MAPPED


class Other(nn.Module):
    def forward(self, x):
        return torch.as_strided(x, (1, 3), (6, 2))


def test_others_are_not_traced():
    """A stride can lead out of a record, into the next one's memory."""
    with pytest.raises(NotTraced, match=r"aten\.as_strided.*test_operations.py, line"):
        Traced(Other(), torch.zeros(6))
