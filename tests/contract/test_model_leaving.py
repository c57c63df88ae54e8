"""A caller that stops reading closes the provider's socket."""

import asyncio

import pytest
from tests.support.model_questions import ask_for_answer, make_question

from holdfast import testing
from holdfast.adapters.models.router import ModelRouter
from holdfast.testing import ScriptedProvider


async def test_leaving_closes_the_providers_socket(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("One", testing.Hang()))
    async with model.ask(make_question(handle)) as events:
        await asyncio.wait_for(anext(events), 10)
    (request,) = provider.requests
    await request.finished.wait(10)
    assert request.closed_early


@pytest.mark.parametrize(
    "scripted", [testing.NoAnswer(), testing.Answer("One", testing.Hang())], ids=["silent", "mid"]
)
async def test_cancelling_closes_the_providers_socket(
    provider: ScriptedProvider, model: ModelRouter, handle: str, scripted: testing.Scripted
) -> None:
    await model.warm_up()
    provider.script(scripted)
    asking = asyncio.create_task(ask_for_answer(model, make_question(handle)))
    request = await provider.wait_for_request(timeout=10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await request.finished.wait(10)
    assert request.closed_early


async def test_a_connection_is_used_again(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    for _ in range(3):
        await ask_for_answer(model, make_question(handle))
    assert len(provider._server._connections) == 1
