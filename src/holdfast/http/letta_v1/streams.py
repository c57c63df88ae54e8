"""Runs as streams: what a route answers with when it streams (wire-v1 §4.2). A reader never owns its run."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Literal

from holdfast.core.agents import Actor
from holdfast.core.events import Event, RunEnded
from holdfast.core.runs import Run
from holdfast.errors import AnswerMismatch, CallerError, HoldfastError, PendingApproval, StaleRun
from holdfast.http.letta_v1.to_wire.stream import (
    StreamView,
    ping,
    refusal_items,
    stream_items,
    view_of,
)
from holdfast.http.sse import DONE, KEEP_ALIVE_COMMENT, MEDIA_TYPE, EventStream, encode_frames
from holdfast.ports.services import Services
from holdfast.usecases import messages, runs
from holdfast.usecases.messages import NewSend

log = logging.getLogger(__name__)

OnDisconnect = Literal["continue", "cancel"]

# For ``responses=`` of a route.
STREAM_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The run's events, one JSON object each, and last [DONE].",
        # No schema: OpenAPI has no word for a line of events, and a wrong one misleads whoever generates code.
        "content": {MEDIA_TYPE: {}},
    }
}

# Refused before there is a run, yet V1's loop found these, after its headers were out (wire-v1 §4.2).
_REFUSED_IN_STREAM = (CallerError, AnswerMismatch, PendingApproval)


def with_stream(responses: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """The ``responses=`` of a route that streams if it is asked to."""
    content = responses[200]["content"] | STREAM_RESPONSES[200]["content"]
    return responses | {200: responses[200] | {"content": content}}


async def stream_send(
    services: Services, actor: Actor, new: NewSend, *, on_disconnect: OnDisconnect = "continue"
) -> EventStream:
    """Send, and answer with the run's stream. In the foreground it begins with the run's turn, so that a
    busy thread is still a 409; in the background there is no hurry."""
    try:
        run = await messages.send(services, actor, new)
    except CallerError as error:
        if type(error) not in _REFUSED_IN_STREAM:
            raise
        return EventStream(_refusal_chunks(error))
    if not run.background:
        await messages.wait_for_turn(services, run)
    return stream_from_start(services, actor, run, on_disconnect=on_disconnect)


def stream_from_start(
    services: Services, actor: Actor, run: Run, *, on_disconnect: OnDisconnect = "continue"
) -> EventStream:
    """The run from its beginning, as its request wished."""
    reader = _RunReader(services, run, view_of(run))
    return EventStream(
        reader.chunks(),
        keep_alive=reader.ping if run.request.include_pings else _keep_alive_comment,
        on_disconnect=partial(reader.cancel, actor) if on_disconnect == "cancel" else None,
    )


def resume_stream(
    services: Services, run: Run, *, after: int = 0, include_pings: bool = True
) -> EventStream:
    """What follows the event of this number, of any run: live, ended, begun in the foreground or not."""
    reader = _RunReader(services, run, view_of(run, resumed=True), after)
    return EventStream(
        reader.chunks(), keep_alive=reader.ping if include_pings else _keep_alive_comment
    )


class _RunReader:
    """A place in a run's log, and how what follows is shown."""

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
        # A log that ends without the run's end (the server stops, or cannot read on) ends the stream
        # without a word: any ending would be a lie, and the client can resume from its last number.

    def ping(self) -> bytes:
        services = self._services
        seq = self._seq if self._view.numbered and self._seq else None
        return encode_frames(
            [ping(self._run.id, services.ids.new_otid(), services.clock.now(), seq)]
        )

    async def cancel(self, actor: Actor) -> None:
        """Stop the run, unless its end was on its way to the client already."""
        if self._ended:
            return
        try:
            await runs.cancel(self._services, actor, self._run.id, reason="client disconnected")
        except (CallerError, StaleRun):
            log.info("run.not_cancelled", extra={"run_id": self._run.id}, exc_info=True)

    def _chunk(self, events: Sequence[Event]) -> bytes:
        chunk = encode_frames(stream_items(events, self._view, self._services.clock.now()))
        self._seq = events[-1].seq
        self._ended = isinstance(events[-1].fact, RunEnded)
        return chunk + DONE if self._ended else chunk

    def _has_read_all(self) -> bool:
        run = self._run
        return run.completed_at is not None and self._seq >= run.last_event_seq


def _keep_alive_comment() -> bytes:
    return KEEP_ALIVE_COMMENT


async def _refusal_chunks(error: CallerError) -> AsyncGenerator[bytes, None]:
    yield encode_frames(refusal_items(error)) + DONE
