"""Servers as the store knows them, for tests without processes."""

import uuid
from datetime import UTC, datetime
from typing import Any

from holdfast.core.servers import Role, Server, ServerProcess

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
