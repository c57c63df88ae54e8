"""The text of Word, PowerPoint, Excel and EPUB files; needs the extra ``documents``. Runs in the process of the document.

The converters of markitdown are called directly: its own entry point would look at each file with a neural network first, and
load plugins.
"""

from collections.abc import Callable
from typing import BinaryIO

import openpyxl
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


def read_xlsx(document: BinaryIO, output: TextOutput) -> None:
    """Each sheet with its name, and its rows as lines with tabs. Not markitdown: it makes HTML of all sheets first, which
    takes minutes and gigabytes for large ones."""
    check_archive(document)
    workbook = openpyxl.load_workbook(document, read_only=True, data_only=True)
    for sheet in workbook.worksheets:
        # What the file says about the size of the sheet may be wrong by a million rows.
        sheet.reset_dimensions()
        output.write_section(f"## {sheet.title}")
        for row in sheet.iter_rows(values_only=True):
            cells = ["" if value is None else str(value) for value in row]
            if line := "\t".join(cells).rstrip():
                output.write(line.replace("\r", " ").replace("\n", " ") + "\n")
        output.flush()


def _convert(
    converter: Callable[[], DocumentConverter],
    extension: str,
    document: BinaryIO,
    output: TextOutput,
) -> None:
    check_archive(document)
    converted = converter().convert(document, StreamInfo(extension=extension))
    output.write_section(converted.markdown)
