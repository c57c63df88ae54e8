"""The tool's own process: reads one call, runs the tool's function, writes the result. Or it becomes another program.

Runs in a fork of `fork_server.py`; imports only the standard library, and modules that do the same.
"""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import enum
import errno
import inspect
import json
import linecache
import math
import os
import signal
import site
import socket
import struct
import sys
import time
import traceback
import types
import typing
import uuid

from holdfast.adapters.sandbox import server_functions

MAX_ERROR_CHARS = 1000
STDIN_DESCRIPTOR = 4
"""Where a program finds the descriptor that becomes its standard input; it is closed there when the program begins."""
WRITE_HINT = " (The sandbox lets tools write only to their own folder, TMPDIR, and to what HOLDFAST_SANDBOX_WRITABLE names.)"

Json = typing.Any

# A tool may have closed or replaced its streams.
IGNORE_STREAM_ERRORS = contextlib.suppress(AttributeError, OSError, TypeError, ValueError)


class Environment(typing.NamedTuple):
    """The virtual environment of the tool. Its packages come before those of the server (``extra_paths``)."""

    prefix: str
    packages: list[str]
    extra_paths: list[str]


def answer_call(channel: socket.socket, folder: str, environment: Environment | None) -> None:
    """Read one call from the channel, run it in the folder, write its result. Exits the process."""
    with channel.makefile("rwb") as stream:
        header = stream.read(8)
        if len(header) < 8:  # the caller gave up before it sent the call
            return
        call = json.loads(stream.read(*struct.unpack("!q", header)))
        try:
            set_up_process(call, folder)
            if "program" in call:
                body = encode({"error": become_program(call["program"])})
            else:
                body = run_tool(call, environment)
        except SystemExit as exit_:
            code = repr(exit_.code)[:MAX_ERROR_CHARS]
            body = encode(
                {"error": f"The tool called sys.exit({code}) instead of returning a value."}
            )
        except BaseException as error:  # noqa: BLE001 - whatever the tool raises is its result
            body = encode({"error": describe_error(error)})
            with IGNORE_STREAM_ERRORS:
                traceback.print_exc(limit=-10)
        with IGNORE_STREAM_ERRORS:
            sys.stdout.flush()
        stream.write(struct.pack("!q", len(body)) + body)
    os._exit(0)


def run_tool(call: dict[str, Json], environment: Environment | None) -> bytes:
    if environment is not None:
        activate_environment(environment)
    body = encode({"value": to_jsonable(invoke(call))})
    if len(body) > call["max_result_bytes"]:
        error = f"The tool's result is larger than {call['max_result_bytes']} bytes."
        return encode({"error": error})
    return body


def become_program(words: list[str]) -> str:
    """Run the program in place of this one; it keeps all limits, and the channel closes without an answer. Returns why not,
    if that is not possible."""
    os.dup2(STDIN_DESCRIPTOR, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(words[0], words, os.environ)  # noqa: S606 - what this process is for
    except OSError as error:
        return os.strerror(error.errno or errno.ENOEXEC)


def describe_error(error: BaseException) -> str:
    try:
        hint = WRITE_HINT if is_refused_write(error) else ""
        return f"{type(error).__name__}: {error}"[: MAX_ERROR_CHARS - len(hint)] + hint
    except Exception:  # noqa: BLE001 - the tool's own exception class may fail to render itself
        return type(error).__name__


def is_refused_write(error: BaseException) -> bool:
    """Whether the tool may have tried to write where the sandbox does not let it."""
    if not isinstance(error, OSError) or error.filename is None:
        return False
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def set_up_process(call: dict[str, Json], folder: str) -> None:
    """Set the environment variables, the time zone and the working folder of the tool."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a TextIOWrapper
    os.environ.clear()
    os.environ.update({"HOME": folder, "TMPDIR": folder, **call["env"]})
    time.tzset()
    os.chdir(folder)


def activate_environment(environment: Environment) -> None:
    """Do what an interpreter of the environment does at its start; code of packages runs here (``.pth`` files)."""
    sys.prefix = sys.exec_prefix = environment.prefix
    sys.executable = f"{environment.prefix}/bin/python"
    for folder in environment.packages:
        site.addsitedir(folder)
    site.setquit()
    sys.path += [path for path in environment.extra_paths if path not in sys.path]


def invoke(call: dict[str, Json]) -> object:
    source = call["source"]
    # A real module, because dataclasses and pydantic look their annotations up in it.
    module = sys.modules["tool"] = types.ModuleType("tool")
    module.__dict__.update(server_functions.make_functions(call["functions"]))
    linecache.cache["<tool>"] = (len(source), None, source.splitlines(keepends=True), "<tool>")
    exec(compile(source, "<tool>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what this process is for
    function = getattr(module, call["function"])
    positional, named = [], dict(call["arguments"])
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "agent_state":
            named[name] = AgentState.from_json(call["agent_state"])
            continue
        hint = type_hint(parameter, module)
        if name in named:
            named[name] = coerce(named[name], hint)
        elif parameter.default is parameter.empty and accepts_none(hint):
            named[name] = None
        if parameter.kind is parameter.POSITIONAL_ONLY and name in named:
            positional.append(named.pop(name))
    result = function(*positional, **named)
    return asyncio.run(await_result(result)) if inspect.isawaitable(result) else result


async def await_result(result: typing.Awaitable[object]) -> object:
    return await result


class AgentState(dict[str, Json]):
    """The agent's state, readable as a dict and, like V1's object, by attribute."""

    def __getattr__(self, name: str) -> Json:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"agent_state has no {name!r} here") from None

    def get_block(self, label: str) -> Json:
        """The block with that label, as V1's memory object returned it."""
        for block in self.blocks:
            if block.label == label:
                return block
        raise KeyError(f"There is no block {label!r}; there are: {self.list_block_labels()}")

    def list_block_labels(self) -> list[str]:
        return [block.label for block in self.blocks]

    @classmethod
    def from_json(cls, value: Json) -> Json:
        if isinstance(value, dict):
            return cls({key: cls.from_json(inner) for key, inner in value.items()})
        return [cls.from_json(inner) for inner in value] if isinstance(value, list) else value


def type_hint(parameter: inspect.Parameter, module: types.ModuleType) -> Json:
    """The parameter's type. Resolved one by one, so that a name that cannot be resolved affects only itself."""
    holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return typing.get_type_hints(holder, module.__dict__)["it"]
    except (AttributeError, NameError, SyntaxError, TypeError):
        return parameter.empty


def accepts_none(hint: Json) -> bool:
    return hint is type(None) or (is_union(hint) and type(None) in typing.get_args(hint))


def is_union(hint: Json) -> bool:
    origin: Json = typing.get_origin(hint)
    return origin in (typing.Union, types.UnionType)


def coerce(value: Json, hint: Json) -> Json:
    """Convert the JSON value to the type of the parameter; return it unchanged where the type is not clear."""
    if is_union(hint):
        return coerce_union(value, typing.get_args(hint))
    arguments = typing.get_args(hint)
    plain: Json = typing.get_origin(hint)
    plain = hint if plain is None else plain
    if isinstance(value, list) and plain in (list, set, frozenset, tuple):
        return plain(coerce_items(value, arguments))
    if isinstance(value, dict) and plain is dict and arguments:
        return {key: coerce(inner, arguments[1]) for key, inner in value.items()}
    if not isinstance(hint, type) or is_instance(value, hint):
        return value
    if isinstance(value, dict):
        return coerce_record(value, hint)
    return coerce_scalar(value, hint)


def coerce_union(value: Json, choices: tuple[Json, ...]) -> Json:
    if any(is_instance(value, choice) for choice in choices):
        return value
    for choice in choices:
        with contextlib.suppress(ValueError, TypeError):
            if (found := coerce(value, choice)) is not value:
                return found
    return value


def is_instance(value: Json, hint: Json) -> bool:
    try:
        return isinstance(value, hint)
    except TypeError:  # isinstance does not accept a TypedDict or a generic
        return False


def coerce_items(items: list[Json], hints: tuple[Json, ...]) -> list[Json]:
    if len(hints) == 1 or hints[1:] == (...,):
        return [coerce(item, hints[0]) for item in items]
    if len(hints) == len(items):
        return [coerce(item, hint) for item, hint in zip(items, hints, strict=True)]
    return items


def coerce_record(value: dict[str, Json], hint: type) -> Json:
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{key: coerce(inner, hints.get(key)) for key, inner in value.items()})
    return value


def coerce_scalar(value: Json, hint: type) -> Json:
    if issubclass(hint, enum.Enum):
        return hint(value)
    if hint is bool and value in ("true", "True", "false", "False"):
        return value in ("true", "True")
    if hint is int and (
        isinstance(value, str) or (isinstance(value, float) and value.is_integer())
    ):
        return int(value)
    if hint is float and isinstance(value, str | int):
        return float(value)
    if isinstance(value, str) and hint in (dt.datetime, dt.date, dt.time):
        return hint.fromisoformat(value)
    return uuid.UUID(value) if hint is uuid.UUID and isinstance(value, str) else value


def to_jsonable(value: object) -> Json:
    """Convert the tool's return value to JSON types; anything else becomes its text."""
    match value:
        case enum.Enum():
            return to_jsonable(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(to_jsonable(key)): to_jsonable(inner) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [to_jsonable(inner) for inner in value]
    if isinstance(value, type):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {
            field.name: to_jsonable(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    dump = getattr(value, "model_dump", None)
    return to_jsonable(dump()) if callable(dump) else str(value)


def encode(body: dict[str, Json]) -> bytes:
    # UTF-8 cannot encode lone surrogates; replacing them is better than losing the result.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
