"""Agents to create and to change (wire-v1 §2.2.1, §2.2.2)."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from holdfast.core.agents import AgentProperties
from holdfast.core.tool_rules import ToolRule
from holdfast.errors import Unprocessable
from holdfast.http.letta_v1.from_wire.blocks import new_block
from holdfast.http.letta_v1.from_wire.model_settings import dump_sent_fields, requested_model
from holdfast.http.letta_v1.from_wire.send import send_inputs
from holdfast.http.letta_v1.schemas.agents import (
    AgentCreate,
    AgentFields,
    AgentUpdate,
    ToolRuleInput,
)
from holdfast.http.letta_v1.schemas.blocks import BlockCreate
from holdfast.http.letta_v1.schemas.limits import MAX_BLOCK_TAGS
from holdfast.http.letta_v1.schemas.send import SendBody
from holdfast.usecases.agent_forms import AgentChanges, NewAgent
from holdfast.usecases.agent_views import Relation
from holdfast.usecases.blocks import NewBlock
from holdfast.usecases.messages import MessageInput

_RELATIONS = {
    "agent.blocks": Relation.BLOCKS,
    "agent.identities": Relation.IDENTITIES,
    "agent.pending_approval": Relation.PENDING,
    "agent.secrets": Relation.SECRETS,
    "agent.sources": Relation.FOLDERS,
    "agent.tags": Relation.TAGS,
    "agent.tools": Relation.TOOLS,
}


# For ``include_relationships``, the parameter that ``include`` replaced.
_LEGACY_RELATIONS = {
    "memory": Relation.BLOCKS,
    "blocks": Relation.BLOCKS,
    "tools": Relation.TOOLS,
    "tags": Relation.TAGS,
    "secrets": Relation.SECRETS,
    "sources": Relation.FOLDERS,
    "identities": Relation.IDENTITIES,
    "tool_exec_environment_variables": Relation.SECRETS,
}


# Fields that a body and the core have under the same name. ``_converted_fields`` says which of them differ in form.
_SAME_NAME = (
    "name",
    "system",
    "timezone",
    "message_buffer_autoclear",
    *AgentProperties.__struct_fields__,
)
_LAST_RUN_FIELDS = ("last_stop_reason", "last_run_completion", "last_run_duration_ms")


def included_relations(
    include: Collection[str] | None, include_relationships: Collection[str] | None
) -> frozenset[Relation]:
    """The relations to show. None is shown unless it is named (wire-v1 §1.5)."""
    named = [_RELATIONS.get(name) for name in include or ()]
    named += [_LEGACY_RELATIONS.get(name) for name in include_relationships or ()]
    return frozenset(relation for relation in named if relation)


def new_agent(body: AgentCreate, project_id: str | None) -> NewAgent:
    """``project_id`` is used if the body names no project."""
    return NewAgent(
        new_blocks=_new_blocks(body.memory_blocks or ()),
        block_ids=tuple(dict.fromkeys(body.block_ids or ())),
        tool_names=tuple(body.tools or ()),
        tool_ids=tuple(dict.fromkeys(body.tool_ids or ())),
        folder_ids=_folder_ids(body) or (),
        identity_ids=tuple(dict.fromkeys(body.identity_ids or ())),
        default_folder=bool(body.include_default_source),
        base_tools=body.include_base_tools is not False,
        multi_agent_tools=bool(body.include_multi_agent_tools),
        base_tool_rules=bool(body.include_base_tool_rules),
        initial_messages=_initial_messages(body),
        embedding_chunk_size=body.embedding_chunk_size,
        **{"project_id": project_id} | _given_fields(body),
    )


def _new_blocks(given: Sequence[BlockCreate]) -> tuple[NewBlock, ...]:
    if sum(len(block.tags or ()) for block in given) > MAX_BLOCK_TAGS:
        raise Unprocessable(f"memory_blocks have at most {MAX_BLOCK_TAGS} tags together.")
    return tuple(map(new_block, given))


def agent_changes(body: AgentUpdate) -> AgentChanges:
    return AgentChanges(
        block_ids=_unique(body.block_ids),
        tool_ids=_unique(body.tool_ids),
        folder_ids=_folder_ids(body),
        identity_ids=_unique(body.identity_ids),
        message_ids=None if body.message_ids is None else tuple(body.message_ids),
        **{name: getattr(body, name) for name in _LAST_RUN_FIELDS},
        **_given_fields(body),
    )


def _folder_ids(body: AgentFields) -> tuple[str, ...] | None:
    return _unique(body.source_ids if body.folder_ids is None else body.folder_ids)


def _unique(ids: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if ids is None else tuple(dict.fromkeys(ids))


def _given_fields(body: AgentFields) -> dict[str, Any]:
    """The fields that create and update share, without those that the caller did not give."""
    fields = {name: getattr(body, name) for name in _SAME_NAME} | _converted_fields(body)
    return {name: value for name, value in fields.items() if value is not None}


def _converted_fields(body: AgentFields) -> dict[str, Any]:
    secrets = body.secrets if body.secrets is not None else body.tool_exec_environment_variables
    return {
        "model": requested_model(body),
        "embedding_config": dump_sent_fields(body.embedding_config),
        "tool_rules": None if body.tool_rules is None else _tool_rules(body.tool_rules),
        "tags": None if body.tags is None else tuple(body.tags),
        "secrets": secrets,
        "response_format": dump_sent_fields(body.response_format),
        "compaction_settings": dump_sent_fields(body.compaction_settings),
    }


def _tool_rules(given: Sequence[ToolRuleInput]) -> tuple[ToolRule, ...]:
    for rule in given:
        _check_timeout(rule)
    plain = [rule.model_dump(exclude_none=True) for rule in given]
    try:
        return msgspec.convert(plain, tuple[ToolRule, ...])
    except msgspec.ValidationError as error:
        raise Unprocessable(f"tool_rules: {error}") from None


def _check_timeout(rule: ToolRuleInput) -> None:
    """Refuse a timeout that would have no effect: the caller would notice too late."""
    seconds, outcome = rule.approval_timeout_seconds, rule.approval_on_timeout
    if rule.type != "requires_approval" and (seconds is not None or outcome is not None):
        raise Unprocessable(
            f"tool_rules: approval_timeout_seconds and approval_on_timeout are for rules of type "
            f"requires_approval, not {rule.type}."
        )
    if outcome is not None and seconds is None:
        raise Unprocessable("tool_rules: approval_on_timeout needs approval_timeout_seconds.")


def _initial_messages(body: AgentCreate) -> tuple[MessageInput, ...]:
    if not body.initial_message_sequence:
        return ()
    inputs = send_inputs(SendBody(messages=list(body.initial_message_sequence)))
    return tuple(item for item in inputs if isinstance(item, MessageInput))
