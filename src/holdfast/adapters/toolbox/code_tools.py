"""Running code that the model wrote, in the sandbox (wire-v1 §7.3)."""

import json

from holdfast.adapters.toolbox.specs import (
    Arguments,
    Builtin,
    ToolServices,
    parameters,
    string_schema,
)
from holdfast.core.tool_source.script import ENTRY_FUNCTION, as_module
from holdfast.core.tools import ToolKind
from holdfast.errors import ToolError, ToolSourceInvalid
from holdfast.ports.sandbox import SandboxCall
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

LANGUAGE = "python"


async def _run_code(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    language = str(arguments.get("language") or LANGUAGE)
    if language != LANGUAGE:
        raise ToolError(f"Error: only {LANGUAGE} can be run here, not {language!r}.")
    try:
        source = as_module(str(arguments["code"]))
    except ToolSourceInvalid as error:
        raise ToolError(f"Error: {error}") from None
    call = SandboxCall(
        source=source,
        function=ENTRY_FUNCTION,
        arguments={},
        timeout_seconds=tool_services.timeout_seconds,
        env=context.environment,
    )
    result = await tool_services.sandbox.run(call)
    output = {
        "results": [] if result.value is None else [result.value],
        "logs": {"stdout": list(result.stdout), "stderr": list(result.stderr)},
    }
    if result.status != "finished":
        raise ToolError(json.dumps({**output, "error": result.error}, ensure_ascii=False))
    return json.dumps(output, ensure_ascii=False)


CODE_TOOLS = (
    Builtin(
        BuiltinSpec(
            name="run_code",
            description="Run a Python program in a sandbox. Returns what it printed and the value of its last "
            "line, if that is an expression. Nothing is kept from one program to the next.",
            kind=ToolKind.BUILTIN,
            parallel=True,
            parameters=parameters(
                ["code", "language"],
                code=string_schema("The program."),
                language={
                    "type": "string",
                    "enum": [LANGUAGE],
                    "description": "The language that it is written in.",
                },
            ),
        ),
        _run_code,
    ),
)
