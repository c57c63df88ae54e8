"""Carrying out a tool call, wherever the tool lives."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from holdfast.core.messages import ToolReturn
from holdfast.core.tools import Tool, ToolKind
from holdfast.core.turn import PlannedCall


class ToolContext(Struct, frozen=True, kw_only=True):
    """On whose behalf a tool runs and what it may see."""

    agent_id: str
    organization_id: str
    thread_id: str
    run_id: str | None = None
    step_id: str | None = None
    environment: Mapping[str, str] = {}


class BuiltinSpec(Struct, frozen=True, kw_only=True):
    """A tool that Holdfast brings along."""

    name: str
    description: str
    parameters: dict[str, Any]
    kind: ToolKind
    parallel: bool = False


class Toolbox(Protocol):
    def builtin_tools(self) -> Sequence[BuiltinSpec]:
        """The tools that need no source: every organisation has a row for each."""
        ...

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        """The result of the call, cut to the tool's limit. Whatever the tool does wrong is a result with
        the outcome ``failed``, never an exception. Cancelling kills the tool and all it started."""
        ...

    async def run_source(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> ToolReturn:
        """Run a source that is not stored as a tool."""
        ...
