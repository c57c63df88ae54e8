"""The scripted provider as a process, for every row. What it answers stands in the user's message.

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
ASK_TOOL = "ask_first"
# The wish for one call of the tool that a person must allow.
ASK = "ask"

# No wait to speak of, yet each word is a write of its own. Without a delay all are one write.
ONE_BY_ONE = 1e-9

# By the names that the rows gave: when an answer began to flow, and the requests that are held.
_started_at: dict[str, float] = {}
_held: dict[str, ProviderRequest] = {}


def words(count: int, delay_seconds: float = 0.0) -> str:
    """The wish for so many words."""
    return f"words {count} {delay_seconds}"


def paced(name: str, count: int, delay_seconds: float) -> str:
    """The wish for words of which the n-th is due n delays after ``begun_at``."""
    return f"paced {name} {count} {delay_seconds}"


def hold(name: str) -> str:
    """The wish for one word, and then silence until the client closes."""
    return f"hold {name}"


def hold_tool(path: str) -> str:
    """The wish for a call of the tool that does not return; it gets the path."""
    return f"tool {path}"


def started_at(name: str) -> str:
    """The question when the paced words began, on ``time.monotonic``'s clock."""
    return f"begun {name}"


def closed_at(name: str) -> str:
    """The question when the client closed on the answer that was held; null if it did not yet."""
    return f"closed {name}"


class _StartMoment(Moment):
    """Notes the very time from which the pauses of an answer are counted.

    Not that of the request: an answer is rendered whole before it flows, and fifty at once wait for each
    other's rendering, which is none of the server's doing.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._answer = name

    def happen(self) -> None:
        _started_at[self._answer] = asyncio.get_running_loop().time()
        super().happen()


def _respond(request: ProviderRequest) -> Answer | None:
    """What was wished for; a chain of calls where the tool for it is offered; else the plain greeting."""
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
        case ["tool", path] if HOLD_TOOL in request.tool_names:
            return Answer(ToolCall(HOLD_TOOL, {"path": path}))
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
