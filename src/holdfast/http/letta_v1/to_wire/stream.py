"""A run's events as the items of a stream (wire-v1 §4.4-§4.6): pure. ``http/sse`` frames them.

Building and encoding an item takes about 2 µs, sending it 20 µs: nothing is prepared in advance.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import ids
from holdfast.core.events import (
    Announced,
    CallStreamed,
    CompactionBegan,
    Event,
    HiddenReasoningStreamed,
    MessageStored,
    ReasoningStreamed,
    RunEnded,
    Streamed,
    TextStreamed,
)
from holdfast.core.messages import Role
from holdfast.core.runs import Run, StopReason
from holdfast.errors import CallerError
from holdfast.http.letta_v1.schemas import messages as wire
from holdfast.http.letta_v1.to_wire.messages import (
    api_messages,
    message_type,
    summary_message,
)
from holdfast.http.letta_v1.to_wire.replies import error_message, usage_statistics
from holdfast.http.letta_v1.to_wire.unblock_hint import describe_error

# All tokens of a piece have the same otid, and computing it takes longer than the rest of an item.
_otid = lru_cache(maxsize=1_024)(ids.derived_otid)


class StreamView(Struct, frozen=True, kw_only=True):
    """What a reader is shown: only these message types, if the run has a filter; event numbers, if it may resume."""

    types: tuple[str, ...] | None = None
    numbered: bool = False


def view_of(run: Run, *, resumed: bool = False) -> StreamView:
    """Readers of a background run, and those that have resumed, may resume again (wire-v1 §4.3)."""
    types = run.request.include_return_message_types
    return StreamView(types=types, numbered=resumed or run.background)


def stream_items(
    events: Sequence[Event], view: StreamView, now: datetime
) -> Iterator[wire.StreamItem]:
    date = _format_seconds(now)
    for event in events:
        fact = event.fact
        if isinstance(fact, RunEnded):
            yield from _end_items(event, fact, view)
            continue
        message = _message(event, fact, view, date)
        if view.types is None or message_type(message) in view.types:
            yield message


def ping(run_id: str, uuid: str, now: datetime, seq: int | None) -> wire.StreamItem:
    return wire.Ping(id=f"ping-{uuid}", date=_format_seconds(now), run_id=run_id, seq_id=seq)


def refusal_items(error: CallerError) -> tuple[wire.StreamItem, ...]:
    """The items for a send that was refused before there was a run (wire-v1 §4.2)."""
    text = describe_error(error)
    return (
        wire.StopReasonItem(StopReason.ERROR),
        wire.ErrorMessage(run_id=None, error_type="internal_error", message=text, detail=text),
    )


def _format_seconds(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _message(
    event: Event, fact: Streamed | MessageStored | Announced, view: StreamView, date: str
) -> wire.StreamMessage:
    if isinstance(fact, MessageStored):
        return _stored_message(event, fact, view)
    if isinstance(fact, Announced):
        return _event_message(event, fact, view, date)
    return _message_chunk(fact, _common_fields(event, fact, view, date))


def _stored_message(event: Event, fact: MessageStored, view: StreamView) -> wire.StreamMessage:
    # The log only has a summary if the caller asked for it (wire-v1 §7.9).
    is_summary = fact.message.role is Role.SUMMARY
    message = (
        summary_message(fact.message) if is_summary else api_messages(fact.message)[fact.piece]
    )
    return replace(message, run_id=event.run_id, seq_id=event.seq if view.numbered else None)


def _event_message(
    event: Event, fact: Announced, view: StreamView, date: str
) -> wire.StreamMessage:
    kind, data = _event_data(fact)
    return wire.EventMessage(
        id=fact.id,
        date=date,
        run_id=event.run_id,
        seq_id=event.seq if view.numbered else None,
        event_type=kind,
        event_data=data,
    )


def _event_data(fact: Announced) -> tuple[wire.EventType, dict[str, Any]]:
    if isinstance(fact, CompactionBegan):
        return "compaction", {
            "trigger": fact.trigger,
            "context_token_estimate": fact.context_tokens,
            "context_window": fact.context_window,
        }
    return "tool_progress", {
        "tool_call_id": fact.call_id,
        "tool_name": fact.name,
        "progress": fact.progress,
        "total": fact.total,
        "message": fact.message,
    }


def _common_fields(event: Event, fact: Streamed, view: StreamView, date: str) -> dict[str, Any]:
    held = isinstance(fact, CallStreamed) and fact.held
    return {
        "id": fact.message_id,
        "date": date,
        "otid": fact.message_id if held else _otid(fact.message_id, fact.piece),
        "step_id": fact.step_id,
        "run_id": event.run_id,
        "seq_id": event.seq if view.numbered else None,
    }


def _message_chunk(fact: Streamed, common: dict[str, Any]) -> wire.StreamMessage:
    match fact:
        case TextStreamed(text=text):
            return wire.AssistantMessage(**common, content=text)
        case ReasoningStreamed(text=text):
            return wire.ReasoningMessage(**common, reasoning=text)
        case CallStreamed():
            delta = wire.ToolCallDelta(
                name=fact.name, arguments=fact.arguments or None, tool_call_id=fact.call_id
            )
            chunk = wire.ApprovalRequestChunk if fact.held else wire.ToolCallChunk
            return chunk(**common, tool_call=delta, tool_calls=delta)
        case HiddenReasoningStreamed():
            return wire.HiddenReasoningMessage(
                **common,
                state="redacted" if fact.redacted else "omitted",
                hidden_reasoning=fact.data if fact.redacted else None,
            )


def _end_items(event: Event, ended: RunEnded, view: StreamView) -> Iterator[wire.StreamItem]:
    """Exactly one stop reason, then the usage or the error. No filter applies to them."""
    yield wire.StopReasonItem(ended.stop_reason)
    if ended.failure is None:
        yield usage_statistics(ended)
    else:
        error = error_message(event.run_id, ended.failure)
        yield replace(error, seq_id=event.seq) if view.numbered else error
