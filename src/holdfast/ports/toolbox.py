"""The toolbox: executing tool calls, built-in and custom."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from holdfast.core.ids import DEFAULT_USER_ID
from holdfast.core.messages import ToolReturn
from holdfast.core.tools import Tool, ToolKind
from holdfast.core.turn import PlannedCall
from holdfast.ports.mcp import OnProgress


class ToolContext(Struct, frozen=True, kw_only=True):
    """The agent and run for which a tool is executed, and the environment variables that it gets."""

    agent_id: str
    organization_id: str
    thread_id: str
    run_id: str | None = None
    step_id: str | None = None
    environment: Mapping[str, str] = {}
    # On whose behalf the run was sent: logins at MCP servers belong to a user.
    user_id: str = DEFAULT_USER_ID
    # Called each time the tool says how far it is. None: nobody listens.
    on_progress: OnProgress | None = None
    # Called with the value that a custom tool has returned, before it becomes text for a model.
    on_value: Callable[[Any], None] | None = None
    # Called with the name of each tool that the tool has the toolbox run.
    on_tool_used: Callable[[str], None] | None = None


class BuiltinSpec(Struct, frozen=True, kw_only=True):
    """A tool that is part of Holdfast."""

    name: str
    description: str
    parameters: dict[str, Any]
    kind: ToolKind
    parallel: bool = False


class Toolbox(Protocol):
    def builtin_tools(self) -> Sequence[BuiltinSpec]:
        """Return the tools that need no source. Every organisation has a stored tool for each."""
        ...

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        """Execute the call and return its result, truncated to the tool's limit. A tool that fails gives a result with
        the outcome ``failed``, never an exception; one that could not be started has the outcome ``not_started``, and
        one that the store failed while it ran has the outcome ``unknown``. Cancelling kills the tool and all processes that it started."""
        ...

    async def run_source(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> ToolReturn:
        """Execute a source that is not stored as a tool."""
        ...
