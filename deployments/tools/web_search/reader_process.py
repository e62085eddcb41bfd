"""Extracts the text of one HTML page; `reader` runs it in a bounded process.

Pages are hostile, and the parser is written in C++: harm that a page does ends with the process. In: a line of JSON
with the page's address and its encoding, then the page. Out: JSON with its title and its text.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

_MAX_CHARS = 1_000_000
_MIN_CHARS = 200
_MAX_LINKS = 5000
_NOWHERE = "about:nowhere"


def main() -> None:
    """Read a page, write its text."""
    about = json.loads(sys.stdin.buffer.readline())
    title, text = read_html(sys.stdin.buffer.read(), about["url"], about["encoding"])
    sys.stdout.buffer.write(json.dumps({"title": title, "text": text[:_MAX_CHARS]}).encode())


def read_html(content: bytes, url: str, encoding: str | None) -> tuple[str, str]:
    """Return a page's title and its text; each link is followed by its address."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
    from resiliparse.parse.html import HTMLTree

    found = map_encoding_to_html5(encoding) if encoding else detect_encoding(content, from_html_meta=True)
    page = bytes_to_str(content, found or "utf-8")
    tree = HTMLTree.parse(page)
    num_links = 0
    for node in _nodes(tree.body):
        if node.tag == "a":
            num_links += 1
            leads = _absolute(url, node.getattr("href") or "") if num_links <= _MAX_LINKS else ""
            node["href"] = leads or _NOWHERE  # Without an address, the text would have empty brackets.
    text = extract_plain_text(tree, main_content=True, links=True)
    if len(text) < _MIN_CHARS:  # The heuristics of main content may leave out everything.
        text = extract_plain_text(tree, main_content=False, links=True)
    return (tree.title or "").strip(), text.replace(f" ({_NOWHERE})", "").strip()


def _nodes(root: Any) -> Iterator[Any]:
    """Yield a tree's nodes; the library's own collections look up each node from the start, which takes for ever."""
    node, depth = root, 0
    while node is not None:
        yield node
        if node.first_child is not None:
            node, depth = node.first_child, depth + 1
            continue
        while depth > 0 and node.next is None:
            node, depth = node.parent, depth - 1
        if depth == 0:
            return
        node = node.next


def _absolute(url: str, address: str) -> str:
    if not address:
        return ""
    try:
        leads = urljoin(url, address.strip())
    except ValueError:
        return ""
    return leads.partition("#")[0] if leads.startswith(("http://", "https://")) else ""
