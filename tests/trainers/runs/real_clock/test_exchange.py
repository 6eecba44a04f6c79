"""Contract of exchange: two models become their mean, or stay as they were."""

import datetime
import threading

import pytest
import torch
import torch.distributed as dist

from trainers.runs.real_clock.worker import Line, LineLostError, Model


def both_ends(dims, patience=5.0):
    """A sender's end and a receiver's, in one process."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ends = {}

    def open_end(at):
        wait = datetime.timedelta(seconds=patience)
        own = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=wait)
        ends[at] = Line(own, 4, 7, at=at, dims=dims, patience=patience)

    threads = [threading.Thread(target=open_end, args=(at,)) for at in (4, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends[4], ends[7], store


@pytest.mark.parametrize("dims", [1, 33, 2_000_000])  # the last is 8 MB
def test_both_have_the_mean_to_the_bit(dims):
    sender, receiver, _store = both_ends(dims)
    generator = torch.Generator().manual_seed(dims)
    first, second = torch.randn((2, dims), generator=generator)
    one, other = Model(first), Model(second)
    answers = []

    def serve():
        while True:
            answers.append(receiver.answer(other))
            if not answers[-1]:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    for _ in range(3):
        sender.ask(one)
    sender.end()
    thread.join()
    assert answers == [True, True, True, False]
    assert torch.equal(one.copy(), (first + second) / 2)
    assert torch.equal(one.copy(), other.copy())


def test_a_lost_partner_leaves_the_model_as_it_was():
    sender, receiver, _store = both_ends(3, patience=0.5)
    model = Model(torch.arange(3.0))
    with pytest.raises(LineLostError):
        sender.ask(model)  # nobody answers
    with pytest.raises(LineLostError):
        receiver.answer(model)  # who gave up has closed the line; nothing is sent back
    assert torch.equal(model.copy(), torch.arange(3.0))


def test_a_partner_that_never_comes():
    wait = datetime.timedelta(seconds=5)
    store = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=wait
    )
    with pytest.raises(LineLostError):
        Line(store, 0, 1, at=0, dims=3, patience=0.3)


def test_steps_and_averages_come_in_turn():
    """A step that comes while the model is out with a partner waits for its return."""
    model = Model(torch.zeros(1))
    out, back = threading.Event(), threading.Event()

    def swap(own):
        out.set()
        back.wait()
        return own + 8

    averaging = threading.Thread(target=model.average, args=(swap,))
    averaging.start()
    out.wait()
    stepping = threading.Thread(target=model.step, args=(torch.ones(1),))
    stepping.start()
    stepping.join(0.05)
    assert stepping.is_alive()
    back.set()
    averaging.join()
    stepping.join()
    assert model.copy() == 5  # (0 + 8) / 2 + 1
