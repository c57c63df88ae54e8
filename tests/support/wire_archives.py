"""Archives for the tests of the wire."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from letta_client import Letta, NotFoundError
from letta_client.types import Archive

MakeArchive = Callable[..., Archive]


@contextmanager
def archives_of_test(client: Letta) -> Iterator[MakeArchive]:
    """Makes archives; they are deleted at the end."""
    made: list[str] = []

    def make(**fields: Any) -> Archive:
        archive = client.archives.create(**{"name": "notes"} | fields)
        made.append(archive.id)
        return archive

    yield make
    for archive_id in made:
        with suppress(NotFoundError):
            client.archives.delete(archive_id)
