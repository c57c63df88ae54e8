"""Providers as V1 shows them (wire-v1 §2.10)."""

from holdfast.core import providers
from holdfast.http.letta_v1.schemas.providers import (
    Provider,
)

USER_PROVIDER_CATEGORY = "byok"


def provider_state(provider: providers.Provider) -> Provider:
    return Provider(
        id=provider.id,
        name=provider.name,
        provider_type=provider.provider_type,
        provider_category=USER_PROVIDER_CATEGORY,
        base_url=provider.base_url,
        region=provider.region,
        api_version=provider.api_version,
        organization_id=provider.organization_id,
        created_at=provider.created_at,
        updated_at=provider.updated_at,
        last_synced=provider.last_synced,
    )
