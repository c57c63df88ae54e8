"""Bodies that are not what they should be: always a 4xx that says why."""

from typing import Any
from unittest.mock import patch

import pytest
from httpx import AsyncClient, Response

from holdfast.http.letta_v1.to_wire import validation

JSON = {"content-type": "application/json"}


async def _post(client: AsyncClient, raw: bytes) -> Response:
    return await client.post("/v1/blocks/", content=raw, headers=JSON)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"label": "a", "value": ',
        b"{]",
        b"\xff\xfe",
        b'{"label": "a", "value": "\xed\xa0\x80"}',
        b'{"label": "a", "value": NaN}',
        b'{"label": "a", "value": "x", "limit": 1e999}',
        b'{"label": "a", "value": "raw \x00 nul"}',
    ],
)
async def test_what_is_not_json_is_a_validation_error(client: AsyncClient, raw: bytes) -> None:
    answer = await _post(client, raw)
    assert answer.status_code == 422
    assert answer.json()["trace_id"] == ""
    assert "json_invalid" in answer.json()["detail"]


@pytest.mark.parametrize("escape", [r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\ud83dx"])
async def test_a_lone_surrogate_is_a_validation_error(client: AsyncClient, escape: str) -> None:
    raw = f'{{"label": "a", "value": "some text {escape} and more"}}'
    answer = await _post(client, raw.encode())
    assert answer.status_code == 422
    assert "surrogate" in answer.json()["detail"]


async def test_a_surrogate_pair_is_one_character(client: AsyncClient) -> None:
    answer = await _post(client, rb'{"label": "a", "value": "\ud83d\ude00"}')
    assert answer.json()["value"] == "😀"


@pytest.mark.parametrize("depth", [101, 900, 90_000])
async def test_nesting_has_a_limit(client: AsyncClient, depth: int) -> None:
    raw = b'{"label": "a", "value": "", "metadata": {"a": ' + b"[" * depth + b"]" * depth + b"}}"
    answer = await _post(client, raw)
    assert answer.status_code == 422
    assert "nested deeper than 100 levels" in answer.json()["detail"]


async def test_a_wide_body_is_not_a_deep_one(client: AsyncClient) -> None:
    raw = b'{"label": "a", "value": "", "metadata": {"a": [' + b"{}," * 5000 + b"[]]}}"
    answer = await _post(client, raw)
    assert len(answer.json()["metadata"]["a"]) == 5001


async def test_nul_is_taken_out_of_every_text(client: AsyncClient) -> None:
    raw = rb'{"label": "a", "value": "a\u0000b", "tags": ["\u0000t"], "metadata": {"k\u0000": ["\u0000"]}}'
    answer = await _post(client, raw)
    block = answer.json()
    assert (block["value"], block["tags"], block["metadata"]) == ("ab", ["t"], {"k": [""]})


async def test_a_backslash_before_u0000_is_not_a_nul(client: AsyncClient) -> None:
    answer = await _post(client, rb'{"label": "a", "value": "\\u0000"}')
    assert answer.json()["value"] == "\\u0000"


@pytest.mark.parametrize("path", ["/v1/tools/?name=%00", "/v1/tools/%00", "/v1/tags/?after=a%00b"])
async def test_nul_in_an_address_is_refused(client: AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 422


async def test_ten_megabytes_of_text_come_back_whole(client: AsyncClient) -> None:
    text = "å" * 5_000_000
    answer = await client.post("/v1/agents/", json={"description": text})
    assert answer.status_code == 200
    found = await client.get(f"/v1/agents/{answer.json()['id']}")
    assert found.json()["description"] == text


async def test_an_error_repeats_only_the_beginning_of_a_long_value(client: AsyncClient) -> None:
    answer = await client.post("/v1/blocks/", json={"label": "a b" * 1_000_000, "value": ""})
    assert answer.status_code == 422
    assert len(answer.content) < 2_000


LONG = "x y" * 1_000_000
IMAGE = {"type": "image", "source": {"type": "base64", "data": "AAAA", "media_type": LONG}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/agents/{agent}/messages", {"messages": [{"type": LONG, "content": "x"}]}),
        ("/v1/agents/{agent}/messages", {"input": [{"type": "image", "source": {"type": LONG}}]}),
        ("/v1/agents/{agent}/messages", {"input": [IMAGE]}),
        ("/v1/agents/", {"tool_rules": [{"type": LONG, "tool_name": "x"}]}),
        ("/v1/agents/", {"tool_rules": [{LONG: LONG}]}),
        ("/v1/agents/", {"timezone": LONG}),
        ("/v1/agents/", {"model": LONG}),
    ],
    ids=["type", "nested type", "media type", "rule", "name", "timezone", "model"],
)
async def test_no_refusal_repeats_a_long_value(
    client: AsyncClient, path: str, body: dict[str, Any]
) -> None:
    agent = (await client.post("/v1/agents/", json={})).json()["id"]
    answer = await client.post(path.format(agent=agent), json=body)
    assert answer.status_code in (400, 422)
    assert len(answer.content) < 5_000


def test_a_long_text_within_a_refused_value_is_not_written_out() -> None:
    fault = {"type": "list_type", "loc": ("body",), "msg": "No.", "input": [{"a": [LONG]}]}
    with patch.object(validation, "repr", side_effect=AssertionError, create=True):
        assert "list with 1 entries" in validation.describe_faults([fault])


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'"text"', b"1"])
async def test_a_body_of_another_shape_is_a_validation_error(
    client: AsyncClient, raw: bytes
) -> None:
    assert (await _post(client, raw)).status_code == 422


async def test_a_body_without_a_content_type_is_json(client: AsyncClient) -> None:
    answer = await client.post("/v1/blocks/", content=b'{"label": "a", "value": "v"}')
    assert answer.status_code == 200


async def test_a_body_of_another_content_type_is_a_validation_error(client: AsyncClient) -> None:
    answer = await client.post(
        "/v1/blocks/",
        content=b'{"label": "a", "value": "v"}',
        headers={"content-type": "text/plain"},
    )
    assert answer.status_code == 422
