"""Which process this server is, and whether the process of another one is gone (Linux). Two processes with the same number
may live in different namespaces, such as containers: nothing is known about those of another one."""

import os
from pathlib import Path
from typing import Final

from holdfast.adapters.processes import read_boot_id, read_process
from holdfast.core.servers import ServerProcess

_NAMESPACE: Final = Path("/proc/self/ns/pid")


def identify_process() -> ServerProcess:
    """Return this process."""
    pid = os.getpid()
    return ServerProcess(
        pid=pid, namespace=_read_namespace(), started_at_tick=_read_start_tick(pid)
    )


def is_gone(process: ServerProcess) -> bool:
    """Whether the process has certainly ended. False if that cannot be known here."""
    if process.namespace is None or process.namespace != _read_namespace():
        return False
    return _read_start_tick(process.pid) != process.started_at_tick


def _read_namespace() -> str | None:
    boot_id = read_boot_id()
    try:
        return None if boot_id is None else f"{boot_id} {_NAMESPACE.readlink()}"
    except OSError:
        return None


def _read_start_tick(pid: int) -> int | None:
    facts = read_process(pid)
    return None if facts is None else facts.started_at_tick
