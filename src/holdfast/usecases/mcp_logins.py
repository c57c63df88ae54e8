"""Logins at MCP servers that want OAuth."""

from holdfast.ports.services import Services


async def find_token(
    services: Services,
    organization_id: str,
    user_id: str,
    server_url: str,
    *,
    renew: bool = False,
) -> str | None:
    """The access token of the newest authorized login. None: there is no login."""
    del services, organization_id, user_id, server_url, renew
    return None
