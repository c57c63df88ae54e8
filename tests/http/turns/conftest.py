"""Services that carry out runs: the real engine, and a model with scripted answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from httpx import AsyncClient
from tests.doubles.model import ScriptedModel
from tests.doubles.prices import ScriptedPrices
from tests.doubles.toolbox import ScriptedToolbox
from tests.support.http_turns import Send

from holdfast.engine.worker import Worker
from holdfast.ports.services import Limits, Services

ROLL = '''
def roll(sides: int) -> str:
    """Roll a die.

    Args:
        sides (int): How many sides it has.
    """
    return "4"
'''


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(otherwise=None)


@pytest.fixture
def prices() -> ScriptedPrices:
    return ScriptedPrices()


@pytest.fixture
def busy_wait_seconds() -> float:
    """How long a send waits for its turn; a test that waits for this to pass chooses less."""
    return 30.0


@pytest.fixture
async def services(
    services: Services, model: ScriptedModel, prices: ScriptedPrices, busy_wait_seconds: float
) -> AsyncIterator[Services]:
    working = replace(
        services,
        model=model,
        prices=prices,
        toolbox=ScriptedToolbox(result="4", builtin=services.toolbox.builtin_tools()),
        limits=Limits(busy_wait_seconds=busy_wait_seconds),
    )
    worker = asyncio.create_task(Worker(working).run())
    yield working
    worker.cancel()
    with suppress(asyncio.CancelledError):
        await worker


@pytest.fixture
async def agent_id(client: AsyncClient) -> str:
    body = {"name": "test", "model": "openai/gpt-x", "include_base_tools": False}
    created = await client.post("/v1/agents/", json=body)
    assert created.status_code == 200, created.text
    return str(created.json()["id"])


@pytest.fixture
async def roll_id(client: AsyncClient, agent_id: str) -> str:
    """The die, in the agent's hands."""
    tool = (await client.post("/v1/tools/", json={"source_code": ROLL})).json()
    attached = await client.patch(f"/v1/agents/{agent_id}/tools/attach/{tool['id']}")
    assert attached.status_code == 200, attached.text
    return str(tool["id"])


@pytest.fixture
def send(client: AsyncClient, agent_id: str) -> Send:
    """Say something to the agent and expect an answer."""

    async def send(text: str = "hi", **options: Any) -> dict[str, Any]:
        body = {"messages": [{"role": "user", "content": text}]} | options
        answer = await client.post(f"/v1/agents/{agent_id}/messages", json=body)
        assert answer.status_code == 200, answer.text
        reply: dict[str, Any] = answer.json()
        return reply

    return send
