"""User providers, with keys that users store (wire-v1 §2.10)."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from letta_client import APIStatusError, Letta
from tests.support.client_objects import as_dict
from tests.support.server_process import ServerProcess
from tests.support.wire_server import provider_variables

from holdfast.testing import HttpError, ScriptedProvider

pytestmark = pytest.mark.slow

KEY = "sk-the-users-own-key"


@pytest.fixture(scope="module")
def servers(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[ServerProcess]]:
    """A server whose operator allows users to store keys for the scripted provider."""
    variables = provider_variables(running_provider) | {
        "HOLDFAST_ALLOWED_MODEL_ENDPOINTS": running_provider.openai_url,
        "HOLDFAST_PROVIDER_TRACES": "true",
    }
    started = ServerProcess.start(tmp_path_factory.mktemp("home"), **variables)
    yield [started]
    started.stop()


@pytest.fixture
def user_provider(http: httpx.Client, provider: ScriptedProvider) -> dict[str, Any]:
    """A user provider."""
    name = f"mine-{uuid4().hex[:8]}"
    body = {
        "name": name,
        "provider_type": "openai",
        "api_key": KEY,
        "base_url": provider.openai_url,
    }
    created = http.post("/v1/providers/", json=body)
    assert created.status_code == 200, created.text
    found: dict[str, Any] = created.json()
    return found


def test_a_model_of_a_user_provider_is_asked_with_its_own_key(
    client: Letta, provider: ScriptedProvider, user_provider: dict[str, Any]
) -> None:
    handle = f"{user_provider['name']}/gpt-4o-mini"
    agent = client.agents.create(model=handle, include_base_tools=False)
    provider.script("Hello.", "Hello again.")

    reply = client.agents.messages.create(agent.id, input="Hi")

    assert reply.messages[0].content == "Hello."  # type: ignore[union-attr]  # it is the assistant's
    seen = as_dict(client.agents.retrieve(agent.id))
    assert seen["model"] == handle
    # V1's closed enums have no values for names that users choose.
    assert seen["model_settings"]["provider_type"] == "openai"
    assert seen["llm_config"]["model_endpoint_type"] == "openai"
    assert seen["llm_config"]["provider_name"] == user_provider["name"]
    request = provider.requests[-1]
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["model"] == "gpt-4o-mini"
    # Another agent still uses the operator's provider.
    other = client.agents.create(model="openai/gpt-4o-mini", include_base_tools=False)
    client.agents.messages.create(other.id, input="Hi")
    assert provider.requests[-1].headers["authorization"] == "Bearer test"


def test_one_request_and_one_conversation_may_use_it_too(
    client: Letta, provider: ScriptedProvider, user_provider: dict[str, Any]
) -> None:
    handle = f"{user_provider['name']}/gpt-4o-mini"
    agent = client.agents.create(model="openai/gpt-4o", include_base_tools=False)

    client.agents.messages.create(agent.id, input="Hi", override_model=handle)
    assert provider.requests[-1].headers["authorization"] == f"Bearer {KEY}"

    thread = client.conversations.create(agent_id=agent.id, model=handle)
    list(client.conversations.messages.create(thread.id, input="Hi"))
    assert provider.requests[-1].headers["authorization"] == f"Bearer {KEY}"


def test_a_new_key_is_used_from_the_next_message_on(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, user_provider: dict[str, Any]
) -> None:
    agent = client.agents.create(
        model=f"{user_provider['name']}/gpt-4o-mini", include_base_tools=False
    )
    client.agents.messages.create(agent.id, input="Hi")

    changed = http.patch(f"/v1/providers/{user_provider['id']}", json={"api_key": "sk-new"})

    assert changed.status_code == 200, changed.text
    assert changed.json()["base_url"] == user_provider["base_url"]
    client.agents.messages.create(agent.id, input="Hi")
    assert provider.requests[-1].headers["authorization"] == "Bearer sk-new"


def test_a_deleted_provider_is_missed_and_nothing_is_bricked(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, user_provider: dict[str, Any]
) -> None:
    handle = f"{user_provider['name']}/gpt-4o-mini"
    agent = client.agents.create(model=handle, include_base_tools=False)

    assert http.delete(f"/v1/providers/{user_provider['id']}").status_code == 200

    assert http.get(f"/v1/providers/{user_provider['id']}").status_code == 404
    with pytest.raises(APIStatusError, match=user_provider["name"]) as refused:
        client.agents.messages.create(agent.id, input="Hi")
    assert refused.value.status_code == 404
    client.agents.update(agent.id, model="openai/gpt-4o-mini")
    assert client.agents.messages.create(agent.id, input="Hi").messages


def test_keys_go_in_and_never_come_out(
    client: Letta,
    http: httpx.Client,
    server: ServerProcess,
    provider: ScriptedProvider,
    user_provider: dict[str, Any],
) -> None:
    agent = client.agents.create(
        model=f"{user_provider['name']}/gpt-4o-mini", include_base_tools=False
    )
    provider.script(HttpError(401, message=f"The key {KEY} is wrong."))
    with pytest.raises(APIStatusError) as refused:
        client.agents.messages.create(agent.id, input="Hi")

    steps = http.get("/v1/steps/", params={"agent_id": agent.id}).json()
    traces = [http.get(f"/v1/steps/{step['id']}/trace").text for step in steps]
    assert ["is wrong" in trace for trace in traces] == [True]
    shown = [
        http.get("/v1/providers/").text,
        http.get(f"/v1/providers/{user_provider['id']}").text,
        http.get("/v1/models/").text,
        http.get(f"/v1/agents/{agent.id}").text,
        http.get("/v1/runs/", params={"agent_id": agent.id}).text,
        http.get("/v1/steps/", params={"agent_id": agent.id}).text,
        *traces,
        str(refused.value.body),
        server.log,
    ]
    assert not [text for text in shown if KEY in text]
    assert user_provider["name"] in shown[0]


def test_providers_are_listed_and_their_models_with_the_others(
    client: Letta, http: httpx.Client, user_provider: dict[str, Any]
) -> None:
    listed = http.get("/v1/providers/", params={"name": user_provider["name"]}).json()
    assert listed == [user_provider]
    assert user_provider["provider_category"] == "byok"

    mine = client.models.list(provider_category=["byok"], provider_name=user_provider["name"])
    assert mine
    assert {model.provider_type for model in mine} == {"openai"}
    assert all(str(model.handle).startswith(f"{user_provider['name']}/") for model in mine)
    base = client.models.list(provider_category=["base"])
    assert user_provider["name"] not in {model.provider_name for model in base}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "openai"}, "Give yours another name"),
        ({"name": "a/b"}, "first part of its models' handles"),
        ({"provider_type": "nonsense"}, "There is no provider_type"),
        ({"base_url": "http://127.0.0.1:1/v1"}, "HOLDFAST_ALLOWED_MODEL_ENDPOINTS"),
        ({"provider_type": "ollama", "base_url": None}, "needs its base_url"),
        ({"provider_type": "google_vertex"}, "google_ai"),
        ({"provider_type": "bedrock"}, "region"),
    ],
)
def test_a_provider_that_cannot_be_reached_is_refused(
    http: httpx.Client, given: dict[str, Any], says: str
) -> None:
    body = {"name": f"p-{uuid4().hex[:8]}", "provider_type": "openai", "api_key": KEY} | given

    refused = http.post("/v1/providers/", json=body)

    assert refused.status_code in (400, 409), refused.text
    assert says in refused.text
    assert KEY not in refused.text


def test_a_name_is_taken_once(http: httpx.Client, user_provider: dict[str, Any]) -> None:
    body = {"name": user_provider["name"], "provider_type": "anthropic", "api_key": "x"}

    assert http.post("/v1/providers/", json=body).status_code == 409


def test_a_key_is_checked_with_its_provider(
    http: httpx.Client, provider: ScriptedProvider, user_provider: dict[str, Any]
) -> None:
    body = {"provider_type": "openai", "api_key": KEY, "base_url": provider.openai_url}

    good = http.post("/v1/providers/check", json=body)
    assert good.json() == {"message": "Valid api key for provider_type=openai"}
    assert http.post(f"/v1/providers/{user_provider['id']}/check").status_code == 200
    refreshed = http.patch(f"/v1/providers/{user_provider['id']}/refresh").json()
    assert refreshed["last_synced"] is not None
    cannot = http.post(
        "/v1/providers/check",
        json={"provider_type": "bedrock", "api_key": "x", "region": "eu-west-1"},
    )
    assert (cannot.status_code, "cannot be checked" in cannot.text) == (400, True)


def test_an_unknown_provider_is_unknown_to_agents_too(
    client: Letta, provider: ScriptedProvider
) -> None:
    with pytest.raises(APIStatusError, match="nobodys/gpt-4o") as refused:
        client.agents.create(model="nobodys/gpt-4o")
    assert refused.value.status_code == 404
