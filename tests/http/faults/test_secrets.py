"""A provider whose error repeats its key: the key is neither answered nor stored nor logged."""

import logging

import pytest
from tests.support.http_site import KEY, PATHS, WIRES, Site
from tests.support.rig import ACTOR

from holdfast.core.paging import Page
from holdfast.core.steps import StepQuery
from holdfast.testing import Answer, HttpError, MalformedJson, MalformedSse, Scripted

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHOES: dict[str, Scripted] = {
    "refused": HttpError(401, f"Incorrect API key provided: {KEY}."),
    "a proxy's page": HttpError(502, page=f"<html>{KEY}</html>"),
    "in the middle": Answer("One ", HttpError(500, f"Who is {KEY}?")),
    "malformed JSON": MalformedJson(f'{{"key": "{KEY}'),
    "malformed SSE": MalformedSse(f'{{"key": "{KEY}'),
    "an odd event": MalformedSse(
        f'{{"type": "{KEY}", "choices": ["{KEY}"], "candidates": ["{KEY}"], "error": "{KEY}"}}'
    ),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES.keys())
async def test_a_key_that_the_provider_repeats_is_shown_nowhere(
    site: Site, wire: str, echo: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="holdfast")
    agent_id = await site.create_agent(WIRES[wire])
    site.provider.respond_with(lambda _: echo)
    for send in PATHS if wire == "chat" else PATHS[:2]:
        report = await send(site, agent_id)
        shown = [
            report.text,
            *[str(item) for item in report.stream],
            (await site.http.get(f"/v1/runs/{report.run_id}")).text,
            (await site.http.get(f"/v1/runs/{report.run_id}/steps")).text,
        ]
        assert "failed" in shown[-1]
        assert not any(KEY in text for text in shown)
        kept = await site.services.store.read(
            lambda tx, run_id=report.run_id: (  # type: ignore[misc]  # mypy types no default of a lambda
                tx.runs.get(ACTOR.organization_id, run_id),
                tx.steps.list(ACTOR.organization_id, StepQuery(page=Page(limit=9), run_id=run_id)),
                tx.events.list_after(run_id, 0, 1_000),
            )
        )
        assert KEY not in str(kept)
    assert KEY not in caplog.text


async def test_the_rest_of_the_providers_message_is_shown(site: Site) -> None:
    agent_id = await site.create_agent(WIRES["chat"])
    site.provider.respond_with(lambda _: ECHOES["refused"])
    answer = await site.http.post(f"/v1/agents/{agent_id}/messages", json={"input": "Hello?"})
    assert answer.json()["error"]["detail"] == "Incorrect API key provided: [key hidden]."
