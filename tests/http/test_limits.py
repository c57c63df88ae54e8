"""Every list and map of a request has a maximum. One entry more is refused at once, with a short sentence."""

import json
import re
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.request_bodies import Field, RequestFields

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core import passages
from holdfast.core.archives import MAX_DESCRIPTION_CHARS
from holdfast.core.blocks import MAX_VALUE_CHARS
from holdfast.core.identities import MAX_PROPERTIES, MAX_PROPERTIES_BYTES
from holdfast.core.json_depth import MAX_DEPTH
from holdfast.core.tool_source import MAX_SOURCE_CHARS
from holdfast.http import body_warnings, json_body
from holdfast.http.json_body import MAX_BYTES_ON_LOOP, MAX_VALUES, has_more_values
from holdfast.http.json_response import list_response
from holdfast.http.letta_v1.parameters.paging import MAX_LIMIT
from holdfast.http.letta_v1.schemas import limits
from holdfast.http.letta_v1.schemas.names import MAX_NAME_CHARS
from holdfast.http.letta_v1.schemas.passages import MAX_FOUND
from holdfast.ports.services import Services
from holdfast.usecases.agent_forms import MAX_SECRET_CHARS

ROOT = Path(__file__).parents[2]
UUID = "123e4567-e89b-42d3-8456-426614174000"
ID_KINDS = {"conversation_id": "conv"}

DESCRIPTIONS = {
    "MAX_MESSAGES": "messages in one send, or of a new agent",
    "MAX_CONTENT_PARTS": "parts of a message or tool result",
    "MAX_APPROVALS": "approvals or tool results in one item",
    "MAX_OUTPUT_LINES": "lines of `stdout` or `stderr` of a tool result",
    "MAX_CLIENT_TOOLS": "`client_tools` of a send",
    "MAX_TOOLS": "tools of an agent in one request",
    "MAX_BLOCKS": "blocks of an agent in one request",
    "MAX_TOOL_RULES": "tool rules of an agent",
    "MAX_RULE_CHILDREN": "tools that one tool rule names",
    "MAX_TAGS": "tags",
    "MAX_BLOCK_TAGS": "tags of all blocks of a new agent together",
    "MAX_SECRETS": "secrets of an agent, or variables of a tool run",
    "MAX_REQUIREMENTS": "`pip_requirements` or `npm_requirements` of a tool in one request",
    "MAX_MESSAGE_IDS": "`message_ids` of an agent",
    "MAX_NAMES": "entries of any other list of names or ids, and values of one query parameter",
    "MAX_OBJECT_KEYS": "keys of an object such as `metadata`, `json_schema` or `args`",
}
OTHER_LIMITS = {
    "names and values of a body, at every level together": MAX_VALUES,
    "levels of nesting": MAX_DEPTH,
    "entries of a page (`limit`)": MAX_LIMIT,
    "characters of a tool's source": MAX_SOURCE_CHARS,
    "characters of an agent's secrets together": MAX_SECRET_CHARS,
    "characters of a memory block or its description": MAX_VALUE_CHARS,
    "characters of a passage (400)": passages.MAX_TEXT_CHARS,
    "tags of a passage": passages.MAX_TAGS,
    "characters of a tag of a passage": passages.MAX_TAG_CHARS,
    "keys of a passage's `metadata`": passages.MAX_METADATA_KEYS,
    "bytes of a passage's `metadata`": passages.MAX_METADATA_BYTES,
    "passages stored at once": passages.MAX_PASSAGES_AT_ONCE,
    "characters of passages stored at once": passages.MAX_CHARS_AT_ONCE,
    "passages that a search returns": MAX_FOUND,
    "characters of an archive's name": MAX_NAME_CHARS,
    "characters of an archive's description": MAX_DESCRIPTION_CHARS,
    "characters of an identity's key or name": MAX_NAME_CHARS,
    "properties of an identity": MAX_PROPERTIES,
    "bytes of an identity's properties together": MAX_PROPERTIES_BYTES,
}


@pytest.fixture
def fields(app: FastAPI) -> RequestFields:
    return RequestFields(app.openapi())


def example_path(path: str) -> str:
    """The path with ids that are well-formed and unknown."""

    def replace(found: re.Match[str]) -> str:
        name = found[1]
        return f"{ID_KINDS.get(name, name.removesuffix('_id'))}-{UUID}"

    return re.sub(r"\{(\w+)\}", replace, path)


async def send(client: AsyncClient, field: Field, count: int) -> Any:
    return await client.request(field.method, example_path(field.path), json=field.body(count))


def test_every_list_and_map_of_a_request_has_a_maximum(fields: RequestFields) -> None:
    found = [*fields.in_bodies(), *fields.in_queries()]
    assert len(found) > 100
    assert [str(field) for field in found if field.maximum is None] == []


async def test_one_entry_more_than_the_maximum_is_refused(
    fields: RequestFields, client: AsyncClient
) -> None:
    # The paths to messages have the same body.
    unique = {
        f"{field.method} {field.path.replace('/stream', '').replace('/async', '')} {field.name}": field
        for field in fields.in_bodies()
    }
    for field in unique.values():
        assert field.maximum is not None
        answer = await send(client, field, field.maximum + 1)
        assert answer.status_code == 422, f"{field}: {answer.status_code} {answer.text[:300]}"
        assert str(field.maximum) in answer.text, field
        assert field.name.removesuffix("[]").rsplit(".", 1)[-1] in answer.text, field
        assert len(answer.content) < 10_000, field


async def test_so_many_values_of_a_query_parameter_are_refused(client: AsyncClient) -> None:
    answer = await client.get("/v1/agents/", params={"tags": ["x"] * (limits.MAX_NAMES + 1)})
    assert answer.status_code == 422
    assert "1000" in answer.text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/agents/", "query_text"),
        ("/v1/agents/count", "query_text"),
        ("/v1/blocks/", "value_search"),
        ("/v1/tools/", "search"),
    ],
)
async def test_a_search_text_that_is_too_long_is_refused(
    client: AsyncClient, path: str, name: str
) -> None:
    await client.post("/v1/agents/", json={"memory_blocks": [{"label": "a", "value": "b"}]})
    answer = await client.get(path, params={name: "x" * 50_000})
    assert answer.status_code == 400, answer.text
    assert "too long" in answer.json()["detail"]


async def test_the_tags_of_new_blocks_are_counted_together(client: AsyncClient) -> None:
    blocks = [
        {"label": f"b{n}", "value": "", "tags": [str(m) for m in range(101)]} for n in range(100)
    ]
    answer = await client.post("/v1/agents/", json={"memory_blocks": blocks})
    assert answer.status_code == 422
    assert "at most 10000 tags together" in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {f"k{number}": number for number in range(300_000)}},
        {"metadata": {"nested": {"deeper": [[]] * 300_000}}},
        {"tags": [f"t{number}" for number in range(1_000_000)]},
        {"unknown": [{"a": 1}] * 100_000},
    ],
    ids=["metadata", "nested metadata", "tags", "unknown field"],
)
async def test_a_body_with_too_many_values_is_refused_before_it_is_decoded(
    client: AsyncClient, body: Any
) -> None:
    with patch.object(json_body, "_decoder") as decoder:
        answer = await client.post("/v1/blocks/", json={"label": "a", "value": "", **body})
    assert answer.status_code == 422
    assert f"more than {MAX_VALUES} names and values" in answer.text
    assert len(answer.content) < 1_000
    decoder.decode.assert_not_called()


async def test_a_long_text_with_every_kind_of_mark_is_accepted(client: AsyncClient) -> None:
    text = '{"a": [1, 2], "b": "\\"\\\\"}, ' * 30_000
    body = {"label": "a", "value": text, "limit": len(text)}
    answer = await client.post("/v1/blocks/", json=body)
    assert answer.status_code == 200
    assert answer.json()["value"] == text


async def test_a_large_body_is_checked_like_a_small_one(client: AsyncClient) -> None:
    padding = "x" * MAX_BYTES_ON_LOOP
    for value in ("", padding):
        refused = await client.post("/v1/blocks/", json={"label": "no label!", "value": value})
        assert refused.status_code == 422
        assert "string_pattern_mismatch" in refused.text
        warned = await client.post("/v1/blocks/", json={"label": "a", "value": value, "limitt": 1})
        assert "Did you mean limit?" in warned.json()["warnings"][0]
        assert warned.json()["value"] == value


async def test_only_some_unknown_names_are_compared_with_the_known_ones(
    client: AsyncClient,
) -> None:
    unknown = {f"something_else_{number}": 1 for number in range(20_000)}
    with patch.object(body_warnings, "get_close_matches", return_value=[]) as compare:
        answer = await client.post("/v1/blocks/", json={"label": "a", "value": "", **unknown})
    assert answer.status_code == 200
    assert compare.call_count == 100


async def test_a_request_that_writes_for_too_long_is_undone(
    client: AsyncClient, services: Services
) -> None:
    assert isinstance(services.store, SqliteStore)
    services.store._write_seconds = -1
    answer = await client.post("/v1/blocks/", json={"label": "a", "value": ""})
    assert answer.status_code == 503
    assert "nothing is stored" in answer.json()["detail"]
    # The SDK would only send the same again.
    assert answer.headers["x-should-retry"] == "false"
    assert (await client.get("/v1/blocks/")).json() == []


async def test_lists_are_converted_beside_the_event_loop() -> None:
    """An agent is shown with up to a thousand blocks: a page of sixty of them takes a second."""
    threads = set()

    def convert(number: int) -> int:
        threads.add(threading.current_thread())
        return number

    answer = await list_response(range(20), convert)
    assert json.loads(bytes(answer.body)) == list(range(20))
    assert threading.main_thread() not in threads


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab,:[]{}"\\\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a,{"\\'), inner),
)


@settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
@given(JSON, st.booleans())
def test_names_and_values_are_counted_outside_of_strings(value: Any, compact: bool) -> None:
    raw = json.dumps(value, separators=(",", ":") if compact else None).encode()
    assert not has_more_values(raw, count_values(value))
    assert count_values(value) == 0 or has_more_values(raw, count_values(value) - 1)


def count_values(value: Any) -> int:
    """The names and values within; an empty list or object counts as one."""
    if isinstance(value, dict):
        return max(1, 2 * len(value)) + sum(map(count_values, value.values()))
    if isinstance(value, list):
        return max(1, len(value)) + sum(map(count_values, value))
    return 0


def limits_table() -> str:
    """The table of docs/configuration.md. If it differs, paste this text into the page."""
    named = {DESCRIPTIONS[name]: getattr(limits, name) for name in DESCRIPTIONS}
    rows = [f"| {text} | {number} |" for text, number in (named | OTHER_LIMITS).items()]
    return "\n".join(["| what | at most |", "|---|---|", *rows])


def test_the_limits_are_documented() -> None:
    names = [name for name in vars(limits) if name.startswith("MAX_")]
    assert names == list(DESCRIPTIONS)
    assert limits_table() in (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
