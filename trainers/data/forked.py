"""Somebody's code in a process of its own, of which nothing but numbers comes back.

A child is forked for each call: whatever it changes in memory ends with it. What it
leaves outside, in a file or by a socket, is not undone.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import gc
import io
import os
import pickle
import selectors
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from privaudit.files.user_code import ForeignError, told

Found = TypeVar("Found")
Tensors = tuple[Tensor, ...]

_PROCESSOR, _CLOCK = 600, 3600  # seconds until a child is ended
_LOOK = 0.2  # seconds until a silent child is asked whether it is there
_NUMBER = 1 << 22  # of no process: Linux has smaller ones, proc(5)
_inside = False
# Python's clocks, as they stood when somebody's code was given.
_begun: dict[str, float] = {}


class Ended(ForeignError, ValueError):
    """Somebody's code failed, or ended its process; the message says how."""


def lock() -> threading.RLock:
    """Lock that nobody else has while a process is forked: there it would be held on.

    >>> with lock():
    ...     one((lambda: (torch.ones(1),)))
    (tensor([1.]),)
    """
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=made.acquire,
            after_in_parent=made.release,
            after_in_child=made.release,
        )
    return made


def begin() -> None:
    """Have each process find Python's clocks where they are now."""
    for name in ("time", "monotonic", "perf_counter"):
        for one in (name, f"{name}_ns"):
            _begun[one] = getattr(time, one)()


def inside() -> bool:
    """Return whether this process was forked for one call."""
    return _inside


def each(
    calls: Sequence[Callable[[], Tensors]], like: Sequence[Tensor] | None = None
) -> list[Tensors | Ended]:
    """Tensors on the CPU that each call gives, in a process of its own.

    As many run at a time as there are processors. What a call prints or warns of is
    not shown. A call that fails, crashes or goes on for ten minutes has `Ended`, as has
    one that gives tensors unlike those of ``like``, in shape or type. Within such a
    process calls are made there.

    >>> first, other = each([lambda: (torch.ones(2),), lambda: (torch.ones(1) / [],)])
    >>> first[0].tolist(), type(other).__name__
    ([1.0, 1.0], 'Ended')
    """
    if _inside:
        return [tried(call) for call in calls]
    if like is not None:  # there and here, so that nothing larger comes
        calls = [functools.partial(_fitting, call, like) for call in calls]
    found: list[Tensors | Ended] = []
    for answer in _answers(calls, _packed):
        read = functools.partial(_given, answer, _unpacked)
        found.append(tried(functools.partial(_fitting, read, like)))
    return found


def _fitting(call: Callable[[], Tensors], like: Sequence[Tensor] | None) -> Tensors:
    found = call()
    if like is not None and kind(found) != kind(like):
        raise Ended("it gives tensors of another shape or type")
    return found


def one(call: Callable[[], Tensors]) -> Tensors:
    """As `each`, of a single call; raises `Ended`."""
    (found,) = each([call])
    if isinstance(found, Ended):
        raise found
    return found


def public(call: Callable[[], Found], pickler: Any = pickle) -> Found:
    """Object that ``call`` gives, which sees nothing private; raises as that does."""
    if _inside or not hasattr(os, "fork"):
        return call()

    def outcome() -> Any:
        try:
            return True, call()
        except Exception as error:
            return False, error

    def packed(found: Any) -> bytes:
        try:
            return pickler.dumps(found)
        except Exception as error:  # such as an error that holds a tensor
            if found[0]:
                raise
            return pickler.dumps((False, RuntimeError(f"{told(found[1])}; {error}")))

    (answer,) = _answers([outcome], packed, silent=False)
    fine, found = _given(answer, pickler.loads)
    if not fine:
        raise found
    return found


def kind(tensors: Sequence[Tensor]) -> list[Any]:
    return [(part.shape, part.dtype) for part in tensors]


def tried(call: Callable[[], Tensors]) -> Tensors | Ended:
    """Tensors that ``call`` gives, or how it failed."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except Ended as error:
        return error
    except BaseException as error:
        return Ended(told(error))


def _given(answer: bytes | str, read: Callable[[bytes], Found]) -> Found:
    """Content of an answer; raises `Ended`."""
    if isinstance(answer, str):
        raise Ended(answer)
    if answer[:1] != b"+":
        raise Ended(answer[1:].decode(errors="replace"))
    return read(answer[1:])


def _packed(found: Any) -> bytes:
    """Tensors as arrays; nothing else would do, which could have code of its own."""
    content = io.BytesIO()
    for part in found:
        with torch._C.DisableTorchFunction():
            values = part.detach().cpu().resolve_conj().resolve_neg().numpy()
        np.save(content, values, allow_pickle=False)
    return content.getvalue()


def _unpacked(content: bytes) -> Tensors:
    stream, found = io.BytesIO(content), []
    try:
        while stream.tell() < len(content):
            found.append(torch.from_numpy(np.load(stream, allow_pickle=False)))
    except (ValueError, EOFError, MemoryError) as error:
        raise Ended(f"what came back cannot be read: {error}") from None
    return tuple(found)


def _answers(
    calls: Sequence[Callable[[], Any]],
    packed: Callable[[Any], bytes],
    silent: bool = True,
) -> list[bytes | str]:
    """Bytes that each child sends, or how it ended without any."""
    if not hasattr(os, "fork"):
        raise ValueError(
            "code that cannot be traced runs in processes that are forked, which this "
            "system has not: use a model that can be traced, or Linux"
        )
    abreast = min(len(calls), os.cpu_count() or 1)
    answers: list[bytes | str] = [""] * len(calls)
    running: dict[int, _Child] = {}  # by where they are read
    waiting = iter(enumerate(calls))
    sys.stdout.flush(), sys.stderr.flush()
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                while len(running) < abreast and (next_one := next(waiting, None)):
                    child = _Child(*next_one, packed, silent, list(running))
                    running[child.read] = child
                    selector.register(child.read, selectors.EVENT_READ)
                if not running:
                    return answers
                ready = {key.fd for key, _ in selector.select(_LOOK)}
                for child in list(running.values()):
                    if child.goes_on(child.read in ready):
                        continue
                    selector.unregister(child.read)
                    del running[child.read]
                    answers[child.number] = child.ended()
        finally:
            for child in running.values():
                child.kill()
                child.ended()


class _Child:
    """A forked process, and what it has sent."""

    def __init__(
        self,
        number: int,
        call: Callable[[], Any],
        packed: Callable[[Any], bytes],
        silent: bool,
        others: Sequence[int],
    ) -> None:
        self.number = number
        self.status: int | None = None
        self._parts: list[bytes] = []
        self._until = time.monotonic() + _CLOCK
        self.read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other threads, whose locks it has not
            self.pid = os.fork()
        if not self.pid:
            _be_a_child(call, packed, silent, [*others, self.read], write)
        os.close(write)
        os.set_blocking(self.read, False)

    def goes_on(self, ready: bool) -> bool:
        """Take what it has sent; return whether there may be more."""
        if ready and self._took() == b"":
            return False
        if time.monotonic() > self._until:
            self.kill()
        if not ready and self._is_over():  # others may hold what it writes to
            while self._took():
                pass
            return False
        return True

    def _took(self) -> bytes | None:
        try:
            part = os.read(self.read, 1 << 20)
        except BlockingIOError:
            return None
        self._parts.append(part)
        return part

    def _is_over(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def kill(self) -> None:
        if not self._is_over():
            os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> bytes | str:
        """Answer of one that does not go on."""
        os.close(self.read)
        if self.status is None:
            _, self.status = os.waitpid(self.pid, 0)
        answer = b"".join(self._parts)
        if self.status == 0 and answer:
            return answer
        how = os.waitstatus_to_exitcode(self.status)
        by = f"signal {-how}" if how < 0 else f"status {how}"
        return f"its process ended with {by}"


def _be_a_child(
    call: Callable[[], Any],
    packed: Callable[[Any], bytes],
    silent: bool,
    others: Sequence[int],
    write: int,
) -> None:
    global _inside
    try:
        _inside = True
        _as_alone()
        gc.disable()
        for one in others:  # by which it could read another's
            os.close(one)
        _set_up(silent)
        _own_memory()
        if silent:  # else lines of a log would be written over
            _own_files(write)
        with warnings.catch_warnings(), as_written():
            warnings.simplefilter("ignore")
            answer = b"+" + packed(call())
    except BaseException as error:
        answer = b"-" + told(error).encode(errors="replace")
    try:
        if not silent:
            sys.stdout.flush(), sys.stderr.flush()
        left = memoryview(answer)
        while left:
            left = left[os.write(write, left) :]
    finally:
        os._exit(0)


def _as_alone() -> None:
    """Python's clocks and the process' number do not tell how many came before."""
    for name, begun in _begun.items():
        clock = getattr(time, name)
        setattr(time, name, functools.partial(_earlier, clock, clock() - begun))
    os.getpid = threading.get_native_id = lambda: _NUMBER


def _earlier(clock: Callable[[], float], late: float) -> float:
    return clock() - late


def _set_up(silent: bool) -> None:
    """Neither a core nor words are left; nothing goes on for ever, or in threads.

    Where memory runs out, this process is ended, and not its parent.
    """
    import resource

    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    most = _PROCESSOR if most == resource.RLIM_INFINITY else min(most, _PROCESSOR)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    faulthandler.disable()
    if silent:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        sys.stdout = sys.stderr = os.fdopen(nowhere, "w")
    torch.set_num_threads(1)  # those of its parent are not here


def as_written() -> Any:
    """Context in which what people gave to `torch.compile` runs as they wrote it."""
    known = "torch._dynamo" in sys.modules  # else nothing is compiled; it loads slowly
    return (
        torch.compiler.set_stance("force_eager") if known else contextlib.nullcontext()
    )


_READ, _WRITE, _PRIVATE, _FIXED, _ANONYMOUS = 1, 2, 2, 0x10, 0x20  # <sys/mman.h>


def _own_memory() -> None:
    """Make copies of memory that is shared with other processes, in its place."""
    shared = list(_shared()) if sys.platform.startswith("linux") else []
    if not shared:
        return
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    kinds = [ctypes.c_int] * 3
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *kinds, ctypes.c_long]
    for start, size, offset, path in shared:
        kept, file = None, -1
        kind = _PRIVATE | _FIXED
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY)
        if file < 0:
            kept, kind = ctypes.string_at(start, size), kind | _ANONYMOUS
        how = _READ | _WRITE, kind, file, 0 if file < 0 else offset
        if library.mmap(start, size, *how) != start:
            raise MemoryError("memory that is shared cannot be copied")
        if kept is not None:
            ctypes.memmove(start, kept, size)
        else:
            os.close(file)


def _own_files(answer: int) -> None:
    """Take away what processes share by open files, but for ``answer``.

    Where in files and folders they read is their own, and nothing is written to what is
    open; pipes, sockets and the like are at their end. Numbers stay taken: by another
    file's, what is written to a connection would go there.
    """
    numbers = os.listdir("/proc/self/fd") if sys.platform.startswith("linux") else []
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number in {*map(int, numbers)} - {1, 2, answer, nothing}:
        with contextlib.suppress(OSError):  # such as of this list itself
            kind = os.fstat(number).st_mode
            if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                continue
            own = nothing
            if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
                place = os.lseek(number, 0, os.SEEK_CUR)
                with contextlib.suppress(OSError):
                    again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
                    os.lseek(again, place, os.SEEK_SET)
                    own = again
            os.dup2(own, number)
            if own != nothing:
                os.close(own)


def _shared() -> Iterator[tuple[int, int, int, str]]:
    """Shared memory that can be written to: start, size, offset, file."""
    with open("/proc/self/maps") as file:
        lines = [line.rstrip("\n").split(maxsplit=5) for line in file]
    for place, rights, offset, _, _, *path in lines:
        of = path[0] if path else ""
        memory = of.startswith(("/dev/shm/", "/dev/zero"))
        device = of.startswith("/dev/") and not memory
        if rights[1] == "w" and rights[3] == "s" and not device:
            start, end = (int(part, 16) for part in place.split("-"))
            gone = not of or of.endswith(" (deleted)") or of.startswith("/dev/zero")
            yield start, end - start, int(offset, 16), "" if gone else of
