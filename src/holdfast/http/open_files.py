"""The limit on open files of this process, and how many of them connections may use."""

import resource
from dataclasses import dataclass, replace

from holdfast.http.pending_requests import ConnectionLimits

# Connections that the system accepts before the server does. It may accept all of them before it closes one.
_BACKLOG = 2048
# For databases, tools, model providers and modules.
_OTHER_FILES = 1024


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    connections: int
    backlog: int


def raise_open_files(connections: int) -> int:
    """Let this process open what so many connections need, as far as the system allows it; returns the limit.

    No further: some programs that a tool starts close every number up to the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _BACKLOG + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


def share_open_files(open_files: int, connections: int) -> ListenerLimits:
    """With few files, connections use half of them, and those that are not accepted yet a quarter."""
    if open_files >= connections + _BACKLOG + _OTHER_FILES:
        return ListenerLimits(connections, _BACKLOG)
    backlog = min(_BACKLOG, open_files // 4)
    others = min(_OTHER_FILES, open_files // 4)
    return ListenerLimits(min(connections, open_files - backlog - others), backlog)


def fit_to_open_files(limits: ConnectionLimits) -> tuple[ConnectionLimits, int]:
    """Raise the limit on open files; returns the limits that it allows, and the backlog of the listener."""
    shared = share_open_files(raise_open_files(limits.connections), limits.connections)
    return replace(limits, connections=shared.connections), shared.backlog
