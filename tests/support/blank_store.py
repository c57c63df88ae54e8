"""A store as a server's first start leaves it, for tests that want one: making it takes 20 ms, copying it none."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.sqlite import SqliteStore


def create_blank_store(path: Path) -> Path:
    """An SQLite store without a row at this path. Nothing in it depends on a key."""
    path.write_bytes(_blank())
    return path


@cache
def _blank() -> bytes:
    async def make(path: Path) -> None:
        await (await SqliteStore.open(path, cipher=FernetCipher("none"))).close()

    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as elsewhere:
        path = Path(folder, "holdfast.db")
        # Whoever asks may be in a loop of their own.
        elsewhere.submit(asyncio.run, make(path)).result()
        return path.read_bytes()
