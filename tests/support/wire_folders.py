"""Folders and files for the tests of the wire."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from letta_client import Letta, NotFoundError
from letta_client.types import Folder
from letta_client.types.folders import FileRetrieveResponse
from tests.support.client_objects import eventually

MakeFolder = Callable[..., Folder]

FINAL = ("completed", "error")


@contextmanager
def folders_of_test(client: Letta) -> Iterator[MakeFolder]:
    """Makes folders, each with a name of its own; they are deleted at the end."""
    made: list[str] = []

    def make(**fields: Any) -> Folder:
        folder = client.folders.create(**{"name": f"folder {uuid4().hex}"} | fields)
        made.append(folder.id)
        return folder

    yield make
    for folder_id in made:
        with suppress(NotFoundError):
            client.folders.delete(folder_id)


def wait_for_file(client: Letta, folder_id: str, file_id: str) -> FileRetrieveResponse:
    """The file with its text, once it is processed."""
    return eventually(
        lambda: client.folders.files.retrieve(file_id, folder_id=folder_id, include_content=True),
        lambda file: file.processing_status in FINAL,
    )
