"""One-step turns while a large file is uploaded and processed: it must hold up nobody."""

import asyncio
import time
from functools import partial
from typing import Any

import httpx
import msgspec

from bench import processes
from bench.client import Client
from bench.context import TURN, BenchContext, new_agent, turn_path
from bench.floor import measure_ms
from bench.measurements import Measurement, median, percentile_95

BUDGET_P95_MS = 100
TURNS_PER_AGENT = 10
PATIENCE_SECONDS = 900.0

_LINE = "Holdfast stores what an agent may look up later, and this is line {} of such a text.\n"


async def measure(context: BenchContext) -> list[Measurement]:
    megabytes = context.counts.file_mb
    limit = {"HOLDFAST_MAX_FILE_MB": str(megabytes)}
    async with context.warm_server(limit) as (running, client):
        alone = await _turns(client, asyncio.create_task(asyncio.sleep(3)))
        began_at = time.monotonic()
        work = asyncio.create_task(_upload(running, _make_text(megabytes)))
        beside = await _turns(client, work)
        seconds = time.monotonic() - began_at
        work.result()
    return [
        Measurement(
            what=f"one-step turn while {megabytes} MB are processed",
            unit="ms",
            value=median(beside),
            floor=median(alone),
        ),
        Measurement(
            what="  p95",
            unit="ms",
            value=percentile_95(beside),
            floor=percentile_95(alone),
            budget=BUDGET_P95_MS,
        ),
        Measurement(what="  longest", unit="ms", value=max(beside), floor=max(alone)),
        Measurement(
            what="  the file itself", unit="MB/s", value=megabytes / seconds, more_is_better=True
        ),
    ]


def _make_text(megabytes: int) -> bytes:
    lines = "".join(map(_LINE.format, range(10_000))).encode()
    size = megabytes * 1024 * 1024
    return (lines * (size // len(lines) + 1))[:size]


async def _turns(client: Client, until: asyncio.Task[Any]) -> list[float]:
    """How long turns took, one after the other, until something is done."""
    turns: list[float] = []
    while not until.done():
        path = turn_path(await new_agent(client))
        turns += [
            await measure_ms(partial(client.post, path, TURN)) for _ in range(TURNS_PER_AGENT)
        ]
    return turns


async def _upload(running: processes.RunningProcess, data: bytes) -> None:
    """Upload the file, and wait until it is processed."""
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        httpx.AsyncClient(base_url=running.address, timeout=PATIENCE_SECONDS) as http,
    ):
        folder = (await http.post("/v1/folders/", json={"name": "large"})).json()["id"]
        sent = await http.post(f"/v1/folders/{folder}/upload", files={"file": ("large.txt", data)})
        file = msgspec.json.decode(sent.content)
        while file["processing_status"] not in ("completed", "error"):
            await asyncio.sleep(0.5)
            file = (await http.get(f"/v1/folders/{folder}/files/{file['id']}")).json()
        if file["processing_status"] == "error":
            raise RuntimeError(file["error_message"])
