"""Real documents, made with the libraries that others make them with."""

import io

from pypdf import PdfReader, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def make_docx(*paragraphs: str, rows: list[list[str]] | None = None) -> bytes:
    import docx

    document = docx.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    if rows:
        table = document.add_table(len(rows), len(rows[0]))
        for row, cells in zip(table.rows, rows, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    return _saved(document)


def make_pptx(title: str, body: str, notes: str) -> bytes:
    import pptx

    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = title
    slide.placeholders[1].text = body
    slide.notes_slide.notes_text_frame.text = notes
    return _saved(presentation)


def make_xlsx(sheet: str, *rows: list[object]) -> bytes:
    import openpyxl

    workbook = openpyxl.Workbook()
    workbook.active.title = sheet
    for row in rows:
        workbook.active.append(row)
    return _saved(workbook)


def make_pdf(*lines: str, password: str | None = None) -> bytes:
    writer = PdfWriter()
    for line in lines:
        page = writer.add_blank_page(600, 200)
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 100 Td ({line}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
        font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
        named = DictionaryObject({NameObject(key): NameObject(value) for key, value in font.items()})
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(named)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if password is not None:
        writer.encrypt(password, algorithm="AES-256")
    made = io.BytesIO()
    writer.write(made)
    assert len(PdfReader(made).pages if password is None else lines) == len(lines)
    return made.getvalue()


def _saved(document: object) -> bytes:
    made = io.BytesIO()
    document.save(made)  # type: ignore[attr-defined]
    return made.getvalue()
