"""Sends and their answers: the result of the run, its stream, or the run itself.

A request with the Idempotency-Key of an earlier one gets the answer about that one's run. Once a run is stored, no error
allows the client to send the message again: it would run twice.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import msgspec
from fastapi import Depends, Request, Response
from msgspec.structs import replace

from holdfast.core.agents import Actor
from holdfast.core.runs import IdempotencyKey, Run
from holdfast.errors import (
    AnswerMismatch,
    AnswerUnavailable,
    CallerError,
    HoldfastError,
    NotFound,
    PendingApproval,
    ServerStopping,
    StaleRun,
)
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.error_status import UNKNOWN_ERROR, public_text
from holdfast.http.json_body import MAX_BYTES_ON_LOOP, decode
from holdfast.http.json_response import json_response
from holdfast.http.letta_v1.streams import OnDisconnect, stream_from_start, stream_refusal
from holdfast.http.letta_v1.to_wire.errors import failure_response
from holdfast.http.letta_v1.to_wire.replies import letta_response
from holdfast.http.letta_v1.to_wire.runs import api_run
from holdfast.ports.services import Services
from holdfast.usecases import idempotency, messages
from holdfast.usecases.messages import NewSend

KEY_HEADER: Final = "idempotency-key"

# These are refused before there is a run. V1 noticed them only after it had sent the headers, so clients expect
# them in the stream (wire-v1 §4.2).
_REFUSED_IN_STREAM: Final = (CallerError, AnswerMismatch, PendingApproval)
_PENDING_APPROVAL: Final = "pending_approval"

T = TypeVar("T")

Prepare = Callable[[], Awaitable[NewSend]]
StartRun = Callable[[], Awaitable[Run]]


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends, with which key. ``prepare`` makes the message to send; it is not called for a repeated request."""

    services: Services
    actor: Actor
    key: IdempotencyKey | None

    async def wait(self, prepare: Prepare) -> Response:
        """Answer with the messages of the run, or its failure, when it has ended."""
        run = await self.find_or_start(lambda: self.send(prepare))
        with keep_from_sending_again(run):
            return await self._answer(run)

    async def stream(
        self, prepare: Prepare, *, on_disconnect: OnDisconnect = "continue"
    ) -> Response:
        """Answer with the run's stream.

        The stream of a run in the foreground begins when it is the run's turn: until then a busy thread can still be
        answered with a 409.
        """
        try:
            run = await self.find_or_start(lambda: self.send(prepare))
        except CallerError as error:
            if type(error) not in _REFUSED_IN_STREAM:
                raise
            return stream_refusal(error)
        with keep_from_sending_again(run):
            if not run.background:
                await messages.wait_for_turn(self.services, run)
                await self._refuse_withdrawn(run)
            return stream_from_start(self.services, self.actor, run, on_disconnect=on_disconnect)

    async def return_run(self, start: StartRun) -> Response:
        """Answer with the run at once. ``start`` sends with this key."""
        run = await self.find_or_start(start)
        with keep_from_sending_again(run):
            return json_response(api_run(run))

    async def send(self, prepare: Prepare) -> Run:
        new = replace(await prepare(), idempotency_key=self.key)
        return await messages.send(self.services, self.actor, new)

    async def find_or_start(self, start: Callable[[], Awaitable[T]]) -> Run | T:
        """The run of an earlier request with the same key, else what ``start`` returns, which sends with this key."""
        earlier = await self._find_earlier()
        if earlier is not None:
            return earlier
        try:
            return await start()
        except (CallerError, StaleRun):
            # A request with the same key at the same moment may have left nothing to do: no call to answer, say.
            earlier = await self._find_earlier()
            if earlier is None:
                raise
            return earlier

    async def _find_earlier(self) -> Run | None:
        """The run of an earlier request with the same key."""
        if self.key is None:
            return None
        return await messages.find_earlier(self.services, self.actor, self.key)

    async def _refuse_withdrawn(self, run: Run) -> None:
        """Another request with the same key may have withdrawn the run that both have waited for."""
        if self.key is not None:
            await idempotency.refuse_withdrawn(self.services, run)

    async def _answer(self, run: Run) -> Response:
        try:
            reply = await messages.wait(self.services, run)
        except (NotFound, ServerStopping):
            await self._refuse_withdrawn(run)
            raise
        failure = reply.ended.failure
        if failure is None:
            return json_response(letta_response(reply))
        if failure.kind == _PENDING_APPROVAL:
            # The run before this one paused while this one waited for its turn.
            raise PendingApproval(failure.pending_request_id or "", failure.pending_calls, run.id)
        return failure_response(failure, run.id)


@contextmanager
def keep_from_sending_again(run: Run) -> Iterator[None]:
    """Turn every error that clients would answer by sending the message again into one that tells them not to. Errors
    of the caller stay: those that clients repeat mean that the run was withdrawn."""
    try:
        yield
    except (CallerError, AnswerUnavailable):
        raise
    except Exception as error:
        why = public_text(error) if isinstance(error, HoldfastError) else UNKNOWN_ERROR
        raise AnswerUnavailable(
            run.id,
            f"The message is stored as the run {run.id}, but its answer cannot be given: {why}",
        ) from error


async def _get_sender(request: Request, services: ServicesDep, actor: ActorDep) -> Sender:
    return Sender(services, actor, await _read_key(request))


async def _read_key(request: Request) -> IdempotencyKey | None:
    # Not a declared header, for the same reason as in ``dependencies``.
    key = request.headers.get(KEY_HEADER)
    if key is None:
        return None
    idempotency.check_key(key)
    path, body = request.scope["path"], await request.body()
    if len(body) <= MAX_BYTES_ON_LOOP:
        return IdempotencyKey(key, _make_fingerprint(path, body))
    return IdempotencyKey(key, await asyncio.to_thread(_make_fingerprint, path, body))


def _make_fingerprint(path: str, body: bytes) -> str:
    return _hash(path.encode(), _sort_fields(body))


def _sort_fields(body: bytes) -> bytes:
    """The body in a form in which the order of fields and spaces do not count; as it is, if it is not JSON."""
    try:
        return msgspec.json.encode(decode(body), order="deterministic")
    except ValueError:
        return body


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        # The length keeps apart what belongs to which part.
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


SenderDep = Annotated[Sender, Depends(_get_sender)]
