"""What a caller sent, as the core understands it (wire-v1 §2.3.1): pure, and refused in V1's words."""

import base64
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import unquote_to_bytes

from holdfast.core import images
from holdfast.core.approvals import NO_DECISIONS
from holdfast.core.budgets import Budget
from holdfast.core.messages import (
    Decision,
    Image,
    Outcome,
    Role,
    Text,
    ToolReturn,
    VisiblePart,
)
from holdfast.core.money import NANOS_PER_DOLLAR
from holdfast.core.runs import ClientTool, RunRequest, RunStatus
from holdfast.errors import InvalidArgument, Unprocessable
from holdfast.http.letta_v1.schemas import send as wire
from holdfast.http.letta_v1.schemas.approvals import DecideBody
from holdfast.http.letta_v1.to_wire.runs import STATUSES
from holdfast.usecases.approval_answers import AnswerOptions
from holdfast.usecases.messages import ApprovalInput, Input, MessageInput, NewSend

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31}):")
_DATA_URL = re.compile(r"[^:]*:(?P<media_type>[^;,]*)(?P<parameters>[^,]*),(?P<data>.*)", re.DOTALL)

# What every database can count to.
_MAX_SEQ = 2**63 - 1


def new_send(
    agent_id: str,
    body: wire.SendBody,
    *,
    kind: str = "send_message",
    thread_id: str | None = None,
    streaming: bool = False,
    background: bool = False,
) -> NewSend:
    """``streaming``: the options that say how to stream hold, and ``background`` with them."""
    return NewSend(
        agent_id=agent_id,
        thread_id=thread_id,
        input=send_inputs(body),
        request=run_request(body, streaming=streaming),
        override_model=body.override_model,
        kind=kind,
        background=background or (streaming and body.background),
    )


def run_request(body: wire.SendBody, *, streaming: bool = False) -> RunRequest:
    types = body.include_return_message_types
    return RunRequest(
        max_steps=body.max_steps,
        override_system=body.override_system,
        client_tools=tuple(
            ClientTool(tool.name, tool.description, tool.parameters)
            for tool in body.client_tools or ()
        ),
        stream_tokens=streaming and body.stream_tokens,
        include_pings=body.include_pings or not streaming,
        include_return_message_types=None if types is None else tuple(types),
        include_compaction_messages=body.include_compaction_messages,
        use_assistant_message=body.use_assistant_message,
        assistant_message_tool_name=body.assistant_message_tool_name,
        assistant_message_tool_kwarg=body.assistant_message_tool_kwarg,
        approval_timeout_seconds=body.approval_timeout_seconds,
        approval_on_timeout=body.approval_on_timeout,
        callback_url=body.callback_url or None,
        budget=_budget(body),
    )


def _budget(body: wire.SendBody) -> Budget | None:
    cost = body.max_cost
    budget = Budget(
        total_tokens=body.max_total_tokens,
        cost=None if cost is None else max(round(cost * NANOS_PER_DOLLAR), 1),
        seconds=body.max_seconds,
    )
    return None if budget == Budget() else budget


def refuse_streaming_options(body: wire.SendBody) -> None:
    """A send that does not stream must not be asked how to (wire-v1 §1.11)."""
    problems = [
        problem
        for wrong, problem in (
            (body.stream_tokens, "stream_tokens can only be true when streaming=true"),
            (not body.include_pings, "include_pings can only be false when streaming=true"),
            (body.background, "background can only be true when streaming=true"),
        )
        if wrong
    ]
    if problems:
        raise Unprocessable(
            f"Streaming options set without streaming enabled. {'; '.join(problems)}. "
            "Either set streaming=true or use default values for streaming options."
        )


def send_inputs(body: wire.SendBody) -> tuple[Input, ...]:
    if body.messages is not None and body.input is not None:
        raise Unprocessable("Cannot specify both 'input' and 'messages'. Use one or the other.")
    if body.input is not None:
        return (MessageInput(role=Role.USER, content=_content(body.input)),)
    if body.messages is None:
        raise Unprocessable("Must specify either 'input' or 'messages'.")
    if not body.messages:
        raise Unprocessable("Messages must not be empty")
    return _items(body.messages)


def _items(items: Sequence[wire.Item]) -> tuple[Input, ...]:
    """The first item decides: after an approval, messages are follow-ups and all else is dropped."""
    first, *rest = items
    messages = [item for item in rest if isinstance(item, wire.MessageCreate)]
    if not isinstance(first, wire.MessageCreate):
        return (_approval(first), *(_message(item) for item in messages))
    if len(messages) < len(rest):
        raise InvalidArgument(
            "Unexpected type: an approval or a tool return must be the first item of a request."
        )
    return tuple(_message(item) for item in (first, *messages))


def _message(item: wire.MessageCreate) -> MessageInput:
    return MessageInput(
        role=Role(item.role),
        content=_content(item.content),
        otid=item.otid,
        name=item.name,
        sender_id=item.sender_id,
        group_id=item.group_id,
    )


def _content(content: wire.ContentInput) -> tuple[VisiblePart, ...]:
    parts = tuple(part for part in _parts(content) if part != Text(""))
    if not parts:
        raise InvalidArgument("Message content is empty or invalid")
    return parts


def _parts(content: wire.ContentInput) -> tuple[VisiblePart, ...]:
    """Words and pictures. What else a client repeats of a model's answer is not the user's to say."""
    if isinstance(content, str):
        return (Text(content),)
    found: list[VisiblePart] = []
    for part in content:
        if isinstance(part, wire.TextInput):
            found.append(Text(part.text))
        elif isinstance(part, wire.ImageInput):
            found.append(_image(part.source))
    return tuple(found)


def _approval(item: wire.ApprovalCreate | wire.ToolReturnCreate) -> ApprovalInput:
    if isinstance(item, wire.ToolReturnCreate):
        decisions = [_tool_return_decision(entry) for entry in item.tool_returns]
    elif item.approvals:
        decisions = [_decision(entry, item.decided_by) for entry in item.approvals]
    else:
        decisions = _legacy_decision(item)
    if not decisions:
        raise InvalidArgument(
            f"{NO_DECISIONS} Send one entry for each call that waits, such as "
            '{"type": "approval", "tool_call_id": "<id>", "approve": true}; '
            "GET /v1/approvals shows what waits."
        )
    return ApprovalInput(
        decisions=tuple(decisions),
        otid=item.otid,
        group_id=item.group_id,
        options=AnswerOptions(partial=item.partial),
    )


def approval_decisions(body: DecideBody, calls: Sequence[str]) -> list[Decision]:
    """What somebody decided on a request with these calls."""
    if (body.approve is None) is (body.approvals is None):
        raise Unprocessable("Send either 'approve', for all calls, or 'approvals', one for each.")
    if body.approve is not None:
        return [
            Decision(call_id, body.approve, body.reason, decided_by=body.decided_by)
            for call_id in calls
        ]
    return [_decision(entry, body.decided_by) for entry in body.approvals or ()]


def _legacy_decision(item: wire.ApprovalCreate) -> list[Decision]:
    """One call, named by the id of its approval request (wire-v1 §6.3)."""
    if item.approve is None:
        return []
    if item.approval_request_id is None:
        raise Unprocessable("'approve' needs the 'approval_request_id' that it answers.")
    return [
        Decision(item.approval_request_id, item.approve, item.reason, decided_by=item.decided_by)
    ]


def _decision(entry: wire.Entry, decided_by: str | None) -> Decision:
    """``decided_by`` holds for every entry that does not name somebody else."""
    if isinstance(entry, wire.ToolReturnEntry):
        return _tool_return_decision(entry, decided_by)
    if entry.arguments is not None and not entry.approve:
        raise Unprocessable("'arguments' are for a call that is approved; this one is denied.")
    return Decision(
        entry.tool_call_id,
        entry.approve,
        entry.reason,
        decided_by=entry.decided_by or decided_by,
        arguments=entry.arguments,
    )


def _tool_return_decision(entry: wire.ToolReturnEntry, decided_by: str | None = None) -> Decision:
    """The client ran the call itself, so the server must not."""
    outcome = Outcome.FINISHED if entry.status == "success" else Outcome.FAILED
    returned = ToolReturn(
        call_id=entry.tool_call_id,
        name=None,
        outcome=outcome,
        content=_parts(entry.tool_return),
        stdout=tuple(entry.stdout or ()),
        stderr=tuple(entry.stderr or ()),
    )
    return Decision(
        entry.tool_call_id,
        approve=False,
        returned=returned,
        decided_by=entry.decided_by or decided_by,
    )


def _image(source: wire.UrlSource | wire.Base64Source | wire.FileSource) -> Image:
    if isinstance(source, wire.UrlSource):
        return _image_from_url(source.url)
    if source.data is None or source.media_type is None:
        raise InvalidArgument("An image needs its 'data' and its 'media_type'.")
    return _image_from_data(source.media_type, source.data, source.detail)


def _image_from_url(url: str) -> Image:
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if scheme == "data":
        return _image_from_data_url(url)
    if scheme in {"http", "https"}:
        raise InvalidArgument(
            "A picture cannot be given by its address here. Send the picture itself: a source "
            "{'type': 'base64', 'media_type': 'image/png', 'data': '<base64>'}, or a data: URL."
        )
    raise InvalidArgument(
        f"Unsupported image URL scheme '{scheme}'. Only 'http', 'https', and 'data' image URLs are "
        "supported. Local file paths (file://) are not allowed."
    )


def _image_from_data_url(url: str) -> Image:
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise InvalidArgument("The data: URL of an image has no comma before its data.")
    data = found["data"]
    if not found["parameters"].lower().endswith(";base64"):
        data = base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    return _image_from_data(found["media_type"], data)


def _image_from_data(media_type: str, data: str, detail: str | None = None) -> Image:
    """A picture that a provider can read: a bad one would be refused there, in words about us."""
    if not media_type.lower().startswith("image/"):
        raise InvalidArgument(f"'{media_type}' is not the media type of an image.")
    try:
        decoded = base64.b64decode(data, validate=True)
    except ValueError:
        raise InvalidArgument("The data of an image is not base64.") from None
    if not decoded:
        raise InvalidArgument("The data of an image is empty.")
    # A wrong name would be refused by the provider in this turn and in every later one.
    kind = images.detect_media_type(decoded)
    if kind is None:
        raise InvalidArgument(f"The data of an image cannot be used: {images.NOT_AN_IMAGE}.")
    return Image(kind, data, detail)


def parse_cursor(value: object) -> int:
    """The number of the last event that a reader has seen; 0 for one that has seen none."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_SEQ:
        raise InvalidArgument(
            f"'starting_after' must be the seq_id of the last item that you have, a whole number from 0, "
            f"not {value!r:.100}."
        )
    return value


def parse_statuses(names: Sequence[str]) -> tuple[RunStatus, ...]:
    """Every status that V1 shows by one of these names."""
    unknown = sorted(set(names) - set(STATUSES.values()))
    if unknown:
        raise InvalidArgument(f"'{unknown[0]}' is not a valid RunStatus")
    return tuple(status for status, name in STATUSES.items() if name in names)


def as_utc(moment: datetime | None) -> datetime | None:
    """A moment without an offset is meant in UTC (wire-v1 §1.9)."""
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment
