"""Callbacks as in V1, and as docs/callbacks.md describes them (wire-v1 §5.6)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import BadRequestError, Letta
from tests.doubles.http_receiver import CannedResponse, Receiver, run_receiver_in_thread
from tests.support.client_objects import as_dict, eventually
from tests.support.wire_server import CALLBACK_SECRET

from holdfast.testing import Answer, ScriptedProvider

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "callbacks.md"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with run_receiver_in_thread() as receiver:
        yield receiver


def is_genuine(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """The example code of the page, unchanged."""
    (source,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        if "def is_genuine" in block
    )
    page: dict[str, Any] = {}
    exec(source, page)
    genuine: bool = page["is_genuine"](headers, body, secret)
    return genuine


@pytest.mark.both_databases
@pytest.mark.wire(129)
def test_the_end_of_a_run_is_delivered_once_and_the_outcome_is_shown(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    receiver: Receiver,
) -> None:
    provider.script(Answer("Done."))
    agent = make_agent()

    run = client.agents.messages.create_async(
        agent.id, messages=[{"role": "user", "content": "hi"}], callback_url=f"{receiver.url}/hook"
    )
    heard = receiver.wait()

    body = json.loads(heard.body)
    assert (body["run_id"], body["status"]) == (run.id, "completed")
    assert body["metadata"]["run_type"] == "send_message_async"
    assert body["metadata"]["lettuce"] is None
    stored = http.get(f"/v1/runs/{run.id}/messages").json()
    assert body["metadata"]["result"]["messages"] == stored
    assert [row["message_type"] for row in stored] == ["user_message", "assistant_message"]
    done = eventually(
        lambda: as_dict(client.runs.retrieve(run.id)),
        lambda seen: seen["callback_status_code"] is not None,
    )
    assert (done["status"], done["callback_status_code"], done["callback_error"]) == (
        "completed",
        200,
        None,
    )
    assert done["callback_sent_at"] is not None
    assert done["metadata"] == {"run_type": "send_message_async", "lettuce": None}
    assert len(receiver.all_requests) == 1


def test_the_example_of_the_page_knows_a_genuine_callback(
    client: Letta, make_agent: "MakeAgent", receiver: Receiver
) -> None:
    client.agents.messages.create_async(
        make_agent().id, messages=[{"role": "user", "content": "hi"}], callback_url=receiver.url
    )
    heard = receiver.wait()

    assert is_genuine(heard.headers, heard.body, CALLBACK_SECRET)
    assert not is_genuine(heard.headers, heard.body + b" ", CALLBACK_SECRET)
    assert not is_genuine(heard.headers, heard.body, "another secret")
    old = heard.headers | {"webhook-timestamp": "1700000000"}
    assert not is_genuine(old, heard.body, CALLBACK_SECRET)


def test_a_receiver_that_fails_does_not_fail_the_run(
    client: Letta, make_agent: "MakeAgent", receiver: Receiver
) -> None:
    receiver.answers = [CannedResponse(500), CannedResponse(200)]
    run = client.agents.messages.create_async(
        make_agent().id, messages=[{"role": "user", "content": "hi"}], callback_url=receiver.url
    )
    receiver.wait()
    failing = eventually(
        lambda: as_dict(client.runs.retrieve(run.id)),
        lambda seen: seen["callback_status_code"] is not None,
    )
    assert failing["status"] == "completed"
    assert failing["callback_status_code"] in (500, 200)

    receiver.wait()
    settled = eventually(
        lambda: as_dict(client.runs.retrieve(run.id)),
        lambda seen: seen["callback_status_code"] == 200,
    )
    assert settled["callback_error"] is None


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://[::1]/", "http://0x7f.1/", "ftp://x/"])
def test_an_address_that_is_evidently_not_public_is_refused(
    client: Letta, make_agent: "MakeAgent", url: str
) -> None:
    agent = make_agent()

    with pytest.raises(BadRequestError, match="This address cannot be used"):
        client.agents.messages.create_async(
            agent.id, messages=[{"role": "user", "content": "hi"}], callback_url=url
        )

    assert client.runs.list(agent_id=agent.id).items == []
