"""A client behind no load balancer: it asks any server, and another one if it gets no answer."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import httpx
from tests.chaos.ledger import Ledger, Sent

MODEL: Final = "openai/gpt-4o-mini"
# A paused server takes a connection and does not answer; others do.
REQUEST_SECONDS: Final = 15.0
# How long a client tries. Far longer than any weather here lasts.
PATIENCE_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.1
_OK: Final = 200
_FIRST_SERVER_ERROR: Final = 500
_KEY: Final = "Idempotency-Key"


class Unexpected(Exception):
    """An answer that no weather explains."""


class Client:
    def __init__(
        self, addresses: Sequence[str], ledger: Ledger, chance: random.Random, tool_ids: list[str]
    ) -> None:
        self.ledger = ledger
        self._addresses = addresses
        self._chance = chance
        self._tool_ids = tool_ids
        self._http = httpx.AsyncClient(timeout=REQUEST_SECONDS, verify=False)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def create_agent(self) -> str:
        body = {"model": MODEL, "include_base_tools": False, "tool_ids": self._tool_ids}
        return str((await self.call("POST", "/v1/agents/", body))["id"])

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        sent: Sent | None = None,
        also: Sequence[int] = (),
    ) -> Any:
        """The answer of the first server that gives one. Another status than 200 must be in ``also``, and gives None."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        headers = {_KEY: sent.key} if sent is not None else {}
        why = ""
        while time.monotonic() < give_up_at:
            url = self._chance.choice(self._addresses) + path
            try:
                answer = await self._http.request(method, url, json=body, headers=headers)
            except httpx.TransportError as error:
                why = repr(error)
            else:
                why = f"{answer.status_code} {answer.text[:300]}"
                if sent is not None:
                    sent.is_acknowledged |= answer.status_code == _OK or "is stored" in why
                if answer.status_code == _OK:
                    return answer.json()
                if answer.status_code in also:
                    return None
                if answer.status_code < _FIRST_SERVER_ERROR:
                    break
            self.ledger.counts["refused"] += 1
            await asyncio.sleep(_RETRY_SECONDS)
        raise Unexpected(f"{method} {path}: {why}")

    def new_message(self, text: str | None) -> Sent:
        sent = Sent(uuid.uuid4().hex, text)
        self.ledger.sent.append(sent)
        return sent

    async def say(self, agent_id: str, text: str, *, also: Sequence[int] = ()) -> Any:
        path, sent = f"/v1/agents/{agent_id}/messages", self.new_message(text)
        return await self.call("POST", path, {"input": text}, sent=sent, also=also)

    async def read_stream(self, path: str, text: str) -> AsyncIterator[dict[str, Any]]:
        """The stream of a new message to its end, over as many connections as it takes."""
        sent = self.new_message(text)
        body = {"input": text, "streaming": True, "stream_tokens": True, "background": True}
        run_id, has_ended = "", False
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not has_ended:
            if time.monotonic() > give_up_at:
                raise Unexpected(f"the stream of {run_id or path} does not end")
            resumed: dict[str, Any] = {"starting_after": max(sent.seen, default=0)}
            asked, question = (f"/v1/runs/{run_id}/stream", resumed) if run_id else (path, body)
            async for item in self._read_once(asked, question, sent):
                if item.get("message_type") == "usage_statistics":
                    has_ended = True
                run_id = item.get("run_id") or run_id
                self._record(sent, item)
                if not sent.seen:
                    run_id = ""
                yield item

    def _record(self, sent: Sent, item: dict[str, Any]) -> None:
        number = item.get("seq_id")
        if number is None:
            return
        sent.is_acknowledged = True
        if sent.seen and number <= max(sent.seen):
            self.ledger.add_problem(f"{item.get('run_id')}: {number} came after {max(sent.seen)}")
        sent.seen[number] = {key: value for key, value in item.items() if key != "date"}

    async def _read_once(
        self, path: str, body: dict[str, Any], sent: Sent
    ) -> AsyncIterator[dict[str, Any]]:
        """What one connection gives before it breaks or ends."""
        url = self._chance.choice(self._addresses) + path
        try:
            async with self._http.stream(
                "POST", url, json=body, headers={_KEY: sent.key}
            ) as answer:
                if answer.status_code >= _FIRST_SERVER_ERROR:
                    self.ledger.counts["refused"] += 1
                    await asyncio.sleep(_RETRY_SECONDS)
                    return
                if answer.status_code != _OK:
                    await answer.aread()
                    raise Unexpected(f"{path}: {answer.status_code} {answer.text[:300]}")
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        yield json.loads(line.removeprefix("data: "))
        except httpx.TransportError:
            self.ledger.counts["broken streams"] += 1
            await asyncio.sleep(_RETRY_SECONDS)
