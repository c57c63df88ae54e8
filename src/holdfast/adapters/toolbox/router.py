"""Runs tool calls: built-in tools in this process, custom tools in the sandbox."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.adapters.toolbox.agent_state import load_agent_state
from holdfast.adapters.toolbox.builtin import BUILTIN
from holdfast.adapters.toolbox.specs import Builtin, ToolServices
from holdfast.core.messages import Outcome, Text, ToolReturn
from holdfast.core.requirements import parse_pip_requirements
from holdfast.core.tools import DEFAULT_RETURN_CHARS, Tool, ToolKind, truncate_output
from holdfast.core.turn import PlannedCall
from holdfast.errors import BackendError, CallerError, InvalidArgument, NotFound, ToolError
from holdfast.ports.sandbox import Sandbox, SandboxCall, SandboxResult
from holdfast.ports.services import Services
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

# Search results fit the limit already and are never truncated (wire-v1 §7.4).
UNTRUNCATED_TOOLS = frozenset({"conversation_search", "archival_memory_search"})
MAX_ERROR_CHARS = 1_000
# What Python says of an import that fails, as the sandbox reports it.
_MISSING_MODULE = "ModuleNotFoundError: "
_PACKAGE_HINT = ". If this is a package, name it in the tool's pip_requirements."


class ToolRouter:
    # Set by ``bind``.
    _tool_services: ToolServices

    def __init__(self, *, sandbox: Sandbox, timeout_seconds: float) -> None:
        self._sandbox = sandbox
        self._timeout_seconds = timeout_seconds

    def bind(self, services: Services) -> None:
        """Set the services, of which this router is one; built-in tools call use cases with them."""
        self._tool_services = ToolServices(
            services=services, sandbox=self._sandbox, timeout_seconds=self._timeout_seconds
        )

    def builtin_tools(self) -> Sequence[BuiltinSpec]:
        return [item.spec for item in BUILTIN.values()]

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        builtin = BUILTIN.get(tool.name) if tool.kind is not ToolKind.CUSTOM else None
        if builtin is not None:
            result = await self._run_builtin(builtin, planned, context)
        elif tool.source_code is None:
            result = _failed_return(planned, "This tool has no source that could be run.")
        else:
            result = await self._run_custom(tool, tool.source_code, planned, context)
        return (
            result if tool.name in UNTRUNCATED_TOOLS else _truncate(result, tool.return_char_limit)
        )

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
        result = _to_tool_return("", function, await self._sandbox.run(call))
        return _truncate(result, DEFAULT_RETURN_CHARS)

    async def _run_builtin(
        self, builtin: Builtin, planned: PlannedCall, context: ToolContext
    ) -> ToolReturn:
        required = builtin.spec.parameters["required"]
        missing = [name for name in required if name not in planned.arguments]
        if missing:
            return _failed_return(planned, f"Missing arguments: {', '.join(missing)}")
        try:
            text = await builtin.run(self._tool_services, context, planned.arguments)
        except (ToolError, CallerError, ValueError, TypeError) as error:
            return _failed_return(planned, str(error))
        except BackendError as error:
            text = f"{error} Whether this tool had an effect is unknown."
            return _build_return(planned, text, Outcome.UNKNOWN)
        return _finished_return(planned.call.id, planned.call.name, text)

    async def _run_custom(
        self, tool: Tool, source: str, planned: PlannedCall, context: ToolContext
    ) -> ToolReturn:
        try:
            requirements = parse_pip_requirements(tool.pip_requirements)
            agent_state = await load_agent_state(self._tool_services.services, source, context)
            call = SandboxCall(
                source=source,
                function=tool.function or tool.name,
                arguments=planned.arguments,
                timeout_seconds=self._timeout_seconds,
                env=context.environment,
                agent_state=agent_state,
                requirements=requirements,
            )
            result = await self._sandbox.run(call)
        except (InvalidArgument, NotFound) as error:
            return _failed_return(planned, str(error))
        except BackendError as error:
            # The store or the sandbox failed before there was a process.
            text = f"This tool was not started: {error}"
            return _build_return(planned, text, Outcome.NOT_STARTED)
        return _to_tool_return(planned.call.id, tool.name, result)


def _to_tool_return(call_id: str, name: str, result: SandboxResult) -> ToolReturn:
    finished = result.status == "finished"
    return ToolReturn(
        call_id=call_id,
        name=name,
        outcome=Outcome.FINISHED if finished else Outcome.FAILED,
        content=(Text(_as_text(result.value) if finished else _error_text(name, result)),),
        stdout=result.stdout,
        stderr=result.stderr,
    )


def _error_text(name: str, result: SandboxResult) -> str:
    error = str(result.error)
    hint = _PACKAGE_HINT if error.startswith(_MISSING_MODULE) else ""
    return f"Error executing function {name}: {error}{hint}"[:MAX_ERROR_CHARS]


def _as_text(value: object) -> str:
    """Text unchanged, None as V1 wrote it, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "None" if value is None else json.dumps(value, ensure_ascii=False)


def _finished_return(call_id: str, name: str, text: str) -> ToolReturn:
    return ToolReturn(call_id=call_id, name=name, outcome=Outcome.FINISHED, content=(Text(text),))


def _failed_return(planned: PlannedCall, text: str) -> ToolReturn:
    return _build_return(planned, text, Outcome.FAILED)


def _build_return(planned: PlannedCall, text: str, outcome: Outcome) -> ToolReturn:
    return ToolReturn(
        call_id=planned.call.id, name=planned.call.name, outcome=outcome, content=(Text(text),)
    )


def _truncate(result: ToolReturn, limit: int) -> ToolReturn:
    content = tuple(
        Text(truncate_output(part.text, limit)) if isinstance(part, Text) else part
        for part in result.content
    )
    return replace(result, content=content)
