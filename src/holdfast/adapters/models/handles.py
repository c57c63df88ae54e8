"""Which providers are configured, and what a handle (``provider/name``) means. Reads no environment."""

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from urllib.parse import urlsplit

from holdfast.errors import InvalidArgument, UnknownModel

OPENAI = "openai"
ANTHROPIC = "anthropic"
GOOGLE = "google_ai"
HOLDFAST = "holdfast"
GUIDE_HANDLE = "holdfast/guide"

# Model names can be paths of files, but not books: a handle is stored, shown and repeated in refusals.
MAX_HANDLE_CHARS = 500

# A server on this machine asks for no key, but the SDKs insist on sending one.
_NO_KEY_NEEDED = "no-key-needed"

# OpenAI's models that think: the o-series, and gpt-5 and all that came after it.
_THINKS = re.compile(r"(ft:)?(o\d|gpt-([5-9]|\d\d))(?!.*-chat)")

_HINTS = {
    OPENAI: "Set OPENAI_API_KEY (and OPENAI_BASE_URL for a compatible server) to use openai/… models.",
    ANTHROPIC: "Set ANTHROPIC_API_KEY to use anthropic/… models.",
    GOOGLE: "Set GEMINI_API_KEY to use google_ai/… models.",
}
_NO_SUCH_PROVIDER = "The providers are openai, anthropic, google_ai and holdfast."
_NO_GOOGLE_SDK = "For google_ai/… models Holdfast needs an extra: pip install 'holdfast[google]'."


@dataclass(frozen=True, slots=True)
class Account:
    """How a provider is reached. ``base_url`` None means the provider's own address."""

    api_key: str = field(repr=False)
    base_url: str | None

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.base_url)

    @property
    def is_plain_http(self) -> bool:
        return urlsplit(self.base_url or "").scheme == "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """What the operator said about providers; keys never show in its repr."""

    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None
    google_api_key: str | None = field(default=None, repr=False)
    google_base_url: str | None = None
    # The longest silence of a provider that is borne. Reasoning models are silent for minutes.
    silence_seconds: float = 600.0

    @property
    def accounts(self) -> dict[str, Account]:
        """The configured providers that are asked over the network."""
        known = {
            OPENAI: _account(self.openai_api_key, self.openai_base_url),
            ANTHROPIC: _account(self.anthropic_api_key, self.anthropic_base_url),
            GOOGLE: _account(self.google_api_key, self.google_base_url) if has_google() else None,
        }
        return {name: account for name, account in known.items() if account is not None}

    @property
    def providers(self) -> frozenset[str]:
        return frozenset({HOLDFAST, *self.accounts})


def split(handle: str) -> tuple[str, str]:
    """Provider and name of a handle; InvalidArgument if it has not both or is far too long."""
    if len(handle) > MAX_HANDLE_CHARS:
        raise InvalidArgument(f"A model handle has at most {MAX_HANDLE_CHARS} characters")
    provider, slash, name = handle.partition("/")
    if not (provider and slash and name):
        # The words are part of the contract (wire-v1 §1.11).
        raise InvalidArgument("The model handle should be in the format provider/model-name")
    return provider, name


def thinks(openai_name: str) -> bool:
    """Whether OpenAI's model of this name reasons: then it is asked with responses, which keep its thoughts
    from one call to the next, and else with chat completions, which every compatible server speaks."""
    return _THINKS.match(openai_name) is not None


def has_google() -> bool:
    """Whether Google's SDK is installed; it is an extra."""
    try:
        return find_spec("google.genai") is not None
    except ModuleNotFoundError:
        return False


def unknown(handle: str, known: list[str]) -> UnknownModel:
    """The refusal of a handle, in V1's words (wire-v1 §1.11), with what the operator can do."""
    provider = handle.partition("/")[0]
    hint = _HINTS.get(provider, _NO_SUCH_PROVIDER)
    if provider == GOOGLE and not has_google():
        hint = _NO_GOOGLE_SDK
    listed = ", ".join(known)
    return UnknownModel(f"Handle {handle} not found, must be one of [{listed}]. {hint}")


def _account(api_key: str | None, base_url: str | None) -> Account | None:
    key = (api_key or "").strip()
    if key:
        return Account(key, base_url or None)
    if _is_loopback(base_url):
        return Account(_NO_KEY_NEEDED, base_url)
    return None


def _is_loopback(base_url: str | None) -> bool:
    host = urlsplit(base_url or "").hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
