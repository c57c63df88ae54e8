"""A field of a body that looks misspelled is named in the answer, and has no other effect (wire-v1 §1.7)."""

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_type_hints

import pytest
from httpx import AsyncClient
from letta_client import AsyncLetta
from pydantic import BaseModel

from holdfast.http.body_warnings import WARNINGS_HEADER, find_misspellings
from holdfast.http.letta_v1.schemas.agents import AgentCreate, AgentUpdate
from holdfast.http.letta_v1.schemas.blocks import BlockCreate, BlockUpdate
from holdfast.http.letta_v1.schemas.conversations import (
    ConversationCreate,
    ConversationSend,
    ConversationUpdate,
)
from holdfast.http.letta_v1.schemas.send import MessageCreate, SendBody
from holdfast.http.letta_v1.schemas.tools import ToolUpdate

MEMORY_BLOKS = "memory_bloks is not known here and has no effect. Did you mean memory_blocks?"


async def test_a_misspelled_field_is_named_in_the_answer_to_a_create(client: AsyncClient) -> None:
    body = {"memory_bloks": [{"label": "human", "value": "x"}]}
    answer = await client.post("/v1/agents/", json=body)
    assert answer.status_code == 200
    assert answer.json()["warnings"] == [MEMORY_BLOKS]
    assert answer.json()["blocks"] == []
    assert answer.json()["model_warnings"] == []
    assert WARNINGS_HEADER not in answer.headers


async def test_the_sdk_shows_the_warnings(address: str) -> None:
    async with AsyncLetta(base_url=address) as letta:
        agent = await letta.agents.create(extra_body={"memory_bloks": []})
        assert agent.model_extra is not None
        assert agent.model_extra["warnings"] == [MEMORY_BLOKS]
        correct = await letta.agents.create(memory_blocks=[])
        assert correct.model_extra is not None
        assert "warnings" not in correct.model_extra


async def test_without_a_misspelling_there_are_no_warnings(client: AsyncClient) -> None:
    answer = await client.post("/v1/agents/", json={"memory_blocks": [], "flux_capacitor": 1})
    assert "warnings" not in answer.json()
    assert WARNINGS_HEADER not in answer.headers


async def test_an_update_warns_too(client: AsyncClient, agent_id: str) -> None:
    answer = await client.patch(f"/v1/agents/{agent_id}", json={"descripton": "x"})
    assert answer.json()["warnings"] == [
        "descripton is not known here and has no effect. Did you mean description?"
    ]
    assert answer.json()["description"] is None


async def test_a_send_that_waits_warns_of_fields_at_any_depth(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    body = {
        "max_step": 3,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}], "sender_ID": "x"}
        ],
    }
    answer = await client.post(f"/v1/agents/{agent_id}/messages", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["warnings"] == [
        "max_step is not known here and has no effect. Did you mean max_steps?",
        "messages[0].sender_ID is not known here and has no effect. Did you mean sender_id?",
    ]


async def test_a_stream_has_its_warnings_in_a_header(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    body = {"input": "hi", "stream_token": True}
    answer = await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    assert json.loads(answer.headers[WARNINGS_HEADER]) == [
        "stream_token is not known here and has no effect. Did you mean stream_tokens?"
    ]
    assert "warnings" not in answer.text


async def test_a_list_has_its_warnings_in_a_header(client: AsyncClient) -> None:
    answer = await client.post("/v1/tools/search", json={"querry": "x"})
    assert isinstance(answer.json(), list)
    assert json.loads(answer.headers[WARNINGS_HEADER]) == [
        "querry is not known here and has no effect. Did you mean query?"
    ]


async def test_a_map_gets_no_further_key(client: AsyncClient, agent_id: str, model: Any) -> None:
    model.says("Hello!")
    sent = await client.post(f"/v1/agents/{agent_id}/messages/async", json={"input": "hi"})
    run_id = sent.json()["id"]
    body = {"run_ids": [run_id], "reasn": "x"}
    answer = await client.post(f"/v1/agents/{agent_id}/messages/cancel", json=body)
    assert answer.json().keys() == {run_id}
    assert json.loads(answer.headers[WARNINGS_HEADER]) == [
        "reasn is not known here and has no effect. Did you mean reason?"
    ]


async def test_a_name_that_is_repeated_is_short_and_cannot_break_the_header(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    body = {"input": "hi", "stream_\r\ntokens": 1, "stream_tökens": 1, "streamtokens" * 1_000: 1}
    answer = await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    assert answer.status_code == 200
    assert len(json.loads(answer.headers[WARNINGS_HEADER])) == 2


def _sdk_bodies() -> Iterator[tuple[str, str, type[BaseModel]]]:
    yield "agent_create_params", "AgentCreateParams", AgentCreate
    yield "agent_update_params", "AgentUpdateParams", AgentUpdate
    yield "block_create_params", "BlockCreateParams", BlockCreate
    yield "block_update_params", "BlockUpdateParams", BlockUpdate
    yield "create_block_param", "CreateBlockParam", BlockCreate
    yield "message_create_param", "MessageCreateParam", MessageCreate
    yield "agents.message_create_params", "MessageCreateParamsBase", SendBody
    yield "agents.message_stream_params", "MessageStreamParams", SendBody
    yield "agents.message_create_async_params", "MessageCreateAsyncParams", SendBody
    yield "conversation_create_params", "ConversationCreateParams", ConversationCreate
    yield "conversation_update_params", "ConversationUpdateParams", ConversationUpdate
    yield "conversations.message_create_params", "MessageCreateParams", ConversationSend
    yield "tool_update_params", "ToolUpdateParams", ToolUpdate


def _wire_names(params: type) -> Iterator[str]:
    """The fields of a parameter class of the SDK, as they are sent."""
    for name, annotation in get_type_hints(params, include_extras=True).items():
        aliases = [getattr(item, "alias", None) for item in getattr(annotation, "__metadata__", ())]
        yield next(filter(None, aliases), name)


@pytest.mark.parametrize(("module", "name", "body"), [*_sdk_bodies()])
def test_no_field_of_the_sdk_is_taken_for_a_misspelling(
    module: str, name: str, body: type[BaseModel]
) -> None:
    params = getattr(import_module(f"letta_client.types.{module}"), name)
    warnings = [find_misspellings({field: None}, body) for field in _wire_names(params)]
    assert warnings
    assert not any(warnings)
