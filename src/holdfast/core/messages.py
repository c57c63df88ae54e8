"""What is said in a thread: the rows of the history and their parts.

A row is immutable once stored (the compiled system message alone is rewritten in place).
How rows look on the V1 wire is ``http/letta_v1``'s affair, how a provider sees them is the model bridge's.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from holdfast.core.deadlines import Deadline


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    APPROVAL = "approval"
    SUMMARY = "summary"


class Text(Struct, frozen=True, tag="text", omit_defaults=True):
    text: str
    # What a provider wants back with its own text: item ids, signatures.
    id: str | None = None
    provider: str | None = None
    details: dict[str, Any] | None = None


class Image(Struct, frozen=True, tag="image", omit_defaults=True):
    """A picture, always by value: addresses are fetched when the request arrives."""

    media_type: str
    data: str
    detail: str | None = None


class Thinking(Struct, frozen=True, tag="thinking", omit_defaults=True):
    """What the model thought. Redacted thinking has no text, only what must be sent back."""

    text: str
    signature: str | None = None
    id: str | None = None
    provider: str | None = None
    details: dict[str, Any] | None = None
    redacted: bool = False


Part = Text | Image | Thinking
VisiblePart = Text | Image


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """``arguments`` is the JSON text exactly as the model produced it."""

    id: str
    name: str
    arguments: str
    item_id: str | None = None
    provider: str | None = None
    details: dict[str, Any] | None = None


class Outcome(StrEnum):
    """What became of a tool call. Exactly one is true of each call before the model is asked again."""

    NOT_STARTED = "not_started"
    FINISHED = "finished"
    FAILED = "failed"
    DENIED = "denied"
    KILLED = "killed"
    UNKNOWN = "unknown"


class ToolReturn(Struct, frozen=True, omit_defaults=True):
    call_id: str
    name: str | None
    outcome: Outcome
    content: tuple[VisiblePart, ...]
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.FINISHED

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


class Decision(Struct, frozen=True, omit_defaults=True):
    """A person's answer to one call that was held, or the result of a call that the client ran."""

    call_id: str
    approve: bool
    reason: str | None = None
    returned: ToolReturn | None = None
    # Who decided, as the server knows it and in the caller's own words, and when.
    decided_by_id: str | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    # What an approved call gets instead of the model's own arguments.
    arguments: dict[str, Any] | None = None


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of a thread. ``position`` is given by the store and rises strictly."""

    id: str
    agent_id: str
    thread_id: str
    role: Role
    created_at: datetime
    content: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_returns: tuple[ToolReturn, ...] = ()
    decisions: tuple[Decision, ...] = ()
    run_id: str | None = None
    step_id: str | None = None
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None
    group_id: str | None = None
    model: str | None = None
    # A note of ours to the model (a nudge): part of the history, never shown as the user's words.
    hidden: bool = False
    position: int = 0

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


class CallState(StrEnum):
    """Where an open call stands.

    Fresh: the model has just asked for it. Held: waits for a person. Ready: waits for a held sibling.
    Started: written ahead, may be running. Settled: has its result, the result row is not written yet.
    """

    FRESH = "fresh"
    HELD = "held"
    READY = "ready"
    STARTED = "started"
    SETTLED = "settled"


class OpenCall(Struct, frozen=True):
    """A call of the last answer whose result row is not written yet."""

    call: ToolCall
    message_id: str
    step_id: str
    state: CallState
    result: ToolReturn | None = None
    # Until when it waits for its answer; None once it has one.
    deadline: Deadline | None = None


# How callers and the system message name the default thread of an agent, which is no conversation.
DEFAULT_CONVERSATION = "default"


def default_thread_id(agent_id: str) -> str:
    """Each agent's default thread has the id of its agent, so no look-up is ever needed."""
    return agent_id


def conversation_id(thread_id: str, agent_id: str) -> str | None:
    """The thread as a conversation; the default thread is none."""
    return None if thread_id == default_thread_id(agent_id) else thread_id


def decisions_by_call(history: Sequence[Message]) -> dict[str, Decision]:
    """What was decided, by call, since the model's last answer; of a call that was decided twice the first."""
    found: dict[str, Decision] = {}
    for row in reversed(history):
        if row.tool_calls or row.role is Role.ASSISTANT:
            break
        found |= {decision.call_id: decision for decision in row.decisions}
    return found


def unanswered_calls(history: Sequence[Message]) -> list[ToolCall]:
    """The calls of the history that have no result, oldest first."""
    answered = {item.call_id for row in history for item in row.tool_returns}
    return [call for row in history for call in row.tool_calls if call.id not in answered]
