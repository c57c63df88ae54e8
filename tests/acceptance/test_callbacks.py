"""A server that dies between the end of a run and its callback: the next server tells."""

import json
from typing import TYPE_CHECKING

import pytest
from letta_client import Letta
from tests.doubles.http_receiver import run_receiver_in_thread
from tests.support.client_objects import as_dict, eventually
from tests.support.server_process import ServerProcess

from holdfast.cli.api import Api
from holdfast.cli.runs import render_one

if TYPE_CHECKING:
    from tests.support.server_process import StartServer

pytestmark = pytest.mark.slow

ALLOWED = {"HOLDFAST_ALLOWED_PRIVATE_HOSTS": "127.0.0.1"}


def render_run(server: ServerProcess, run_id: str) -> str:
    """What ``holdfast runs show`` says."""
    return render_one(Api(server.address, {}), run_id, as_json=False)


def test_a_callback_outlives_the_server_that_owes_it(start_server: "StartServer") -> None:
    with run_receiver_in_thread() as receiver:
        port = receiver.port
    # Nobody is there now.
    server = start_server(**ALLOWED)
    client = Letta(base_url=server.address, max_retries=0)
    agent = client.agents.create(include_base_tools=False)
    run = client.agents.messages.create_async(
        agent.id,
        messages=[{"role": "user", "content": "hi"}],
        callback_url=f"http://127.0.0.1:{port}/hook",
    )
    eventually(
        lambda: as_dict(client.runs.retrieve(run.id)), lambda seen: seen["completed_at"] is not None
    )
    assert f"http://127.0.0.1:{port}/hook" in render_run(server, run.id)
    server.kill()

    with run_receiver_in_thread(port) as receiver:
        server = start_server(**ALLOWED)
        client = Letta(base_url=server.address, max_retries=0)
        heard = receiver.wait()
        settled = eventually(
            lambda: as_dict(client.runs.retrieve(run.id)),
            lambda seen: seen["callback_status_code"] is not None,
        )

        # A receiver that hangs does not keep the server from ending, and nothing is said to be wrong.
        receiver.answers = [None]
        client.agents.messages.create_async(
            agent.id,
            messages=[{"role": "user", "content": "hi again"}],
            callback_url=f"http://127.0.0.1:{port}/hook",
        )
        receiver.wait()
        assert f"taken by http://127.0.0.1:{port}/hook at " in render_run(server, run.id)

        assert server.stop() == 0
        assert "Traceback" not in server.log

    assert json.loads(heard.body)["run_id"] == run.id
    assert (settled["callback_status_code"], settled["callback_error"]) == (200, None)
