"""What the model answers in a chaos, and the tools that it calls: the user's message says it."""

from typing import Final

from holdfast.testing import Answer, ProviderRequest, Text, ToolCall

DEFAULT: Final = "Done."
# Long enough that a stream is often interrupted.
_WORDS: Final = 60
_WORD_SECONDS: Final = 0.02

# Each start leaves a line, which no other start can overwrite.
_NOTE: Final = '''
def {name}(file: str, token: str) -> str:
    """Leave a line in a file.

    Args:
        file: The file.
        token: The line.
    """
    import os, time

    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, (token + "\\n").encode())
    os.close(descriptor)
    time.sleep({seconds})
    return "noted " + token
'''
NOTE: Final = "note"
SLOW: Final = "note_slowly"
HELD: Final = "note_if_allowed"
SOURCES: Final = {
    NOTE: _NOTE.format(name=NOTE, seconds=0),
    SLOW: _NOTE.format(name=SLOW, seconds=1),
    HELD: _NOTE.format(name=HELD, seconds=0.2),
}


def respond(request: ProviderRequest) -> Answer | None:
    """``talk``, or ``call <tool> <file> <token>``. After a tool's result, and for anything else, the default."""
    if request.messages and request.messages[-1].get("role") == "tool":
        return None
    match request.user_text.split(" "):
        case ["talk", *_]:
            words = [f"word{number} " for number in range(_WORDS)]
            return Answer(Text(chunks=words, delay_seconds=_WORD_SECONDS))
        case ["call", tool, file, token] if tool in request.tool_names:
            return Answer("I note.", ToolCall(tool, {"file": file, "token": token}))
    return None
