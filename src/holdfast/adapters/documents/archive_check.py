"""Office and EPUB files are ZIP archives of XML: whether one may be given to a parser. Runs in the process of the document.

The limits of the process would end an attack too. This says what is wrong with the file, and refuses what no limit would
stop: XML that names files of this machine.
"""

import zipfile
from typing import BinaryIO, Final

from holdfast.errors import DocumentUnreadable

MAX_MEMBERS: Final = 10_000
MAX_UNPACKED_BYTES: Final = 512 * 1024**2
MAX_RATIO: Final = 200
"""How many times larger than packed the members may be; XML of large tables comes to about 30."""
RATIO_FREE_BYTES: Final = 16 * 1024**2
"""Up to this size together their ratio does not matter: it can do no harm."""

_ENCRYPTED_FLAG: Final = 1
_OLE_BEGINNING: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_PIECE_BYTES: Final = 1024 * 1024
_XML_SUFFIXES: Final = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm", ".vml")
# Definitions of entities: they may refer to each other until memory is full, or to files. No program writes them.
_ENTITY: Final = "<!ENTITY"
_ENTITY_FORMS: Final = tuple(
    _ENTITY.encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)
_LONGEST_FORM: Final = max(map(len, _ENTITY_FORMS))


def check_archive(document: BinaryIO) -> None:
    """DocumentUnreadable if the archive is broken, encrypted, an attack, or too large."""
    if document.read(len(_OLE_BEGINNING)) == _OLE_BEGINNING:
        raise DocumentUnreadable(
            "The file is protected with a password, or has the format of Office before 2007. Save it without a password "
            "in the current format, and upload it again."
        )
    try:
        with zipfile.ZipFile(document) as archive:
            members = archive.infolist()
            _check_sizes(members)
            for member in members:
                if member.filename.lower().endswith(_XML_SUFFIXES):
                    _check_xml(archive, member)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise DocumentUnreadable(f"The file is damaged: {error}.") from error
    document.seek(0)


def _check_sizes(members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MAX_MEMBERS:
        raise DocumentUnreadable(
            f"The file contains {len(members)} parts; at most {MAX_MEMBERS} are read."
        )
    if any(member.flag_bits & _ENCRYPTED_FLAG for member in members):
        raise DocumentUnreadable(
            "The file is protected with a password. Remove the password, and upload it again."
        )
    unpacked = sum(member.file_size for member in members)
    packed = sum(member.compress_size for member in members)
    is_bomb = unpacked > RATIO_FREE_BYTES and unpacked > MAX_RATIO * packed
    if is_bomb or unpacked > MAX_UNPACKED_BYTES:
        raise DocumentUnreadable(
            f"The file would take {unpacked} bytes when unpacked; at most {MAX_UNPACKED_BYTES} are read, and at most "
            f"{MAX_RATIO} times its size."
        )


def _check_xml(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Reading also shows whether the sizes are true: a member that is larger than it says is damaged."""
    end = b""
    with archive.open(member) as part:
        while piece := part.read(_PIECE_BYTES):
            window = end + piece
            if any(form in window for form in _ENTITY_FORMS):
                raise DocumentUnreadable(
                    "The file defines XML entities, which documents do not need and attacks use. It is not read."
                )
            end = window[-_LONGEST_FORM:]
