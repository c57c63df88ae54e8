"""Wake-ups between tasks, also those of other servers. A bell carries no data: the task that is woken reads the store.

A wake-up from another server may be late or lost, so whoever waits also looks at the store now and then.
"""

from contextlib import AbstractContextManager
from typing import Protocol

# Rung when a cancellation was stored.
CANCELS = "cancels"
# Rung when a run starts to wait for a person, with a deadline.
DEADLINES = "deadlines"
# Rung when a callback is due, or when another one may be delivered.
CALLBACKS = "callbacks"
# Rung when vectors are to be made of texts, or when more of them can be made.
EMBEDDINGS = "embeddings"
# Rung when a file is to be processed, or is no longer.
FILES = "files"
# Rung when rows of deleted folders, files or contents are to be removed.
REMOVALS = "removals"
# Rung when a run may be waiting in the queue for a server.
RUNS = "runs"


def run_topic(run_id: str) -> str:
    """Rung when a run was claimed, has new events in the store, or has ended."""
    return f"run:{run_id}"


def login_topic(session_id: str) -> str:
    """Rung when a login at an MCP server was completed or has failed, and when its tokens were renewed or could not be."""
    return f"mcp_login:{session_id}"


class Watch(Protocol):
    async def wait(self, seconds: float) -> None:
        """Return at the first ring since the last ``wait`` or since the watch began, or after so many seconds."""
        ...


class Bell(Protocol):
    @property
    def is_connected(self) -> bool:
        """Whether the rings of other servers arrive here. If not, polling must do."""
        ...

    def ring(self, topic: str, *, here_only: bool = False) -> None:
        """Wake all tasks of all servers that wait for the topic or watch it, or only those of this one. If none waits,
        the next ``wait`` returns at once; several such rings count as one. So no wake-up is lost between reading
        the store and waiting."""
        ...

    async def wait(self, topic: str) -> None:
        """Return at the next ring, or at once after a ring for which no task waited."""
        ...

    def watch(self, topic: str) -> AbstractContextManager[Watch]:
        """Notice rings of the topic from now on until the context ends. For topics that come and go, such as those of
        runs: rings that nobody watches leave nothing behind. Begin to watch before reading the store."""
        ...
