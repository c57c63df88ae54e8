"""A thread of messages: the agent's default one, or a conversation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.messages import Message
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.core.paging import Page


class Thread(Struct, frozen=True, kw_only=True):
    """``id == agent_id`` is the agent's default thread; others are conversations."""

    id: str
    organization_id: str
    agent_id: str
    created_at: datetime
    updated_at: datetime
    summary: str | None = None
    description: str | None = None
    # What the conversation wants other than its agent; None follows the agent, also when that changes.
    model: str | None = None
    settings: ModelSettings | None = None
    context_window_limit: int | None = None
    # The caller's own words about the settings, echoed back as they came.
    model_settings: dict[str, Any] | None = None
    hidden: bool | None = None
    archived_at: datetime | None = None
    # When the last request came, not when it was answered.
    last_message_at: datetime | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None

    def choose_model(self, agent_choice: ModelChoice) -> ModelChoice:
        """The model that answers here, given the agent's own (wire-v1 §7.10)."""
        chosen = agent_choice
        if self.model is not None and self.model != agent_choice.handle:
            # Neither the agent's address nor what was told of its model holds for another.
            chosen = replace(
                agent_choice,
                handle=self.model,
                endpoint=None,
                ignored=(),
                model_settings=None,
                llm_config=None,
            )
            if chosen.provider != agent_choice.provider:
                # What the agent asks of its provider may mean nothing to another.
                parallel = agent_choice.settings.parallel_tool_calls
                chosen = replace(chosen, settings=ModelSettings(parallel_tool_calls=parallel))
        if self.settings is not None:
            chosen = replace(chosen, settings=self.settings)
        if self.context_window_limit is not None:
            chosen = replace(chosen, context_window=self.context_window_limit)
        return chosen


class ThreadQuery(Struct, frozen=True, kw_only=True):
    """Which conversations a list shows: never a default thread, nor a hidden one. None means any."""

    page: Page
    agent_id: str | None = None
    summary_search: str | None = None
    archived: bool | None = None


def shareable_messages(context: Sequence[Message], last_id: str | None = None) -> Sequence[Message]:
    """What a fork may show of a context: all that was said, up to ``last_id`` if given, less an end whose
    tool calls have no results yet: those are the business of the thread that made them."""
    said: list[Message] = []
    whole = 0
    waiting: set[str] = set()
    # The first row is the compiled system message, which every thread has of its own.
    for row in context[1:] if last_id != context[0].id else ():
        said.append(row)
        waiting |= {call.id for call in row.tool_calls}
        waiting -= {item.call_id for item in row.tool_returns}
        if not waiting:
            whole = len(said)
        if row.id == last_id:
            break
    return said[:whole]
