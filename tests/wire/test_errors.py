"""Refusals, word for word (wire-v1 §1.11)."""

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import BadRequestError, Letta, NotFoundError, UnprocessableEntityError

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow

NOWHERE = "00000000-0000-4000-8000-000000000000"


def test_a_malformed_id_in_the_path_is_reported_in_the_form_of_v1(http: httpx.Client) -> None:
    answer = http.get("/v1/agents/nope")

    assert answer.status_code == 422
    body = answer.json()
    assert body["trace_id"] == ""
    assert body["examples"] == ["agent-123e4567-e89b-42d3-8456-426614174000"]
    # In Python's notation, so that clients that match substrings find it.
    assert body["detail"].startswith(
        "[{'type': 'string_pattern_mismatch', 'loc': ('path', 'agent_id'), "
        "'msg': \"String should match pattern 'agent-{uuid4}'\", 'input': 'nope', 'ctx': "
    )


@pytest.mark.parametrize(
    ("method", "path", "pattern"),
    [
        ("GET", "/v1/tools/nope", "tool-{uuid4}"),
        ("DELETE", "/v1/blocks/nope", "block-{uuid4}"),
        ("GET", "/v1/steps/nope", "step-{uuid4}"),
        ("GET", "/v1/messages/nope", "message-{uuid4}"),
        ("GET", f"/v1/agents/agent-{NOWHERE.upper()}x", "agent-{uuid4}"),
        ("PATCH", f"/v1/agents/agent-{NOWHERE}/tools/attach/nope", "tool-{uuid4}"),
    ],
)
def test_each_kind_of_id_has_its_pattern(
    http: httpx.Client, method: str, path: str, pattern: str
) -> None:
    answer = http.request(method, path)

    assert answer.status_code == 422
    assert f"String should match pattern '{pattern}'" in answer.json()["detail"]


def test_an_unknown_agent_is_not_found(client: Letta) -> None:
    agent_id = f"agent-{NOWHERE}"

    with pytest.raises(NotFoundError) as caught:
        client.agents.retrieve(agent_id)
    assert caught.value.response.json() == {"detail": f"Agent with ID {agent_id} not found"}
    with pytest.raises(NotFoundError) as caught:
        client.agents.messages.create(agent_id, input="Hello?")
    assert caught.value.response.json() == {"detail": "Agent not found"}


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/tools/tool-{NOWHERE}",
        f"/v1/blocks/block-{NOWHERE}",
        f"/v1/steps/step-{NOWHERE}",
        f"/v1/runs/run-{NOWHERE}",
        f"/v1/messages/message-{NOWHERE}",
        f"/v1/agents/agent-{NOWHERE}/tools",
        f"/v1/agents/agent-{NOWHERE}/core-memory/blocks",
        f"/v1/agents/agent-{NOWHERE}/messages",
        f"/v1/agents/agent-{NOWHERE}/context",
        f"/v1/tools/?after=tool-{NOWHERE}",
        "/v1/templates",
        "/v1/nothing",
    ],
)
def test_what_does_not_exist_is_not_found(http: httpx.Client, path: str) -> None:
    answer = http.get(path)

    assert answer.status_code == 404
    assert isinstance(answer.json()["detail"], str)


def test_models_that_are_not_there(client: Letta, make_agent: "MakeAgent") -> None:
    with pytest.raises(NotFoundError, match="NOT_FOUND: Handle nobody/knows not found"):
        client.agents.create(model="nobody/knows")
    with pytest.raises(
        BadRequestError, match="The model handle should be in the format provider/model-name"
    ):
        client.agents.create(model="gpt-4o-mini")
    with pytest.raises(BadRequestError, match="Must specify either model or llm_config in request"):
        client.agents.create(name="without a model")
    agent = make_agent()
    with pytest.raises(NotFoundError, match="Handle nobody/knows not found"):
        client.agents.messages.create(agent.id, input="Hello?", override_model="nobody/knows")
    assert client.runs.list(agent_id=agent.id).items == []


@pytest.mark.parametrize(
    ("status", "phrase", "body"),
    [
        (422, "Messages must not be empty", {"messages": []}),
        (
            422,
            "Cannot specify both 'input' and 'messages'. Use one or the other.",
            {"input": "a", "messages": [{"role": "user", "content": "b"}]},
        ),
        (422, "Must specify either 'input' or 'messages'.", {}),
        (
            422,
            "Streaming options set without streaming enabled.",
            {"input": "a", "stream_tokens": True},
        ),
        (
            422,
            "Streaming options set without streaming enabled.",
            {"input": "a", "background": True},
        ),
        (
            422,
            "Streaming options set without streaming enabled.",
            {"input": "a", "include_pings": False},
        ),
        (400, "Message content is empty or invalid", {"input": ""}),
        (
            400,
            "Message content is empty or invalid",
            {"messages": [{"role": "user", "content": ""}]},
        ),
        (
            400,
            "Unsupported image URL scheme 'file'. Only 'http', 'https', and 'data' image URLs are supported. Local file paths (file://) are not allowed.",
            {"input": [{"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}]},
        ),
        (
            400,
            "Cannot process approval response",
            {
                "messages": [
                    {
                        "type": "approval",
                        "approvals": [
                            {"type": "approval", "approve": True, "tool_call_id": "call_1"}
                        ],
                    }
                ]
            },
        ),
        (422, "Input should be", {"messages": [{"role": "emperor", "content": "b"}]}),
        (422, "max_steps", {"input": "a", "max_steps": 0}),
        (422, "valid list", {"messages": "hello"}),
    ],
)
def test_a_send_that_cannot_be_made_is_refused_and_leaves_nothing(
    client: Letta,
    http: httpx.Client,
    make_agent: "MakeAgent",
    status: int,
    phrase: str,
    body: dict[str, Any],
) -> None:
    agent = make_agent()

    answer = http.post(f"/v1/agents/{agent.id}/messages", json=body)

    assert answer.status_code == status, answer.text
    assert phrase in answer.json()["detail"]
    assert client.runs.list(agent_id=agent.id).items == []
    assert len(client.agents.messages.list(agent.id).items) == 1


def test_unknown_fields_are_ignored_where_v1_ignores_them(
    http: httpx.Client, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()

    for method, path, body in [
        ("PATCH", f"/v1/agents/{agent.id}", {"name": "still me", "colour": "red"}),
        ("POST", f"/v1/agents/{agent.id}/messages", {"input": "a", "colour": "red"}),
    ]:
        assert http.request(method, path, json=body).status_code == 200


def test_unknown_fields_are_refused_where_v1_refuses_them(
    http: httpx.Client, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()

    for method, path, body in [
        ("POST", "/v1/tools/", {"source_code": "def f(): ...", "colour": "red"}),
        ("PUT", "/v1/tools/", {"source_code": "def f(): ...", "colour": "red"}),
        (
            "PATCH",
            f"/v1/agents/{agent.id}/tools/approval/shout",
            {"requires_approval": True, "colour": "red"},
        ),
    ]:
        answer = http.request(method, path, json=body)
        assert answer.status_code == 422
        assert "colour" in answer.json()["detail"]


def test_approval_needs_to_be_said_one_way_or_the_other(
    http: httpx.Client, make_agent: "MakeAgent"
) -> None:
    answer = http.patch(f"/v1/agents/{make_agent().id}/tools/approval/shout")

    assert answer.status_code == 422
    assert (
        "requires_approval must be provided either in request body or as query parameter"
        in (answer.json()["detail"])
    )


def test_a_bad_name_is_the_callers_mistake(client: Letta) -> None:
    with pytest.raises((BadRequestError, UnprocessableEntityError)):
        client.agents.create(name="a/b\\c", model="openai/gpt-4o-mini")


def test_running_a_tool_that_is_not_attached(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent()

    with pytest.raises(NotFoundError) as caught:
        client.agents.tools.run("shout", agent_id=agent.id)

    expected = f"Tool 'shout' not found or not attached to agent '{agent.id}'"
    assert caught.value.response.json()["detail"] == expected
