"""The error body that both OpenAI wires use. Pure."""

from holdfast.testing.script import HttpError
from holdfast.testing.wires.wire import encode

# status: (type, code), as api.openai.com answers
_KINDS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def error(fault: HttpError) -> bytes:
    kind, code = _KINDS.get(
        fault.status, ("server_error" if fault.status >= 500 else "invalid_request_error", None)
    )
    return encode(
        {
            "error": {
                "message": fault.message,
                "type": fault.type or kind,
                "param": None,
                "code": fault.code or code,
            }
        }
    )
