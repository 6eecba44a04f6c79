"""An audit over the ranks that torchrun started; rank 0 keeps its folder.

Blocks are dealt out one a rank at a time; scores are one process's, bit for bit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import torch

from privaudit.auditing.experiments.experiment import Audit, attacker, train_block
from privaudit.auditing.experiments.judgement import end, judge
from privaudit.auditing.experiments.outcome import AuditResult
from privaudit.auditing.experiments.progress import Progress
from privaudit.files.folder import FolderError, RunFolder
from trainers.network.ranks import gathered, joined, told


def run_on_ranks(
    audit: Audit,
    opened: contextlib.AbstractContextManager[RunFolder],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AuditResult | None:
    """As `privaudit.auditing.experiments.experiment.run`; None but at rank 0.

    All ranks must call, with equal arguments; rank 0 alone enters ``opened``.
    `FolderError` at every rank; `RankLostError` if another one ends, or does not answer
    in time.
    """
    if audit.stop_when_refuted:
        raise ValueError(
            "stop_when_refuted is for one process: ranks make all runs; leave it out"
        )
    adversary = attacker(audit, audit.problem())
    torch.set_num_threads(1)  # the bits of a sum depend on how threads share it
    with joined(audit.device) as (rank, size), contextlib.ExitStack() as stack:
        folder, known, state, missing = None, None, None, []
        with _told_to_all():
            if rank == 0:
                folder = stack.enter_context(opened)
                if folder.settle(audit) and folder.has("result.json"):
                    known = folder.read("result.json", AuditResult)
                else:
                    state = Progress(audit, folder)
                    missing = [n for n in range(audit.blocks) if n not in state.done]
        finished, missing = told((known is not None, missing))
        if finished:
            return known
        began = time.monotonic()
        for first in range(0, len(missing), size):
            mine = missing[first + rank : first + rank + 1]
            found = [(n, *train_block(audit, [adversary], n)[0]) for n in mine]
            blocks = gathered(found)
            with _told_to_all():
                if blocks is not None and state is not None:
                    for block in (block for each in blocks for block in each):
                        state.add(*block)
                    progress(state.runs, audit.runs)
        if state is None or folder is None:
            return None
        assert state.ledger is not None
        seconds = time.monotonic() - began
        result = judge(audit, state.ledger, state.arrays(), seconds, adversary.told)
        end(folder, audit.claim, state.ledger, result)
        return result


@contextlib.contextmanager
def _told_to_all() -> Iterator[None]:
    """Raise at every rank the errors of rank 0 in here."""
    why = ""
    try:
        yield
    except FolderError as error:
        why = str(error)
    why = told(why)
    if why:
        raise FolderError(why)
