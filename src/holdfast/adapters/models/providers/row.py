"""One row of the provider table: everything that Holdfast knows about a provider before it speaks to it.

A row names modules and imports none: an SDK is loaded when a handle first needs it.
"""

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import Final

API_KEY: Final = "api_key"
BASE_URL: Final = "base_url"


class Listing(StrEnum):
    """Which API lists a provider's models."""

    # It has none that a key opens: names are those of deployments, regions and contracts.
    NONE = "none"
    OPENAI = "openai"
    # OpenAI's, at an address that may lack its /v1.
    OPENAI_UNDER_V1 = "openai_under_v1"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"
    OLLAMA = "ollama"
    LM_STUDIO = "lm_studio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A setting of a provider, read from the environment."""

    # ``api_key``, ``base_url``, or the name of an option of the account.
    name: str
    # The first one is shown; the others are for operators who have set those already.
    environment: tuple[str, ...]
    description: str
    # What holds if it is not set: a value, or in words if the provider decides.
    default: str | None = None
    default_text: str | None = None
    is_secret: bool = False

    @property
    def is_address(self) -> bool:
        return self.name == BASE_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRow:
    # The first part of its models' handles.
    name: str
    # The names of its wires (see ``WIRES``); the last one is for reasoning models.
    wires: tuple[str, ...]
    # The name of the wire over which it makes vectors (see ``EMBEDDING_WIRES``); None: it makes none.
    embedding_wire: str | None = None
    variables: tuple[Variable, ...] = ()
    # Whose variables it has instead of its own: it is another way to the same server.
    variables_of: str | None = None
    # It is configured if all variables of one of these groups are set.
    required: tuple[tuple[str, ...], ...] = ((API_KEY,),)
    # What the operator must set, for people; else it is the first required variable.
    setup: str | None = None
    # Whether a server on loopback needs no key.
    keyless_on_loopback: bool = True
    # Whether requests are signed with something else than ``api_key``.
    signs_requests: bool = False
    # Whether it is a server that the operator runs, named with or without its /v1.
    is_own_server: bool = False
    # Its public address; requests that name it mean the provider as it is configured.
    address: str | None = None
    # Other spellings of the public address, as old configurations have them.
    other_addresses: tuple[str, ...] = ()
    # Whether its region decides its address.
    has_regional_address: bool = False
    listing: Listing = Listing.OPENAI
    # Whether its list says which models accept images.
    lists_image_support: bool = False
    # pydantic-ai's profile of its models, as "module:attribute".
    profile: str = "pydantic_ai.providers.openai_compatible:OpenAICompatibleProvider.model_profile"
    # Whether it wants ``max_tokens``, the older name of ``max_completion_tokens``.
    has_old_token_limit: bool = False
    # Whether a reasoning effort is sent to every model, since only the server knows which of its models reason.
    sends_any_effort: bool = False
    # Whether plain thinking is sent back to the model. The others refuse the field or ignore it; signed thinking is
    # sent back in any case.
    resends_thinking: bool = False
    # Model settings that it does not have.
    lacks: tuple[str, ...] = ()
    # The quick and cheap model that writes summaries (wire-v1 §7.9); without one the agent's own model does.
    summary_model: str | None = None
    # Its names in genai-prices and in OpenTelemetry's conventions, where they differ from ours.
    price_name: str | None = None
    telemetry_name: str | None = None
    # Why users cannot store a key for it.
    user_key_refusal: str | None = None
    # The options that hold the two halves of a key, for a provider that issues such keys.
    key_pair: tuple[str, str] | None = None
    # The module of an SDK that the default installation lacks, and the extra that installs it.
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
    def can_embed(self) -> bool:
        return self.embedding_wire is not None

    @property
    def has_model_list(self) -> bool:
        return self.listing is not Listing.NONE

    @property
    def option_names(self) -> tuple[str, ...]:
        """The variables that are neither the key nor the address."""
        names = (variable.name for variable in self.variables)
        return tuple(name for name in names if name not in (API_KEY, BASE_URL))

    @property
    def selecting_variables(self) -> tuple[Variable, ...]:
        """Those that only this provider has. Keys and regions of a whole cloud are often set for something else."""
        names = (API_KEY, BASE_URL) if self.is_own_server else (API_KEY,)
        return tuple(variable for variable in self.variables if variable.name in names)

    @property
    def setup_text(self) -> str:
        """What the operator must set."""
        if self.setup is not None:
            return self.setup
        first = self.required[0][0]
        return next(item.environment[0] for item in self.variables if item.name == first)

    @property
    def setup_hint(self) -> str:
        """How an operator gets this provider's models."""
        if not self.is_installed:
            return f"For {self.name}/… models Holdfast needs an extra: pip install 'holdfast[{self.extra}]'."
        return f"Set {self.setup_text} to use {self.name}/… models."
