"""Folders and files for tests of the wire, and what an agent sees of them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from letta_client import Letta, NotFoundError
from letta_client.types import Folder
from tests.support.client_objects import as_dict, eventually

MakeFolder = Callable[..., Folder]


@contextmanager
def folders_of_test(client: Letta) -> Iterator[MakeFolder]:
    """Makes folders with names of their own; they are deleted at the end."""
    made: list[str] = []

    def make(**fields: Any) -> Folder:
        folder = client.folders.create(**{"name": f"f{uuid4().hex[:12]}"} | fields)
        made.append(folder.id)
        return folder

    yield make
    for folder_id in made:
        with suppress(NotFoundError):
            client.folders.delete(folder_id)


def upload(client: Letta, folder: Folder, name: str, text: str) -> str:
    """Upload a file and wait until it is processed; return its id."""
    file = client.folders.files.upload(folder.id, file=(name, text.encode()))
    assert file.id is not None
    done = eventually(
        lambda: as_dict(client.folders.files.retrieve(file.id, folder_id=folder.id)),
        lambda seen: seen["processing_status"] in {"completed", "error"},
    )
    assert done["processing_status"] == "completed", done
    return file.id


def recompiled(client: Letta, agent_id: str) -> str:
    """The system message as it would be compiled now."""
    # The client does not decode a body that is a string.
    return str(json.loads(client.agents.recompile(agent_id, dry_run=True)))


def run_tool(client: Letta, agent_id: str, name: str, **arguments: Any) -> tuple[str, str]:
    """The status of a tool that is run directly, and its return or its error."""
    result = as_dict(client.agents.tools.run(name, agent_id=agent_id, args=arguments))
    is_ok = result["status"] == "success"
    return result["status"], result["func_return"] if is_ok else result["stderr"][-1]


def open_names(client: Letta, agent_id: str) -> list[str]:
    return sorted(item.file_name for item in client.agents.files.list(agent_id, is_open=True))
