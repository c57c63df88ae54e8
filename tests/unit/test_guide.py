"""The guide model: its decisions, and how it streams them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.guide.arguments import parse_arguments
from holdfast.adapters.models.guide.model import COUNT_SECONDS, Guide
from holdfast.adapters.models.guide.plan import Call, CallTools, Count, Plan, Say, decide
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.blocks import Block, render_blocks
from holdfast.core.messages import Message, Outcome, Role, Text, ToolCall, ToolReturn
from holdfast.core.models import GUIDE_HANDLE, ModelChoice
from holdfast.core.summaries import render_transcript
from holdfast.core.traces import CallType
from holdfast.core.turn import Finish
from holdfast.ports.model import Answer, ModelEvent, Question, TextDelta, ToolCallDelta, ToolOffer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _tool(name: str, required: tuple[str, ...] = (), **properties: Any) -> ToolOffer:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolOffer(name, "", schema)


ROLL = _tool("roll_dice", ("num_sides",), num_sides={"type": "integer"})
FLIP = _tool("flip_coin")
ADD = _tool("add", ("a", "b"), a={"type": "number"}, b={"type": "number"})


def _row(role: Role, text: str = "", **more: Any) -> Message:
    return Message(
        id=f"message-{text}",
        agent_id="agent-1",
        thread_id="agent-1",
        role=role,
        created_at=NOW,
        content=(Text(text),) if text else (),
        **more,
    )


def _question(*rows: Message | str, system: str = "Be good.", **more: Any) -> Question:
    spoken = tuple(_row(Role.USER, row) if isinstance(row, str) else row for row in rows)
    choice = ModelChoice(handle=GUIDE_HANDLE, context_window=1000)
    return Question(choice=choice, history=(_row(Role.SYSTEM, system), *spoken), **more)


def _text_of(plan: Plan) -> str:
    assert isinstance(plan, Say)
    return plan.text


def _calls(plan: Plan) -> tuple[Call, ...]:
    assert isinstance(plan, CallTools)
    return plan.calls


# much text


def test_it_reads_only_the_beginning_of_a_long_message() -> None:
    assert decide(_question("Hello. " + "x" * 5_000 + " count to 3")) != Count(1, 3)
    counted = decide(_question("count to " + "9" * 10_000))
    assert isinstance(counted, Count)


def test_it_says_only_the_beginning_of_what_is_long() -> None:
    rows = ("x" * 1_000_000, _row(Role.ASSISTANT, "Fine."), "What did I just say?")
    assert len(_text_of(decide(_question(*rows)))) < 20_000


def test_a_system_prompt_with_many_labels_and_no_value_is_searched_once() -> None:
    question = _question("What is in your memory?", system="<a>\n<description>" * 100_000)
    assert _text_of(decide(question)) == "I have no memory blocks."


# talk


@pytest.mark.parametrize("text", ["Hello", "hi there!", "What is the meaning of life?", ""])
def test_it_always_says_that_it_is_a_script(text: str) -> None:
    assert "a script inside Holdfast, not an LLM" in _text_of(decide(_question(text)))


def test_it_explains_what_can_be_tried_with_the_tools_there_are() -> None:
    assert "call roll_dice with num_sides 1" in _text_of(decide(_question("Hello", tools=(ROLL,))))
    assert "Attach a tool" in _text_of(decide(_question("Hello")))


def test_it_repeats_what_was_said_before() -> None:
    rows = ("My name is Ada.", _row(Role.ASSISTANT, "Fine."), "What did I just say?")
    assert "My name is Ada." in _text_of(decide(_question(*rows)))


def test_it_shows_its_memory_blocks() -> None:
    block = Block(
        id="block-1",
        organization_id="org-1",
        label="human",
        value="Ada likes tea.",
        created_at=NOW,
        updated_at=NOW,
        description="About the user.",
    )
    question = _question("What is in your memory?", system=render_blocks([block]))
    assert "human: Ada likes tea." in _text_of(decide(question))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count to 30", Count(1, 30)),
        ("Please count slowly to 5.", Count(1, 5)),
        ("count from 3 to 7", Count(3, 7)),
        ("count slowly", Count(1, 30)),
        ("count to 1000000", Count(1, 1000)),
        ("count from 9 to 2", Count(9, 9)),
    ],
)
def test_it_counts_what_it_is_asked_to_count(text: str, expected: Count) -> None:
    assert decide(_question(text)) == expected


# tools


@pytest.mark.parametrize(
    "text",
    [
        "call roll_dice with num_sides 16",
        "roll_dice num_sides=16",
        "Please use roll_dice, num_sides: 16.",
        'call roll_dice {"num_sides": 16}',
        "roll_dice(num_sides=16)",
        "roll_dice(16)",
        "call roll_dice with 16 please",
        "roll_dice with num_sides of 16",
    ],
)
def test_a_tool_is_called_in_plain_words(text: str) -> None:
    plan = decide(_question(text, tools=(ROLL, FLIP)))
    assert _calls(plan) == (Call("roll_dice", {"num_sides": 16}),)


def test_several_tools_are_called_at_once() -> None:
    text = "roll_dice num_sides=6 and flip_coin, then roll_dice num_sides=20"
    plan = decide(_question(text, tools=(ROLL, FLIP), parallel_tool_calls=True))
    assert _calls(plan) == (
        Call("roll_dice", {"num_sides": 6}),
        Call("flip_coin", {}),
        Call("roll_dice", {"num_sides": 20}),
    )


def _call_rows(
    call_id: str, name: str, outcome: Outcome = Outcome.FINISHED
) -> tuple[Message, Message]:
    returned = ToolReturn(call_id, name, outcome, (Text("7"),))
    return (
        _row(Role.ASSISTANT, tool_calls=(ToolCall(call_id, name, "{}"),)),
        _row(Role.TOOL, tool_returns=(returned,)),
    )


def test_where_only_one_call_is_allowed_they_come_one_after_the_other() -> None:
    text = "roll_dice num_sides=6 and flip_coin"
    tools = (ROLL, FLIP)
    first = decide(_question(text, tools=tools))
    assert _calls(first) == (Call("roll_dice", {"num_sides": 6}),)
    second = decide(_question(text, *_call_rows("call_1", "roll_dice"), tools=tools))
    assert _calls(second) == (Call("flip_coin", {}),)
    both = (*_call_rows("call_1", "roll_dice"), *_call_rows("call_2", "flip_coin"))
    assert "flip_coin returned: 7" in _text_of(decide(_question(text, *both, tools=tools)))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.FINISHED, "flip_coin returned: 7"),
        (Outcome.DENIED, "flip_coin was not allowed: 7"),
        (Outcome.FAILED, "flip_coin did not work: 7"),
        (Outcome.UNKNOWN, "flip_coin did not work: 7"),
    ],
)
def test_it_tells_what_came_back(outcome: Outcome, expected: str) -> None:
    rows = ("call flip_coin", *_call_rows("call_1", "flip_coin", outcome))
    assert _text_of(decide(_question(*rows, tools=(FLIP,)))) == expected


def test_a_new_message_is_a_new_request() -> None:
    rows = ("call flip_coin", *_call_rows("call_1", "flip_coin"), "call flip_coin")
    assert _calls(decide(_question(*rows, tools=(FLIP,)))) == (Call("flip_coin", {}),)


def test_missing_arguments_are_asked_for() -> None:
    text = _text_of(decide(_question("call roll_dice", tools=(ROLL,))))
    assert "To call roll_dice I need num_sides." in text


def test_an_argument_of_the_wrong_kind_is_named() -> None:
    text = _text_of(decide(_question("call roll_dice with num_sides many", tools=(ROLL,))))
    assert "could not read num_sides" in text


def test_an_everyday_word_is_not_taken_for_a_tool() -> None:
    plan = decide(_question("I would like to add that I like tea.", tools=(ADD,)))
    assert isinstance(plan, Say)
    assert _calls(decide(_question("call add with a 1 and b 2.5", tools=(ADD,)))) == (
        Call("add", {"a": 1.0, "b": 2.5}),
    )


def test_a_forced_call_is_made_up() -> None:
    plan = decide(_question("Hello", tools=(ROLL, FLIP), force_tool=True))
    assert _calls(plan) == (Call("roll_dice", {"num_sides": 1}),)


def test_a_hidden_note_is_not_the_users_wish() -> None:
    rows = ("Hello", _row(Role.USER, "call flip_coin", hidden=True))
    assert isinstance(decide(_question(*rows, tools=(FLIP,))), Say)


@pytest.mark.parametrize(
    ("words", "schema", "expected"),
    [
        ("flag yes", {"type": "boolean"}, True),
        ("flag=off", {"type": "boolean"}, False),
        ("flag 2.5", {"type": "number"}, 2.5),
        ("flag hello big world", {"type": "string"}, "hello big world"),
        ('flag "hello, world" please', {"type": "string"}, "hello, world"),
        ("flag a, b", {"type": "array"}, ["a", "b"]),
        ("flag [1, 2]", {"type": "array"}, [1, 2]),
        ("flag RED", {"type": "string", "enum": ["red", "blue"]}, "red"),
        ("flag 3", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3),
        ("flag none", {"type": ["string", "null"]}, None),
        ("flag 3", {}, "3"),
    ],
)
def test_an_argument_takes_the_type_of_its_schema(
    words: str, schema: dict[str, Any], expected: object
) -> None:
    reading = parse_arguments(words, {"properties": {"flag": schema}, "required": ["flag"]})
    assert reading.arguments == {"flag": expected}
    assert (reading.missing, reading.unreadable) == ((), ())


# how it is streamed


async def _events(guide: Guide, question: Question) -> list[ModelEvent]:
    async with guide.ask(question) as events:
        return [event async for event in events]


async def _fail_on_wait(_seconds: float) -> None:
    raise AssertionError("no delay was asked for")


async def test_it_speaks_word_by_word_without_delay() -> None:
    events = await _events(Guide(_fail_on_wait), _question("Hello"))
    answer = events[-1]
    assert isinstance(answer, Answer)
    words = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(words) > 10
    assert answer.content == (Text("".join(words)),)
    assert answer.finish is Finish.STOP
    assert answer.usage.completion_tokens == len(words)


async def test_a_call_is_streamed_like_any_other() -> None:
    question = _question("call roll_dice with num_sides 16", tools=(ROLL,))
    events = await _events(Guide(_fail_on_wait), question)
    answer = events[-1]
    assert isinstance(answer, Answer)
    (call,) = answer.tool_calls
    assert msgspec.json.decode(call.arguments) == {"num_sides": 16}
    assert ToolCallDelta(call.id, "roll_dice", call.arguments) in events
    assert answer.finish is Finish.TOOL_CALLS


async def test_it_waits_between_numbers() -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    events = await _events(Guide(wait), _question("count to 4"))
    assert waits == [COUNT_SECONDS] * 3
    assert [event.text for event in events if isinstance(event, TextDelta)] == [
        "1, ",
        "2, ",
        "3, ",
        "4.",
    ]


async def test_leaving_ends_the_counting() -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async with Guide(wait).ask(_question("count to 100")) as events:
        assert await anext(events) == TextDelta("1, ")
    assert waits == []
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_the_router_needs_no_key_for_the_guide() -> None:
    router = ModelRouter(ProviderSettings())
    question = _question("Hello")
    async with router.ask(question) as events:
        answers = [event async for event in events if isinstance(event, Answer)]
    assert len(answers) == 1
    await router.aclose()


def test_the_guide_can_summarise() -> None:
    rows = [_row(Role.USER, "count to 3"), _row(Role.ASSISTANT, "1, 2, 3."), _row(Role.USER, "hi")]
    transcript = render_transcript(rows, 1_000)
    asked = _question(transcript, call_type=CallType.SUMMARIZATION, tools=(FLIP,))
    assert decide(asked) == Say("The user said: “count to 3”; “hi”.")
    nothing = _question(render_transcript([], 10), call_type=CallType.SUMMARIZATION)
    assert decide(nothing) == Say("The user said: nothing.")
