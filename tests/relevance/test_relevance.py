"""How well a search by words finds the answers of ``bench/relevance``. The floors are what was measured, rounded down: a
change that finds fewer must be a decision."""

import pytest
from bench.relevance.relevance_set import Question, load, recall
from bench.relevance.stored_search import BOTH, VECTORS, WORDS, StoredRelevance
from tests.doubles.embedder import HANDLE, WordEmbedder

from holdfast.ports.store import Store

FLOORS = {
    WORDS: {"all": 0.72, "english": 0.7, "german": 0.7, "chinese": 0.8},
    VECTORS: {"all": 0.66},
    BOTH: {"all": 0.68},
}


async def test_a_search_finds_as_many_answers_as_before(any_store: Store) -> None:
    """The vectors of this test are made of words: they show that vectors are stored, compared and fused, not that they
    find more. What a real model finds is printed by ``make bench-search``."""
    measured = await StoredRelevance(any_store, WordEmbedder(dimensions=256), HANDLE).measure()

    missed = {
        (kind, language): measured[kind][language]
        for kind, floors in FLOORS.items()
        for language, floor in floors.items()
        if measured[kind][language] < floor
    }
    assert missed == {}, measured


def test_the_set_is_whole() -> None:
    relevance = load()
    assert len(relevance.texts) == 500
    assert len(set(relevance.texts.values())) == 500
    assert len(relevance.questions) == 50
    for question in relevance.questions:
        assert 1 <= len(question.answers) <= 3
        assert question.answers <= relevance.texts.keys(), question


def test_recall_is_the_average_share_of_answers_that_were_found() -> None:
    one = Question("english", "?", frozenset({"a", "b"}))
    other = Question("english", "??", frozenset({"c"}))
    assert recall({}) == 0
    assert recall({one: ["a", "x"], other: []}) == pytest.approx(0.25)
    assert recall({one: ["b", "a"], other: ["c"]}) == 1
