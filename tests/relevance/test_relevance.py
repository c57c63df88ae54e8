"""How well a search by words finds the answers of ``bench/relevance``. The floors are what was measured, rounded down: a
change that finds fewer must be a decision."""

import pytest
from bench.relevance.relevance_set import Question, load, measure_recall, recall
from tests.support.values import Make

from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.passages import PassageFilter
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
FLOORS = {"all": 0.72, "english": 0.7, "german": 0.7, "chinese": 0.8}


async def test_words_find_as_many_answers_as_before(any_store: Store, make: Make) -> None:
    relevance = load()
    archive = make.archive()
    keys = list(relevance.texts)
    passages = [make.passage(archive, text=text) for text in relevance.texts.values()]
    key_of = dict(zip((passage.id for passage in passages), keys, strict=True))

    def work(tx: Transaction) -> None:
        tx.archives.add(archive)
        tx.passages.add(passages)

    await any_store.write(work)

    async def search(query: str, limit: int) -> list[str]:
        where = PassageFilter(archive_ids=(archive.id,))
        found = await any_store.read(lambda tx: tx.passages.search(ORG, where, query, limit))
        return [key_of[item.passage.id] for item in found]

    measured = await measure_recall(relevance.questions, search)
    assert {name: floor for name, floor in FLOORS.items() if measured[name] < floor} == {}, measured


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
