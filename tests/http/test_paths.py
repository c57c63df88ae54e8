"""Both spellings of a path work without a redirect (wire-v1 §1.6)."""

import pytest
from fastapi import FastAPI
from httpx import AsyncClient

from holdfast.http.letta_v1.wire import LETTA_V1
from holdfast.http.paths import canonical_path


@pytest.mark.parametrize(
    "path", ["/v1/tools", "/v1/blocks", "/v1/models", "/v1/tags", "/v1/agents"]
)
async def test_a_collection_answers_with_and_without_its_slash(
    client: AsyncClient, path: str
) -> None:
    assert (await client.get(path)).status_code == 200
    assert (await client.get(f"{path}/")).status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1/models/embedding", "/v1/tools/count", "/docs", "/openapi.json"]
)
async def test_everything_else_too(client: AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 200
    assert (await client.get(f"{path}/")).status_code == 200


async def test_a_body_arrives_at_either_spelling(client: AsyncClient) -> None:
    for path in ("/v1/blocks", "/v1/blocks/"):
        answer = await client.post(path, json={"label": "a", "value": "v"})
        assert answer.status_code == 200


async def test_every_route_is_spelled_as_requests_are_rewritten(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    assert [path for path in paths if canonical_path(path, LETTA_V1) != path] == []
