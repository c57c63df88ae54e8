"""What real servers send that the scripted provider does not: odd chunks, refusals, odd addresses."""

import gzip
import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseTextDeltaEvent
from pydantic_ai.messages import ModelResponse

from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.providers.known_models import is_reasoning_model
from holdfast.adapters.models.pydantic_ai.answers import _refusal
from holdfast.adapters.models.pydantic_ai.wires import (
    chat_stream,
    messages_stream,
    responses_stream,
)
from holdfast.adapters.models.pydantic_ai.wires.chat_stream import _decoder
from holdfast.adapters.models.pydantic_ai.wires.sse_reader import merge_additions, read_events
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import Text
from holdfast.ports.model import Model


@pytest.mark.parametrize(
    "chunk",
    [
        b'{"choices": null}',
        b'{"choices": [{"delta": null, "logprobs": {"content": []}, "index": 0}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {"a": 1}}}]}}]}',
        b'{"created": 1700000000.5, "moderation": {"flagged": true}, "usage": null}',
        b'{"usage": {"prompt_tokens": null, "completion_tokens": 3, "total_tokens": 3}}',
        b'{"choices": [{"delta": {"content": [{"type": "text", "text": "Hi"}]}}], "new": [1]}',
    ],
)
def test_a_chunk_may_be_odd(chunk: bytes) -> None:
    _decoder.decode(chunk)


class _ChunkedStream(httpx2.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


@pytest.mark.parametrize(
    "pieces",
    [
        (b"data: one\n\ndata: two\n\n",),
        (b"data: o", b"ne\n", b"\nda", b"ta: two\n\n"),
        (b"data:one\r\n\r\ndata:two\r\n\r\n",),
        (b": a comment\n\nevent: x\nid: 1\ndata: one\n\nretry: 3\n\ndata: two\n\ndata: cut off",),
    ],
)
async def test_events_are_read_however_they_arrive(pieces: tuple[bytes, ...]) -> None:
    response = httpx2.Response(200, stream=_ChunkedStream(*pieces))
    batches = [batch async for batch in read_events(response)]
    assert [data for batch in batches for data in batch] == [b"one", b"two"]


async def test_events_that_arrive_together_come_together() -> None:
    response = httpx2.Response(
        200, stream=_ChunkedStream(b"data: 1\n\ndata: 2\n\ndata:", b" 3\n\n", b"data: 4\n\n")
    )
    batches = [batch async for batch in read_events(response)]
    assert batches == [[b"1", b"2"], [b"3"], [b"4"]]


async def test_a_compressed_stream_is_read_too() -> None:
    body = gzip.compress(b"data: one\n\ndata: two\n\n")
    response = httpx2.Response(
        200, headers={"content-encoding": "gzip"}, stream=_ChunkedStream(body[:20], body[20:])
    )
    assert [data async for batch in read_events(response) for data in batch] == [b"one", b"two"]


@given(st.lists(st.tuples(st.sampled_from("abX"), st.text(max_size=3))))
def test_merging_changes_no_word_and_no_order(events: list[tuple[str, str]]) -> None:
    """Events of kind X are not plain text: they are not merged, and separate the text around them."""
    found = list(
        merge_additions(
            events,
            lambda event: None if event[0] == "X" else event,
            lambda first, text: (first[0], text),
        )
    )
    joined: list[tuple[str, str]] = []
    for sort, text in events:
        if joined and sort == joined[-1][0] != "X":
            joined[-1] = (sort, joined[-1][1] + text)
        else:
            joined.append((sort, text))
    assert found == joined


def _chunk(delta: bytes, rest: bytes = b"") -> bytes:
    return b'{"choices": [{"delta": %b%b}]}' % (delta, rest)


@pytest.mark.parametrize(
    "delta",
    [
        pytest.param(b'{"content": "<think>"}', id="a tag is the bound of thinking"),
        pytest.param(b'{"content": "\\n\\n"}', id="blank before text may be dropped"),
        pytest.param(b'{"content": [{"type": "text", "text": "a"}]}', id="content in parts"),
        pytest.param(b'{"content": "a", "reasoning": "b"}', id="two things at once"),
        pytest.param(b'{"refusal": "no"}', id="a refusal"),
        pytest.param(
            b'{"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f"}}]}',
            id="a call begins",
        ),
        pytest.param(b'{"content": "a"}, "finish_reason": "stop"', id="the end"),
    ],
)
def test_what_is_more_than_words_is_not_merged(delta: bytes) -> None:
    assert chat_stream._addition(_decoder.decode(_chunk(delta))) is None


def test_words_and_arguments_are_merged() -> None:
    events = [
        _chunk(b'{"content": "a"}'),
        _chunk(b'{"content": " b"}'),
        _chunk(b'{"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]}'),
        _chunk(b'{"tool_calls": [{"index": 1, "function": {"arguments": "}"}}]}'),
        _chunk(b'{"tool_calls": [{"index": 2, "function": {"arguments": "[]"}}]}'),
    ]
    chunks = [_decoder.decode(event) for event in events]
    found = list(merge_additions(chunks, chat_stream._addition, chat_stream._with_text))
    assert [chat_stream._addition(chunk) for chunk in found] == [
        ("content", "a b"),
        (1, "{}"),
        (2, "[]"),
    ]


@pytest.mark.parametrize(
    "event",
    [
        b'{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}',
        b'{"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "x"}}',
        b'{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}',
        b'{"type": "ping"}',
    ],
)
def test_anthropics_other_events_are_left_to_its_sdk(event: bytes) -> None:
    decoded = messages_stream._decoder.decode(event)
    assert messages_stream._addition((decoded, event)) is None


def test_words_made_without_checks_look_like_the_sdks() -> None:
    event = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 2,
        "sequence_number": 7,
        "delta": "Hi",
        "logprobs": [],
    }
    made = responses_stream._text_event(
        responses_stream._decoder.decode(json.dumps(event).encode())
    )
    theirs = ResponseTextDeltaEvent.model_validate(event)
    assert isinstance(made, ResponseTextDeltaEvent)
    read = ("type", "item_id", "content_index", "sequence_number", "delta")
    assert [getattr(made, name) for name in read] == [getattr(theirs, name) for name in read]


def test_a_refusal_is_an_answer_in_words() -> None:
    refused = ModelResponse(parts=[], provider_details={"refusal": "I cannot."})
    assert _refusal(refused) == Text("I cannot.")
    assert _refusal(ModelResponse(parts=[])) is None


@pytest.mark.parametrize(
    ("base_url", "plain"),
    [(None, False), ("https://x/v1", False), ("HTTPS://x/v1", False), ("http://x/v1", True)],
)
def test_only_plain_http_goes_unverified(base_url: str | None, plain: bool) -> None:
    assert Account("key", base_url, "openai").is_plain_http is plain


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("o1", True),
        ("o3-mini", True),
        ("o4-mini-2025-04-16", True),
        ("gpt-5", True),
        ("gpt-5.4-nano", True),
        ("gpt-5-codex", True),
        ("gpt-6.1-sol", True),
        ("ft:o4-mini:acme", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4o", False),
        ("gpt-4.1", False),
        ("gpt-3.5-turbo", False),
        ("gpt-oss-120b", False),
        ("llama-3", False),
        ("openai-o1-lookalike", False),
    ],
)
def test_models_that_reason_are_known_by_name(name: str, reasons: bool) -> None:
    assert is_reasoning_model(name) is reasons


def test_the_router_is_a_model() -> None:
    router: Model = ModelRouter(ProviderSettings())
    assert router
