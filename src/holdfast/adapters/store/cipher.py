"""Encryption of secrets at rest, and the key for it."""

import base64
import hashlib
import os
import secrets
import tempfile
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdfast.adapters.store.file_permissions import is_visible, make_home, restrict_to_owner
from holdfast.errors import InvalidArgument, StoreUnavailable

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

KEY_FILE = "secret.key"

# Constant: it only separates this key derivation from those of other programs. The key itself must be hard to guess.
_SALT = b"holdfast agent secrets"


class Cipher(Protocol):
    def encrypt(self, text: str) -> str: ...

    def decrypt(self, text: str) -> str: ...


class FernetCipher:
    """AES with a message authentication code. ``key`` may be any text; it is stretched first."""

    def __init__(self, key: str) -> None:
        self._key = key

    @cached_property
    def _fernet(self) -> "Fernet":
        from cryptography.fernet import (  # noqa: PLC0415 - 7 MB that most servers never need
            Fernet,
        )

        # Stretching is slow on purpose, so a server whose agents have no secrets never does it.
        stretched = hashlib.scrypt(self._key.encode(), salt=_SALT, n=2**14, r=8, p=1, dklen=32)
        return Fernet(base64.urlsafe_b64encode(stretched))

    def encrypt(self, text: str) -> str:
        try:
            clear = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument("A secret holds a lone surrogate.") from error
        return self._fernet.encrypt(clear).decode()

    def decrypt(self, text: str) -> str:
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - see above

        try:
            return self._fernet.decrypt(text.encode()).decode()
        except InvalidToken as error:
            raise StoreUnavailable(
                "A stored secret cannot be read with this key. Start the server with the key that "
                f"wrote it: HOLDFAST_SECRET_KEY, or the file {KEY_FILE} in its home."
            ) from error


def load_home_cipher(home: Path) -> FernetCipher:
    """Return the cipher with the key of the home folder. The first call creates the folder and the key."""
    path = home / KEY_FILE
    if not is_visible(path):
        make_home(home)
        _write_key(path)
    restrict_to_owner(path)
    return FernetCipher(path.read_text().strip())


def _write_key(path: Path) -> None:
    """Create the file with its whole content at once. A file that exists already is not replaced."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        Path(draft).unlink()
