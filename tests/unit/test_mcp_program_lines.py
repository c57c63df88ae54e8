"""Lines of MCP servers that are programs: none holds up the loop, and none shows a secret."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, cast

import pytest

from holdfast.adapters.mcp.failures import TransportFailed
from holdfast.adapters.mcp.line_streams import LineStreams
from holdfast.adapters.mcp.program_lines import StderrLines, pace
from holdfast.adapters.sandbox.programs import Program
from holdfast.core.mcp_servers import Endpoint, Transport

SECRET = "sk-0123456789abcdefghijklmnopqrstuvwxyz"
MASK = "********"
LINES = 20_000


def lines_of(*chunks: bytes, args: tuple[str, ...] = (), **env: str) -> list[str]:
    """What is shown of what a program writes to its stderr."""
    endpoint = Endpoint(
        server_id="mcp_server-1",
        server_name="weather",
        transport=Transport.STDIO,
        command="x",
        args=args,
        env=tuple(env.items()),
    )
    lines = StderrLines(endpoint)
    return [line for chunk in (*chunks, b"") for line in lines.split(chunk) if line]


def test_lines_may_come_in_parts_and_end_without_a_line_end() -> None:
    assert lines_of(b"one\ntw", b"o\n", b"thr", b"ee") == ["one", "two", "three"]


@pytest.mark.parametrize("before", range(340, 405, 7))
def test_a_secret_is_hidden_before_a_line_is_cut(before: int) -> None:
    (line,) = lines_of(b"x" * before + SECRET.encode() + b"\n", KEY=SECRET)
    assert len(line) <= 400
    assert "sk-" not in line


@pytest.mark.parametrize("size", [1, 12, 400, 500, 16 * 1024 - 20])
def test_a_secret_that_comes_in_two_reads_is_hidden(size: int) -> None:
    first, second = SECRET[:12].encode(), SECRET[12:].encode()
    shown = lines_of(b"y" * size + first, second + b" is wrong\n", KEY=SECRET)
    assert not [line for line in shown if "sk-" in line or "xyz" in line]


@pytest.mark.parametrize("length", [6, 100, 1500, 5000, 50_000])
def test_of_a_line_without_end_no_part_of_a_secret_is_shown(length: int) -> None:
    secret = ("abcdefghij" * length)[:length]
    text = (secret * (64 * 1024 // length + 1))[: 64 * 1024].encode()
    shown = lines_of(text, text, KEY=secret)
    assert not [line for line in shown if "abc" in line]


def test_the_rest_of_a_line_that_is_too_long_is_dropped_until_its_end() -> None:
    chunks = [b"z" * 65536] * 3 + [b"the rest\nthe next\n"]
    first, second = lines_of(*chunks)
    assert first == "z" * 400
    assert second == "the next"


def test_a_value_that_begins_with_another_one_is_hidden_whole() -> None:
    shown = lines_of(b"bad: secret-token-abcdef\n", USER="secret", TOKEN="secret-token-abcdef")
    assert shown == [f"bad: {MASK}"]


def test_each_line_of_a_value_of_several_lines_is_hidden() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END KEY-----\n"
    shown = lines_of(f"cannot read {key}".encode(), KEY=key)
    assert shown == [f"cannot read {MASK}", MASK, MASK]


@pytest.mark.parametrize(
    ("args", "text", "shown"),
    [
        (("--token", "swordfish"), "no swordfish", f"no {MASK}"),
        (("--api-key=swordfish",), "no swordfish", f"no {MASK}"),
        (("postgresql://me:swordfish@host/db",), "no swordfish", f"no {MASK}"),
        ((SECRET,), f"no {SECRET}", f"no {MASK}"),
        (("--verbose", "swordfish"), "no swordfish", "no swordfish"),
        (
            ("-y", "@tools/server-weather2"),
            "no @tools/server-weather2",
            "no @tools/server-weather2",
        ),
        (("/home/you/garden2.py",), "at /home/you/garden2.py", "at /home/you/garden2.py"),
    ],
    ids=["option", "value", "password", "key", "word", "package", "path"],
)
def test_arguments_that_are_secrets_are_hidden_and_others_are_not(
    args: tuple[str, ...], text: str, shown: str
) -> None:
    assert lines_of(text.encode(), args=args) == [shown]


async def count_turns(work: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """How many turns of the loop others get meanwhile, and the result."""
    task = asyncio.create_task(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns, await task


class ScriptedProgram:
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)

    async def read_stdout(self) -> bytes:
        return next(self._chunks, b"")


def open_streams(*chunks: bytes, max_bytes: int = 1024**2) -> LineStreams:
    async def explain(problem: str | None) -> TransportFailed:
        return TransportFailed(problem or "")

    return LineStreams(cast("Program", ScriptedProgram(chunks)), max_bytes, explain)


@pytest.mark.parametrize("line", [b"\n", b"1\n", b"{}\n"])
async def test_many_short_lines_on_stdout_give_way_to_others(line: bytes) -> None:
    turns, problem = await count_turns(open_streams(line * LINES)._pass_messages())
    assert problem is None
    assert turns >= LINES / 500


async def test_many_short_lines_on_stderr_give_way_to_others() -> None:
    async def read() -> int:
        return len([line async for line in pace(["x"] * LINES)])

    turns, read_lines = await count_turns(read())
    assert read_lines == LINES
    assert turns >= LINES / 500


async def test_notifications_do_not_make_up_for_garbage() -> None:
    notification = b'{"jsonrpc":"2.0","method":"notifications/message"}\n'
    streams = open_streams(*[b"x" * 600 + b"\n" + notification] * 3, max_bytes=1500)
    reading = asyncio.create_task(streams.read_messages())
    items = [item async for item in streams.read_stream]
    await reading
    assert isinstance(items[-1], TransportFailed)
    assert "that are no messages" in str(items[-1])


async def test_answers_make_up_for_garbage() -> None:
    answer = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
    streams = open_streams(*[b"x" * 600 + b"\n" + answer] * 10, max_bytes=1500)
    reading = asyncio.create_task(streams.read_messages())
    items = [item async for item in streams.read_stream]
    await reading
    assert len([item for item in items if not isinstance(item, Exception)]) == 10
