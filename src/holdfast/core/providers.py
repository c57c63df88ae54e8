"""User providers: accounts with model providers whose keys a user stored (wire-v1 §2.10)."""

from datetime import datetime

from msgspec import Struct

from holdfast.core.paging import Page

# A user provider's name is the first part of its models' handles.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,49}$"


class Keys(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Secret. ``access_key`` is the other half of a key that has two (AWS)."""

    api_key: str
    access_key: str | None = None

    def __repr__(self) -> str:
        return "Keys(…)"


class Provider(Struct, frozen=True, kw_only=True):
    id: str
    organization_id: str
    name: str
    # The known provider that it is an account of.
    provider_type: str
    keys: Keys
    created_at: datetime
    updated_at: datetime
    base_url: str | None = None
    region: str | None = None
    api_version: str | None = None
    # When its keys last worked.
    last_synced: datetime | None = None


class ProviderQuery(Struct, frozen=True, kw_only=True):
    """Which providers a list shows. Conditions combine with AND; None means any."""

    page: Page
    name: str | None = None
    provider_type: str | None = None
