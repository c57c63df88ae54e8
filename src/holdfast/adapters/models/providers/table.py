"""The providers that a handle can name, one row each. Nothing else in the house knows one from another.

A row names modules and imports none: the SDKs are loaded when a handle first needs them.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

OPENAI = "openai"
ANTHROPIC = "anthropic"
GOOGLE = "google_ai"
VERTEX = "google_vertex"
AZURE = "azure"
BEDROCK = "bedrock"
GROQ = "groq"
MISTRAL = "mistral"
OPENROUTER = "openrouter"
XAI = "xai"
DEEPSEEK = "deepseek"
TOGETHER = "together"
OLLAMA = "ollama"
LMSTUDIO = "lmstudio_openai"
VLLM = "vllm"
OPENAI_PROXY = "openai-proxy"

_WIRES = "holdfast.adapters.models.pydantic_ai.wires"

# What is spoken: where its wire is.
WIRES: Final[dict[str, tuple[str, str]]] = {
    "chat": (f"{_WIRES}.openai_chat", "OpenAiChatWire"),
    "responses": (f"{_WIRES}.openai_responses", "OpenAiResponsesWire"),
    "messages": (f"{_WIRES}.anthropic_messages", "AnthropicMessagesWire"),
    "content": (f"{_WIRES}.google_content", "GoogleContentWire"),
    "converse": (f"{_WIRES}.bedrock_converse", "BedrockConverseWire"),
    "mistral": (f"{_WIRES}.mistral_chat", "MistralChatWire"),
    "openrouter": (f"{_WIRES}.openrouter_chat", "OpenRouterWire"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRow:
    name: str
    # The last is for models that think, if there are two.
    wires: tuple[str, ...]
    # What the operator must set, as it is told.
    required_settings: str
    # Its public address; requests that name it mean the provider as it is configured.
    address: str | None = None
    # Whether the model's plain thoughts go back to it. Others refuse the field, or have no use for it; what is
    # signed goes back in any case.
    resends_thinking: bool = False
    # The module of an SDK that the default install has not, and the extra that brings it.
    package: str | None = None
    extra: str | None = None

    @property
    def is_installed(self) -> bool:
        if self.package is None:
            return True
        try:
            return find_spec(self.package) is not None
        except ModuleNotFoundError:
            return False

    @property
    def setup_hint(self) -> str:
        """How an operator gets this provider's models."""
        if not self.is_installed:
            return f"For {self.name}/… models Holdfast needs an extra: pip install 'holdfast[{self.extra}]'."
        return f"Set {self.required_settings} to use {self.name}/… models."


def _chat_provider(
    name: str, required_settings: str, address: str | None = None, *, resends_thinking: bool = False
) -> ProviderRow:
    return ProviderRow(
        name=name,
        wires=("chat",),
        required_settings=required_settings,
        address=address,
        resends_thinking=resends_thinking,
    )


_ROWS = (
    ProviderRow(
        name=OPENAI,
        wires=("chat", "responses"),
        required_settings="OPENAI_API_KEY (and OPENAI_BASE_URL for a compatible server)",
        address="https://api.openai.com/v1",
        resends_thinking=True,
    ),
    ProviderRow(
        name=ANTHROPIC,
        wires=("messages",),
        required_settings="ANTHROPIC_API_KEY",
        address="https://api.anthropic.com/v1",
    ),
    ProviderRow(
        name=GOOGLE,
        wires=("content",),
        required_settings="GEMINI_API_KEY",
        address="https://generativelanguage.googleapis.com",
        package="google.genai",
        extra="google",
    ),
    ProviderRow(
        name=VERTEX,
        wires=("content",),
        required_settings="GOOGLE_CLOUD_PROJECT (and sign in with application default credentials)",
        package="google.genai",
        extra="google",
    ),
    ProviderRow(
        name=AZURE,
        wires=("chat", "responses"),
        required_settings="AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT",
    ),
    ProviderRow(
        name=BEDROCK,
        wires=("converse",),
        required_settings="AWS_REGION and AWS_BEARER_TOKEN_BEDROCK (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
        package="boto3",
        extra="bedrock",
    ),
    _chat_provider(GROQ, "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
    ProviderRow(
        name=MISTRAL,
        wires=("mistral",),
        required_settings="MISTRAL_API_KEY",
        address="https://api.mistral.ai/v1",
        package="mistralai",
        extra="mistral",
    ),
    ProviderRow(
        name=OPENROUTER,
        wires=("openrouter",),
        required_settings="OPENROUTER_API_KEY",
        address="https://openrouter.ai/api/v1",
    ),
    _chat_provider(XAI, "XAI_API_KEY", "https://api.x.ai/v1"),
    _chat_provider(
        DEEPSEEK, "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1", resends_thinking=True
    ),
    _chat_provider(TOGETHER, "TOGETHER_API_KEY", "https://api.together.xyz/v1"),
    _chat_provider(OLLAMA, "OLLAMA_BASE_URL", resends_thinking=True),
    _chat_provider(LMSTUDIO, "LMSTUDIO_BASE_URL", resends_thinking=True),
    _chat_provider(VLLM, "VLLM_BASE_URL", resends_thinking=True),
    _chat_provider(
        OPENAI_PROXY,
        "OPENAI_BASE_URL (and OPENAI_API_KEY if the server asks for one)",
        resends_thinking=True,
    ),
)

PROVIDERS: Final[dict[str, ProviderRow]] = {row.name: row for row in _ROWS}

# Other spellings of a provider's public address, as old configurations name it.
PUBLIC_ADDRESSES: Final[dict[str, tuple[str, ...]]] = {
    ANTHROPIC: ("https://api.anthropic.com",),
    GOOGLE: ("https://generativelanguage.googleapis.com/v1beta",),
    MISTRAL: ("https://api.mistral.ai",),
    DEEPSEEK: ("https://api.deepseek.com",),
    TOGETHER: ("https://api.together.xyz", "https://api.together.ai/v1"),
}
