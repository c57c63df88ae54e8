"""Runs a soak: starts a server and a provider, lets the clients play, takes samples, and stops everything."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
from tests.soak.load import REQUEST_SECONDS, Client, Record, create_tools, play_stories
from tests.soak.provider import DEFAULT, respond
from tests.soak.samples import Sample, Sampler
from tests.support.server_process import ServerProcess

from holdfast.testing import ScriptedProvider

# Before the first idle sample, everything that is loaded or opened once must have been: a tool of each kind, a stream.
_WARM_UP_SHARE: Final = 0.1
_MAX_WARM_UP_SECONDS: Final = 60.0
# A hanging tool ends after this.
_TOOL_TIMEOUT_SECONDS: Final = 2
# How long a server may take to be idle after its last client. It keeps connections to providers for a minute.
_IDLE_SECONDS: Final = 75.0
# It is idle if nothing of these changes for so many samples.
_COUNTED: Final = ("descriptors", "tasks", "threads", "children", "daemons", "temporary")
_EQUAL_SAMPLES: Final = 5
_IDLE_PAUSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float
    clients: int
    sample_seconds: float
    seed: int
    sandbox: str = "plain"
    idle_seconds: float = _IDLE_SECONDS


@dataclass(slots=True)
class Result:
    idle_before: Sample
    idle_after: Sample
    record: Record
    samples: list[Sample] = field(default_factory=list)


async def run_soak(plan: Plan, folder: Path) -> Result:
    temporary = folder / "temporary"
    temporary.mkdir()
    # A number that no other process sleeps for.
    daemon_argument = f"{100_000 + random.Random(plan.seed).random():.6f}"
    async with ScriptedProvider(record=False, default=DEFAULT, check_script=False) as provider:
        provider.respond_with(respond)
        server = await asyncio.to_thread(_start_server, plan, folder, temporary, provider)
        sampler = Sampler(server, temporary, daemon_argument)
        try:
            return await _measure(plan, server, sampler, daemon_argument)
        finally:
            sampler.close()
            await asyncio.to_thread(server.stop)


def _start_server(
    plan: Plan, folder: Path, temporary: Path, provider: ScriptedProvider
) -> ServerProcess:
    return ServerProcess.run_command(
        folder,
        OPENAI_API_KEY="test",
        OPENAI_BASE_URL=provider.openai_url,
        TMPDIR=str(temporary),
        HOLDFAST_METRICS="open",
        HOLDFAST_MODEL_ATTEMPTS="1",
        HOLDFAST_SANDBOX=plan.sandbox,
        HOLDFAST_TOOL_TIMEOUT_SECONDS=str(_TOOL_TIMEOUT_SECONDS),
    )


async def _measure(
    plan: Plan, server: ServerProcess, sampler: Sampler, daemon_argument: str
) -> Result:
    started_at = time.monotonic()

    async def take() -> Sample:
        return await asyncio.to_thread(sampler.take, time.monotonic() - started_at)

    async with _connect(server) as http:
        tool_ids = await create_tools(http)
    record = Record()
    chance = random.Random(plan.seed)
    load = _Load(plan, server, tool_ids, daemon_argument, record, chance)
    async with load.apply():
        await asyncio.sleep(min(_MAX_WARM_UP_SECONDS, plan.seconds * _WARM_UP_SHARE))
    idle_before = await _wait_until_idle(plan, take)
    samples = []
    async with load.apply():
        end_at = time.monotonic() + plan.seconds
        while time.monotonic() < end_at:
            await asyncio.sleep(plan.sample_seconds)
            samples.append(await take())
    return Result(idle_before, await _wait_until_idle(plan, take), record, samples)


def _connect(server: ServerProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.address, timeout=REQUEST_SECONDS)


@dataclass(frozen=True, slots=True)
class _Load:
    plan: Plan
    server: ServerProcess
    tool_ids: list[str]
    daemon_argument: str
    record: Record
    chance: random.Random

    @asynccontextmanager
    async def apply(self) -> AsyncIterator[None]:
        """Clients play until the end of the block; each ends the story that it has begun."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(self.plan.clients):
                group.create_task(self._play(stop))
            try:
                yield
            finally:
                stop.set()

    async def _play(self, stop: asyncio.Event) -> None:
        async with _connect(self.server) as http:
            client = Client(http, self.tool_ids, self.daemon_argument)
            await play_stories(client, self.record, self.chance, stop)


async def _wait_until_idle(plan: Plan, take: Callable[[], Awaitable[Sample]]) -> Sample:
    """A sample of the server when it has no more to do, or after the time limit."""
    give_up_at = time.monotonic() + plan.idle_seconds
    equal: list[Sample] = []
    while time.monotonic() < give_up_at:
        sample = await take()
        if equal and _counts(sample) != _counts(equal[-1]):
            equal.clear()
        equal.append(sample)
        if len(equal) == _EQUAL_SAMPLES and not sample.values["live_runs"]:
            return sample
        await asyncio.sleep(_IDLE_PAUSE_SECONDS)
    return await take()


def _counts(sample: Sample) -> dict[str, float]:
    return {name: sample.values[name] for name in _COUNTED}
