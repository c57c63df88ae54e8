"""User providers: providers whose key a user stored (wire-v1 §2.10)."""

from datetime import datetime
from typing import Annotated

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

Key = Annotated[str, Field(min_length=1, max_length=10_000)]
ShortText = Annotated[str, Field(max_length=1_000)]


class _ProviderFields(BaseModel):
    model_config = ConfigDict(extra="ignore")

    access_key: Key | None = None
    region: ShortText | None = None
    base_url: ShortText | None = None
    api_version: ShortText | None = None


class ProviderCreate(_ProviderFields):
    name: Annotated[str, Field(min_length=1, max_length=50)]
    provider_type: ShortText
    api_key: Key


class ProviderUpdate(_ProviderFields):
    api_key: Key | None = None


class ProviderCheck(_ProviderFields):
    provider_type: ShortText
    api_key: Key


class Provider(Struct, frozen=True, kw_only=True):
    """Keys are never shown."""

    id: str
    name: str
    provider_type: str
    provider_category: str
    base_url: str | None
    region: str | None
    api_version: str | None
    organization_id: str
    created_at: datetime
    updated_at: datetime
    last_synced: datetime | None


class ProviderMessage(Struct, frozen=True):
    message: str
