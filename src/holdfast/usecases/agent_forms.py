"""The input for creating and updating an agent, and the checks that need no look into the store."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast.core.agents import AgentProperties
from holdfast.core.system_prompt import is_timezone
from holdfast.core.tool_rules import ToolRule
from holdfast.errors import InvalidArgument, Unprocessable
from holdfast.usecases.blocks import NewBlock
from holdfast.usecases.messages import MessageInput
from holdfast.usecases.model_choice import NO_MODEL_REQUESTED, RequestedModel

# Letters and digits of any script, space, hyphen, underscore, apostrophe (wire-v1 §2.2.1).
NAME_PATTERN = r"[\w '\-]+"
# Names are shown to people in lists.
MAX_NAME_CHARS = 1_000

# All values of an agent together.
MAX_SECRET_CHARS = 1_000_000

# Open files, and the characters that are shown of each (memory-v1 §5.7). The second is what a PostgreSQL integer holds.
MAX_FILES_OPEN = 1_000
MAX_VIEW_CHARS = 2**31 - 1

# An error message quotes at most this much of a refused value, which may be megabytes long.
_MAX_QUOTED_CHARS = 100


class NewAgent(AgentProperties, frozen=True, kw_only=True):
    name: str | None = None
    model: RequestedModel = NO_MODEL_REQUESTED
    system: str | None = None
    new_blocks: tuple[NewBlock, ...] = ()
    block_ids: tuple[str, ...] = ()
    tool_names: tuple[str, ...] = ()
    tool_ids: tuple[str, ...] = ()
    folder_ids: tuple[str, ...] = ()
    identity_ids: tuple[str, ...] = ()
    # Whether it gets a folder of its own, which is empty.
    default_folder: bool = False
    base_tools: bool = True
    multi_agent_tools: bool = False
    # Whether it gets rules for the tools of V1 (wire-v1 §2.2.1).
    base_tool_rules: bool = False
    tool_rules: tuple[ToolRule, ...] = ()
    tags: tuple[str, ...] = ()
    secrets: Mapping[str, str] = {}
    initial_messages: tuple[MessageInput, ...] = ()
    timezone: str = "UTC"
    compaction_settings: dict[str, Any] | None = None
    message_buffer_autoclear: bool = False
    # Instead of the one of the embedding model's configuration.
    embedding_chunk_size: int | None = None


class AgentChanges(AgentProperties, frozen=True, kw_only=True):
    """The fields that an update sets. None leaves a field unchanged; a list replaces the whole relation."""

    name: str | None = None
    model: RequestedModel = NO_MODEL_REQUESTED
    system: str | None = None
    block_ids: tuple[str, ...] | None = None
    tool_ids: tuple[str, ...] | None = None
    folder_ids: tuple[str, ...] | None = None
    identity_ids: tuple[str, ...] | None = None
    tool_rules: tuple[ToolRule, ...] | None = None
    tags: tuple[str, ...] | None = None
    secrets: Mapping[str, str] | None = None
    message_ids: tuple[str, ...] | None = None
    timezone: str | None = None
    compaction_settings: dict[str, Any] | None = None
    message_buffer_autoclear: bool | None = None
    last_stop_reason: str | None = None
    last_run_completion: datetime | None = None
    last_run_duration_ms: int | None = None


def check_name(name: str) -> None:
    if len(name) > MAX_NAME_CHARS or re.fullmatch(NAME_PATTERN, name) is None:
        raise Unprocessable(
            f"The name {name[:_MAX_QUOTED_CHARS]!r} cannot be used: a name has letters, digits, spaces, hyphens, underscores and "
            f"apostrophes only, and at most {MAX_NAME_CHARS} of them."
        )


def check_timezone(name: str) -> None:
    if not is_timezone(name):
        raise Unprocessable(
            f"Unknown timezone {name[:_MAX_QUOTED_CHARS]!r}: an IANA name such as 'Europe/Rome' is needed."
        )


def check_file_limits(form: AgentProperties) -> None:
    limits = {"max_files_open": MAX_FILES_OPEN, "per_file_view_window_char_limit": MAX_VIEW_CHARS}
    for field, limit in limits.items():
        given = getattr(form, field)
        if given is not None and given > limit:
            raise InvalidArgument(f"{field} cannot exceed {limit}. Got: {given}")


def check_secrets(values: Mapping[str, str]) -> None:
    """Refuse keys that cannot be the name of an environment variable, and more text than an environment should have."""
    if sum(map(len, values.values())) > MAX_SECRET_CHARS:
        raise Unprocessable(
            f"The secrets of an agent have at most {MAX_SECRET_CHARS} characters together."
        )
    for key in values:
        if not key or "=" in key or "\0" in key:
            raise Unprocessable(f"{key[:_MAX_QUOTED_CHARS]!r} cannot be the name of a variable.")
