"""Watches a fork server from outside: when it has ended, however it did, its calls and their folders go too (Linux).

The watching process is the parent of the fork server. Processes that lose their parent become its children, so it
needs no list of calls, and costs a call nothing. Imports only the standard library and modules that do the same.
"""

import contextlib
import gc
import os
import signal
from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.adapters.processes import read_process
from holdfast.adapters.sandbox import confinement
from holdfast.adapters.sandbox.folder_removal import remove_folder
from holdfast.adapters.sandbox.process_table import list_pids

_PROCESS_END: Final = (ProcessLookupError, PermissionError)


class Watch(NamedTuple):
    """What the fork server knows of the process that watches it."""

    pid: int
    server_pid: int
    ended_fd: int
    """A descriptor that becomes readable when the watching process ends."""


def fork_watched(root: str, descriptors: Iterable[int]) -> Watch | None:
    """Fork: returns in the child, which is watched. None where the kernel does not support it.

    The other process never returns. It closes the descriptors, and removes ``root`` at the end.
    """
    if not confinement.LINUX:
        return None
    confinement.adopt_orphans()
    confinement.hide_memory()
    watch_pid, server_pid = os.getpid(), os.getppid()
    ended_fd, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(held)
        return Watch(watch_pid, server_pid, ended_fd)
    try:
        for fd in (ended_fd, *descriptors):
            os.close(fd)
        _watch(pid, root)
    finally:
        os._exit(0)


def _watch(fork_server: int, root: str) -> None:
    gc.freeze()
    # The server sends this if the fork server does not react.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(fork_server, signal.SIGKILL))
    while os.wait()[0] != fork_server:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _kill_orphans()
    remove_folder(root)


def _kill_orphans() -> None:
    """Kill all processes that were below the fork server. Those that they started become our children when they end."""
    own_group = os.getpgrp()
    while orphans := _list_children():
        for pid in orphans:
            with contextlib.suppress(*_PROCESS_END):
                if (group := os.getpgid(pid)) != own_group:
                    os.killpg(group, signal.SIGKILL)
            with contextlib.suppress(*_PROCESS_END):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.wait()


def _list_children() -> list[int]:
    own = os.getpid()
    found = ((pid, read_process(pid)) for pid in list_pids())
    return [pid for pid, facts in found if facts is not None and facts.parent == own]
