"""Importing what is dear to import, in a thread and when first needed: one at a time.

Two threads that import parts of one package at the same moment may each be handed what the other has half made:
Python lets go of a module's lock where waiting for it would never end.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")

_loading = threading.Lock()


async def load_in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """What the work returns. It imports, and does nothing that takes long besides."""

    def alone() -> _T:
        with _loading:
            return work(*args, **kwargs)

    return await asyncio.to_thread(alone)
