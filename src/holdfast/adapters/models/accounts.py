"""Which providers are configured, and how each is reached. Reads no environment."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from urllib.parse import urlsplit

from holdfast.adapters.models.handles import split_handle, unknown_model
from holdfast.adapters.models.providers.row import API_KEY, BASE_URL, ProviderRow
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.core.addresses import is_loopback
from holdfast.core.models import GUIDE_PROVIDER, ModelChoice
from holdfast.errors import InvalidArgument

# A server on this machine asks for no key, but the SDKs insist on sending one.
_NO_KEY_NEEDED = "no-key-needed"


@dataclass(frozen=True, slots=True)
class Account:
    """How a provider is reached. ``base_url`` None means the provider's own address."""

    api_key: str = field(repr=False)
    base_url: str | None
    provider: str
    # What some providers need besides: a region, a project, the other half of a key.
    options: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    # The user's provider; empty for the operator's. It tells accounts of the same provider apart.
    owner: str = ""

    @property
    def row(self) -> ProviderRow:
        return PROVIDERS[self.provider]

    @property
    def cache_key(self) -> str:
        """What is known about the provider's models is stored under this name."""
        return self.owner or self.provider

    @property
    def is_loopback(self) -> bool:
        return _is_loopback_url(self.base_url)

    @property
    def is_plain_http(self) -> bool:
        return urlsplit(self.base_url or "").scheme == "http"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not show in an error."""
        secret = {variable.name for variable in self.row.variables if variable.is_secret}
        values = (self.api_key, *(self.options[name] for name in self.options.keys() & secret))
        return tuple(value for value in values if value and value != _NO_KEY_NEEDED)


@dataclass(frozen=True)
class ProviderSettings:
    """What the operator configured about providers. Keys never show in its ``repr``."""

    # The variables that are set, by the provider's name and the variable's name in its row.
    variables: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict, repr=False)
    _: KW_ONLY
    allowed_model_endpoints: tuple[str, ...] = ()
    # Instead of all others: the one account of a user.
    user_account: Account | None = None
    # How long a provider may be silent. Reasoning models are silent for minutes.
    silence_seconds: float = 600.0

    @cached_property
    def accounts(self) -> dict[str, Account]:
        """The configured providers that can be asked over the network."""
        if self.user_account is not None:
            return {self.user_account.provider: self.user_account}
        return {
            name: account for name, account in self.configured.items() if account.row.is_installed
        }

    @cached_property
    def configured(self) -> dict[str, Account]:
        """The providers that the operator configured, also those whose extra is not installed."""
        accounts = {
            row.name: _configured_account(row, self.variables.get(row.variables_of or row.name, {}))
            for row in PROVIDERS.values()
        }
        return {name: account for name, account in accounts.items() if account is not None}

    @property
    def providers(self) -> frozenset[str]:
        return frozenset({GUIDE_PROVIDER, *self.accounts})

    def resolve_endpoint(self, provider: str, address: str | None) -> str | None:
        """The address to use instead of the provider's as it is configured; None if that is meant.

        The provider's key would be sent to the address: InvalidArgument unless the operator allows it.
        """
        named = (address or "").rstrip("/")
        account = self.accounts.get(provider)
        configured = (account and account.base_url) or ""
        row = PROVIDERS.get(provider)
        if row is None or not named:
            return None
        public = (row.address, *row.other_addresses, configured.rstrip("/"))
        if named in public or f"{named}/v1" == configured:
            return None
        if named in {allowed.rstrip("/") for allowed in self.allowed_model_endpoints}:
            return named
        raise InvalidArgument(
            f"model_endpoint {named} is not {provider}'s own. The server's key would be sent there: the "
            "operator must allow it with HOLDFAST_ALLOWED_MODEL_ENDPOINTS"
        )

    def find_account(self, choice: ModelChoice) -> Account:
        """How the chosen model is reached. UnknownModel if its provider is not configured, InvalidArgument if its
        address is not allowed."""
        provider, _ = split_handle(choice.handle)
        account = self.accounts.get(provider)
        endpoint = self.resolve_endpoint(provider, choice.endpoint)
        if account is None and endpoint is not None and PROVIDERS[provider].wires[0] == "chat":
            return Account(_NO_KEY_NEEDED, endpoint, provider)
        if account is None:
            raise unknown_model(choice.handle, sorted(f"{name}/…" for name in self.providers))
        return account if endpoint is None else replace(account, base_url=endpoint)


def _configured_account(row: ProviderRow, variables: Mapping[str, str | None]) -> Account | None:
    """The operator's account of the provider; None if what it requires is not set."""
    given = {name: value for name, value in variables.items() if value and value.strip()}
    base_url = given.get(BASE_URL)
    if not _is_configured(row, given):
        return None
    if base_url and row.is_own_server:
        base_url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1"
    defaults = {variable.name: variable.default for variable in row.variables}
    return Account(
        given.get(API_KEY, "").strip() or ("" if row.signs_requests else _NO_KEY_NEEDED),
        base_url,
        row.name,
        {name: given.get(name, defaults[name]) for name in row.option_names},
    )


def _is_configured(row: ProviderRow, given: Mapping[str, str]) -> bool:
    base_url = given.get(BASE_URL)
    if row.variables_of is not None and not _is_elsewhere(base_url, PROVIDERS[row.variables_of]):
        return False
    if any(given.keys() >= {*group} for group in row.required):
        return True
    return row.keyless_on_loopback and _is_loopback_url(base_url)


def _is_elsewhere(base_url: str | None, row: ProviderRow) -> bool:
    """Whether the address leads to another server than the provider's own."""
    return bool(base_url) and (base_url or "").rstrip("/") != row.address


def _is_loopback_url(base_url: str | None) -> bool:
    return is_loopback(urlsplit(base_url or "").hostname or "")
