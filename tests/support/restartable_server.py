"""A server on one home that can die and come back, and a provider that outlives it."""

from collections.abc import Callable
from typing import Any

from tests.support.client_objects import as_dict, as_dicts, eventually
from tests.support.server_process import ServerProcess
from tests.support.wire_server import connect, provider_variables

from holdfast.testing import ScriptedProvider


class RestartableServer:
    """A server on one home that can die and come back, and a provider that stays."""

    def __init__(self, start: Callable[..., ServerProcess], provider: ScriptedProvider) -> None:
        self.provider = provider
        self._start = start
        self.start()

    def start(self, **variables: str) -> None:
        # A run that hangs on purpose need not be waited for.
        patience = {"HOLDFAST_DRAIN_SECONDS": "0"}
        self.server = self._start(**provider_variables(self.provider) | patience | variables)
        self.client = connect(self.server.address)

    def create_agent(self, model: str, *sources: str, **fields: Any) -> str:
        tools = [self.client.tools.upsert(source_code=source).id for source in sources]
        return self.client.agents.create(
            model=model, include_base_tools=False, tool_ids=tools, **fields
        ).id

    def say(self, agent_id: str, text: str) -> list[dict[str, Any]]:
        return as_dicts(self.client.agents.messages.create(agent_id, input=text).messages)

    def wait_for_ended_run(self, agent_id: str) -> dict[str, Any]:
        def newest() -> dict[str, Any]:
            return as_dict(self.client.runs.list(agent_id=agent_id).items[0])

        return eventually(newest, lambda run: run["completed_at"] is not None)

    def is_working(self, agent_id: str) -> bool:
        """Whether a next message is answered, and no provider found fault with the history."""
        answered = self.say(agent_id, "Still there?")[-1]["message_type"] == "assistant_message"
        return answered and all(request.refused is None for request in self.provider.requests)
