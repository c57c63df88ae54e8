"""The application as it runs, over a real store and the real bridge; the providers are scripted, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from httpx import ASGITransport, AsyncClient
from tests.support.http_app import use_app
from tests.support.rig import ACTOR, Rig
from tests.support.stream_transcripts import items

from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.router import ModelRouter
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.runs import Run
from holdfast.engine.worker import Worker
from holdfast.ports.clock import Clock
from holdfast.ports.services import Limits, Services
from holdfast.testing import ScriptedProvider

WAIT_SECONDS = 20


# A provider that is silent for so long has timed out: where silence is what a test is about, and elsewhere.
SILENCE_SECONDS = 0.2
LONG_SILENCE_SECONDS = 20.0


# A model on each wire.
WIRES = {
    "chat": "openai/gpt-4o-mini",
    "responses": "openai/gpt-5",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "google": "google_ai/gemini-2.5-flash",
}


# No provider's keys look so: only who knows them can hide them.
KEY = "wq7-nobody-may-see-this-55"


@dataclass
class Site:
    """A house at work, its address, and its providers."""

    services: Services
    http: AsyncClient
    provider: ScriptedProvider

    async def create_agent(self, model: str) -> str:
        body = {"name": "test", "model": model, "include_base_tools": False}
        created = await self.http.post("/v1/agents/", json=body)
        assert created.status_code == 200, created.text
        return str(created.json()["id"])

    async def get(self, path: str) -> Any:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def wait_for_end(self, run_id: str) -> Run:
        async with asyncio.timeout(WAIT_SECONDS):
            async for _ in self.services.events.follow(run_id):
                pass
        return await self.services.store.read(lambda tx: tx.runs.get(ACTOR.organization_id, run_id))

    async def runs(self, agent_id: str) -> list[dict[str, Any]]:
        """The newest first."""
        found: list[dict[str, Any]] = await self.get(f"/v1/runs/?agent_id={agent_id}")
        return found

    async def list_texts(self, agent_id: str) -> list[Any]:
        rows = await self.get(f"/v1/agents/{agent_id}/messages?order=asc")
        return [row["content"] for row in rows if row["message_type"] != "system_message"]


@dataclass(frozen=True)
class FailureReport:
    """What a caller was told of a failure: a status and a body, or the items of a stream; nothing, if it did not wait."""

    run_id: str
    status: int = 200
    text: str = ""
    stream: tuple[dict[str, Any], ...] = ()


async def as_json(site: Site, agent_id: str) -> FailureReport:
    answer = await site.http.post(f"/v1/agents/{agent_id}/messages", json={"input": "Hello?"})
    return FailureReport((await site.runs(agent_id))[0]["id"], answer.status_code, answer.text)


async def as_stream(site: Site, agent_id: str, **wishes: Any) -> FailureReport:
    body = {"input": "Hello?", "stream_tokens": True} | wishes
    answer = await site.http.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    assert answer.text.endswith("data: [DONE]\n\n")
    run_id = (await site.runs(agent_id))[0]["id"]
    return FailureReport(run_id, answer.status_code, answer.text, tuple(items(answer.text)))


async def as_step_stream(site: Site, agent_id: str) -> FailureReport:
    return await as_stream(site, agent_id, stream_tokens=False)


async def in_background(site: Site, agent_id: str) -> FailureReport:
    return await as_stream(site, agent_id, background=True)


async def as_async(site: Site, agent_id: str) -> FailureReport:
    answer = await site.http.post(f"/v1/agents/{agent_id}/messages/async", json={"input": "Hello?"})
    run_id = answer.json()["id"]
    await site.wait_for_end(run_id)
    return FailureReport(run_id)


PATHS = (as_json, as_stream, as_step_stream, in_background, as_async)


@asynccontextmanager
async def open_site(
    store: SqlStore,
    *,
    attempts: int = 1,
    clock: Clock | None = None,
    silence_seconds: float = LONG_SILENCE_SECONDS,
) -> AsyncIterator[Site]:
    """By itself it does not ask again: a test wants to see what becomes of the first failure."""
    async with ScriptedProvider(default="Hello.", check_script=False) as provider:
        settings = ProviderSettings(
            {
                "openai": {"api_key": KEY, "base_url": provider.openai_url},
                "anthropic": {"api_key": KEY, "base_url": provider.url},
                "google_ai": {"api_key": KEY, "base_url": provider.url},
            },
            silence_seconds=silence_seconds,
        )
        model = ModelRouter(settings)
        rig = Rig(store, Limits(model_attempts=attempts))
        services = replace(
            rig.services,
            model=model,
            catalogue=ProviderCatalogue(settings),
            clock=clock or rig.services.clock,
        )
        working = asyncio.create_task(Worker(services).run())
        with use_app(services) as app:
            transport = ASGITransport(app, raise_app_exceptions=False)
            async with AsyncClient(transport=transport, base_url="http://localhost:8283") as http:
                yield Site(services, http, provider)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        await model.aclose()
