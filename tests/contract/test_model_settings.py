"""Each model setting either reaches the provider or is reported as a warning: one table for both."""

from collections.abc import AsyncIterator, Iterable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.model_questions import (
    HELLO,
    OPENAI,
    PNG,
    ROLL,
    ask_for_answer,
    call_rows,
    make_question,
    provider_settings,
    row,
)

from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.discovery.discovery import ModelDiscovery
from holdfast.adapters.models.discovery.model_list import ListedModel, ModelList
from holdfast.adapters.models.image_support import supports_images
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import Image, Outcome, Role, Text, ToolCall, ToolReturn
from holdfast.core.models import ModelChoice
from holdfast.core.models import ModelSettings as Asked
from holdfast.http.letta_v1.from_wire.model_settings import core_settings
from holdfast.http.letta_v1.schemas.model_settings import ModelSettingsInput, ThinkingInput
from holdfast.ports.model import ToolOffer
from holdfast.testing import ScriptedProvider

CHAT = "openai/gpt-4o"
RESPONSES = "openai/gpt-5"
RESPONSES_QUIET = "openai/gpt-5.1"
CLAUDE = "anthropic/claude-haiku-4-5"
CLAUDE_ADAPTIVE = "anthropic/claude-opus-4-8"
CLAUDE_EAGER = "anthropic/claude-sonnet-5-5"
GEMINI = "google_ai/gemini-2.5-flash"
GEMINI_3 = "google_ai/gemini-3-pro-preview"
MISTRAL = "mistral/mistral-large-latest"
GROQ = "groq/openai/gpt-oss-120b"
VLLM = "vllm/some-model"
BEDROCK = "bedrock/anthropic.claude-haiku-4-5-20251001-v1:0"
OPENROUTER = "openrouter/anthropic/claude-opus-4.5"

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
JSON_OBJECT = {"type": "json_object"}
MISSING = "(nothing)"

# The settings; for each model the path and value in the request, or the setting that is reported.
Sent = tuple[str, Any]
TABLE: list[tuple[Asked, dict[str, Sent | str | tuple[Sent, str]]]] = [
    (
        Asked(temperature=0.25),
        {
            BEDROCK: ("inferenceConfig.temperature", 0.25),
            CHAT: ("temperature", 0.25),
            RESPONSES: "temperature",
            RESPONSES_QUIET: ("temperature", 0.25),
            CLAUDE: ("temperature", 0.25),
            CLAUDE_ADAPTIVE: "temperature",
            GEMINI: ("generationConfig.temperature", 0.25),
            MISTRAL: ("temperature", 0.25),
            GROQ: ("temperature", 0.25),
            VLLM: ("temperature", 0.25),
            OPENROUTER: ("temperature", 0.25),
        },
    ),
    (
        Asked(temperature=0.25, thinking=True),
        {
            RESPONSES_QUIET: (("reasoning.effort", "medium"), "temperature"),
            CLAUDE: (("thinking.type", "enabled"), "temperature"),
            GEMINI: ("generationConfig.temperature", 0.25),
        },
    ),
    (
        Asked(max_output_tokens=77),
        {
            BEDROCK: ("inferenceConfig.maxTokens", 77),
            CHAT: ("max_completion_tokens", 77),
            RESPONSES: ("max_output_tokens", 77),
            CLAUDE: ("max_tokens", 77),
            GEMINI: ("generationConfig.maxOutputTokens", 77),
            MISTRAL: ("max_tokens", 77),
            GROQ: ("max_completion_tokens", 77),
            VLLM: ("max_completion_tokens", 77),
            OPENROUTER: ("max_tokens", 77),
        },
    ),
    (
        Asked(reasoning_effort="low"),
        {
            BEDROCK: ("additionalModelRequestFields.thinking.type", "enabled"),
            CHAT: "reasoning_effort",
            RESPONSES: ("reasoning.effort", "low"),
            CLAUDE: ("thinking.budget_tokens", 2048),
            CLAUDE_ADAPTIVE: ("output_config.effort", "low"),
            GEMINI: ("generationConfig.thinkingConfig.thinking_budget", 2048),
            GEMINI_3: ("generationConfig.thinkingConfig.thinking_level", "LOW"),
            MISTRAL: "reasoning_effort",
            GROQ: ("reasoning_effort", "low"),
            VLLM: ("reasoning_effort", "low"),
            OPENROUTER: ("reasoning.effort", "low"),
        },
    ),
    (
        Asked(thinking=True),
        {
            BEDROCK: ("additionalModelRequestFields.thinking.type", "enabled"),
            CHAT: "thinking",
            RESPONSES: ("reasoning.effort", "medium"),
            CLAUDE: ("thinking.type", "enabled"),
            CLAUDE_ADAPTIVE: ("thinking.type", "adaptive"),
            GEMINI: ("generationConfig.thinkingConfig.include_thoughts", True),
            MISTRAL: "thinking",
            GROQ: ("reasoning_effort", "medium"),
            VLLM: "thinking",
            OPENROUTER: ("reasoning.enabled", True),
        },
    ),
    (
        Asked(thinking=True, thinking_budget=3000),
        {
            BEDROCK: "thinking_budget",
            RESPONSES: "thinking_budget",
            CLAUDE: ("thinking", {"type": "enabled", "budget_tokens": 3000}),
            CLAUDE_ADAPTIVE: "thinking_budget",
            GEMINI: ("generationConfig.thinkingConfig.thinking_budget", 3000),
            GROQ: "thinking_budget",
            OPENROUTER: "thinking_budget",
        },
    ),
    (
        core_settings(ModelSettingsInput(thinking=ThinkingInput(budget_tokens=3000))),
        {
            CLAUDE: ("thinking", {"type": "enabled", "budget_tokens": 3000}),
            GEMINI: ("generationConfig.thinkingConfig.thinking_budget", 3000),
        },
    ),
    (
        Asked(thinking=False),
        {
            CHAT: ("reasoning_effort", MISSING),
            RESPONSES: (("reasoning.effort", "minimal"), "thinking"),
            RESPONSES_QUIET: ("reasoning.effort", "none"),
            CLAUDE: ("thinking", MISSING),
            # This model thinks by default and has its own parameter to disable it.
            CLAUDE_EAGER: ("thinking.type", "between_tools"),
            GEMINI: ("generationConfig.thinkingConfig.thinking_budget", 0),
            GEMINI_3: (("generationConfig.thinkingConfig.thinking_level", "LOW"), "thinking"),
            GROQ: (("reasoning_effort", "low"), "thinking"),
            OPENROUTER: ("reasoning.effort", "none"),
        },
    ),
    (
        Asked(response_format={"type": "text"}),
        {
            CHAT: ("response_format", {"type": "text"}),
            RESPONSES: ("text.format", {"type": "text"}),
            CLAUDE: ("output_config", MISSING),
            GEMINI: ("generationConfig.responseMimeType", MISSING),
        },
    ),
    (
        Asked(response_format=JSON_OBJECT),
        {
            BEDROCK: "response_format",
            CHAT: ("response_format", JSON_OBJECT),
            RESPONSES: ("text.format", JSON_OBJECT),
            CLAUDE: "response_format",
            GEMINI: "response_format",
            GEMINI_3: ("generationConfig.responseJsonSchema", {"type": "object"}),
            MISTRAL: "response_format",
            GROQ: ("response_format", JSON_OBJECT),
            VLLM: ("response_format", JSON_OBJECT),
            OPENROUTER: ("response_format", JSON_OBJECT),
        },
    ),
    (
        Asked(response_format=JSON_SCHEMA),
        {
            BEDROCK: ("outputConfig.textFormat.type", "json_schema"),
            CHAT: ("response_format", JSON_SCHEMA),
            RESPONSES: ("text.format", {"type": "json_schema", "name": "x", "schema": SCHEMA}),
            CLAUDE: ("output_config.format", {"type": "json_schema", "schema": SCHEMA}),
            GEMINI: "response_format",
            GEMINI_3: ("generationConfig.responseJsonSchema", SCHEMA | {"title": "x"}),
            MISTRAL: "response_format",
            GROQ: ("response_format", JSON_SCHEMA),
            VLLM: ("response_format", JSON_SCHEMA),
            OPENROUTER: ("response_format", JSON_SCHEMA),
        },
    ),
    (
        Asked(strict=True),
        {
            BEDROCK: ("toolConfig.tools.0.toolSpec.strict", True),
            CHAT: ("tools.0.function.strict", True),
            RESPONSES: ("tools.0.strict", True),
            CLAUDE: ("tools.0.strict", True),
            GEMINI: ("toolConfig.functionCallingConfig.mode", "VALIDATED"),
            MISTRAL: "strict",
            GROQ: ("tools.0.function.parameters.additionalProperties", False),
            VLLM: ("tools.0.function.strict", True),
            OPENROUTER: ("tools.0.function.strict", True),
            "ollama/llama3": "strict",
        },
    ),
    (
        Asked(verbosity="low"),
        {
            BEDROCK: "verbosity",
            CHAT: ("verbosity", "low"),
            RESPONSES: ("text.verbosity", "low"),
            CLAUDE: "verbosity",
            GEMINI: "verbosity",
            MISTRAL: "verbosity",
            GROQ: ("verbosity", "low"),
            VLLM: ("verbosity", "low"),
            OPENROUTER: ("verbosity", "low"),
        },
    ),
    (
        Asked(frequency_penalty=0.5),
        {
            BEDROCK: "frequency_penalty",
            CHAT: ("frequency_penalty", 0.5),
            RESPONSES: "frequency_penalty",
            RESPONSES_QUIET: "frequency_penalty",
            CLAUDE: "frequency_penalty",
            GEMINI: ("generationConfig.frequencyPenalty", 0.5),
            MISTRAL: ("frequency_penalty", 0.5),
            GROQ: ("frequency_penalty", 0.5),
            VLLM: ("frequency_penalty", 0.5),
            OPENROUTER: ("frequency_penalty", 0.5),
        },
    ),
]
CELLS = [(handle, asked, cell) for asked, cells in TABLE for handle, cell in cells.items()]


def _settings(provider: ScriptedProvider) -> ProviderSettings:
    return provider_settings(provider)


@pytest.fixture
async def model(provider: ScriptedProvider) -> AsyncIterator[ModelRouter]:
    router = ModelRouter(_settings(provider))
    yield router
    await router.aclose()


def _value_at(body: Any, place: str) -> Any:
    for name in place.split("."):
        if isinstance(body, list):
            body = body[int(name)]
        else:
            body = body.get(name, MISSING) if isinstance(body, dict) else MISSING
    return body


@pytest.mark.filterwarnings("ignore:Sampling parameters")
@pytest.mark.parametrize(
    ("handle", "asked", "cell"),
    CELLS,
    ids=[f"{cell[0]}-{number}" for number, cell in enumerate(CELLS)],
)
async def test_a_setting_reaches_the_provider_or_is_reported(
    provider: ScriptedProvider,
    model: ModelRouter,
    handle: str,
    asked: Asked,
    cell: Sent | str | tuple[Sent, str],
) -> None:
    match cell:
        case str():
            sent, warned = None, [cell]
        case ((str() as place, value), str() as named):
            sent, warned = (place, value), [named]
        case (str() as place, value):
            sent, warned = (place, value), []
    question = make_question(handle, tools=(ROLL,), settings=asked)
    checked = ProviderCatalogue(_settings(provider)).with_warnings(question.choice)
    assert [sentence.split(" ")[0] for sentence in checked.ignored] == warned
    await ask_for_answer(model, question)
    assert provider.requests[0].refused is None
    if sent is not None:
        assert _value_at(provider.requests[0].body, sent[0]) == sent[1]


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize(
    ("handle", "place", "inverted"),
    [
        (CHAT, "parallel_tool_calls", False),
        (RESPONSES, "parallel_tool_calls", False),
        (CLAUDE, "tool_choice.disable_parallel_tool_use", True),
        (MISTRAL, "parallel_tool_calls", False),
        (GROQ, "parallel_tool_calls", False),
        (OPENROUTER, "parallel_tool_calls", False),
        # Google has no such parameter; the engine keeps the first call.
    ],
)
async def test_parallel_calls_are_allowed_or_forbidden(
    provider: ScriptedProvider,
    model: ModelRouter,
    handle: str,
    place: str,
    inverted: bool,
    parallel: bool,
) -> None:
    await ask_for_answer(model, make_question(handle, tools=(ROLL,), parallel_tool_calls=parallel))
    assert _value_at(provider.requests[0].body, place) is (parallel is not inverted)


def test_a_reported_setting_names_the_model_and_the_reason() -> None:
    choice = ModelChoice(handle=CLAUDE, context_window=1000, settings=Asked(verbosity="low"))
    checked = ProviderCatalogue(ProviderSettings()).with_warnings(choice)
    assert checked.ignored == (
        "verbosity has no effect on anthropic/claude-haiku-4-5: there is no such setting.",
    )


async def test_a_tools_schema_is_rewritten_only_if_it_must_be_strict(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    for strict in (None, True):
        await ask_for_answer(
            model, make_question(OPENAI, tools=(ROLL,), settings=Asked(strict=strict))
        )
    loose, strict_one = (request.tools[0]["function"] for request in provider.requests)
    assert loose == {"name": "roll_dice", "description": "Roll.", "parameters": ROLL.parameters}
    assert strict_one["strict"] is True
    assert strict_one["parameters"]["additionalProperties"] is False


LOOK = ToolOffer(
    "look",
    "Look.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


@pytest.mark.parametrize(
    ("handle", "place", "required"),
    [
        (CHAT, "tools.0.function.parameters", ["city", "days"]),
        (RESPONSES, "tools.0.parameters", ["city", "days"]),
        (OPENROUTER, "tools.0.function.parameters", ["city", "days"]),
        # They keep optional properties, and allow few unions.
        (CLAUDE, "tools.0.input_schema", ["city"]),
        (BEDROCK, "toolConfig.tools.0.toolSpec.inputSchema.json", ["city"]),
    ],
)
async def test_what_is_optional_may_be_null_where_strict_schemas_require_everything(
    provider: ScriptedProvider, model: ModelRouter, handle: str, place: str, required: list[str]
) -> None:
    question = make_question(handle, tools=(LOOK,), settings=Asked(strict=True))
    await ask_for_answer(model, question)
    sent = _value_at(provider.requests[0].body, place)
    assert sent["required"] == required
    days = sent["properties"]["days"]["type"]
    assert days == (["integer", "null"] if len(required) == 2 else "integer")


async def test_a_schema_that_cannot_be_strict_is_not_sent_as_strict(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    loose = replace(LOOK, allows_strict=False)
    question = make_question(OPENAI, tools=(loose, ROLL), settings=Asked(strict=True))
    await ask_for_answer(model, question)
    sent, strict = (tool["function"] for tool in provider.requests[0].tools)
    assert not sent.get("strict")
    assert sent["parameters"]["required"] == ["city"]
    assert strict["strict"] is True


async def test_older_geminis_give_a_form_without_tools(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    await ask_for_answer(model, make_question(GEMINI, settings=Asked(response_format=JSON_SCHEMA)))
    sent = provider.requests[0].body["generationConfig"]
    assert sent["responseMimeType"] == "application/json"


# prompt caching


def _marks(value: Any) -> int:
    """The number of cache markers."""
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(_marks, value.values()))
    return sum(map(_marks, value)) if isinstance(value, list) else 0


async def test_anthropic_requests_have_cache_markers(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    rows = (HELLO, *call_rows("call_1"))
    await ask_for_answer(model, make_question(CLAUDE, *rows, tools=(ROLL,)))
    body = provider.requests[0].body
    assert "cache_control" in body["system"][-1]
    assert "cache_control" in body["tools"][-1]
    assert "cache_control" in body["messages"][-1]["content"][-1]
    # Anthropic accepts at most four.
    assert _marks(body) == 3


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_marks(one) for name, one in value.items() if name != "cache_control"}
    return [_without_marks(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("handle", [CHAT, RESPONSES, CLAUDE, GEMINI, VLLM])
async def test_what_was_sent_once_is_sent_again_in_the_same_words(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    """Otherwise the provider would find nothing in its cache."""
    rows = [HELLO]
    for turn in range(3):
        rows += call_rows(f"call_{turn}")
        await ask_for_answer(model, make_question(handle, *rows, tools=(ROLL,)))
        rows += [row(Role.ASSISTANT, f"Turn {turn}."), HELLO]
    sent = [_without_marks(request.body) for request in provider.requests]
    for earlier, later in pairwise(sent):
        history = next(name for name in ("messages", "input", "contents") if name in earlier)
        before, after = earlier.pop(history), dict(later)[history]
        assert after[: len(before)] == before
        assert earlier == {name: value for name, value in later.items() if name != history}


# images


_PICTURE = Image("image/png", PNG)
_PICTURED = (
    row(Role.USER, "What is it?", _PICTURE),
    row(Role.ASSISTANT, tool_calls=(ToolCall("call_1", "flip_coin", "{}"),), step_id="step-1"),
    row(
        Role.TOOL,
        tool_returns=(ToolReturn("call_1", "flip_coin", Outcome.FINISHED, (_PICTURE, _PICTURE)),),
    ),
    row(Role.USER, "", Text("Well?")),
)


@pytest.mark.parametrize(
    "handle",
    [
        "openai/gpt-3.5-turbo",
        "openai/gpt-4",
        "openai/gpt-4-0613",
        "openai/o3-mini",
        "deepseek/deepseek-chat",
        "groq/llama-3.3-70b-versatile",
    ],
)
async def test_a_model_without_image_support_gets_a_note_instead_of_an_image(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    await ask_for_answer(model, make_question(handle, *_PICTURED, tools=(ROLL,)))
    request = provider.requests[0]
    assert request.refused is None
    assert PNG not in str(request.body)
    assert "[Image omitted]" in str(request.body)
    assert "[2 images omitted]" in str(request.body)


@pytest.mark.parametrize("handle", [CHAT, RESPONSES, CLAUDE, GEMINI, VLLM, "openai/gpt-4-turbo"])
async def test_a_model_that_can_see_is_shown_the_picture(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    await ask_for_answer(model, make_question(handle, *_PICTURED, tools=(ROLL,)))
    assert PNG in str(provider.requests[0].body)


@pytest.mark.parametrize(
    ("name", "seeing"),
    [
        ("gpt-4o", True),
        ("gpt-4.1-mini", True),
        ("gpt-4-turbo-2024-04-09", True),
        ("gpt-4-1106-preview", False),
        ("o3", True),
        ("o1-mini", False),
        ("openai/gpt-oss-120b", False),
        ("deepseek/deepseek-r1", False),
        ("meta-llama/Llama-3.3-70B-Instruct-Turbo", False),
        ("meta-llama/llama-4-scout-17b-16e-instruct", True),
        ("llama3.2", False),
        ("llama3.2-vision:11b", True),
        ("llama-3.2-90b-vision-preview", True),
        ("us.meta.llama3-3-70b-instruct-v1:0", False),
        ("anthropic.claude-instant-v1", False),
        ("claude-opus-4-5", True),
        ("us.amazon.nova-micro-v1:0", False),
        ("us.amazon.nova-pro-v1:0", True),
        ("qwen2.5:7b", False),
        ("qwen2.5vl:7b", True),
        ("qwen/qwen3-32b", False),
        ("Qwen/Qwen3-VL-235B-A22B-Instruct", True),
        ("qwen3.5-plus", True),
        ("mixtral-8x7b-32768", False),
        ("mistral-large-latest", True),
        ("gemma2:9b", False),
        ("gemma3:4b", True),
        ("gemma-27b-vision", True),
        ("gemini-2.5-flash", True),
        ("grok-3-mini", False),
        ("grok-4", True),
        ("phi4", False),
        ("phi-4-multimodal-instruct", True),
        ("something-of-my-own", True),
    ],
)
def test_which_models_see_is_known_by_their_names(name: str, seeing: bool) -> None:
    assert supports_images(name, None) is seeing


async def test_image_support_that_a_server_reports_is_used(provider: ScriptedProvider) -> None:
    account = _settings(provider).accounts["ollama"]
    listed = ModelList(
        models=(
            ListedModel("text-only", 4096, supports_images=False),
            ListedModel("qwq", 4096, supports_images=True),
        )
    )

    class FixedDiscovery(ModelDiscovery):
        listed: ModelList | None = None

        def last_list(self, key: str) -> ModelList | None:
            return self.listed if key == account.cache_key else None

        async def refresh(self, accounts: Iterable[Account]) -> None:
            assert [*accounts] == [account]
            self.listed = listed

    router = ModelRouter(_settings(provider), discovery=FixedDiscovery())
    try:
        await ask_for_answer(router, make_question("ollama/text-only", *_PICTURED, tools=(ROLL,)))
        await ask_for_answer(router, make_question("ollama/qwq", *_PICTURED, tools=(ROLL,)))
    finally:
        await router.aclose()
    assert [PNG in str(request.body) for request in provider.requests] == [False, True]
