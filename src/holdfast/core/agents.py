"""Agents, and who acts. Memory blocks are in ``blocks``, messages in ``messages``."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.core.models import ModelChoice
from holdfast.core.paging import Page
from holdfast.core.tool_rules import ToolRule

AGENT_TYPE = "letta_v1_agent"


class Actor(Struct, frozen=True):
    """The user on whose behalf a use case runs."""

    user_id: str
    organization_id: str


class Secret(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An environment variable of the agent's tools."""

    id: str
    key: str
    value: str
    description: str | None = None


class AgentProperties(Struct, frozen=True, kw_only=True):
    """Fields that a caller sets and that are stored and shown without a change. None means that it is not set.

    A new agent, an update and the stored agent share them. To add one, add it here and to the schemas of the wire.
    """

    description: str | None = None
    metadata: dict[str, Any] | None = None
    embedding: str | None = None
    embedding_config: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    enable_sleeptime: bool | None = None
    max_files_open: int | None = None
    per_file_view_window_char_limit: int | None = None
    hidden: bool | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None


class Agent(AgentProperties, frozen=True, kw_only=True):
    id: str
    organization_id: str
    name: str
    system: str
    model: ModelChoice
    created_at: datetime
    updated_at: datetime
    agent_type: str = AGENT_TYPE
    tool_rules: tuple[ToolRule, ...] = ()
    timezone: str = "UTC"
    compaction_settings: dict[str, Any] | None = None
    message_buffer_autoclear: bool = False
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
    last_stop_reason: str | None = None
    last_run_completion: datetime | None = None
    last_run_duration_ms: int | None = None


class AgentQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of agents. Conditions combine with AND; None means any."""

    page: Page
    name: str | None = None
    query_text: str | None = None
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    last_stop_reason: str | None = None
    created_by_id: str | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    identity_id: str | None = None
    identifier_keys: tuple[str, ...] = ()
    block_id: str | None = None
    archive_id: str | None = None
    show_hidden: bool = False
