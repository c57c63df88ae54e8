"""Agents between wire and core (wire-v1 §2.2.1, §2.2.2, §3.2)."""

from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core.agents import Agent, Secret
from holdfast.core.blocks import Block
from holdfast.core.messages import Outcome, ToolReturn
from holdfast.core.tool_rules import ToolRule
from holdfast.errors import Unprocessable
from holdfast.http.letta_v1 import from_wire, model_wire
from holdfast.http.letta_v1.blocks_wire import block_state, new_block
from holdfast.http.letta_v1.schemas.agents import (
    AgentCreate,
    AgentEnvironmentVariable,
    AgentFields,
    AgentState,
    AgentUpdate,
    Memory,
    ToolExecutionResult,
    ToolRuleInput,
)
from holdfast.http.letta_v1.schemas.messages import ApprovalRequestMessage
from holdfast.http.letta_v1.schemas.send import SendBody
from holdfast.http.letta_v1.to_wire.messages import api_messages
from holdfast.http.letta_v1.to_wire.tools import tool_state
from holdfast.usecases.agent_forms import AgentChanges, NewAgent
from holdfast.usecases.agent_views import AgentView, PendingApproval, Relation
from holdfast.usecases.messages import MessageInput

_RELATIONS = {
    "agent.blocks": Relation.BLOCKS,
    "agent.pending_approval": Relation.PENDING,
    "agent.secrets": Relation.SECRETS,
    "agent.tags": Relation.TAGS,
    "agent.tools": Relation.TOOLS,
}
# The names of the parameter that ``include`` replaced.
_LEGACY_RELATIONS = {
    "memory": Relation.BLOCKS,
    "blocks": Relation.BLOCKS,
    "tools": Relation.TOOLS,
    "tags": Relation.TAGS,
    "secrets": Relation.SECRETS,
    "tool_exec_environment_variables": Relation.SECRETS,
}
# Fields whose name and form are the same on both sides.
_PLAIN_FIELDS = (
    "name",
    "system",
    "description",
    "metadata",
    "message_buffer_autoclear",
    "enable_sleeptime",
    "timezone",
    "max_files_open",
    "per_file_view_window_char_limit",
    "hidden",
    "project_id",
    "template_id",
    "base_template_id",
)
_LAST_RUN_FIELDS = ("last_stop_reason", "last_run_completion", "last_run_duration_ms")


def included_relations(
    include: Collection[str] | None, include_relationships: Collection[str] | None
) -> frozenset[Relation]:
    """Nothing comes along unless it is named (wire-v1 §1.5)."""
    named = [_RELATIONS.get(name) for name in include or ()]
    named += [_LEGACY_RELATIONS.get(name) for name in include_relationships or ()]
    return frozenset(relation for relation in named if relation)


def new_agent(body: AgentCreate, project_id: str | None) -> NewAgent:
    given = {key: getattr(body, key) for key in _PLAIN_FIELDS if getattr(body, key) is not None}
    given |= _shared_fields(body)
    given.setdefault("project_id", project_id)
    return NewAgent(
        new_blocks=tuple(map(new_block, body.memory_blocks or ())),
        block_ids=tuple(dict.fromkeys(body.block_ids or ())),
        tool_names=tuple(body.tools or ()),
        tool_ids=tuple(dict.fromkeys(body.tool_ids or ())),
        base_tools=body.include_base_tools is not False,
        initial_messages=_initial_messages(body),
        **given,
    )


def agent_changes(body: AgentUpdate) -> AgentChanges:
    given = {
        key: getattr(body, key) for key in (*_PLAIN_FIELDS, *_LAST_RUN_FIELDS)
    } | _shared_fields(body)
    return AgentChanges(
        block_ids=None if body.block_ids is None else tuple(dict.fromkeys(body.block_ids)),
        tool_ids=None if body.tool_ids is None else tuple(dict.fromkeys(body.tool_ids)),
        message_ids=None if body.message_ids is None else tuple(body.message_ids),
        **given,
    )


def _shared_fields(body: AgentFields) -> dict[str, object]:
    """What create and update say in the same words; what was not said is left out."""
    secrets = body.secrets if body.secrets is not None else body.tool_exec_environment_variables
    shared = {
        "model": model_wire.model_wish(body),
        "embedding": _embedding_handle(body),
        "embedding_config": model_wire.dump_sent_fields(body.embedding_config),
        "tool_rules": None if body.tool_rules is None else _tool_rules(body.tool_rules),
        "tags": None if body.tags is None else tuple(body.tags),
        "secrets": secrets,
        "response_format": model_wire.dump_sent_fields(body.response_format),
        "compaction_settings": model_wire.dump_sent_fields(body.compaction_settings),
    }
    return {key: value for key, value in shared.items() if value is not None}


def _embedding_handle(body: AgentFields) -> str | None:
    config = body.embedding_config
    if body.embedding is not None or config is None:
        return body.embedding
    return config.handle or f"{config.embedding_endpoint_type}/{config.embedding_model}"


def _tool_rules(given: Sequence[ToolRuleInput]) -> tuple[ToolRule, ...]:
    for rule in given:
        _check_timeout(rule)
    plain = [rule.model_dump(exclude_none=True) for rule in given]
    try:
        return msgspec.convert(plain, tuple[ToolRule, ...])
    except msgspec.ValidationError as error:
        raise Unprocessable(f"tool_rules: {error}") from None


def _check_timeout(rule: ToolRuleInput) -> None:
    """A timeout that would be ignored is a mistake that somebody would find out too late."""
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
    inputs = from_wire.send_inputs(SendBody(messages=list(body.initial_message_sequence)))
    return tuple(item for item in inputs if isinstance(item, MessageInput))


def agent_state(view: AgentView) -> AgentState:
    agent = view.agent
    blocks = [block_state(block) for block in view.blocks]
    secrets = [_environment_variable(agent, secret) for secret in view.secrets]
    return AgentState(
        id=agent.id,
        name=agent.name,
        agent_type=agent.agent_type,
        system=agent.system,
        description=agent.description,
        metadata=agent.metadata,
        model=agent.model.handle,
        model_settings=model_wire.model_settings(agent.model),
        llm_config=model_wire.llm_config(agent.model),
        embedding=agent.embedding,
        embedding_config=model_wire.embedding_config(agent.embedding, agent.embedding_config),
        memory=Memory(blocks=blocks, agent_type=agent.agent_type),
        blocks=blocks,
        tools=[tool_state(tool) for tool in view.tools],
        tags=list(view.tags),
        tool_rules=list(agent.tool_rules),
        message_ids=list(view.message_ids),
        secrets=secrets,
        tool_exec_environment_variables=secrets,
        pending_approval=_approval_request(view.pending) if view.pending else None,
        compaction_settings=agent.compaction_settings,
        response_format=agent.response_format,
        message_buffer_autoclear=agent.message_buffer_autoclear,
        enable_sleeptime=agent.enable_sleeptime,
        timezone=agent.timezone,
        max_files_open=agent.max_files_open,
        per_file_view_window_char_limit=agent.per_file_view_window_char_limit,
        hidden=agent.hidden,
        last_stop_reason=agent.last_stop_reason,
        last_run_completion=agent.last_run_completion,
        last_run_duration_ms=agent.last_run_duration_ms,
        project_id=agent.project_id,
        template_id=agent.template_id,
        base_template_id=agent.base_template_id,
        created_by_id=agent.created_by_id,
        last_updated_by_id=agent.last_updated_by_id,
        created_at=agent.created_at,
        updated_at=agent.updated_at,
        model_warnings=list(agent.model.ignored),
    )


def memory_state(blocks: Sequence[Block], agent_type: str) -> Memory:
    return Memory(blocks=[block_state(block) for block in blocks], agent_type=agent_type)


def tool_execution_result(result: ToolReturn) -> ToolExecutionResult:
    """What a tool that was run by hand gave; ``func_return`` is null if it failed."""
    ok = result.outcome is Outcome.FINISHED
    stderr = list(result.stderr) if ok else [*result.stderr, result.text]
    return ToolExecutionResult(
        status="success" if ok else "error",
        func_return=result.text if ok else None,
        stdout=list(result.stdout),
        stderr=stderr,
    )


def _environment_variable(agent: Agent, secret: Secret) -> AgentEnvironmentVariable:
    return AgentEnvironmentVariable(
        id=secret.id,
        agent_id=agent.id,
        key=secret.key,
        value=secret.value,
        description=secret.description,
    )


def _approval_request(pending: PendingApproval) -> ApprovalRequestMessage | None:
    for item in api_messages(pending.row):
        if isinstance(item, ApprovalRequestMessage):
            return replace(item, expires_at=pending.deadline or UNSET)
    return None
