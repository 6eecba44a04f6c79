"""A function of the user's, called from several processes."""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privaudit.auditing.programs.targets import Worlds, checked, function_of
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


class Processes:
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

    def __enter__(self) -> Self:
        return self

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
