"""One trivial call in the sandbox, at each isolation level of this machine, without a server."""

from functools import partial

from bench.context import BenchContext
from bench.floor import call_in_fork, median_ms
from bench.measurements import Measurement
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.ports.sandbox import SandboxCall

BUDGET_MS = 15

_CALL = SandboxCall(
    source="def tool(): return 1", function="tool", arguments={}, timeout_seconds=10, env={}
)


async def measure(context: BenchContext) -> list[Measurement]:
    levels: dict[str, Isolation | None] = {"one trivial tool call, plain": None}
    isolation = Isolation(network=False)
    if isolation_problem(isolation) is None:
        levels["  isolated"] = isolation
    return [
        Measurement(
            what=what,
            unit="ms",
            value=await _ms(level, context.counts.turns),
            floor=await median_ms(_fork_once, context.counts.turns),
            budget=BUDGET_MS,
        )
        for what, level in levels.items()
    ]


async def _ms(isolation: Isolation | None, count: int) -> float:
    sandbox = SubprocessSandbox(isolation=isolation)
    try:
        # The first call starts the fork server, so it is not measured.
        if (first := await sandbox.run(_CALL)).value != 1:
            raise RuntimeError(f"The call failed: {first.error}")
        return await median_ms(partial(sandbox.run, _CALL), count)
    finally:
        await sandbox.close()


async def _fork_once() -> None:
    call_in_fork()
