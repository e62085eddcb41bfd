"""The pages of the documentation, and the fenced blocks in them."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(
    r"^(?:<!-- run: (?P<name>[a-z-]+) -->\n)?(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A fenced block; `name` is the one under which a test runs it, None for blocks that no test runs."""

    page: str
    line: int
    language: str
    code: str
    name: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> dict[str, str]:
    """Return the text of every page by its path: those of `docs/`, the README and the guide to contributing."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of all pages, of some languages only where any are named."""
    found = [block for page, text in pages().items() for block in blocks_in(page, text)]
    return [block for block in found if not languages or block.language in languages]


def blocks_in(page: str, text: str) -> list[Block]:
    """Return the blocks of one page."""
    return [
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["language"].strip(),
            textwrap.dedent(match["code"]),
            match["name"],
        )
        for match in _FENCE.finditer(text)
    ]


def programs(name: str) -> list[Block]:
    """Return the Python programs that are run under a name."""
    return [block for block in blocks("python") if block.name == name]
