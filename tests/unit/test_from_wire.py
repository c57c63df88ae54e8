"""Converting requests to core types; refusals have V1's texts (wire-v1 §1.11, §2.3.1, §6.3)."""

from base64 import b64encode
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.core.messages import Decision, Image, Outcome, Role, Text, ToolReturn
from holdfast.core.runs import ClientTool, RunRequest, RunStatus
from holdfast.errors import CallerError, InvalidArgument, Unprocessable
from holdfast.http.letta_v1.from_wire.runs import parse_statuses
from holdfast.http.letta_v1.from_wire.send import (
    new_send,
    refuse_streaming_options,
    run_request,
    send_inputs,
)
from holdfast.http.letta_v1.schemas.send import SendBody
from holdfast.usecases.messages import ApprovalInput, Input, MessageInput

AGENT = "agent-3f2b8c1e-7a44-4d0b-9e61-5c2a7d9f10c5"
HI = {"role": "user", "content": "hi"}
YES = {"type": "approval", "approvals": [{"approve": True, "tool_call_id": "t1"}]}


def body(**fields: Any) -> SendBody:
    return SendBody.model_validate(fields)


def parse_inputs(*items: dict[str, Any]) -> tuple[Input, ...]:
    return send_inputs(body(messages=list(items)))


def parse_content(value: Any) -> tuple[Any, ...]:
    [message] = parse_inputs({"role": "user", "content": value})
    assert isinstance(message, MessageInput)
    return message.content


PNG = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4)).decode()


def image(**source: Any) -> Any:
    return parse_content([{"type": "image", "source": source}])[0]


def test_a_message_keeps_who_sent_it() -> None:
    [message] = parse_inputs(
        HI | {"otid": "o", "name": "Ann", "sender_id": "s", "group_id": "g", "unknown": 1}
    )
    assert message == MessageInput(
        role=Role.USER, content=(Text("hi"),), otid="o", name="Ann", sender_id="s", group_id="g"
    )


@pytest.mark.parametrize("role", ["user", "system", "assistant"])
def test_a_caller_may_speak_in_three_roles(role: str) -> None:
    [message] = parse_inputs({"type": "message", "role": role, "content": "x"})
    assert isinstance(message, MessageInput)
    assert message.role == role


@pytest.mark.parametrize("given", ["hi", [{"type": "text", "text": "hi"}], [{"text": "hi"}]])
def test_input_is_short_for_one_user_message(given: Any) -> None:
    assert send_inputs(body(input=given)) == (MessageInput(role=Role.USER, content=(Text("hi"),)),)


@pytest.mark.parametrize(
    ("fields", "phrase"),
    [
        (
            {"input": "a", "messages": [HI]},
            "Cannot specify both 'input' and 'messages'. Use one or the other.",
        ),
        ({}, "Must specify either 'input' or 'messages'."),
        ({"messages": []}, "Messages must not be empty"),
    ],
)
def test_messages_and_input_exclude_each_other(fields: dict[str, Any], phrase: str) -> None:
    with pytest.raises(Unprocessable) as raised:
        send_inputs(body(**fields))
    assert str(raised.value) == phrase


@pytest.mark.parametrize(
    "empty", ["", [], [{"type": "text", "text": ""}], [{"type": "reasoning", "reasoning": "x"}]]
)
def test_a_message_must_say_something(empty: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^Message content is empty or invalid$"):
        parse_content(empty)


def test_parts_that_only_a_model_makes_are_let_pass() -> None:
    assert parse_content(
        [
            {"type": "reasoning", "reasoning": "x", "is_native": True},
            {"type": "tool_call", "id": "1", "name": "roll", "input": {}},
            {"type": "text", "text": "hi"},
        ]
    ) == (Text("hi"),)


@pytest.mark.parametrize(
    "item",
    [
        {"role": "tool", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": 1},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"type": "spell", "role": "user", "content": "x"},
        {"type": ["message"], "role": "user", "content": "x"},
        {"type": "approval", "approvals": [{"approve": True}]},
        {"type": "tool_return", "tool_returns": [{"tool_call_id": "t", "tool_return": "x"}]},
        "hi",
    ],
)
def test_an_item_of_the_wrong_form_is_refused(item: Any) -> None:
    with pytest.raises(ValidationError):
        body(messages=[item])


def test_a_picture_comes_by_value() -> None:
    assert image(type="base64", media_type="image/PNG", data=PNG, detail="low") == Image(
        "image/png", PNG, "low"
    )
    assert image(type="letta", file_id="f", media_type="image/png", data=PNG).data == PNG


def test_a_pictures_kind_is_what_it_is_and_not_what_it_is_called() -> None:
    for called in ("image/jpeg", "image/x-unknown"):
        assert image(type="base64", media_type=called, data=PNG).media_type == "image/png"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"data:image/png;base64,{PNG}", Image("image/png", PNG)),
        (f"DATA:image/png;name=x;BASE64,{PNG}", Image("image/png", PNG)),
        ("data:image/gif,GIF89a%00", Image("image/gif", "R0lGODlhAA==")),
    ],
)
def test_a_data_url_is_a_picture_by_value(url: str, expected: Image) -> None:
    assert image(type="url", url=url) == expected
    assert image(url=url) == expected


@pytest.mark.parametrize(
    ("source", "phrase"),
    [
        ({"url": "https://example.com/cat.png"}, "by its address"),
        (
            {"url": "file:///etc/passwd"},
            "Unsupported image URL scheme 'file'. Only 'http', 'https', and 'data' image URLs are supported. Local file paths (file://) are not allowed.",
        ),
        ({"url": "/etc/passwd"}, "Unsupported image URL scheme ''."),
        ({"url": "ftp://x/y"}, "Unsupported image URL scheme 'ftp'."),
        ({"url": "data:image/png;base64"}, "no comma"),
        ({"url": "data:image/png;base64,%%%"}, "not base64"),
        ({"url": "data:image/png,"}, "empty"),
        ({"url": "data:text/html,x"}, "not the media type of an image"),
        ({"media_type": "image/png", "data": "ä"}, "not base64"),
        ({"media_type": "image/png", "data": "aGk="}, "no PNG, JPEG, GIF or WebP"),
        ({"url": "data:image/svg+xml,%3Csvg/%3E"}, "no PNG, JPEG, GIF or WebP"),
        ({"file_id": "file-1"}, "needs its 'data'"),
    ],
)
def test_a_picture_that_cannot_be_used_is_refused(source: dict[str, Any], phrase: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        image(**source)
    assert phrase in str(raised.value)


def test_approvals_become_decisions() -> None:
    [approval] = parse_inputs(
        {
            "type": "approval",
            "otid": "o",
            "group_id": "g",
            "approvals": [
                {"type": "approval", "approve": True, "tool_call_id": "t1"},
                {"approve": False, "tool_call_id": "t2", "reason": "no"},
                {"type": "tool", "tool_call_id": "t3", "tool_return": "7", "status": "success"},
                {
                    "tool_call_id": "t4",
                    "tool_return": [{"type": "text", "text": "x"}],
                    "status": "error",
                    "stdout": ["a"],
                    "stderr": ["b"],
                },
            ],
        }
    )
    assert approval == ApprovalInput(
        otid="o",
        group_id="g",
        decisions=(
            Decision("t1", approve=True),
            Decision("t2", approve=False, reason="no"),
            Decision(
                "t3",
                approve=False,
                returned=ToolReturn("t3", None, Outcome.FINISHED, (Text("7"),)),
            ),
            Decision(
                "t4",
                approve=False,
                returned=ToolReturn("t4", None, Outcome.FAILED, (Text("x"),), ("a",), ("b",)),
            ),
        ),
    )


@pytest.mark.parametrize("kind", [{"type": "approval"}, {"type": None}, {}])
def test_the_older_form_of_an_approval_still_counts(kind: dict[str, Any]) -> None:
    [approval] = parse_inputs(
        kind | {"approve": False, "approval_request_id": "message-1", "reason": "no"}
    )
    assert approval == ApprovalInput(decisions=(Decision("message-1", approve=False, reason="no"),))


@pytest.mark.parametrize("kind", [{"type": "tool_return"}, {}])
def test_a_tool_return_answers_like_an_approval(kind: dict[str, Any]) -> None:
    entry = {"tool_call_id": "t1", "tool_return": "", "status": "success"}
    [approval] = parse_inputs(kind | {"tool_returns": [entry]})
    returned = ToolReturn("t1", None, Outcome.FINISHED, (Text(""),))
    assert approval == ApprovalInput(decisions=(Decision("t1", approve=False, returned=returned),))


@pytest.mark.parametrize(
    ("item", "error", "phrase"),
    [
        (
            {"type": "approval", "approvals": []},
            InvalidArgument,
            "Invalid approval response. Approval response message does not contain any approvals.",
        ),
        ({"type": "approval"}, InvalidArgument, "does not contain any approvals"),
        ({"type": "tool_return", "tool_returns": []}, InvalidArgument, "any approvals"),
        ({"approve": True}, Unprocessable, "approval_request_id"),
    ],
)
def test_an_approval_must_decide_something(
    item: dict[str, Any], error: type[CallerError], phrase: str
) -> None:
    with pytest.raises(error) as raised:
        parse_inputs(item)
    assert phrase in str(raised.value)


def test_after_an_approval_messages_follow_and_the_rest_is_dropped() -> None:
    approval, follow_up = parse_inputs(YES, HI, YES)
    assert isinstance(approval, ApprovalInput)
    assert follow_up == MessageInput(role=Role.USER, content=(Text("hi"),))


def test_an_approval_in_second_place_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Unexpected type"):
        parse_inputs(HI, YES)


def test_a_send_without_wishes_has_the_defaults() -> None:
    new = new_send(AGENT, body(input="hi"))
    assert (new.agent_id, new.thread_id, new.kind) == (AGENT, None, "send_message")
    assert (new.override_model, new.background) == (None, False)
    assert new.request == RunRequest()


def test_wishes_reach_the_run() -> None:
    options = body(
        input="hi",
        max_steps=3,
        system="Be brief.",
        override_model="openai/gpt-x",
        client_tools=[{"name": "look", "parameters": {"type": "object"}}, {"name": "go"}],
        include_return_message_types=["assistant_message"],
        include_compaction_messages=True,
        use_assistant_message=False,
        assistant_message_tool_name="say",
        assistant_message_tool_kwarg="words",
        callback_url="http://127.0.0.1/hook",
    )
    assert run_request(options) == RunRequest(
        max_steps=3,
        override_system="Be brief.",
        client_tools=(ClientTool("look", None, {"type": "object"}), ClientTool("go")),
        include_return_message_types=("assistant_message",),
        include_compaction_messages=True,
        use_assistant_message=False,
        assistant_message_tool_name="say",
        assistant_message_tool_kwarg="words",
        callback_url="http://127.0.0.1/hook",
    )
    assert new_send(AGENT, options).override_model == "openai/gpt-x"
    assert run_request(body(input="hi", override_system="x")).override_system == "x"


@pytest.mark.parametrize(
    "wish",
    [
        {"max_steps": 0},
        {"max_steps": 10**30},
        {"include_return_message_types": ["gossip"]},
        {"client_tools": [{"name": ""}]},
    ],
)
def test_a_wish_out_of_bounds_is_refused(wish: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        body(input="hi", **wish)


@pytest.mark.parametrize(
    "option", [{"stream_tokens": True}, {"background": True}, {"include_pings": False}]
)
def test_streaming_options_need_streaming(option: dict[str, bool]) -> None:
    with pytest.raises(Unprocessable) as raised:
        refuse_streaming_options(body(input="hi", **option))
    assert str(raised.value).startswith("Streaming options set without streaming enabled. ")
    assert next(iter(option)) in str(raised.value)


def test_default_streaming_options_are_no_wish() -> None:
    refuse_streaming_options(
        body(input="hi", stream_tokens=False, background=False, include_pings=True)
    )


def test_a_v1_status_means_every_status_that_it_is_shown_for() -> None:
    assert parse_statuses(["created", "completed"]) == (
        RunStatus.QUEUED,
        RunStatus.PAUSED,
        RunStatus.ANSWERED,
        RunStatus.COMPLETED,
    )
    assert parse_statuses([]) == ()


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'queued' is not a valid RunStatus"):
        parse_statuses(["created", "queued"])
