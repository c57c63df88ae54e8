"""Asking for runs over HTTP: every filter by its V1 name (wire-v1 §2.8, §5.9, §8.4), and notes on them."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient
from tests.support.http_turns import ROLL, Send, get
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.errors import ModelTimedOut
from holdfast.ports.services import Services


@pytest.fixture
async def runs(client: AsyncClient, roll_id: str, model: Any, send: Send) -> list[dict[str, Any]]:
    """Oldest first: one that rolled a die in two steps, one that only spoke."""
    model.says(calls=[ROLL])
    model.says("A four.")
    model.says("Hello!")
    await send("roll")
    await send("hi")
    found: list[dict[str, Any]] = await get(client, "runs/", order="asc")
    return found


@pytest.mark.wire(120)
@pytest.mark.parametrize("path", ["runs/", "_internal_runs/"])
async def test_each_filter_has_its_v1_name(
    client: AsyncClient, runs: list[dict[str, Any]], roll_id: str, path: str
) -> None:
    rolled, spoke = runs

    async def list_ids(**params: Any) -> list[str]:
        return [run["id"] for run in await get(client, path, order="asc", **params)]

    both = [rolled["id"], spoke["id"]]
    assert await list_ids() == both
    assert await list_ids(run_id=spoke["id"]) == both[1:]
    assert await list_ids(agent_id=spoke["agent_id"], agent_ids="agent-none") == both
    assert await list_ids(agent_ids=["agent-none", spoke["agent_id"]]) == both
    assert await list_ids(step_count=2) == both[:1]
    assert await list_ids(step_count=1, step_count_operator="gte") == both
    assert await list_ids(step_count=1, step_count_operator="lte") == both[1:]
    assert await list_ids(tools_used=["tool-none", roll_id]) == both[:1]
    assert await list_ids(start_date=spoke["created_at"]) == both[1:]
    assert await list_ids(end_date=rolled["created_at"]) == both[:1]
    assert await list_ids(start_date=rolled["created_at"][:19]) == both
    spent = rolled["total_duration_ns"]
    assert rolled["id"] in await list_ids(duration_value=spent, duration_operator="eq")
    assert rolled["id"] not in await list_ids(duration_value=spent)
    assert rolled["id"] not in await list_ids(duration_value=spent, duration_operator="lt")
    assert await list_ids(duration_percentile=0) == both
    assert len(await list_ids(duration_percentile=100)) == 1
    assert await list_ids(project_id="nowhere") == []
    assert await list_ids(template_family="nobody") == []
    assert await list_ids(conversation_id=f"conv-{uuid4()}") == []


@pytest.mark.wire(121)
async def test_runs_are_listed_by_duration_and_walked_as_the_client_does(
    client: AsyncClient, runs: list[dict[str, Any]]
) -> None:
    longest_first = sorted(
        runs, key=lambda run: (run["total_duration_ns"], run["id"]), reverse=True
    )
    assert await get(client, "runs/", order_by="duration") == longest_first
    walked, after = [], None
    while page := await get(
        client, "runs/", order_by="duration", limit=1, **({"after": after} if after else {})
    ):
        walked += page
        after = page[-1]["id"]
    assert walked == longest_first
    assert await get(client, "runs/", order_by="duration", ascending=True) == longest_first[::-1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"duration_operator": "gte"},
        {"step_count_operator": "gt"},
        {"duration_percentile": 101},
        {"step_count": -1},
        {"duration_value": 2**63},
        {"order_by": "cost"},
        {"start_date": "yesterday"},
    ],
)
async def test_what_cannot_be_asked_is_refused(client: AsyncClient, wrong: dict[str, Any]) -> None:
    assert (await client.get("/v1/runs/", params=wrong)).status_code == 422


async def test_a_run_belongs_to_the_project_and_template_of_its_agent(
    client: AsyncClient, model: Any
) -> None:
    body = {"model": "openai/gpt-x", "include_base_tools": False, "base_template_id": "family"}
    made = await client.post("/v1/agents/", json=body, headers={"X-Project-Id": "project-7"})
    model.says("Hello!")
    hello = {"messages": [{"role": "user", "content": "hi"}]}
    await client.post(f"/v1/agents/{made.json()['id']}/messages", json=hello)

    [run] = await get(client, "runs/", project_id="project-7", template_family="family")

    assert run["base_template_id"] == "family"
    metrics = await get(client, f"runs/{run['id']}/metrics")
    assert (metrics["project_id"], metrics["base_template_id"]) == ("project-7", "family")
    too_long = await client.post("/v1/agents/", json=body, headers={"X-Project-Id": "p" * 101})
    assert too_long.status_code == 422


@pytest.mark.wire(118, 128)
async def test_steps_and_tools_are_kept_with_the_run_from_step_to_step(
    client: AsyncClient, agent_id: str, roll_id: str, model: Any
) -> None:
    model.says(calls=[ROLL])
    model.says("A four.")
    model.says("Hello!")
    model.gate.clear()
    model.stream_gate.clear()
    hello = {"messages": [{"role": "user", "content": "roll"}]}
    path = f"/v1/agents/{agent_id}/messages/async"
    first, second = [(await client.post(path, json=hello)).json()["id"] for _ in range(2)]

    async def metrics(run_id: str) -> tuple[int, list[str] | None]:
        found = await get(client, f"runs/{run_id}/metrics")
        return found["num_steps"], found["tools_used"]

    await asyncio.wait_for(model.asked.wait(), WAIT_SECONDS)
    assert await metrics(first) == (1, None)
    assert await metrics(second) == (0, None)

    # It may answer, but not the next question.
    model.asked.clear()
    model.gate.set()
    await eventually(lambda: len(model.script) == 2)
    model.gate.clear()
    model.stream_gate.set()
    await asyncio.wait_for(model.asked.wait(), WAIT_SECONDS)
    assert await metrics(first) == (2, [roll_id])

    model.gate.set()
    await eventually(lambda: not model.script)


@pytest.mark.wire(124)
async def test_notes_on_a_run_are_merged(client: AsyncClient, runs: list[dict[str, Any]]) -> None:
    path = f"/v1/runs/{runs[0]['id']}"
    await client.patch(path, json={"metadata": {"ticket": 7, "who": "Ada"}})
    answer = await client.patch(path, json={"metadata": {"ticket": 8, "run_type": "mine"}})

    assert answer.status_code == 200
    run = await get(client, f"runs/{runs[0]['id']}")
    assert run == answer.json()
    # What the server says of the run cannot be overwritten.
    assert run["metadata"] == {"ticket": 8, "who": "Ada", "run_type": "send_message"}
    assert (await client.patch(path, json={"status": "failed"})).status_code == 422
    missing = await client.patch(f"/v1/runs/run-{uuid4()}", json={"metadata": {}})
    assert missing.status_code == 404


@pytest.mark.wire(153, 154)
async def test_a_failed_step_says_why_and_how_long_it_took(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.fails(ModelTimedOut("It took too long."))
    hello = {"messages": [{"role": "user", "content": "hi"}]}
    await client.post(f"/v1/agents/{agent_id}/messages", json=hello)
    [step] = await get(client, "steps/")
    [run] = await get(client, "runs/")

    assert (step["status"], step["error_type"]) == ("failed", "llm_timeout")
    assert "It took too long." in str(step["error_data"])
    metrics = await get(client, f"steps/{step['id']}/metrics")
    assert metrics["llm_request_ns"] > 0
    assert metrics["step_ns"] >= metrics["llm_request_ns"]
    assert (await get(client, f"runs/{run['id']}/metrics"))["num_steps"] == 1


@pytest.mark.wire(153)
async def test_where_our_own_code_broke_is_kept_with_the_step_and_off_the_wire(
    client: AsyncClient, agent_id: str, model: Any, services: Services
) -> None:
    model.fails(ZeroDivisionError("a fault of ours"))
    hello = {"messages": [{"role": "user", "content": "hi"}]}
    await client.post(f"/v1/agents/{agent_id}/messages", json=hello)
    [step] = await get(client, "steps/")
    [run] = await get(client, "runs/")

    assert (step["status"], step["error_type"]) == ("failed", "internal_error")
    kept = await services.store.read(lambda tx: tx.steps.get(DEFAULT_ORGANIZATION_ID, step["id"]))
    assert kept.failure is not None
    assert "ZeroDivisionError" in kept.failure.traceback
    shown = str([step, run, await get(client, f"runs/{run['id']}/explain")])
    assert "a fault of ours" in shown
    assert "Traceback" not in shown
