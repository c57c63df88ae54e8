"""What the client's objects say, as plain data: their types are unions that no test wants to take apart."""

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from letta_client import BaseModel, Letta
from letta_client.types import AgentState

WAIT_SECONDS = 60.0

T = TypeVar("T")


def as_dict(item: BaseModel) -> dict[str, Any]:
    """The object as it came over the wire."""
    return item.to_dict(warnings=False)


def as_dicts(items: Iterable[BaseModel]) -> list[dict[str, Any]]:
    return [as_dict(item) for item in items]


def kinds(items: Iterable[BaseModel]) -> list[str]:
    return [str(as_dict(item)["message_type"]) for item in items]


def history(client: Letta, agent_id: str, **query: Any) -> list[dict[str, Any]]:
    """What was said, without the system message."""
    rows = as_dicts(client.agents.messages.list(agent_id, **query).items)
    return [row for row in rows if row["message_type"] != "system_message"]


def message_texts(client: Letta, agent_id: str) -> list[str]:
    """The texts of user and assistant, in order."""
    return [row["content"] for row in history(client, agent_id) if "content" in row]


def run_tool(client: Letta, agent: AgentState, name: str, **arguments: Any) -> tuple[str, str]:
    """Run a tool of the agent without its model: the status, and what it returned or why it failed."""
    result = client.agents.tools.run(name, agent_id=agent.id, args=arguments)
    texts = [str(result.func_return)] if result.status == "success" else result.stderr or []
    return result.status, "\n".join(texts)


def eventually(look: Callable[[], T], accepts: Callable[[T], bool]) -> T:
    """Ask again until the answer is acceptable; each question takes its time, so nothing is slept."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not accepts(seen := look()):
        assert time.monotonic() < deadline, f"still {seen!r} after {WAIT_SECONDS} s"
    return seen
