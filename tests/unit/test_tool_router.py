"""What a call is told when the server's own parts fail: it never began, or nobody knows what it did. And what no result may
have, whichever tool it comes from."""

from types import SimpleNamespace
from typing import cast

import pytest
from tests.doubles.store import OutageStore
from tests.support.values import Make

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.toolbox.builtin import BUILTIN
from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.adapters.toolbox.specs import Arguments, Builtin, ToolServices
from holdfast.core.messages import Outcome, ToolCall
from holdfast.core.tools import ToolKind
from holdfast.core.turn import PlannedCall
from holdfast.errors import BackendError
from holdfast.ports.sandbox import SandboxCall, SandboxResult
from holdfast.ports.services import Services
from holdfast.ports.store import Store
from holdfast.ports.toolbox import ToolContext

CONTEXT = ToolContext(agent_id="agent-1", organization_id="org-1", thread_id="thread-1")


class BrokenSandbox:
    async def run(self, call: SandboxCall) -> SandboxResult:
        raise BackendError("The tool sandbox could not start a process.")

    async def close(self) -> None: ...


def make_router() -> ToolRouter:
    store = OutageStore(cast("Store", None))
    store.is_out = True
    router = ToolRouter(sandbox=BrokenSandbox(), timeout_seconds=1)
    router.bind(cast("Services", SimpleNamespace(store=store, clock=SystemClock())))
    return router


async def test_a_tool_whose_sandbox_cannot_start_was_not_started(make: Make) -> None:
    planned = PlannedCall(ToolCall("call-1", "greet", "{}"), {})
    tool = make.tool(name="greet", source_code="def greet(): ...")
    returned = await make_router().run(tool, planned, CONTEXT)
    assert returned.outcome is Outcome.NOT_STARTED
    assert "could not start a process" in returned.text


async def test_the_effect_of_a_built_in_tool_during_an_outage_is_unknown(make: Make) -> None:
    arguments = {"label": "human", "content": "x"}
    planned = PlannedCall(ToolCall("call-1", "core_memory_append", "{}"), arguments)
    tool = make.tool(name="core_memory_append", kind=ToolKind.MEMORY)
    returned = await make_router().run(tool, planned, CONTEXT)
    assert returned.outcome is Outcome.UNKNOWN
    assert "unknown" in returned.text


@pytest.mark.parametrize("name", ["core_memory_append", "conversation_search"])
async def test_half_a_character_in_the_result_of_a_built_in_tool_is_replaced(
    make: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It could not be stored. Results that are never cut are no exception."""

    async def run(_: ToolServices, __: ToolContext, ___: Arguments) -> str:
        return "cut \ud83d off"

    monkeypatch.setitem(BUILTIN, name, Builtin(BUILTIN[name].spec, run))
    given = dict.fromkeys(BUILTIN[name].spec.parameters["required"], "x")
    planned = PlannedCall(ToolCall("call-1", name, "{}"), given)
    returned = await make_router().run(make.tool(name=name, kind=ToolKind.CORE), planned, CONTEXT)
    assert returned.text == "cut ? off"
