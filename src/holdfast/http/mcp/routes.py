"""The one route of this wire. Its requests are POSTs; there is no stream to GET and no session to DELETE."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import cache

from fastapi import APIRouter, HTTPException, Request, Response

from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import MAX_BYTES_ON_LOOP, decode
from holdfast.http.json_response import json_response
from holdfast.http.mcp.refusals import PARSE_ERROR, refuse
from holdfast.loading import load_in_thread

PATH = "/mcp"

# Not in the OpenAPI document: it describes no JSON-RPC, and clients of this protocol do not read it.
router = APIRouter(include_in_schema=False)


@router.post(PATH)
async def answer_mcp(request: Request, services: ServicesDep, actor: ActorDep) -> Response:
    """Answer one JSON-RPC message of the Model Context Protocol."""
    may_stream = _check_headers(request)
    body = await request.body()
    try:
        if len(body) <= MAX_BYTES_ON_LOOP:
            message = decode(body)
        else:
            message = await asyncio.to_thread(decode, body)
    except json.JSONDecodeError as error:
        return json_response(refuse(f"Parse error: {error.msg}", PARSE_ERROR), 400)
    is_loaded = _load_protocol.cache_info().currsize > 0
    answer = _load_protocol() if is_loaded else await load_in_thread(_load_protocol)
    return await answer(message, request, services, actor, may_stream=may_stream)


@cache
def _load_protocol() -> Callable[..., Awaitable[Response]]:
    from holdfast.http.mcp.exchange import answer  # noqa: PLC0415 - the SDK takes 0.6 s and 26 MB

    return answer


def _check_headers(request: Request) -> bool:
    """Refuse what is not this protocol. Whether the client takes a stream of events for an answer."""
    content = _media_types(request.headers.get("content-type", "application/json"))
    if content != {"application/json"}:
        raise HTTPException(415, "The content type must be application/json.")
    accepted = _media_types(request.headers.get("accept", "*/*"))
    if not accepted & {"application/json", "application/*", "*/*"}:
        raise HTTPException(
            406, "The client must accept application/json, and should accept text/event-stream."
        )
    return bool(accepted & {"text/event-stream", "text/*", "*/*"})


def _media_types(header: str) -> set[str]:
    return {part.split(";")[0].strip().lower() for part in header.split(",")}
