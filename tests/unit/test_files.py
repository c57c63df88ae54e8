"""The names of files, and the parts of their texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.file_names import MAX_FILE_NAME_CHARS, choose_free_name, clean_file_name
from holdfast.core.files import count_lines, split_into_parts
from holdfast.errors import InvalidArgument


@pytest.mark.parametrize(
    ("given_name", "cleaned"),
    [
        ("test.txt", "test.txt"),
        ("/etc/passwd", "passwd"),
        (r"C:\Users\me\a b.md", "a b.md"),
        ("a\x00b\n<c>.txt", "abc.txt"),
        ("archive.tar.gz", "archive.tar.gz"),
        ("Zoë ☂.txt", "Zoë ☂.txt"),
        ("x" * 300 + ".txt", "x" * 245 + ".txt"),
        ("x." + "y" * 300, "x." + "y" * 253),
    ],
)
def test_names_lose_what_makes_trouble(given_name: str, cleaned: str) -> None:
    assert clean_file_name(given_name) == cleaned


@pytest.mark.parametrize("given_name", ["", ".txt", ".a.txt", "..", "a/", "???", " ", "a/.b"])
def test_names_without_a_visible_beginning_are_refused(given_name: str) -> None:
    with pytest.raises(InvalidArgument, match="Invalid filename"):
        clean_file_name(given_name)


@given(st.text(max_size=600))
def test_a_cleaned_name_is_stable_and_short(name: str) -> None:
    try:
        cleaned = clean_file_name(name)
    except InvalidArgument:
        return
    assert 0 < len(cleaned) <= MAX_FILE_NAME_CHARS
    assert "/" not in cleaned
    assert "\\" not in cleaned


def test_the_smallest_free_number_is_chosen() -> None:
    assert choose_free_name("a.txt", {"b.txt"}) == "a.txt"
    assert choose_free_name("a.txt", {"a.txt"}) == "a_(1).txt"
    assert choose_free_name("a.txt", {"a.txt", "a_(2).txt"}) == "a_(1).txt"
    assert choose_free_name("a.txt", {"a.txt", "a_(1).txt", "a_(2).txt"}) == "a_(3).txt"
    assert choose_free_name("Makefile", {"Makefile"}) == "Makefile_(1)"


@given(st.text(alphabet="ab\n", max_size=60), st.integers(1, 20))
def test_parts_are_the_text_and_know_their_lines(text: str, part_chars: int) -> None:
    parts = list(split_into_parts(text, part_chars))
    assert "".join(part.text for part in parts) == text
    start = 0
    for number, part in enumerate(parts):
        assert part.number == number
        assert 0 < len(part.text) <= part_chars
        assert part.first_line == text.count("\n", 0, start) + 1
        assert part.is_continued == (start > 0 and text[start - 1] != "\n")
        start += len(part.text)


@pytest.mark.parametrize(
    ("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1), ("\n\n", 2)]
)
def test_a_line_end_at_the_end_begins_no_line(text: str, lines: int) -> None:
    assert count_lines(text) == lines
