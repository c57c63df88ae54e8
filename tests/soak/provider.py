"""What the model answers in a soak: the user's message says it."""

from typing import Final

from holdfast.testing import Answer, HangUp, HttpError, ProviderRequest, Text, ToolCall

DEFAULT: Final = "Done."
# Streams of this many words at this pace are long enough to be dropped or cancelled in the middle.
LONG_WORDS: Final = 40
_WORD_SECONDS: Final = 0.01


def respond(request: ProviderRequest) -> Answer | HttpError | None:
    """The first words of a message: ``talk``, ``call <tool> <argument>``, ``fail`` or ``break``. After a tool's result,
    and for anything else, the default."""
    if request.messages and request.messages[-1].get("role") == "tool":
        return None
    match request.user_text.split(" "):
        case ["talk", *_]:
            words = [f"word{number} " for number in range(LONG_WORDS)]
            return Answer(Text(chunks=words, delay_seconds=_WORD_SECONDS))
        case ["call", tool, argument, *_] if tool in request.tool_names:
            return Answer(ToolCall(tool, {"text": argument}))
        case ["fail", *_]:
            return HttpError(500)
        case ["break", *_]:
            return Answer("Half", HangUp())
    return None
