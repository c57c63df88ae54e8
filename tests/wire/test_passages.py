"""Passages of archives and agents, and the search for them (memory-v1 §1)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
from letta_client import (
    APIStatusError,
    BadRequestError,
    Letta,
    NotFoundError,
    UnprocessableEntityError,
)
from letta_client.types import Passage
from tests.support.server_process import ServerProcess
from tests.support.wire_archives import MakeArchive, archives_of_test
from tests.support.wire_server import connect

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow
both_databases = pytest.mark.both_databases

UNKNOWN_PASSAGE = "passage-99999999-9999-4999-8999-999999999999"
UNKNOWN_ARCHIVE = "archive-99999999-9999-4999-8999-999999999999"
UNKNOWN_AGENT = "agent-99999999-9999-4999-8999-999999999999"


@pytest.fixture
def make_archive(client: Letta) -> Iterator[MakeArchive]:
    with archives_of_test(client) as make:
        yield make


def texts(passages: list[Passage]) -> list[str]:
    return [passage.text for passage in passages]


def archive_texts(client: Letta, archive_id: str, **query: Any) -> list[str]:
    found = client.passages.search(archive_id=archive_id, **query)
    return [item.passage.text for item in found]


def agent_texts(client: Letta, agent_id: str, query: str, **filters: Any) -> list[str]:
    found = client.agents.passages.search(agent_id, query=query, **filters)
    return [result.content for result in found.results]


@both_databases
@pytest.mark.memory(16)
def test_a_passage_has_what_it_was_stored_with(client: Letta, make_archive: MakeArchive) -> None:
    archive = make_archive()

    passage = client.archives.passages.create(
        archive.id, text=" t\n", tags=["x", "y", "x"], metadata={"k": 1}
    )

    assert passage.id is not None
    assert passage.id.startswith("passage-")
    assert passage.text == " t\n"
    assert passage.archive_id == archive.id
    assert passage.tags == ["x", "y"]
    assert passage.metadata == {"k": 1}
    assert passage.embedding is None
    assert passage.embedding_config is None
    assert (passage.source_id, passage.file_id, passage.file_name) == (None, None, None)
    assert passage.is_deleted is False
    (found,) = client.passages.search(archive_id=archive.id)
    assert found.passage == passage


@both_databases
def test_the_same_text_twice_is_two_passages(client: Letta, make_archive: MakeArchive) -> None:
    archive = make_archive()

    ids = {client.archives.passages.create(archive.id, text="t").id for _ in range(2)}

    assert len(ids) == 2


@both_databases
def test_a_passage_shows_the_embedding_model_of_its_archive(
    client: Letta, make_archive: MakeArchive
) -> None:
    archive = make_archive(embedding="letta/letta-free")

    created = client.archives.passages.create(archive.id, text="t")
    (many,) = client.archives.passages.create_many(archive.id, passages=[{"text": "u"}])
    found = client.passages.search(query="t", archive_id=archive.id)[0].passage

    for passage in (created, many, found):
        assert passage.embedding is None
        assert passage.embedding_config is not None
        assert passage.embedding_config.handle == "letta/letta-free"


@both_databases
@pytest.mark.memory(17)
@pytest.mark.parametrize(
    ("given", "moment"),
    [
        ("2024-01-15T10:00:00Z", datetime(2024, 1, 15, 10, tzinfo=UTC)),
        ("2024-01-15T10:00:00+02:00", datetime(2024, 1, 15, 8, tzinfo=UTC)),
        ("2024-01-15", datetime(2024, 1, 15, tzinfo=UTC)),
        ("20240115T101112.123456", datetime(2024, 1, 15, 10, 11, 12, 123456, tzinfo=UTC)),
        ("2024-W03-1", datetime(2024, 1, 15, tzinfo=UTC)),
    ],
)
def test_every_form_of_a_date_is_kept_as_that_moment(
    client: Letta, make_archive: MakeArchive, make_agent: "MakeAgent", given: str, moment: datetime
) -> None:
    archive, agent = make_archive(), make_agent()

    one = client.archives.passages.create(archive.id, text="t", created_at=given)
    (other,) = client.agents.passages.create(agent.id, text="t", created_at=given)

    assert one.created_at == moment
    assert other.created_at == moment


@both_databases
@pytest.mark.memory(17)
@pytest.mark.parametrize(
    "given", ["yesterday", "2024-13-01", "0001-01-01T00:00:00+14:00", "9999-12-31", "1705312800"]
)
def test_what_is_no_date_is_refused(
    client: Letta, make_archive: MakeArchive, make_agent: "MakeAgent", given: str
) -> None:
    archive, agent = make_archive(), make_agent()

    with pytest.raises(APIStatusError) as refusal:
        client.archives.passages.create(archive.id, text="t", created_at=given)
    assert refusal.value.status_code == 422
    with pytest.raises(UnprocessableEntityError):
        client.agents.passages.create(agent.id, text="t", created_at=given)
    with pytest.raises(UnprocessableEntityError):
        client.agents.passages.search(agent.id, query="t", start_datetime=given)
    with pytest.raises(UnprocessableEntityError):
        client.passages.search(query="t", end_date=given)
    assert archive_texts(client, archive.id) == []


@both_databases
def test_an_empty_date_is_no_date(client: Letta, make_archive: MakeArchive) -> None:
    before = datetime.now(UTC) - timedelta(minutes=5)

    passage = client.archives.passages.create(make_archive().id, text="t", created_at="")

    assert passage.created_at is not None
    assert passage.created_at > before


@both_databases
@pytest.mark.memory(18)
def test_several_passages_are_stored_in_order_or_none_of_them(
    client: Letta, make_archive: MakeArchive
) -> None:
    archive = make_archive()

    stored = client.archives.passages.create_many(
        archive.id,
        passages=[
            {"text": "one", "tags": ["a"]},
            {"text": "two", "metadata": {"k": 2}},
            {"text": "three", "created_at": "2024-01-15"},
        ],
    )

    assert texts(stored) == ["one", "two", "three"]
    assert (stored[0].tags, stored[1].metadata) == (["a"], {"k": 2})
    assert stored[2].created_at == datetime(2024, 1, 15, tzinfo=UTC)
    refused: list[Any] = [
        {"text": "  "},
        {"text": "x" * 100_001},
        {"text": "x", "created_at": "never"},
    ]
    for wrong in refused:
        with pytest.raises(APIStatusError) as refusal:
            client.archives.passages.create_many(
                archive.id, passages=[{"text": "four"}, wrong, {"text": "six"}]
            )
        assert refusal.value.status_code in (400, 422)
    assert len(archive_texts(client, archive.id)) == 3
    assert client.archives.passages.create_many(archive.id, passages=[]) == []
    with pytest.raises(NotFoundError):
        client.archives.passages.create_many(UNKNOWN_ARCHIVE, passages=[{"text": "t"}])


@both_databases
def test_a_thousand_passages_can_be_stored_at_once_and_not_more(
    client: Letta, make_archive: MakeArchive
) -> None:
    archive = make_archive()
    items: list[Any] = [{"text": f"number {number}"} for number in range(1_001)]

    with pytest.raises(UnprocessableEntityError):
        client.archives.passages.create_many(archive.id, passages=items)
    stored = client.archives.passages.create_many(archive.id, passages=items[:1_000])

    assert texts(stored) == [item["text"] for item in items[:1_000]]
    long: list[Any] = [{"text": "x" * 99_999}] * 21
    with pytest.raises(UnprocessableEntityError, match="at most 2000000 characters together"):
        client.archives.passages.create_many(archive.id, passages=long)


@both_databases
@pytest.mark.memory(19)
def test_a_passage_is_deleted_from_its_own_archive(
    client: Letta, make_archive: MakeArchive
) -> None:
    archive, other = make_archive(), make_archive()
    passage_id = str(client.archives.passages.create(archive.id, text="t").id)

    with pytest.raises(BadRequestError, match="does not belong to archive"):
        client.archives.passages.delete(passage_id, archive_id=other.id)
    with pytest.raises(NotFoundError):
        client.archives.passages.delete(passage_id, archive_id=UNKNOWN_ARCHIVE)
    with pytest.raises(UnprocessableEntityError):
        client.archives.passages.delete("nope", archive_id=archive.id)
    client.archives.passages.delete(passage_id, archive_id=archive.id)
    with pytest.raises(NotFoundError):
        client.archives.passages.delete(passage_id, archive_id=archive.id)
    assert archive_texts(client, archive.id) == []


@both_databases
@pytest.mark.memory(20)
def test_storing_for_an_agent_answers_a_list_of_one(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent()

    stored = client.agents.passages.create(agent.id, text="t", tags=["a"])

    assert texts(stored) == ["t"]
    assert stored[0].tags == ["a"]
    with pytest.raises(NotFoundError):
        client.agents.passages.create(UNKNOWN_AGENT, text="t")


@both_databases
@pytest.mark.memory(21)
def test_the_passages_of_an_agent_are_listed_by_age(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent()
    dates = ["2024-01-02", "2024-01-04", "2024-01-01", "2024-01-03"]
    stored = {
        day: str(client.agents.passages.create(agent.id, text=day, created_at=day)[0].id)
        for day in dates
    }
    ordered = sorted(dates)

    def list_days(**query: Any) -> list[str]:
        return texts(client.agents.passages.list(agent.id, **query))

    assert list_days() == ordered
    assert list_days(ascending=False) == ordered[::-1]
    assert list_days(after=stored[ordered[1]]) == ordered[2:]
    assert list_days(after=stored[ordered[1]], ascending=False) == ordered[:1:-1]
    assert list_days(before=stored[ordered[2]]) == ordered[:2]
    assert list_days(before=stored[ordered[2]], ascending=False) == ordered[1::-1]
    assert list_days(limit=2) == ordered[:2]


@both_databases
def test_a_list_of_an_agent_refuses_what_it_cannot_do(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()

    assert client.agents.passages.list(agent.id) == []
    for limit in (0, -1, 1_001):
        with pytest.raises(UnprocessableEntityError):
            client.agents.passages.list(agent.id, limit=limit)
    with pytest.raises(NotFoundError, match=f"No Passage found with id {UNKNOWN_PASSAGE}"):
        client.agents.passages.list(agent.id, after=UNKNOWN_PASSAGE)
    with pytest.raises(BadRequestError):
        client.agents.passages.list(agent.id, before="nope")
    with pytest.raises(NotFoundError):
        client.agents.passages.list(UNKNOWN_AGENT)


@both_databases
@pytest.mark.memory(22)
def test_a_list_is_filtered_by_a_part_of_the_text(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent()
    for text in ("A fruit salad.", "Vegetables, 100%", "under_score", "ÄPFEL"):
        client.agents.passages.create(agent.id, text=text)

    def list_texts(search: str) -> list[str]:
        return texts(client.agents.passages.list(agent.id, search=search))

    assert list_texts("FRUIT") == ["A fruit salad."]
    assert list_texts("ruit sal") == ["A fruit salad."]
    assert list_texts("salad fruit") == []
    assert list_texts("%") == ["Vegetables, 100%"]
    assert list_texts("_") == ["under_score"]
    assert list_texts("äpfel") == ["ÄPFEL"]
    assert len(list_texts("")) == 4


@both_databases
@pytest.mark.memory(23)
def test_words_are_found_in_any_order_and_more_of_them_rank_higher(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    for text in ("Only a pie here.", "My pie has apple in it.", "Something else."):
        client.agents.passages.create(agent.id, text=text)

    assert agent_texts(client, agent.id, "apple pie recipe") == [
        "My pie has apple in it.",
        "Only a pie here.",
    ]


@both_databases
@pytest.mark.memory(24)
def test_a_blank_query_finds_nothing_in_the_memory_of_an_agent(
    client: Letta, make_agent: "MakeAgent", http: httpx.Client
) -> None:
    agent = make_agent()
    client.agents.passages.create(agent.id, text="t")

    found = client.agents.passages.search(agent.id, query="  ")

    assert (found.count, found.results) == (0, [])
    # The client does not send an empty one.
    empty = http.get(f"/v1/agents/{agent.id}/archival-memory/search?query=")
    assert empty.json() == {"results": [], "count": 0}


@both_databases
@pytest.mark.memory(25)
def test_results_tell_their_time_in_the_timezone_of_the_agent(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(timezone="America/Los_Angeles")
    for day, text in (("2026-01-29T20:44:04.123456Z", "one tart"), ("2026-07-01", "two tarts")):
        client.agents.passages.create(agent.id, text=text, created_at=day, tags=["p"])

    found = client.agents.passages.search(agent.id, query="tart")

    assert found.count == len(found.results) == 2
    assert {result.timestamp for result in found.results} == {
        "2026-01-29T12:44:04.123456-08:00",
        "2026-06-30T17:00:00-07:00",
    }
    assert all(
        result.id.startswith("passage-") and result.tags == ["p"] for result in found.results
    )


@both_databases
@pytest.mark.memory(26)
def test_tags_are_matched_before_the_best_are_chosen(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    for tags in (["a"], ["b"], ["a", "b"], []):
        client.agents.passages.create(agent.id, text=f"pie {''.join(tags)}", tags=tags)
    for _ in range(10):
        client.agents.passages.create(agent.id, text="pie pie")

    def search(**query: Any) -> list[str]:
        return sorted(agent_texts(client, agent.id, "pie", **query))

    assert search(tags=["a", "b"], tag_match_mode="any") == ["pie a", "pie ab", "pie b"]
    assert search(tags=["a", "b"], tag_match_mode="all") == ["pie ab"]
    assert search(tags=["A"]) == []
    assert search(tags=["a", "b"], tag_match_mode="all", top_k=1) == ["pie ab"]
    assert len(search()) == 10
    assert len(search(top_k=100)) == 14
    for top_k in (0, 101):
        with pytest.raises(UnprocessableEntityError):
            search(top_k=top_k)
    with pytest.raises(UnprocessableEntityError):
        search(tag_match_mode="some")


@both_databases
@pytest.mark.memory(27)
def test_the_end_of_a_search_covers_its_whole_day(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent(timezone="America/Los_Angeles")
    client.agents.passages.create(agent.id, text="pie", created_at="2026-01-15T18:00:00-08:00")

    def count(**query: Any) -> int:
        return len(agent_texts(client, agent.id, "pie", **query))

    assert count(end_datetime="2026-01-15") == 1
    assert count(end_datetime="2026-01-14") == 0
    assert count(start_datetime="2026-01-15T18:00") == 1
    assert count(start_datetime="2026-01-15T18:00:01") == 0
    assert count(end_datetime="2026-01-15T18:00") == 1
    assert count(end_datetime="2026-01-15T17:59") == 0
    # With an offset exactly this moment is meant.
    assert count(end_datetime="2026-01-16T00:00:00Z") == 0
    assert count(start_datetime="2026-01-16", end_datetime="2026-01-14") == 0


@both_databases
@pytest.mark.memory(28)
def test_an_agent_deletes_only_what_is_in_its_archives(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    agent, archive = make_agent(), make_archive()
    (own,) = client.agents.passages.create(agent.id, text="own")
    foreign = client.archives.passages.create(archive.id, text="foreign")

    answer: Any = client.agents.passages.delete(str(own.id), agent_id=agent.id)
    assert answer == {"message": f"Memory id={own.id} successfully deleted"}
    for passage_id in (str(own.id), str(foreign.id), UNKNOWN_PASSAGE, "nope"):
        with pytest.raises(NotFoundError, match=f"Passage with id {passage_id} not found"):
            client.agents.passages.delete(passage_id, agent_id=agent.id)
    assert archive_texts(client, archive.id) == ["foreign"]


@pytest.mark.memory(29)
def test_a_search_without_any_agent_answers_a_list(tmp_path: Path) -> None:
    server = ServerProcess.start(tmp_path)
    try:
        with connect(server.address) as client:
            assert list(client.agents.list()) == []
            assert client.passages.search(query="x") == []
            archive = client.archives.create(name="a")
            client.archives.passages.create(archive.id, text="x marks the spot")
            assert len(client.passages.search(query="x")) == 1
    finally:
        server.stop()


@both_databases
@pytest.mark.memory(30)
def test_what_a_search_finds_has_a_score_and_says_how_it_was_found(
    client: Letta, make_archive: MakeArchive
) -> None:
    archive = make_archive()
    for text in ("apple pie", "pie", "apple pie apple pie", "nothing"):
        client.archives.passages.create(archive.id, text=text)

    found = client.passages.search(query="apple pie", archive_id=archive.id)

    assert len(found) == 3
    scores = [item.score for item in found]
    assert all(type(score) is float for score in scores)
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(0.5 / 61)
    assert [item.metadata for item in found] == [
        {
            "combined_score": item.score,
            "vector_rank": None,
            "fts_rank": rank,
            "search_mode": "fts",
        }
        for rank, item in enumerate(found, 1)
    ]


@both_databases
@pytest.mark.memory(31)
def test_a_search_has_at_most_so_many_results(client: Letta, make_archive: MakeArchive) -> None:
    archive = make_archive()
    items: list[Any] = [{"text": f"pie {number}"} for number in range(10)]
    client.archives.passages.create_many(archive.id, passages=items)

    assert len(archive_texts(client, archive.id, query="pie", limit=3)) == 3
    assert len(archive_texts(client, archive.id, limit=3)) == 3
    for limit in (0, 101):
        with pytest.raises(UnprocessableEntityError):
            client.passages.search(query="pie", limit=limit)


@both_databases
@pytest.mark.memory(32)
def test_without_a_query_the_newest_come_first(client: Letta, make_archive: MakeArchive) -> None:
    one, two = make_archive(), make_archive()
    # Later than what other tests have stored.
    for archive, day in ((one, "2901-01-02"), (two, "2901-01-03"), (one, "2901-01-01")):
        client.archives.passages.create(archive.id, text=day, created_at=day)

    for query in ({}, {"query": None}, {"query": ""}):
        found = client.passages.search(**query)
        assert [item.passage.text for item in found][:3] == [
            "2901-01-03",
            "2901-01-02",
            "2901-01-01",
        ]
        moments = [item.passage.created_at for item in found]
        assert moments == sorted(moments, key=lambda at: at or datetime.now(UTC), reverse=True)
        assert {item.score for item in found} == {0.0}
        assert found[0].metadata is not None
        assert found[0].metadata["search_mode"] == "timestamp"


@both_databases
@pytest.mark.memory(33)
def test_a_search_is_limited_to_an_agent_or_to_an_archive(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    agent, archive = make_agent(), make_archive()
    word = uuid4().hex
    client.agents.passages.create(agent.id, text=f"{word} of the agent")
    client.archives.passages.create(archive.id, text=f"{word} elsewhere")

    def search(**scope: str) -> set[str]:
        found = client.passages.search(query=word, **scope)  # type: ignore[arg-type] # only the scope
        # Archives of other tests may have vectors, and something is always the nearest.
        texts = [item.passage.text for item in found if word in item.passage.text]
        return {text.removeprefix(f"{word} ") for text in texts}

    assert search() == {"of the agent", "elsewhere"}
    assert search(agent_id=agent.id) == {"of the agent"}
    assert search(archive_id=archive.id) == {"elsewhere"}
    assert search(agent_id=agent.id, archive_id=archive.id) == {"of the agent"}
    for scope in ({"agent_id": UNKNOWN_AGENT}, {"archive_id": UNKNOWN_ARCHIVE}):
        for query in ("x", ""):
            with pytest.raises(NotFoundError):
                client.passages.search(query=query, **scope)  # type: ignore[arg-type] # only the scope


@both_databases
def test_a_search_is_limited_by_tags_and_dates(client: Letta, make_archive: MakeArchive) -> None:
    archive = make_archive()
    for day, tags in (("2024-01-15T18:00:00Z", ["a"]), ("2024-01-16", ["a", "b"])):
        client.archives.passages.create(archive.id, text=f"pie {day}", tags=tags, created_at=day)

    def count(**query: Any) -> int:
        return len(archive_texts(client, archive.id, **query))

    for query in ({}, {"query": "pie"}):
        assert count(**query, tags=[]) == 2
        assert count(**query, tags=["a", "b"]) == 2
        assert count(**query, tags=["a", "b"], tag_match_mode="all") == 1
        assert count(**query, end_date="2024-01-15") == 1
        assert count(**query, end_date="2024-01-15T00:00:00Z") == 0
        assert count(**query, start_date="2024-01-16") == 1
        assert count(**query, start_date="2024-01-17", end_date="2024-01-14") == 0
    with pytest.raises(UnprocessableEntityError):
        client.passages.search(tag_match_mode="most")  # type: ignore[arg-type] # wrong on purpose


@both_databases
@pytest.mark.memory(36)
def test_nul_characters_are_left_out(
    client: Letta, make_archive: MakeArchive, make_agent: "MakeAgent"
) -> None:
    archive, agent = make_archive(), make_agent()

    one = client.archives.passages.create(
        archive.id, text="a\0b", tags=["t\0"], metadata={"k": "\0"}
    )
    (other,) = client.agents.passages.create(agent.id, text="\0c")

    assert (one.text, one.tags, one.metadata) == ("ab", ["t"], {"k": ""})
    assert other.text == "c"
    assert archive_texts(client, archive.id, query="a\0b") == ["ab"]
    with pytest.raises(UnprocessableEntityError):
        client.archives.passages.create(archive.id, text="\0\0")


@both_databases
def test_a_passage_that_is_too_large_is_refused_and_nothing_is_stored(
    client: Letta, make_archive: MakeArchive, make_agent: "MakeAgent"
) -> None:
    archive, agent = make_archive(), make_agent()
    text = "Archival memory content exceeds limit of 100000 characters \\(found 100001\\)"

    with pytest.raises(BadRequestError, match=text):
        client.archives.passages.create(archive.id, text="x" * 100_001)
    with pytest.raises(BadRequestError, match=text):
        client.agents.passages.create(agent.id, text="x" * 100_001)
    refused: list[dict[str, Any]] = [
        {"text": ""},
        {"text": " \n\t"},
        {"tags": [str(number) for number in range(65)]},
        {"tags": [str(number) for number in range(10_000)]},
        {"tags": ["x" * 201]},
        {"metadata": {"k": "x" * 65_536}},
    ]
    for fields in refused:
        with pytest.raises(UnprocessableEntityError):
            client.archives.passages.create(archive.id, **{"text": "t"} | fields)
    assert archive_texts(client, archive.id) == []
    # No archive was made for what was refused.
    assert list(client.archives.list(agent_id=agent.id)) == []


@both_databases
def test_the_largest_passage_is_stored_and_found(client: Letta, make_archive: MakeArchive) -> None:
    archive = make_archive()
    words = " ".join(f"w{number}" for number in range(20_000))[: 100_000 - 7]
    tags = ["é" * 199 + chr(64 + number) for number in range(64)]
    metadata: dict[str, object] = {"k": "x" * 65_000}

    passage = client.archives.passages.create(
        archive.id, text=f"needle {words}", tags=tags, metadata=metadata
    )

    assert len(passage.text) == 100_000
    assert (passage.tags, passage.metadata) == (tags, metadata)
    assert len(archive_texts(client, archive.id, query="needle", tags=tags[-1:])) == 1


@both_databases
@pytest.mark.parametrize(
    "query",
    [
        '"',
        "AND",
        "NEAR(a b)",
        "a:b",
        "*",
        "!@#$%^&*()",
        "'; DROP TABLE passages; --",
        "x" * 1_000_000,
    ],
    ids=["quote", "operator", "function", "column", "star", "signs", "statement", "megabyte"],
)
def test_no_query_is_an_error(client: Letta, make_archive: MakeArchive, query: str) -> None:
    archive = make_archive()
    client.archives.passages.create(archive.id, text='He said: "a" AND !@#$%^&*() b')

    assert isinstance(client.passages.search(query=query, archive_id=archive.id), list)


@both_databases
def test_a_body_without_its_text_is_refused(
    http: httpx.Client, make_archive: MakeArchive, make_agent: "MakeAgent"
) -> None:
    archive, agent = make_archive(), make_agent()
    bodies: list[Any] = [{}, {"text": None}, {"text": 1}, {"text": "t", "tags": "t"}, [], None]

    for path in (
        f"/v1/archives/{archive.id}/passages",
        f"/v1/agents/{agent.id}/archival-memory",
        f"/v1/archives/{archive.id}/passages/batch",
    ):
        for body in bodies:
            assert http.post(path, json=body).status_code == 422, (path, body)
    assert (
        http.post(
            f"/v1/archives/{archive.id}/passages", json={"text": "t", "created_at": 5}
        ).status_code
        == 422
    )
    assert http.get(f"/v1/agents/{agent.id}/archival-memory/search").status_code == 422
