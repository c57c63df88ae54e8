"""The text of a thread's system message. ``system_message`` loads its parts and stores it."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from msgspec import Struct

from holdfast.core import tool_rules
from holdfast.core.agents import Agent
from holdfast.core.blocks import Block, render_blocks, visible_blocks
from holdfast.core.messages import conversation_id
from holdfast.core.passages import render_tags
from holdfast.core.threads import DEFAULT_CONVERSATION

CORE_MEMORY_PLACEHOLDER = "{CORE_MEMORY}"
# More would say little and cost tokens in every call.
MAX_SHOWN_TAGS = 100

DEFAULT_SYSTEM = """<base_instructions>
You are an assistant with a memory of your own.

Memory blocks are shown below. They are always in view; edit them with your memory tools when you learn \
something that should last. What was said earlier and is no longer in view can be found with \
conversation_search, if you have that tool.

You may call tools. After each call you get its result and go on. To end your turn and hand the word back \
to the user, answer without calling a tool.
</base_instructions>"""

_COMPILED_AT = re.compile(r"^- System prompt last recompiled: (.+)$", re.MULTILINE)


class PromptContent(Struct, frozen=True, kw_only=True):
    """What the system messages of all threads of an agent show, besides the fields of the agent."""

    blocks: tuple[Block, ...] = ()
    # The messages of the agent without the system messages.
    recall_count: int = 0
    # The passages in the archives of the agent, and their different tags, sorted.
    archival_count: int = 0
    archival_tags: tuple[str, ...] = ()
    # The section about its folders and files; empty if it has no folder.
    directories: str = ""


def compile_prompt(
    agent: Agent,
    thread_id: str,
    content: PromptContent,
    stamp: str,
    isolated: Sequence[Block] = (),
) -> str:
    """The system message of one of the agent's threads (wire-v1 §7.1). ``stamp`` is the time of compilation, ``isolated``
    are the thread's own blocks."""
    sections = [
        render_blocks(visible_blocks(content.blocks, isolated)),
        tool_rules.render(agent.tool_rules),
        content.directories,
        _render_metadata(agent.id, thread_id, content, stamp),
    ]
    memory = "\n\n".join(section for section in sections if section)
    if CORE_MEMORY_PLACEHOLDER in agent.system:
        return agent.system.replace(CORE_MEMORY_PLACEHOLDER, memory)
    return f"{agent.system}\n\n{memory}" if agent.system else memory


def _render_metadata(agent_id: str, thread_id: str, content: PromptContent, stamp: str) -> str:
    lines = [
        "<memory_metadata>",
        f"- AGENT_ID: {agent_id}",
        f"- CONVERSATION_ID: {conversation_id(thread_id, agent_id) or DEFAULT_CONVERSATION}",
        f"- System prompt last recompiled: {stamp}",
        f"- {content.recall_count} previous messages between you and the user are stored in recall memory",
    ]
    if content.archival_count:
        lines.append(
            f"- {content.archival_count} total memories you created are stored in archival memory (use tools to access them)"
        )
    if content.archival_tags:
        tags = render_tags(content.archival_tags, MAX_SHOWN_TAGS)
        lines.append(f"- Available archival memory tags: {tags}")
    return "\n".join([*lines, "</memory_metadata>"])


def parse_compiled_at(text: str) -> str | None:
    """The time of compilation that a system message contains; None if it has none."""
    found = _COMPILED_AT.search(text)
    return found and found.group(1)


def human_time(moment: datetime, timezone: str) -> str:
    """A time in the agent's timezone, formatted for people (wire-v1 §1.9)."""
    return moment.astimezone(load_zone(timezone)).strftime("%Y-%m-%d %I:%M:%S %p %Z%z")


def local_time(moment: datetime, timezone: str) -> str:
    """A time in ISO 8601 with the offset of the agent's timezone."""
    try:
        return moment.astimezone(load_zone(timezone)).isoformat()
    except OverflowError:  # there it is the year 0 or 10000
        return moment.isoformat()


# The longest IANA name has 32. Looking for the file of a name of megabytes takes a second.
_MAX_ZONE_CHARS = 100


def is_timezone(name: str) -> bool:
    if len(name) > _MAX_ZONE_CHARS:
        return False
    try:
        load_zone(name)
    except (KeyError, ValueError, OSError):  # no such zone, not a relative path, a folder of zones
        return False
    return True


def load_zone(name: str) -> tzinfo:
    """The timezone of this name, which ``is_timezone`` has accepted."""
    # UTC must work on machines without a timezone database too.
    return UTC if name == "UTC" else ZoneInfo(name)
