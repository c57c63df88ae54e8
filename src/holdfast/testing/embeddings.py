"""The scripted provider's embeddings: vectors of words unless the test scripts something else, and the recorded requests."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from holdfast.testing import replies
from holdfast.testing.moments import DEFAULT_TIMEOUT_SECONDS, Moment
from holdfast.testing.replies import Reply
from holdfast.testing.script import (
    EmptyAnswer,
    Gate,
    Hang,
    HangUp,
    HttpError,
    MalformedJson,
    NoAnswer,
    Pause,
    ResetConnection,
)
from holdfast.testing.server import Exchange, HttpRequest
from holdfast.testing.wires.embeddings import AskedApi, EmbeddingApi, encode_answer
from holdfast.testing.wires.wire import Body
from holdfast.testing.word_vectors import DEFAULT_DIMENSIONS, embed_words, fold_synonyms

_HANG_UP = HangUp()
_WRONG_SHAPE = "The request body does not have the expected shape."


@dataclass(frozen=True, slots=True, init=False)
class EmbeddingAnswer:
    """Vectors, after the given waits. Without `vectors` those of the words of each text; `tokens` is their count then.

    `keep` cuts the answer off after that share of it: `keep=0.5` sends half of it and then, as `end` says, closes the
    connection or sends nothing more.
    """

    waits: tuple[Pause | Gate | Hang | HangUp, ...]
    vectors: Sequence[Sequence[float]] | None
    tokens: int | None
    keep: float
    end: HangUp | Hang

    def __init__(
        self,
        *waits: Pause | Gate | Hang | HangUp,
        vectors: Sequence[Sequence[float]] | None = None,
        tokens: int | None = None,
        keep: float = 1.0,
        end: HangUp | Hang = _HANG_UP,
    ) -> None:
        object.__setattr__(self, "waits", waits)
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "keep", keep)
        object.__setattr__(self, "end", end)


ScriptedEmbedding: TypeAlias = (
    EmbeddingAnswer | HttpError | MalformedJson | EmptyAnswer | NoAnswer | ResetConnection
)


@dataclass(slots=True, eq=False)
class EmbeddingRequest:
    """One request for vectors. `finished` and `closed_early` as in `ProviderRequest`."""

    wire: str
    path: str
    headers: Mapping[str, str]
    body: Body
    texts: Sequence[str]
    received_at: float
    refused: str | None = None
    closed_early: bool = False
    closed_at: float | None = None
    finished: Moment = field(default_factory=lambda: Moment("the end of the vectors"))

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def api_key(self) -> str:
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-goog-api-key") or bearer


class ScriptedEmbeddings:
    """`provider.embeddings`. Every request is answered with vectors unless something is queued (`script`) or `default` is
    a fault. Safe from any thread."""

    def __init__(self, *, strict: bool, record: bool) -> None:
        self.default: ScriptedEmbedding = EmbeddingAnswer()
        # Of a request that does not say how many it wants.
        self.dimensions = DEFAULT_DIMENSIONS
        self._strict = strict
        self._record = record
        self._lock = threading.RLock()
        self._queue: list[ScriptedEmbedding] = []
        self._requests: list[EmbeddingRequest] = []
        self._synonyms: dict[str, str] = {}
        self._waiters: list[tuple[int, Moment]] = []

    def script(self, *answers: ScriptedEmbedding) -> None:
        """Queue answers for the next requests, in order."""
        with self._lock:
            self._queue.extend(answers)

    def add_synonyms(self, *words: str) -> None:
        """Words that mean the same: texts with them are near, although they share none."""
        with self._lock:
            self._synonyms |= fold_synonyms(words)

    @property
    def unused_answers(self) -> list[ScriptedEmbedding]:
        with self._lock:
            return list(self._queue)

    @property
    def requests(self) -> list[EmbeddingRequest]:
        with self._lock:
            return list(self._requests)

    async def wait_for_request(
        self,
        number: int = 1,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,  # noqa: ASYNC109 - part of the interface, as in `block_for_request`
    ) -> EmbeddingRequest:
        """Wait for the given request, counted from 1 since the start or `reset`; return it."""
        await self._arrival_moment(number).wait(timeout)
        return self.requests[number - 1]

    def block_for_request(
        self, number: int = 1, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> EmbeddingRequest:
        """Block this thread until that request arrives. Not for the thread that the provider runs in."""
        self._arrival_moment(number).block(timeout)
        return self.requests[number - 1]

    def embed(self, text: str, dimensions: int | None = None) -> list[float]:
        """The vector with which this text is answered."""
        return embed_words(text, dimensions or self.dimensions, synonyms=self._synonyms)

    def reset(self) -> None:
        """Forget queue, default, synonyms and requests."""
        with self._lock:
            self._queue.clear()
            self._requests.clear()
            self._synonyms.clear()
            self.default = EmbeddingAnswer()

    def answer(self, http: HttpRequest, path: str, asked: AskedApi) -> Exchange:
        """Record the request and answer it."""
        api = asked.api
        try:
            body = msgspec.json.decode(http.body, type=Body) | asked.in_path
            texts = api.read_texts(body)
            refused = api.refusal(texts) if self._strict else None
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
            body, texts, refused = dict(asked.in_path), [], _WRONG_SHAPE
        request = EmbeddingRequest(
            api.name, path, http.headers, body, texts, time.monotonic(), refused
        )
        with self._lock:
            self._record_request(request)
            if refused is not None:
                scripted: ScriptedEmbedding = HttpError(400, refused)
            else:
                scripted = self._queue.pop(0) if self._queue else self.default
            reply = self._render(scripted, api, request)
        return Exchange(reply, lambda closed: _finish_request(request, closed_early=closed))

    def _render(
        self, scripted: ScriptedEmbedding, api: EmbeddingApi, request: EmbeddingRequest
    ) -> Reply:
        match scripted:
            case HttpError(page=str(page)):
                error = replies.complete_response(
                    scripted.status,
                    page.encode(),
                    content_type="text/html",
                    headers=scripted.headers,
                )
                return [error]
            case HttpError():
                body = api.error(scripted)
                return [replies.complete_response(scripted.status, body, headers=scripted.headers)]
            case MalformedJson(body=text):
                return [replies.complete_response(200, text.encode())]
            case EmptyAnswer():
                return [replies.complete_response(200, b"")]
            case NoAnswer():
                return [Hang()]
            case ResetConnection():
                return [ResetConnection()]
            case EmbeddingAnswer():
                return self._render_vectors(scripted, api, request)

    def _render_vectors(
        self, answer: EmbeddingAnswer, api: EmbeddingApi, request: EmbeddingRequest
    ) -> Reply:
        dimensions = api.read_dimensions(request.body)
        vectors = answer.vectors
        if vectors is None:
            vectors = [self.embed(text, dimensions) for text in request.texts]
        tokens = answer.tokens
        if tokens is None:
            tokens = sum(len(text.split()) or 1 for text in request.texts)
        body = encode_answer(api, request.body, vectors, tokens)
        whole = replies.complete_response(200, body, headers=api.write_headers(tokens))
        if answer.keep < 1:
            return [*answer.waits, whole[: round(len(whole) * answer.keep)], answer.end]
        return [*answer.waits, whole]

    def _record_request(self, request: EmbeddingRequest) -> None:
        if not self._record:
            return
        self._requests.append(request)
        arrived = len(self._requests)
        for number, moment in self._waiters:
            if number <= arrived:
                moment.happen()
        self._waiters = [waiting for waiting in self._waiters if waiting[0] > arrived]

    def _arrival_moment(self, number: int) -> Moment:
        moment = Moment(f"the arrival of embedding request {number}")
        with self._lock:
            if len(self._requests) >= number:
                moment.happen()
            else:
                self._waiters.append((number, moment))
        return moment


def _finish_request(request: EmbeddingRequest, *, closed_early: bool) -> None:
    if closed_early:
        request.closed_early = True
        request.closed_at = time.monotonic()
    request.finished.happen()
