"""Sending a message to an agent."""

from typing import Annotated, Final

from msgspec import Meta

from holdfast.core.messages import Role, Text
from holdfast.core.threads import DEFAULT_CONVERSATION
from holdfast.http.mcp.caller import Answer, Caller
from holdfast.http.mcp.run_reports import wait_and_tell
from holdfast.http.mcp.tools.agents import AgentReference, find_agent
from holdfast.http.mcp.tools.tool import (
    DEFAULT_WAIT_SECONDS,
    Arguments,
    Hints,
    WaitSeconds,
    make_tool,
)
from holdfast.usecases import messages
from holdfast.usecases.messages import MessageInput, NewSend


class SendMessage(Arguments, frozen=True, kw_only=True):
    agent: AgentReference
    message: Annotated[str, Meta(min_length=1, description="What to say to the agent.")]
    conversation: Annotated[
        str,
        Meta(description="The id of one of its conversations. Empty: the default one."),
    ] = ""
    wait_seconds: WaitSeconds = DEFAULT_WAIT_SECONDS


async def send_message(caller: Caller, wanted: SendMessage) -> Answer:
    agent = await find_agent(caller, wanted.agent)
    is_default = wanted.conversation in ("", DEFAULT_CONVERSATION)
    new = NewSend(
        agent_id=agent.id,
        thread_id=None if is_default else wanted.conversation,
        input=(MessageInput(role=Role.USER, content=(Text(wanted.message),)),),
    )
    run = await messages.send(caller.services, caller.actor, new)
    return await wait_and_tell(caller, run, wanted.wait_seconds)


SEND_MESSAGE: Final = make_tool(
    send_message,
    SendMessage,
    title="Send a message to an agent",
    description=(
        "Send a message to an agent, which has memory and tools of its own, and return its answer. The agent does its "
        "work in a run on the server, after the runs that the conversation already has. If the run does not end within "
        "wait_seconds, the answer names it: look again with get_run. If a tool of the agent needs a person's approval, "
        "the answer says which, and how to decide. Ending or cancelling this call does not stop the run: cancel_run "
        "does. If the call was cut off, do not send the message again: list_runs shows what became of it."
    ),
    hints=Hints(destroys=True, is_open=True),
)
