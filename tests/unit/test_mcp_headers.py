"""Which headers requests to MCP servers have (tools-v1 §1.1, §1.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.mcp_headers import add_scheme, clean_name, clean_value, find_fault, merge_headers


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [("X-Key", "X-Key"), (" X-Key: ", "X-Key"), ('"X-Key"', "X-Key"), ("'X-Key:'", "X-Key")],
)
def test_names_lose_what_was_pasted_with_them(given: str, cleaned: str) -> None:
    assert clean_name(given) == cleaned


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        (" abc\n", "abc"),
        ('"abc"', "abc"),
        ("'abc'", "abc"),
        ('"abc', '"abc'),
        ('"', '"'),
        ('""', ""),
    ],
)
def test_values_lose_blanks_and_one_pair_of_quotes(given: str, cleaned: str) -> None:
    assert clean_value(given) == cleaned


@pytest.mark.parametrize(
    ("header", "token", "value"),
    [
        (None, "abc", "Bearer abc"),
        ("Authorization", "abc", "Bearer abc"),
        ("authorization:", "abc", "Bearer abc"),
        (None, "Bearer abc", "Bearer abc"),
        (None, "Basic YWJj", "Basic YWJj"),
        (None, "{{ key }}", "Bearer {{ key }}"),
        ("X-API-Key", "abc", "abc"),
        ("X-API-Key", "Bearer abc", "Bearer abc"),
        (None, "", ""),
    ],
)
def test_a_token_without_a_scheme_is_a_bearer_token(
    header: str | None, token: str, value: str
) -> None:
    assert add_scheme(header, token) == value


def test_a_custom_header_goes_before_an_authentication_of_the_same_name() -> None:
    token = [("Authorization", "Bearer token")]

    assert merge_headers({"X-A": "1"}, token, None) == (
        ("Authorization", "Bearer token"),
        ("X-A", "1"),
    )
    assert merge_headers({"authorization": "Basic own"}, token, None) == (
        ("authorization", "Basic own"),
    )
    # An empty one says nothing.
    assert merge_headers({"authorization": '""'}, token, None) == (
        ("Authorization", "Bearer token"),
    )


def test_no_custom_header_names_another_agent() -> None:
    assert merge_headers({"x-agent-id": "agent-other"}, (), "agent-1") == (
        ("X-Agent-Id", "agent-1"),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "a\r\nX-B: b"),
        ("X-A", "a\nb"),
        ("X-A", "a\0b"),
        ("X-A", "日本"),
        ("X A", "a"),
        ("X-A\r\nX-B", "a"),
        ("", "a"),
        ("Ä", "a"),
        ("Host", "internal"),
        ("content-length:", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Mcp-Session-Id", "of-another"),
    ],
)
def test_a_header_that_would_break_a_request_is_refused(name: str, value: str) -> None:
    fault = find_fault(name, value)

    assert fault is not None
    assert value not in fault or len(value) == 1


@pytest.mark.parametrize("name", ["Authorization: Bearer swordfish", "X-Key=swordfish x", "ß"])
def test_what_is_no_name_of_a_header_is_not_quoted(name: str) -> None:
    """Somebody may have pasted the whole header."""
    fault = find_fault(name, "a")

    assert fault is not None
    assert name not in fault
    assert "swordfish" not in fault


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_header_without_a_fault_is_one_line(name: str, value: str) -> None:
    if find_fault(name, value) is None:
        for header, text in merge_headers({name: value}, (), None):
            f"{header}: {text}".encode("latin-1")
            assert len(f"{header}: {text}".splitlines()) == 1
