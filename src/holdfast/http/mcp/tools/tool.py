"""What a tool is: a name, a description, the type of its arguments and the function that does it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from holdfast.http.mcp.caller import Answer, Caller

# Most clients give up after a minute.
DEFAULT_WAIT_SECONDS: Final = 50.0
MAX_WAIT_SECONDS: Final = 600.0

_A = TypeVar("_A", bound=Struct)

WaitSeconds = Annotated[
    float,
    Meta(
        ge=0,
        le=MAX_WAIT_SECONDS,
        description="How long to wait for the end of the run. Your own time limit must be longer: for most clients it "
        "is a minute.",
    ),
]


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool. Their fields are the schema that clients see."""


class Hints(Struct, frozen=True, kw_only=True):
    """What clients may show before a call, or ask about."""

    reads_only: bool = False
    destroys: bool = False
    may_repeat: bool = False
    # Whether the effects are unknown here: the agent's own tools may do anything.
    is_open: bool = False


READS: Final = Hints(reads_only=True, may_repeat=True)


class Tool(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    schema: dict[str, Any]
    hints: Hints
    call: Callable[[Caller, Mapping[str, Any]], Awaitable[Answer]]


def make_tool(
    work: Callable[[Caller, _A], Awaitable[Answer]],
    arguments: type[_A],
    *,
    title: str,
    description: str,
    hints: Hints,
) -> Tool:
    """The tool with the name of the function."""

    async def call(caller: Caller, given: Mapping[str, Any]) -> Answer:
        # Some models send null for what they do not want to give.
        present = {name: value for name, value in given.items() if value is not None}
        try:
            converted = msgspec.convert(present, arguments, strict=False)
        except msgspec.ValidationError as error:
            return Answer(text=f"These arguments do not fit {tool.name}: {error}.", is_error=True)
        return await work(caller, converted)

    _, components = msgspec.json.schema_components([arguments])
    schema = components[arguments.__name__]
    # The name of the type means nothing to clients.
    del schema["title"]
    tool = Tool(
        name=work.__name__,
        title=title,
        description=description,
        schema=schema,
        hints=hints,
        call=call,
    )
    return tool
