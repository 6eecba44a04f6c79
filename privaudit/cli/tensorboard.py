"""`--log-dir`: progress of a training as TensorBoard's events."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from privaudit.api.console import Console, speaks
from privaudit.files.extras import need
from privaudit.results import Claim, single_above

if TYPE_CHECKING:
    from trainers.runs.run import Progress


class Logged(Console):
    """As `Console`, and writes what is measured into files in ``folder``.

    Raises ``ModuleNotFoundError`` without the extra ``tensorboard``, and ``ValueError``
    if the folder cannot be written to: both before the work.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        need("--log-dir", "tensorboard")
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--log-dir {folder}: {error.strerror}") from None

    @contextlib.contextmanager
    def training(
        self, algorithm: str, claim: Claim | None
    ) -> Iterator[Callable[[Progress], None]]:
        from tensorboardX import SummaryWriter

        with super().training(algorithm, claim) as show:
            if not speaks():
                yield show
                return
            with SummaryWriter(str(self._folder)) as writer:

                def tell(now: Progress) -> None:
                    show(now)
                    found = {} if now.measured is None else now.measured.known
                    if now.epsilon is not None:
                        found = {**found, "epsilon_spent": single_above(now.epsilon)}
                    for name, value in found.items():
                        if name != "round":
                            writer.add_scalar(name, value, now.done)

                yield tell
