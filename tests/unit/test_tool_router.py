"""What a call is told when the server's own parts fail: it never began, or nobody knows what it did."""

from types import SimpleNamespace
from typing import cast

from tests.doubles.store import OutageStore
from tests.support.values import Make

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.toolbox.router import ToolRouter
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
