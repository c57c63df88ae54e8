"""Archives, and which agents have them (memory-v1 §1)."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
from letta_client import BadRequestError, Letta, NotFoundError, UnprocessableEntityError
from tests.support.client_objects import as_dict
from tests.support.wire_archives import MakeArchive, archives_of_test

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

UNKNOWN_ARCHIVE = "archive-99999999-9999-4999-8999-999999999999"
UNKNOWN_AGENT = "agent-99999999-9999-4999-8999-999999999999"
UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture
def make_archive(client: Letta) -> Iterator[MakeArchive]:
    with archives_of_test(client) as make:
        yield make


def archive_ids(client: Letta, **query: Any) -> list[str]:
    return [archive.id for archive in client.archives.list(**query).items]


def texts(client: Letta, agent_id: str) -> list[str]:
    return [passage.text for passage in client.agents.passages.list(agent_id)]


@pytest.mark.memory(1)
def test_an_archive_needs_nothing_but_a_name(client: Letta, make_archive: MakeArchive) -> None:
    archive = make_archive(name="a")

    assert re.fullmatch(f"archive-{UUID4}", archive.id)
    assert archive.name == "a"
    assert archive.created_at.tzinfo is not None
    assert archive.vector_db_provider == "native"
    assert archive.embedding_config is None
    assert archive.description is None
    assert archive.metadata == {}
    assert as_dict(client.archives.retrieve(archive.id)) == as_dict(archive)


@pytest.mark.memory(2)
def test_a_name_may_be_used_twice_and_finds_exactly_those(
    client: Letta, make_archive: MakeArchive
) -> None:
    name = f"a{uuid4().hex}"
    two = {make_archive(name=name).id, make_archive(name=name).id}

    assert len(two) == 2
    assert {*archive_ids(client, name=name)} == two
    assert archive_ids(client, name=name.upper()) == []
    assert archive_ids(client, name=name[:-1]) == []


@pytest.mark.memory(3)
def test_an_update_changes_only_what_it_names(client: Letta, make_archive: MakeArchive) -> None:
    archive = make_archive(name="a")

    described = client.archives.update(archive.id, description="d")
    assert (described.name, described.description) == ("a", "d")
    renamed = client.archives.update(archive.id, name="b")
    assert (renamed.name, renamed.description) == ("b", "d")
    assert client.archives.update(archive.id, description="").description == ""
    assert client.archives.update(archive.id, name=None).name == "b"
    assert as_dict(client.archives.retrieve(archive.id))["name"] == "b"


@pytest.mark.memory(4)
def test_an_embedding_model_that_nobody_offers_is_kept_and_shown(
    client: Letta, make_archive: MakeArchive
) -> None:
    known = make_archive(embedding="openai/text-embedding-3-small").embedding_config
    large = make_archive(embedding="openai/text-embedding-3-large").embedding_config
    foreign = make_archive(embedding="letta/letta-free").embedding_config

    assert known is not None
    assert large is not None
    assert foreign is not None
    assert (known.handle, known.embedding_dim) == ("openai/text-embedding-3-small", 1536)
    assert large.embedding_dim == 3072
    assert (foreign.handle, foreign.embedding_dim) == ("letta/letta-free", 1536)


def test_the_full_configuration_wins_over_the_handle(
    client: Letta, make_archive: MakeArchive
) -> None:
    archive = make_archive(
        embedding="openai/text-embedding-3-small",
        embedding_config={
            "embedding_model": "nomic",
            "embedding_endpoint_type": "ollama",
            "embedding_dim": 768,
            "handle": "ollama/nomic",
        },
    )

    assert archive.embedding_config is not None
    assert archive.embedding_config.handle == "ollama/nomic"
    assert archive.embedding_config.embedding_dim == 768
    assert as_dict(client.archives.retrieve(archive.id)) == as_dict(archive)


@pytest.mark.parametrize("handle", ["nothing", "/model", "provider/", " / "])
def test_what_is_no_handle_is_refused(client: Letta, handle: str) -> None:
    name = uuid4().hex
    with pytest.raises(BadRequestError) as refusal:
        client.archives.create(name=name, embedding=handle)

    text = f"INVALID_ARGUMENT: Embedding model {handle} not found"
    assert refusal.value.body == {"detail": text}
    assert archive_ids(client, name=name) == []


@pytest.mark.memory(5)
def test_a_deleted_archive_is_gone(
    client: Letta, make_archive: MakeArchive, http: httpx.Client
) -> None:
    archive = make_archive()
    client.archives.passages.create(archive.id, text="kept nowhere")

    answer = http.delete(f"/v1/archives/{archive.id}")
    assert (answer.status_code, answer.content) == (204, b"")
    with pytest.raises(NotFoundError):
        client.archives.retrieve(archive.id)
    with pytest.raises(NotFoundError):
        client.archives.delete(archive.id)
    # The client's own method too.
    client.archives.delete(make_archive().id)


@pytest.mark.memory(6)
def test_pages_have_each_archive_once(client: Letta, make_archive: MakeArchive) -> None:
    name = uuid4().hex
    made = [make_archive(name=name).id for _ in range(5)]

    assert [item.id for item in client.archives.list(name=name, limit=2)] == made[::-1]
    assert [item.id for item in client.archives.list(name=name, limit=2, order="asc")] == made
    assert archive_ids(client, name=name, before=made[0], limit=2) == [made[2], made[1]]
    with pytest.raises(NotFoundError, match=f"No Archive found with id {UNKNOWN_ARCHIVE}"):
        client.archives.list(after=UNKNOWN_ARCHIVE)


@pytest.mark.memory(7)
def test_an_unknown_archive_is_not_found_and_a_malformed_id_refused(client: Letta) -> None:
    with pytest.raises(UnprocessableEntityError):
        client.archives.retrieve("nope")
    with pytest.raises(NotFoundError, match=UNKNOWN_ARCHIVE):
        client.archives.retrieve(UNKNOWN_ARCHIVE)
    with pytest.raises(NotFoundError):
        client.archives.update(UNKNOWN_ARCHIVE, name="x")
    with pytest.raises(NotFoundError):
        client.archives.passages.create(UNKNOWN_ARCHIVE, text="t")


@pytest.mark.parametrize(
    "fields", [{"name": ""}, {"name": " \n"}, {"name": None}, {}, {"name": "x" * 501}]
)
def test_an_archive_needs_a_name_of_a_sensible_length(
    http: httpx.Client, fields: dict[str, Any]
) -> None:
    assert http.post("/v1/archives/", json=fields).status_code == 422


@pytest.mark.memory(8, 9)
def test_attaching_and_detaching_twice_is_no_error(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    agent, archive, other = make_agent(), make_archive(), make_archive()

    for _ in range(2):
        assert client.agents.archives.attach(archive.id, agent_id=agent.id) is None
    assert archive_ids(client, agent_id=agent.id) == [archive.id]
    assert client.agents.archives.detach(other.id, agent_id=agent.id) is None
    for _ in range(2):
        assert client.agents.archives.detach(archive.id, agent_id=agent.id) is None
    assert archive_ids(client, agent_id=agent.id) == []


def test_attaching_needs_an_agent_and_an_archive(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    agent, archive = make_agent(), make_archive()

    for change in (client.agents.archives.attach, client.agents.archives.detach):
        with pytest.raises(NotFoundError):
            change(UNKNOWN_ARCHIVE, agent_id=agent.id)
        with pytest.raises(NotFoundError):
            change(archive.id, agent_id=UNKNOWN_AGENT)
        with pytest.raises(BadRequestError, match="Invalid archive ID format: nope"):
            change("nope", agent_id=agent.id)
        with pytest.raises(UnprocessableEntityError):
            change(archive.id, agent_id="nope")
    with pytest.raises(BadRequestError):
        client.archives.list(agent_id="nope")
    with pytest.raises(NotFoundError):
        client.archives.list(agent_id=UNKNOWN_AGENT)


@pytest.mark.memory(10)
def test_agents_share_an_archive(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    one, two, archive = make_agent(), make_agent(), make_archive()
    for agent in (one, two):
        client.agents.archives.attach(archive.id, agent_id=agent.id)

    client.agents.passages.create(one.id, text="shared")

    assert texts(client, two.id) == ["shared"]
    assert archive_ids(client, agent_id=one.id) == [archive.id]


@pytest.mark.memory(11)
def test_passages_stay_in_an_archive_that_is_detached(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    agent, archive = make_agent(), make_archive()
    client.agents.archives.attach(archive.id, agent_id=agent.id)
    client.agents.passages.create(agent.id, text="A rare marmot.")

    client.agents.archives.detach(archive.id, agent_id=agent.id)

    assert texts(client, agent.id) == []
    assert client.agents.passages.search(agent.id, query="marmot").count == 0
    found = client.passages.search(query="marmot", archive_id=archive.id)
    assert [item.passage.text for item in found] == ["A rare marmot."]
    # The next insert makes an archive of its own.
    client.agents.passages.create(agent.id, text="new")
    assert archive.id not in archive_ids(client, agent_id=agent.id)


@pytest.mark.memory(12)
def test_an_agent_may_have_several_archives(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    agent, one, two = make_agent(), make_archive(), make_archive()
    for archive in (one, two):
        client.agents.archives.attach(archive.id, agent_id=agent.id)
    client.archives.passages.create(one.id, text="first marmot")
    client.archives.passages.create(two.id, text="second marmot")

    found = client.agents.passages.search(agent.id, query="marmot")

    assert {result.content for result in found.results} == {"first marmot", "second marmot"}
    assert texts(client, agent.id) == ["first marmot", "second marmot"]
    # What it stores goes to the one that was attached first.
    (stored,) = client.agents.passages.create(agent.id, text="third")
    assert stored.archive_id == one.id


@pytest.mark.memory(13)
def test_the_first_passage_makes_the_archive_of_an_agent(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    agent = make_agent(name="Maria", embedding="openai/text-embedding-3-small")
    assert archive_ids(client, agent_id=agent.id) == []

    client.agents.passages.create(agent.id, text="one")
    client.agents.update(agent.id, name="Renamed")
    client.agents.passages.create(agent.id, text="two")

    (archive,) = client.archives.list(agent_id=agent.id).items
    assert archive.name == "Maria's Archive"
    assert archive.description == "Default archive created automatically"
    assert archive.embedding_config is not None
    assert archive.embedding_config.handle == "openai/text-embedding-3-small"
    # Its own one stays the default when another is attached, even if that one is older.
    client.agents.archives.attach(make_archive().id, agent_id=agent.id)
    (stored,) = client.agents.passages.create(agent.id, text="three")
    assert stored.archive_id == archive.id


@pytest.mark.memory(14)
def test_ten_first_passages_at_the_same_moment_are_in_one_archive(
    client: Letta, make_agent: "MakeAgent"
) -> None:
    agent = make_agent()
    expected = [f"passage {number}" for number in range(10)]

    with ThreadPoolExecutor(10) as pool:
        stored = list(
            pool.map(lambda text: client.agents.passages.create(agent.id, text=text), expected)
        )

    assert len(archive_ids(client, agent_id=agent.id)) == 1
    assert sorted(texts(client, agent.id)) == expected
    assert len({passages[0].archive_id for passages in stored}) == 1


@pytest.mark.memory(15)
def test_the_archive_of_a_deleted_agent_stays(client: Letta, make_agent: "MakeAgent") -> None:
    agent = make_agent()
    (stored,) = client.agents.passages.create(agent.id, text="kept")
    archive_id = str(stored.archive_id)

    client.agents.delete(agent.id)

    assert client.archives.retrieve(archive_id).id == archive_id
    found = client.passages.search(archive_id=archive_id)
    assert [item.passage.text for item in found] == ["kept"]
    client.archives.delete(archive_id)


def test_the_agents_of_an_archive_are_listed(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive, http: httpx.Client
) -> None:
    archive = make_archive()
    agents = [make_agent(tags=["t"]) for _ in range(3)]
    for agent in agents:
        client.agents.archives.attach(archive.id, agent_id=agent.id)
    path = f"/v1/archives/{archive.id}/agents"

    def list_ids(**query: Any) -> list[str]:
        return [agent["id"] for agent in http.get(path, params=query).json()]

    newest_first = [agent.id for agent in agents[::-1]]
    assert list_ids() == newest_first
    assert list_ids(limit=1, after=newest_first[0]) == [newest_first[1]]
    assert list_ids(limit=1, before=newest_first[2]) == [newest_first[1]]
    assert http.get(path, params={"include": "agent.tags"}).json()[0]["tags"] == ["t"]
    assert http.get(f"/v1/archives/{UNKNOWN_ARCHIVE}/agents").status_code == 404
