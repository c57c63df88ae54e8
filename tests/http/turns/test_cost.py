"""What steps, runs and agents cost, over HTTP; and what ``holdfast runs show`` makes of it."""

from typing import Any

import pytest
from httpx import AsyncClient
from tests.doubles.prices import PRICE, ScriptedPrices
from tests.support.http_turns import ROLL, Send, get

from holdfast.cli.runs import _format_cost

# 10 tokens in and 2 out.
OF_ONE_ANSWER = 0.000014


async def test_costs_are_shown_where_they_arise_and_added_up(
    client: AsyncClient,
    agent_id: str,
    roll_id: str,
    model: Any,
    send: Send,
    prices: ScriptedPrices,
) -> None:
    prices.price = PRICE
    model.says(calls=[ROLL])
    model.says("A four.")
    await send("roll")
    [run] = await get(client, "runs/")

    steps = await get(client, f"runs/{run['id']}/steps")
    assert [step["cost"] for step in steps] == [OF_ONE_ANSWER, OF_ONE_ANSWER]
    usage = await get(client, f"runs/{run['id']}/usage")
    assert (usage["cost"], usage["unpriced_steps"]) == (2 * OF_ONE_ANSWER, 0)
    cost = {"cost": 2 * OF_ONE_ANSWER, "steps": 2, "unpriced_steps": 0}
    assert await get(client, f"agents/{agent_id}/cost") == cost
    assert await get(client, f"agents/{agent_id}/cost", start_date="2026-01-01T00:00:00") == cost
    none = {"cost": None, "steps": 0, "unpriced_steps": 0}
    assert await get(client, f"agents/{agent_id}/cost", end_date="2020-01-01T00:00:00") == none
    assert _format_cost(usage) == "$0.000028"


async def test_a_cost_that_is_not_known_is_null(
    client: AsyncClient, agent_id: str, model: Any, send: Send
) -> None:
    model.says("Hello.")
    await send()
    [run] = await get(client, "runs/")

    [step] = await get(client, f"runs/{run['id']}/steps")
    usage = await get(client, f"runs/{run['id']}/usage")
    assert step["cost"] is None
    assert (usage["cost"], usage["unpriced_steps"]) == (None, 1)
    assert (await get(client, f"agents/{agent_id}/cost"))["cost"] is None
    assert _format_cost(usage) is None


async def test_an_agent_that_is_not_there_has_no_cost(client: AsyncClient) -> None:
    nobody = "agent-00000000-0000-4000-8000-000000000000"

    assert (await client.get(f"/v1/agents/{nobody}/cost")).status_code == 404


@pytest.mark.parametrize(
    ("usage", "shown"),
    [
        ({"cost": 0.0, "unpriced_steps": 0}, "$0"),
        ({"cost": 12.5, "unpriced_steps": 0}, "$12.5"),
        (
            {"cost": 1.0, "unpriced_steps": 2},
            "$1, without 2 of its steps, whose price is not known",
        ),
    ],
)
def test_a_person_reads_dollars(usage: dict[str, Any], shown: str) -> None:
    assert _format_cost(usage) == shown
