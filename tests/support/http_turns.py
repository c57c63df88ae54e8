"""What tests of turns over HTTP share: sending, a call of the die, and reading what the server shows."""

from collections.abc import Callable, Coroutine
from typing import Any

from httpx import AsyncClient

from holdfast.core.messages import ToolCall

Send = Callable[..., Coroutine[Any, Any, dict[str, Any]]]
ROLL = ToolCall(id="call_1", name="roll", arguments='{"sides": 6}')


async def get(client: AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(f"/v1/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()
