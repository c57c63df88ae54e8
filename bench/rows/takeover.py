"""A server is killed in the middle of an answer: how long until a reader at the other one gets the run's next event."""

import asyncio
import time
from contextlib import AsyncExitStack

from bench import streams
from bench.context import BenchContext, new_agent
from bench.measurements import Measurement, median
from bench.processes import RunningProcess, open_client
from bench.provider import words
from bench.stream_recorder import StreamRecorder

BUDGET_SECONDS = 15

# Who takes the run over asks the model again and gets the whole answer anew.
_WORDS = 60
_WORD_SECONDS = 0.05
# What the dead server had stored may still arrive. Then there is silence until its lease has expired.
_LAST_WORDS_SECONDS = 0.5
_HEARTBEAT_SECONDS = 2.0
_WAIT_SECONDS = 60.0


async def measure(context: BenchContext) -> list[Measurement]:
    """In every second repetition the older server is killed: the leader, which looks for dead servers."""
    count, taken = context.counts.takeovers, []
    shared = context.new_shared_database()
    async with AsyncExitStack() as stack:

        async def start() -> RunningProcess:
            return await stack.enter_async_context(context.shared_server(shared))

        servers = [await start(), await start()]
        for number in range(count):
            victim = servers.pop(number % 2)
            # At different moments between two heartbeats.
            await asyncio.sleep(_HEARTBEAT_SECONDS * number / count)
            async with asyncio.timeout(_WAIT_SECONDS):
                taken.append(await _kill(victim, survivor=servers[0]))
            servers.append(await start())
    return [
        Measurement(
            what=f"SIGKILL until the run goes on elsewhere, longest of {count}",
            unit="s",
            value=max(taken),
            budget=BUDGET_SECONDS,
        ),
        Measurement(what="  median", unit="s", value=median(taken)),
        Measurement(what="  shortest", unit="s", value=min(taken)),
    ]


async def _kill(victim: RunningProcess, survivor: RunningProcess) -> float:
    sent, read = StreamRecorder(), StreamRecorder()
    async with open_client(victim.address) as sender, open_client(survivor.address) as reader:
        agent_id = await new_agent(sender)
        request = streams.stream_request(words(_WORDS, _WORD_SECONDS), background=True)
        sending = asyncio.create_task(sender.stream(streams.stream_path(agent_id), request, sent))
        await sent.started.wait()
        reading = asyncio.create_task(reader.stream(f"/v1/runs/{sent.run_id}/stream", {}, read))
        await read.started.wait()
        victim.kill()
        killed_at = time.monotonic()
        await asyncio.gather(sending, return_exceptions=True)
        await reading
    if read.done_at is None:
        raise RuntimeError("The stream of a run that was taken over did not end with [DONE].")
    heard = [at for _, at in read.words if at > killed_at + _LAST_WORDS_SECONDS]
    return heard[0] - killed_at
