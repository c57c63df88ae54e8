"""The scripted provider: the queue of answers, the recorded requests, and the two ways to run it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import msgspec

from holdfast.testing import replies
from holdfast.testing.embeddings import ScriptedEmbeddings
from holdfast.testing.models import model_list
from holdfast.testing.moments import DEFAULT_TIMEOUT_SECONDS, Moment
from holdfast.testing.rendering import render
from holdfast.testing.requests import ProviderRequest
from holdfast.testing.script import (
    Answer,
    HttpError,
    Scripted,
    SlowHeaders,
    ToolCall,
    TruncatedStream,
)
from holdfast.testing.server import Exchange, HttpRequest, Server
from holdfast.testing.signatures import Signatures
from holdfast.testing.wires import openai_chat, wire_at
from holdfast.testing.wires.embeddings import embedding_api_at
from holdfast.testing.wires.wire import Body, Wire

Condition: TypeAlias = Callable[[ProviderRequest], bool]
Responder: TypeAlias = Callable[[ProviderRequest], Scripted | str | None]

_NOT_JSON = "We could not parse the JSON body of your request."
_WRONG_SHAPE = "The request body does not have the expected shape."
_NOTHING_SCRIPTED = "Nothing is scripted for this request."
# The answer inside a fault that was scripted without one.
_PLAIN_ANSWER = Answer("Hello from the scripted provider.")
# Of a text in an error message.
_SHOWN_CHARS = 80


class ScriptMismatch(AssertionError):
    """The test scripted answers that were not asked for, or requests came for which nothing was scripted."""


@dataclass(frozen=True, slots=True)
class _Entry:
    scripted: Scripted
    when: Condition | None


class ScriptedProvider:
    """A model provider on loopback that answers as the test scripts it.

    Run it in the test's own loop with `async with ScriptedProvider() as provider`, or in a thread
    with `with ScriptedProvider.in_thread() as provider`. Scripting and reading are safe from any
    thread. Queued answers come first, then `respond_with`'s function, then `default`. A request for
    which there is none of these is answered with status 400.

    Leaving the context checks the script (`check`), unless the test has failed already.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        default: Scripted | str | None = None,
        models: Iterable[str] = ("scripted-model",),
        strict: bool = True,
        record: bool = True,
        check_script: bool = True,
    ) -> None:
        """Prepare; nothing listens yet.

        `default` is the answer when nothing else is scripted. `strict` refuses what the real
        provider would refuse. Without `record` no requests are kept, for a provider that serves very
        many. Without `check_script` leaving the context checks nothing.
        """
        self.default = None if default is None else _as_scripted(default)
        self.embeddings = ScriptedEmbeddings(strict=strict, record=record)
        self._host = host
        self._port = port
        self._models = replies.complete_response(200, model_list(models))
        self._strict = strict
        self._record = record
        self._check_script = check_script
        self._server = Server(self._answer)
        self._lock = threading.RLock()
        self._queue: list[_Entry] = []
        self._responder: Responder | None = None
        self._requests: list[ProviderRequest] = []
        self._unscripted: list[ProviderRequest] = []
        self._waiters: list[tuple[int, Moment]] = []
        self._answer_count = 0
        self._call_count = 0
        self._signatures = Signatures()

    # address

    @property
    def url(self) -> str:
        """The root address; the base URL for Anthropic and Google clients."""
        return f"http://{self._host}:{self._port}"

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI clients."""
        return f"{self.url}/v1"

    # script

    def script(self, *answers: Scripted | str, when: Condition | None = None) -> None:
        """Queue answers for the next requests, in order.

        With `when` they are only for requests that it accepts: each request gets the first queued
        answer that is for it.
        """
        with self._lock:
            self._queue.extend(_Entry(_as_scripted(answer), when) for answer in answers)

    def respond_with(self, responder: Responder | None) -> None:
        """Let a function answer when nothing is queued; its None means the default."""
        with self._lock:
            self._responder = responder

    @property
    def unused_answers(self) -> list[Scripted]:
        """The queued answers that no request has taken yet."""
        with self._lock:
            return [entry.scripted for entry in self._queue]

    # requests

    @property
    def requests(self) -> list[ProviderRequest]:
        with self._lock:
            return list(self._requests)

    @property
    def unscripted_requests(self) -> list[ProviderRequest]:
        """The requests for which nothing was scripted, since the start or `reset`."""
        with self._lock:
            return list(self._unscripted)

    def check(self) -> None:
        """Raise ScriptMismatch if answers are unused, or requests found nothing scripted."""
        problems = []
        if unused := [*self.unused_answers, *self.embeddings.unused_answers]:
            problems.append(
                f"{_count(unused, 'answer')} not asked for: "
                + ", ".join(_shorten(repr(answer)) for answer in unused)
            )
        if unscripted := self.unscripted_requests:
            found = "request" if len(unscripted) == 1 else "requests"
            problems.append(
                f"{len(unscripted)} {found} found nothing scripted: "
                + ", ".join(
                    f"{_shorten(repr(request.user_text))} for {request.model}"
                    for request in unscripted
                )
            )
        if problems:
            raise ScriptMismatch("; ".join(problems))

    async def wait_for_request(
        self,
        number: int = 1,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,  # noqa: ASYNC109 - part of the interface, as in `block_for_request`
    ) -> ProviderRequest:
        """Wait for the given request, counted from 1 since the start or `reset`; return it."""
        await self._arrival_moment(number).wait(timeout)
        return self.requests[number - 1]

    def block_for_request(
        self, number: int = 1, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> ProviderRequest:
        """Block this thread until that request arrives. Not for the thread that the provider runs in."""
        self._arrival_moment(number).block(timeout)
        return self.requests[number - 1]

    def reset(self) -> None:
        """Forget script, function and requests. Generated ids go on, so that none is used twice."""
        with self._lock:
            self._queue.clear()
            self._requests.clear()
            self._unscripted.clear()
            self._responder = None
        self.embeddings.reset()

    # running

    async def __aenter__(self) -> Self:
        self._port = await self._server.start(self._host, self._port)
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_error: object) -> None:
        await self._server.stop()
        if error_type is None and self._check_script:
            self.check()

    @classmethod
    @contextmanager
    def in_thread(
        cls,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        default: Scripted | str | None = None,
        models: Iterable[str] = ("scripted-model",),
        strict: bool = True,
        record: bool = True,
        check_script: bool = True,
    ) -> Iterator[Self]:
        """Run a provider in a separate thread."""
        provider = cls(
            host=host,
            port=port,
            default=default,
            models=models,
            strict=strict,
            record=record,
            check_script=check_script,
        )
        started: Future[None] = Future()
        leaving = Moment("leaving the provider's context")
        thread = threading.Thread(
            target=lambda: asyncio.run(provider._serve_until(leaving, started)),
            name="scripted-provider",
            daemon=True,
        )
        thread.start()
        try:
            started.result(DEFAULT_TIMEOUT_SECONDS)
            yield provider
        finally:
            leaving.happen()
            thread.join(DEFAULT_TIMEOUT_SECONDS)
        if check_script:
            provider.check()

    async def _serve_until(self, leaving: Moment, started: "Future[None]") -> None:
        try:
            await self.__aenter__()
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            await leaving.wait(timeout=None)
        finally:
            await self._server.stop()

    # answering

    def _answer(self, http: HttpRequest) -> Exchange:
        path = http.target.partition("?")[0]
        asked = wire_at(path)
        if asked is not None and http.method == "POST":
            return self._answer_model_request(http, path, *asked)
        embedding_api = embedding_api_at(path)
        if embedding_api is not None and http.method == "POST":
            return self.embeddings.answer(http, path, embedding_api)
        if path == "/v1/models" and http.method == "GET":
            return Exchange([self._models], _ignore_end)
        message = f"Invalid URL ({http.method} {path})"
        error = openai_chat.WIRE.error(HttpError(404, message, code="unknown_url"))
        return Exchange([replies.complete_response(404, error)], _ignore_end)

    def _answer_model_request(
        self, http: HttpRequest, path: str, wire: Wire, in_path: Body
    ) -> Exchange:
        body = _parse_json(http.body)
        if body is not None:
            body |= in_path
        request = ProviderRequest(wire.name, path, http.headers, body or {}, time.monotonic())
        request.refused = _NOT_JSON if body is None else self._refusal(wire, body)
        with self._lock:
            self._record_request(request)
            if request.refused is not None:
                scripted: Scripted = HttpError(400, request.refused)
            else:
                scripted = self._with_ids(self._choose(request), wire)
                self._signatures.record(wire.name, scripted)
            self._answer_count += 1
            response_id = f"{wire.response_prefix}{self._answer_count:08d}"
        return Exchange(
            render(scripted, wire, response_id, request.body),
            lambda closed_early: _finish_request(request, closed_early=closed_early),
        )

    def _refusal(self, wire: Wire, body: Body) -> str | None:
        if not self._strict:
            return None
        try:
            return wire.refusal(body) or self._signatures.refusal(wire.name, body)
        except (AttributeError, KeyError, TypeError):
            # The rules read the body as the API describes it; the API refuses what is otherwise.
            return _WRONG_SHAPE

    def _choose(self, request: ProviderRequest) -> Scripted:
        for index, entry in enumerate(self._queue):
            if entry.when is None or entry.when(request):
                del self._queue[index]
                return entry.scripted
        chosen = self._responder(request) if self._responder is not None else None
        if chosen is not None:
            return _as_scripted(chosen)
        if self.default is None:
            self._unscripted.append(request)
            return HttpError(400, _NOTHING_SCRIPTED)
        return self.default

    def _with_ids(self, scripted: Scripted, wire: Wire) -> Scripted:
        """Fill in what the script left out: the answer inside a fault, the ids of tool calls."""
        match scripted:
            case SlowHeaders(answer=inner) | TruncatedStream(answer=inner):
                filled = self._with_ids(inner or self.default or _PLAIN_ANSWER, wire)
                if not isinstance(filled, Answer):
                    raise TypeError(f"{scripted} needs an answer, and the default is not one")
                return replace(scripted, answer=filled)
            case Answer(parts=parts) if any(_lacks_id(part) for part in parts):
                minted = (
                    replace(part, id=self._mint(wire))
                    if isinstance(part, ToolCall) and part.id is None
                    else part
                    for part in parts
                )
                return Answer(*minted, usage=scripted.usage, finish=scripted.finish)
            case _:
                return scripted

    def _mint(self, wire: Wire) -> str:
        self._call_count += 1
        return f"{wire.call_prefix}{self._call_count:08d}"

    def _record_request(self, request: ProviderRequest) -> None:
        if not self._record:
            return
        self._requests.append(request)
        arrived = len(self._requests)
        for number, moment in self._waiters:
            if number <= arrived:
                moment.happen()
        self._waiters = [waiting for waiting in self._waiters if waiting[0] > arrived]

    def _arrival_moment(self, number: int) -> Moment:
        moment = Moment(f"the arrival of request {number}")
        with self._lock:
            if len(self._requests) >= number:
                moment.happen()
            else:
                self._waiters.append((number, moment))
        return moment


def _count(items: Sequence[object], noun: str) -> str:
    return f"1 {noun} was" if len(items) == 1 else f"{len(items)} {noun}s were"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _as_scripted(given: Scripted | str) -> Scripted:
    return Answer(given) if isinstance(given, str) else given


def _lacks_id(part: object) -> bool:
    return isinstance(part, ToolCall) and part.id is None


def _parse_json(body: bytes) -> Body | None:
    try:
        parsed = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _finish_request(request: ProviderRequest, *, closed_early: bool) -> None:
    if closed_early:
        request.closed_early = True
        request.closed_at = time.monotonic()
    request.finished.happen()


def _ignore_end(_closed_early: bool) -> None:
    """Only model requests are recorded."""
