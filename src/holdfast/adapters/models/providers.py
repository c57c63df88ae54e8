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

_WIRES = "holdfast.adapters.models.wires"

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
class Provider:
    name: str
    # The last is for models that think, if there are two.
    speaks: tuple[str, ...]
    # What the operator must set, as it is told.
    opened_by: str
    # Its public address; requests that name it mean the provider as it is configured.
    address: str | None = None
    # Whether the model's plain thoughts go back to it. Others refuse the field, or have no use for it; what is
    # signed goes back in any case.
    returns_thoughts: bool = False
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
    def hint(self) -> str:
        """How an operator gets this provider's models."""
        if not self.is_installed:
            return f"For {self.name}/… models Holdfast needs an extra: pip install 'holdfast[{self.extra}]'."
        return f"Set {self.opened_by} to use {self.name}/… models."


def _chat(
    name: str, opened_by: str, address: str | None = None, *, returns_thoughts: bool = False
) -> Provider:
    return Provider(
        name=name,
        speaks=("chat",),
        opened_by=opened_by,
        address=address,
        returns_thoughts=returns_thoughts,
    )


_ROWS = (
    Provider(
        name=OPENAI,
        speaks=("chat", "responses"),
        opened_by="OPENAI_API_KEY (and OPENAI_BASE_URL for a compatible server)",
        address="https://api.openai.com/v1",
        returns_thoughts=True,
    ),
    Provider(
        name=ANTHROPIC,
        speaks=("messages",),
        opened_by="ANTHROPIC_API_KEY",
        address="https://api.anthropic.com/v1",
    ),
    Provider(
        name=GOOGLE,
        speaks=("content",),
        opened_by="GEMINI_API_KEY",
        address="https://generativelanguage.googleapis.com",
        package="google.genai",
        extra="google",
    ),
    Provider(
        name=VERTEX,
        speaks=("content",),
        opened_by="GOOGLE_CLOUD_PROJECT (and sign in with application default credentials)",
        package="google.genai",
        extra="google",
    ),
    Provider(
        name=AZURE,
        speaks=("chat", "responses"),
        opened_by="AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT",
    ),
    Provider(
        name=BEDROCK,
        speaks=("converse",),
        opened_by="AWS_REGION and AWS_BEARER_TOKEN_BEDROCK (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
        package="boto3",
        extra="bedrock",
    ),
    _chat(GROQ, "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
    Provider(
        name=MISTRAL,
        speaks=("mistral",),
        opened_by="MISTRAL_API_KEY",
        address="https://api.mistral.ai/v1",
        package="mistralai",
        extra="mistral",
    ),
    Provider(
        name=OPENROUTER,
        speaks=("openrouter",),
        opened_by="OPENROUTER_API_KEY",
        address="https://openrouter.ai/api/v1",
    ),
    _chat(XAI, "XAI_API_KEY", "https://api.x.ai/v1"),
    _chat(DEEPSEEK, "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1", returns_thoughts=True),
    _chat(TOGETHER, "TOGETHER_API_KEY", "https://api.together.xyz/v1"),
    _chat(OLLAMA, "OLLAMA_BASE_URL", returns_thoughts=True),
    _chat(LMSTUDIO, "LMSTUDIO_BASE_URL", returns_thoughts=True),
    _chat(VLLM, "VLLM_BASE_URL", returns_thoughts=True),
    _chat(
        OPENAI_PROXY,
        "OPENAI_BASE_URL (and OPENAI_API_KEY if the server asks for one)",
        returns_thoughts=True,
    ),
)

PROVIDERS: Final[dict[str, Provider]] = {row.name: row for row in _ROWS}

# Other spellings of a provider's public address, as old configurations name it.
PUBLIC_ADDRESSES: Final[dict[str, tuple[str, ...]]] = {
    ANTHROPIC: ("https://api.anthropic.com",),
    GOOGLE: ("https://generativelanguage.googleapis.com/v1beta",),
    MISTRAL: ("https://api.mistral.ai",),
    DEEPSEEK: ("https://api.deepseek.com",),
    TOGETHER: ("https://api.together.xyz", "https://api.together.ai/v1"),
}
