"""Readers come, resume, leave and stop reading; the run does not mind (wire-v1 §4.3, §4.8)."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from tests.http.turns.transcripts import Listener, items

from holdfast.core.agents import Actor
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID, UUID4
from holdfast.core.messages import ToolCall
from holdfast.errors import ModelRateLimited
from holdfast.http.letta_v1.streams import first_stream, resumed_stream
from holdfast.http.sse import COMMENT
from holdfast.ports.house import House
from holdfast.usecases import runs

ROLL = ToolCall(id="call_1", name="roll", arguments='{"sides": 6}')


async def the_run(client: AsyncClient) -> dict[str, Any]:
    [run] = (await client.get("/v1/runs/")).json()
    assert isinstance(run, dict)
    return run


async def resumed(client: AsyncClient, run_id: str, /, **body: Any) -> str:
    answer = await client.post(f"/v1/runs/{run_id}/stream", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    return answer.text


def unnumbered(stream: str) -> list[dict[str, Any]]:
    """Without what differs between readings of a log: dates of tokens, and numbers where none are shown."""
    return [
        {key: value for key, value in item.items() if key not in {"date", "seq_id"}}
        for item in items(stream)
    ]


@pytest.mark.usefixtures("roll_id")
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("tokens", [False, True])
async def test_any_ended_run_can_be_read_from_any_number(
    client: AsyncClient, agent_id: str, model: Any, background: bool, tokens: bool
) -> None:
    model.says("Rolling it.", calls=[ROLL])
    model.says("A four.")
    body = {"input": "hi", "background": background, "stream_tokens": tokens}
    first = (await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)).text
    run_id = items(first)[0]["run_id"]
    again = await resumed(client, run_id)
    assert unnumbered(again) == unnumbered(first)
    told = items(again)
    numbers = [item["seq_id"] for item in told if "seq_id" in item]
    assert numbers == list(range(1, len(told) - 1))
    for number in numbers:
        rest = unnumbered(await resumed(client, run_id, starting_after=number))
        assert rest == unnumbered(again)[number:]
    # After the end there is nothing, and that is no reason to wait.
    end = numbers[-1] + 1
    for beyond in (end, end + 1, 10**9):
        assert await resumed(client, run_id, starting_after=beyond) == "data: [DONE]\n\n"


async def test_a_failed_run_fails_again_for_each_reader(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.fails(ModelRateLimited("slow down"), after="I was")
    body = {"input": "hi", "stream_tokens": True}
    first = (await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)).text
    again = await resumed(client, items(first)[0]["run_id"])
    assert unnumbered(again) == unnumbered(first)
    assert items(again)[-1]["detail"] == "slow down"
    assert items(again)[-1]["seq_id"] == 3
    assert "usage_statistics" not in again


async def test_a_resumed_stream_keeps_the_runs_filter(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    body = {"input": "hi", "include_return_message_types": ["tool_return_message"]}
    await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    again = await resumed(client, (await the_run(client))["id"])
    assert [item["message_type"] for item in items(again)] == ["stop_reason", "usage_statistics"]


@pytest.mark.parametrize("cursor", [-1, "x", "1", 1.5, True, [], {}, 2**63, 10**40])
async def test_a_bad_cursor_is_refused_in_words(client: AsyncClient, cursor: object) -> None:
    path = f"/v1/runs/run-{uuid4()}/stream"
    answer = await client.post(path, json={"starting_after": cursor})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("INVALID_ARGUMENT: 'starting_after' must be")


async def test_a_run_that_is_not_there_cannot_be_read(client: AsyncClient) -> None:
    assert (await client.post(f"/v1/runs/run-{uuid4()}/stream", json={})).status_code == 404
    assert (await client.post(f"/v1/runs/run-{uuid4()}/stream")).status_code == 404
    malformed = await client.post("/v1/runs/nonsense/stream", json={})
    assert malformed.status_code == 400
    assert "Invalid run ID format" in malformed.json()["detail"]
    wrong = await client.post(f"/v1/runs/run-{uuid4()}/stream", json={"include_pings": "maybe"})
    assert wrong.status_code == 422


async def test_hints_are_accepted_and_not_needed(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    await client.post(f"/v1/agents/{agent_id}/messages/stream", json={"input": "hi"})
    hints = {"poll_interval": 5, "batch_size": 1, "agent_id": "x", "run_id": "y", "otid": "z"}
    run_id = (await the_run(client))["id"]
    assert unnumbered(await resumed(client, run_id, **hints)) == unnumbered(
        await resumed(client, run_id, starting_after=None)
    )


async def test_an_async_send_answers_with_its_run_at_once(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.open.clear()
    model.says("Hello there!")
    body = {"input": "hi", "stream_tokens": True, "include_pings": False}
    run = (await client.post(f"/v1/agents/{agent_id}/messages/async", json=body)).json()
    assert (run["status"], run["stop_reason"], run["background"]) == ("created", None, True)
    assert run["metadata"] == {"run_type": "send_message_async", "lettuce": None}
    model.open.set()
    told = items(await resumed(client, run["id"]))
    assert [item.get("content") for item in told] == ["Hello there!", None, None]
    assert (await the_run(client))["status"] == "completed"


async def hesitating(model: Any, app: FastAPI, agent_id: str, **wishes: Any) -> Listener:
    """A stream that stops after its first word until the model is fluent again."""
    model.fluent.clear()
    model.says("One two three.")
    body = {"input": "hi", "stream_tokens": True} | wishes
    return Listener(app, f"/v1/agents/{agent_id}/messages/stream", body)


def words(stream: str) -> Sequence[str]:
    return [item["content"] for item in items(stream) if "content" in item]


async def test_a_token_is_shown_before_the_next_one_exists(
    app: FastAPI, agent_id: str, model: Any
) -> None:
    async with await hesitating(model, app, agent_id) as reader:
        await reader.hears("One ")
        assert words(reader.heard) == ["One "]
        model.fluent.set()
        assert words(await reader.hears_all()) == ["One ", "two ", "three."]


@pytest.mark.parametrize("background", [False, True])
async def test_a_reader_that_leaves_changes_nothing(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any, background: bool
) -> None:
    async with await hesitating(model, app, agent_id, background=background) as reader:
        await reader.hears("One ")
    assert not reader.is_over
    run = await the_run(client)
    assert run["status"] == "running"
    async with Listener(app, f"/v1/runs/{run['id']}/stream", {"starting_after": 1}) as second:
        model.fluent.set()
        assert words(await second.hears_all()) == ["two ", "three."]
    assert (await the_run(client))["status"] == "completed"


async def test_a_reader_may_take_its_run_along_when_it_leaves(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    async with await hesitating(model, app, agent_id, on_disconnect="cancel") as reader:
        await reader.hears("One ")
        run_id = (await the_run(client))["id"]
    told = items(await resumed(client, run_id))
    assert told[-2]["stop_reason"] == "cancelled"
    assert (await the_run(client))["status"] == "cancelled"


async def test_a_reader_who_heard_the_end_takes_nothing_along(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says(calls=[ToolCall(id="call_2", name="ask", arguments="{}")])
    body = {"input": "hi", "client_tools": [{"name": "ask"}], "on_disconnect": "cancel"}
    async with Listener(app, f"/v1/agents/{agent_id}/messages/stream", body) as reader:
        await reader.hears_all()
    assert (await the_run(client))["stop_reason"] == "requires_approval"


async def test_two_readers_hear_the_same(app: FastAPI, agent_id: str, model: Any) -> None:
    async with await hesitating(model, app, agent_id) as one:
        await one.hears("One ")
        path = f"/v1/runs/{items(one.heard)[0]['run_id']}/stream"
        async with Listener(app, path, {}) as two:
            await two.hears("One ")
            model.fluent.set()
            assert unnumbered(await two.hears_all()) == unnumbered(await one.hears_all())


async def test_a_stopping_server_ends_a_stream_without_an_ending(
    app: FastAPI, house: House, agent_id: str, model: Any
) -> None:
    async with await hesitating(model, app, agent_id) as reader:
        await reader.hears("One ")
        house.events.close(items(reader.heard)[0]["run_id"])
        text = await reader.hears_all()
    assert words(text) == ["One "]
    assert "stop_reason" not in text
    assert "[DONE]" not in text
    model.fluent.set()


async def test_a_reader_that_waits_for_its_turn_is_kept_waiting_and_not_refused(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    async with await hesitating(model, app, agent_id) as first:
        await first.hears("One ")
        model.says("Mine.")
        path = f"/v1/agents/{agent_id}/messages/stream"
        second = asyncio.create_task(client.post(path, json={"input": "and?"}))
        async with asyncio.timeout(10):
            while len((await client.get("/v1/runs/active")).json()) < 2:
                pass
        model.fluent.set()
        await first.hears_all()
        assert words((await asyncio.wait_for(second, 10)).text) == ["Mine."]


async def test_a_silence_is_filled_with_pings_or_comments_as_the_reader_wishes(
    client: AsyncClient, house: House, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    body = {"input": "hi", "include_pings": False}
    await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    actor = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)
    run = await runs.retrieve(house, actor, (await the_run(client))["id"])
    assert first_stream(house, actor, run)._keep_alive() == COMMENT
    assert resumed_stream(house, run, include_pings=False)._keep_alive() == COMMENT
    for after, seq in ((0, None), (1, 1)):
        text = resumed_stream(house, run, after=after)._keep_alive().decode()
        [ping] = items(text)
        assert (ping["message_type"], ping["run_id"], ping["seq_id"]) == ("ping", run.id, seq)
        assert re.fullmatch(f"ping-{UUID4}", ping["id"])
