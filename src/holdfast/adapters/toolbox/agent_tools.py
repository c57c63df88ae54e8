"""The tools with which one agent speaks to others (wire-v1 §7.3)."""

import json

from holdfast.adapters.toolbox.specs import Arguments, Builtin, Hands, parameters, text, texts
from holdfast.core.tools import ToolKind
from holdfast.errors import CallerError, ToolError
from holdfast.ports.toolbox import BuiltinSpec, ToolContext
from holdfast.usecases import colleagues
from holdfast.usecases.colleagues import Sender


async def _ask(hands: Hands, context: ToolContext, given: Arguments) -> str:
    sender = await _sender(hands, context)
    to, message = str(given["other_agent_id"]), str(given["message"])
    try:
        return await colleagues.ask(hands.house, sender, to, message, hands.timeout_seconds)
    except CallerError as error:
        raise ToolError(f"Error: {error}") from None


async def _tell(hands: Hands, context: ToolContext, given: Arguments) -> str:
    sender = await _sender(hands, context)
    try:
        await colleagues.tell(
            hands.house, sender, str(given["other_agent_id"]), str(given["message"])
        )
    except CallerError as error:
        raise ToolError(f"Error: {error}") from None
    return "Successfully sent message"


async def _ask_matching(hands: Hands, context: ToolContext, given: Arguments) -> str:
    sender = await _sender(hands, context)
    answers = await colleagues.ask_matching(
        hands.house,
        sender,
        str(given["message"]),
        match_all=_tags(given, "match_all"),
        match_some=_tags(given, "match_some"),
        seconds=hands.timeout_seconds,
    )
    return json.dumps(
        [{"agent_id": agent_id, "response": said} for agent_id, said in answers.items()],
        ensure_ascii=False,
    )


async def _sender(hands: Hands, context: ToolContext) -> Sender:
    return await colleagues.sender(
        hands.house, context.organization_id, context.agent_id, context.run_id
    )


def _tags(given: Arguments, name: str) -> tuple[str, ...]:
    tags = given.get(name) or ()
    return (tags,) if isinstance(tags, str) else tuple(str(tag) for tag in tags)


_MESSAGE = text("What to say to the other agent.")
_OTHER = text("The id of the other agent.")

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
        _ask,
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
        _tell,
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
                match_all=texts("Tags that an agent must have, all of them; may be empty."),
                match_some=texts(
                    "Tags of which an agent must have at least one; may be empty if match_all is not."
                ),
            ),
        ),
        _ask_matching,
    ),
)
