"""A rig whose agents have the tools of an MCP server: a real toolbox, and a scripted connection."""

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

from msgspec import structs
from tests.doubles.mcp import ScriptedMcp
from tests.support.rig import ACTOR, Rig

from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.core.agents import Agent, Secret
from holdfast.core.ids import Kind
from holdfast.core.mcp_servers import McpSecrets, McpServer, RemoteTool, Transport
from holdfast.core.mcp_tools import build_tool, check_tool
from holdfast.core.messages import ToolCall, ToolReturn
from holdfast.core.runs import Usage
from holdfast.core.tool_rules import ToolRule
from holdfast.core.tools import Tool
from holdfast.core.turn import Finish
from holdfast.ports.model import Answer
from holdfast.ports.sandbox import Sandbox
from holdfast.ports.services import Limits
from holdfast.ports.store import Store, Transaction

SERVER = "weather"


def remote_tool(name: str, **properties: Any) -> RemoteTool:
    """Properties whose names end in ``_`` are not required."""
    schema = {
        "type": "object",
        "properties": {key.rstrip("_"): value for key, value in properties.items()},
        "required": [key for key in properties if not key.endswith("_")],
    }
    return RemoteTool(name=name, description=f"The {name} tool.", input_schema=schema)


def call_with(*calls: tuple[str, str, dict[str, Any]]) -> Answer:
    """An answer that calls tools: triples of call id, tool name and arguments."""
    return Answer(
        content=(),
        tool_calls=tuple(ToolCall(key, name, json.dumps(given)) for key, name, given in calls),
        usage=Usage(10, 5),
        finish=Finish.TOOL_CALLS,
    )


class McpRig(Rig):
    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        super().__init__(store, limits)
        self.mcp = ScriptedMcp()
        router = ToolRouter(sandbox=cast("Sandbox", None), timeout_seconds=1)
        self.services = replace(self.services, mcp=self.mcp, toolbox=router)
        router.bind(self.services)
        self.router = router

    def use_store(self, store: Store) -> None:
        """Only for runs: tools keep the one that works."""
        self.services = replace(self.services, store=store)

    async def add_server(self, *tools: RemoteTool, **fields: Any) -> tuple[McpServer, list[Tool]]:
        """A stored server that has these tools."""
        now = self.services.clock.now()
        given: dict[str, Any] = {
            "name": SERVER,
            "transport": Transport.STREAMABLE_HTTP,
            "server_url": "https://mcp.example/mcp",
        }
        server = McpServer(
            id=self.services.ids.new_id(Kind.MCP_SERVER),
            organization_id=ACTOR.organization_id,
            created_at=now,
            updated_at=now,
            **given | fields,
        )
        self.mcp.tools[server.name] = tools
        stored = [
            build_tool(
                check_tool(tool),
                server,
                tool_id=self.services.ids.new_id(Kind.TOOL),
                now=now,
                approve="never",
                user_id=ACTOR.user_id,
            )
            for tool in tools
        ]
        # Those whose name begins with "fast" may run side by side.
        stored = [
            structs.replace(tool, enable_parallel_execution=tool.name.startswith("fast"))
            for tool in stored
        ]

        def add(tx: Transaction) -> None:
            tx.mcp_servers.add(server)
            tx.tools.add_all(stored)

        await self.services.store.write(add)
        return server, stored

    async def make_mcp_agent(
        self,
        *tools: RemoteTool,
        rules: tuple[ToolRule, ...] = (),
        secrets: dict[str, str] | None = None,
        token: str | None = None,
    ) -> Agent:
        """An agent with the tools of a server of its own."""
        _, stored = await self.add_server(*tools, secrets=McpSecrets(auth_token=token))
        agent = await self.make_agent(rules=rules)
        await self.attach(agent, stored, secrets or {})
        return agent

    async def attach(self, agent: Agent, tools: list[Tool], secrets: dict[str, str]) -> None:
        values = [
            Secret(id=self.services.ids.new_id(Kind.AGENT_SECRET), key=key, value=value)
            for key, value in secrets.items()
        ]

        def work(tx: Transaction) -> None:
            tx.agents.attach_tools(agent.id, [tool.id for tool in tools])
            tx.agents.set_secrets(agent.id, values)

        await self.services.store.write(work)

    async def returns(self, agent: Agent) -> dict[str, ToolReturn]:
        """What the calls of the agent returned, by call id."""
        rows = await self.context(agent)
        return {item.call_id: item for row in rows for item in row.tool_returns}

    def hold_calls(self) -> None:
        self.mcp.gate = asyncio.Event()
