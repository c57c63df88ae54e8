"""What a caller sends to an agent (wire-v1 §2.3.1). Refusals have V1's wording."""

from collections.abc import Sequence

from holdfast.core.approvals import NO_DECISIONS
from holdfast.core.budgets import Budget
from holdfast.core.messages import (
    Decision,
    Role,
)
from holdfast.core.money import NANOS_PER_DOLLAR
from holdfast.core.runs import ClientTool, RunRequest
from holdfast.errors import InvalidArgument, Unprocessable
from holdfast.http.letta_v1.from_wire.approvals import parse_entry, parse_tool_return
from holdfast.http.letta_v1.from_wire.content import parse_content
from holdfast.http.letta_v1.schemas import send as wire
from holdfast.usecases.approval_answers import AnswerOptions
from holdfast.usecases.messages import ApprovalInput, Input, MessageInput, NewSend


def new_send(
    agent_id: str,
    body: wire.SendBody,
    *,
    kind: str = "send_message",
    thread_id: str | None = None,
    streaming: bool = False,
    background: bool = False,
) -> NewSend:
    """With ``streaming``, the streaming options of the body count, and so does its ``background``."""
    return NewSend(
        agent_id=agent_id,
        thread_id=thread_id,
        input=send_inputs(body),
        request=run_request(body, streaming=streaming),
        override_model=body.override_model,
        kind=kind,
        background=background or (streaming and body.background),
    )


def run_request(body: wire.SendBody, *, streaming: bool = False) -> RunRequest:
    types = body.include_return_message_types
    return RunRequest(
        max_steps=body.max_steps,
        override_system=body.override_system,
        client_tools=tuple(
            ClientTool(tool.name, tool.description, tool.parameters)
            for tool in body.client_tools or ()
        ),
        stream_tokens=streaming and body.stream_tokens,
        include_pings=body.include_pings or not streaming,
        include_return_message_types=None if types is None else tuple(types),
        include_compaction_messages=body.include_compaction_messages,
        use_assistant_message=body.use_assistant_message,
        assistant_message_tool_name=body.assistant_message_tool_name,
        assistant_message_tool_kwarg=body.assistant_message_tool_kwarg,
        approval_timeout_seconds=body.approval_timeout_seconds,
        approval_on_timeout=body.approval_on_timeout,
        callback_url=body.callback_url or None,
        budget=_budget(body),
    )


def _budget(body: wire.SendBody) -> Budget | None:
    cost = body.max_cost
    budget = Budget(
        total_tokens=body.max_total_tokens,
        cost=None if cost is None else max(round(cost * NANOS_PER_DOLLAR), 1),
        seconds=body.max_seconds,
    )
    return None if budget == Budget() else budget


def refuse_streaming_options(body: wire.SendBody) -> None:
    """Refuse streaming options in a send that does not stream (wire-v1 §1.11)."""
    problems = [
        problem
        for wrong, problem in (
            (body.stream_tokens, "stream_tokens can only be true when streaming=true"),
            (not body.include_pings, "include_pings can only be false when streaming=true"),
            (body.background, "background can only be true when streaming=true"),
        )
        if wrong
    ]
    if problems:
        raise Unprocessable(
            f"Streaming options set without streaming enabled. {'; '.join(problems)}. "
            "Either set streaming=true or use default values for streaming options."
        )


def send_inputs(body: wire.SendBody) -> tuple[Input, ...]:
    if body.messages is not None and body.input is not None:
        raise Unprocessable("Cannot specify both 'input' and 'messages'. Use one or the other.")
    if body.input is not None:
        return (MessageInput(role=Role.USER, content=parse_content(body.input)),)
    if body.messages is None:
        raise Unprocessable("Must specify either 'input' or 'messages'.")
    if not body.messages:
        raise Unprocessable("Messages must not be empty")
    return _items(body.messages)


def _items(items: Sequence[wire.Item]) -> tuple[Input, ...]:
    """The first item decides: after an approval, messages follow it and all other items are dropped."""
    first, *rest = items
    messages = [item for item in rest if isinstance(item, wire.MessageCreate)]
    if not isinstance(first, wire.MessageCreate):
        return (_approval(first), *(_message(item) for item in messages))
    if len(messages) < len(rest):
        raise InvalidArgument(
            "Unexpected type: an approval or a tool return must be the first item of a request."
        )
    return tuple(_message(item) for item in (first, *messages))


def _message(item: wire.MessageCreate) -> MessageInput:
    return MessageInput(
        role=Role(item.role),
        content=parse_content(item.content),
        otid=item.otid,
        name=item.name,
        sender_id=item.sender_id,
        group_id=item.group_id,
    )


def _approval(item: wire.ApprovalCreate | wire.ToolReturnCreate) -> ApprovalInput:
    if isinstance(item, wire.ToolReturnCreate):
        decisions = [parse_tool_return(entry) for entry in item.tool_returns]
    elif item.approvals:
        decisions = [parse_entry(entry, item.decided_by) for entry in item.approvals]
    else:
        decisions = _legacy_decision(item)
    if not decisions:
        raise InvalidArgument(
            f"{NO_DECISIONS} Send one entry for each call that waits, such as "
            '{"type": "approval", "tool_call_id": "<id>", "approve": true}; '
            "GET /v1/approvals shows what waits."
        )
    return ApprovalInput(
        decisions=tuple(decisions),
        otid=item.otid,
        group_id=item.group_id,
        options=AnswerOptions(partial=item.partial),
    )


def _legacy_decision(item: wire.ApprovalCreate) -> list[Decision]:
    """The old form: one call, named by ``approval_request_id`` (wire-v1 §6.3)."""
    if item.approve is None:
        return []
    if item.approval_request_id is None:
        raise Unprocessable("'approve' needs the 'approval_request_id' that it answers.")
    return [
        Decision(item.approval_request_id, item.approve, item.reason, decided_by=item.decided_by)
    ]
