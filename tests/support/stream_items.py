"""Streams as plain data (wire-v1 §4). The client hides the end marker and an error's place; plain HTTP does not."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import httpx
import pytest
from letta_client import BaseModel
from tests.support.client_objects import as_dict

# Of ``messages.stream``, which the client offers beside ``create(streaming=True)``, and V1's users know.
IGNORE_DEPRECATION = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")

Items = Sequence[dict[str, Any]]


def read(http: httpx.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    """A whole stream without the client: the objects, of which each stood in a frame as it must (wire-v1 §4.1)."""
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, end, nothing = answer.text.split("\n\n")
    assert (end, nothing) == ("data: [DONE]", "")
    return [_item(frame) for frame in frames]


def _item(frame: str) -> dict[str, Any]:
    name, _, data = frame.partition("data: ")
    item: dict[str, Any] = json.loads(data)
    assert name == ("event: error\n" if item["message_type"] == "error_message" else "")
    return item


def read_until(stream: Iterator[BaseModel], text: str) -> list[dict[str, Any]]:
    """Read on in a stream of tokens until the assistant has said this much, and not further."""
    items: list[dict[str, Any]] = []
    while text_of(items) != text:
        items.append(as_dict(next(stream)))
    return items


def read_lines_until(lines: Iterator[str], text: str) -> list[dict[str, Any]]:
    """The same in the lines of a stream that is read without the client."""
    items: list[dict[str, Any]] = []
    while text_of(items) != text:
        if (line := next(lines)).startswith("data: "):
            items.append(json.loads(line.removeprefix("data: ")))
    return items


def kinds_in_turn(items: Items) -> list[str]:
    """The message types in their order, the chunks of one message counted once."""
    return [kind for kind, _ in groupby(item["message_type"] for item in items)]


def message_keys(items: Items) -> list[tuple[str, str, str]]:
    """Type, id and otid of each message, in order, once."""
    said = [item for item in items if "otid" in item]
    return list(dict.fromkeys((item["message_type"], item["id"], item["otid"]) for item in said))


def seq_ids(items: Items) -> list[int | None]:
    return [item["seq_id"] for item in items if "seq_id" in item]


def text_of(items: Items) -> str:
    """What the assistant said."""
    return "".join(i["content"] for i in items if i["message_type"] == "assistant_message")


def without_dates(items: Items, *also: str) -> list[dict[str, Any]]:
    """Without the dates, which for tokens are those of the reading, and without these fields."""
    left_out = {"date", *also}
    return [{key: item[key] for key in item.keys() - left_out} for item in items]


def assert_ended(items: Items, stop_reason: str) -> None:
    """Exactly one stop reason, then the usage, and nothing else (wire-v1 §4.4)."""
    assert [item["message_type"] for item in items[-2:]] == ["stop_reason", "usage_statistics"]
    assert [i["stop_reason"] for i in items if i["message_type"] == "stop_reason"] == [stop_reason]
