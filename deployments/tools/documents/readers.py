"""Extracts the text of a document. Its content decides its type; its name only if the content leaves it open.

Runs in a bounded process (`chunks.main`), as documents may be hostile. Each type's library is imported when needed.
"""

import codecs
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_CHARS = 20_000_000
"""The most text that a file may have: about five million tokens."""
_MAX_UNPACKED_BYTES = 512 * 1024 * 1024
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_HTML = re.compile(r"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w-]{2,40})", re.IGNORECASE)
_BLANK = re.compile(r"[ \t\r\f\v\xa0]+")
_MANY_LINES = re.compile(r"\n{3,}")

SUPPORTED = "Text in UTF-8 (Markdown, HTML, JSON, CSV, code and the like), PDF, .docx, .pptx and .xlsx files are read."
DAMAGED = "The file is damaged, or is not what it says it is."
LOCKED = "The file is protected by a password. Remove the password and upload it again."
NO_TEXT = "There is no text in the file. Pictures of text, as in scans, are not read."
TOO_LONG = "The file holds more than five million tokens of text. Split it, and upload the parts."
UNPACKS_TOO_LARGE = "The file unpacks to more than can be read. Split it, and upload the parts."


class UnsupportedFile(Exception):
    """Files of this type are not supported; the message has no content of the file."""


class InvalidFile(Exception):
    """A file of a supported type cannot be read; the message has the reason, without content of the file."""


def read_document(content: bytes, filename: str) -> str:
    """Return the text of a document.

    Raises:
        UnsupportedFile, InvalidFile: it has none that can be read.
    """
    try:
        text = _MANY_LINES.sub("\n\n", _bounded(_reader_of(content, filename)))
    except (UnsupportedFile, InvalidFile, MemoryError):
        raise
    except Exception:  # Each library has its own errors for bad files, and some have none.
        raise InvalidFile(DAMAGED) from None
    if not text.strip():
        raise InvalidFile(NO_TEXT)
    return text


def _bounded(pieces: Iterable[str]) -> str:
    kept, left = [], MAX_CHARS
    for piece in pieces:
        left -= len(piece) + 1
        if left < 0:
            raise InvalidFile(TOO_LONG)
        kept.append(piece)
    return "\n".join(kept)


def _reader_of(content: bytes, filename: str) -> Iterator[str]:
    if b"%PDF-" in content[:1024]:
        return _read_pdf(content)
    if content.startswith(_OLE):
        if _ENCRYPTED in content:
            raise InvalidFile(LOCKED)
        raise UnsupportedFile(f"Files of old Office formats are not read. {SUPPORTED}")
    if content.startswith(b"PK\x03\x04"):
        return _office_reader(content)(content)
    return _read_text(content, filename)


def _office_reader(content: bytes) -> Callable[[bytes], Iterator[str]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = set(archive.namelist())
        if sum(entry.file_size for entry in archive.infolist()) > _MAX_UNPACKED_BYTES:
            raise InvalidFile(UNPACKS_TOO_LARGE)
    readers = {"word/document.xml": _read_docx, "ppt/presentation.xml": _read_pptx, "xl/workbook.xml": _read_xlsx}
    for name, reader in readers.items():
        if name in names:
            return reader
    if "[Content_Types].xml" in names:
        raise InvalidFile(DAMAGED)
    raise UnsupportedFile(f"Archives are not read. {SUPPORTED}")


def _read_pdf(content: bytes) -> Iterator[str]:
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise InvalidFile(LOCKED)
    for page in reader.pages:
        yield page.extract_text() + "\n"


def _read_docx(content: bytes) -> Iterator[str]:
    import docx
    from docx.table import Table

    def read(container: Any) -> Iterator[str]:
        for block in container.iter_inner_content():
            if isinstance(block, Table):
                yield from _rows([cell.text for cell in row.cells] for row in block.rows)
            else:
                yield block.text

    yield from read(docx.Document(io.BytesIO(content)))


def _read_pptx(content: bytes) -> Iterator[str]:
    import pptx

    def read(shapes: Any) -> Iterator[str]:
        for shape in shapes:
            if shape.has_text_frame:
                yield shape.text_frame.text
            elif getattr(shape, "has_table", False):
                yield from _rows([cell.text for cell in row.cells] for row in shape.table.rows)
            elif hasattr(shape, "shapes"):
                yield from read(shape.shapes)

    for slide in pptx.Presentation(io.BytesIO(content)).slides:
        yield from read(slide.shapes)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            yield slide.notes_slide.notes_text_frame.text
        yield ""


def _read_xlsx(content: bytes) -> Iterator[str]:
    import openpyxl

    workbook = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    for sheet in workbook.worksheets:
        sheet.reset_dimensions()  # The size in the file may be wrong.
        rows = _rows(["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True))
        first = next(rows, None)
        if first is not None:
            yield sheet.title
            yield first
            yield from rows
            yield ""


def _rows(rows: Iterable[list[str]]) -> Iterator[str]:
    """Yield the rows of a table that are not empty, each as a line."""
    for cells in rows:
        if any(cells):
            yield " | ".join(cell.replace("\n", " ") for cell in cells).rstrip(" |")


def _read_text(content: bytes, filename: str) -> Iterator[str]:
    is_html = filename.lower().endswith((".html", ".htm", ".xhtml"))
    text = _decode(content, is_html=is_html)
    if "\0" in text or text.startswith("{\\rtf"):
        raise UnsupportedFile(f"The file is not of a kind that is read. {SUPPORTED}")
    if is_html or _HTML.match(text[:10_000]):
        yield _html_text(text)
    else:
        yield text.replace("\r\n", "\n").replace("\r", "\n")


def _decode(content: bytes, *, is_html: bool) -> str:
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if content.startswith(mark):
            return content.decode(encoding)
    try:
        return content.decode()
    except UnicodeDecodeError:
        named = _CHARSET.search(content[:4096]) if is_html else None
        if named is not None:
            return content.decode(codecs.lookup(named[1].decode()).name, "replace")
        raise UnsupportedFile(f"The file is not of a kind that is read. {SUPPORTED}") from None


def _html_text(page: str) -> str:
    """Return the visible text of a page: its title, then each block on its own lines."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(page)
    text = extract_plain_text(tree, main_content=False, alt_texts=False, list_bullets=False)
    lines = [_BLANK.sub(" ", line).strip() for line in text.split("\n")]
    return "\n".join([tree.title or "", "", *lines]).strip()
