"""The text layer of a PDF. Runs in the process of the document."""

from typing import BinaryIO

from pypdf import PageObject, PasswordType, PdfReader
from pypdf.errors import PyPdfError

from holdfast.adapters.documents.text_output import TextOutput
from holdfast.errors import DocumentUnreadable


def read(document: BinaryIO, output: TextOutput) -> str | None:
    """Write the text of each page. Returns what is missing, as a sentence."""
    reader = PdfReader(document)
    # Many PDFs are encrypted with an empty password, only to forbid printing.
    if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
        raise DocumentUnreadable(
            "The PDF is protected with a password. Remove the password, and upload it again."
        )
    pages = len(reader.pages)
    unreadable = 0
    for page in reader.pages:
        text = _read_page(page)
        if text is None:
            unreadable += 1
        else:
            output.write_section(text)
    return _describe_problem(pages, unreadable, has_text=output.has_text)


def _read_page(page: PageObject) -> str | None:
    """None if the page is broken."""
    try:
        return page.extract_text()
    # What pypdf raises for objects that are not what they should be.
    except (PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError):
        return None
    except (TypeError, ValueError, NotImplementedError):
        return None


def _describe_problem(pages: int, unreadable: int, *, has_text: bool) -> str | None:
    if unreadable and not has_text:
        raise DocumentUnreadable(f"The PDF is damaged: none of its {pages} pages can be read.")
    if unreadable:
        return (
            f"{unreadable} of the {pages} pages of the PDF are damaged, and their text is missing."
        )
    if not has_text:
        return (
            f"The PDF has no text ({pages} pages): its pages are probably pictures, such as scans. Holdfast does not "
            "recognise text in pictures."
        )
    return None
