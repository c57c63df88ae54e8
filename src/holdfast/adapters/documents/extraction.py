"""What the process of a document does: it reads the document from one open file and writes the text to another.

The sandbox starts it (`sandboxed.py`). The code is ours; what the document makes it do is not. Parsers are imported here and
never in the server.
"""

import errno
import importlib
import logging
import os
import warnings
from typing import Final

from holdfast.adapters.documents import formats
from holdfast.adapters.documents.text_output import TextOutput
from holdfast.adapters.sandbox.syscall_filter import refuse_sockets
from holdfast.errors import DocumentUnreadable
from holdfast.ports.sandbox import FIRST_DESCRIPTOR

Result = dict[str, str | None]

MEMORY: Final = "memory"
TEXT_SIZE: Final = "text_size"

# Module and function that read each format.
_READERS: Final = {
    formats.HTML: ("html_text", "read"),
    formats.PDF: ("pdf_text", "read"),
    formats.RTF: ("rtf_text", "read"),
    formats.DOCX: ("office_text", "read_docx"),
    formats.PPTX: ("office_text", "read_pptx"),
    formats.XLSX: ("spreadsheet_text", "read"),
    formats.EPUB: ("office_text", "read_epub"),
}
# Runs in progress come first.
_NICENESS: Final = 10
_MAX_REASON_CHARS: Final = 200


def extract(format: str) -> Result:  # noqa: A002 - as in the port
    """Returns ``problem``, a sentence or None, if there is text; else ``unreadable``, a sentence, or ``exceeded``, the limit
    that was reached."""
    return _extract(*_READERS[format])


def extract_page(encoding: str | None, url: str) -> Result:
    """The same for a page of the web, as Markdown. ``encoding``: what the site said of it."""
    return _extract("markdown_text", "read", encoding, url)


def _extract(module: str, function: str, *more: str | None) -> Result:
    os.nice(_NICENESS)
    refuse_sockets()
    # Nobody reads what parsers print.
    logging.disable()
    warnings.simplefilter("ignore")
    document = os.fdopen(FIRST_DESCRIPTOR, "rb")
    # Never closed: if the text is too large for the file, so is what would be written then.
    output = TextOutput(os.fdopen(FIRST_DESCRIPTOR + 1, "wb"))
    try:
        read = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        problem = read(document, output, *more)
        output.flush()
    except DocumentUnreadable as error:
        return {"unreadable": str(error)}
    except ImportError as error:
        return {
            "unreadable": f"The server needs the extra holdfast[documents] to read it: {error}."
        }
    except MemoryError:
        return {"exceeded": MEMORY}
    except Exception as error:  # noqa: BLE001 - whatever a parser raises says that it cannot read the file
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            return {"exceeded": TEXT_SIZE}
        return {"unreadable": _describe_damage(error)}
    return {"problem": problem}


def _describe_damage(error: Exception) -> str:
    if isinstance(error, RecursionError):
        reason = "its parts are nested too deeply"
    else:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_REASON_CHARS]
    return f"The file cannot be read; it is probably damaged ({reason})."
