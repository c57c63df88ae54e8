"""Model handles: ``provider/name``."""

from holdfast.adapters.models.providers.known_models import is_reasoning_model
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.core.models import GUIDE_PROVIDER
from holdfast.errors import InvalidArgument, UnknownModel

# Model names can be paths of files, but a handle is stored, shown and repeated in refusals: it has a limit.
MAX_HANDLE_CHARS = 500

_NO_SUCH_PROVIDER = f"The providers are {', '.join(PROVIDERS)} and {GUIDE_PROVIDER}."


def split_handle(handle: str) -> tuple[str, str]:
    """Provider and name of a handle; InvalidArgument if one is missing or it is far too long."""
    if len(handle) > MAX_HANDLE_CHARS:
        raise InvalidArgument(f"A model handle has at most {MAX_HANDLE_CHARS} characters")
    provider, slash, name = handle.partition("/")
    if not (provider and slash and name):
        # The words are part of the contract (wire-v1 §1.11).
        raise InvalidArgument("The model handle should be in the format provider/model-name")
    return provider, name


def wire_name(provider: str, name: str) -> str:
    """The wire for this model: see ``WIRES``. A reasoning model has the provider's last one."""
    wires = PROVIDERS[provider].wires
    return wires[-1] if is_reasoning_model(name) else wires[0]


def unknown_model(handle: str, known: list[str], hint: str | None = None) -> UnknownModel:
    """The refusal of a handle, in V1's words (wire-v1 §1.11), with a hint what to do."""
    row = PROVIDERS.get(handle.partition("/")[0])
    hint = hint or (row.setup_hint if row else _NO_SUCH_PROVIDER)
    return UnknownModel(f"Handle {handle} not found, must be one of [{', '.join(known)}]. {hint}")
