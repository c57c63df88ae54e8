"""Answers that stream a run (wire-v1 §4.2). A run does not depend on those who read it."""

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Literal

from holdfast.core.agents import Actor
from holdfast.core.events import Event, RunEnded
from holdfast.core.runs import Run
from holdfast.errors import CallerError, HoldfastError, StaleRun
from holdfast.http.letta_v1.schemas.messages import ErrorMessage, StreamItem
from holdfast.http.letta_v1.to_wire.stream import (
    StreamView,
    ping,
    refusal_items,
    stream_items,
    view_of,
)
from holdfast.http.sse import DONE, KEEP_ALIVE_COMMENT, MEDIA_TYPE, EventStream, encode_frames
from holdfast.ports.services import Services
from holdfast.usecases import runs

log = logging.getLogger(__name__)

OnDisconnect = Literal["continue", "cancel"]

# For ``responses=`` of a route.
STREAM_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The run's events, one JSON object each, and last [DONE].",
        # No schema: OpenAPI cannot describe a stream of events, and a wrong schema would mislead code generators.
        "content": {MEDIA_TYPE: {}},
    }
}


def with_stream(responses: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """The ``responses=`` of a route that streams if it is asked to."""
    content = responses[200]["content"] | STREAM_RESPONSES[200]["content"]
    return responses | {200: responses[200] | {"content": content}}


def stream_refusal(error: CallerError) -> EventStream:
    return EventStream(_refusal_chunks(error))


def stream_from_start(
    services: Services, actor: Actor, run: Run, *, on_disconnect: OnDisconnect = "continue"
) -> EventStream:
    """The run from its beginning, with the options of its request."""
    reader = _RunReader(services, run, view_of(run))
    return EventStream(
        reader.chunks(),
        keep_alive=reader.ping if run.request.include_pings else _keep_alive_comment,
        on_disconnect=partial(reader.cancel, actor) if on_disconnect == "cancel" else None,
    )


def resume_stream(
    services: Services, run: Run, *, after: int = 0, include_pings: bool = True
) -> EventStream:
    """The events after this number, of any run: live or ended, in the foreground or in the background."""
    reader = _RunReader(services, run, view_of(run, resumed=True), after)
    return EventStream(
        reader.chunks(), keep_alive=reader.ping if include_pings else _keep_alive_comment
    )


class _RunReader:
    """A position in a run's event log, and how the events after it are shown."""

    def __init__(self, services: Services, run: Run, view: StreamView, after: int = 0) -> None:
        self._services = services
        self._run = run
        self._view = view
        self._seq = after
        self._ended = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        if self._has_read_all():
            yield DONE
            return
        try:
            async with aclosing(self._services.events.follow(self._run.id, self._seq)) as batches:
                async for events in batches:
                    if chunk := self._chunk(events):
                        yield chunk
        except HoldfastError:
            log.exception("stream.failed", extra={"run_id": self._run.id})
        # If the log stops before the run has ended (the server stops, or cannot read on), the stream ends without a
        # stop reason: any would be wrong, and the client can resume from its last event.

    def ping(self) -> bytes:
        services = self._services
        seq = self._seq if self._view.numbered and self._seq else None
        return _encode([ping(self._run.id, services.ids.new_otid(), services.clock.now(), seq)])

    async def cancel(self, actor: Actor) -> None:
        """Cancel the run, unless its end has already been sent."""
        if self._ended:
            return
        try:
            await runs.cancel(self._services, actor, self._run.id, reason="client disconnected")
        except (CallerError, StaleRun):
            log.info("run.not_cancelled", extra={"run_id": self._run.id}, exc_info=True)

    def _chunk(self, events: Sequence[Event]) -> bytes:
        chunk = _encode(stream_items(events, self._view, self._services.clock.now()))
        self._seq = events[-1].seq
        self._ended = isinstance(events[-1].fact, RunEnded)
        return chunk + DONE if self._ended else chunk

    def _has_read_all(self) -> bool:
        run = self._run
        return run.completed_at is not None and self._seq >= run.last_event_seq


def _encode(items: Iterable[StreamItem]) -> bytes:
    return encode_frames(items, ErrorMessage)


def _keep_alive_comment() -> bytes:
    return KEEP_ALIVE_COMMENT


async def _refusal_chunks(error: CallerError) -> AsyncGenerator[bytes, None]:
    yield _encode(refusal_items(error)) + DONE
