"""The text of Word, PowerPoint and EPUB files as Markdown. Needs the extra ``documents``. Runs in the process of the document.

The converters of markitdown are called directly: its own entry point would look at each file with a neural network first, and
load plugins.
"""

from collections.abc import Callable
from typing import BinaryIO

from markitdown import DocumentConverter, StreamInfo
from markitdown.converters import DocxConverter, EpubConverter, PptxConverter

from holdfast.adapters.documents.archive_check import check_archive
from holdfast.adapters.documents.text_output import TextOutput


def read_docx(document: BinaryIO, output: TextOutput) -> None:
    _convert(DocxConverter, ".docx", document, output)


def read_pptx(document: BinaryIO, output: TextOutput) -> None:
    _convert(PptxConverter, ".pptx", document, output)


def read_epub(document: BinaryIO, output: TextOutput) -> None:
    _convert(EpubConverter, ".epub", document, output)


def _convert(
    make_converter: Callable[[], DocumentConverter],
    extension: str,
    document: BinaryIO,
    output: TextOutput,
) -> None:
    check_archive(document)
    converted = make_converter().convert(document, StreamInfo(extension=extension))
    output.write_section(converted.markdown)
