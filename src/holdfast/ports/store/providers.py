"""User providers: accounts with model providers whose keys users stored."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.providers import Provider, ProviderQuery


class Providers(Protocol):
    """Keys are encrypted at rest."""

    def add(self, provider: Provider) -> None:
        """Store a new provider. AlreadyExists if the organisation has one of that name."""
        ...

    def get(self, organization_id: str, provider_id: str) -> Provider:
        """Return the provider. NotFound: ``Provider with ID <id> not found``."""
        ...

    def find_by_name(self, organization_id: str, name: str) -> Provider | None:
        """Return the provider of that name; None if there is none."""
        ...

    def save(self, provider: Provider) -> None:
        """Replace the provider."""
        ...

    def delete(self, organization_id: str, provider_id: str) -> None:
        """Delete the provider with its keys."""
        ...

    def list(self, organization_id: str, query: ProviderQuery) -> Sequence[Provider]:
        """Return one page of the providers that match."""
        ...
