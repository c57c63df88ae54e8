"""Where a tool lives decides who carries it out: Holdfast itself, or the sandbox."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.adapters.toolbox.agent_state import asked_for
from holdfast.adapters.toolbox.builtin import BUILTIN
from holdfast.adapters.toolbox.specs import Builtin, Hands
from holdfast.core.messages import Outcome, Text, ToolReturn
from holdfast.core.requirements import pip_requirements
from holdfast.core.tools import DEFAULT_RETURN_CHARS, Tool, ToolKind, truncated
from holdfast.core.turn import PlannedCall
from holdfast.errors import CallerError, InvalidArgument, NotFound, ToolError
from holdfast.ports.house import House
from holdfast.ports.sandbox import Sandbox, SandboxCall, SandboxResult
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

# Search results are made to measure and never cut (wire-v1 §7.4).
NEVER_CUT = frozenset({"conversation_search", "archival_memory_search"})
MAX_ERROR_CHARS = 1_000


class ToolRouter:
    # Set by ``move_in``.
    _hands: Hands

    def __init__(self, *, sandbox: Sandbox, timeout_seconds: float) -> None:
        self._sandbox = sandbox
        self._timeout_seconds = timeout_seconds

    def move_in(self, house: House) -> None:
        """Get to know the house that this is a part of: built-in tools do what its callers do."""
        self._hands = Hands(
            house=house, sandbox=self._sandbox, timeout_seconds=self._timeout_seconds
        )

    def builtin(self) -> Sequence[BuiltinSpec]:
        return [item.spec for item in BUILTIN.values()]

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        builtin = BUILTIN.get(tool.name) if tool.kind is not ToolKind.CUSTOM else None
        if builtin is not None:
            result = await self._run_builtin(builtin, planned, context)
        elif tool.source_code is None:
            result = _failed(planned, "This tool has no source that could be run.")
        else:
            result = await self._run_custom(tool, tool.source_code, planned, context)
        return result if tool.name in NEVER_CUT else _cut(result, tool.return_char_limit)

    async def run_source(
        self,
        source: str,
        function: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        requirements: Sequence[str] = (),
    ) -> ToolReturn:
        call = SandboxCall(
            source=source,
            function=function,
            arguments=arguments,
            timeout_seconds=self._timeout_seconds,
            env=environment,
            requirements=tuple(requirements),
        )
        result = _returned("", function, await self._sandbox.run(call))
        return _cut(result, DEFAULT_RETURN_CHARS)

    async def _run_builtin(
        self, builtin: Builtin, planned: PlannedCall, context: ToolContext
    ) -> ToolReturn:
        required = builtin.spec.parameters["required"]
        missing = [name for name in required if name not in planned.arguments]
        if missing:
            return _failed(planned, f"Missing arguments: {', '.join(missing)}")
        try:
            text = await builtin.work(self._hands, context, planned.arguments)
        except (ToolError, CallerError, ValueError, TypeError) as error:
            return _failed(planned, str(error))
        return _finished(planned.call.id, planned.call.name, text)

    async def _run_custom(
        self, tool: Tool, source: str, planned: PlannedCall, context: ToolContext
    ) -> ToolReturn:
        try:
            requirements = pip_requirements(tool.pip_requirements)
            agent_state = await asked_for(self._hands.house, source, context)
        except (InvalidArgument, NotFound) as error:
            return _failed(planned, str(error))
        call = SandboxCall(
            source=source,
            function=tool.name,
            arguments=planned.arguments,
            timeout_seconds=self._timeout_seconds,
            env=context.environment,
            agent_state=agent_state,
            requirements=requirements,
        )
        return _returned(planned.call.id, tool.name, await self._sandbox.run(call))


def _returned(call_id: str, name: str, result: SandboxResult) -> ToolReturn:
    finished = result.status == "finished"
    error = f"Error executing function {name}: {result.error}"[:MAX_ERROR_CHARS]
    return ToolReturn(
        call_id=call_id,
        name=name,
        outcome=Outcome.FINISHED if finished else Outcome.FAILED,
        content=(Text(_as_text(result.value) if finished else error),),
        stdout=result.stdout,
        stderr=result.stderr,
    )


def _as_text(value: object) -> str:
    """Text as it is, nothing as V1 wrote it, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "None" if value is None else json.dumps(value, ensure_ascii=False)


def _finished(call_id: str, name: str, text: str) -> ToolReturn:
    return ToolReturn(call_id=call_id, name=name, outcome=Outcome.FINISHED, content=(Text(text),))


def _failed(planned: PlannedCall, text: str) -> ToolReturn:
    return ToolReturn(
        call_id=planned.call.id,
        name=planned.call.name,
        outcome=Outcome.FAILED,
        content=(Text(text),),
    )


def _cut(result: ToolReturn, limit: int) -> ToolReturn:
    content = tuple(
        Text(truncated(part.text, limit)) if isinstance(part, Text) else part
        for part in result.content
    )
    return replace(result, content=content)
