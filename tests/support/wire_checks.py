"""What holds after a cancel, whatever the run was doing (wire-v1 §5.5)."""

from letta_client import Letta
from tests.support.client_objects import as_dict, as_dicts

from holdfast.testing import ScriptedProvider


def message_ids(client: Letta, agent_id: str) -> list[str]:
    """What the agent has in context. It is exactly what is stored: no row is missing, none unknown."""
    ids = client.agents.retrieve(agent_id).message_ids
    assert ids is not None
    stored = dict.fromkeys(row.id for row in client.agents.messages.list(agent_id).items)
    assert ids == list(stored)
    return ids


def assert_cancelled(client: Letta, run_id: str) -> None:
    """The run says so, and so does its agent."""
    run = client.runs.retrieve(run_id)
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    assert run.completed_at is not None
    assert client.agents.retrieve(run.agent_id).last_stop_reason == "cancelled"
    ids = message_ids(client, run.agent_id)
    assert {row.id for row in client.runs.messages.list(run_id).items} <= set(ids)
    assert all(
        step.status != "pending" for step in client.runs.steps.list(run_id, order="asc").items
    )


def assert_answers(client: Letta, provider: ScriptedProvider, agent_id: str) -> None:
    """The agent works as if nothing had been: the next message is answered, the history is valid."""
    before = message_ids(client, agent_id)
    provider.script("Still here.")
    reply = client.agents.messages.create(agent_id, input="Still there?")
    assert as_dicts(reply.messages)[-1]["content"] == "Still here."
    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"
    assert provider.requests[-1].refused is None
    assert len(message_ids(client, agent_id)) == len(before) + 2
