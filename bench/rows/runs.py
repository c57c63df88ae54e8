"""Listing runs in a store with a million of them: with common filters, with filters that match nothing, and a page far
down."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from urllib.parse import urlencode

import msgspec
from sqlalchemy import create_engine, make_url

from bench import processes
from bench.client import Client, RequestFailed
from bench.context import BenchContext, Home
from bench.floor import measure_ms
from bench.many_runs import BUSY_AGENT, COMMON_TOOL, FIRST_AT, QUIET_AGENT, RARE_TOOL, fill
from bench.measurements import Measurement

_REPEATED = 10

_LISTS: dict[str, Sequence[tuple[str, object]]] = {
    "the newest": (),
    "of a quiet agent": (("agent_id", QUIET_AGENT),),
    "of the agent that has half of them": (("agent_id", BUSY_AGENT),),
    "failed": (("statuses", "failed"),),
    "active": (("active", True),),
    "completed in the background": (("statuses", "completed"), ("background", True)),
    "of a project": (("project_id", "project-3"),),
    "of one minute": (
        ("start_date", "2026-01-03T00:00:00Z"),
        ("end_date", "2026-01-03T00:01:00Z"),
    ),
    "that called a rare tool": (("tools_used", RARE_TOOL),),
    "that called a common tool, failed, of a project": (
        ("tools_used", COMMON_TOOL),
        ("statuses", "failed"),
        ("project_id", "project-3"),
    ),
    "the longest": (("order_by", "duration"),),
    "the longest of an agent": (("order_by", "duration"), ("agent_id", QUIET_AGENT)),
    "the longest hundredth": (("duration_percentile", 99),),
    "longer than half of an agent's": (("duration_percentile", 50), ("agent_id", BUSY_AGENT)),
    "that nothing fits": (("background", True), ("step_count", 99)),
    "that nothing fits, by duration": (("order_by", "duration"), ("step_count", 99)),
    "that nothing fits, all conditions": (
        ("agent_id", BUSY_AGENT),
        ("statuses", "completed"),
        ("stop_reason", "end_turn"),
        ("background", True),
        ("project_id", "project-3"),
        ("template_family", "family"),
        ("start_date", "2026-01-01T00:00:00Z"),
        ("end_date", "2027-01-01T00:00:00Z"),
        ("step_count", 1),
        ("step_count_operator", "gte"),
        ("tools_used", COMMON_TOOL),
        ("duration_value", 5),
        ("duration_percentile", 10),
    ),
}


async def measure(context: BenchContext) -> list[Measurement]:
    home = context.new_home()
    with context.server(home):
        pass
    engine = create_engine(_url(home))
    fill(engine, context.counts.runs, queued=0)
    engine.dispose()
    with context.server(home) as running:
        async with processes.open_client(running.address) as client:
            await running.wait_until_idle()
            lists = {**_LISTS, "half-way down": await _middle_page(client, context.counts.runs)}
            newest, *others = [
                await _measurement(client, f"  {what}", query) for what, query in lists.items()
            ]
    return [replace(newest, what=f"the newest 100 of {context.counts.runs:,} runs"), *others]


def _url(home: Home) -> str:
    if home.database_url is None:
        return f"sqlite:///{home.folder}/holdfast.db"
    url = make_url(home.database_url).set(drivername="postgresql+psycopg")
    return url.render_as_string(hide_password=False)


async def _measurement(
    client: Client, what: str, query: Sequence[tuple[str, object]]
) -> Measurement:
    ask = partial(_ask, client, query)
    await ask()
    # On a busy machine the fastest time is the most meaningful.
    return Measurement(
        what=what, unit="ms", value=min([await measure_ms(ask) for _ in range(_REPEATED)])
    )


async def _ask(client: Client, query: Sequence[tuple[str, object]]) -> list[dict[str, object]]:
    path = f"/v1/runs/?{urlencode([*query, ('limit', 100)])}"
    status, body = await client.request("GET", path)
    if status != 200:
        raise RequestFailed(f"GET {path}: {status} {body[:300]!r}")
    found: list[dict[str, object]] = msgspec.json.decode(body)
    return found


async def _middle_page(client: Client, count: int) -> Sequence[tuple[str, object]]:
    """The cursor in the middle of the list; one run was created each second."""
    moment = FIRST_AT + timedelta(seconds=count // 2)
    middle, *_ = await _ask(client, [("end_date", moment.isoformat())])
    return [("after", middle["id"])]
