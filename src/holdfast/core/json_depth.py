"""How deep values of JSON may be nested. Imports only the standard library: the processes of tools use it too."""

import json
from typing import Any

# No client and no program needs more. Python's stack and the databases allow far more.
MAX_DEPTH = 100
TOO_DEEP = f"JSON is nested deeper than {MAX_DEPTH} levels"


def load_json(text: str | bytes | bytearray) -> Any:
    """The value. ValueError if the text is no JSON, or nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inner_containers(outer)]
        if not level:
            return False
    return True


def _inner_containers(value: object) -> list[object]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [inner for inner in inside if isinstance(inner, dict | list)]
