"""Who is alive, what each server does and how long the queue is (``GET /v1/servers/``); and which server has a run."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from httpx import AsyncClient
from starlette.types import ASGIApp
from tests.support.http_app import use_app
from tests.support.servers import make_server

from holdfast import __version__
from holdfast.core.servers import Claimant, Role, Server, ServerLoad, ServerProcess
from holdfast.http.app import HttpSettings
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

Connect = Callable[[ASGIApp], AsyncClient]

LEASE_SECONDS = 60.0


async def get_deployment(client: AsyncClient) -> dict[str, Any]:
    answer = await client.get("/v1/servers/")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def register(services: Services, server: Server, *, load: ServerLoad | None = None) -> None:
    """Store another server, which is alive and has sent a heartbeat."""

    def work(tx: Transaction) -> None:
        tx.servers.register(server, LEASE_SECONDS)
        tx.servers.renew(server.id, LEASE_SECONDS, load or ServerLoad())

    await services.store.write(work)


async def send_async(client: AsyncClient) -> str:
    """Send a message to a new agent. Nobody executes its run."""
    body = {"name": "test", "model": "openai/gpt-x", "include_base_tools": False}
    agent_id = (await client.post("/v1/agents/", json=body)).json()["id"]
    hello = {"messages": [{"role": "user", "content": "hi"}]}
    sent = await client.post(f"/v1/agents/{agent_id}/messages/async", json=hello)
    assert sent.status_code == 200, sent.text
    return str(sent.json()["id"])


async def explain(client: AsyncClient, run_id: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/runs/{run_id}/explain")
    assert answer.status_code == 200, answer.text
    explained: dict[str, Any] = answer.json()
    return explained


async def test_the_only_server_shows_its_load_of_this_moment(
    services: Services, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await services.lease.register()
    load = ServerLoad(live_runs=3, is_notified=False, is_draining=True)
    monkeypatch.setattr(services.lease, "_read_load", lambda: load)

    shown = await get_deployment(client)

    (server,) = shown["servers"]
    assert server.pop("id") == services.lease.server_id
    assert server.pop("started_at") <= shown["now"]
    assert server == {
        "host": "here",
        "pid": 1,
        "version": "0",
        "role": "all",
        "is_alive": True,
        "is_leader": True,
        "is_this": True,
        "is_draining": True,
        "is_notified": False,
        "live_runs": 3,
        "max_runs": 1_000,
        # It sends no heartbeats; its answer says that it is alive.
        "heartbeat_at": shown["now"],
        "lease_ends_at": None,
    }
    assert shown["queue"] == {"waiting_runs": 0, "oldest_seconds": None}


async def test_other_servers_are_listed_with_what_they_said_last(
    services: Services, client: AsyncClient
) -> None:
    await services.lease.register()
    worker = make_server(
        host="elsewhere",
        process=ServerProcess(pid=7),
        version=__version__,
        role=Role.WORKER,
        max_runs=5,
    )
    await register(services, worker, load=ServerLoad(live_runs=2, is_notified=False))

    shown = await get_deployment(client)

    this, other = shown["servers"]
    assert (this["is_this"], other["is_this"]) == (True, False)
    assert (this["is_leader"], other["is_leader"]) == (True, False)
    assert (other["host"], other["pid"], other["version"]) == ("elsewhere", 7, __version__)
    assert (other["role"], other["live_runs"], other["max_runs"]) == ("worker", 2, 5)
    assert (other["is_alive"], other["is_notified"]) == (True, False)
    assert other["heartbeat_at"] <= shown["now"] < other["lease_ends_at"]


async def test_a_dead_server_is_listed_as_such_and_does_not_lead(
    services: Services, client: AsyncClient
) -> None:
    dead, alive = make_server(), make_server()
    for server in (dead, alive):
        await register(services, server)
    await services.store.write(lambda tx: tx.servers.expire(dead.id))

    shown = (await get_deployment(client))["servers"]

    assert [(item["id"], item["is_alive"], item["is_leader"]) for item in shown] == [
        (dead.id, False, False),
        (alive.id, True, True),
    ]


async def test_a_server_that_stops_leaves_the_lead_to_another(
    services: Services, client: AsyncClient
) -> None:
    stopping, other = make_server(), make_server()
    await register(services, stopping, load=ServerLoad(is_draining=True))
    await register(services, other)

    shown = (await get_deployment(client))["servers"]

    assert [(item["is_draining"], item["is_leader"]) for item in shown] == [
        (True, False),
        (False, True),
    ]


async def test_runs_that_wait_are_counted(client: AsyncClient) -> None:
    for _ in range(2):
        await send_async(client)

    queue = (await get_deployment(client))["queue"]

    assert queue["waiting_runs"] == 2
    assert queue["oldest_seconds"] >= 0


async def test_servers_are_shown_only_to_those_who_have_the_password(
    services: Services, connect: Connect
) -> None:
    with use_app(services, HttpSettings(password="key")) as app:
        async with connect(app) as client:
            refused = await client.get("/v1/servers/")
            allowed = await client.get("/v1/servers", headers={"authorization": "Bearer key"})

    assert (refused.status_code, allowed.status_code) == (401, 200)


async def test_a_run_is_explained_with_the_server_that_has_claimed_it(
    services: Services, client: AsyncClient
) -> None:
    """The owner is another server: alive, then dead, then forgotten."""
    await services.lease.register()
    other = make_server(host="elsewhere")
    await register(services, other)
    run_id = await send_async(client)
    await services.store.write(lambda tx: tx.queue.claim_next(Claimant(other.id)))

    alive = await explain(client, run_id)
    await services.store.write(lambda tx: tx.servers.expire(other.id))
    dead = await explain(client, run_id)
    await services.store.write(
        lambda tx: tx.servers.delete_dead(tx.servers.now() + timedelta(seconds=1))
    )
    deleted = await explain(client, run_id)

    lease = alive["lease"]
    assert (lease["server_id"], lease["host"], lease["fence"]) == (other.id, "elsewhere", 1)
    assert (lease["held_here"], lease["is_valid"]) == (False, True)
    assert lease["expires_at"] is not None
    assert alive["summary"].endswith(f"The server {other.id} on elsewhere has claimed it.")
    assert dead["lease"]["is_valid"] is False
    assert f"Its server {other.id} on elsewhere is dead" in dead["summary"]
    assert dead["by_itself"] == "Another server takes it over within 2 seconds."
    assert (deleted["lease"]["server_id"], deleted["lease"]["is_valid"]) == (other.id, False)
    assert deleted["summary"].endswith("is dead, and no longer listed.")


async def test_a_run_that_no_server_could_execute_says_so(
    services: Services, client: AsyncClient
) -> None:
    await register(services, make_server(role=Role.API))

    explained = await explain(client, await send_async(client))

    assert explained["by_itself"].startswith("No server that executes runs is alive.")
