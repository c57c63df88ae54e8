"""A provider takes its own thoughts back and refuses another's."""

from holdfast.testing import Answer, RedactedThinking, Thinking
from holdfast.testing.signatures import Signatures


def test_what_another_provider_signed_is_refused() -> None:
    signatures = Signatures()
    signatures.record(
        "anthropic", Answer(Thinking("Hm.", signature="theirs"), RedactedThinking("x"))
    )
    reasoning = {"input": [{"type": "reasoning", "encrypted_content": "theirs"}]}
    told = signatures.refusal("openai-responses", reasoning)
    assert told == "The encrypted content could not be verified."
    block = {"contents": [{"parts": [{"text": "Hi", "thoughtSignature": "x"}]}]}
    assert signatures.refusal("google", block) == "Thought signature is not valid."


def test_what_a_provider_signed_itself_is_taken_back() -> None:
    signatures = Signatures()
    for wire in ("anthropic", "google"):
        signatures.record(wire, Answer(Thinking("Hm.", signature="both")))
    block = {"messages": [{"content": [{"type": "thinking", "signature": "both"}]}]}
    assert signatures.refusal("anthropic", block) is None


def test_what_nobody_signed_is_let_through() -> None:
    body = {"messages": [{"content": [{"type": "thinking", "signature": "by hand"}]}]}
    assert Signatures().refusal("anthropic", body) is None
    assert Signatures().refusal("openai-chat", body) is None
