"""Imports expensive modules in a thread when they are first needed, one at a time.

Two threads that import parts of one package at the same time may each see a half-initialized module of the other:
Python releases a module's lock where waiting for it would be a deadlock.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")

_loading = threading.Lock()


async def load_in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """The result of ``work``, which imports and does nothing else that takes long."""

    def alone() -> _T:
        with _loading:
            return work(*args, **kwargs)

    return await asyncio.to_thread(alone)
