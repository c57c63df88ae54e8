"""The toolbox of a test: every tool returns the same text, waits or fails, as the test wants it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.messages import Outcome, Text, ToolReturn
from holdfast.core.tools import Tool
from holdfast.core.turn import PlannedCall
from holdfast.ports.toolbox import BuiltinSpec, ToolContext


class ScriptedToolbox:
    """``gate`` holds back every result while it is not set; ``faults`` are raised instead of a result."""

    def __init__(self, result: str = "done", builtin: Sequence[BuiltinSpec] = ()) -> None:
        self._result = result
        self._builtin = builtin
        self.started: list[str] = []
        self.gate: asyncio.Event | None = None
        self.running = asyncio.Event()
        self.faults: dict[str, BaseException] = {}

    def builtin_tools(self) -> Sequence[BuiltinSpec]:
        return self._builtin

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        self.started.append(planned.call.id)
        self.running.set()
        if self.gate is not None:
            await self.gate.wait()
        if tool.name in self.faults:
            raise self.faults[tool.name]
        return _finished_return(planned.call.id, tool.name, self._result)

    async def run_source(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> ToolReturn:
        """Runs nothing: the result repeats what it was given."""
        given = f"{function} {dict(arguments)} {dict(environment)} {[*requirements]}"
        return _finished_return("call_1", function, given)


class HangingToolbox(ScriptedToolbox):
    """Tools with ``hang`` in their name never return; it notes which were killed."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = asyncio.Event()
        self.killed: list[str] = []

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        if "hang" not in tool.name:
            return await super().run(tool, planned, context)
        self.started.append(planned.call.id)
        self.hanging.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.killed.append(planned.call.id)
            raise
        raise AssertionError


def _finished_return(call_id: str, name: str, text: str) -> ToolReturn:
    return ToolReturn(call_id, name, Outcome.FINISHED, (Text(text),))
