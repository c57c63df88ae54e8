"""Decides what the guide does next, from the history and the tools. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from holdfast.adapters.models.guide import arguments
from holdfast.adapters.models.providers.table import SUGGESTED_VARIABLES
from holdfast.core.messages import Message, Outcome, Role, ToolReturn
from holdfast.core.traces import CallType
from holdfast.ports.model import Question, ToolOffer

_INTRODUCTION = "I am the guide: a script inside Holdfast, not an LLM, so I only know a few tricks."
_COUNT = re.compile(r"\bcount\b(?:\D*?(\d+))?(?:\D+?(\d+))?", re.IGNORECASE)
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|good (?:morning|evening|day)|greetings)\b", re.IGNORECASE
)
_REPEAT = re.compile(r"\brepeat\b|\bwhat did i (?:just )?say\b|\bmy last message\b", re.IGNORECASE)
_MEMORY = re.compile(
    r"\bmemor(?:y|ies)\b|\bblocks?\b|\bknow about me\b|\bwho am i\b", re.IGNORECASE
)
_CALL_VERB = re.compile(r"\b(?:call|use|run|invoke|try|execute|roll|flip)\b", re.IGNORECASE)
_LABEL = re.compile(r"[\w/-]{1,200}")

_USER_LINE = re.compile(r"^user: (.+)$", re.MULTILINE)
_SUMMARY_CHARS = 80
# Of a message, and of an answer. The guide runs between the requests of others, so it must not read megabytes.
_MAX_READ_CHARS = 4_000
_MAX_SAID_CHARS = 10_000

DEFAULT_COUNT = 30
MAX_COUNT = 1000
_RETURN_CHARS = 500


class Call(Struct, frozen=True):
    name: str
    arguments: dict[str, Any]


class Say(Struct, frozen=True):
    text: str


class Count(Struct, frozen=True):
    first: int
    last: int


class CallTools(Struct, frozen=True):
    text: str
    calls: tuple[Call, ...]


Plan = Say | Count | CallTools


def decide(question: Question) -> Plan:
    plan = _decide(question)
    if isinstance(plan, Say) and len(plan.text) > _MAX_SAID_CHARS:
        return Say(f"{plan.text[:_MAX_SAID_CHARS]}…")
    return plan


def _decide(question: Question) -> Plan:
    history = question.history
    if question.call_type is CallType.SUMMARIZATION:
        return Say(_summarize(history[-1].text))
    asked_at = [index for index, row in enumerate(history) if _is_user_message(row)]
    text = history[asked_at[-1]].text[:_MAX_READ_CHARS] if asked_at else ""
    since = history[asked_at[-1] + 1 :] if asked_at else history
    requested = list(_find_requested_calls(text, question.tools))
    rest = requested[sum(len(row.tool_calls) for row in since) :]
    if rest:
        return _plan_calls(rest, parallel=question.parallel_tool_calls)
    if question.force_tool and question.tools:
        return CallTools("", (_sample_call(question.tools[0], text),))
    returned = [item for row in since for item in row.tool_returns]
    if returned:
        return Say(" ".join(_describe_return(item) for item in returned))
    return _plan_reply(text, question)


def _summarize(transcript: str) -> str:
    """A summary of the transcript: the beginning of each message of the user."""
    lines = [found.strip()[:_SUMMARY_CHARS] for found in _USER_LINE.findall(transcript)]
    quoted = "; ".join(f"“{line}”" for line in lines) or "nothing"
    return f"The user said: {quoted}."


def _is_user_message(row: Message) -> bool:
    return row.role is Role.USER and not row.hidden


class _RequestedCall(Struct, frozen=True):
    tool: ToolOffer
    parsed: arguments.ParsedArguments


def _find_requested_calls(text: str, tools: Sequence[ToolOffer]) -> Iterator[_RequestedCall]:
    """The tools that the text names, in its order, each with the text up to the next one."""
    by_name = {tool.name: tool for tool in tools}
    for mention in arguments.find_mentions(text, by_name):
        if _is_call_request(mention):
            tool = by_name[mention.name]
            yield _RequestedCall(tool, arguments.parse_arguments(mention.words, tool.parameters))


def _is_call_request(mention: arguments.Mention) -> bool:
    """Whether the text asks for a call. A tool's name can be an everyday word, which alone does not."""
    return (
        "_" in mention.name
        or not mention.before.strip()
        or _CALL_VERB.search(mention.before) is not None
    )


def _plan_calls(asked: Sequence[_RequestedCall], *, parallel: bool) -> Plan:
    problems = [problem for item in asked for problem in _problems(item)]
    if problems:
        return Say(" ".join(problems))
    chosen = asked if parallel else asked[:1]
    names = " and ".join(item.tool.name for item in chosen)
    calls = tuple(Call(item.tool.name, item.parsed.arguments) for item in chosen)
    return CallTools(f"I call {names}.", calls)


def _problems(asked: _RequestedCall) -> Iterator[str]:
    name, reading = asked.tool.name, asked.parsed
    if reading.missing:
        example = ", ".join(f"{argument}=…" for argument in reading.missing)
        yield (
            f"To call {name} I need {_join_names(reading.missing)}. "
            f"Say it like this: call {name} with {example}."
        )
    if reading.unreadable:
        yield f"I could not read {_join_names(reading.unreadable)} for {name}: it must fit the tool's schema."


def _sample_call(tool: ToolOffer, text: str) -> Call:
    """A call with sample arguments, for tool rules that force one."""
    properties = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required") or []
    return Call(
        tool.name, {name: _sample_value(properties.get(name, {}), text) for name in required}
    )


def _sample_value(schema: dict[str, Any], text: str) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    samples: dict[str, Any] = {
        "array": [],
        "boolean": True,
        "integer": 1,
        "number": 1.0,
        "object": {},
    }
    return samples.get(str(schema.get("type")), text or "nothing")


def _describe_return(item: ToolReturn) -> str:
    text = item.text if len(item.text) <= _RETURN_CHARS else f"{item.text[:_RETURN_CHARS]}…"
    if item.outcome is Outcome.FINISHED:
        return f"{item.name} returned: {text}"
    if item.outcome is Outcome.DENIED:
        return f"{item.name} was not allowed: {text}"
    return f"{item.name} did not work: {text}"


def _plan_reply(text: str, question: Question) -> Plan:
    if counting := _COUNT.search(text):
        return _plan_count(counting)
    if _REPEAT.search(text):
        return Say(_describe_last_message(question.history))
    if _MEMORY.search(text):
        return Say(_describe_memory(question.history))
    if _GREETING.search(text) or not text.strip():
        return Say(f"Hello! {_INTRODUCTION} {_describe_features(question.tools)}")
    return Say(
        f"{_INTRODUCTION} I do not understand what you wrote. {_describe_features(question.tools)}"
    )


def _plan_count(found: re.Match[str]) -> Count:
    numbers = [int(number) for number in found.groups() if number is not None]
    match numbers:
        case [first, last]:
            return Count(first, min(max(first, last), first + MAX_COUNT - 1))
        case [last]:
            return Count(1, min(max(1, last), MAX_COUNT))
        case _:
            return Count(1, DEFAULT_COUNT)


def _describe_last_message(history: Sequence[Message]) -> str:
    messages = [row for row in history if _is_user_message(row)]
    if len(messages) < 2:
        return "You have not said anything before this."
    return f"Before this you said: {messages[-2].text}"


def _describe_memory(history: Sequence[Message]) -> str:
    system = next((row.text for row in history if row.role is Role.SYSTEM), "")
    blocks = list(_find_blocks(system))
    if not blocks:
        return "I have no memory blocks."
    shown = "; ".join(f"{label}: {value.strip() or '(empty)'}" for label, value in blocks)
    return f"These are my memory blocks. {shown}"


def _find_blocks(system: str) -> Iterator[tuple[str, str]]:
    """The label and the value of each memory block. Not by one expression: it would search to the end for each label."""
    for part in system.split("\n</value>")[:-1]:
        head, _, value = part.partition("<value>\n")
        before, found, _ = head.rpartition(">\n<description>")
        label = before.rpartition("<")[2]
        if found and _LABEL.fullmatch(label):
            yield label, value


def _describe_features(tools: Sequence[ToolOffer]) -> str:
    offered = (
        f"Ask me to call a tool, for example: {_example_call(tools[0])}."
        if tools
        else "Attach a tool to me and ask me to call it."
    )
    return (
        f"{offered} Say “count to 30” and I count slowly, so that there is something to cancel. "
        "Ask what I have in my memory blocks, or what you said before. "
        f"For a real model set {' or '.join(SUGGESTED_VARIABLES)}."
    )


def _example_call(tool: ToolOffer) -> str:
    properties = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required") or []
    words = " and ".join(
        f"{name} {_sample_value(properties.get(name, {}), 'something')}" for name in required
    )
    return f"call {tool.name} with {words}" if words else f"call {tool.name}"


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(names)
