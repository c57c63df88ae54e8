"""The built-in tools, which every server adds when it starts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from tests.support.rig import ACTOR, Rig

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.tools import ToolKind
from holdfast.errors import AlreadyExists
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec
from holdfast.usecases import tools

T = TypeVar("T")

SPEC = BuiltinSpec(
    name="think",
    description="Thinks.",
    parameters={"type": "object", "properties": {}},
    kind=ToolKind.BUILTIN,
)


class RacingStore:
    """Another server has added what the first write wants to add, and it is only seen now."""

    def __init__(self, store: SqliteStore, add_elsewhere: Callable[[], Any]) -> None:
        self._store = store
        self._add_elsewhere = add_elsewhere
        self._is_first = True

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if self._is_first:
            self._is_first = False
            await self._add_elsewhere()
            raise AlreadyExists("A tool with this name already exists.")
        return await self._store.write(work)


async def test_two_servers_that_start_at_once_add_the_built_in_tools_once(
    store: SqliteStore,
) -> None:
    rig = Rig(store)
    rig.toolbox._builtin = [SPEC]
    services = rig.services
    racing: Any = RacingStore(store, lambda: tools.add_builtin(services, ACTOR))

    added = await tools.add_builtin(replace(services, store=racing), ACTOR)

    names = [tool.name for tool in added]
    stored = await store.read(lambda tx: tx.tools.find(ACTOR.organization_id, names))
    assert {tool.id for tool in added} == {tool.id for tool in stored}
    assert len(stored) == len(set(names))
