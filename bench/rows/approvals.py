"""Approvals: the time from an approval to the tool's result, and listing a full inbox."""

import time
from functools import partial
from typing import Any

from bench import many_approvals, processes
from bench.client import Client, RequestFailed
from bench.context import BenchContext, Home, new_agent, turn_path
from bench.floor import measure_ms
from bench.measurements import Measurement, median
from bench.provider import ASK, ASK_TOOL
from holdfast.adapters.store.cipher import load_home_cipher
from holdfast.adapters.store.factory import open_store

RESULT_BUDGET_MS = 25
INBOX_BUDGET_MS = 25
WAITING = 10_000

_SOURCE = f'''
def {ASK_TOOL}(number: int) -> int:
    """Add one.

    Args:
        number: Any number.
    """
    return number + 1
'''
_RESULT = b'"tool_return_message"'


async def measure(context: BenchContext) -> list[Measurement]:
    return [*await _approve(context), *await _inbox(context)]


async def _approve(context: BenchContext) -> list[Measurement]:
    async with context.warm_server() as (_, client):
        held = {"source_code": _SOURCE, "default_requires_approval": True}
        tool = await client.post("/v1/tools/", held)
        # The first call starts the sandbox's fork server, once per server.
        await _result_ms(client, tool["id"])
        taken = [await _result_ms(client, tool["id"]) for _ in range(context.counts.approvals)]
    what = "from an approval to the tool's result"
    return [Measurement(what=what, unit="ms", value=median(taken), budget=RESULT_BUDGET_MS)]


async def _result_ms(client: Client, tool_id: str) -> float:
    agent_id = await new_agent(client, tool_ids=[tool_id])
    paused = await client.post(turn_path(agent_id), {"input": ASK})
    call_id = paused["messages"][-1]["tool_call"]["tool_call_id"]
    entry = {"type": "approval", "tool_call_id": call_id, "approve": True}
    answer: dict[str, Any] = {"messages": [{"type": "approval", "approvals": [entry]}]}
    heard_at: list[float] = []

    def on_data(data: bytes) -> None:
        if _RESULT in data:
            heard_at.append(time.perf_counter())

    asked_at = time.perf_counter()
    await client.stream(f"{turn_path(agent_id)}/stream", answer, on_data)
    return (heard_at[0] - asked_at) * 1000


async def _inbox(context: BenchContext) -> list[Measurement]:
    home = context.new_home()
    await _fill(context, home)
    with context.server(home) as running:
        async with processes.open_client(running.address) as client:
            await running.wait_until_idle()
            by_age, by_deadline = [
                [
                    await measure_ms(partial(_list, client, order_by))
                    for _ in range(context.counts.inboxes)
                ]
                for order_by in ("created_at", "expires_at")
            ]
    what = f"inbox of {WAITING:,}: the first 100 and the count"
    return [
        Measurement(what=what, unit="ms", value=median(by_age), budget=INBOX_BUDGET_MS),
        Measurement(what="  by deadline", unit="ms", value=median(by_deadline)),
    ]


async def _fill(context: BenchContext, home: Home) -> None:
    with context.server(home) as running:
        async with processes.open_client(running.address) as client:
            agent_id = await new_agent(client)
    url = home.database_url or f"sqlite:///{home.folder}/holdfast.db"
    store = await open_store(url, cipher=load_home_cipher(home.folder))
    try:
        await many_approvals.fill(store, agent_id, WAITING)
    finally:
        await store.close()


async def _list(client: Client, order_by: str) -> None:
    status, body = await client.request("GET", f"/v1/approvals/?limit=100&order_by={order_by}")
    if status != 200 or body.count(b'"pending"') != 100:
        raise RequestFailed(f"The inbox: {status} {body[:300]!r}")
