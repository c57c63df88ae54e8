"""The messages of a thread and their parts.

A stored message does not change; only the compiled system message is rewritten in place. ``http/letta_v1`` converts
messages to the V1 wire, the model adapters convert them for providers.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.deadlines import Deadline

# The tool with which older agent types send their text.
SEND_MESSAGE = "send_message"


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    APPROVAL = "approval"
    SUMMARY = "summary"


class Text(Struct, frozen=True, tag="text", omit_defaults=True):
    text: str
    # What a provider needs back with its own text: item ids, signatures.
    id: str | None = None
    provider: str | None = None
    details: dict[str, Any] | None = None


class Image(Struct, frozen=True, tag="image", omit_defaults=True):
    """An image as base64. Images given by URL are fetched when the request arrives."""

    media_type: str
    data: str
    detail: str | None = None


class Thinking(Struct, frozen=True, tag="thinking", omit_defaults=True):
    """The model's reasoning. Redacted reasoning has no text, only data that the provider needs back."""

    text: str
    signature: str | None = None
    id: str | None = None
    provider: str | None = None
    details: dict[str, Any] | None = None
    redacted: bool = False


Part = Text | Image | Thinking
VisiblePart = Text | Image


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A tool call of the model. ``arguments`` is the JSON text exactly as the model produced it."""

    id: str
    name: str
    arguments: str
    item_id: str | None = None
    provider: str | None = None
    details: dict[str, Any] | None = None


class Outcome(StrEnum):
    """The result state of a tool call. Each call has exactly one before the model is called again."""

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
    """A person's answer to a held call, or the result of a call that the client ran."""

    call_id: str
    approve: bool
    reason: str | None = None
    returned: ToolReturn | None = None
    # Who decided: the user id that the server knows, and the name that the caller gave; and when.
    decided_by_id: str | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    # Arguments for an approved call that replace the model's.
    arguments: dict[str, Any] | None = None


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a thread. The store assigns ``position``, which increases strictly."""

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
    # A note of the server to the model: part of the history, never shown as a message of the user.
    hidden: bool = False
    position: int = 0

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


class _SendMessageArguments(Struct):
    message: str


def sent_texts(message: Message) -> Iterator[str]:
    """The texts that the message sends to the user with calls of the send_message tool."""
    for call in message.tool_calls:
        if call.name == SEND_MESSAGE:
            with suppress(msgspec.MsgspecError):
                yield msgspec.json.decode(call.arguments, type=_SendMessageArguments).message


class CallState(StrEnum):
    """The state of an open call.

    Fresh: just requested by the model. Held: waits for a person or the client. Ready: waits for another call that is
    held. Started: recorded before execution, may be running. Settled: has its result, which is not yet a message.
    """

    FRESH = "fresh"
    HELD = "held"
    READY = "ready"
    STARTED = "started"
    SETTLED = "settled"


class OpenCall(Struct, frozen=True):
    """A call of the last answer whose result is not stored as a message yet."""

    call: ToolCall
    message_id: str
    step_id: str
    state: CallState
    result: ToolReturn | None = None
    # The deadline for its answer; None once it has one.
    deadline: Deadline | None = None


def default_thread_id(agent_id: str) -> str:
    """The default thread of an agent has the agent's id, so it never has to be looked up."""
    return agent_id


def conversation_id(thread_id: str, agent_id: str) -> str | None:
    """The thread's id if it is a conversation; None for the default thread."""
    return None if thread_id == default_thread_id(agent_id) else thread_id


def decisions_by_call(history: Sequence[Message]) -> dict[str, Decision]:
    """The decisions since the model's last answer, by call id. The first decision on a call counts."""
    found: dict[str, Decision] = {}
    for row in reversed(history):
        if row.tool_calls or row.role is Role.ASSISTANT:
            break
        found |= {decision.call_id: decision for decision in row.decisions}
    return found


def unanswered_calls(history: Sequence[Message]) -> list[ToolCall]:
    """The calls in the history that have no result, oldest first."""
    answered = {item.call_id for row in history for item in row.tool_returns}
    return [call for row in history for call in row.tool_calls if call.id not in answered]
