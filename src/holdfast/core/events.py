"""The facts of a run, in the order in which they happened. Clients read a run through these alone.

A run whose caller asked for tokens tells an answer by what was streamed of it, any other run by the rows that
it stored; results and the ending are told alike. Each event is one thing that a client is shown.
"""

from msgspec import Struct

from holdfast.core.messages import Message
from holdfast.core.runs import RunFailure, RunStatus, StopReason, Usage


class ReasoningStreamed(Struct, frozen=True, tag="thought", omit_defaults=True):
    """Some more of what the model thinks. ``piece`` is the place in the row that will be stored."""

    message_id: str
    step_id: str
    piece: int
    text: str


class HiddenReasoningStreamed(Struct, frozen=True, tag="hidden_thought", omit_defaults=True):
    """The model thought something that it does not show."""

    message_id: str
    step_id: str
    piece: int
    redacted: bool
    data: str | None = None


class TextStreamed(Struct, frozen=True, tag="text", omit_defaults=True):
    """Some more of what the model says."""

    message_id: str
    step_id: str
    piece: int
    text: str


class CallStreamed(Struct, frozen=True, tag="call", omit_defaults=True):
    """Some more of a tool call. The first of a call has no arguments, all others have some."""

    message_id: str
    step_id: str
    piece: int
    call_id: str
    name: str
    arguments: str = ""
    held: bool = False


class MessageStored(Struct, frozen=True, tag="message_stored"):
    """A piece of a row of this run, which has been committed."""

    message: Message
    piece: int = 0


class CompactionBegan(Struct, frozen=True, tag="compaction_began"):
    """The context is being made smaller. Told only where it was asked for."""

    id: str
    trigger: str
    context_tokens: int
    context_window: int


class RunEnded(Struct, frozen=True, tag="run_ended"):
    """Nothing follows. A run that waits for a person has ended too: its answer is another run."""

    status: RunStatus
    stop_reason: StopReason
    usage: Usage
    step_count: int
    context_tokens: int
    failure: RunFailure | None = None


Streamed = ReasoningStreamed | HiddenReasoningStreamed | TextStreamed | CallStreamed
Fact = Streamed | MessageStored | CompactionBegan | RunEnded


class Event(Struct, frozen=True):
    """A fact with its number; the run's single writer counts from 1, without gaps but for a crash's."""

    run_id: str
    seq: int
    fact: Fact
