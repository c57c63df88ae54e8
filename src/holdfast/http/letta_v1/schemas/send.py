"""What a caller may send to an agent (wire-v1 §2.3.1)."""

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Discriminator, Field, Tag

from holdfast.core.deadlines import MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS, OnTimeout
from holdfast.core.runs import DEFAULT_MAX_STEPS
from holdfast.http.letta_v1.schemas.limits import (
    MAX_APPROVALS,
    MAX_CLIENT_TOOLS,
    MAX_CONTENT_PARTS,
    MAX_MESSAGES,
    MAX_NAMES,
    JsonObject,
    OutputLines,
)
from holdfast.http.letta_v1.schemas.messages import MessageType

# Far more than any run needs, and it fits into every integer type.
MAX_STEPS_LIMIT = 10_000


class LenientModel(BaseModel):
    """Unknown fields are ignored (wire-v1 §1.7)."""

    model_config = ConfigDict(extra="ignore")


def _kind(value: object, *, otherwise: str, **by_key: str) -> str:
    """The ``type`` of an object. If it has none, the kind of its first key in ``by_key`` (wire-v1 §2.3.1)."""
    if not isinstance(value, dict):
        return otherwise
    if (given := value.get("type")) is not None:
        return str(given)
    return next((kind for key, kind in by_key.items() if key in value), otherwise)


class UrlSource(LenientModel):
    type: Literal["url"] = "url"
    url: str


class Base64Source(LenientModel):
    type: Literal["base64"] = "base64"
    media_type: str
    data: str
    detail: str | None = None


class FileSource(LenientModel):
    type: Literal["letta"] = "letta"
    file_id: str
    media_type: str | None = None
    data: str | None = None
    detail: str | None = None


def _source_kind(value: object) -> str:
    return _kind(value, otherwise="base64", url="url", file_id="letta")


class TextInput(LenientModel):
    type: Literal["text"] = "text"
    text: str


class ImageInput(LenientModel):
    type: Literal["image"] = "image"
    source: Annotated[
        Annotated[UrlSource, Tag("url")]
        | Annotated[Base64Source, Tag("base64")]
        | Annotated[FileSource, Tag("letta")],
        Discriminator(_source_kind),
    ]


class OtherInput(LenientModel):
    """Parts that only a model produces (wire-v1 §3.8). Clients send them back; they are accepted and dropped."""

    type: Literal[
        "tool_call",
        "tool_return",
        "reasoning",
        "redacted_reasoning",
        "omitted_reasoning",
        "summarized_reasoning",
    ]


def _part_kind(value: object) -> str:
    kind = _kind(value, otherwise="text", source="image")
    return kind if kind in {"text", "image"} else "other"


PartInput = Annotated[
    Annotated[TextInput, Tag("text")]
    | Annotated[ImageInput, Tag("image")]
    | Annotated[OtherInput, Tag("other")],
    Discriminator(_part_kind),
]
ContentInput = str | Annotated[list[PartInput], Field(max_length=MAX_CONTENT_PARTS)]


class MessageCreate(LenientModel):
    type: Literal["message"] | None = None
    role: Literal["user", "system", "assistant"]
    content: ContentInput
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None
    group_id: str | None = None


DecidedBy = Annotated[
    str | None,
    Field(max_length=200, description="Not in V1: who decided, as the caller calls them."),
]


Partial = Annotated[
    bool, Field(description="Not in V1: other calls may stay open, to be answered later.")
]


TimeoutSeconds = Annotated[
    float,
    Field(
        ge=MIN_TIMEOUT_SECONDS,
        le=MAX_TIMEOUT_SECONDS,
        allow_inf_nan=False,
        description="Not in V1: how long a call waits for its answer; without limit if not given.",
    ),
]
TimeoutOutcome = Annotated[
    Literal[OnTimeout.DENY, OnTimeout.APPROVE],
    Field(
        description="Not in V1: what happens to a call that is not answered in time; 'deny' if not given."
    ),
]


class ApprovalEntry(LenientModel):
    type: Literal["approval"] = "approval"
    tool_call_id: str
    approve: bool
    reason: str | None = None
    decided_by: DecidedBy = None
    arguments: Annotated[
        JsonObject | None,
        Field(description="Not in V1: what an approved call gets instead of the model's own."),
    ] = None


class ToolReturnEntry(LenientModel):
    type: Literal["tool"] = "tool"
    tool_call_id: str
    tool_return: ContentInput
    status: Literal["success", "error"]
    stdout: OutputLines | None = None
    stderr: OutputLines | None = None
    decided_by: DecidedBy = None


def _entry_kind(value: object) -> str:
    return _kind(value, otherwise="approval", tool_return="tool")


Entry = Annotated[
    Annotated[ApprovalEntry, Tag("approval")] | Annotated[ToolReturnEntry, Tag("tool")],
    Discriminator(_entry_kind),
]


class ApprovalCreate(LenientModel):
    """``approvals`` is the current form, ``approve`` with ``approval_request_id`` the old one."""

    type: Literal["approval"] | None = None
    approvals: Annotated[list[Entry], Field(max_length=MAX_APPROVALS)] | None = None
    otid: str | None = None
    group_id: str | None = None
    approve: bool | None = None
    approval_request_id: str | None = None
    reason: str | None = None
    decided_by: DecidedBy = None
    partial: Partial = False


class ToolReturnCreate(LenientModel):
    type: Literal["tool_return"] | None = None
    tool_returns: Annotated[list[ToolReturnEntry], Field(max_length=MAX_APPROVALS)]
    partial: Partial = False
    otid: str | None = None
    group_id: str | None = None


def _item_kind(value: object) -> str:
    return _kind(
        value,
        otherwise="message",
        approve="approval",
        approval_request_id="approval",
        approvals="approval",
        tool_returns="tool_return",
    )


Item = Annotated[
    Annotated[MessageCreate, Tag("message")]
    | Annotated[ApprovalCreate, Tag("approval")]
    | Annotated[ToolReturnCreate, Tag("tool_return")],
    Discriminator(_item_kind),
]


class ClientToolCreate(LenientModel):
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: JsonObject | None = None


MessageTypes = Annotated[list[MessageType], Field(max_length=MAX_NAMES)]


class SendBody(LenientModel):
    messages: Annotated[list[Item], Field(max_length=MAX_MESSAGES)] | None = None
    input: ContentInput | None = None
    max_steps: Annotated[int, Field(ge=1, le=MAX_STEPS_LIMIT)] = DEFAULT_MAX_STEPS
    streaming: bool = False
    stream_tokens: bool = False
    background: bool = False
    include_pings: bool = True
    include_return_message_types: MessageTypes | None = None
    include_compaction_messages: bool = False
    client_tools: Annotated[list[ClientToolCreate], Field(max_length=MAX_CLIENT_TOOLS)] | None = (
        None
    )
    override_model: str | None = None
    override_system: Annotated[
        str | None, Field(validation_alias=AliasChoices("override_system", "system"))
    ] = None
    use_assistant_message: bool = True
    assistant_message_tool_name: str = "send_message"
    assistant_message_tool_kwarg: str = "message"
    callback_url: str | None = None
    approval_timeout_seconds: TimeoutSeconds | None = None
    approval_on_timeout: TimeoutOutcome | None = None
    max_total_tokens: Annotated[
        int | None,
        Field(ge=1, le=10**15, description="Not in V1: tokens, in and out, of all steps together."),
    ] = None
    max_cost: Annotated[
        float | None,
        Field(gt=0, le=10**6, description="Not in V1: US dollars, of all steps together."),
    ] = None
    max_seconds: Annotated[
        float | None,
        Field(
            gt=0, le=10**6, description="Not in V1: how long the run may take once it has begun."
        ),
    ] = None
    on_disconnect: Annotated[
        Literal["continue", "cancel"],
        Field(
            description="Not in V1: what happens to the run if the reader of its stream disconnects."
        ),
    ] = "continue"
