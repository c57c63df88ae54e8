"""The text of a page: HTML as Markdown, the text of PDF and Office files, and what is text already as it is.

Parsers run in the sandbox, because a page may be made to occupy them; only plain text is decoded in a thread.
"""

import asyncio
import io
import os
import tempfile
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

from holdfast.adapters.documents import extraction, formats
from holdfast.adapters.documents.plain_text import choose_encoding, read_text
from holdfast.adapters.web.site import SitePage
from holdfast.errors import DocumentUnreadable, ToolError
from holdfast.ports.documents import Documents
from holdfast.ports.sandbox import Sandbox, SandboxCall, SandboxResult

MAX_EXTRACTION_SECONDS: Final = 20.0
MAX_WAIT_SECONDS: Final = 30.0
"""How much longer the sandbox may take in all: pages wait there for a slot."""
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
"""How much of a page's text is read; the tool's limit is far below."""

_HEAD_BYTES: Final = 4096
_HTML_BEGINNINGS: Final = (b"<!doctype html", b"<html", b"<head", b"<body")


async def read_page(page: SitePage, documents: Documents, sandbox: Sandbox) -> str:
    """ToolError, with a sentence, if there is no text."""
    kind = _find_kind(page, documents)
    try:
        if kind == formats.TEXT:
            return await asyncio.to_thread(_decode, page)
        return await _extract(page, kind, sandbox)
    except DocumentUnreadable as error:
        raise ToolError(f"Error fetching webpage: {error}") from None


def _find_kind(page: SitePage, documents: Documents) -> str:
    head = page.body[:_HEAD_BYTES]
    if not page.body:
        return formats.TEXT
    if not page.media_type and head.lstrip().lower().startswith(_HTML_BEGINNINGS):
        return formats.HTML
    name = PurePosixPath(unquote(urlsplit(page.url).path)).name
    # The site's word counts more than the name: a source file of HTML may be shown as text.
    is_plain = page.media_type == "text/plain"
    kind = documents.find_format("" if is_plain else name, page.media_type or None, head)
    if kind is None:
        raise ToolError(
            f"Error fetching webpage: it is a file of the type {page.media_type or 'unknown'}, of which no text can be "
            "read."
        )
    return kind


def _decode(page: SitePage) -> str:
    file = io.BytesIO(page.body[:MAX_TEXT_BYTES])
    return read_text(file, choose_encoding(page.body, page.encoding))


async def _extract(page: SitePage, kind: str, sandbox: Sandbox) -> str:
    # Without a buffer: both processes would not agree on the position.
    with (
        tempfile.TemporaryFile(buffering=0) as document,
        tempfile.TemporaryFile(buffering=0) as text,
    ):
        await asyncio.to_thread(_write, document, page.body)
        call = _build_call(page, kind, (document.fileno(), text.fileno()))
        result = await _run_in_time(call, sandbox)
        return await asyncio.to_thread(_read_result, result, text)


async def _run_in_time(call: SandboxCall, sandbox: Sandbox) -> SandboxResult:
    try:
        # The sandbox limits the call itself: what takes longer is a wait for a slot.
        async with asyncio.timeout(MAX_EXTRACTION_SECONDS + MAX_WAIT_SECONDS):
            return await sandbox.run(call)
    except TimeoutError:
        raise DocumentUnreadable(
            "it has arrived, but this server is too busy to read it. Try again later."
        ) from None


def _write(document: BinaryIO, body: bytes) -> None:
    document.write(body)
    document.seek(0)


def _build_call(page: SitePage, kind: str, descriptors: tuple[int, int]) -> SandboxCall:
    is_page = kind == formats.HTML
    function = (extraction.extract_page if is_page else extraction.extract).__name__
    arguments: dict[str, Any] = (
        {"encoding": page.encoding, "url": page.url} if is_page else {"format": kind}
    )
    return SandboxCall(
        source=f"from {extraction.__name__} import {function}",
        function=function,
        arguments=arguments,
        timeout_seconds=MAX_EXTRACTION_SECONDS,
        env={},
        descriptors=descriptors,
    )


def _read_result(result: SandboxResult, text: BinaryIO) -> str:
    """What was written before a limit was reached counts."""
    answer: dict[str, Any] = result.value if result.status == "finished" else {}
    if (sentence := answer.get("unreadable")) is not None:
        raise DocumentUnreadable(sentence)
    problem = answer["problem"] if "problem" in answer else _describe_failure(result)
    size = os.fstat(text.fileno()).st_size
    found = read_text(_read_beginning(text), "utf-8")
    if not found.strip():
        raise DocumentUnreadable(problem or "it has no text.")
    if size > MAX_TEXT_BYTES:
        problem = f"The text of the page has more than {MAX_TEXT_BYTES} bytes."
    return f"{found}\n[{problem} The rest is missing.]" if problem else found


def _read_beginning(text: BinaryIO) -> BinaryIO:
    text.seek(0)
    return io.BytesIO(text.read(MAX_TEXT_BYTES))


def _describe_failure(result: SandboxResult) -> str:
    if result.status == "timed_out":
        return f"Reading the page takes longer than {MAX_EXTRACTION_SECONDS:g} seconds."
    if result.exceeded_limit is not None:
        return "Reading the page takes too much memory."
    return "The page cannot be read completely."
