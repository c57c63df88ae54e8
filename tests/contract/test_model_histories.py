"""A valid history is accepted by every provider."""

import json

import pytest
from tests.support.model_questions import (
    FLIP,
    HELLO,
    PNG,
    RESPONSES,
    ROLL,
    SYSTEM,
    ask_for_answer,
    call_rows,
    make_question,
    result,
    row,
)

from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import (
    Decision,
    Image,
    Message,
    Outcome,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from holdfast.core.models import ModelChoice
from holdfast.ports.model import (
    Question,
)
from holdfast.testing import ScriptedProvider


async def test_a_history_with_results_is_accepted(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    calls = (ToolCall("call_1", "flip_coin", "{}"), ToolCall("call_2", "flip_coin", ""))
    rows = (
        HELLO,
        row(Role.ASSISTANT, "Two flips.", tool_calls=calls, step_id="step-1"),
        row(Role.TOOL, tool_returns=(result("call_1"), result("call_2", ""))),
        row(Role.ASSISTANT, "Heads.", step_id="step-2"),
        row(Role.SUMMARY, "They flipped coins."),
        row(Role.USER, "Again."),
        *call_rows("call_3"),
        row(Role.USER, "Go on.", hidden=True),
    )
    await ask_for_answer(model, make_question(handle, *rows, tools=(FLIP,)))
    (request,) = provider.requests
    assert request.refused is None
    assert request.user_text.endswith("Go on.")
    assert "They flipped coins." in str(request.messages)


async def test_calls_that_were_held_belong_to_the_same_answer(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    automatic = ToolCall("call_1", "flip_coin", "{}")
    held = ToolCall("call_2", "roll_dice", '{"num_sides": 6}')
    rows = (
        HELLO,
        row(Role.ASSISTANT, "Both.", tool_calls=(automatic,), step_id="step-1"),
        row(Role.APPROVAL, tool_calls=(held,), step_id="step-1"),
        row(Role.APPROVAL, decisions=(Decision("call_2", approve=True),)),
        row(Role.TOOL, tool_returns=(result("call_1"), result("call_2"))),
    )
    await ask_for_answer(model, make_question(handle, *rows, tools=(ROLL, FLIP)))
    (request,) = provider.requests
    assert request.refused is None
    if handle == RESPONSES:
        kinds = [item.get("type", "message") for item in request.messages[2:]]
        returns = ["function_call_output"] * 2
        assert kinds == ["message", "function_call", "function_call", *returns]
    else:
        roles = [message["role"] for message in request.messages]
        assert sum(role in ("assistant", "model") for role in roles) == 1


async def test_a_result_says_which_tool_it_is_of_and_what_a_person_changed(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    """The result of a client tool has no name; and the model is only shown its own arguments."""
    calls = (
        ToolCall("call_1", "roll_dice", '{"num_sides": 6}'),
        ToolCall("call_2", "flip_coin", "{}"),
    )
    edited = Decision("call_1", approve=True, arguments={"num_sides": 20})
    rolled = ToolReturn("call_1", "roll_dice", Outcome.FINISHED, (Text("17"),))
    mine = ToolReturn("call_2", None, Outcome.FINISHED, (Text("heads"),))
    rows = (
        HELLO,
        row(Role.APPROVAL, tool_calls=calls, step_id="step-1"),
        row(Role.APPROVAL, decisions=(edited, Decision("call_2", approve=False, returned=mine))),
        row(Role.TOOL, tool_returns=(rolled, mine)),
    )
    await ask_for_answer(model, make_question(handle, *rows, tools=(ROLL, FLIP)))
    (request,) = provider.requests
    assert request.refused is None
    results = json.dumps(request.messages[-2:])
    assert "A person changed the arguments of this call" in results
    assert "20" in results
    assert "17" in results
    if handle.startswith("google"):
        names = [part["functionResponse"]["name"] for part in request.messages[-1]["parts"]]
        assert names == ["roll_dice", "flip_coin"]


async def test_a_failed_call_is_marked_as_an_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    call, _ = call_rows("call_1")
    failed = row(Role.TOOL, tool_returns=(result("call_1", "no coin", Outcome.FAILED),))
    await ask_for_answer(model, make_question(handle, HELLO, call, failed, tools=(FLIP,)))
    last = provider.requests[0].messages[-1]
    match handle:
        case "openai/gpt-4o":
            assert last["content"] == '{"error":"no coin"}'
        case "openai/gpt-5":
            assert last["output"] == '{"error":"no coin"}'
        case "anthropic/claude-haiku-4-5":
            assert last["content"][0]["is_error"] is True
            assert last["content"][0]["content"][0]["text"] == "no coin"
        case _:
            assert last["parts"][0]["functionResponse"]["response"] == {"error": "no coin"}


async def test_pictures_go_by_value(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    seen = row(Role.USER, "What is it?", Image("image/png", PNG))
    await ask_for_answer(model, make_question(handle, seen))
    assert PNG in str(provider.requests[0].messages)


async def test_pictures_that_a_tool_returned_go_by_value(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    call, _ = call_rows("call_1")
    seen = ToolReturn(
        "call_1", "flip_coin", Outcome.FINISHED, (Text("heads"), Image("image/png", PNG))
    )
    rows = (HELLO, call, row(Role.TOOL, tool_returns=(seen,)))
    await ask_for_answer(model, make_question(handle, *rows, tools=(FLIP,)))
    assert provider.requests[0].refused is None
    sent = str(provider.requests[0].messages)
    assert PNG in sent
    assert "heads" in sent


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((row(Role.USER, "   "),), id="a blank message"),
        pytest.param((row(Role.ASSISTANT, "Hi!"), HELLO), id="the agent spoke first"),
        pytest.param((row(Role.USER, "One."), row(Role.USER, "Two.")), id="two in a row"),
        pytest.param((HELLO, row(Role.ASSISTANT), HELLO), id="an answer that was cut to nothing"),
        pytest.param((HELLO, row(Role.SYSTEM, "Be kind."), HELLO), id="a second system message"),
        pytest.param(
            (
                HELLO,
                row(Role.ASSISTANT, tool_calls=(ToolCall("call_1", "flip_coin", "{not json"),)),
                row(Role.TOOL, tool_returns=(result("call_1", "bad", Outcome.FAILED),)),
            ),
            id="arguments that are no JSON",
        ),
    ],
)
async def test_odd_histories_are_accepted_too(
    provider: ScriptedProvider, model: ModelRouter, handle: str, rows: tuple[Message, ...]
) -> None:
    await ask_for_answer(model, make_question(handle, *rows, tools=(FLIP,)))
    assert provider.requests[0].refused is None


async def test_a_system_message_alone_is_enough(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    choice = ModelChoice(handle=handle, context_window=1000)
    await ask_for_answer(model, Question(choice=choice, history=(SYSTEM,)))
    assert provider.requests[0].refused is None
