"""``holdfast servers``: list the servers of a deployment. Returns text for people, or with ``as_json`` the server's JSON
for scripts."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.text import align_columns, to_json

if TYPE_CHECKING:
    from holdfast.cli.api import Api

Server = Mapping[str, Any]

_HEADINGS: Final = (
    "SERVER",
    "HOST",
    "PID",
    "VERSION",
    "ROLE",
    "RUNS",
    "STARTED",
    "HEARTBEAT",
    "STATE",
)
# A span is given in the largest unit of which there are at least two.
_UNITS: Final = (("days", 86_400), ("hours", 3_600), ("minutes", 60))


def render_list(api: "Api", *, as_json: bool) -> str:
    """List the servers, the oldest first, and describe the queue."""
    deployment = api.get("servers", "")
    if as_json:
        return to_json(deployment)
    # The clock of the database, by which all times are, not that of this machine.
    now = datetime.fromisoformat(deployment["now"])
    rows = [_list_row(server, now) for server in deployment["servers"]]
    table = align_columns([_HEADINGS, *rows]) if rows else "There are no servers."
    return f"{table}\n\n{_describe_queue(deployment['queue'])}"


def _list_row(server: Server, now: datetime) -> tuple[str, ...]:
    return (
        server["id"],
        server["host"],
        str(server["pid"]),
        server["version"],
        server["role"],
        f"{server['live_runs']}/{server['max_runs']}",
        _format_age(server["started_at"], now),
        _format_age(server["heartbeat_at"], now),
        ", ".join(_marks(server, now)),
    )


def _marks(server: Server, now: datetime) -> Iterator[str]:
    if not server["is_alive"]:
        yield f"DEAD, lease ended {_format_age(server['lease_ends_at'], now)}"
        return
    yield "alive"
    if server["is_leader"]:
        yield "leader"
    if not server["is_notified"]:
        yield "polling"
    if server["is_draining"]:
        yield "stopping"
    if server["is_this"]:
        yield "answers"


def _describe_queue(queue: Mapping[str, Any]) -> str:
    count = queue["waiting_runs"]
    if not count:
        return "No run waits in the queue."
    who = (
        "1 run waits in the queue," if count == 1 else f"{count} runs wait in the queue, the oldest"
    )
    return f"{who} for {_format_span(queue['oldest_seconds'] or 0.0)}."


def _format_age(text: str, now: datetime) -> str:
    return f"{_format_span((now - datetime.fromisoformat(text)).total_seconds())} ago"


def _format_span(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
