"""What passages can do beyond V1: read and list them by archive, delete many, and store a text once (memory-v1 §1)."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import Letta
from tests.support.wire_archives import MakeArchive, archives_of_test

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

UNKNOWN_ARCHIVE = "archive-99999999-9999-4999-8999-999999999999"
UNKNOWN_PASSAGE = "passage-99999999-9999-4999-8999-999999999999"


@pytest.fixture
def make_archive(client: Letta) -> Iterator[MakeArchive]:
    with archives_of_test(client) as make:
        yield make


def add(client: Letta, archive_id: str, *items: dict[str, Any]) -> list[str]:
    stored = client.archives.passages.create_many(archive_id, passages=items)  # type: ignore[arg-type] # plain dicts
    return [str(passage.id) for passage in stored]


def list_texts(http: httpx.Client, archive_id: str, **query: Any) -> list[str]:
    answer = http.get(f"/v1/archives/{archive_id}/passages", params=query)
    assert answer.status_code == 200, answer.text
    return [passage["text"] for passage in answer.json()]


def test_the_passages_of_an_archive_are_listed(
    client: Letta, make_archive: MakeArchive, http: httpx.Client
) -> None:
    archive, other = make_archive(), make_archive()
    items = [{"text": str(day), "created_at": f"2024-01-0{day}"} for day in range(1, 6)]
    items[1]["tags"] = ["t"]  # type: ignore[assignment] # an item has more than texts
    ids = add(client, archive.id, *items)
    add(client, other.id, {"text": "elsewhere"})

    assert list_texts(http, archive.id) == ["5", "4", "3", "2", "1"]
    assert list_texts(http, archive.id, order="asc", limit=2) == ["1", "2"]
    assert list_texts(http, archive.id, limit=2, after=ids[3]) == ["3", "2"]
    assert list_texts(http, archive.id, limit=2, before=ids[0]) == ["3", "2"]
    assert list_texts(http, archive.id, tag="t") == ["2"]
    assert list_texts(http, archive.id, start_date="2024-01-02", end_date="2024-01-03") == [
        "3",
        "2",
    ]
    path = f"/v1/archives/{archive.id}/passages"
    assert http.get(path, params={"after": UNKNOWN_PASSAGE}).status_code == 404
    assert http.get(path, params={"limit": 0}).status_code == 422
    assert http.get(f"/v1/archives/{UNKNOWN_ARCHIVE}/passages").status_code == 404


def test_one_passage_is_read_from_its_archive(
    client: Letta, make_archive: MakeArchive, http: httpx.Client
) -> None:
    archive, other = make_archive(), make_archive()
    (passage_id,) = add(client, archive.id, {"text": "t", "tags": ["a"], "metadata": {"k": 1}})

    found = http.get(f"/v1/archives/{archive.id}/passages/{passage_id}").json()

    assert (found["text"], found["tags"], found["metadata"]) == ("t", ["a"], {"k": 1})
    assert "run_id" not in found
    assert http.get(f"/v1/archives/{other.id}/passages/{passage_id}").status_code == 400
    assert http.get(f"/v1/archives/{archive.id}/passages/{UNKNOWN_PASSAGE}").status_code == 404
    assert http.get(f"/v1/archives/{archive.id}/passages/nope").status_code == 422


def test_passages_are_deleted_by_tag_and_date(
    client: Letta, make_archive: MakeArchive, http: httpx.Client
) -> None:
    archive, other = make_archive(), make_archive()
    for target in (archive, other):
        add(
            client,
            target.id,
            {"text": "old", "created_at": "2023-05-01", "tags": ["a"]},
            {"text": "late on the day", "created_at": "2024-01-15T18:00:00Z", "tags": ["b"]},
            {"text": "new", "created_at": "2024-02-01", "tags": ["a", "b"]},
            {"text": "plain", "created_at": "2024-02-02"},
        )

    def delete(**query: Any) -> int:
        answer = http.delete(f"/v1/archives/{archive.id}/passages", params=query)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["deleted"])

    assert delete(tag="unknown") == 0
    assert delete(tag="a", end_date="2023-12-31") == 1
    assert delete(start_date="2024-01-15", end_date="2024-01-15") == 1
    assert list_texts(http, archive.id) == ["plain", "new"]
    assert delete(tag=["b", "x"]) == 1
    assert delete(start_date="2024-02-02T00:00:00Z") == 1
    assert list_texts(http, archive.id) == []
    assert len(list_texts(http, other.id)) == 4


def test_deleting_needs_to_be_told_what(
    client: Letta, make_archive: MakeArchive, http: httpx.Client
) -> None:
    archive = make_archive()
    add(client, archive.id, {"text": "t"})

    for query in ({}, {"start_date": ""}):
        for path in (
            f"/v1/archives/{archive.id}/passages",
            f"/v1/archives/{archive.id}/passages/",
        ):
            answer = http.delete(path, params=query)
            assert answer.status_code == 400
            assert "Name a tag, start_date or end_date" in answer.json()["detail"]
    bad = http.delete(f"/v1/archives/{archive.id}/passages", params={"start_date": "soon"})
    assert bad.status_code == 422
    gone = http.delete(f"/v1/archives/{UNKNOWN_ARCHIVE}/passages", params={"tag": "t"})
    assert gone.status_code == 404
    assert list_texts(http, archive.id) == ["t"]


def test_more_passages_than_one_transaction_deletes_are_deleted(
    client: Letta, make_archive: MakeArchive, http: httpx.Client
) -> None:
    archive = make_archive()
    for _ in range(2):
        add(client, archive.id, *({"text": f"t{n}", "tags": ["t"]} for n in range(700)))

    answer = http.delete(f"/v1/archives/{archive.id}/passages", params={"tag": "t"})

    assert answer.json() == {"deleted": 1_400}
    assert list_texts(http, archive.id) == []


def test_an_archive_that_deduplicates_stores_a_text_once(
    client: Letta, http: httpx.Client, make_archive: MakeArchive, make_agent: "MakeAgent"
) -> None:
    made = http.post("/v1/archives/", json={"name": "once", "deduplicate": True}).json()
    agent = make_agent()
    client.agents.archives.attach(made["id"], agent_id=agent.id)
    assert made["deduplicate"] is True

    first = client.archives.passages.create(made["id"], text="Anna likes  tea.", tags=["a"])
    again = client.archives.passages.create(made["id"], text="anna likes tea. ", tags=["b"])
    (by_agent,) = client.agents.passages.create(agent.id, text="ANNA likes tea.")
    many = client.archives.passages.create_many(
        made["id"], passages=[{"text": "new"}, {"text": "Anna likes tea."}, {"text": "NEW"}]
    )

    assert again == by_agent == many[1] == first
    assert many[0].id == many[2].id
    assert len(list_texts(http, made["id"])) == 2
    # The request decides, if it says anything.
    body = {"text": "Anna likes tea.", "deduplicate": False}
    copy = http.post(f"/v1/archives/{made['id']}/passages", json=body).json()
    assert copy["id"] != first.id
    # And the archive can be changed.
    changed = http.patch(f"/v1/archives/{made['id']}", json={"deduplicate": False}).json()
    assert (changed["deduplicate"], changed["name"]) == (False, "once")
    assert client.archives.passages.create(made["id"], text="new").id != many[0].id
    client.archives.delete(made["id"])


def test_a_request_may_ask_for_a_text_to_be_stored_once(
    client: Letta, http: httpx.Client, make_archive: MakeArchive, make_agent: "MakeAgent"
) -> None:
    archive, agent = make_archive(), make_agent()
    client.agents.archives.attach(archive.id, agent_id=agent.id)
    first = client.archives.passages.create(archive.id, text="t")

    one = http.post(f"/v1/archives/{archive.id}/passages", json={"text": "T", "deduplicate": True})
    many = http.post(
        f"/v1/archives/{archive.id}/passages/batch",
        json={"passages": [{"text": "t"}], "deduplicate": True},
    )
    own = http.post(
        f"/v1/agents/{agent.id}/archival-memory", json={"text": "t", "deduplicate": True}
    )

    assert one.json()["id"] == many.json()[0]["id"] == own.json()[0]["id"] == first.id
    assert client.archives.passages.create(archive.id, text="t").id != first.id


def test_the_same_text_from_ten_clients_at_once_is_stored_once(
    http: httpx.Client, make_archive: MakeArchive
) -> None:
    archive = make_archive()
    body = {"text": "The same.", "deduplicate": True}

    with ThreadPoolExecutor(10) as pool:
        path = f"/v1/archives/{archive.id}/passages"
        ids = {*pool.map(lambda _: http.post(path, json=body).json()["id"], range(10))}

    assert len(ids) == 1
    assert list_texts(http, archive.id) == ["The same."]


@pytest.mark.parametrize(("unit", "status"), [("B", 200), ("TB", 200), (None, 200), ("PB", 400)])
def test_the_size_of_all_vectors_is_a_number(
    http: httpx.Client, unit: str | None, status: int
) -> None:
    headers = {} if unit is None else {"storage_unit": unit}
    answer = http.get("/v1/embeddings/total_storage_size", headers=headers)

    assert answer.status_code == status
    assert status != 200 or isinstance(answer.json(), float)


def test_a_misspelled_field_of_a_search_is_told_in_a_header(http: httpx.Client) -> None:
    answer = http.post("/v1/passages/search", json={"query": "x", "archiveId": "y"})

    assert answer.status_code == 200
    # There may be others, about archives of other tests.
    warnings = json.loads(answer.headers["x-holdfast-warnings"])
    assert ["Did you mean archive_id?" in warning for warning in warnings].count(True) == 1
