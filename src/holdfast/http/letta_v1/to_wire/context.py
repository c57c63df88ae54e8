"""How full an agent's context window is, as V1 shows it (wire-v1 §3.13)."""

from typing import Any

from holdfast.core.messages import Decision, Image, Message, Part, Text, ToolReturn, conversation_id
from holdfast.http.letta_v1.schemas.context import ContextWindowOverview, InternalMessage
from holdfast.usecases.agent_context import Window


def context_overview(window: Window) -> ContextWindowOverview:
    return ContextWindowOverview(
        context_window_size_max=window.size,
        context_window_size_current=window.tokens,
        num_messages=window.context_count,
        num_recall_memory=window.recall_count,
        num_archival_memory=window.archival_count,
        num_tokens_system=window.base.tokens,
        system_prompt=window.base.text,
        num_tokens_core_memory=window.memory.tokens,
        core_memory=window.memory.text,
        num_tokens_tool_usage_rules=window.rules.tokens,
        tool_usage_rules=window.rules.text or None,
        num_tokens_external_memory_summary=window.metadata.tokens,
        external_memory_summary=window.metadata.text,
        num_tokens_summary_memory=window.summary.tokens,
        summary_memory=window.summary.text or None,
        num_tokens_functions_definitions=window.schema_tokens,
        functions_definitions=[
            {"type": "function", "function": schema} for schema in window.schemas
        ],
        num_tokens_messages=window.message_tokens,
        messages=[internal_message(row) for row in window.messages],
    )


def internal_message(row: Message) -> InternalMessage:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in row.tool_calls
    ]
    return InternalMessage(
        id=row.id,
        role=row.role,
        content=[_part(part) for part in row.content],
        agent_id=row.agent_id,
        tool_calls=calls or None,
        tool_call_id=row.tool_returns[0].call_id if row.tool_returns else None,
        tool_returns=[_tool_return(item) for item in row.tool_returns],
        approvals=[_decision(item) for item in row.decisions] or None,
        run_id=row.run_id,
        step_id=row.step_id,
        conversation_id=conversation_id(row.thread_id, row.agent_id),
        otid=row.otid,
        name=row.name,
        sender_id=row.sender_id,
        group_id=row.group_id,
        model=row.model,
        created_at=row.created_at,
    )


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image():
            # Without the bytes: they would make the answer huge, and the history has them.
            return {"type": "image", "source": {"type": "base64", "media_type": part.media_type}}
        case _ if part.redacted:
            return {"type": "redacted_reasoning", "data": part.signature}
        case _:
            return {
                "type": "reasoning",
                "reasoning": part.text,
                "is_native": True,
                "signature": part.signature,
            }


def _tool_return(item: ToolReturn) -> dict[str, Any]:
    return {
        "status": "success" if item.ok else "error",
        "tool_call_id": item.call_id,
        "func_response": item.text,
        "stdout": list(item.stdout),
        "stderr": list(item.stderr),
    }


def _decision(item: Decision) -> dict[str, Any]:
    if item.returned is not None:
        return {"type": "tool"} | _tool_return(item.returned)
    return {
        "type": "approval",
        "tool_call_id": item.call_id,
        "approve": item.approve,
        "reason": item.reason,
    }
