"""The events of a run, in the order in which they happened. Clients see a run only through its events.

If the caller asked for tokens, an answer appears as the deltas that were streamed; otherwise as the rows that were
stored. Tool results and the end appear in the same way in both cases. A client is shown each event once.
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.messages import Message
from holdfast.core.runs import RunFailure, RunStatus, StopReason, Usage


class ReasoningStreamed(Struct, frozen=True, tag="thought", omit_defaults=True):
    """A part of the model's reasoning. ``piece`` is its index among the pieces of the row that will be stored."""

    message_id: str
    step_id: str
    piece: int
    text: str


class HiddenReasoningStreamed(Struct, frozen=True, tag="hidden_thought", omit_defaults=True):
    """Reasoning that the model does not show."""

    message_id: str
    step_id: str
    piece: int
    redacted: bool
    data: str | None = None


class TextStreamed(Struct, frozen=True, tag="text", omit_defaults=True):
    """A part of the model's text."""

    message_id: str
    step_id: str
    piece: int
    text: str


class CallStreamed(Struct, frozen=True, tag="call", omit_defaults=True):
    """A part of a tool call. The first event of a call has no arguments, all others have some."""

    message_id: str
    step_id: str
    piece: int
    call_id: str
    name: str
    arguments: str = ""
    held: bool = False


class MessageStored(Struct, frozen=True, tag="message_stored"):
    """A piece of a row of this run that is committed."""

    message: Message
    piece: int = 0


class CompactionBegan(Struct, frozen=True, tag="compaction_began"):
    """A compaction of the context has begun. Only for callers that asked for compaction messages."""

    id: str
    trigger: str
    context_tokens: int
    context_window: int


class ToolProgressed(Struct, frozen=True, tag="tool_progress", omit_defaults=True):
    """A tool that is running says how far it is. ``total`` None: not known. Lists of messages do not have it."""

    # Its own, for clients that tell messages apart by their ids.
    id: str
    call_id: str
    name: str
    progress: float
    total: float | None = None
    message: str | None = None


class RunEnded(Struct, frozen=True, tag="run_ended"):
    """The last event. A run that waits for a person has ended too: its answer starts another run."""

    status: RunStatus
    stop_reason: StopReason
    usage: Usage
    step_count: int
    context_tokens: int
    failure: RunFailure | None = None


Streamed = ReasoningStreamed | HiddenReasoningStreamed | TextStreamed | CallStreamed
# Facts that only clients are told: nothing is derived from them.
Announced = CompactionBegan | ToolProgressed
Fact = Streamed | MessageStored | Announced | RunEnded


class Event(Struct, frozen=True):
    """A fact with its number. The single writer of a run counts from 1; only a crash leaves a gap."""

    run_id: str
    seq: int
    fact: Fact


def number_facts(run_id: str, last_seq: int, facts: Sequence[Fact]) -> tuple[Event, ...]:
    """The facts as the events that follow the event number ``last_seq``."""
    return tuple(Event(run_id, seq, fact) for seq, fact in enumerate(facts, last_seq + 1))
