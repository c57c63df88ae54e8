"""The text of a thread's system message, from all that it shows. Where that is kept is the store's affair."""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from holdfast.core import memory
from holdfast.core.agents import Agent
from holdfast.core.memory import Block, SystemPromptParts
from holdfast.core.messages import DEFAULT_CONVERSATION, conversation_id


def human_time(moment: datetime, timezone: str) -> str:
    """A moment as people in the agent's timezone write it (wire-v1 §1.9)."""
    return moment.astimezone(_zone(timezone)).strftime("%Y-%m-%d %I:%M:%S %p %Z%z")


def is_timezone(name: str) -> bool:
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):  # no such zone, not a relative path, a folder of zones
        return False
    return True


def _zone(name: str) -> tzinfo:
    # UTC must work on machines without a timezone database too.
    return UTC if name == "UTC" else ZoneInfo(name)


def compile_prompt(
    agent: Agent, thread_id: str, blocks: tuple[Block, ...], recall_count: int, stamp: str
) -> str:
    """``stamp`` is the human time of the compilation."""
    return memory.compile_system(
        SystemPromptParts(
            agent_id=agent.id,
            conversation=conversation_id(thread_id, agent.id) or DEFAULT_CONVERSATION,
            system=agent.system,
            compiled_at=stamp,
            recall_count=recall_count,
            blocks=blocks,
            rules=agent.tool_rules,
        )
    )
