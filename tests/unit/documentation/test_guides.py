"""The guides: every page, its links and its code."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from serve_app.documentation.guides import GUIDE, Guide, code_block, inline, picture, read_chapters

ROOT = Path(__file__).parents[3]
GUIDES = {guide.address: guide for chapter in read_chapters() for guide in chapter.guides}


def test_every_page_of_the_navigation_is_there_and_the_start_comes_first() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    chapters = [[[entry]] if isinstance(entry, str) else entry.values() for entry in navigation]
    pages = [page for chapter in chapters for part in chapter for page in part]
    assert sorted(GUIDES) == sorted(f"{GUIDE}/{page.removesuffix('.md')}" for page in pages)
    assert [chapter.title for chapter in read_chapters()][:2] == ["Start", "Guides"]


def test_every_page_has_a_title_and_a_summary() -> None:
    assert [address for address, guide in GUIDES.items() if not guide.title] == []
    assert [address for address, guide in GUIDES.items() if len(guide.summary) < 20] == []


@pytest.mark.parametrize("guide", GUIDES.values(), ids=lambda guide: guide.name)
def test_links_lead_to_pages_headings_and_pictures(guide: Guide) -> None:
    anchors = {address: {heading.anchor for heading in one.headings} for address, one in GUIDES.items()}
    missing = []
    for link in re.findall(r'(?:href|src)="([^"]+)"', guide.html):
        page, _, anchor = link.partition("#")
        if page.startswith(f"{GUIDE}/") and page.endswith(".png"):
            missing += [] if picture(page.removeprefix(f"{GUIDE}/")) else [link]
        elif page.startswith("/"):
            missing += [] if page in GUIDES and (not anchor or anchor in anchors[page]) else [link]
        elif not page:
            missing += [] if anchor in anchors[guide.address] else [link]
        elif not page.startswith("https://"):
            missing.append(link)
    assert missing == []


def test_a_page_has_coloured_code_with_a_button_and_no_comments() -> None:
    html = GUIDES[f"{GUIDE}/guides/chat"].html
    assert 'data-copy="code-1">Copy</button><pre id="code-1" tabindex="0"><span class="kn">from</span>' in html
    assert "<!--" not in html
    assert '<div class="wide"><table>' in html


def test_pages_run_no_script_and_load_nothing_from_elsewhere() -> None:
    for guide in GUIDES.values():
        assert re.search(r'<script|\son\w+=|style="|src="(?!/docs/)', guide.html) is None, guide.name


def test_code_and_descriptions_are_escaped() -> None:
    assert "&lt;b&gt;" in code_block("<b>", "text", "a")
    assert inline("`a` <b>") == "<code>a</code> &lt;b&gt;"


def test_links_that_are_buttons_look_so() -> None:
    html = GUIDES[f"{GUIDE}/index"].html
    assert f'<a href="{GUIDE}/quickstart" class="button main">' in html
    assert "md-button" not in html


def test_a_wheel_contains_the_pages() -> None:
    package = ROOT / "serve_app" / "documentation"
    assert (package / "docs").resolve() == ROOT / "docs"
    assert (package / "mkdocs.yml").resolve() == ROOT / "mkdocs.yml"
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert data["serve_app.documentation"] == ["mkdocs.yml", "docs/**/*"]


def test_only_pictures_of_pages_are_served() -> None:
    assert picture("guides/console-batch.png") is not None
    assert picture("../mkdocs.yml") is None
    assert picture("guides/../guides/console-batch.png") is None
