"""Tools for testing agents: a model provider whose answers the test scripts, and a clock that the test moves.

The scripted provider is an HTTP server on loopback that implements OpenAI chat completions, OpenAI
responses, Anthropic messages, Google's generateContent and Bedrock's Converse, streaming and not. Point any
client at it::

    async def test_the_agent_rolls_the_dice():
        async with ScriptedProvider() as provider:
            provider.script(
                Answer("I roll.", ToolCall("roll_dice", {"num_sides": 16})),
                Answer("You rolled 7."),
            )
            agent = make_my_agent(base_url=provider.openai_url)  # others: provider.url
            assert await agent.ask("Roll, please.") == "You rolled 7."
            first, second = provider.requests
            assert first.user_text == "Roll, please."

Stop an answer where the test wants it, without a sleep::

    gate = Gate("half-way")
    provider.script(Answer("One ", gate, "two."))
    ...
    await gate.reached.wait()
    gate.release()

Script failures: ``provider.script(HttpError(429), Answer("Once", HangUp()), NoAnswer())``; then see
how the client reacted: ``provider.requests[-1].closed_early``. Answers for one of several agents:
``provider.script("For you.", when=lambda request: request.model == "yours")``; for the summary of a
long conversation: ``when=lambda request: request.asks_for_summary``.

A test fails when its answers were not all used, or a request found none: see ``ScriptedProvider.check``.

Requests for embeddings get vectors by themselves: texts that share words are near. See `ScriptedEmbeddings`::

    provider.embeddings.add_synonyms("car", "automobile")
    provider.embeddings.script(HttpError(503))

A history that the real provider would refuse, such as a tool call without its result, is refused
here with the same status and message. In code without an event loop: ``with ScriptedProvider.in_thread()
as provider``, and ``block`` instead of ``wait``. From another process: ``python -m holdfast.testing``.
"""

from holdfast.testing.clock import FakeClock
from holdfast.testing.embeddings import (
    EmbeddingAnswer,
    EmbeddingRequest,
    ScriptedEmbedding,
    ScriptedEmbeddings,
)
from holdfast.testing.moments import Moment
from holdfast.testing.provider import ScriptedProvider, ScriptMismatch
from holdfast.testing.requests import ProviderRequest
from holdfast.testing.script import (
    Answer,
    EmptyAnswer,
    Fault,
    Gate,
    Hang,
    HangUp,
    HttpError,
    MalformedJson,
    MalformedSse,
    NoAnswer,
    Part,
    Pause,
    RedactedThinking,
    ResetConnection,
    Scripted,
    SlowHeaders,
    Text,
    Thinking,
    ToolCall,
    TruncatedStream,
    Usage,
)
from holdfast.testing.word_vectors import embed_words

__all__ = [
    "Answer",
    "EmbeddingAnswer",
    "EmbeddingRequest",
    "EmptyAnswer",
    "FakeClock",
    "Fault",
    "Gate",
    "Hang",
    "HangUp",
    "HttpError",
    "MalformedJson",
    "MalformedSse",
    "Moment",
    "NoAnswer",
    "Part",
    "Pause",
    "ProviderRequest",
    "RedactedThinking",
    "ResetConnection",
    "ScriptMismatch",
    "Scripted",
    "ScriptedEmbedding",
    "ScriptedEmbeddings",
    "ScriptedProvider",
    "SlowHeaders",
    "Text",
    "Thinking",
    "ToolCall",
    "TruncatedStream",
    "Usage",
    "embed_words",
]
