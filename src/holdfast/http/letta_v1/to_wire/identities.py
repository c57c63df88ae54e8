"""Identities as V1 shows them (tools-v1 §2.1)."""

from holdfast.http.letta_v1.schemas import identities as schemas
from holdfast.usecases.identity_links import IdentityView


def identity_state(view: IdentityView) -> schemas.Identity:
    identity = view.identity
    return schemas.Identity(
        id=identity.id,
        identifier_key=identity.identifier_key,
        name=identity.name,
        identity_type=identity.identity_type,
        project_id=identity.project_id,
        agent_ids=view.agent_ids,
        block_ids=view.block_ids,
        organization_id=identity.organization_id,
        properties=identity.properties,
    )
