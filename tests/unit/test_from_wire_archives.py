"""Archives and passages as callers send them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.http.letta_v1.from_wire.archives import archive_changes, new_archive
from holdfast.http.letta_v1.from_wire.passages import new_passage
from holdfast.http.letta_v1.schemas.archives import ArchiveCreate, ArchiveUpdate
from holdfast.http.letta_v1.schemas.passages import AgentPassageCreate, PassageCreate

CONFIG = {"embedding_model": "nomic", "embedding_endpoint_type": "ollama", "embedding_dim": 768}


@pytest.mark.parametrize(
    "fields", [{}, {"embedding": "openai/x"}, {"embedding": "openai/x", "embedding_config": CONFIG}]
)
def test_the_handle_and_the_configuration_are_both_handed_on(fields: dict[str, Any]) -> None:
    made = new_archive(ArchiveCreate.model_validate({"name": "a"} | fields))

    assert made.embedding == fields.get("embedding")
    assert made.embedding_config == fields.get("embedding_config")


def test_null_changes_nothing() -> None:
    body = ArchiveUpdate.model_validate({"name": None, "description": "", "deduplicate": False})

    assert archive_changes(body) == {"description": "", "deduplicate": False}


def test_an_agent_cannot_set_metadata() -> None:
    fields = {"text": "t", "metadata": {"k": 1}, "created_at": "2024-01-15T10:00"}

    of_agent = new_passage(AgentPassageCreate.model_validate(fields))
    of_archive = new_passage(PassageCreate.model_validate(fields))

    assert of_agent.metadata == {}
    assert of_archive.metadata == {"k": 1}
    assert of_archive.created_at == datetime(2024, 1, 15, 10, tzinfo=UTC)


@pytest.mark.parametrize("given", [5, 1.5, True, [], {}, "x", "2024", "9999-01-01", "0001-12-31"])
def test_what_is_no_date_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        PassageCreate.model_validate({"text": "t", "created_at": given})


@pytest.mark.parametrize("given", [None, ""])
def test_no_date_is_none(given: object) -> None:
    assert PassageCreate.model_validate({"text": "t", "created_at": given}).created_at is None
