"""The SSE response: framing, keep-alives, clients that disconnect or stop reading (wire-v1 §4.1, §4.7)."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from holdfast.core.runs import StopReason
from holdfast.http.letta_v1.schemas import messages as wire
from holdfast.http.sse import DONE, KEEP_ALIVE_COMMENT, EventStream, encode_frames

WAIT_SECONDS = 10


class Client:
    """One end of an ASGI connection."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.got_something = asyncio.Event()
        self.leaves = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()

    async def receive(self) -> Any:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.append(message)
        self.got_something.set()

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def wait_until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not fact():
                self.got_something.clear()
                await self.got_something.wait()


class Source:
    """Chunks that the test releases one by one."""

    def __init__(self, *chunks: bytes) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for chunk in chunks:
            self.queue.put_nowait(chunk)
        self.closed = asyncio.Event()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while (chunk := await self.queue.get()) is not None:
                yield chunk
        finally:
            self.closed.set()


async def serve_stream(stream: EventStream, client: Client) -> None:
    scope = {"type": "http"}
    await asyncio.wait_for(stream(scope, client.receive, client.send), WAIT_SECONDS)


def test_only_an_error_has_a_name() -> None:
    stop = wire.StopReasonItem(StopReason.ERROR)
    error = wire.ErrorMessage(run_id="run-1", error_type="llm_error", message="a\nb", detail="ü")
    assert encode_frames([stop, error], wire.ErrorMessage).decode() == (
        'data: {"message_type":"stop_reason","stop_reason":"error"}\n\n'
        'event: error\ndata: {"message_type":"error_message","run_id":"run-1",'
        '"error_type":"llm_error","message":"a\\nb","detail":"ü","seq_id":null}\n\n'
    )
    assert encode_frames([], wire.ErrorMessage) == b""


async def test_each_chunk_is_one_message_and_the_last_is_empty() -> None:
    client, source = Client(), Source(b"one", b"two", DONE)
    source.queue.put_nowait(None)
    await serve_stream(EventStream(source.chunks()), client)
    start, *bodies = client.sent
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert dict(start["headers"]) == {
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-cache",
        b"x-accel-buffering": b"no",
    }
    assert [body["body"] for body in bodies] == [b"one", b"two", DONE, b""]
    assert [body["more_body"] for body in bodies] == [True, True, True, False]
    assert source.closed.is_set()


async def test_a_client_that_leaves_ends_the_reading() -> None:
    client, source = Client(), Source(b"one")
    serving = asyncio.create_task(serve_stream(EventStream(source.chunks()), client))
    await client.wait_until(lambda: client.text == b"one")
    client.leaves.set()
    await serving
    assert source.closed.is_set()
    assert client.sent[-1]["more_body"]


async def test_a_client_that_leaves_while_it_does_not_read_is_noticed_too() -> None:
    client, source = Client(), Source(b"one", b"two")
    stream = EventStream(source.chunks())
    serving = asyncio.create_task(serve_stream(stream, client))
    await client.wait_until(lambda: bool(client.sent))
    client.reads.clear()
    client.leaves.set()
    await serving
    assert source.closed.is_set()


@pytest.mark.parametrize("leaves", [True, False])
async def test_on_disconnect_is_called_when_the_client_disconnects(leaves: bool) -> None:
    client, source = Client(), Source(b"one")
    told: list[bool] = []

    async def on_disconnect() -> None:
        told.append(source.closed.is_set())

    stream = EventStream(source.chunks(), on_disconnect=on_disconnect)
    serving = asyncio.create_task(serve_stream(stream, client))
    await client.wait_until(lambda: client.text == b"one")
    if leaves:
        client.leaves.set()
    else:
        source.queue.put_nowait(None)
    await serving
    assert told == ([True] if leaves else [])


async def test_nothing_is_taken_from_the_source_before_the_client_took_the_last() -> None:
    client, source = Client(), Source(*[b"x"] * 1_000)
    serving = asyncio.create_task(serve_stream(EventStream(source.chunks()), client))
    await client.wait_until(lambda: bool(client.sent))
    client.reads.clear()
    for _ in range(100):
        await asyncio.sleep(0)
    # All chunks that were taken have been sent, except for the one that waits.
    taken = 1_000 - source.queue.qsize()
    assert taken <= len(client.text) + 1
    client.reads.set()
    await client.wait_until(lambda: len(client.text) == 1_000)
    client.leaves.set()
    await serving


async def test_silence_is_filled_and_talk_is_not() -> None:
    client, source = Client(), Source()
    stream = EventStream(source.chunks(), keep_alive_seconds=0.01)
    serving = asyncio.create_task(serve_stream(stream, client))
    await client.wait_until(lambda: client.text.count(KEEP_ALIVE_COMMENT) >= 3)
    source.queue.put_nowait(b"data: 1\n\n")
    await client.wait_until(lambda: b"data" in client.text)
    source.queue.put_nowait(None)
    await serving
    assert client.text.replace(KEEP_ALIVE_COMMENT, b"") == b"data: 1\n\n"


async def test_nothing_is_said_before_there_is_something_to_say() -> None:
    client, source = Client(), Source()
    serving = asyncio.create_task(serve_stream(EventStream(source.chunks()), client))
    await client.wait_until(lambda: bool(client.sent))
    for _ in range(10):
        await asyncio.sleep(0)
    assert [message["type"] for message in client.sent] == ["http.response.start"]
    client.leaves.set()
    await serving


async def test_a_broken_source_breaks_the_stream() -> None:
    async def failing_chunks() -> AsyncGenerator[bytes, None]:
        yield b"one"
        raise ZeroDivisionError

    client = Client()
    with pytest.raises(ZeroDivisionError):
        await serve_stream(EventStream(failing_chunks()), client)
    assert client.text == b"one"
    assert client.sent[-1]["more_body"]


async def test_a_server_that_is_cancelled_closes_the_source() -> None:
    client, source = Client(), Source(b"one")
    stream = EventStream(source.chunks())
    serving = asyncio.create_task(stream({"type": "http"}, client.receive, client.send))
    await client.wait_until(lambda: client.text == b"one")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert source.closed.is_set()
