"""The providers that a handle can name, one row each. No other module tells one provider from another.

A provider that speaks OpenAI's chat completions is one call of ``_compatible``.
"""

from typing import Any, Final

from holdfast.adapters.models.providers.row import API_KEY, BASE_URL, Listing, ProviderRow, Variable

_WIRES = "holdfast.adapters.models.pydantic_ai.wires"

# The name of a wire: its module and class.
WIRES: Final[dict[str, tuple[str, str]]] = {
    "chat": (f"{_WIRES}.openai_chat", "OpenAiChatWire"),
    "responses": (f"{_WIRES}.openai_responses", "OpenAiResponsesWire"),
    "messages": (f"{_WIRES}.anthropic_messages", "AnthropicMessagesWire"),
    "content": (f"{_WIRES}.google_content", "GoogleContentWire"),
    "converse": (f"{_WIRES}.bedrock_converse", "BedrockConverseWire"),
    "mistral_chat": (f"{_WIRES}.mistral_chat", "MistralChatWire"),
    "routed_chat": (f"{_WIRES}.openrouter_chat", "OpenRouterWire"),
}

_EMBEDDING_WIRES = "holdfast.adapters.embedder.wires"

# The same for the wires over which vectors are made.
EMBEDDING_WIRES: Final[dict[str, tuple[str, str]]] = {
    "embeddings": (f"{_EMBEDDING_WIRES}.openai_embeddings", "OpenAiEmbeddingsWire"),
    "embed_content": (f"{_EMBEDDING_WIRES}.google_embed_content", "GoogleEmbedContentWire"),
    "invoke_model": (f"{_EMBEDDING_WIRES}.bedrock_invoke_model", "BedrockInvokeModelWire"),
}

_GOOGLE_PROFILE = "pydantic_ai.profiles.google:google_model_profile"


def _key(provider: str, *environment: str, extra: str | None = None, note: str = "") -> Variable:
    needs = f", which need `pip install 'holdfast[{extra}]'`" if extra else ""
    return Variable(
        name=API_KEY,
        environment=environment,
        description=f"The key for `{provider}/…` models{needs}{note}.",
        is_secret=True,
    )


def _base_url(api: str, variable: str, default: str) -> Variable:
    return Variable(
        name=BASE_URL,
        environment=(variable,),
        description=f"Another server that speaks {api}.",
        default_text=default,
    )


def _key_and_address(
    name: str, company: str, *, prefix: str | None = None, extra: str | None = None
) -> tuple[Variable, ...]:
    """The two variables that most providers have: ``X_API_KEY`` and ``X_BASE_URL``."""
    prefix = prefix or name.upper()
    return (
        _key(name, f"{prefix}_API_KEY", extra=extra),
        _base_url(f"{company}'s API", f"{prefix}_BASE_URL", f"{company}'s own"),
    )


def _compatible(name: str, company: str, address: str, **more: Any) -> ProviderRow:
    """A provider that speaks OpenAI's chat completions, with ``NAME_API_KEY`` and ``NAME_BASE_URL``."""
    return ProviderRow(
        name=name,
        wires=("chat",),
        embedding_wire="embeddings",
        variables=_key_and_address(name, company),
        address=address,
        sends_any_effort=True,
        **more,
    )


def _own_server(name: str, prefix: str, *more_urls: str, **more: Any) -> ProviderRow:
    """A server of the operator that speaks OpenAI's chat completions."""
    return ProviderRow(
        name=name,
        wires=("chat",),
        embedding_wire="embeddings",
        variables=(
            Variable(
                name=BASE_URL,
                environment=(f"{prefix}_BASE_URL", *more_urls),
                description=f"Your own server for `{name}/…` models.",
            ),
            _key(name, f"{prefix}_API_KEY", note=", if its server asks for one"),
        ),
        required=((BASE_URL,),),
        is_own_server=True,
        sends_any_effort=True,
        resends_thinking=True,
        **more,
    )


_ROWS: Final = (
    ProviderRow(
        name="openai",
        wires=("chat", "responses"),
        embedding_wire="embeddings",
        variables=_key_and_address("openai", "OpenAI"),
        setup="OPENAI_API_KEY (and OPENAI_BASE_URL for a compatible server)",
        address="https://api.openai.com/v1",
        profile="pydantic_ai.profiles.openai:openai_model_profile",
        resends_thinking=True,
        summary_model="gpt-5-mini",
    ),
    ProviderRow(
        name="anthropic",
        wires=("messages",),
        variables=_key_and_address("anthropic", "Anthropic"),
        address="https://api.anthropic.com/v1",
        other_addresses=("https://api.anthropic.com",),
        listing=Listing.ANTHROPIC,
        profile="pydantic_ai.profiles.anthropic:anthropic_model_profile",
        lacks=("verbosity", "frequency_penalty"),
        summary_model="claude-haiku-4-5",
    ),
    ProviderRow(
        name="google_ai",
        wires=("content",),
        embedding_wire="embed_content",
        variables=(
            _key("google_ai", "GEMINI_API_KEY", "GOOGLE_API_KEY", extra="google"),
            _base_url("Google's Gemini API", "GOOGLE_GEMINI_BASE_URL", "Google's own"),
        ),
        address="https://generativelanguage.googleapis.com",
        other_addresses=("https://generativelanguage.googleapis.com/v1beta",),
        listing=Listing.GOOGLE,
        profile=_GOOGLE_PROFILE,
        lacks=("verbosity",),
        summary_model="gemini-2.5-flash",
        price_name="google",
        telemetry_name="gcp.gemini",
        package="google.genai",
        extra="google",
    ),
    ProviderRow(
        name="google_vertex",
        wires=("content",),
        embedding_wire="embed_content",
        variables=(
            Variable(
                name="project",
                environment=("GOOGLE_CLOUD_PROJECT",),
                description="The project for `google_vertex/…` models, which need `pip install 'holdfast[google]'` and Google's application default credentials.",
            ),
            Variable(
                name="location",
                environment=("GOOGLE_CLOUD_LOCATION",),
                description="The region for `google_vertex/…` models.",
                default="us-central1",
            ),
            _base_url("the Vertex AI API", "GOOGLE_VERTEX_BASE_URL", "the region's own"),
        ),
        required=(("project",),),
        setup="GOOGLE_CLOUD_PROJECT (and sign in with application default credentials)",
        keyless_on_loopback=False,
        signs_requests=True,
        has_regional_address=True,
        listing=Listing.NONE,
        profile=_GOOGLE_PROFILE,
        lacks=("verbosity",),
        price_name="google",
        user_key_refusal="google_vertex signs in with the server's own credentials, so it takes no key of a user. Use google_ai.",
        package="google.genai",
        extra="google",
    ),
    ProviderRow(
        name="azure",
        wires=("chat", "responses"),
        embedding_wire="embeddings",
        variables=(
            _key("azure", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
            Variable(
                name=BASE_URL,
                environment=("AZURE_OPENAI_ENDPOINT", "AZURE_BASE_URL"),
                description="The Azure OpenAI resource for `azure/…` models, whose names are those of its deployments.",
            ),
            Variable(
                name="api_version",
                environment=("AZURE_API_VERSION", "OPENAI_API_VERSION"),
                description="A dated version of Azure's API, for resources without the v1 API.",
                default_text="the v1 API",
            ),
        ),
        required=((API_KEY, BASE_URL),),
        setup="AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT",
        keyless_on_loopback=False,
        listing=Listing.NONE,
        profile="pydantic_ai.providers.azure:AzureProvider.model_profile",
        sends_any_effort=True,
    ),
    ProviderRow(
        name="bedrock",
        wires=("converse",),
        embedding_wire="invoke_model",
        variables=(
            _key("bedrock", "AWS_BEARER_TOKEN_BEDROCK", extra="bedrock"),
            Variable(
                name="access_key",
                environment=("AWS_ACCESS_KEY_ID",),
                description="The access key for `bedrock/…` models, instead of a Bedrock API key.",
                is_secret=True,
            ),
            Variable(
                name="secret_key",
                environment=("AWS_SECRET_ACCESS_KEY",),
                description="The secret of that access key.",
                is_secret=True,
            ),
            Variable(
                name="session_token",
                environment=("AWS_SESSION_TOKEN",),
                description="The session token of that access key, if it is a temporary one.",
                is_secret=True,
            ),
            Variable(
                name="region",
                environment=("AWS_REGION", "AWS_DEFAULT_REGION"),
                description="The region for `bedrock/…` models.",
            ),
            _base_url(
                "Bedrock's runtime API", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "the region's own"
            ),
        ),
        required=(("region", API_KEY), ("region", "access_key", "secret_key")),
        setup="AWS_REGION and AWS_BEARER_TOKEN_BEDROCK (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
        keyless_on_loopback=False,
        signs_requests=True,
        has_regional_address=True,
        listing=Listing.NONE,
        profile="pydantic_ai.providers.bedrock:BedrockProvider.model_profile",
        lacks=("verbosity", "frequency_penalty"),
        price_name="aws",
        key_pair=("access_key", "secret_key"),
        package="boto3",
        extra="bedrock",
    ),
    _compatible(
        "groq",
        "Groq",
        "https://api.groq.com/openai/v1",
        profile="holdfast.adapters.models.providers.profiles:groq_profile",
    ),
    ProviderRow(
        name="mistral",
        wires=("mistral_chat",),
        embedding_wire="embeddings",
        variables=_key_and_address("mistral", "Mistral", extra="mistral"),
        address="https://api.mistral.ai/v1",
        other_addresses=("https://api.mistral.ai",),
        listing=Listing.OPENAI_UNDER_V1,
        lists_image_support=True,
        profile="pydantic_ai.providers.mistral:MistralProvider.model_profile",
        lacks=("strict", "verbosity", "thinking_budget", "response_format"),
        package="mistralai",
        extra="mistral",
    ),
    ProviderRow(
        name="openrouter",
        wires=("routed_chat",),
        embedding_wire="embeddings",
        variables=_key_and_address("openrouter", "OpenRouter"),
        address="https://openrouter.ai/api/v1",
        lists_image_support=True,
        profile="pydantic_ai.providers.openrouter:OpenRouterProvider.model_profile",
        sends_any_effort=True,
    ),
    _compatible(
        "xai",
        "xAI",
        "https://api.x.ai/v1",
        profile="holdfast.adapters.models.providers.profiles:xai_profile",
        price_name="x-ai",
    ),
    _compatible(
        "deepseek",
        "DeepSeek",
        "https://api.deepseek.com/v1",
        other_addresses=("https://api.deepseek.com",),
        profile="pydantic_ai.providers.deepseek:DeepSeekProvider.model_profile",
        has_old_token_limit=True,
        resends_thinking=True,
    ),
    _compatible(
        "together",
        "Together",
        "https://api.together.xyz/v1",
        other_addresses=("https://api.together.xyz", "https://api.together.ai/v1"),
        profile="pydantic_ai.providers.together:TogetherProvider.model_profile",
        has_old_token_limit=True,
    ),
    _own_server(
        "ollama",
        "OLLAMA",
        listing=Listing.OLLAMA,
        lists_image_support=True,
        profile="pydantic_ai.providers.ollama:OllamaProvider.model_profile",
        has_old_token_limit=True,
    ),
    _own_server(
        "lmstudio_openai",
        "LMSTUDIO",
        listing=Listing.LM_STUDIO,
        lists_image_support=True,
        has_old_token_limit=True,
    ),
    _own_server(
        "vllm",
        "VLLM",
        "VLLM_API_BASE",
        profile="pydantic_ai.providers.vllm:VLLMProvider.model_profile",
    ),
    ProviderRow(
        name="openai-proxy",
        wires=("chat",),
        embedding_wire="embeddings",
        variables_of="openai",
        required=((API_KEY, BASE_URL),),
        setup="OPENAI_BASE_URL (and OPENAI_API_KEY if the server asks for one)",
        sends_any_effort=True,
        resends_thinking=True,
    ),
)

PROVIDERS: Final[dict[str, ProviderRow]] = {row.name: row for row in _ROWS}

# What a newcomer is told to set, and what a handle looks like.
SUGGESTED_VARIABLES: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
EXAMPLE_HANDLE: Final = "openai/gpt-4o-mini"
EXAMPLE_EMBEDDING_HANDLE: Final = "openai/text-embedding-3-small"
