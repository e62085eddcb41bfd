"""Documents of every kind that is read, and of kinds that are not, read by the real process."""

import io
import struct
import zipfile
import zlib

import pytest

from deployments import bounded_process
from deployments.tools.documents import readers
from deployments.tools.documents.readers import InvalidFile, UnsupportedFile, read_document
from deployments.tools.documents.reading import ChunkSizes, ReadingLimits, read_chunks
from tests.contract.documents.documents import make_docx, make_pdf, make_pptx, make_xlsx

LIMITS = ReadingLimits(time_s=60)


async def read(content: bytes, name: str = "file") -> str:
    chunks = await read_chunks(content, name, ChunkSizes(), LIMITS)
    return "\n---\n".join(chunk.text for chunk in chunks)


async def test_each_kind_of_document_is_read():
    word = make_docx("First paragraph.", "Second.", rows=[["name", "age"], ["Ann", "42"]])
    assert await read(word, "a.docx") == "First paragraph.\nSecond.\nname | age\nAnn | 42"
    slides = make_pptx("The title", "The body", "What is said")
    assert (await read(slides, "a.pptx")).splitlines() == ["The title", "The body", "What is said"]
    table = make_xlsx("Sales", ["city", "sold"], [None, None], ["Paris", 12.5])
    assert await read(table, "a.xlsx") == "Sales\ncity | sold\nParis | 12.5"
    assert (await read(make_pdf("One line.", "Another page."), "a.pdf")).split() == ["One", "line.", "Another", "page."]


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        (b"# Title\r\n\r\nText.", "a.md", "# Title\n\nText."),
        (b"\xef\xbb\xbfna\xc3\xafve", "a.txt", "naïve"),
        ("naïve".encode("utf-16"), "a.txt", "naïve"),
        (b'{"a": [1, 2]}', "a.json", '{"a": [1, 2]}'),
        (b"a,b\n1,2", "a.csv", "a,b\n1,2"),
        (b"def f():\n    return 1", "a.py", "def f():\n    return 1"),
        (
            b"<!DOCTYPE html><html><head><title>T</title><style>p {}</style><script>x()</script></head>"
            b"<body><h1>Head</h1><p>One&nbsp;&amp; two\n<b>three</b></p><pre>a\n b</pre>"
            b"<table><tr><td>1<td>2</tr></table></body>",
            "page",
            "T\n\nHead\n\nOne & two three\n\na\nb\n1 2",
        ),
        (
            b"<html><body><template>no</template><noscript>no</noscript><svg><text>no</text></svg><p>x<ul><li>one<li>two"
            b"</ul><dl><dt>a<dd>b</dl><img alt='no'></body>",
            "page",
            "x\n\none\ntwo\na\nb",
        ),
        (b"<html><body>" + b"<div><b>" * 100_000 + b"deep", "page", "deep"),
        (b'<meta charset="latin-1"><p>na\xefve', "a.html", "naïve"),
    ],
)
def test_text_is_read_as_it_is_and_html_as_it_is_seen(content, name, text):
    assert read_document(content, name).strip() == text


MIB = 1024 * 1024


def bomb() -> bytes:
    """An archive that says of itself that it unpacks to 600 MiB; to make a true one takes seconds."""
    content = b"<a>" + bytes(12_345)
    small = archive("word/document.xml", content)
    return small.replace(struct.pack("<L", len(content)), struct.pack("<L", 600 * MIB))


def packed_zeros(num_mib: int) -> bytes:
    """A zlib stream of zeros: one MiB is packed, and its bytes, which stand for themselves, are repeated."""
    packer = zlib.compressobj(9)
    begin = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = packer.flush()[:-4]
    return begin + piece * num_mib + end + struct.pack(">HH", num_mib * MIB % 65_521, 1)


def archive(name: str, content: bytes = b"<a/>") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as zipped:
        zipped.writestr(name, content)
    return made.getvalue()


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1000)


@pytest.mark.parametrize(
    ("content", "error", "told"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\xff", UnsupportedFile, "not of a kind that is read"),
        (b"text with \0 in it", UnsupportedFile, "not of a kind that is read"),
        (rb"{\rtf1 x}", UnsupportedFile, "not of a kind that is read"),
        (OLE, UnsupportedFile, "old Office formats"),
        (OLE + "EncryptedPackage".encode("utf-16-le"), InvalidFile, "password"),
        (archive("a.txt"), UnsupportedFile, "Archives"),
        (archive("[Content_Types].xml"), InvalidFile, "damaged"),
        (archive("word/document.xml"), InvalidFile, "damaged"),
        (archive("xl/workbook.xml"), InvalidFile, "damaged"),
        (archive("ppt/presentation.xml"), InvalidFile, "damaged"),
        (b"PK\x03\x04 and no more", InvalidFile, "damaged"),
        (b"%PDF-1.7 and no more", InvalidFile, "damaged"),
        (b" \n\t", InvalidFile, "no text"),
        (b"", InvalidFile, "no text"),
    ],
)
def test_what_cannot_be_read_says_why(content, error, told):
    with pytest.raises(error, match=told):
        read_document(content, "file")


def test_documents_with_a_password_say_so():
    with pytest.raises(InvalidFile, match="password"):
        read_document(make_pdf("Secret.", password="hard"), "a.pdf")
    assert "Free." in read_document(make_pdf("Free.", password=""), "a.pdf")  # Opens for all who read it.


def test_a_document_that_is_cut_off_is_damaged():
    for whole in (make_docx("x" * 1000), make_xlsx("a", ["b"])):
        with pytest.raises(InvalidFile, match="damaged"):
            read_document(whole[: len(whole) // 2], "a")


def test_too_much_text_is_refused(monkeypatch):
    monkeypatch.setattr(readers, "MAX_CHARS", 100)
    with pytest.raises(InvalidFile, match="five million tokens"):
        read_document(b"x" * 200, "a.txt")


async def test_a_bomb_takes_only_its_own_process_along():
    with pytest.raises(InvalidFile, match="unpacks"):
        await read(bomb())
    stream = packed_zeros(1500)
    pdf = make_pdf("x").replace(b"BT /F1 12 Tf 20 100 Td (x) Tj ET", stream, 1)
    pdf = pdf.replace(b"/Length 32", b"/Filter /FlateDecode /Length %d" % len(stream), 1)
    with pytest.raises((InvalidFile, UnsupportedFile)):
        await read_chunks(pdf, "a.pdf", ChunkSizes(), ReadingLimits(512 << 20, 60))


async def test_what_takes_too_long_is_ended():
    with pytest.raises(InvalidFile, match=r"too (long|much memory)"):
        await read_chunks(b"x y " * 4_000_000, "a.txt", ChunkSizes(100, 50, 100), ReadingLimits(time_s=0.2))


async def test_the_process_knows_nothing_of_the_environment(monkeypatch):
    monkeypatch.setenv("KANARIENVOGEL", "secret")
    code = "import os, sys, json; sys.stdout.write('C' + json.dumps([[repr(dict(os.environ)), [0], 1]]))"
    monkeypatch.setattr(bounded_process, "_CODE", code)
    (chunk,) = await read_chunks(b"x", "a.txt", ChunkSizes(), LIMITS)
    assert "KANARIENVOGEL" not in chunk.text
    assert "OMP_NUM_THREADS" in chunk.text
