"""Small writers of documents: PDF, Word, PowerPoint, Excel, EPUB. What they write is what the tests need, and no more."""

import io
import zipfile
from collections.abc import Mapping, Sequence

import openpyxl
from pptx import Presentation
from pypdf import PdfReader, PdfWriter

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_PAGE_SIZE = "[0 0 612 792]"
_FONTS = "<< /Font << /F1 3 0 R >> >>"
_XML = '<?xml version="1.0" encoding="UTF-8"?>'


def build_pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """Each page is a sequence of lines; a page without lines has a picture instead."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, lines in enumerate(pages):
        shown = "".join(f"({line}) Tj 0 -14 Td " for line in lines)
        content = (
            f"BT /F1 12 Tf 72 720 Td {shown}ET" if lines else "q 100 0 0 100 0 0 cm 0 0 1 1 re f Q"
        )
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox {_PAGE_SIZE} /Contents {5 + 2 * number} 0 R /Resources {_FONTS} >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    return assemble_pdf(objects)


def assemble_pdf(objects: Sequence[str]) -> bytes:
    """A PDF of these objects, numbered from 1; the first is its catalogue."""
    data = b"%PDF-1.4\n"
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{end}".encode()


def encrypt_pdf(data: bytes, password: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def build_archive(members: Mapping[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()


def docx_members(paragraphs: Sequence[str]) -> dict[str, str | bytes]:
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    return {
        "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
        f'ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
        "_rels/.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'{_XML}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
    }


def build_docx(paragraphs: Sequence[str]) -> bytes:
    return build_archive(docx_members(paragraphs))


def build_xlsx(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    workbook = openpyxl.Workbook(write_only=True)
    for name, rows in sheets.items():
        sheet = workbook.create_sheet(name)
        for row in rows:
            sheet.append(row)
    written = io.BytesIO()
    workbook.save(written)
    return written.getvalue()


def build_pptx(slides: Sequence[tuple[str, str]]) -> bytes:
    """Each slide has a title and a text."""
    presentation = Presentation()
    for title, text in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    written = io.BytesIO()
    presentation.save(written)
    return written.getvalue()


def build_epub(chapters: Sequence[str]) -> bytes:
    """Each chapter is the body of an XHTML page."""
    names = [f"chapter{number}" for number in range(len(chapters))]
    manifest = "".join(
        f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"/>'
        for name in names
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    doctype = (
        '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" '
        '"http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">'
    )
    return build_archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f'{_XML}<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
            '<rootfiles><rootfile full-path="content.opf"/></rootfiles></container>',
            "content.opf": f'{_XML}<package xmlns="http://www.idpf.org/2007/opf" '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The Book</dc:title></metadata>'
            f"<manifest>{manifest}</manifest><spine>{spine}</spine></package>",
            **{
                f"{name}.xhtml": f"{_XML}{doctype}<html><body>{chapter}</body></html>"
                for name, chapter in zip(names, chapters, strict=True)
            },
        }
    )
