"""Passages as callers see them."""

import msgspec
from tests.support.values import Make

from holdfast.core.passages import FoundPassage
from holdfast.core.search import Match
from holdfast.http.letta_v1.to_wire.passages import agent_result, passage_state, search_result


def test_a_passage_tells_the_run_and_step_that_wrote_it_if_any(make: Make) -> None:
    archive = make.archive()
    written = make.passage(archive, run_id="run-1", step_id="step-1")

    shown = msgspec.to_builtins(passage_state(written, {}))
    plain = msgspec.to_builtins(passage_state(make.passage(archive), {}))

    assert (shown["run_id"], shown["step_id"]) == ("run-1", "step-1")
    assert shown.keys() - plain.keys() == {"run_id", "step_id"}


def test_a_passage_has_the_embedding_model_of_its_archive(make: Make) -> None:
    archive = make.archive(embedding="openai/text-embedding-3-large")
    passage = make.passage(archive)

    config = passage_state(passage, {archive.id: archive}).embedding_config

    assert config is not None
    assert (config.handle, config.embedding_dim) == ("openai/text-embedding-3-large", 3072)
    # Deleted meanwhile.
    assert passage_state(passage, {}).embedding_config is None


def test_a_result_tells_its_ranks(make: Make) -> None:
    found = FoundPassage(make.passage(make.archive()), Match(1, 0.0163, 2, 1))

    shown = search_result(found, "hybrid", {})

    assert shown.score == 0.0163
    assert msgspec.to_builtins(shown.metadata) == {
        "combined_score": 0.0163,
        "vector_rank": 1,
        "fts_rank": 2,
        "search_mode": "hybrid",
    }


def test_a_result_of_an_agent_has_the_time_of_its_timezone(make: Make) -> None:
    found = FoundPassage(make.passage(make.archive(), tags=("a",)), Match(1, 0.1))

    assert agent_result(found, "Asia/Kolkata").timestamp.endswith("+05:30")
    assert agent_result(found, "UTC").timestamp.endswith("+00:00")
