"""How texts become terms, and how rows are ranked."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.search import (
    MAX_QUERY_TERMS,
    MAX_TERM_CHARS,
    Candidate,
    fuse_ranks,
    index_terms,
    query_terms,
    rank_candidates,
    weigh_term,
)

TEXTS = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("aAzé ßǆİıς'_-.東京กา한글ाक्\u0301\u200d"),
    ),
    max_size=60,
)
RANKS = st.lists(st.integers(1, 50), unique=True, max_size=20)


@given(before=TEXTS, text=TEXTS, after=TEXTS)
@example(before="", text="0\x000", after="")
def test_each_term_of_a_query_is_among_those_of_a_text_that_has_it(
    before: str, text: str, after: str
) -> None:
    terms = set(index_terms(f"{before} {text} {after}"))
    for term in query_terms(text):
        if term.is_prefix:
            assert any(found.startswith(term.text) for found in terms)
        else:
            assert term.text in terms


@given(text=TEXTS)
def test_a_term_has_nothing_that_a_query_language_knows(text: str) -> None:
    """Letters, digits and the signs of vowels; so terms can be joined by spaces and put between quotes."""
    for term in [*index_terms(text), *(term.text for term in query_terms(text))]:
        assert 0 < len(term) <= MAX_TERM_CHARS
        assert not set(term) & set(" '\"\\*:&|!()<>-\x00\ue000")
        assert not any(char.isspace() or (char.isascii() and not char.isalnum()) for char in term)


def test_a_query_has_at_most_so_many_terms() -> None:
    assert len(query_terms(" ".join(f"word{number}" for number in range(1_000)))) == MAX_QUERY_TERMS
    assert query_terms("?! … 🎉") == []
    assert [term.text for term in query_terms("Tea, tea and TEAS")] == ["tea", "and"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("parseHTTPRequest2", ["parsehttprequest2", "parse", "http", "request", "2"]),
        ("snake_case", ["snake", "case"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", "ー"]),
        ("boxes, cities, glass, bus", ["boxe", "city", "glass", "bus"]),
        ("Crème Brûlée", ["creme", "brulee"]),
    ],
)
def test_the_terms_of_a_text(text: str, terms: list[str]) -> None:
    assert list(index_terms(text)) == terms


@given(by_words=RANKS, by_vector=RANKS)
def test_fused_ranks_contain_each_position_once_and_best_first(
    by_words: list[int], by_vector: list[int]
) -> None:
    matches = fuse_ranks(by_words, by_vector)
    assert sorted(match.position for match in matches) == sorted({*by_words, *by_vector})
    assert [match.score for match in matches] == sorted(
        (match.score for match in matches), reverse=True
    )
    for match in matches:
        ranks = (match.word_rank, match.vector_rank)
        for rank, ranked in zip(ranks, (by_words, by_vector), strict=True):
            if rank is None:
                assert match.position not in ranked
            else:
                assert ranked[rank - 1] == match.position
        expected = sum(0.5 / (60 + rank) for rank in ranks if rank is not None)
        assert match.score == pytest.approx(expected)


@given(by_words=RANKS)
def test_one_list_keeps_its_order(by_words: list[int]) -> None:
    assert [match.position for match in fuse_ranks(by_words)] == by_words


def test_a_position_that_is_first_in_both_lists_has_the_highest_score() -> None:
    best, *_ = fuse_ranks([7, 3], [7, 5])
    assert (best.position, best.word_rank, best.vector_rank) == (7, 1, 1)
    assert best.score == pytest.approx(0.016393, abs=1e-6)


@given(rows=st.integers(0, 1_000), total=st.integers(1, 1_000))
def test_a_rarer_term_weighs_more(rows: int, total: int) -> None:
    assert weigh_term(rows, total) > 0
    assert weigh_term(rows, total) >= weigh_term(rows + 1, total)


@given(
    st.lists(
        st.tuples(st.integers(1, 99), st.integers(1, 9)), unique_by=lambda pair: pair[0], max_size=9
    )
)
def test_candidates_are_ranked_by_how_often_they_have_a_term(rows: list[tuple[int, int]]) -> None:
    candidates = [Candidate(position, 10, ((1.5, count),)) for position, count in rows]
    expected = [position for position, _ in sorted(rows, key=lambda row: (-row[1], -row[0]))]
    assert list(rank_candidates(candidates)) == expected
