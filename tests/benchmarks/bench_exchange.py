"""Seconds a round of an exchange: two messages a party, to its neighbours on a ring.

Run as ``python tests/benchmarks/bench_exchange.py process 4``: in one process, by
``torch``, or by the kits of ``flare SITES KIT ...`` whose server runs; ``--parameters``
and ``--rounds`` say how large messages are, and of how many rounds it is the mean.
Beside the wall clock, processor time a party.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Sequence

import torch

from trainers.network.by_torch import joined
from trainers.network.exchange import Exchange, InProcess
from trainers.network.kit import Kit


def rounds(exchange: Exchange, parameters: int, many: int) -> None:
    """Rounds of one party; that of rank 0 prints what all took."""
    exchange.expects(1 << 28)
    message = torch.full((1, 1, parameters), float(exchange.rank))
    others = {(exchange.rank + 1) % exchange.size, (exchange.rank - 1) % exchange.size}
    clock = time.thread_time if isinstance(exchange, InProcess) else time.process_time
    began, spent = 0.0, 0.0
    for k in range(-2, many):
        if k == 0:
            exchange.told("go", exchange.rank, int)
            began, spent = time.monotonic(), clock()
        for other in others:
            exchange.send(other, message, k + 2, "x")
        for other in others:
            exchange.receive(other, message, k + 2, "x")
    own = [(time.monotonic() - began) / many, (clock() - spent) / many]
    every = exchange.told("took", own, list[float])
    if exchange.rank == 0:
        wall, each = max(one[0] for one in every), sum(one[1] for one in every)
        print(f"{wall:.4f} s a round, {each / len(every):.4f} s of a party's processor")


def party(how: str, rank: int, given: argparse.Namespace, port: int) -> None:
    """One of several processes."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if how == "torch":
        opened = joined(rank, given.parties, 600)
    else:
        from trainers.network.by_flare import by_kit

        opened = by_kit(Kit.read(given.kits[rank]), 600)
    with opened as exchange:
        rounds(exchange, given.parameters, given.rounds)
    os._exit(0)  # FLARE's threads may wait for one that is gone


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["process", "torch", "flare"])
    parser.add_argument("parties", type=int)
    parser.add_argument("kits", nargs="*")
    parser.add_argument("--parameters", type=int, default=26_010)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args(words)
    if given.how == "process":
        torch.set_num_threads(1)
        every = InProcess.all(given.parties, 600)
        run = [
            threading.Thread(target=rounds, args=(one, given.parameters, given.rounds))
            for one in every
        ]
    else:
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as held:
            port = held.getsockname()[1]
        start = multiprocessing.get_context("spawn").Process
        run = [
            start(target=party, args=(given.how, rank, given, port))
            for rank in range(given.parties)
        ]
    for one in run:
        one.start()
    for one in run:
        one.join()


if __name__ == "__main__":
    main()
