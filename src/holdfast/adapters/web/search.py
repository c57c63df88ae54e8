"""Searching the web with the engine that an agent's secrets or the operator's settings choose."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.web.engines import (
    ENGINES,
    EXA,
    Engine,
    EngineRequest,
    SearchQuery,
    build_exa_contents,
    read_exa_contents,
)
from holdfast.adapters.web.user_agent import USER_AGENT
from holdfast.core.addresses import MAX_URL_CHARACTERS, parse_allowed
from holdfast.errors import CallerError, ToolError, Undeliverable
from holdfast.ports.outgoing import OutgoingRequest, OutgoingResponse

MAX_SECONDS: Final = 30.0
MAX_PAGE_SECONDS: Final = 10.0
"""How long Exa may take for a page: there must be time to ask its site."""

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
# V1's words, up to the first full stop.
NO_KEY: Final = (
    "Error executing function web_search: ValueError: EXA_API_KEY is not set in environment or on agent_state tool "
    "execution environment variables. No search engine is configured: set EXA_API_KEY, BRAVE_API_KEY or TAVILY_API_KEY "
    "for the server or as a secret of the agent, or HOLDFAST_SEARXNG_URL for the server."
)

_MAX_REASON_CHARS: Final = 200
# What a header can carry. The client's error about anything else would show the key.
_KEY: Final = re.compile(r"[!-~]+")
# The addresses of engines are the operator's or constants, so private ones are no danger.
_EVERYWHERE: Final = parse_allowed(["0.0.0.0/0", "::/0"])


class SearchOptions(Struct, frozen=True, kw_only=True):
    """What the operator has configured."""

    # The name of the engine; None: the first that is configured.
    engine: str | None = None
    searxng_url: str | None = None
    # By the names that agents' secrets have, such as ``EXA_API_KEY``.
    keys: Mapping[str, str] = {}
    # Other addresses than the public ones, by engine: for tests.
    addresses: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"SearchOptions({self.engine!r}, …)"


class _EngineFailed(Exception):
    """The sentence says why there is no answer."""


class _ChosenEngine(Struct, frozen=True):
    engine: Engine
    address: str
    key: str


class WebSearch:
    def __init__(self, options: SearchOptions) -> None:
        self._options = options
        self._outgoing = GuardedOutgoing(_EVERYWHERE)

    async def search(self, query: SearchQuery, secrets: Mapping[str, str]) -> str:
        """The results as JSON, with the filters that the engine could not apply. ToolError if there is no engine."""
        query, chosen = query.clean(), self._choose(secrets)
        engine = chosen.engine
        try:
            request = engine.build(query, chosen.key)
            _check_length(chosen, request)
            results = _read_results(engine, await self._ask(chosen, request), query)
        except _EngineFailed as failure:
            return _to_json({"query": query.query, "error": f"Search failed: {failure}"})
        ignored = engine.find_ignored(query)
        told = {"ignored": ignored} if ignored else {}
        return _to_json({"query": query.query, "results": results, **told})

    def has_pages(self, secrets: Mapping[str, str]) -> bool:
        """Whether ``find_page`` has somebody to ask."""
        return self._find_exa(secrets) is not None

    async def find_page(self, url: str, secrets: Mapping[str, str]) -> str | None:
        """The page as Exa has it, as JSON; None without a key for Exa, and if Exa does not have it."""
        chosen = self._find_exa(secrets)
        if chosen is None:
            return None
        try:
            answer = await self._ask(chosen, build_exa_contents(url, chosen.key), MAX_PAGE_SECONDS)
            return read_exa_contents(answer)
        except (_EngineFailed, LookupError, TypeError, AttributeError):
            return None

    def _choose(self, secrets: Mapping[str, str]) -> _ChosenEngine:
        """By the agent's secrets first, then by the server's settings. Of several, the one that the operator named; else
        the agent's Exa, or the first of the table."""
        named = ENGINES.get(self._options.engine or "")
        first = (named,) if named is not None else ()
        for engine in (*first, EXA, *ENGINES.values()):
            if (chosen := self._with_key(engine, secrets)) is not None:
                return chosen
        for engine in first or ENGINES.values():
            if (chosen := self._with_settings(engine)) is not None:
                return chosen
        raise ToolError(NO_KEY)

    def _find_exa(self, secrets: Mapping[str, str]) -> _ChosenEngine | None:
        try:
            return self._with_key(EXA, secrets) or self._with_key(EXA, self._options.keys)
        except ToolError:
            # A page can be read without Exa; searching tells what is wrong with the key.
            return None

    def _with_key(self, engine: Engine, keys: Mapping[str, str]) -> _ChosenEngine | None:
        key = keys.get(engine.key_name, "").strip() if engine.key_name else ""
        if not key or engine.address is None:
            return None
        if _KEY.fullmatch(key) is None:
            raise ToolError(
                f"{engine.key_name} cannot be a key: it has blanks, control characters or letters beyond ASCII."
            )
        return _ChosenEngine(engine, self._options.addresses.get(engine.name, engine.address), key)

    def _with_settings(self, engine: Engine) -> _ChosenEngine | None:
        if engine.key_name is not None:
            return self._with_key(engine, self._options.keys)
        url = self._options.searxng_url
        return None if url is None else _ChosenEngine(engine, url.rstrip("/"), "")

    async def _ask(
        self, chosen: _ChosenEngine, request: EngineRequest, seconds: float = MAX_SECONDS
    ) -> Any:
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json", **request.headers}
        body = b""
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(request.body).encode()
        try:
            response = await self._outgoing.send(
                OutgoingRequest(
                    url=f"{chosen.address}{request.path}",
                    method="GET" if request.body is None else "POST",
                    headers=headers,
                    body=body,
                    timeout_seconds=seconds,
                    max_response_bytes=MAX_ANSWER_BYTES,
                )
            )
        except (Undeliverable, CallerError) as error:
            raise _EngineFailed(_without_key(str(error), chosen.key)) from None
        if response.status != 200:
            raise _EngineFailed(_describe_refusal(chosen, response))
        try:
            return json.loads(response.body)
        except (ValueError, RecursionError):
            raise _EngineFailed(f"the answer of {chosen.engine.name} is not JSON") from None


def _check_length(chosen: _ChosenEngine, request: EngineRequest) -> None:
    if request.body is not None:
        return
    length = len(chosen.address) + len(request.path)
    if length > MAX_URL_CHARACTERS:
        raise _EngineFailed(
            f"the query is too long for {chosen.engine.name}: with its domains and encoded for a URL it makes {length} "
            f"characters, at most {MAX_URL_CHARACTERS} characters can be sent"
        )


def _read_results(engine: Engine, answer: Any, query: SearchQuery) -> list[dict[str, Any]]:
    try:
        return engine.read(answer, query)[: query.num_results]
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _EngineFailed(f"the answer of {engine.name} has an unknown form") from None


def _describe_refusal(chosen: _ChosenEngine, response: OutgoingResponse) -> str:
    text = f"{chosen.engine.name} answered with HTTP {response.status}"
    if (hint := chosen.engine.hints.get(response.status)) is not None:
        return f"{text}: {hint}"
    reason = " ".join(response.body.decode(errors="replace").split())
    # Engines repeat what they were sent.
    reason = _without_key(reason, chosen.key)[:_MAX_REASON_CHARS]
    return f"{text}: {reason}" if reason else text


def _without_key(text: str, key: str) -> str:
    return text.replace(key, "…") if key else text


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
