"""The guides: the Markdown pages of `docs/` as HTML, with the navigation of `mkdocs.yml`.

The folder and the file are links here, so that a wheel contains them.
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

GUIDE = "/docs/guide"
_HERE = Path(__file__).parent
_PAGES = _HERE / "docs"
_NAVIGATION = _HERE / "mkdocs.yml"
_START = "Start"
_ATTRIBUTES = re.compile(r"\{ ?\.md-button(?P<main> \.md-button--primary)? ?\}")
_COMMENT = re.compile(r"\s*<!--.*?-->\s*", re.DOTALL)


class Heading(NamedTuple):
    """A heading of a page, and the id by which links reach it."""

    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Guide:
    """A page. `name` is its path in `docs/` without the suffix; `summary` is its first paragraph."""

    name: str
    title: str
    summary: str
    html: str
    headings: tuple[Heading, ...]

    @property
    def address(self) -> str:
        """The page's path in this service."""
        return f"{GUIDE}/{self.name}"


@dataclass(frozen=True)
class Chapter:
    """A section of the navigation."""

    title: str
    guides: tuple[Guide, ...]


@cache
def read_chapters() -> tuple[Chapter, ...]:
    """Return all pages in the order of the navigation. Takes a second."""
    navigation = yaml.safe_load(_NAVIGATION.read_text(encoding="utf-8"))["nav"]
    alone = {_START: [entry for entry in navigation if isinstance(entry, str)]}
    return tuple(
        Chapter(title, tuple(_read(page) for page in pages))
        for entry in (alone, *(entry for entry in navigation if not isinstance(entry, str)))
        for title, pages in entry.items()
    )


def picture(name: str) -> Path | None:
    """Return the file of a picture in `docs/`, None if there is none of that name."""
    return next((path for path in _PAGES.rglob("*.png") if path.relative_to(_PAGES).as_posix() == name), None)


def _read(page: str) -> Guide:
    text = (_PAGES / page).read_text(encoding="utf-8")
    markdown = _markdown()
    environment: dict[str, Any] = {"page": page}
    tokens = markdown.parse(text, environment)
    headings = _give_anchors(tokens)
    _read_buttons(tokens)
    paragraph = next((i for i, token in enumerate(tokens) if token.type == "paragraph_open"), None)
    summary = "" if paragraph is None else _plain(tokens[paragraph + 1])
    html = markdown.renderer.render(tokens, markdown.options, environment)
    return Guide(page.removesuffix(".md"), headings[0].text, summary, html, tuple(headings))


def _give_anchors(tokens: Sequence[Token]) -> list[Heading]:
    """Give each heading the id that mkdocs gives it; return the headings."""
    headings: list[Heading] = []
    taken: dict[str, int] = {}
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            text = _plain(content)
            anchor = slug(text)
            taken[anchor] = taken.get(anchor, -1) + 1
            anchor += f"_{taken[anchor]}" if taken[anchor] else ""
            token.attrSet("id", anchor)
            headings.append(Heading(int(token.tag[1:]), text, anchor))
    return headings


def _read_buttons(tokens: Sequence[Token]) -> None:
    """Make buttons of the links that are buttons in mkdocs's theme, by the attributes after them."""
    for token in tokens:
        link = None
        for one in token.children or ():
            link = one if one.type == "link_open" else link
            if link is not None and one.type == "text" and (found := _ATTRIBUTES.match(one.content)):
                link.attrSet("class", "button main" if found["main"] else "button")
                one.content = one.content[found.end() :]


def slug(text: str) -> str:
    """Return the id that mkdocs gives a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def _plain(token: Token) -> str:
    return "".join(" " if one.type == "softbreak" else one.content for one in token.children or ())


class _Renderer(RendererHTML):
    """HTML with addresses of this service, code that can be copied, tables that scroll, and no comments."""

    def link_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        tokens[index].attrSet("href", _address(str(tokens[index].attrGet("href")), env["page"]))
        return self.renderToken(tokens, index, options, env)

    def image(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        tokens[index].attrSet("src", _address(str(tokens[index].attrGet("src")), env["page"]))
        return super().image(tokens, index, options, env)

    def fence(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        number = env["codes"] = env.get("codes", 0) + 1
        return code_block(tokens[index].content.rstrip("\n"), tokens[index].info.strip() or "text", f"code-{number}")

    def heading_close(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        anchor = escape(str(tokens[index - 2].attrGet("id")))
        link = f'<a class="anchor" href="#{anchor}" aria-label="Link to this section"></a>'
        return f"{link if tokens[index].tag != 'h1' else ''}</{tokens[index].tag}>\n"

    def html_block(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return _COMMENT.sub("", tokens[index].content)

    def table_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return '<div class="wide"><table>'

    def table_close(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return "</table></div>"


def code_block(code: str, language: str, identifier: str) -> Markup:
    """Return coloured code as HTML, with a button that copies it. The id is unique in its page."""
    coloured = highlight(code, get_lexer_by_name(language), HtmlFormatter(nowrap=True)).rstrip("\n")
    return Markup(  # noqa: S704 - coloured code is escaped.
        f'<div class="code"><button class="plain" type="button" data-copy="{escape(identifier)}">Copy</button>'
        f'<pre id="{escape(identifier)}" tabindex="0">{coloured}</pre></div>'
    )


def inline(text: str) -> Markup:
    """Return a line of Markdown, such as a description, as HTML."""
    return Markup(_plain_markdown().renderInline(text))  # noqa: S704 - HTML in the line is escaped.


@cache
def _plain_markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False})


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}, renderer_cls=_Renderer).enable("table")


def _address(link: str, page: str) -> str:
    """Return a link of a page as an address of this service; links to elsewhere and within the page stay."""
    parts = urlsplit(link)
    if parts.scheme or not parts.path:
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), parts.path)).removesuffix(".md")
    return f"{GUIDE}/{target}" + (f"#{parts.fragment}" if parts.fragment else "")
