"""The record of one request: its content, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.summaries import TRANSCRIPT_START
from holdfast.testing.moments import Moment
from holdfast.testing.wires.wire import Body, WireName

# The field with the history, where it is not `messages`.
_HISTORY = {"openai-responses": "input", "google": "contents"}


@dataclass(slots=True, eq=False)
class ProviderRequest:
    """One request to the scripted provider.

    The first fields are what the client sent; on Google's and Bedrock's wire `body` also has the model and the
    streaming that the path names. `refused` is the reason for which the request was refused, as the real
    provider would refuse it. `finished` happens when the last byte has been sent, or the connection is closed; then `closed_early` says whether the client closed before the answer
    was complete, and `closed_at` when (in the seconds of `time.monotonic`, as `received_at`).
    """

    wire: WireName
    path: str
    headers: Mapping[str, str]
    body: Body
    received_at: float
    refused: str | None = None
    closed_early: bool = False
    closed_at: float | None = None
    finished: Moment = field(default_factory=lambda: Moment("the end of the answer"))

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        return self.body.get("stream") is True

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The history as sent: the responses wire's input items, Google's contents."""
        sent = self.body.get(_HISTORY.get(self.wire, "messages"))
        if isinstance(sent, str):
            return [{"role": "user", "content": sent}]
        return sent if isinstance(sent, list) else []

    @property
    def tools(self) -> list[dict[str, Any]]:
        tools = self.body.get("tools") or []
        if self.wire == "bedrock":
            configured = self.body.get("toolConfig") or {}
            return [
                tool["toolSpec"] for tool in configured.get("tools") or () if "toolSpec" in tool
            ]
        if self.wire == "google":
            return [one for tool in tools for one in tool.get("functionDeclarations") or ()]
        return tools

    @property
    def tool_names(self) -> list[str]:
        return [str((tool.get("function") or tool).get("name")) for tool in self.tools]

    @property
    def api_key(self) -> str:
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-api-key") or self.headers.get("x-goog-api-key") or bearer

    @property
    def asks_for_summary(self) -> bool:
        """Whether Holdfast asks for a summary, to make a conversation smaller, rather than for an answer."""
        return self.user_text.startswith(TRANSCRIPT_START)

    @property
    def user_text(self) -> str:
        """The text of the last message in the user's role that has any."""
        user_messages = (m for m in reversed(self.messages) if m.get("role") == "user")
        contents = (message.get("content") or message.get("parts") for message in user_messages)
        return next((text for content in contents if (text := _text(content))), "")


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(str(block["text"]) for block in content if "text" in block)
