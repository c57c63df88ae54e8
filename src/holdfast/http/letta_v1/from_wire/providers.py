"""Providers to create, to change and to check (wire-v1 §2.10)."""

from holdfast.http.letta_v1.schemas.providers import (
    ProviderCheck,
    ProviderCreate,
    ProviderUpdate,
)
from holdfast.usecases.providers import ProviderForm


def provider_form(body: ProviderCreate | ProviderUpdate | ProviderCheck) -> ProviderForm:
    return ProviderForm(**body.model_dump())
