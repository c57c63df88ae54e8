"""What an answer to a search tells beside what was found."""

import json
from unittest.mock import patch

from httpx import AsyncClient

from holdfast.usecases import archive_search
from holdfast.usecases.passage_search import PassageSearch

UNUSED = ("The embedding provider of openai/x did not answer: searched by words only.", "Ünd.")


async def make_agent(client: AsyncClient) -> str:
    return str((await client.post("/v1/agents/", json={})).json()["id"])


async def search_nothing(*_: object) -> PassageSearch:
    return PassageSearch(found=(), mode="fts", unused=UNUSED)


async def test_what_a_search_could_not_use_is_told_in_the_answer(client: AsyncClient) -> None:
    agent_id = await make_agent(client)
    with patch.object(archive_search, "search", search_nothing):
        everywhere = await client.post("/v1/passages/search", json={"query": "x"})
        of_agent = await client.get(
            f"/v1/agents/{agent_id}/archival-memory/search", params={"query": "x"}
        )

    assert everywhere.json() == []
    assert tuple(json.loads(everywhere.headers["x-holdfast-warnings"])) == UNUSED
    assert of_agent.json() == {"results": [], "count": 0, "warnings": [*UNUSED]}
    assert int(of_agent.headers["content-length"]) == len(of_agent.content)


async def test_warnings_about_the_search_and_about_the_request_are_told_together(
    client: AsyncClient,
) -> None:
    with patch.object(archive_search, "search", search_nothing):
        answer = await client.post("/v1/passages/search", json={"query": "x", "archiveId": "y"})

    first, second, third = json.loads(answer.headers["x-holdfast-warnings"])
    assert (first, second) == UNUSED
    assert "Did you mean archive_id?" in third


async def test_a_search_that_used_everything_has_no_warnings(client: AsyncClient) -> None:
    agent_id = await make_agent(client)
    everywhere = await client.post("/v1/passages/search", json={"query": "x"})
    of_agent = await client.get(
        f"/v1/agents/{agent_id}/archival-memory/search", params={"query": "x"}
    )

    assert "x-holdfast-warnings" not in everywhere.headers
    assert of_agent.json() == {"results": [], "count": 0}


async def test_a_part_of_a_text_that_is_too_long_is_refused(client: AsyncClient) -> None:
    """SQLite looks for a part of a text only up to a length."""
    agent_id = await make_agent(client)
    path = f"/v1/agents/{agent_id}/archival-memory"
    await client.post(path, json={"text": "t"})

    answer = await client.get(path, params={"search": "-" * 50_000})

    assert answer.status_code == 400
    assert "too long" in answer.json()["detail"]


async def test_of_a_query_without_words_only_the_beginning_counts(client: AsyncClient) -> None:
    agent_id = await make_agent(client)
    path = f"/v1/agents/{agent_id}/archival-memory"
    await client.post(path, json={"text": "-" * 1_000})
    await client.post(path, json={"text": "-" * 999})

    answer = await client.get(f"{path}/search", params={"query": "-" * 50_000})

    assert [item["content"] for item in answer.json()["results"]] == ["-" * 1_000]
