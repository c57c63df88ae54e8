"""Which providers are configured, and what a handle (``provider/name``) means. Reads no environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from holdfast.adapters.models.providers.table import (
    ANTHROPIC,
    AZURE,
    BEDROCK,
    DEEPSEEK,
    GOOGLE,
    GROQ,
    LMSTUDIO,
    MISTRAL,
    OLLAMA,
    OPENAI,
    OPENAI_PROXY,
    OPENROUTER,
    PROVIDERS,
    PUBLIC_ADDRESSES,
    TOGETHER,
    VERTEX,
    VLLM,
    XAI,
)
from holdfast.core.models import ModelChoice
from holdfast.errors import InvalidArgument, UnknownModel

HOLDFAST = "holdfast"
GUIDE_HANDLE = "holdfast/guide"

# Model names can be paths of files, but not books: a handle is stored, shown and repeated in refusals.
MAX_HANDLE_CHARS = 500

# A server on this machine asks for no key, but the SDKs insist on sending one.
_NO_KEY_NEEDED = "no-key-needed"

_DEFAULT_LOCATION: Final = "us-central1"

# OpenAI's models that think: the o-series, and gpt-5 and all that came after it.
_REASONING_MODEL = re.compile(r"(ft:)?(o\d|gpt-([5-9]|\d\d))(?!.*-chat)")

_NO_SUCH_PROVIDER = f"The providers are {', '.join(PROVIDERS)} and {HOLDFAST}."


@dataclass(frozen=True, slots=True)
class Account:
    """How a provider is reached. ``base_url`` None means the provider's own address."""

    api_key: str = field(repr=False)
    base_url: str | None
    provider: str = OPENAI
    # What some need besides: a region, a project, another half of a key.
    options: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    # Whose it is; empty for the operator's. Accounts of the same provider are told apart by it.
    owner: str = ""

    @property
    def cache_key(self) -> str:
        """What is known of the provider is known under this name."""
        return self.owner or self.provider

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.base_url)

    @property
    def is_plain_http(self) -> bool:
        return urlsplit(self.base_url or "").scheme == "http"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not show in an error."""
        hidden = (self.api_key, self.options.get("secret"), self.options.get("session"))
        return tuple(item for item in hidden if item and item != _NO_KEY_NEEDED)


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """What the operator said about providers; keys never show in its repr."""

    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None
    google_api_key: str | None = field(default=None, repr=False)
    google_base_url: str | None = None
    google_cloud_project: str | None = None
    google_cloud_location: str | None = None
    google_vertex_base_url: str | None = None
    azure_api_key: str | None = field(default=None, repr=False)
    azure_base_url: str | None = None
    azure_api_version: str | None = None
    bedrock_api_key: str | None = field(default=None, repr=False)
    aws_access_key_id: str | None = field(default=None, repr=False)
    aws_secret_access_key: str | None = field(default=None, repr=False)
    aws_session_token: str | None = field(default=None, repr=False)
    aws_region: str | None = None
    bedrock_base_url: str | None = None
    groq_api_key: str | None = field(default=None, repr=False)
    groq_base_url: str | None = None
    mistral_api_key: str | None = field(default=None, repr=False)
    mistral_base_url: str | None = None
    openrouter_api_key: str | None = field(default=None, repr=False)
    openrouter_base_url: str | None = None
    xai_api_key: str | None = field(default=None, repr=False)
    xai_base_url: str | None = None
    deepseek_api_key: str | None = field(default=None, repr=False)
    deepseek_base_url: str | None = None
    together_api_key: str | None = field(default=None, repr=False)
    together_base_url: str | None = None
    ollama_base_url: str | None = None
    ollama_api_key: str | None = field(default=None, repr=False)
    lmstudio_base_url: str | None = None
    lmstudio_api_key: str | None = field(default=None, repr=False)
    vllm_base_url: str | None = None
    vllm_api_key: str | None = field(default=None, repr=False)
    allowed_model_endpoints: tuple[str, ...] = ()
    # Instead of all the others: the one account of a user.
    user_account: Account | None = None
    # The longest silence of a provider that is borne. Reasoning models are silent for minutes.
    silence_seconds: float = 600.0

    @cached_property
    def accounts(self) -> dict[str, Account]:
        """The configured providers that are asked over the network."""
        if self.user_account is not None:
            return {self.user_account.provider: self.user_account}
        return {
            name: account
            for name, account in self.configured.items()
            if PROVIDERS[name].is_installed
        }

    @cached_property
    def configured(self) -> dict[str, Account]:
        """Those that the operator has opened, also if the extra that speaks to them is missing."""
        known = {
            OPENAI: _account_with_key(self.openai_api_key, self.openai_base_url),
            ANTHROPIC: _account_with_key(self.anthropic_api_key, self.anthropic_base_url),
            GOOGLE: _account_with_key(self.google_api_key, self.google_base_url),
            VERTEX: self._vertex_account(),
            AZURE: self._azure_account(),
            BEDROCK: self._bedrock_account(),
            GROQ: _account_with_key(self.groq_api_key, self.groq_base_url),
            MISTRAL: _account_with_key(self.mistral_api_key, self.mistral_base_url),
            OPENROUTER: _account_with_key(self.openrouter_api_key, self.openrouter_base_url),
            XAI: _account_with_key(self.xai_api_key, self.xai_base_url),
            DEEPSEEK: _account_with_key(self.deepseek_api_key, self.deepseek_base_url),
            TOGETHER: _account_with_key(self.together_api_key, self.together_base_url),
            OLLAMA: _account_of_own_server(self.ollama_api_key, self.ollama_base_url),
            LMSTUDIO: _account_of_own_server(self.lmstudio_api_key, self.lmstudio_base_url),
            VLLM: _account_of_own_server(self.vllm_api_key, self.vllm_base_url),
            OPENAI_PROXY: self._proxy_account(),
        }
        return {
            name: replace(account, provider=name)
            for name, account in known.items()
            if account is not None
        }

    @property
    def providers(self) -> frozenset[str]:
        return frozenset({HOLDFAST, *self.accounts})

    def resolve_endpoint(self, provider: str, address: str | None) -> str | None:
        """The address to use instead of the provider's as it is configured; None if that is meant.

        Whoever names an address would be sent the provider's key there: InvalidArgument unless allowed.
        """
        named = (address or "").rstrip("/")
        account = self.accounts.get(provider)
        configured = (account and account.base_url) or ""
        row = PROVIDERS.get(provider)
        public = (row and row.address, *PUBLIC_ADDRESSES.get(provider, ()), configured.rstrip("/"))
        if not named or row is None or named in public or f"{named}/v1" == configured:
            return None
        if named in {allowed.rstrip("/") for allowed in self.allowed_model_endpoints}:
            return named
        raise InvalidArgument(
            f"model_endpoint {named} is not {provider}'s own. The server's key would be sent there: the "
            "operator must allow it with HOLDFAST_ALLOWED_MODEL_ENDPOINTS"
        )

    def find_account(self, choice: ModelChoice) -> Account:
        """How the chosen model is reached. UnknownModel if it cannot be, InvalidArgument if it may not."""
        provider, _ = split_handle(choice.handle)
        account = self.accounts.get(provider)
        endpoint = self.resolve_endpoint(provider, choice.endpoint)
        if account is None and endpoint is not None and PROVIDERS[provider].wires[0] == "chat":
            return Account(_NO_KEY_NEEDED, endpoint, provider)
        if account is None:
            raise unknown_model(choice.handle, sorted(f"{name}/…" for name in self.providers))
        return account if endpoint is None else replace(account, base_url=endpoint)

    def _vertex_account(self) -> Account | None:
        if not self.google_cloud_project:
            return None
        place = {
            "project": self.google_cloud_project,
            "location": self.google_cloud_location or _DEFAULT_LOCATION,
        }
        return Account("", self.google_vertex_base_url, options=place)

    def _azure_account(self) -> Account | None:
        if not (self.azure_api_key and self.azure_base_url):
            return None
        version = {"api_version": self.azure_api_version}
        return Account(self.azure_api_key, self.azure_base_url.rstrip("/"), options=version)

    def _bedrock_account(self) -> Account | None:
        signed = self.aws_access_key_id and self.aws_secret_access_key
        if not self.aws_region or not (self.bedrock_api_key or signed):
            return None
        more = {
            "region": self.aws_region,
            "access": self.aws_access_key_id,
            "secret": self.aws_secret_access_key,
            "session": self.aws_session_token,
        }
        return Account(self.bedrock_api_key or "", self.bedrock_base_url, options=more)

    def _proxy_account(self) -> Account | None:
        """OpenAI's own address is no proxy."""
        url = (self.openai_base_url or "").rstrip("/")
        if not url or url == PROVIDERS[OPENAI].address:
            return None
        return _account_with_key(self.openai_api_key, self.openai_base_url)


def split_handle(handle: str) -> tuple[str, str]:
    """Provider and name of a handle; InvalidArgument if it has not both or is far too long."""
    if len(handle) > MAX_HANDLE_CHARS:
        raise InvalidArgument(f"A model handle has at most {MAX_HANDLE_CHARS} characters")
    provider, slash, name = handle.partition("/")
    if not (provider and slash and name):
        # The words are part of the contract (wire-v1 §1.11).
        raise InvalidArgument("The model handle should be in the format provider/model-name")
    return provider, name


def is_reasoning_model(openai_name: str) -> bool:
    """Whether OpenAI's model of this name reasons: then it is asked with responses, which keep its thoughts
    from one call to the next, and else with chat completions, which every compatible server speaks."""
    return _REASONING_MODEL.match(openai_name) is not None


def wire_name(provider: str, name: str) -> str:
    """What the model is asked in: see ``WIRES``."""
    speaks = PROVIDERS[provider].wires
    return speaks[-1] if is_reasoning_model(name) else speaks[0]


def unknown_model(handle: str, known: list[str]) -> UnknownModel:
    """The refusal of a handle, in V1's words (wire-v1 §1.11), with what the operator can do."""
    row = PROVIDERS.get(handle.partition("/")[0])
    hint = row.setup_hint if row else _NO_SUCH_PROVIDER
    listed = ", ".join(known)
    return UnknownModel(f"Handle {handle} not found, must be one of [{listed}]. {hint}")


def _account_with_key(api_key: str | None, base_url: str | None) -> Account | None:
    key = (api_key or "").strip()
    if key:
        return Account(key, base_url or None)
    if _is_loopback(base_url):
        return Account(_NO_KEY_NEEDED, base_url)
    return None


def _account_of_own_server(api_key: str | None, base_url: str | None) -> Account | None:
    """A server of the operator's own, named with or without the path of its API."""
    if not base_url:
        return None
    root = base_url.rstrip("/").removesuffix("/v1")
    return Account((api_key or "").strip() or _NO_KEY_NEEDED, f"{root}/v1")


def _is_loopback(base_url: str | None) -> bool:
    host = urlsplit(base_url or "").hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
