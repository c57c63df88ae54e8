"""Runs tool calls: built-in tools in this process, custom tools in the sandbox, tools of MCP servers there."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.adapters.toolbox.agent_state import load_agent_state
from holdfast.adapters.toolbox.builtin import BUILTIN
from holdfast.adapters.toolbox.specs import Builtin, ToolServices
from holdfast.adapters.web.pages import WebPages
from holdfast.adapters.web.search import SearchOptions, WebSearch
from holdfast.core.messages import Outcome, Text, ToolReturn, VisiblePart
from holdfast.core.requirements import parse_pip_requirements
from holdfast.core.tools import DEFAULT_RETURN_CHARS, Tool, ToolKind, truncate_output
from holdfast.core.turn import PlannedCall
from holdfast.errors import BackendError, CallerError, InvalidArgument, NotFound, ToolError
from holdfast.ports.sandbox import Sandbox, SandboxCall, SandboxResult
from holdfast.ports.services import Services
from holdfast.ports.toolbox import BuiltinSpec, ToolContext
from holdfast.usecases.mcp_calls import McpCalls

# Search results fit the limit already and are never truncated (wire-v1 §7.4).
UNTRUNCATED_TOOLS = frozenset({"conversation_search", "archival_memory_search"})
MAX_ERROR_CHARS = 1_000
_NO_ENGINE = SearchOptions()
# What Python says of an import that fails, as the sandbox reports it.
_MISSING_MODULE = "ModuleNotFoundError: "
_PACKAGE_HINT = ". If this is a package, name it in the tool's pip_requirements."


class ToolRouter:
    # Set by ``bind``.
    _tool_services: ToolServices
    _mcp_calls: McpCalls

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        timeout_seconds: float,
        search_options: SearchOptions = _NO_ENGINE,
    ) -> None:
        self._sandbox = sandbox
        self._timeout_seconds = timeout_seconds
        self._search = WebSearch(search_options)

    def bind(self, services: Services) -> None:
        """Set the services, of which this router is one; built-in tools call use cases with them."""
        self._tool_services = ToolServices(
            services=services,
            sandbox=self._sandbox,
            timeout_seconds=self._timeout_seconds,
            search=self._search,
            pages=WebPages(self._search),
        )
        self._mcp_calls = McpCalls(services)

    def builtin_tools(self) -> Sequence[BuiltinSpec]:
        return [item.spec for item in BUILTIN.values()]

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        is_builtin = tool.kind not in (ToolKind.CUSTOM, ToolKind.MCP)
        builtin = BUILTIN.get(tool.name) if is_builtin else None
        if tool.kind is ToolKind.MCP:
            result = await self._mcp_calls.call(tool, planned, context)
        elif builtin is not None:
            result = await self._run_builtin(builtin, planned, context)
        elif tool.source_code is None:
            result = _failed_return(planned, "This tool has no source that could be run.")
        else:
            result = await self._run_custom(tool, tool.source_code, planned, context)
        result = _clean(result)
        return (
            result
            if builtin is not None and tool.name in UNTRUNCATED_TOOLS
            else _truncate(result, tool.return_char_limit)
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
        result = _clean(_to_tool_return("", function, await self._sandbox.run(call)))
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
        if result.status == "finished" and context.on_value is not None:
            context.on_value(result.value)
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


def _clean(result: ToolReturn) -> ToolReturn:
    """Without lone surrogates, which UTF-8 does not have: pages, servers and arguments may bring some."""
    parts = [
        Text(part.text.encode(errors="replace").decode()) if isinstance(part, Text) else part
        for part in result.content
    ]
    return replace(result, content=tuple(parts))


def _truncate(result: ToolReturn, limit: int) -> ToolReturn:
    return replace(result, content=tuple(_truncate_parts(result.content, limit)))


def _truncate_parts(parts: Sequence[VisiblePart], limit: int) -> Iterator[VisiblePart]:
    """The limit is for all texts together."""
    left = limit
    for part in parts:
        if not isinstance(part, Text):
            yield part
        elif left >= 0:
            yield Text(truncate_output(part.text, left))
            left = -1 if len(part.text) > left else left - len(part.text)
