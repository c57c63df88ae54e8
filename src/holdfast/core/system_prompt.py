"""The text of a thread's system message. ``usecases.system_prompt`` loads its parts and stores it."""

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from msgspec import Struct

from holdfast.core import tool_rules
from holdfast.core.agents import Agent
from holdfast.core.blocks import Block, render_blocks
from holdfast.core.messages import conversation_id
from holdfast.core.threads import DEFAULT_CONVERSATION

CORE_MEMORY_PLACEHOLDER = "{CORE_MEMORY}"

DEFAULT_SYSTEM = """<base_instructions>
You are an assistant with a memory of your own.

Memory blocks are shown below. They are always in view; edit them with your memory tools when you learn \
something that should last. What was said earlier and is no longer in view can be found with \
conversation_search, if you have that tool.

You may call tools. After each call you get its result and go on. To end your turn and hand the word back \
to the user, answer without calling a tool.
</base_instructions>"""

_COMPILED_AT = re.compile(r"^- System prompt last recompiled: (.+)$", re.MULTILINE)


class SystemPromptParts(Struct, frozen=True, kw_only=True):
    """The parts of a compiled system message."""

    agent_id: str
    conversation: str
    system: str
    compiled_at: str
    recall_count: int
    blocks: tuple[Block, ...] = ()
    rules: tuple[tool_rules.ToolRule, ...] = ()


def compile_prompt(
    agent: Agent, thread_id: str, blocks: tuple[Block, ...], recall_count: int, stamp: str
) -> str:
    """``stamp`` is the human time of the compilation."""
    return compile_system(
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


def compile_system(prompt: SystemPromptParts) -> str:
    """The system message as the model reads it (wire-v1 §7.1)."""
    sections = [
        render_blocks(prompt.blocks),
        tool_rules.render(prompt.rules),
        _render_metadata(prompt),
    ]
    memory = "\n\n".join(section for section in sections if section)
    if CORE_MEMORY_PLACEHOLDER in prompt.system:
        return prompt.system.replace(CORE_MEMORY_PLACEHOLDER, memory)
    return f"{prompt.system}\n\n{memory}" if prompt.system else memory


def _render_metadata(prompt: SystemPromptParts) -> str:
    return (
        "<memory_metadata>\n"
        f"- AGENT_ID: {prompt.agent_id}\n"
        f"- CONVERSATION_ID: {prompt.conversation}\n"
        f"- System prompt last recompiled: {prompt.compiled_at}\n"
        f"- {prompt.recall_count} previous messages between you and the user are stored in recall memory\n"
        "</memory_metadata>"
    )


def parse_compiled_at(text: str) -> str | None:
    """The time of compilation that a system message contains; None if it has none."""
    found = _COMPILED_AT.search(text)
    return found and found.group(1)


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
