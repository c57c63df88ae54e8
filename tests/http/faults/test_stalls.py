"""A provider that keeps its connection and says nothing more: the run ends by the watchdog (wire-v1 §5.7)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.http_site import (
    WAIT_SECONDS,
    WIRES,
    FailureReport,
    Site,
    as_json,
    as_stream,
    open_site,
)

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.messages import Text
from holdfast.engine import worker
from holdfast.engine.progress import EffectProgress
from holdfast.testing import Answer, FakeClock, Gate

Send = Callable[[Site, str], Coroutine[Any, Any, FailureReport]]


@pytest.mark.parametrize("send", [as_json, as_stream])
async def test_a_provider_that_gets_no_further_is_hung_up_on_and_its_words_are_kept(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, send: Send
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.01)
    heard = asyncio.Event()
    moved = EffectProgress.record_progress

    def record_progress(progress: EffectProgress, quiet_seconds: float = 0.0) -> None:
        moved(progress, quiet_seconds)
        if progress.answer.content() == (Text("I was about to"),):
            heard.set()

    monkeypatch.setattr(EffectProgress, "record_progress", record_progress)
    clock, gate = FakeClock(), Gate("nothing more")
    async with open_site(store, clock=clock, silence_seconds=60) as site:
        agent_id = await site.create_agent(WIRES["chat"])
        site.provider.script(Answer("I was about to", gate), "Here I am.")
        sending = asyncio.create_task(send(site, agent_id))
        await asyncio.wait_for(heard.wait(), WAIT_SECONDS)
        clock.advance(site.services.limits.run_stall_seconds + 1)
        report = await asyncio.wait_for(sending, WAIT_SECONDS)

        assert report.status == (504 if send is as_json else 200)
        run = await site.get(f"/v1/runs/{report.run_id}")
        assert (run["status"], run["stop_reason"]) == ("failed", "llm_api_error")
        error = run["metadata"]["error"]
        assert error["error_type"] == "llm_timeout"
        assert "HOLDFAST_RUN_STALL_SECONDS" in error["detail"]
        assert "while asking the model" in error["detail"]
        (request,) = site.provider.requests
        await request.finished.wait(WAIT_SECONDS)
        assert request.closed_early

        assert await site.list_texts(agent_id) == ["Hello?", "I was about to"]
        answer = await site.http.post(f"/v1/agents/{agent_id}/messages", json={"input": "So?"})
        assert answer.status_code == 200, answer.text
        assert await site.list_texts(agent_id) == ["Hello?", "I was about to", "So?", "Here I am."]
