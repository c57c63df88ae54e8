"""The scripted provider as a process, for all rows. The user's message says what it answers.

``python -m holdfast.testing`` knows one reply; the rows need several: a chain of tool calls, words at a
pace, an answer that never ends.
"""

import asyncio
import signal

import msgspec
import uvloop

from holdfast.testing import (
    Answer,
    Gate,
    Hang,
    ProviderRequest,
    ScriptedProvider,
    Text,
    ToolCall,
)
from holdfast.testing.moments import Moment

CHAIN_TOOL = "add_one"
CHAIN_CALLS = 10
HOLD_TOOL = "hold_on"
# Requests one call of the tool that does not return.
HOLD = "hold-tool"
ASK_TOOL = "ask_first"
# Requests one call of the tool that needs an approval.
ASK = "ask"

# Almost no delay, but each word is one write. Without a delay all words would be one write.
ONE_BY_ONE = 1e-9

# By the name that a row gave: when an answer's first word was sent, and the requests that hang.
_started_at: dict[str, float] = {}
_held: dict[str, ProviderRequest] = {}


def words(count: int, delay_seconds: float = 0.0) -> str:
    """Requests an answer of this many words."""
    return f"words {count} {delay_seconds}"


def paced_words(name: str, count: int, delay_seconds: float) -> str:
    """Requests words of which the n-th is due n delays after ``started_at``."""
    return f"paced {name} {count} {delay_seconds}"


def hold(name: str) -> str:
    """Requests one word, followed by nothing until the client closes."""
    return f"hold {name}"


def started_at(name: str) -> str:
    """Asks when the paced words began, on the clock of ``time.monotonic``."""
    return f"begun {name}"


def closed_at(name: str) -> str:
    """Asks when the client closed the hanging answer; null if it has not yet."""
    return f"closed {name}"


class _StartMoment(Moment):
    """Records the time from which the delays of an answer are counted.

    Not that of the request: an answer is rendered whole before it flows, and fifty at once wait for each
    other's rendering, which is not the server's time.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._answer = name

    def happen(self) -> None:
        _started_at[self._answer] = asyncio.get_running_loop().time()
        super().happen()


def _respond(request: ProviderRequest) -> Answer | None:
    """The requested answer; a chain of calls if the tool for it is offered; else a plain greeting."""
    if CHAIN_TOOL in request.tool_names:
        return _chain(request)
    match request.user_text.split(" "):
        case ["words", count, delay]:
            return Answer(_words(int(count), float(delay)))
        case ["paced", name, count, delay]:
            return Answer(_start_gate(name), _words(int(count), float(delay)))
        case ["hold", name]:
            _held[name] = request
            return Answer("Wait", Hang())
        case ["hold-tool"] if HOLD_TOOL in request.tool_names and not _has_result(request):
            return Answer(ToolCall(HOLD_TOOL, {}))
        case ["ask"] if ASK_TOOL in request.tool_names and not _has_result(request):
            return Answer(ToolCall(ASK_TOOL, {"number": 1}))
        case ["begun", name]:
            return Answer(msgspec.json.encode(_started_at[name]).decode())
        case ["closed", name]:
            return Answer(msgspec.json.encode(_held[name].closed_at).decode())
    return None


def _has_result(request: ProviderRequest) -> bool:
    return request.messages[-1].get("role") == "tool"


def _words(count: int, delay_seconds: float) -> Text:
    return Text(chunks=[f"word{number} " for number in range(count)], delay_seconds=delay_seconds)


def _start_gate(name: str) -> Gate:
    gate = Gate(name)
    gate.reached = _StartMoment(name)
    gate.release()
    return gate


def _chain(request: ProviderRequest) -> Answer | None:
    since_user = 0
    for message in reversed(request.messages):
        if message.get("role") == "user":
            break
        since_user += message.get("role") == "tool"
    return (
        Answer(ToolCall(CHAIN_TOOL, {"number": since_user})) if since_user < CHAIN_CALLS else None
    )


async def _serve() -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with ScriptedProvider(
        record=False, default="Hello from the scripted provider."
    ) as provider:
        provider.respond_with(_respond)
        print(provider.url, flush=True)
        await ended.wait()


if __name__ == "__main__":
    uvloop.run(_serve())
