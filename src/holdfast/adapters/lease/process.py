"""Which process this server is, and whether the process of another one is gone (Linux). Two processes with the same number
may live in different namespaces, such as containers: nothing is known about those of another one."""

import os
from pathlib import Path
from typing import Final

from holdfast.core.servers import ServerProcess

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
# The field of /proc/<pid>/stat with the time at which the process was started, counted after its name.
_START_FIELD: Final = 19


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
    try:
        return f"{_BOOT_ID.read_text(encoding='ascii').strip()} {_NAMESPACE.readlink()}"
    except OSError:
        return None


def _read_start_tick(pid: int) -> int | None:
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may contain any characters, also spaces and parentheses.
    return int(line[line.rindex(b")") + 1 :].split()[_START_FIELD])
