"""A key that a user stored goes to the address that it was stored for, and to no other."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.doubles.http_receiver import CannedResponse, Receiver, run_receiver_in_thread
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.slow

STORED_KEY = "sk-stored-by-the-owner"
MODELS = CannedResponse(
    headers={"content-type": "application/json"},
    body=b'{"object": "list", "data": [{"id": "a-model", "object": "model"}]}',
)


@pytest.fixture(scope="module")
def own_address() -> Iterator[Receiver]:
    with run_receiver_in_thread() as receiver:
        receiver.answers = [MODELS]
        yield receiver


@pytest.fixture(scope="module")
def other_address() -> Iterator[Receiver]:
    with run_receiver_in_thread() as receiver:
        receiver.answers = [MODELS]
        yield receiver


@pytest.fixture(scope="module")
def http(
    tmp_path_factory: pytest.TempPathFactory, own_address: Receiver, other_address: Receiver
) -> Iterator[httpx.Client]:
    allowed = f"{own_address.url}/v1,{other_address.url}/v1"
    server = ServerProcess.start(
        tmp_path_factory.mktemp("home"),
        HOLDFAST_MODEL_ATTEMPTS="1",
        HOLDFAST_ALLOWED_MODEL_ENDPOINTS=allowed,
    )
    with httpx.Client(base_url=server.address, timeout=60, verify=False) as client:
        yield client
    server.stop()


def create_provider(http: httpx.Client, name: str, **fields: str) -> dict[str, Any]:
    body = {"name": name, "provider_type": "openai", "api_key": STORED_KEY} | fields
    answer = http.post("/v1/providers/", json=body)
    assert answer.status_code == 200, answer.text
    provider: dict[str, Any] = answer.json()
    return provider


def use_everywhere(http: httpx.Client, provider: dict[str, Any]) -> None:
    """Every route that sends the key of a stored provider."""
    http.post(f"/v1/providers/{provider['id']}/check")
    http.patch(f"/v1/providers/{provider['id']}/refresh")
    http.get("/v1/models/")
    agent = http.post("/v1/agents/", json={"model": f"{provider['name']}/a-model"})
    assert agent.status_code == 200, agent.text
    http.post(f"/v1/agents/{agent.json()['id']}/messages", json={"input": "Hello"})


def test_a_stored_key_is_not_sent_to_a_new_address(
    http: httpx.Client, own_address: Receiver, other_address: Receiver
) -> None:
    provider = create_provider(http, "mine", base_url=f"{own_address.url}/v1")

    for change in ({}, {"access_key": "x"}, {"api_version": "2"}, {"api_key": None}):
        body = {"base_url": f"{other_address.url}/v1"} | change
        refused = http.patch(f"/v1/providers/{provider['id']}", json=body)
        assert refused.status_code == 400, refused.text
        assert "send api_key again" in refused.json()["detail"]
    use_everywhere(http, provider)

    stored = http.get(f"/v1/providers/{provider['id']}").json()
    assert stored["base_url"] == provider["base_url"]
    http.delete(f"/v1/providers/{provider['id']}")
    assert other_address.all_requests == []
    assert {row.headers["authorization"] for row in own_address.all_requests} == {
        f"Bearer {STORED_KEY}"
    }


def test_with_the_key_sent_again_the_address_changes(
    http: httpx.Client, own_address: Receiver, other_address: Receiver
) -> None:
    own_address.all_requests.clear()
    provider = create_provider(http, "moved", base_url=f"{own_address.url}/v1")
    body = {"base_url": f"{other_address.url}/v1", "api_key": "sk-another"}
    assert http.patch(f"/v1/providers/{provider['id']}", json=body).status_code == 200
    # The same address again is no other one.
    again = {"base_url": f"{other_address.url}/v1"}
    assert http.patch(f"/v1/providers/{provider['id']}", json=again).status_code == 200

    use_everywhere(http, provider)
    http.delete(f"/v1/providers/{provider['id']}")

    assert own_address.all_requests == []
    assert {row.headers["authorization"] for row in other_address.all_requests} == {
        "Bearer sk-another"
    }


def test_a_region_is_part_of_the_address(http: httpx.Client) -> None:
    fields = {"provider_type": "bedrock", "region": "eu-west-1", "access_key": "AKIA"}
    provider = create_provider(http, "regional", **fields)

    for change in ({}, {"api_key": "sk"}, {"access_key": "AK"}):
        body = {"region": "us-east-1"} | change
        refused = http.patch(f"/v1/providers/{provider['id']}", json=body)
        assert refused.status_code == 400, refused.text
        assert "api_key and access_key" in refused.json()["detail"]
    body = {"region": "us-east-1", "api_key": "sk", "access_key": "AK"}
    assert http.patch(f"/v1/providers/{provider['id']}", json=body).status_code == 200


@pytest.mark.parametrize("region", ["x.evil.example/", "eu@evil.example", "a b", "../x", "EU\\x"])
def test_a_region_cannot_name_a_host(http: httpx.Client, region: str) -> None:
    body = {"name": "aws", "provider_type": "bedrock", "api_key": "k", "region": region}
    assert http.post("/v1/providers/", json=body).status_code == 400
    assert http.post("/v1/providers/check", json=body).status_code == 400
