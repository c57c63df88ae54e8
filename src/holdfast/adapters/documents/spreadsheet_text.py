"""The text of an Excel file: each sheet with its name, its rows as lines with tabs. Needs the extra ``documents``. Runs in the
process of the document.

Not by markitdown: it makes HTML of all sheets first, which takes ten times as long and as much memory.
"""

from typing import BinaryIO

import openpyxl

from holdfast.adapters.documents.archive_check import check_archive
from holdfast.adapters.documents.text_output import TextOutput


def read(document: BinaryIO, output: TextOutput) -> None:
    check_archive(document)
    workbook = openpyxl.load_workbook(document, read_only=True, data_only=True)
    for sheet in workbook.worksheets:
        # What the file says about the size of the sheet may be wrong by a million rows.
        sheet.reset_dimensions()
        output.write_section(f"## {sheet.title}")
        for row in sheet.iter_rows(values_only=True):
            cells = ["" if value is None else " ".join(str(value).splitlines()) for value in row]
            if line := "\t".join(cells).rstrip():
                output.write(f"{line}\n")
        output.flush()
