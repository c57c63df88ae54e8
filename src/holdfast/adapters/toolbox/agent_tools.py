"""Built-in tools for sending messages to other agents (wire-v1 §7.3)."""

import json

from holdfast.adapters.toolbox.arguments import read_strings
from holdfast.adapters.toolbox.specs import (
    Arguments,
    Builtin,
    ToolServices,
    parameters,
    string_list_schema,
    string_schema,
    tool_actor,
)
from holdfast.core.tools import ToolKind
from holdfast.errors import CallerError, ToolError
from holdfast.ports.toolbox import BuiltinSpec, ToolContext
from holdfast.usecases import agent_messaging
from holdfast.usecases.agent_messaging import Sender


async def _ask_agent(
    tool_services: ToolServices, context: ToolContext, arguments: Arguments
) -> str:
    sender = await _load_sender(tool_services, context)
    to, message = str(arguments["other_agent_id"]), str(arguments["message"])
    try:
        return await agent_messaging.ask(
            tool_services.services, sender, to, message, tool_services.timeout_seconds
        )
    except CallerError as error:
        raise ToolError(f"Error: {error}") from None


async def _send_to_agent(
    tool_services: ToolServices, context: ToolContext, arguments: Arguments
) -> str:
    sender = await _load_sender(tool_services, context)
    try:
        await agent_messaging.send(
            tool_services.services,
            sender,
            str(arguments["other_agent_id"]),
            str(arguments["message"]),
        )
    except CallerError as error:
        raise ToolError(f"Error: {error}") from None
    return "Successfully sent message"


async def _ask_matching_agents(
    tool_services: ToolServices, context: ToolContext, arguments: Arguments
) -> str:
    sender = await _load_sender(tool_services, context)
    answers = await agent_messaging.ask_matching(
        tool_services.services,
        sender,
        str(arguments["message"]),
        match_all=read_strings(arguments, "match_all"),
        match_some=read_strings(arguments, "match_some"),
        timeout_seconds=tool_services.timeout_seconds,
    )
    return json.dumps(
        [{"agent_id": agent_id, "response": reply} for agent_id, reply in answers.items()],
        ensure_ascii=False,
    )


async def _load_sender(tool_services: ToolServices, context: ToolContext) -> Sender:
    return await agent_messaging.load_sender(
        tool_services.services, tool_actor(context), context.agent_id, context.run_id
    )


_MESSAGE = string_schema("What to say to the other agent.")
_OTHER = string_schema("The id of the other agent.")

AGENT_TOOLS = (
    Builtin(
        BuiltinSpec(
            name="send_message_to_agent_and_wait_for_reply",
            description="Send a message to another agent and wait for its answer, which is returned.",
            kind=ToolKind.MULTI_AGENT,
            parameters=parameters(
                ["message", "other_agent_id"], message=_MESSAGE, other_agent_id=_OTHER
            ),
        ),
        _ask_agent,
    ),
    Builtin(
        BuiltinSpec(
            name="send_message_to_agent_async",
            description="Send a message to another agent without waiting for an answer.",
            kind=ToolKind.MULTI_AGENT,
            parameters=parameters(
                ["message", "other_agent_id"], message=_MESSAGE, other_agent_id=_OTHER
            ),
        ),
        _send_to_agent,
    ),
    Builtin(
        BuiltinSpec(
            name="send_message_to_agents_matching_tags",
            description="Send a message to every other agent that has all tags of match_all and at least one of "
            "match_some, and wait for their answers, which are returned.",
            kind=ToolKind.MULTI_AGENT,
            parameters=parameters(
                ["message", "match_all", "match_some"],
                message=_MESSAGE,
                match_all=string_list_schema(
                    "Tags that an agent must have, all of them; may be empty."
                ),
                match_some=string_list_schema(
                    "Tags of which an agent must have at least one; may be empty if match_all is not."
                ),
            ),
        ),
        _ask_matching_agents,
    ),
)
