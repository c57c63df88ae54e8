"""Signatures of reasoning: each provider accepts its own and refuses those of others. Safe from any thread.

Unknown signatures are accepted, because tests write histories by hand.
"""

from collections import defaultdict
from collections.abc import Iterator

from holdfast.testing.script import Answer, RedactedThinking, Scripted, Thinking
from holdfast.testing.wires.wire import WireName

# The fields with a signature on each wire, and its error for a signature that it cannot verify.
_SIGNATURE_FIELDS: dict[WireName, tuple[tuple[str, ...], str]] = {
    "anthropic": (("signature", "data"), "Invalid `signature` in `thinking` block"),
    "openai-responses": (
        ("encrypted_content",),
        "The encrypted content could not be verified.",
    ),
    "bedrock": (("signature",), "The model returned: Invalid `signature` in `thinking` block"),
    "google": (("thoughtSignature",), "Thought signature is not valid."),
}


class Signatures:
    def __init__(self) -> None:
        self._signed: defaultdict[WireName, set[str]] = defaultdict(set)

    def record(self, wire: WireName, scripted: Scripted) -> None:
        """Remember the signatures of an answer that is about to be sent on this wire."""
        if isinstance(scripted, Answer) and wire in _SIGNATURE_FIELDS:
            self._signed[wire].update(_signatures(scripted))

    def refusal(self, wire: WireName, body: object) -> str | None:
        """Why the provider refuses the body: another provider's signature is in it."""
        if wire not in _SIGNATURE_FIELDS:
            return None
        names, words = _SIGNATURE_FIELDS[wire]
        others = set().union(*(found for name, found in self._signed.items() if name != wire))
        foreign = others - self._signed[wire]
        return words if foreign.intersection(_find_values(body, names)) else None


def _signatures(answer: Answer) -> Iterator[str]:
    for part in answer.parts:
        if isinstance(part, Thinking):
            yield part.signature
        elif isinstance(part, RedactedThinking):
            yield part.data


def _find_values(value: object, names: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in names and isinstance(inner, str):
                yield inner
            else:
                yield from _find_values(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_values(inner, names)
