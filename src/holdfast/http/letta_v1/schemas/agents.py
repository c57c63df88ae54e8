"""Agents on the wire (wire-v1 §2.2, §3.2). What model settings look like is in ``schemas.model_settings``."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from holdfast.core.runs import StopReason
from holdfast.core.tool_rules import ToolRule
from holdfast.http.letta_v1.schemas.agent_files import FileBlock
from holdfast.http.letta_v1.schemas.blocks import BlockCreate, BlockResponse
from holdfast.http.letta_v1.schemas.folders import Folder
from holdfast.http.letta_v1.schemas.identities import Identity
from holdfast.http.letta_v1.schemas.limits import (
    MAX_BLOCKS,
    MAX_MESSAGE_IDS,
    MAX_MESSAGES,
    MAX_RULE_CHILDREN,
    MAX_SECRETS,
    MAX_TOOL_RULES,
    MAX_TOOLS,
    JsonObject,
    Names,
    Tags,
)
from holdfast.http.letta_v1.schemas.messages import ApprovalRequestMessage
from holdfast.http.letta_v1.schemas.model_settings import (
    CompactionInput,
    Count,
    EmbeddingConfigInput,
    LargeCount,
    LargePositive,
    LlmConfigInput,
    ModelSettingsInput,
    Positive,
    ResponseFormatInput,
)
from holdfast.http.letta_v1.schemas.models import EmbeddingConfig, LlmConfig
from holdfast.http.letta_v1.schemas.names import Handle, ScopeId, SecretName
from holdfast.http.letta_v1.schemas.send import MessageCreate, TimeoutOutcome, TimeoutSeconds
from holdfast.http.letta_v1.schemas.tools import Tool

AgentType = Literal[
    "memgpt_agent",
    "memgpt_v2_agent",
    "letta_v1_agent",
    "react_agent",
    "workflow_agent",
    "split_thread_agent",
    "sleeptime_agent",
    "voice_convo_agent",
    "voice_sleeptime_agent",
]
Include = Literal[
    "agent.blocks",
    "agent.identities",
    "agent.managed_group",
    "agent.pending_approval",
    "agent.secrets",
    "agent.sources",
    "agent.tags",
    "agent.tools",
]

ToolNames = Annotated[list[str], Field(max_length=MAX_TOOLS)]
BlockIds = Annotated[list[str], Field(max_length=MAX_BLOCKS)]
RuleChildren = Annotated[list[str], Field(max_length=MAX_RULE_CHILDREN)]
# Only for OpenAPI: pydantic's own ``deprecated`` would warn whenever we read the field.
_DEPRECATED = Field(json_schema_extra={"deprecated": True})


class ChildArgumentsInput(BaseModel):
    name: str
    args: JsonObject | None = None


class ToolRuleInput(BaseModel):
    """One rule; which fields it needs depends on its type (wire-v1 §3.12)."""

    model_config = ConfigDict(extra="ignore")

    type: Literal[
        "run_first",
        "exit_loop",
        "continue_loop",
        "conditional",
        "constrain_child_tools",
        "max_count_per_step",
        "parent_last_tool",
        "required_before_exit",
        "requires_approval",
    ]
    tool_name: str
    args: JsonObject | None = None
    children: RuleChildren | None = None
    child_arg_nodes: (
        Annotated[list[ChildArgumentsInput], Field(max_length=MAX_RULE_CHILDREN)] | None
    ) = None
    child_output_mapping: (
        Annotated[dict[str, str], Field(min_length=1, max_length=MAX_RULE_CHILDREN)] | None
    ) = None
    default_child: str | None = None
    require_output_mapping: bool | None = None
    max_count_limit: Positive | None = None
    prompt_template: str | None = None
    approval_timeout_seconds: TimeoutSeconds | None = None
    approval_on_timeout: TimeoutOutcome | None = None


class AgentFields(BaseModel):
    """The fields that create and update share. Unknown fields are ignored (wire-v1 §1.7)."""

    model_config = ConfigDict(extra="ignore")

    name: str | None = Field(None, description="Letters, digits, space, hyphen, underscore, '.")
    description: str | None = None
    metadata: JsonObject | None = None
    system: str | None = Field(None, description="The base prompt; may contain {CORE_MEMORY}.")
    model: str | None = Field(None, description="A handle: provider/model-name.")
    model_settings: ModelSettingsInput | None = None
    context_window_limit: Positive | None = None
    embedding: Handle | None = None
    tool_ids: ToolNames | None = None
    block_ids: BlockIds | None = None
    tool_rules: Annotated[list[ToolRuleInput], Field(max_length=MAX_TOOL_RULES)] | None = None
    tags: Tags | None = None
    secrets: Annotated[dict[SecretName, str], Field(max_length=MAX_SECRETS)] | None = Field(
        None, description="Variables that the agent's tools see in their environment."
    )
    timezone: str | None = Field(None, description="An IANA name, such as Europe/Rome.")
    compaction_settings: CompactionInput | None = None
    message_buffer_autoclear: bool | None = None
    enable_sleeptime: bool | None = None
    max_files_open: LargeCount | None = Field(None, description="0: no file is ever opened.")
    per_file_view_window_char_limit: LargePositive | None = None
    hidden: bool | None = None
    project_id: ScopeId | None = None
    template_id: ScopeId | None = None
    base_template_id: ScopeId | None = None
    identity_ids: Names | None = None
    folder_ids: Names | None = None
    source_ids: Annotated[Names | None, _DEPRECATED] = None
    # Old names that still have their effect (wire-v1 §9.4).
    llm_config: Annotated[LlmConfigInput | None, _DEPRECATED] = None
    embedding_config: Annotated[EmbeddingConfigInput | None, _DEPRECATED] = None
    parallel_tool_calls: Annotated[bool | None, _DEPRECATED] = None
    response_format: Annotated[ResponseFormatInput | None, _DEPRECATED] = None
    max_tokens: Annotated[Positive | None, _DEPRECATED] = None
    reasoning: Annotated[bool | None, _DEPRECATED] = None
    tool_exec_environment_variables: Annotated[
        Annotated[dict[str, str], Field(max_length=MAX_SECRETS)] | None, _DEPRECATED
    ] = None


class AgentCreate(AgentFields):
    # V1 has these too. They have no effect here, and are no misspellings of other fields.
    ignored_fields: ClassVar = frozenset({"project", "template"})

    agent_type: AgentType | None = None
    memory_blocks: Annotated[list[BlockCreate], Field(max_length=MAX_BLOCKS)] | None = None
    tools: Annotated[ToolNames | None, Field(description="Tools by name.")] = None
    include_base_tools: bool | None = True
    include_base_tool_rules: bool | None = None
    include_multi_agent_tools: bool | None = False
    initial_message_sequence: (
        Annotated[list[MessageCreate], Field(max_length=MAX_MESSAGES)] | None
    ) = None
    include_default_source: Annotated[bool | None, _DEPRECATED] = None
    embedding_chunk_size: Annotated[Positive | None, _DEPRECATED] = None
    enable_reasoner: Annotated[bool | None, _DEPRECATED] = None
    max_reasoning_tokens: Annotated[Count | None, _DEPRECATED] = None


class AgentUpdate(AgentFields):
    """Null leaves a field unchanged, but ``max_tokens: null`` removes the limit."""

    message_ids: Annotated[list[str], Field(max_length=MAX_MESSAGE_IDS)] | None = None
    last_stop_reason: StopReason | None = None
    last_run_completion: datetime | None = None
    last_run_duration_ms: Count | None = None


class ResetMessages(BaseModel):
    model_config = ConfigDict(extra="ignore")

    add_default_initial_messages: bool = False


class HoldTool(BaseModel):
    # Unknown fields are refused (wire-v1 §1.7).
    model_config = ConfigDict(extra="forbid")

    requires_approval: bool


class RunAttachedTool(BaseModel):
    model_config = ConfigDict(extra="ignore")

    args: JsonObject = Field(default_factory=dict)


class AgentEnvironmentVariable(Struct, frozen=True, kw_only=True):
    id: str
    agent_id: str
    key: str
    value: str
    description: str | None = None
    value_enc: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


class Memory(Struct, frozen=True, kw_only=True):
    blocks: list[BlockResponse]
    agent_type: str
    file_blocks: list[FileBlock] = []
    git_enabled: bool = False
    prompt_template: str = ""


class AgentState(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    agent_type: str
    system: str
    description: str | None
    metadata: dict[str, Any] | None
    model: str
    model_settings: dict[str, Any]
    llm_config: LlmConfig
    embedding: str | None
    embedding_config: EmbeddingConfig | None
    memory: Memory
    blocks: list[BlockResponse]
    tools: list[Tool]
    tags: list[str]
    tool_rules: list[ToolRule]
    message_ids: list[str]
    secrets: list[AgentEnvironmentVariable]
    tool_exec_environment_variables: list[AgentEnvironmentVariable]
    pending_approval: ApprovalRequestMessage | None
    compaction_settings: dict[str, Any] | None
    response_format: dict[str, Any] | None
    message_buffer_autoclear: bool
    enable_sleeptime: bool | None
    timezone: str
    max_files_open: int | None
    per_file_view_window_char_limit: int | None
    hidden: bool | None
    last_stop_reason: str | None
    last_run_completion: datetime | None
    last_run_duration_ms: int | None
    project_id: str | None
    template_id: str | None
    base_template_id: str | None
    created_by_id: str | None
    last_updated_by_id: str | None
    created_at: datetime
    updated_at: datetime
    # Not in V1: a sentence for each setting of the model that has no effect, and for an embedding model that is not
    # configured.
    model_warnings: list[str]
    sources: list[Folder] = []
    identity_ids: list[str] = []
    identities: list[Identity] = []
    # Not supported, or only of use in the V1 cloud: always empty.
    multi_agent_group: dict[str, Any] | None = None
    managed_group: dict[str, Any] | None = None
    deployment_id: str | None = None
    entity_id: str | None = None


class AgentDeleted(Struct, frozen=True):
    message: str


class ToolExecutionResult(Struct, frozen=True, kw_only=True):
    status: Literal["success", "error"]
    func_return: Any
    stdout: list[str] | None
    stderr: list[str] | None
    sandbox_config_fingerprint: str | None = None
    agent_state: None = None
