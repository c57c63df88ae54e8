"""Thousands of open event streams: how long health takes while they connect, wait, hear the end and leave."""

import asyncio
import subprocess
import sys

import msgspec

from bench import streams
from bench.client import Client
from bench.context import BenchContext, new_agent
from bench.measurements import Measurement, median
from bench.processes import ROOT, open_client
from bench.provider import hold
from bench.stream_recorder import StreamRecorder

HEALTH_BUDGET_MS = 1000

_BATCH = 100
_QUIET_SECONDS = 3.0
_WAIT_SECONDS = 300.0
_PROBE_SECONDS = 60.0


async def measure(context: BenchContext) -> list[Measurement]:
    count = context.counts.readers
    async with context.warm_server() as (running, client), asyncio.timeout(_WAIT_SECONDS):
        agent_id = await new_agent(client)
        sent = StreamRecorder()
        async with open_client(running.address) as sender:
            text = streams.stream_request(hold(streams.new_name()), background=True)
            sending = asyncio.create_task(sender.stream(streams.stream_path(agent_id), text, sent))
            await sent.started.wait()
            probe = _start_probe(running.address)
            try:
                await _read_until_cancelled(running.address, sent.run_id, agent_id, count)
            finally:
                taken = await asyncio.to_thread(_end_probe, probe)
            await sending
    return [
        Measurement(
            what=f"slowest health with {count:,} readers",
            unit="ms",
            value=max(taken),
            budget=HEALTH_BUDGET_MS,
        ),
        Measurement(what="  median", unit="ms", value=median(taken)),
    ]


async def _read_until_cancelled(address: str, run_id: str, agent_id: str, count: int) -> None:
    readers: list[Client] = []
    recorders: list[StreamRecorder] = []
    reading: list[asyncio.Task[None]] = []
    try:
        while len(readers) < count:
            batch = await asyncio.gather(*(Client.connect(address) for _ in range(_BATCH)))
            for reader in batch:
                recorder = StreamRecorder()
                stream = reader.stream(f"/v1/runs/{run_id}/stream", {}, recorder)
                reading.append(asyncio.create_task(stream))
                recorders.append(recorder)
            readers += batch
        await asyncio.gather(*(recorder.started.wait() for recorder in recorders))
        await asyncio.sleep(_QUIET_SECONDS)
        async with open_client(address) as caller:
            await caller.post(f"/v1/agents/{agent_id}/messages/cancel", {})
        await asyncio.gather(*reading)
    finally:
        for reader in readers:
            reader.close()
        await asyncio.gather(*reading, return_exceptions=True)


def _start_probe(address: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bench.health_probe", address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _end_probe(probe: "subprocess.Popen[str]") -> list[float]:
    try:
        output, _ = probe.communicate("", timeout=_PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        probe.kill()
        raise
    return msgspec.json.decode(output, type=list[float])
