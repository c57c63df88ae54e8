"""The scripted provider makes vectors for the real SDKs: the same text the same vector, shared words near."""

import asyncio
import math
from collections.abc import Sequence

import openai
import pytest
from google import genai
from google.genai.types import Content, Part

from holdfast.testing import (
    EmbeddingAnswer,
    Gate,
    HttpError,
    NoAnswer,
    ScriptedProvider,
    ScriptMismatch,
    embed_words,
)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / math.hypot(*one) / math.hypot(*other)


@pytest.mark.parametrize("dimensions", [3, 64, 256, 1536])
def test_every_text_has_a_vector_of_length_one(dimensions: int) -> None:
    for text in ("The cats sleep.", "", " ", "!?", "猫が眠る", "\ud800"):
        vector = embed_words(text, dimensions)
        assert len(vector) == dimensions
        assert math.hypot(*vector) == pytest.approx(1)
        assert vector == embed_words(text, dimensions)


def test_texts_that_share_words_are_near() -> None:
    query = embed_words("the sleeping cat")
    shared = cosine(query, embed_words("A Cat was sleeping on the mat"))
    other = cosine(query, embed_words("Interest rates rose sharply in autumn"))
    assert shared > 0.4 > 0.2 > other
    japanese = cosine(embed_words("眠る猫"), embed_words("猫が眠る部屋"))
    assert japanese > 0.2 > cosine(embed_words("眠る猫"), embed_words("東京の天気"))


async def test_openai_gets_vectors_in_both_encodings(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    texts = ["one cat", "two dogs"]
    packed = await openai_client.embeddings.create(input=texts, model="m", dimensions=64)
    plain = await openai_client.embeddings.create(
        input=texts, model="m", dimensions=64, encoding_format="float"
    )
    assert [item.embedding for item in plain.data] == [embed_words(text, 64) for text in texts]
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding)
    assert packed.usage.prompt_tokens == 4
    first, second = provider.embeddings.requests
    assert (first.model, first.texts, first.api_key) == ("m", texts, "sk-test")
    assert second.path == "/v1/embeddings"
    assert provider.requests == []


async def test_google_gets_vectors(provider: ScriptedProvider, google_client: genai.Client) -> None:
    provider.embeddings.dimensions = 32
    contents = [Content(parts=[Part(text=text)]) for text in ("one cat", "two dogs")]
    made = await google_client.aio.models.embed_content(
        model="gemini-embedding-001", contents=contents
    )
    assert [item.values for item in made.embeddings or ()] == [
        embed_words(text, 32) for text in ("one cat", "two dogs")
    ]
    assert provider.embeddings.requests[0].model == "gemini-embedding-001"


async def test_synonyms_are_near_although_they_share_no_word(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.embeddings.add_synonyms("cars", "automobile")
    made = await openai_client.embeddings.create(input=["my car", "an automobile"], model="m")
    assert cosine(made.data[0].embedding, made.data[1].embedding) > 0.4


async def test_failures_are_scripted_in_their_order(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.embeddings.script(HttpError(429, headers={"retry-after": "7"}))
    with pytest.raises(openai.RateLimitError) as caught:
        await openai_client.embeddings.create(input="text", model="m")
    assert caught.value.response.headers["retry-after"] == "7"
    await openai_client.embeddings.create(input="text", model="m")
    provider.embeddings.default = HttpError(503)
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            await openai_client.embeddings.create(input="text", model="m")
    provider.reset()
    await openai_client.embeddings.create(input="text", model="m")


async def test_an_answer_waits_at_a_gate_and_half_of_one_is_sent(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    gate = Gate()
    provider.embeddings.script(EmbeddingAnswer(gate), EmbeddingAnswer(keep=0.5))
    asking = asyncio.create_task(openai_client.embeddings.create(input="text", model="m"))
    await gate.reached.wait()
    assert not asking.done()
    gate.release()
    await asking
    with pytest.raises(openai.APIConnectionError):
        await openai_client.embeddings.create(input="text", model="m")


async def test_a_client_that_leaves_is_seen(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.embeddings.script(NoAnswer())
    asking = asyncio.create_task(openai_client.embeddings.create(input="text", model="m"))
    request = await provider.embeddings.wait_for_request()
    asking.cancel()
    await request.finished.wait()
    assert request.closed_early


async def test_blank_input_is_refused_as_openai_refuses_it(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    for nothing in ([], [""], ["x"] * 2049):
        with pytest.raises(openai.BadRequestError):
            await openai_client.embeddings.create(input=nothing, model="m")
    assert all(request.refused for request in provider.embeddings.requests)


async def test_unused_failures_fail_the_test() -> None:
    with pytest.raises(ScriptMismatch, match="1 answer was not asked for"):
        async with ScriptedProvider() as provider:
            provider.embeddings.script(HttpError(500))
