"""Running code that calls the agent's tools (wire-v1 §7.3).

The code runs in the sandbox; the tools run where they always do, when the code asks for them over its socket.
"""

import asyncio
import builtins
import json
import keyword
import logging
import re
import socket
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from msgspec.structs import replace

from holdfast.adapters.sandbox.server_functions import ToolFailed
from holdfast.adapters.toolbox.specs import (
    Arguments,
    Builtin,
    ToolServices,
    parameters,
    string_schema,
)
from holdfast.adapters.toolbox.tool_channel import answer_calls
from holdfast.core.json_depth import is_too_deep
from holdfast.core.messages import SEND_MESSAGE, Image, ToolCall, ToolReturn
from holdfast.core.runs import Run
from holdfast.core.tool_rules import needs_approval
from holdfast.core.tool_source.script import ENTRY_FUNCTION, as_module
from holdfast.core.tools import Tool, ToolKind
from holdfast.core.turn import PlannedCall
from holdfast.engine.lease_check import check_lease, is_lost
from holdfast.errors import BackendError, ToolError, ToolSourceInvalid
from holdfast.ports.sandbox import SandboxCall, SandboxResult, ServerFunction
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

NAME: Final = "run_code_with_tools"
MAX_DESCRIPTION_CHARS: Final = 2_000

_FAULT: Final = "The server has failed. Whether the call had an effect is unknown."
_NOT_IN_A_NAME: Final = re.compile(r"\W")
_SPECIAL_NAME: Final = re.compile(r"__\w*[^\W_]__")
_BUILTIN_NAMES: Final = frozenset(dir(builtins))

log = logging.getLogger(__name__)


async def _run_code_with_tools(
    tool_services: ToolServices, context: ToolContext, arguments: Arguments
) -> str:
    try:
        source = as_module(str(arguments["code"]), as_repr=False)
    except ToolSourceInvalid as error:
        raise ToolError(f"Error: {error}") from None
    tools = await tool_services.services.store.read(lambda tx: _load_tools(tx, context))
    program = _Program(tool_services, context, tools)
    near, far = socket.socketpair()
    near.setblocking(False)
    with closing(near), closing(far):
        call = SandboxCall(
            source=source,
            function=ENTRY_FUNCTION,
            arguments={},
            timeout_seconds=tool_services.timeout_seconds,
            env=context.environment,
            descriptors=(far.fileno(),),
            functions=build_functions(tools.callable),
        )
        result = await program.run(call, near)
    text = _render(result, program.called)
    if result.status != "finished":
        raise ToolError(text)
    return text


class _Tools:
    """What the program may call: the tools of its agent that need nobody's approval."""

    def __init__(self, attached: Sequence[Tool], held: frozenset[str], run: Run | None) -> None:
        self.run = run
        self._held = held
        self._attached = {tool.name: tool for tool in attached}

    @property
    def callable(self) -> Sequence[Tool]:
        """All attached tools: those that are refused say why when they are called."""
        return [tool for tool in self._attached.values() if tool.name != NAME]

    def find(self, name: str) -> Tool:
        """ToolError, with a sentence for the model, if the program may not call it."""
        tool = self._attached.get(name)
        if tool is None:
            raise ToolError(f"Tool not found: {name}")
        if name == NAME:
            raise ToolError(f"{NAME} cannot be called by code.")
        if name == SEND_MESSAGE:
            raise ToolError(f"{name} cannot be called by code: the message would reach nobody.")
        if name in self._held:
            raise ToolError(
                f"{name} requires approval, so it cannot be called by code. Call it directly."
            )
        return tool


def _load_tools(tx: Transaction, context: ToolContext) -> _Tools:
    agent = tx.agents.get(context.organization_id, context.agent_id)
    attached = tx.agents.tools([agent.id]).get(agent.id, ())
    held = {tool.name for tool in attached if needs_approval(agent.tool_rules, tool.name)}
    run = None
    if context.run_id is not None:
        run = tx.runs.get(context.organization_id, context.run_id)
        # A tool of the client takes the place of one with the same name; only the client can run it.
        held |= {tool.name for tool in run.request.client_tools}
    return _Tools(attached, frozenset(held), run)


class _Program:
    """One program while it runs: executes the tools that it calls."""

    def __init__(self, tool_services: ToolServices, context: ToolContext, tools: _Tools) -> None:
        self._services = tool_services.services
        self._sandbox = tool_services.sandbox
        self._context = context
        self._tools = tools
        self._one_by_one = asyncio.Lock()
        self.called: Counter[str] = Counter()

    async def run(self, call: SandboxCall, near: socket.socket) -> SandboxResult:
        """Run the program, and what it calls. No tool that it has called runs any more when this returns."""
        failure: BackendError | None = None
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(answer_calls(near, self._call))
            try:
                result = await self._sandbox.run(call)
            except BackendError as error:
                failure = error
            answering.cancel()
        if failure is not None:
            raise failure
        return result

    async def _call(self, name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        try:
            tool = self._tools.find(name)
        except ToolError as error:
            return {"error": str(error)}
        self.called[name] += 1
        if self._context.on_tool_used is not None:
            self._context.on_tool_used(name)
        if tool.enable_parallel_execution:
            return await self._try_to_execute(tool, arguments)
        async with self._one_by_one:
            return await self._try_to_execute(tool, arguments)

    async def _try_to_execute(self, tool: Tool, arguments: dict[str, Any]) -> Mapping[str, Any]:
        try:
            return await self._execute(tool, arguments)
        except Exception as error:
            if is_lost(error):
                raise
            # The program has perhaps called other tools, and goes on: a fault here must not fail its run.
            log.exception("tool.failed", extra={"tool": tool.name})
            return {"error": f"Error executing function {tool.name}: {_FAULT}"}

    async def _execute(self, tool: Tool, arguments: dict[str, Any]) -> Mapping[str, Any]:
        values: list[Any] = []
        call = ToolCall(
            id=f"call_{self._services.ids.new_otid()[:8]}",
            name=tool.name,
            arguments=json.dumps(arguments, ensure_ascii=False),
        )
        # Nothing is awaited between this and the start of the tool: the process may be paused at any await.
        if self._tools.run is not None:
            check_lease(self._services, self._tools.run)
        returned = await self._services.toolbox.run(
            tool,
            PlannedCall(call, arguments),
            replace(self._context, on_value=values.append, on_tool_used=None),
        )
        log.debug("tool.returned", extra={"tool": tool.name, "outcome": returned.outcome})
        if not returned.ok:
            return {"error": returned.text}
        return {"value": _choose_value(returned, values, tool.return_char_limit)}


def _choose_value(returned: ToolReturn, values: Sequence[Any], limit: int) -> Any:
    """What a custom tool has returned, unless it is too large: then, and for other tools, the text that a model would get."""
    if values and _fits(values[-1], limit):
        return values[-1]
    if any(isinstance(part, Image) for part in returned.content):
        return f"{returned.text}\n[image]".strip()
    return returned.text


def _fits(value: Any, limit: int) -> bool:
    return not is_too_deep(value) and len(json.dumps(value, ensure_ascii=False)) <= limit


def build_functions(tools: Sequence[Tool]) -> tuple[ServerFunction, ...]:
    """A function for each tool. In its name ``_`` is in the place of what Python does not allow, and at the end of what
    Python or another function has."""
    taken = {tool.name for tool in tools}
    functions = []
    for tool in tools:
        name = _python_name(tool.name, taken)
        taken.add(name)
        functions.append(
            ServerFunction(
                name=name,
                tool=tool.name,
                parameters=_parameter_names(tool),
                description=tool.description[:MAX_DESCRIPTION_CHARS],
            )
        )
    return tuple(functions)


def _python_name(name: str, taken: Collection[str]) -> str:
    fitting = _NOT_IN_A_NAME.sub("_", name)
    if fitting[:1].isdigit():
        fitting = f"_{fitting}"
    while _is_reserved(fitting) or (fitting in taken and fitting != name):
        fitting += "_"
    return fitting


def _is_reserved(name: str) -> bool:
    """Whether a program, or the process that runs it, needs this name for something else."""
    is_python = keyword.iskeyword(name) or name in _BUILTIN_NAMES
    return (
        is_python
        or _SPECIAL_NAME.fullmatch(name) is not None
        or name in (ToolFailed.__name__, ENTRY_FUNCTION)
    )


def _parameter_names(tool: Tool) -> tuple[str, ...]:
    """Those that must be given first: as in Python, they come before the others."""
    schema = tool.json_schema.get("parameters") or {}
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    return tuple(sorted(properties, key=lambda name: name not in required))


def _render(result: SandboxResult, called: Counter[str]) -> str:
    is_finished = result.status == "finished"
    output = {
        "status": "success" if is_finished else "error",
        "func_return": result.value if is_finished else result.error,
        "stdout": list(result.stdout),
        "stderr": list(result.stderr),
    }
    if called:
        output["tool_calls"] = dict(called)
    return json.dumps(output, ensure_ascii=False)


CODE_WITH_TOOLS = Builtin(
    BuiltinSpec(
        name=NAME,
        description="Run a Python program in a sandbox that can call your other tools: each is a function of the same name, "
        "which takes the tool's arguments and returns its result (a tool look-up is look_up, and one whose name Python itself "
        "uses gets a _ at the end: print_). A call that fails raises ToolFailed. Use it to call tools many times, or to "
        "work on their results without reading all of them. Tools that require approval cannot be called. Returns what "
        "the program printed and the value of its last line, if that is an expression.",
        kind=ToolKind.BUILTIN,
        parameters=parameters(["code"], code=string_schema("The program, in Python.")),
    ),
    _run_code_with_tools,
)
