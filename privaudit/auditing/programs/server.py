"""Programs in processes: commands that stay alive, and functions called in several."""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process
import contextlib
import math
import multiprocessing
import os
import pickle
import queue
import reprlib
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.programs.targets import (
    Worlds,
    checked,
    function_of,
    one_by_one,
    parts_of,
)
from privaudit.files.user_code import ForeignError

Function = str | Callable[..., object]


def _call(
    function: Function, name: str, worlds: Worlds, seed: int
) -> NDArray[np.float64] | str:
    """Its scores, or why there are none: not all errors survive the way back."""
    try:
        if isinstance(function, str):
            return function_of(function)(worlds, seed)
        return checked(function, name)(worlds, seed)
    except (ForeignError, ValueError) as error:
        return str(error)


class Processes(contextlib.AbstractContextManager["Processes"]):
    """Calls ``module:function``, or one pickled, in ``many`` fresh processes."""

    def __init__(self, function: Function, name: str, many: int) -> None:
        try:
            pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError):
            raise ValueError(
                f"{name} cannot be sent to other processes: write it at the top of a "
                "module, or leave workers out"
            ) from None
        self._function, self._name = function, name
        # Fresh ones: torch's threads do not survive a fork.
        self._pool = concurrent.futures.ProcessPoolExecutor(
            many, multiprocessing.get_context("spawn")
        )

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __call__(self, worlds: Worlds, seed: int) -> NDArray[np.float64]:
        """As a `privaudit.auditing.programs.targets.Score`."""
        try:
            found = self._pool.submit(
                _call, self._function, self._name, worlds, seed
            ).result()
        except concurrent.futures.process.BrokenProcessPool:
            raise ForeignError(
                f"a process that called {self._name} died; a script that calls it from "
                'several needs `if __name__ == "__main__":` around what it does'
            ) from None
        if isinstance(found, str):
            raise ForeignError(found)
        return found


TIME_LIMIT = 600.0  # seconds for one score, unless another is given
_FAREWELL = 5.0  # seconds that a server has to end when its input does


def check_command(text: str) -> list[str]:
    """The parts of a server's command; ``ValueError`` if it is none."""
    parts = parts_of(text)
    if not parts:
        raise ValueError("the command is empty")
    if "{member}" in text or "{seed}" in text:
        raise ValueError(
            "a command that is served by reads member and seed from its standard "
            f"input, a line a run: leave {{member}} and {{seed}} out, got {text!r}"
        )
    return parts


class Server:
    """One process of the command; started when it is first asked."""

    def __init__(self, text: str, time_limit: float = TIME_LIMIT) -> None:
        self._parts = check_command(text)
        self._name = shlex.join(self._parts)
        self._limit = time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._read = b""

    def ask(self, member: bool, seed: int) -> float:
        """The score of one run; `ForeignError`, and its end, if there is none."""
        asked = f"{int(member)} {seed}"
        try:
            process = self._started()
            if self._ready(0) and not self._more(process) and not self._read:
                raise self._died(process, asked)
            if self._read:
                raise ForeignError(
                    f"{self._name} wrote {reprlib.repr(_text(self._read))} without "
                    "being asked: it must write one line for each that it reads, and "
                    "all else to standard error"
                )
            assert process.stdin is not None
            try:
                process.stdin.write(f"{asked}\n".encode())
                process.stdin.flush()
            except OSError:
                raise self._died(process, asked) from None
            line = self._line(process, asked)
            try:
                score = float(line)
            except ValueError:
                raise ForeignError(
                    f"{self._name}: its answer to {asked!r} is no number: "
                    f"{reprlib.repr(line)}"
                ) from None
            if not math.isfinite(score):
                raise ForeignError(f"{self._name}: its score of {asked!r} is {line}")
            return score
        except BaseException:
            self.stop()
            raise

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._read = b""
            try:
                self._process = subprocess.Popen(
                    self._parts,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    start_new_session=True,
                )
            except OSError as error:
                raise ForeignError(
                    f"cannot run {self._parts[0]}: {error.strerror}"
                ) from None
        return self._process

    def _ready(self, seconds: float) -> bool:
        assert self._process is not None
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def _more(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.stdout is not None
        found = os.read(process.stdout.fileno(), 1 << 16)
        self._read += found
        return bool(found)

    def _line(self, process: subprocess.Popen[bytes], asked: str) -> str:
        until = time.monotonic() + self._limit
        while b"\n" not in self._read:
            left = max(0.0, until - time.monotonic())
            if not self._ready(min(left, 1e6)):
                raise ForeignError(
                    f"{self._name} gave no score for {asked!r} in {self._limit:g} s "
                    "and was stopped; does it flush its output after each line?"
                )
            if not self._more(process):
                raise self._died(process, asked)
        line, _, self._read = self._read.partition(b"\n")
        return _text(line)

    def _died(self, process: subprocess.Popen[bytes], asked: str) -> ForeignError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_FAREWELL)
        self._errors.seek(0)
        said = _text(self._errors.read()[-4096:]).strip().splitlines()
        words = said[-1][:500] if said else "it said nothing"
        return ForeignError(
            f"{self._name} ended (exit status {process.returncode}) before it answered "
            f"{asked!r}: {words}"
        )

    def stop(self) -> None:
        """End the process, if there is one: its input ends, and then it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        try:
            process.wait(_FAREWELL if process.poll() is None and not self._read else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def close(self) -> None:
        """End the process, and let go of what it said."""
        self.stop()
        self._errors.close()


class Servers(contextlib.AbstractContextManager["Servers"]):
    """Up to ``many`` processes of a command, asked by as many threads.

    ``time_limit``: seconds of a score; ``retries`` of a run that failed, at its seed.
    """

    def __init__(
        self, text: str, time_limit: float = TIME_LIMIT, retries: int = 1, many: int = 1
    ) -> None:
        self._retries = retries
        self._all = [Server(text, time_limit) for _ in range(many)]
        self._free: queue.SimpleQueue[Server] = queue.SimpleQueue()
        for server in self._all:
            self._free.put(server)

    def __exit__(self, *error: object) -> None:
        for server in self._all:
            server.close()

    def __call__(self, worlds: Worlds, seed: int) -> NDArray[np.float64]:
        """As a `Score`, see `one_by_one`."""
        server = self._free.get()

        def once(member: bool, seed: int) -> float:
            for _ in range(self._retries):
                with contextlib.suppress(ForeignError):
                    return server.ask(member, seed)
            return server.ask(member, seed)

        try:
            return one_by_one(once, worlds, seed)
        finally:
            self._free.put(server)


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace").rstrip("\r\n")
