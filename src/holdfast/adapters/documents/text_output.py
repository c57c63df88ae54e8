"""Writing extracted text from the process of a document to the file that the server reads it from."""

import io
from typing import BinaryIO


class TextOutput:
    """Line ends become ``\\n``, and NUL is dropped. What is flushed is kept if the process is killed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._line_ends = io.IncrementalNewlineDecoder(None, translate=True)
        self.has_text = False
        """Whether anything was written that is not white space."""

    def write(self, text: str) -> None:
        self.has_text = self.has_text or not (not text or text.isspace())
        # Parsers may return halves of surrogate pairs, which UTF-8 does not have.
        self._file.write(self._line_ends.decode(text).replace("\0", "").encode(errors="replace"))

    def write_section(self, text: str) -> None:
        """Write a page or a sheet, separated from the one before by one blank line, and flush it."""
        if not text.strip():
            return
        if self.has_text:
            self.write("\n")
        self.write(text.rstrip() + "\n")
        self.flush()

    def flush(self) -> None:
        self._file.flush()
