"""core/chunks.py: splitting a text into chunks that know their lines."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.chunks import MAX_OVERLAP_PERCENT, Chunk, split_text

# Every character that is not blank occurs once in a text, so that a chunk is found in it at one place only.
_FIRST_CHARACTER = 0x4E00
_SEPARATORS = (" ", "\n", "\n\n", "\n    ", "  \n", "\t", "\n \n", "\n" * 40, " " * 60)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(("", *_SEPARATORS)))
    used = 0
    for size, separator in draw(
        st.lists(st.tuples(st.integers(1, 120), st.sampled_from(_SEPARATORS)), max_size=60)
    ):
        text += "".join(chr(_FIRST_CHARACTER + used + i) for i in range(size)) + separator
        used += size
    return text


def _split(text: str, chunk_chars: int) -> list[Chunk]:
    return list(split_text(text, chunk_chars))


def _spans(text: str, chunks: list[Chunk]) -> list[tuple[int, int]]:
    """Where each chunk is in a text whose characters occur once."""
    spans = []
    for chunk in chunks:
        begin = text.index(chunk.text.strip()) - (len(chunk.text) - len(chunk.text.lstrip()))
        assert text[begin : begin + len(chunk.text)] == chunk.text
        spans.append((begin, begin + len(chunk.text)))
    return spans


@given(text=_texts(), chunk_chars=st.integers(1, 200))
def test_every_character_that_is_not_blank_is_in_a_chunk(text: str, chunk_chars: int) -> None:
    chunks = _split(text, chunk_chars)
    covered = {character for chunk in chunks for character in chunk.text if not character.isspace()}
    assert covered == {character for character in text if not character.isspace()}


@given(text=_texts(), chunk_chars=st.integers(1, 200))
def test_chunks_have_the_size_asked_for_and_are_not_blank(text: str, chunk_chars: int) -> None:
    chunks = _split(text, chunk_chars)
    assert all(1 <= len(chunk.text) <= chunk_chars and chunk.text.strip() for chunk in chunks)
    # Two neighbours together are more than half a chunk, so that there are not many small ones.
    for (begin, _), (_, end) in pairwise(_spans(text, chunks)):
        assert end - begin > chunk_chars // 2


@given(text=_texts(), chunk_chars=st.integers(1, 200))
def test_chunks_repeat_at_most_15_percent_and_each_has_something_new(
    text: str, chunk_chars: int
) -> None:
    for (_, end), (next_begin, next_end) in pairwise(_spans(text, _split(text, chunk_chars))):
        assert end - next_begin <= chunk_chars * MAX_OVERLAP_PERCENT // 100
        assert next_end > end


@given(text=_texts(), chunk_chars=st.integers(1, 200))
def test_the_line_numbers_are_those_of_the_text(text: str, chunk_chars: int) -> None:
    chunks = _split(text, chunk_chars)
    for chunk, (begin, end) in zip(chunks, _spans(text, chunks), strict=True):
        assert chunk.start_line == text.count("\n", 0, begin) + 1
        assert chunk.end_line == text.count("\n", 0, end) + 1


@given(
    lines=st.lists(st.text("ab \t\x0b\x0c\x85\u2028", max_size=30), max_size=80),
    chunk_chars=st.integers(62, 200),
)
def test_a_line_shorter_than_half_a_chunk_is_whole_in_one(
    lines: list[str], chunk_chars: int
) -> None:
    chunks = _split("\n".join(lines), chunk_chars)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            assert any(
                line.rstrip() in (part.rstrip() for part in chunk.text.split("\n"))
                for chunk in chunks
                if chunk.start_line <= number <= chunk.end_line
            )


def test_a_chunk_ends_after_a_paragraph_if_it_can() -> None:
    text = "one\ntwo\nthree\n\nfour\nfive\n"
    assert _split(text, 20) == [Chunk("one\ntwo\nthree", 1, 3), Chunk("four\nfive", 5, 6)]


def test_a_chunk_within_a_paragraph_repeats_the_last_line_before_it() -> None:
    lines = [f"line {number:03}" for number in range(100)]
    first, second, *_ = _split("\n".join(lines), 90)
    assert (first.start_line, first.end_line) == (1, 10)
    assert (second.text.split("\n")[0], second.start_line) == (lines[9], 10)


def test_indentation_at_the_beginning_of_a_chunk_is_kept() -> None:
    text = "class Animal:\n    legs = 4\n\n    def run(self):\n        pass\n"
    assert _split(text, 34)[1] == Chunk("    def run(self):\n        pass", 4, 5)


def test_a_long_line_is_cut_between_words() -> None:
    text = " ".join(f"word{number}" for number in range(100))
    words = set(text.split(" "))
    chunks = _split(text, 50)
    assert len(chunks) > 10
    assert all(chunk.start_line == chunk.end_line == 1 for chunk in chunks)
    assert all(words.issuperset(chunk.text.split(" ")) for chunk in chunks)


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n\n  "])
def test_a_blank_text_has_no_chunks(text: str) -> None:
    assert _split(text, 1200) == []


def test_a_chunk_of_no_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        _split("text", 0)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("A sentence of a large file.\n" * 200_000, id="lines"),
        pytest.param("x" * 5_000_000, id="one line"),
        pytest.param("\n" * 5_000_000 + "end", id="blank lines"),
        pytest.param(" " * 5_000_000 + "end", id="blanks"),
        pytest.param("a\n" * 2_500_000, id="short lines"),
    ],
)
def test_large_texts_are_split_without_copying_them(text: str) -> None:
    """Blank lines, or a line without any border, are not looked at again for every chunk: this would take minutes."""
    last_line = text.rstrip().count("\n") + 1
    tracemalloc.start()
    try:
        last = None
        for chunk in split_text(text, 1200):
            last = chunk
        assert last is not None
        assert last.end_line == last_line
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
