"""One stream after the other: time to first token, rate, and CPU time per token.

The model layer passes on everything that arrived in one read as one event. So the rate counts words, and the number
of events is reported as well; the cost per token is measured with tokens that arrive one at a time.
"""

from collections.abc import Awaitable, Sequence
from functools import partial

from bench import streams
from bench.client import Client
from bench.context import BenchContext, new_agent
from bench.measurements import Measurement, median
from bench.processes import RunningProcess, open_client
from bench.provider import ONE_BY_ONE, words
from bench.stream_recorder import StreamRecorder

TOKENS = 500
FIRST_TOKENS = 20
BUDGET_TOKENS_PER_SECOND = 5000
FIRST_TOKEN_BUDGET_MS = 5
CPU_BUDGET_MS = 150

# The number of words, and the provider's delay before each.
_FIRST = (FIRST_TOKENS, 0.0)
_FAST = (TOKENS, ONE_BY_ONE)
_ONE_WRITE = (TOKENS, 0.0)
# Slow enough that each token is passed on before the next one arrives.
_SINGLE = (TOKENS, 0.002)


async def measure(context: BenchContext) -> list[Measurement]:
    count, singles = context.counts.streams, context.counts.single_streams
    async with context.warm_server() as (running, client):
        read = partial(_read_streams, client)
        first = await read(_FIRST, count)
        fast, fast_cpu_ms = await _with_cpu(running, read(_FAST, count))
        one_write = await read(_ONE_WRITE, count)
        single, single_cpu_ms = await _with_cpu(running, read(_SINGLE, singles))
    async with open_client(context.provider.address) as provider:
        read_directly = partial(_read_provider_streams, provider)
        provider_first = _first_ms(await read_directly(_FIRST, count))
        provider_fast, provider_one_write = (
            await read_directly(_FAST, count),
            await read_directly(_ONE_WRITE, count),
        )
    return [
        Measurement(what="first token", unit="ms", value=_first_ms(first), floor=provider_first),
        Measurement(
            what="first token added",
            unit="ms",
            value=_first_ms(first) - provider_first,
            budget=FIRST_TOKEN_BUDGET_MS,
        ),
        _rate("tokens/s through one stream", fast, provider_fast, BUDGET_TOKENS_PER_SECOND),
        _events(fast),
        _rate("  sent in one write", one_write, provider_one_write, None),
        _events(one_write),
        Measurement(
            what=f"CPU per {TOKENS} tokens that come singly",
            unit="ms",
            value=single_cpu_ms,
            budget=CPU_BUDGET_MS,
        ),
        _events(single),
        Measurement(what="  as fast as they go", unit="ms", value=fast_cpu_ms),
    ]


async def _read_streams(client: Client, how: tuple[int, float], count: int) -> list[StreamRecorder]:
    """Each agent streams once, so that no history grows."""
    agents = [await new_agent(client) for _ in range(count)]
    recorded = [await streams.read_stream(client, agent, words(*how)) for agent in agents]
    return [streams.check_complete(recorder, how[0]) for recorder in recorded]


async def _read_provider_streams(
    provider: Client, how: tuple[int, float], count: int
) -> list[StreamRecorder]:
    recorded = [await streams.read_provider_stream(provider, words(*how)) for _ in range(count)]
    return [streams.check_complete(recorder, how[0]) for recorder in recorded]


async def _with_cpu(
    running: RunningProcess, streaming: Awaitable[list[StreamRecorder]]
) -> tuple[list[StreamRecorder], float]:
    """The streams, and the server's CPU time for each, including 3 ms for creating its agent."""
    before = running.cpu_ms()
    recorded = await streaming
    return recorded, (running.cpu_ms() - before) / len(recorded)


def _first_ms(recorders: Sequence[StreamRecorder]) -> float:
    return median([recorder.first_ms for recorder in recorders])


def _rate(
    what: str,
    ours: Sequence[StreamRecorder],
    from_provider: Sequence[StreamRecorder],
    budget: float | None,
) -> Measurement:
    return Measurement(
        what=what,
        unit="tokens/s",
        value=_tokens_per_second(ours),
        floor=_tokens_per_second(from_provider),
        budget=budget,
        more_is_better=True,
    )


def _events(recorders: Sequence[StreamRecorder]) -> Measurement:
    return Measurement(
        what="    events that brought them",
        unit="",
        value=median([recorder.events for recorder in recorders]),
    )


def _tokens_per_second(recorders: Sequence[StreamRecorder]) -> float:
    """From the request to the last token, including the time to the first one."""
    return TOKENS / median([recorder.last_ms for recorder in recorders]) * 1000
