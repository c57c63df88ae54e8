"""Agents as V1 shows them (wire-v1 §3.2)."""

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core.agents import Agent, Secret
from holdfast.core.messages import Outcome, ToolReturn
from holdfast.http.letta_v1.schemas.agents import (
    AgentEnvironmentVariable,
    AgentState,
    Memory,
    ToolExecutionResult,
)
from holdfast.http.letta_v1.schemas.messages import ApprovalRequestMessage
from holdfast.http.letta_v1.to_wire.agent_files import file_block
from holdfast.http.letta_v1.to_wire.blocks import block_state
from holdfast.http.letta_v1.to_wire.folders import folder_state
from holdfast.http.letta_v1.to_wire.identities import identity_state
from holdfast.http.letta_v1.to_wire.messages import api_messages
from holdfast.http.letta_v1.to_wire.model_settings import (
    embedding_config,
    llm_config,
    model_settings,
)
from holdfast.http.letta_v1.to_wire.tools import tool_state
from holdfast.usecases.agent_views import AgentView, PendingApproval

# Fields that V1 shows as they are stored.
_SHOWN_AS_STORED = tuple(
    name
    for name in AgentState.__struct_fields__
    if name in Agent.__struct_fields__ and name not in {"model", "embedding_config", "tool_rules"}
)


def agent_state(view: AgentView) -> AgentState:
    agent = view.agent
    blocks = [block_state(block) for block in view.blocks]
    secrets = [_environment_variable(agent, secret) for secret in view.secrets]
    return AgentState(
        **{name: getattr(agent, name) for name in _SHOWN_AS_STORED},
        model=agent.model.handle,
        model_settings=model_settings(agent.model),
        llm_config=llm_config(agent.model),
        embedding_config=embedding_config(agent.embedding, agent.embedding_config),
        memory=Memory(
            blocks=blocks,
            agent_type=agent.agent_type,
            file_blocks=[file_block(item, agent) for item in view.files],
        ),
        sources=[folder_state(folder) for folder in view.folders],
        identity_ids=[item.identity.id for item in view.identities],
        identities=[identity_state(item) for item in view.identities],
        blocks=blocks,
        tools=[tool_state(tool) for tool in view.tools],
        tags=list(view.tags),
        tool_rules=list(agent.tool_rules),
        message_ids=list(view.message_ids),
        secrets=secrets,
        tool_exec_environment_variables=secrets,
        pending_approval=_approval_request(view.pending) if view.pending else None,
        model_warnings=[*agent.model.ignored, *view.embedding_warnings],
    )


def tool_execution_result(result: ToolReturn) -> ToolExecutionResult:
    """The result of a tool that a caller ran directly. ``func_return`` is null if it failed."""
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
