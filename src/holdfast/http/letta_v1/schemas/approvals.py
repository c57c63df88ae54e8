"""Approval requests in the inbox, and answers to them. Not in V1."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Struct
from pydantic import Field

from holdfast.core.deadlines import OnTimeout
from holdfast.http.letta_v1.schemas.limits import MAX_APPROVALS
from holdfast.http.letta_v1.schemas.messages import ApprovalReturn, ToolCall, ToolReturn
from holdfast.http.letta_v1.schemas.send import DecidedBy, Entry, LenientModel, Partial


class CallDeadline(Struct, frozen=True, kw_only=True):
    """Until when a call waits for its answer, and what happens then. ``fail``: the client sent no result in time."""

    tool_call_id: str
    expires_at: datetime
    on_timeout: OnTimeout


class Approval(Struct, frozen=True, kw_only=True):
    """A request for approval. Its ``id`` is that of the approval_request_message."""

    id: str
    status: Literal["pending", "decided"]
    agent_id: str
    conversation_id: str | None
    # The run that asked, and its step.
    run_id: str | None
    step_id: str | None
    # The run that waits for the answer, if one does. After a partial answer it is not the run that asked.
    waiting_run_id: str | None
    created_at: datetime
    tool_calls: list[ToolCall]
    approvals: list[ApprovalReturn | ToolReturn]
    # When the first of the open calls expires, and when each of them does.
    expires_at: datetime | None
    deadlines: list[CallDeadline]


class DecideBody(LenientModel):
    """Either ``approve`` for all calls, or an entry in ``approvals`` for each."""

    approve: bool | None = None
    reason: str | None = None
    approvals: Annotated[list[Entry] | None, Field(min_length=1, max_length=MAX_APPROVALS)] = None
    decided_by: DecidedBy = None
    partial: Partial = False
