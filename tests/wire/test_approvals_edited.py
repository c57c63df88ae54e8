"""An approval with other arguments than the model's. Not in V1."""

import json
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import APIStatusError, Letta
from letta_client.types import AgentState
from tests.support.client_objects import history
from tests.support.tool_sources import SHOUT
from tests.support.wire_approvals import allow, answer, deny, pause
from tests.support.wire_checks import assert_answers

from holdfast.testing import ScriptedProvider

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow


@pytest.fixture
def paused(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> AgentState:
    agent = make_agent(tool_ids=[make_tool(SHOUT, default_requires_approval=True).id])
    pause(client, provider, agent.id)
    return agent


def test_the_call_gets_the_persons_arguments_and_the_history_shows_both(
    client: Letta, provider: ScriptedProvider, paused: AgentState
) -> None:
    provider.script("Louder than I meant.")

    result, *_ = answer(client, paused.id, allow(arguments={"text": "softly"}))

    assert result["tool_return"] == "SOFTLY!"
    asked, response = history(client, paused.id)[-4:-2]
    assert json.loads(asked["tool_call"]["arguments"]) == {"text": "hi"}
    assert response["approvals"][0]["arguments"] == {"text": "softly"}
    # The model sees its own arguments, so it is told of the changed ones.
    told = str(provider.requests[-1].messages)
    assert "A person changed the arguments" in told
    assert "softly" in told
    assert_answers(client, provider, paused.id)


@pytest.mark.parametrize(
    ("entry", "status", "words"),
    [
        (allow(arguments={"text": 3}), 400, "'text' must be of type string"),
        (allow(arguments={}), 400, "'text' is missing"),
        (allow(arguments={"text": "a", "volume": 1}), 400, "there is no argument 'volume'"),
        (deny(arguments={"text": "a"}), 422, "this one is denied"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_and_change_nothing(
    client: Letta,
    provider: ScriptedProvider,
    paused: AgentState,
    entry: dict[str, Any],
    status: int,
    words: str,
) -> None:
    with pytest.raises(APIStatusError) as caught:
        answer(client, paused.id, entry)

    assert caught.value.status_code == status
    assert words in caught.value.response.json()["detail"]
    provider.script("Done.")
    assert answer(client, paused.id, allow())[0]["tool_return"] == "HI!"
