"""The APIs that make vectors: OpenAI's, which all compatible servers have, Google's and Bedrock's. Pure."""

import re
from array import array
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote

from holdfast.testing.script import HttpError
from holdfast.testing.wires import bedrock, google, openai_errors
from holdfast.testing.wires.wire import Body, encode

Vectors: TypeAlias = Sequence[Sequence[float]]

# How many texts OpenAI accepts at once.
_OPENAI_MAX_TEXTS = 2048

_GOOGLE = re.compile(
    r"/v1(?:beta\d?|alpha)?/(?:projects/[^/]+/locations/[^/]+/publishers/google/)?"
    r"models/(?P<model>[^:]+):(?P<how>batchEmbedContents|embedContent|predict)"
)
_BEDROCK = re.compile(r"/model/(?P<model>[^/]+)/invoke")


@dataclass(frozen=True, slots=True)
class EmbeddingApi:
    """One way to ask for vectors: how its requests are read and its answers and errors written."""

    name: str
    read_texts: Callable[[Body], list[str]]
    read_dimensions: Callable[[Body], int | None]
    write_body: Callable[[Body, Vectors, int], Any]
    error: Callable[[HttpError], bytes]
    refusal: Callable[[Sequence[str]], str | None] = lambda _: None
    write_headers: Callable[[int], Mapping[str, str]] = lambda _: {}


@dataclass(frozen=True, slots=True)
class AskedApi:
    """The API at a path, and the part of the request that the path contains."""

    api: EmbeddingApi
    in_path: Body = field(default_factory=dict)


def embedding_api_at(path: str) -> AskedApi | None:
    if path.endswith("/embeddings"):
        return AskedApi(_OPENAI)
    if asked := _GOOGLE.fullmatch(path):
        return AskedApi(_GOOGLE_APIS[asked["how"]], {"model": asked["model"]})
    if asked := _BEDROCK.fullmatch(path):
        return AskedApi(_BEDROCK_INVOKE, {"model": unquote(asked["model"])})
    return None


def encode_answer(api: EmbeddingApi, body: Body, vectors: Vectors, tokens: int) -> bytes:
    return encode(api.write_body(body, vectors, tokens))


def _openai_texts(body: Body) -> list[str]:
    given = body["input"]
    return [given] if isinstance(given, str) else list(given)


def _openai_refusal(texts: Sequence[str]) -> str | None:
    if not texts or not all(texts) or not all(isinstance(text, str) for text in texts):
        return "'$.input' is invalid. Please check the API reference: https://platform.openai.com/docs/api-reference."
    if len(texts) > _OPENAI_MAX_TEXTS:
        return f"'input' array too long. Expected an array with maximum length {_OPENAI_MAX_TEXTS}."
    return None


def _openai_answer(body: Body, vectors: Vectors, tokens: int) -> Body:
    def show(vector: Sequence[float]) -> object:
        if body.get("encoding_format") != "base64":
            return vector
        return b64encode(array("f", vector).tobytes()).decode()

    data = [
        {"object": "embedding", "index": index, "embedding": show(vector)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.get("model"), "usage": usage}


def _content_text(content: Mapping[str, Any]) -> str:
    return "".join(str(part.get("text", "")) for part in content["parts"])


def _google_values(_body: Body, vectors: Vectors, _tokens: int) -> Body:
    return {"embeddings": [{"values": vector} for vector in vectors]}


def _google_value(_body: Body, vectors: Vectors, _tokens: int) -> Body:
    return {"embedding": {"values": vectors[0]}}


def _google_predictions(_body: Body, vectors: Vectors, tokens: int) -> Body:
    share = tokens // max(1, len(vectors))
    return {
        "predictions": [
            {"embeddings": {"values": vector, "statistics": {"token_count": share}}}
            for vector in vectors
        ]
    }


def _bedrock_texts(body: Body) -> list[str]:
    match body:
        case {"inputText": str(text)}:  # Titan
            return [text]
        case {"texts": list(texts)}:  # Cohere
            return texts
        case {"singleEmbeddingParams": {"text": {"value": str(text)}}}:  # Nova
            return [text]
    raise KeyError("inputText")


def _bedrock_dimensions(body: Body) -> int | None:
    inner = body.get("singleEmbeddingParams") or {}
    return body.get("dimensions") or body.get("output_dimension") or inner.get("embeddingDimension")


def _bedrock_answer(body: Body, vectors: Vectors, tokens: int) -> Body:
    if "inputText" in body:
        return {"embedding": vectors[0], "inputTextTokenCount": tokens}
    if "texts" in body:
        return {"id": "scripted", "embeddings": vectors, "response_type": "embeddings_floats"}
    return {"embeddings": [{"embeddingType": "TEXT", "embedding": vectors[0]}]}


_OPENAI = EmbeddingApi(
    name="openai",
    read_texts=_openai_texts,
    read_dimensions=lambda body: body.get("dimensions"),
    write_body=_openai_answer,
    error=openai_errors.error,
    refusal=_openai_refusal,
)

_GOOGLE_APIS = {
    "batchEmbedContents": EmbeddingApi(
        name="google",
        read_texts=lambda body: [_content_text(one["content"]) for one in body["requests"]],
        read_dimensions=lambda body: body["requests"][0].get("outputDimensionality"),
        write_body=_google_values,
        error=google.error,
    ),
    "embedContent": EmbeddingApi(
        name="google",
        read_texts=lambda body: [_content_text(body["content"])],
        read_dimensions=lambda body: body.get("outputDimensionality"),
        write_body=_google_value,
        error=google.error,
    ),
    "predict": EmbeddingApi(
        name="google",
        read_texts=lambda body: [str(one["content"]) for one in body["instances"]],
        read_dimensions=lambda body: (body.get("parameters") or {}).get("outputDimensionality"),
        write_body=_google_predictions,
        error=google.error,
    ),
}

_BEDROCK_INVOKE = EmbeddingApi(
    name="bedrock",
    read_texts=_bedrock_texts,
    read_dimensions=_bedrock_dimensions,
    write_body=_bedrock_answer,
    error=bedrock.WIRE.error,
    write_headers=lambda tokens: {"x-amzn-bedrock-input-token-count": str(tokens)},
)
