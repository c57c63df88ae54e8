"""What every Embedder does, with a scripted provider over real sockets on each wire."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.model_questions import KEYS, OPENAI, provider_settings

from holdfast import errors, testing
from holdfast.adapters.embedder.router import MAX_REQUESTS, EmbedderRouter
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.core.embeddings import Vector, to_numbers, to_vector
from holdfast.ports.embedder import NO_EMBEDDER
from holdfast.testing import (
    EmbeddingAnswer,
    FakeClock,
    Gate,
    HttpError,
    ScriptedProvider,
    embed_words,
)

WIRES = {
    "openai": "openai/text-embedding-3-small",
    "google": "google_ai/gemini-embedding-001",
    "bedrock": "bedrock/cohere.embed-multilingual-v3",
}
HTTP_WIRES = {name: handle for name, handle in WIRES.items() if name != "bedrock"}


def open_embedder(provider: ScriptedProvider, **more: Any) -> EmbedderRouter:
    return EmbedderRouter(provider_settings(provider), **{"timeout_seconds": 10.0} | more)


@pytest.fixture
async def embedder(provider: ScriptedProvider) -> AsyncIterator[EmbedderRouter]:
    opened = open_embedder(provider)
    yield opened
    await opened.aclose()


@pytest.fixture(params=[*WIRES.values()], ids=[*WIRES])
def embedding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[*HTTP_WIRES.values()], ids=[*HTTP_WIRES])
def http_embedding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def words(text: str, dimensions: int = 256) -> Vector:
    return to_vector(embed_words(text, dimensions))


async def refuse(
    provider: ScriptedProvider,
    embedder: EmbedderRouter,
    handle: str,
    *scripted: testing.ScriptedEmbedding,
    texts: tuple[str, ...] = ("one", "two"),
) -> errors.ModelError:
    """How the embedder fails."""
    provider.embeddings.script(*scripted)
    with pytest.raises(errors.ModelError) as raised:
        await embedder.embed(handle, texts)
    return raised.value


async def test_each_text_gets_its_vector_in_order(
    provider: ScriptedProvider, embedder: EmbedderRouter, embedding: str
) -> None:
    texts = [f"text number {number}" for number in range(3)]
    made = await embedder.embed(embedding, texts)
    assert list(made.vectors) == [words(text) for text in texts]
    (request,) = provider.embeddings.requests
    assert (request.model, list(request.texts)) == (embedding.partition("/")[2], texts)


@pytest.mark.parametrize(
    "handle",
    [
        "mistral/mistral-embed",
        "openrouter/qwen/qwen3-embedding-8b",
        "vllm/BAAI/bge-m3",
        "ollama/nomic-embed-text",
        "bedrock/amazon.titan-embed-text-v2:0",
        "bedrock/amazon.nova-2-multimodal-embeddings-v1:0",
    ],
)
async def test_every_provider_with_such_an_api_makes_vectors(
    embedder: EmbedderRouter, handle: str
) -> None:
    assert embedder.is_configured(handle)
    made = await embedder.embed(handle, ["one cat", "two dogs"])
    assert list(made.vectors) == [words("one cat"), words("two dogs")]


async def test_azure_is_asked_below_the_deployment(provider: ScriptedProvider) -> None:
    account = {"api_key": "azure-key", "base_url": provider.url, "api_version": "2024-10-21"}
    embedder = EmbedderRouter(ProviderSettings({"azure": account}))
    await embedder.embed("azure/my-embeddings", ["text"])
    (request,) = provider.embeddings.requests
    assert request.path == "/openai/deployments/my-embeddings/embeddings"
    assert request.headers["api-key"] == "azure-key"
    await embedder.aclose()


async def test_queries_are_told_apart_from_documents_where_the_provider_does(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    await embedder.embed(WIRES["google"], ["text"])
    await embedder.embed(WIRES["google"], ["text"], is_query=True)
    await embedder.embed(WIRES["bedrock"], ["text"], is_query=True)
    document, query, other = (request.body for request in provider.embeddings.requests)
    assert document["requests"][0]["taskType"] == "RETRIEVAL_DOCUMENT"
    assert query["requests"][0]["taskType"] == "RETRIEVAL_QUERY"
    assert other["input_type"] == "search_query"


async def test_no_texts_are_no_request(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    assert (await embedder.embed(WIRES["openai"], [])).vectors == ()
    assert provider.embeddings.requests == []


async def test_more_texts_than_a_request_may_have_are_sent_in_several(
    provider: ScriptedProvider, embedder: EmbedderRouter, embedding: str
) -> None:
    texts = [f"text {number}" for number in range(70)]
    made = await embedder.embed(embedding, texts)
    assert list(made.vectors) == [words(text) for text in texts]
    sizes = sorted(len(request.texts) for request in provider.embeddings.requests)
    assert sizes == [6, 32, 32]


async def test_vectors_are_put_in_the_order_of_their_indexes(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    body = (
        '{"model":"m","data":[{"index":1,"embedding":[0,1]},{"index":0,"embedding":[1,0]}],'
        '"usage":{"prompt_tokens":2,"total_tokens":2}}'
    )
    provider.embeddings.script(testing.MalformedJson(body))
    made = await embedder.embed(WIRES["openai"], ["one", "two"])
    assert [to_numbers(vector) for vector in made.vectors] == [[1, 0], [0, 1]]


async def test_vectors_without_indexes_and_usage_keep_their_order(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    body = '{"data":[{"embedding":[0,1]},{"embedding":[1,0]}]}'
    provider.embeddings.script(testing.MalformedJson(body))
    made = await embedder.embed(WIRES["openai"], ["one", "two"])
    assert [to_numbers(vector) for vector in made.vectors] == [[0, 1], [1, 0]]
    assert (made.tokens, made.cost) == (0, None)


async def test_blank_text_is_sent_as_a_space(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    await embedder.embed(WIRES["openai"], ["", " \n", "word"])
    assert provider.embeddings.requests[0].texts == [" ", " ", "word"]


async def test_a_long_text_is_cut(provider: ScriptedProvider, embedder: EmbedderRouter) -> None:
    await embedder.embed(WIRES["openai"], ["word " * 20_000, "猫" * 20_000, "short"])
    sent = [len(text) for text in provider.embeddings.requests[0].texts]
    assert sent == [32_768, 10_922, 5]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 512 tokens, however you requested 9000."),
        (413, "Input validation error: `inputs` must have less than 512 tokens. Given: 9000"),
        (500, "input is too large to process. increase the physical batch size"),
    ],
    ids=["openai", "text-embeddings-inference", "llama.cpp"],
)
async def test_a_model_that_accepts_less_is_learned_and_asked_with_less(
    provider: ScriptedProvider, embedder: EmbedderRouter, status: int, message: str
) -> None:
    provider.embeddings.script(HttpError(status, message), HttpError(status, message))
    for _ in range(2):
        await embedder.embed(WIRES["openai"], ["a" * 40_000, "short"])
    sizes = [len(request.texts[0]) for request in provider.embeddings.requests]
    assert sizes == [32_768, 16_384, 8_192, 8_192]


async def test_a_short_text_is_not_cut_again_and_again(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    provider.embeddings.default = HttpError(400, "This model's context length is 0.")
    with pytest.raises(errors.ContextWindowExceeded):
        await embedder.embed(WIRES["openai"], ["a" * 1000])
    assert [len(request.texts[0]) for request in provider.embeddings.requests] == [1000, 500, 256]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.ModelRejectedRequest),
        (401, errors.ModelAuthFailed),
        (404, errors.ModelRejectedRequest),
        (429, errors.ModelRateLimited),
        (500, errors.ModelError),
        (503, errors.ModelOverloaded),
    ],
)
async def test_each_status_has_its_error(
    provider: ScriptedProvider,
    embedder: EmbedderRouter,
    embedding: str,
    status: int,
    expected: type[errors.ModelError],
) -> None:
    refused = await refuse(provider, embedder, embedding, HttpError(status, "Sorry."))
    assert type(refused) is expected
    assert refused.transient is (status == 429 or status >= 500)
    assert "Sorry." in refused.detail


async def test_a_provider_may_say_when_to_ask_again(
    provider: ScriptedProvider, embedder: EmbedderRouter, embedding: str
) -> None:
    fault = HttpError(429, headers={"retry-after": "7"})
    refused = await refuse(provider, embedder, embedding, fault)
    assert (refused.transient, refused.retry_after_seconds) == (True, 7)


async def test_an_error_does_not_show_the_key(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    key = KEYS[OPENAI]
    refused = await refuse(
        provider, embedder, WIRES["openai"], HttpError(401, f"Wrong key {key} given.")
    )
    assert provider.embeddings.requests[0].api_key == key
    assert key not in str(refused)


@pytest.mark.parametrize(
    "scripted",
    [
        pytest.param(EmbeddingAnswer(vectors=[[1.0, 0.0]]), id="one vector for two texts"),
        pytest.param(EmbeddingAnswer(vectors=[[1.0, 0.0]] * 3), id="three for two"),
        pytest.param(EmbeddingAnswer(vectors=[[1.0, 0.0], [1.0]]), id="mixed dimensions"),
        pytest.param(EmbeddingAnswer(vectors=[[1.0, 0.0], []]), id="an empty vector"),
        pytest.param(EmbeddingAnswer(vectors=[[1.0, 0.0], [0.0, 0.0]]), id="no direction"),
        pytest.param(EmbeddingAnswer(vectors=[[1.0, 0.0], [math.nan, 1.0]]), id="null"),
        pytest.param(EmbeddingAnswer(vectors=[[1.0, 0.0], [1e300, 1.0]]), id="too large"),
        pytest.param(EmbeddingAnswer(keep=0.5), id="half a body"),
        pytest.param(testing.MalformedJson('{"data": [{"emb'), id="half a JSON"),
        pytest.param(testing.MalformedJson('{"error": "but status 200"}'), id="another JSON"),
        pytest.param(testing.MalformedJson("<html>Hello</html>"), id="a page"),
        pytest.param(testing.EmptyAnswer(), id="nothing"),
        pytest.param(testing.ResetConnection(), id="reset"),
        pytest.param(EmbeddingAnswer(testing.HangUp()), id="hang up"),
    ],
)
async def test_an_answer_that_is_wrong_is_a_temporary_failure(
    provider: ScriptedProvider,
    embedder: EmbedderRouter,
    embedding: str,
    scripted: testing.ScriptedEmbedding,
) -> None:
    refused = await refuse(provider, embedder, embedding, scripted)
    assert refused.transient
    # And the next request is not disturbed.
    await embedder.embed(embedding, ["text"])


@pytest.mark.parametrize(
    "body",
    [
        '{"data":[{"index":0,"embedding":[NaN,1]},{"index":1,"embedding":[0,1]}]}',
        '{"data":[{"index":0,"embedding":[1e999,1]},{"index":1,"embedding":[0,1]}]}',
        '{"data":[{"index":0,"embedding":["1",1]},{"index":1,"embedding":[0,1]}]}',
        '{"data":[{"index":0,"embedding":[1,1]},{"index":0,"embedding":[0,1]}]}',
        '{"data":[{"index":1,"embedding":[1,1]},{"index":2,"embedding":[0,1]}]}',
        '{"data":[{"index":0,"embedding":[1,1]},{"embedding":[0,1]}]}',
        '{"data":{}}',
    ],
)
async def test_numbers_and_indexes_that_are_none_are_refused(
    provider: ScriptedProvider, embedder: EmbedderRouter, body: str
) -> None:
    refused = await refuse(provider, embedder, WIRES["openai"], testing.MalformedJson(body))
    assert refused.transient


async def test_batches_of_different_dimensions_are_refused(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    provider.embeddings.script(
        EmbeddingAnswer(vectors=[[1.0, 0.0]] * 32), EmbeddingAnswer(vectors=[[1.0]])
    )
    with pytest.raises(errors.ModelError, match="mixed vectors of 1 and 2 numbers"):
        await embedder.embed(WIRES["openai"], [f"text {number}" for number in range(33)])


async def test_a_failed_batch_ends_the_others(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    provider.embeddings.script(EmbeddingAnswer(testing.Hang()), HttpError(401))
    with pytest.raises(errors.ModelAuthFailed):
        await embedder.embed(WIRES["openai"], [f"text {number}" for number in range(64)])
    first = provider.embeddings.requests[0]
    await first.finished.wait(10)
    assert first.closed_early


@pytest.mark.parametrize("fault", [testing.NoAnswer(), EmbeddingAnswer(testing.Hang())])
async def test_a_late_answer_is_a_timeout(
    provider: ScriptedProvider, embedding: str, fault: testing.ScriptedEmbedding
) -> None:
    embedder = open_embedder(provider, timeout_seconds=0.3)
    # The SDK is loaded before: that is not the provider's time.
    await embedder.embed(embedding, ["text"])
    refused = await refuse(provider, embedder, embedding, fault)
    assert isinstance(refused, errors.ModelTimedOut)
    assert refused.transient
    await provider.embeddings.requests[-1].finished.wait(10)
    await embedder.aclose()


async def test_an_unreachable_provider_is_a_temporary_failure(embedding: str) -> None:
    async with ScriptedProvider() as provider:
        settings = provider_settings(provider)
    embedder = EmbedderRouter(settings)
    with pytest.raises(errors.ModelError) as raised:
        await embedder.embed(embedding, ["text"])
    assert raised.value.transient
    await embedder.aclose()


async def test_cancelling_closes_the_socket_at_once(
    provider: ScriptedProvider, embedder: EmbedderRouter, http_embedding: str
) -> None:
    await embedder.embed(http_embedding, ["text"])
    provider.embeddings.script(testing.NoAnswer())
    asking = asyncio.create_task(embedder.embed(http_embedding, ["text"]))
    request = await provider.embeddings.wait_for_request(2, timeout=10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await request.finished.wait(10)
    assert request.closed_early


async def test_cancelling_does_not_wait_for_an_sdk_that_waits_in_threads(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    await embedder.embed(WIRES["bedrock"], ["text"])
    gate = Gate()
    provider.embeddings.script(EmbeddingAnswer(gate))
    asking = asyncio.create_task(embedder.embed(WIRES["bedrock"], ["text"]))
    await gate.reached.wait(10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gate.release()
    await provider.embeddings.requests[-1].finished.wait(10)


async def test_a_query_does_not_wait_for_documents(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    gate = Gate()
    provider.embeddings.default = EmbeddingAnswer(gate)
    texts = [f"text {number}" for number in range(32 * 5)]
    storing = asyncio.create_task(embedder.embed(WIRES["openai"], texts))
    await provider.embeddings.wait_for_request(MAX_REQUESTS - 1, timeout=10)
    provider.embeddings.default = EmbeddingAnswer()
    await asyncio.wait_for(embedder.embed(WIRES["openai"], ["query"], is_query=True), 10)
    assert not storing.done()
    # Two of the documents' requests were under way, and the third was the query's.
    assert [len(request.texts) for request in provider.embeddings.requests] == [32, 32, 1]
    gate.release()
    assert len((await asyncio.wait_for(storing, 10)).vectors) == len(texts)


async def test_so_many_requests_are_under_way_at_once(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    gate = Gate()
    await embedder.embed(WIRES["openai"], ["text"])
    provider.embeddings.default = EmbeddingAnswer(gate)
    asking = [
        asyncio.create_task(embedder.embed(WIRES["openai"], ["query"], is_query=True))
        for _ in range(10)
    ]
    await provider.embeddings.wait_for_request(1 + MAX_REQUESTS, timeout=10)
    assert len(provider.embeddings.requests) == 1 + MAX_REQUESTS
    gate.release()
    await asyncio.wait_for(asyncio.gather(*asking), 10)
    assert len(provider.embeddings.requests) == 11


async def test_tokens_and_cost_are_those_of_the_provider(provider: ScriptedProvider) -> None:
    class OpenAiPrices(GenaiPrices):
        """As if the scripted provider were OpenAI itself."""

        def __init__(self) -> None:
            super().__init__({"openai": None, "bedrock": None}, FakeClock())

    embedder = open_embedder(provider, prices=OpenAiPrices())
    provider.embeddings.script(EmbeddingAnswer(tokens=1_000_000))
    made = await embedder.embed(WIRES["openai"], ["text"])
    # 2 cents, in billionths of a dollar.
    assert (made.tokens, made.cost) == (1_000_000, 20_000_000)
    provider.embeddings.script(EmbeddingAnswer(tokens=7))
    made = await embedder.embed(WIRES["bedrock"], ["text"])
    assert made.tokens == 7
    # A server of the operator has no known price.
    assert (await embedder.embed("vllm/bge-m3", ["text"])).cost is None
    await embedder.aclose()


async def test_dimensions_are_measured(
    provider: ScriptedProvider, embedder: EmbedderRouter
) -> None:
    provider.embeddings.dimensions = 48
    assert embedder.measured_dimensions("vllm/bge-m3") is None
    await embedder.embed("vllm/bge-m3", ["text"])
    assert embedder.measured_dimensions("vllm/bge-m3") == 48


@pytest.mark.parametrize(
    ("handle", "hint"),
    [
        ("openai/text-embedding-3-small", "Set OPENAI_API_KEY"),
        ("anthropic/claude-haiku-4-5", "makes no vectors"),
        ("letta/letta-free", "No provider for the embedding model letta/letta-free"),
        ("local/unheard-of", "No provider"),
        ("openai/", "No provider"),
        ("nonsense", "No provider"),
    ],
)
async def test_what_is_not_configured_is_unknown(handle: str, hint: str) -> None:
    anthropic = ProviderSettings({"anthropic": {"api_key": "sk-ant"}})
    for embedder in (EmbedderRouter(anthropic), NO_EMBEDDER):
        assert not embedder.is_configured(handle)
        with pytest.raises(errors.UnknownModel):
            await embedder.embed(handle, ["text"])
    with pytest.raises(errors.UnknownModel, match=hint):
        await EmbedderRouter(anthropic).embed(handle, ["text"])


async def test_a_bedrock_model_that_makes_no_vectors_is_refused(
    embedder: EmbedderRouter,
) -> None:
    with pytest.raises(errors.ModelRejectedRequest) as raised:
        await embedder.embed("bedrock/anthropic.claude-haiku-4-5", ["text"])
    assert not raised.value.transient
