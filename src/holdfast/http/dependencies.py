"""What route handlers depend on: the services, and the user on whose behalf they act."""

from typing import Annotated

from fastapi import Depends, Request

from holdfast import logs
from holdfast.core.agents import Actor
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID, Kind, is_id
from holdfast.errors import InvalidArgument
from holdfast.ports.services import Services


async def _get_services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _get_actor(request: Request) -> Actor:
    # Not a declared header: FastAPI would build a validator for it for every route at every start.
    user_id = request.headers.get("user_id")
    if user_id is None:
        logs.bind(user_id=DEFAULT_USER_ID, organization_id=DEFAULT_ORGANIZATION_ID)
        return Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)
    if not is_id(Kind.USER, user_id):
        raise InvalidArgument(f"Invalid user ID format: {user_id}. Expected format: 'user-<uuid4>'")
    logs.bind(user_id=user_id, organization_id=DEFAULT_ORGANIZATION_ID)
    return Actor(user_id, DEFAULT_ORGANIZATION_ID)


ServicesDep = Annotated[Services, Depends(_get_services)]
ActorDep = Annotated[Actor, Depends(_get_actor)]
