"""Uploads of files as forms. A file goes to a temporary file while it comes, and is never in memory as a whole."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

# Uploads that are received at once; further ones wait. Each may fill the disk with a file of the largest size.
MAX_UPLOADS: Final = 32
# Of one form. Everything but the file is ignored.
_MAX_FIELDS: Final = 20
_MAX_FIELD_BYTES: Final = 64 * 1024

_NO_SPACE: Final = "The server cannot receive the file: its temporary folder cannot be written."


class UploadRoute(APIRoute):
    """A route that takes a form with one file. The file is deleted when the request has been answered."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            slots: asyncio.Semaphore = request.app.state.upload_slots
            async with slots:
                try:
                    return await handler(_FormRequest(request.scope, request.receive))
                except HTTPException as error:
                    # FastAPI makes a 400 of every error that is raised while it reads a form.
                    if isinstance(error.__cause__, OSError):
                        raise HTTPException(503, _NO_SPACE) from error
                    raise

        return handle


class _FormRequest(Request):
    def form(self, **_: Any) -> Any:
        return super().form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES)
