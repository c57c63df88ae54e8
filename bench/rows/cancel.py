"""Cancelling a run, alone and among others: the time until the call, the provider, the reader and the tool notice.

Each time counts from the moment in which the call is made, on one clock for all processes.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec
import psutil  # type: ignore[import-untyped]  # it brings no types

from bench import streams
from bench.client import Client
from bench.context import BenchContext, new_agent
from bench.measurements import Measurement, median
from bench.processes import RunningProcess, open_client
from bench.provider import HOLD, HOLD_TOOL, closed_at, hold, words
from bench.stream_recorder import ProviderStreamRecorder, StreamRecorder

CLOSED_BUDGET_MS = 5
ENDED_BUDGET_MS = 10
DEAD_BUDGET_MS = 50
OTHERS = 50

# The other runs are active but light: together 500 tokens a second, for longer than a row takes.
_OTHERS_WORD_SECONDS = 0.1
_OTHERS_WORDS = 600

_WAIT_SECONDS = 15.0
_POLL_SECONDS = 0.005

_SLEEP = ["sleep", "60"]
# A tool with a child process in the same process group.
_SOURCE = f'''
def {HOLD_TOOL}() -> str:
    """Do not return."""
    import subprocess
    subprocess.run({_SLEEP})
    return "woken"
'''


@dataclass(frozen=True, slots=True)
class CancelTimes:
    """Milliseconds since the call."""

    answered: float
    closed: float
    ended: float


async def measure(context: BenchContext) -> list[Measurement]:
    floor_closed = await _provider_close_ms(context)
    measurements: list[Measurement] = []
    for others in (0, OTHERS):
        async with context.warm_server() as (running, _), _other_runs(running.address, others):
            cancelled = [
                await cancel_stream(context, running.address) for _ in range(context.counts.cancels)
            ]
            dead = [await _cancel_tool(running) for _ in range(context.counts.tool_cancels)]
        measurements += _measurements(others + 1, cancelled, dead, floor_closed)
    return measurements


def _measurements(
    live: int, cancelled: Sequence[CancelTimes], dead: Sequence[float], floor_closed: float
) -> list[Measurement]:
    def measurement(
        what: str, values: Sequence[float], budget: float | None, floor: float | None = None
    ) -> Measurement:
        return Measurement(what=what, unit="ms", value=median(values), floor=floor, budget=budget)

    return [
        measurement(f"cancel, {live} live: the call", [one.answered for one in cancelled], None),
        measurement(
            "  provider's socket closed",
            [one.closed for one in cancelled],
            CLOSED_BUDGET_MS,
            floor_closed,
        ),
        measurement("  the stream ends", [one.ended for one in cancelled], ENDED_BUDGET_MS),
        measurement("  the tool's process group is dead", dead, DEAD_BUDGET_MS),
    ]


async def cancel_stream(
    context: BenchContext, address: str, called_address: str | None = None
) -> CancelTimes:
    """Stream from one server, cancel at the same one or at another."""
    name, recorder = streams.new_name(), StreamRecorder()
    async with (
        open_client(address) as reader,
        open_client(called_address or address) as caller,
        open_client(context.provider.address) as provider,
        asyncio.timeout(_WAIT_SECONDS),
    ):
        agent_id = await new_agent(caller)
        reading = asyncio.create_task(
            reader.stream(
                streams.stream_path(agent_id), streams.stream_request(hold(name)), recorder
            )
        )
        await recorder.started.wait()
        called_at = time.monotonic()
        await _cancel(caller, agent_id)
        answered_at = time.monotonic()
        await reading
        closed = await _wait_for_close(provider, name)
    if recorder.done_at is None:
        raise RuntimeError("The stream of a cancelled run did not end with [DONE].")
    return CancelTimes(
        *((at - called_at) * 1000 for at in (answered_at, closed, recorder.done_at)),
    )


async def _cancel_tool(server: RunningProcess) -> float:
    """From the call to the death of the last process of the tool."""
    async with (
        open_client(server.address) as reader,
        open_client(server.address) as caller,
        asyncio.timeout(_WAIT_SECONDS),
    ):
        tool = await caller.post("/v1/tools/", {"source_code": _SOURCE})
        agent_id = await new_agent(caller, tool_ids=[tool["id"]])
        reading = asyncio.create_task(streams.read_stream(reader, agent_id, HOLD))
        pids = await _wait_for_tool(server, reading)
        deaths = [asyncio.create_task(_wait_for_death(pid)) for pid in pids]
        # The tasks must watch before the processes are killed.
        await asyncio.sleep(0)
        called_at = time.monotonic()
        await _cancel(caller, agent_id)
        died_at = max(await asyncio.gather(*deaths))
        await reading
    return (died_at - called_at) * 1000


async def _cancel(client: Client, agent_id: str) -> None:
    outcomes = await client.post(f"/v1/agents/{agent_id}/messages/cancel", {})
    if list(outcomes.values()) != ["cancelled"]:
        raise RuntimeError(f"The run was not cancelled: {outcomes}")


async def _wait_for_close(provider: Client, name: str) -> float:
    """When the provider saw its client close. It records the time itself, so a late query does not distort it."""
    while True:
        at = msgspec.json.decode(
            await streams.ask_provider(provider, closed_at(name)), type=float | None
        )
        if at is not None:
            return at
        await asyncio.sleep(_POLL_SECONDS)


async def _wait_for_tool(
    server: RunningProcess, reading: asyncio.Task[StreamRecorder]
) -> list[int]:
    """The pids of the tool's processes, once they run.

    They are looked up from here: a tool may have pids of its own, and no folder that the bench can read.
    """
    while not reading.done():
        if pids := _find_tool(server):
            return pids
        await asyncio.sleep(_POLL_SECONDS)
    raise RuntimeError("The run ended, and its tool did not wait.")


def _find_tool(server: RunningProcess) -> list[int]:
    for process in psutil.Process(server.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.cmdline() == _SLEEP:
                return [process.pid, process.ppid()]
    return []


async def _wait_for_death(pid: int) -> float:
    """Wait for a process's pidfd, which the kernel makes readable when the process ends."""
    loop = asyncio.get_running_loop()
    died: asyncio.Future[float] = loop.create_future()
    descriptor = os.pidfd_open(pid)

    def note() -> None:
        loop.remove_reader(descriptor)
        died.set_result(time.monotonic())

    loop.add_reader(descriptor, note)
    try:
        return await died
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _provider_close_ms(context: BenchContext) -> float:
    """The floor: a client of the bare provider hangs up."""
    taken = []
    async with open_client(context.provider.address) as provider:
        for _ in range(context.counts.cancels):
            name, recorder = streams.new_name(), ProviderStreamRecorder()
            async with open_client(context.provider.address) as client:
                reading = asyncio.create_task(
                    client.stream(streams.CALL_PATH, streams.provider_request(hold(name)), recorder)
                )
                await recorder.started.wait()
                called_at = time.monotonic()
                client.close()
                await asyncio.gather(reading, return_exceptions=True)
            taken.append((await _wait_for_close(provider, name) - called_at) * 1000)
    return median(taken)


@asynccontextmanager
async def _other_runs(address: str, count: int) -> AsyncIterator[None]:
    """This many other runs, each streaming to a reader; all are cancelled at the end."""
    agents = await streams.create_agents(address, count)
    readers = [await Client.connect(address) for _ in agents]
    recorders = [StreamRecorder() for _ in agents]
    text = words(_OTHERS_WORDS, _OTHERS_WORD_SECONDS)
    reading = [
        asyncio.create_task(
            reader.stream(streams.stream_path(agent), streams.stream_request(text), recorder)
        )
        for reader, agent, recorder in zip(readers, agents, recorders, strict=True)
    ]
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            await asyncio.gather(*(recorder.started.wait() for recorder in recorders))
        yield
        if any(task.done() for task in reading):
            raise RuntimeError("Some of the other runs ended while one was measured.")
    finally:
        async with open_client(address) as client:
            for agent in agents:
                await client.request("POST", f"/v1/agents/{agent}/messages/cancel", b"{}")
        await asyncio.gather(*reading, return_exceptions=True)
        for reader in readers:
            reader.close()
