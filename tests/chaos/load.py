"""The load of a chaos: what clients do while servers come and go. Each story has an agent of its own."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from tests.chaos.client import Client, Unexpected
from tests.chaos.provider import HELD, NOTE, SLOW

Story = Callable[[Client, str, str], Awaitable[None]]


def _text(kind: str) -> str:
    """A message that is never sent twice."""
    return f"{kind} {uuid.uuid4().hex}"


def _call(tool: str, file: str) -> str:
    return f"call {tool} {file} {uuid.uuid4().hex}"


async def _send(client: Client, agent_id: str, _file: str) -> None:
    for _ in range(3):
        await client.say(agent_id, _text("hello"))


async def _stream(client: Client, agent_id: str, _file: str) -> None:
    async for _ in client.read_stream(f"/v1/agents/{agent_id}/messages/stream", _text("talk")):
        pass


async def _send_to_background(client: Client, agent_id: str, file: str) -> None:
    text = _call(NOTE, file)
    path, sent = f"/v1/agents/{agent_id}/messages/async", client.new_message(text)
    await client.call("POST", path, {"input": text}, sent=sent)


def _use_tool(tool: str) -> Story:
    async def play(client: Client, agent_id: str, file: str) -> None:
        await client.say(agent_id, _call(tool, file))

    return play


def _decide(*, approve: bool) -> Story:
    async def play(client: Client, agent_id: str, file: str) -> None:
        reply = await client.say(agent_id, _call(HELD, file))
        asked = next(
            row for row in reply["messages"] if row["message_type"] == "approval_request_message"
        )
        decision = {
            "type": "approval",
            "tool_call_id": asked["tool_call"]["tool_call_id"],
            "approve": approve,
        }
        body = {"messages": [{"type": "approval", "approvals": [decision]}]}
        path = f"/v1/agents/{agent_id}/messages"
        await client.call("POST", path, body, sent=client.new_message(None))

    return play


async def _cancel(client: Client, agent_id: str, _file: str) -> None:
    """From any server, in the middle of a stream."""
    count = 0
    path = f"/v1/agents/{agent_id}/messages/stream"
    async for item in client.read_stream(path, _text("talk")):
        count += 1
        if count == 5:
            answer = await client.call("POST", f"/v1/runs/{item['run_id']}/cancel", {})
            # Otherwise it had ended meanwhile.
            if answer["status"] == "cancelled":
                client.ledger.cancelled_runs.add(item["run_id"])


async def _send_twice_at_once(client: Client, agent_id: str, file: str) -> None:
    # 409: the first may take longer than a sender waits for its turn.
    await asyncio.gather(
        client.say(agent_id, _text("hello"), also=(409,)),
        client.say(agent_id, _call(SLOW, file), also=(409,)),
    )


async def _converse(client: Client, agent_id: str, file: str) -> None:
    made = await client.call("POST", f"/v1/conversations/?agent_id={agent_id}", {})
    path = f"/v1/conversations/{made['id']}/messages"
    async for _ in client.read_stream(path, _text("talk")):
        pass
    text = _call(NOTE, file)
    body = {"input": text, "streaming": False}
    await client.call("POST", path, body, sent=client.new_message(text))


# A story and its weight.
STORIES: Final[dict[str, tuple[Story, int]]] = {
    "send": (_send, 4),
    "stream": (_stream, 4),
    "background": (_send_to_background, 3),
    "tool": (_use_tool(NOTE), 3),
    "slow tool": (_use_tool(SLOW), 4),
    "grant": (_decide(approve=True), 2),
    "deny": (_decide(approve=False), 1),
    "cancel": (_cancel, 3),
    "double": (_send_twice_at_once, 3),
    "conversation": (_converse, 3),
}


async def play_stories(
    client: Client, chance: random.Random, file: str, stop: asyncio.Event
) -> None:
    """One story after the other until ``stop``, each whole."""
    names, weights = list(STORIES), [weight for _, weight in STORIES.values()]
    while not stop.is_set():
        (name,) = chance.choices(names, weights)
        try:
            await STORIES[name][0](client, await client.create_agent(), file)
        except (Unexpected, KeyError, StopIteration) as error:
            client.ledger.add_problem(f"{name}: {error!r}")
        client.ledger.counts[f"story: {name}"] += 1
