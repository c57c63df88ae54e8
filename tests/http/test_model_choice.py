"""The choice of a model over HTTP: what is accepted, warned about, or refused (wire-v1 §3.11)."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from tests.support.http_app import use_app

from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.ports.services import Services
from holdfast.testing import ScriptedProvider

ELSEWHERE = "https://elsewhere.example/v1"
ALLOWED = "https://allowed.example/v1"
CONFIG = {"model": "gpt-4o", "model_endpoint_type": "openai", "context_window": 32_000}


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with ScriptedProvider(
        models=("gpt-4o", "text-embedding-3-small"), default="Hello.", check_script=False
    ) as running:
        yield running


@pytest.fixture
def app(services: Services, provider: ScriptedProvider) -> Iterator[FastAPI]:
    settings = ProviderSettings(
        {
            "openai": {"api_key": "k", "base_url": provider.openai_url},
            "anthropic": {"api_key": "k", "base_url": provider.url},
        },
        allowed_model_endpoints=(ALLOWED,),
    )
    with use_app(replace(services, catalogue=ProviderCatalogue(settings))) as app:
        yield app


async def _create_agent(client: AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/v1/agents/", json={"include_base_tools": False} | fields)
    assert answer.status_code == 200, answer.text
    agent: dict[str, Any] = answer.json()
    return agent


async def test_a_setting_without_effect_is_a_warning_of_the_agent(
    client: AsyncClient,
) -> None:
    settings = {"provider_type": "anthropic", "verbosity": "low", "temperature": 0.2}
    agent = await _create_agent(client, model="anthropic/claude-haiku-4-5", model_settings=settings)
    warning = "verbosity has no effect on anthropic/claude-haiku-4-5: there is no such setting."
    assert agent["model_warnings"] == [warning]
    path = f"/v1/agents/{agent['id']}"
    assert (await client.get(path)).json()["model_warnings"] == [warning]
    # It belongs to the model that was asked.
    changed = await client.patch(path, json={"model": "openai/gpt-4o"})
    assert changed.json()["model_warnings"] == []


async def test_an_unknown_setting_is_refused_by_its_name(client: AsyncClient) -> None:
    settings = {"provider_type": "openai", "creativity": 11}
    answer = await client.post(
        "/v1/agents/", json={"model": "openai/gpt-4o", "model_settings": settings}
    )
    assert answer.status_code == 422
    assert "creativity" in answer.json()["detail"]


async def test_thinking_that_was_switched_off_stays_off(client: AsyncClient) -> None:
    """V1 forgot it, and showed no response format (wire-v1 §9.3-54)."""
    form = {"type": "json_object"}
    settings = {
        "provider_type": "anthropic",
        "thinking": {"type": "disabled"},
        "parallel_tool_calls": False,
        "response_format": form,
    }
    agent = await _create_agent(
        client, model="anthropic/claude-sonnet-4-5", model_settings=settings
    )
    shown = agent["model_settings"]
    assert shown["thinking"]["type"] == "disabled"
    assert (shown["parallel_tool_calls"], shown["response_format"]) == (False, form)


@pytest.mark.parametrize("address", [None, "https://api.openai.com/v1", ALLOWED])
async def test_an_old_configuration_may_name_an_address_that_is_allowed(
    client: AsyncClient, address: str | None
) -> None:
    agent = await _create_agent(client, llm_config=CONFIG | {"model_endpoint": address})
    assert agent["llm_config"]["model_endpoint"] == address


async def test_an_address_that_is_not_allowed_is_refused_with_the_setting(
    client: AsyncClient,
) -> None:
    config = CONFIG | {"model_endpoint": ELSEWHERE}
    refused = await client.post("/v1/agents/", json={"llm_config": config})
    assert refused.status_code == 400
    assert "HOLDFAST_ALLOWED_MODEL_ENDPOINTS" in refused.json()["detail"]
    agent = await _create_agent(client, model="openai/gpt-4o")
    changed = await client.patch(f"/v1/agents/{agent['id']}", json={"llm_config": config})
    assert changed.status_code == 400


@pytest.mark.parametrize(
    "fields",
    [
        {"handle": "gpt-4o"},
        {"handle": "openai/"},
        {"model_endpoint_type": ""},
        {"model": "x" * 500},
    ],
    ids=["no slash", "no name", "no provider", "long"],
)
async def test_an_old_configuration_has_a_handle_too(
    client: AsyncClient, fields: dict[str, str]
) -> None:
    """V1 stored the rest of it unchecked. An agent whose handle has no name could not be shown in any list."""
    body = {"llm_config": CONFIG | fields}
    agent = await _create_agent(client, model="openai/gpt-4o")

    refused = await client.post("/v1/agents/", json=body)
    unchanged = await client.patch(f"/v1/agents/{agent['id']}", json=body)

    assert (refused.status_code, unchanged.status_code) == (400, 400)
    assert "model handle" in refused.json()["detail"]
    assert [found["model"] for found in (await client.get("/v1/agents/")).json()] == [
        "openai/gpt-4o"
    ]


async def test_a_conversation_has_warnings_about_its_model(client: AsyncClient) -> None:
    agent = await _create_agent(client, model="openai/gpt-4o")
    settings = {"provider_type": "anthropic", "verbosity": "high"}
    body = {"model": "anthropic/claude-haiku-4-5", "model_settings": settings}
    made = await client.post("/v1/conversations/", params={"agent_id": agent["id"]}, json=body)
    (warning,) = made.json()["model_warnings"]
    assert warning.startswith("verbosity has no effect on anthropic/claude-haiku-4-5")
    path = f"/v1/conversations/{made.json()['id']}"
    assert (await client.get(path)).json()["model_warnings"] == [warning]
    changed = await client.patch(path, json={"model": "openai/gpt-4o"})
    assert changed.json()["model_warnings"] == []


async def test_what_the_keys_can_reach_is_listed(client: AsyncClient) -> None:
    models = (await client.get("/v1/models/", params={"provider_name": "openai"})).json()
    assert [(model["handle"], model["max_context_window"]) for model in models] == [
        ("openai/gpt-4o", 128_000)
    ]
    embeddings = (await client.get("/v1/models/embedding")).json()
    assert ("openai/text-embedding-3-small", 1536) in [
        (model["handle"], model["embedding_dim"]) for model in embeddings
    ]


async def test_a_model_that_its_provider_does_not_list_is_refused(client: AsyncClient) -> None:
    refused = await client.post("/v1/agents/", json={"model": "openai/gpt-9"})
    assert refused.status_code == 404
    assert refused.json()["detail"].startswith("NOT_FOUND: Handle openai/gpt-9 not found")
    agent = await _create_agent(client, model="openai/gpt-4o")
    path = f"/v1/agents/{agent['id']}"
    refused = await client.patch(path, json={"model": "openai/gpt-9"})
    assert refused.status_code == 404
    assert (await client.get(path)).json()["model"] == "openai/gpt-4o"
    body = {"model": "openai/gpt-9"}
    where = {"agent_id": agent["id"]}
    assert (await client.post("/v1/conversations/", params=where, json=body)).status_code == 404


async def test_an_agent_whose_model_is_no_longer_listed_can_still_be_changed(
    client: AsyncClient,
) -> None:
    config = CONFIG | {"model": "gpt-9"}
    agent = await _create_agent(client, llm_config=config)
    assert (await client.get("/v1/models/")).status_code == 200
    changed = await client.patch(
        f"/v1/agents/{agent['id']}", json={"name": "kept", "model": "openai/gpt-9"}
    )
    assert (changed.status_code, changed.json()["name"]) == (200, "kept")
