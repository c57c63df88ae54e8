"""Threads of messages: an agent's default thread, or a conversation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.messages import Message
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.core.paging import Page

# The name of the default thread where others have a conversation id.
DEFAULT_CONVERSATION = "default"


class Thread(Struct, frozen=True, kw_only=True):
    """``id == agent_id`` is the agent's default thread; others are conversations."""

    id: str
    organization_id: str
    agent_id: str
    created_at: datetime
    updated_at: datetime
    summary: str | None = None
    description: str | None = None
    # Overrides of the agent's model and settings; None follows the agent, also when the agent changes.
    model: str | None = None
    settings: ModelSettings | None = None
    context_window_limit: int | None = None
    # The request's JSON of the settings, returned as it came.
    model_settings: dict[str, Any] | None = None
    hidden: bool | None = None
    archived_at: datetime | None = None
    # The time of the last request, not of its answer.
    last_message_at: datetime | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None

    def choose_model(self, agent_choice: ModelChoice) -> ModelChoice:
        """The model of this thread, given the agent's choice (wire-v1 §7.10)."""
        chosen = agent_choice
        if self.model is not None and self.model != agent_choice.handle:
            # The agent's endpoint and warnings belong to the agent's model.
            chosen = replace(
                agent_choice,
                handle=self.model,
                endpoint=None,
                ignored=(),
                model_settings=None,
                llm_config=None,
            )
            if chosen.provider != agent_choice.provider:
                # The agent's settings may be invalid for another provider.
                parallel = agent_choice.settings.parallel_tool_calls
                chosen = replace(chosen, settings=ModelSettings(parallel_tool_calls=parallel))
        if self.settings is not None:
            chosen = replace(chosen, settings=self.settings)
        if self.context_window_limit is not None:
            chosen = replace(chosen, context_window=self.context_window_limit)
        return chosen


class ThreadQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of conversations, which never has default or hidden threads. None means any."""

    page: Page
    agent_id: str | None = None
    summary_search: str | None = None
    archived: bool | None = None


def shareable_messages(context: Sequence[Message], last_id: str | None = None) -> Sequence[Message]:
    """The messages of a context that a fork may share: all after the system message, up to ``last_id`` if given,
    without an end whose tool calls have no results yet, since those belong to the original thread."""
    messages: list[Message] = []
    complete_count = 0
    open_call_ids: set[str] = set()
    # The first message is the system message, which each thread has for itself.
    for row in context[1:] if last_id != context[0].id else ():
        messages.append(row)
        open_call_ids |= {call.id for call in row.tool_calls}
        open_call_ids -= {item.call_id for item in row.tool_returns}
        if not open_call_ids:
            complete_count = len(messages)
        if row.id == last_id:
            break
    return messages[:complete_count]
