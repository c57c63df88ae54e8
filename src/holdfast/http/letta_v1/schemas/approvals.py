"""The inbox of what waits for a person. Not in V1."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Struct
from pydantic import Field

from holdfast.http.letta_v1.schemas.messages import ApprovalReturn, ToolCall, ToolReturn
from holdfast.http.letta_v1.schemas.send import DecidedBy, Entry, Lenient, Partial


class Approval(Struct, frozen=True, kw_only=True):
    """A request for a person's answer. ``id`` is the one of its approval_request_message."""

    id: str
    status: Literal["pending", "decided"]
    agent_id: str
    conversation_id: str | None
    # The run that asked, and its step.
    run_id: str | None
    step_id: str | None
    created_at: datetime
    tool_calls: list[ToolCall]
    # What was decided so far; an answer to the last call is shown once it is carried out.
    approvals: list[ApprovalReturn | ToolReturn]


class DecideBody(Lenient):
    """Either one word for all calls, or an entry for each."""

    approve: bool | None = None
    reason: str | None = None
    approvals: Annotated[list[Entry] | None, Field(min_length=1)] = None
    decided_by: DecidedBy = None
    partial: Partial = False
