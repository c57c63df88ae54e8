"""Embedding models through the official client: which there are, and what an agent keeps of the one that it names."""

import pytest
from letta_client import BadRequestError, Letta
from tests.support.wire_server import MakeAgent

from holdfast.testing import ScriptedProvider

pytestmark = pytest.mark.slow

HANDLE = "openai/text-embedding-3-small"


@pytest.mark.memory(47)
@pytest.mark.both_databases
def test_embedding_models_are_listed_with_their_real_provider(client: Letta) -> None:
    found = client.models.embeddings.list()
    handles = [model.handle for model in found]
    assert HANDLE in handles
    assert handles == sorted(handles, key=str)
    for model in found:
        provider, _, name = str(model.handle).partition("/")
        assert (model.provider_type, model.provider_name) == (provider, provider)
        assert (model.name, model.display_name, model.embedding_model) == (name, name, name)
        assert model.embedding_dim > 0
        assert model.api_model_type == "embedding"
        assert (model.embedding_chunk_size, model.batch_size) == (300, 32)


@pytest.mark.memory(48)
@pytest.mark.both_databases
def test_an_agent_has_no_embedding_model_until_it_gets_one(
    client: Letta, make_agent: MakeAgent
) -> None:
    agent = make_agent()
    assert (agent.embedding, agent.embedding_config) == (None, None)
    changed = client.agents.update(agent.id, embedding=HANDLE)
    assert changed.embedding == HANDLE
    assert changed.embedding_config is not None
    assert changed.embedding_config.handle == HANDLE
    assert changed.embedding_config.embedding_dim == 1536
    assert client.agents.retrieve(agent.id).embedding_config == changed.embedding_config
    assert changed.model_warnings == []  # type: ignore[attr-defined]  # not in V1


@pytest.mark.memory(49)
@pytest.mark.both_databases
def test_a_model_that_is_not_configured_is_kept_and_told_and_memory_works(
    client: Letta, make_agent: MakeAgent
) -> None:
    agent = make_agent(embedding="letta/letta-free")
    assert agent.embedding == "letta/letta-free"
    assert agent.embedding_config is not None
    assert agent.embedding_config.embedding_dim == 1536
    (warning,) = agent.model_warnings  # type: ignore[attr-defined]  # not in V1
    assert "letta/letta-free is not configured" in warning
    client.agents.passages.create(agent.id, text="The cat sleeps on the mat.")
    (found,) = client.agents.passages.search(agent.id, query="cats").results
    assert found.content == "The cat sleeps on the mat."
    (archive,) = client.archives.list(agent_id=agent.id).items
    assert archive.embedding_config == agent.embedding_config


@pytest.mark.both_databases
def test_what_is_no_handle_is_refused(make_agent: MakeAgent) -> None:
    with pytest.raises(BadRequestError) as raised:
        make_agent(embedding="nonsense")
    assert "INVALID_ARGUMENT: Embedding model nonsense not found" in str(raised.value)


@pytest.mark.both_databases
def test_an_archive_keeps_what_it_names_in_the_same_way(client: Letta) -> None:
    archive = client.archives.create(name="a", embedding="openai/text-embedding-3-large")
    assert archive.embedding_config is not None
    assert archive.embedding_config.handle == "openai/text-embedding-3-large"
    assert archive.embedding_config.embedding_dim == 3072
    with pytest.raises(BadRequestError) as raised:
        client.archives.create(name="b", embedding="openai/")
    assert "INVALID_ARGUMENT: Embedding model openai/ not found" in str(raised.value)
    client.archives.delete(archive.id)


@pytest.mark.both_databases
def test_creating_an_agent_asks_no_provider_for_vectors(
    provider: ScriptedProvider, make_agent: MakeAgent
) -> None:
    make_agent(embedding=HANDLE)
    assert provider.embeddings.requests == []
