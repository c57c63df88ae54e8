"""Servers as the store knows them, for tests without processes."""

import uuid
from datetime import UTC, datetime
from typing import Any

from holdfast.core.runs import Run
from holdfast.core.servers import Claim, Role, Server, ServerProcess

_SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def make_server(**fields: Any) -> Server:
    given: dict[str, Any] = {
        "id": f"server-{uuid.uuid4()}",
        "host": "here",
        "process": ServerProcess(pid=1),
        "version": "0",
        "role": Role.ALL,
        "max_runs": 1_000,
        "started_at": _SOME_TIME,
        "heartbeat_at": _SOME_TIME,
    }
    return Server(**given | fields)


def claim_of(run: Run) -> Claim:
    """The claim by which the run is executed, or would be."""
    return Claim(run.id, run.thread_id, run.fence, run.highest_seq)
