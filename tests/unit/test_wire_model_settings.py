"""The model in requests, and how the stored choice is returned (wire-v1 §3.11)."""

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.core.models import ModelChoice, ModelInfo, ModelSettings
from holdfast.core.providers import Provider
from holdfast.errors import InvalidArgument, UnknownModel
from holdfast.http.letta_v1.from_wire.model_settings import requested_model
from holdfast.http.letta_v1.schemas.agents import AgentCreate, AgentUpdate
from holdfast.http.letta_v1.to_wire.model_settings import (
    embedding_config,
    llm_config,
    model_settings,
)
from holdfast.ports.model import Catalogue
from holdfast.usecases import model_choice


class OpenModels:
    """A catalogue with every model of two providers, and the operator's default model."""

    def __init__(self, default: str | None = None) -> None:
        self._default = default

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def list_embeddings(self) -> list[Any]:
        return []

    async def prepare(self, handle: str, *, settings: bool = False) -> None: ...

    def check(self, choice: ModelChoice) -> None: ...

    def with_warnings(self, choice: ModelChoice) -> ModelChoice:
        return choice

    async def find_embedding(self, handle: str) -> None:
        del handle

    def find(self, handle: str, *, must_be_listed: bool = False) -> ModelInfo:
        del must_be_listed
        provider, _, name = handle.partition("/")
        if not name:
            raise InvalidArgument("The model handle should be in the format provider/model-name")
        if provider not in {"openai", "anthropic"}:
            raise UnknownModel(f"Handle {handle} not found, must be one of []")
        return ModelInfo(
            handle=handle,
            provider=provider,
            name=name,
            context_window=200_000,
            display_name=name,
        )

    def with_user_provider(self, provider: Provider) -> Catalogue:
        raise AssertionError(provider)

    async def verify(self, provider: Provider) -> None:
        raise AssertionError(provider)

    def default_embedding(self) -> str | None:
        return None

    def summary_handle(self, handle: str) -> str:
        return handle

    def is_reserved(self, name: str) -> bool:
        return name in {"anthropic", "openai"}

    def default_handle(self) -> str | None:
        return self._default


def choose_model(**body: object) -> ModelChoice:
    request = requested_model(AgentCreate.model_validate(body))
    return model_choice.choose(OpenModels("openai/gpt-4o-mini"), request)


def change_model(choice: ModelChoice, **body: object) -> ModelChoice:
    request = requested_model(AgentUpdate.model_validate(body))
    return model_choice.change(OpenModels(), choice, request)


OLD_CONFIG = {
    "model": "gpt-4.1",
    "model_endpoint_type": "openai",
    "model_endpoint": "https://elsewhere.invalid/v1",
    "context_window": 32_000,
    "temperature": 0.2,
    "max_tokens": 500,
    "parallel_tool_calls": True,
    "tier": "free",
}


def test_a_bare_handle_shows_the_settings_that_v1_showed() -> None:
    assert model_settings(choose_model(model="openai/gpt-4o-mini")) == {
        "max_output_tokens": 16384,
        "parallel_tool_calls": True,
        "strict": False,
        "provider_type": "openai",
        "temperature": 1.0,
        "reasoning": {"reasoning_effort": "minimal"},
        "response_format": None,
    }


def test_the_operators_default_model_is_taken_when_none_is_named() -> None:
    assert choose_model().handle == "openai/gpt-4o-mini"


def test_no_model_and_no_default_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="Must specify either model or llm_config"):
        model_choice.choose(OpenModels(), requested_model(AgentCreate.model_validate({})))


def test_the_window_is_the_models_own_up_to_our_limit() -> None:
    assert choose_model(model="openai/gpt-4.1").context_window == 128_000


def test_a_window_that_is_asked_for_is_used_as_it_is() -> None:
    assert (
        choose_model(model="openai/gpt-4.1", context_window_limit=500_000).context_window == 500_000
    )


def test_settings_that_were_sent_come_back_and_take_effect() -> None:
    choice = choose_model(
        model="anthropic/claude",
        model_settings={
            "provider_type": "anthropic",
            "temperature": 0.5,
            "max_output_tokens": 2000,
            "thinking": {"type": "enabled", "budget_tokens": 1500},
            "effort": "low",
            "parallel_tool_calls": False,
        },
    )
    assert choice.settings == ModelSettings(
        max_output_tokens=2000,
        temperature=0.5,
        parallel_tool_calls=False,
        reasoning_effort="low",
        thinking=True,
        thinking_budget=1500,
    )
    shown = model_settings(choice)
    assert shown["thinking"] == {"type": "enabled", "budget_tokens": 1500}
    assert shown["effort"] == "low"
    assert shown["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    "settings",
    [
        {"something_new": [1]},
        {"reasoning": {"effort": "high"}},
        {"thinking": {"type": "enabled", "tokens": 7}},
        {"thinking_config": {"budget": 7}},
        {"temperature": -1},
        {"temperature": 2.5},
        {"frequency_penalty": 3},
        {"verbosity": "loud"},
        {"response_format": {"type": "yaml"}},
        {"response_format": {"type": "json_schema"}},
    ],
)
def test_a_setting_that_nobody_knows_is_refused_by_its_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        AgentCreate.model_validate({"model_settings": settings})
    (name,) = settings
    assert name in str(raised.value)


def test_fields_of_an_old_configuration_that_only_v1_has_are_reported() -> None:
    choice = choose_model(
        llm_config=OLD_CONFIG | {"return_logprobs": True, "flux": 3, "tier": "free"}
    )
    assert choice.ignored == (
        "llm_config.return_logprobs has no effect here: it was for a server of V1's own.",
        "llm_config.flux is not known here and has no effect.",
    )


def test_settings_for_unsupported_servers_are_reported() -> None:
    settings = {"tool_call_parser": "hermes", "thinking": {"clear_thinking": True}}
    choice = choose_model(model="openai/gpt-4o", model_settings=settings)
    assert [told.split(" ")[0] for told in choice.ignored] == [
        "model_settings.tool_call_parser",
        "model_settings.thinking.clear_thinking",
    ]


def test_thinking_can_be_switched_off() -> None:
    choice = choose_model(
        model="anthropic/claude",
        model_settings={"provider_type": "anthropic", "thinking": {"type": "disabled"}},
    )
    assert choice.settings.thinking is False
    assert llm_config(choice).enable_reasoner is False


@pytest.mark.parametrize(
    ("sent", "thinking", "budget"),
    [
        ({"thinking": {"budget_tokens": 3000}}, True, 3000),
        ({"thinking_config": {"thinking_budget": 3000}}, True, 3000),
        # Google's value for no thinking.
        ({"thinking_config": {"thinking_budget": 0}}, False, 0),
        ({"thinking": {"type": "disabled", "budget_tokens": 1024}}, False, 1024),
        ({"thinking": {}}, None, None),
    ],
)
def test_a_budget_for_thoughts_without_a_word_more_means_to_think(
    sent: dict[str, Any], thinking: bool | None, budget: int | None
) -> None:
    settings = choose_model(model="anthropic/claude", model_settings=sent).settings
    assert (settings.thinking, settings.thinking_budget) == (thinking, budget)


def test_an_output_limit_applies_only_if_it_was_sent() -> None:
    choice = choose_model(model_settings={"provider_type": "openai", "temperature": 0})
    assert choice.settings.max_output_tokens is None
    assert llm_config(choice).max_tokens is None


def test_whoever_sends_settings_gets_parallel_calls_by_default() -> None:
    assert (
        choose_model(model_settings={"provider_type": "openai"}).settings.parallel_tool_calls
        is True
    )
    assert choose_model().settings.parallel_tool_calls is None


def test_the_old_full_configuration_wins_over_the_handle() -> None:
    choice = choose_model(model="anthropic/claude", llm_config=OLD_CONFIG)
    assert choice.handle == "openai/gpt-4.1"
    assert choice.context_window == 32_000
    assert choice.settings == ModelSettings(
        max_output_tokens=500, temperature=0.2, parallel_tool_calls=True
    )


def test_the_old_full_configuration_comes_back() -> None:
    shown = llm_config(choose_model(llm_config=OLD_CONFIG))
    assert shown.handle == "openai/gpt-4.1"
    assert shown.tier == "free"
    assert shown.max_tokens == 500
    assert shown.context_window == 32_000


def test_the_old_full_configuration_is_taken_before_its_provider_is_configured() -> None:
    choice = choose_model(llm_config=OLD_CONFIG | {"model_endpoint_type": "groq"})
    assert (choice.provider, choice.context_window) == ("groq", 32_000)


@pytest.mark.parametrize(
    ("sent", "settings"),
    [
        ({"parallel_tool_calls": True}, ModelSettings(parallel_tool_calls=True)),
        ({"max_tokens": 77}, ModelSettings(max_output_tokens=77)),
        (
            {"response_format": {"type": "json_object"}},
            ModelSettings(response_format={"type": "json_object"}),
        ),
        ({"reasoning": True}, ModelSettings(thinking=True)),
        ({"enable_reasoner": True}, ModelSettings()),
        ({"enable_reasoner": False}, ModelSettings(thinking=False)),
        ({"max_reasoning_tokens": 900}, ModelSettings(thinking=True, thinking_budget=900)),
    ],
)
def test_the_old_knobs_still_work(sent: dict[str, object], settings: ModelSettings) -> None:
    assert choose_model(**sent).settings == settings


def test_settings_win_over_the_old_knobs() -> None:
    choice = choose_model(
        max_tokens=10, model_settings={"provider_type": "openai", "max_output_tokens": 20}
    )
    assert choice.settings.max_output_tokens == 20


def test_a_knob_changes_one_setting_and_keeps_the_others() -> None:
    before = choose_model(model_settings={"provider_type": "openai", "temperature": 0.1})
    after = change_model(before, parallel_tool_calls=False)
    assert after.settings.temperature == 0.1
    assert model_settings(after)["parallel_tool_calls"] is False
    assert llm_config(after).parallel_tool_calls is False


def test_new_settings_replace_the_old_ones() -> None:
    before = choose_model(model_settings={"provider_type": "openai", "temperature": 0.1})
    after = change_model(before, model_settings={"provider_type": "openai", "max_output_tokens": 5})
    assert after.settings.temperature is None
    assert after.settings.max_output_tokens == 5


def test_another_model_starts_afresh() -> None:
    before = choose_model(
        model="openai/o3",
        model_settings={"provider_type": "openai", "reasoning": {"reasoning_effort": "high"}},
        context_window_limit=9_000,
    )
    after = change_model(before, model="openai/gpt-4o-mini")
    assert after == ModelChoice(handle="openai/gpt-4o-mini", context_window=128_000)


def test_naming_the_same_model_again_changes_nothing() -> None:
    before = choose_model(model="openai/o3", max_tokens=5, context_window_limit=9_000)
    assert change_model(before, model="openai/o3") == before


def test_saying_nothing_changes_nothing() -> None:
    before = choose_model(model="openai/o3", max_tokens=5)
    assert change_model(before, name="other") is before


def test_only_an_explicit_null_lifts_the_output_limit() -> None:
    before = choose_model(model_settings={"provider_type": "openai", "max_output_tokens": 50})
    assert change_model(before, parallel_tool_calls=True).settings.max_output_tokens == 50
    after = change_model(before, max_tokens=None)
    assert after.settings.max_output_tokens is None
    assert model_settings(after)["max_output_tokens"] == 16384


def test_google_settings_have_their_own_names() -> None:
    choice = ModelChoice(
        handle="google_ai/gemini",
        context_window=1,
        settings=ModelSettings(
            thinking=True, thinking_budget=7, response_format={"type": "json_object"}
        ),
    )
    shown = model_settings(choice)
    assert shown["thinking_config"] == {"include_thoughts": True, "thinking_budget": 7}
    assert shown["response_schema"] == {"type": "json_object"}
    assert "response_format" not in shown


def test_an_embedding_handle_becomes_a_configuration_without_any_provider() -> None:
    config = embedding_config("openai/text-embedding-3-large", None)
    assert config is not None
    assert (config.embedding_model, config.embedding_dim) == ("text-embedding-3-large", 3072)
    assert embedding_config(None, None) is None


def test_an_embedding_configuration_comes_back_as_it_was_sent() -> None:
    given = {
        "embedding_model": "own",
        "embedding_endpoint_type": "vllm",
        "embedding_dim": 12,
        "unknown": 1,
    }
    config = embedding_config("vllm/own", given)
    assert config is not None
    assert (config.embedding_endpoint_type, config.embedding_dim) == ("vllm", 12)


def test_a_null_in_an_old_config_leaves_the_default() -> None:
    nulls = {"return_logprobs": None, "put_inner_thoughts_in_kwargs": None, "tier": None}
    shown = llm_config(choose_model(llm_config=OLD_CONFIG | nulls))
    assert (shown.return_logprobs, shown.put_inner_thoughts_in_kwargs) == (False, False)
