"""Merges a provider's stream into the JSON object that it would have been without streaming.

For provider traces, which people read. Nothing depends on it, so it must not fail: what it does not understand is
shown as it came.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = dict[str, Any]

# These are sent once or repeated whole; all other texts of a delta are pieces.
_REPLACED_KEYS = frozenset({"id", "index", "name", "role", "type"})


def merge_stream(body: bytes) -> Json:
    """The body as one object, as far as it was received."""
    if not body.strip():
        return {}
    whole = _decode_object(body)
    if whole is not None:
        return whole
    events = list(_parse_events(body))
    if not events:
        return {"text": body.decode(errors="replace")}
    return _merge_events(events)


def _merge_events(events: list[Json]) -> Json:
    if any(event.get("type") == "message_start" for event in events):
        return _merge_message(events)
    if any(str(event.get("type")).startswith("response.") for event in events):
        return _merge_response(events)
    if any("candidates" in event for event in events):
        return _merge_content(events)
    if any("choices" in event for event in events):
        return _merge_chat_completion(events)
    return {"events": events}


def _parse_events(body: bytes) -> Iterator[Json]:
    for line in body.split(b"\n"):
        if line.startswith(b"data:"):
            event = _decode_object(line[5:])
            if event is not None:
                yield event


def _decode_object(text: bytes) -> Json | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else {"value": value}


def _merge_chat_completion(events: list[Json]) -> Json:
    """OpenAI's chat completions, and those of compatible servers."""
    whole: Json = {}
    choices: dict[Any, Json] = {}
    for event in events:
        whole |= _without_key(event, key="choices")
        for choice in _as_objects(event.get("choices")):
            merged = choices.setdefault(choice.get("index", 0), {"message": {}})
            merged |= _without_key(choice, key="delta")
            _merge_delta(merged["message"], choice.get("delta"))
    return whole | {"object": "chat.completion", "choices": list(choices.values())}


def _merge_message(events: list[Json]) -> Json:
    """Anthropic's messages."""
    whole: Json = {}
    blocks: dict[Any, Json] = {}
    for event in events:
        block = blocks.setdefault(event["index"], {}) if "index" in event else {}
        match event.get("type"):
            case "message_start":
                whole |= _as_object(event.get("message"))
            case "content_block_start":
                block |= _as_object(event.get("content_block"))
            case "content_block_delta":
                delta = _as_object(event.get("delta"))
                _merge_delta(block, {key: delta[key] for key in delta if key != "type"})
            case "message_delta":
                usage = _as_object(whole.get("usage")) | _as_object(event.get("usage"))
                whole |= _as_object(event.get("delta")) | {"usage": usage}
            case "error":
                whole["error"] = event.get("error")
    return whole | {"content": [_with_input(block) for block in blocks.values()]}


def _with_input(block: Json) -> Json:
    """The block with the input of its call, which is streamed as pieces of JSON."""
    pieces = block.pop("partial_json", None)
    if not isinstance(pieces, str):
        return block
    return block | {"input": _decode_object(pieces.encode()) or pieces}


def _merge_response(events: list[Json]) -> Json:
    """OpenAI's responses: the last event has everything, unless the stream was cut off."""
    whole: Json = {}
    items: dict[Any, Json] = {}
    for event in events:
        whole |= _as_object(event.get("response"))
        index = event.get("output_index")
        if isinstance(event.get("item"), dict):
            items[index] = event["item"]
        elif isinstance(event.get("delta"), str):
            name = str(event["type"]).removeprefix("response.").removesuffix(".delta")
            _merge_delta(items.setdefault(index, {}), {name: event["delta"]})
        elif event.get("type") == "error":
            whole["error"] = _without_key(event, key="type")
    return whole if whole.get("output") else whole | {"output": list(items.values())}


def _merge_content(events: list[Json]) -> Json:
    """Google's content: each event adds parts."""
    whole: Json = {}
    candidates: dict[Any, Json] = {}
    for event in events:
        whole |= _without_key(event, key="candidates")
        for candidate in _as_objects(event.get("candidates")):
            merged = candidates.setdefault(candidate.get("index", 0), {"content": {"parts": []}})
            content = _as_object(candidate.get("content"))
            merged |= _without_key(candidate, key="content")
            merged["content"] |= _without_key(content, key="parts")
            for part in _as_objects(content.get("parts")):
                _merge_part(merged["content"]["parts"], part)
    return whole | {"candidates": list(candidates.values())}


def _merge_part(parts: list[Json], part: Json) -> None:
    """Text and thinking are continued from one event to the next."""
    last = parts[-1] if parts else {}
    continues = "text" in last and "text" in part and last.get("thought") == part.get("thought")
    if continues:
        _merge_delta(last, part)
    else:
        parts.append(part)


def _merge_delta(to: Json, delta: Any) -> None:
    """Add a delta to an object: texts are appended, items of lists are matched by their index."""
    for key, more in _as_object(delta).items():
        before = to.get(key)
        if isinstance(before, str) and isinstance(more, str) and key not in _REPLACED_KEYS:
            to[key] = before + more
        elif isinstance(before, dict) and isinstance(more, dict):
            _merge_delta(before, more)
        elif isinstance(more, list):
            to[key] = _merge_items(before if isinstance(before, list) else [], more)
        elif more is not None or key not in to:
            to[key] = more


def _merge_items(items: list[Any], more: list[Any]) -> list[Any]:
    for item in more:
        index = item.get("index") if isinstance(item, dict) else None
        same = [one for one in items if isinstance(one, dict) and one.get("index") == index]
        if index is None or not same:
            items.append(item)
        else:
            _merge_delta(same[0], item)
    return items


def _without_key(event: Json, *, key: str) -> Json:
    return {name: value for name, value in event.items() if name != key and value is not None}


def _as_object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _as_objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
