"""The answer to `GET /v1/models`: one body that serves OpenAI and Anthropic clients. Pure."""

from collections.abc import Iterable

from holdfast.testing.wires.wire import CREATED_AT, encode


def model_list(ids: Iterable[str]) -> bytes:
    models = [
        {
            "id": model_id,
            "object": "model",
            "created": CREATED_AT,
            "owned_by": "scripted",
            "type": "model",
            "display_name": model_id,
            "created_at": "2026-01-01T00:00:00Z",
            "lifecycle": "active",
        }
        for model_id in ids
    ]
    return encode(
        {
            "object": "list",
            "data": models,
            "has_more": False,
            "first_id": models[0]["id"] if models else None,
            "last_id": models[-1]["id"] if models else None,
        }
    )
