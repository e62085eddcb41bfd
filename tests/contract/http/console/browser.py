"""Debian's Chromium, driven by Playwright, before the application: its log is watched, and pages are looked at."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import needs

AXE = "axe-core@4.14.1"
CHROMIUM = shutil.which("chromium")
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
SHOTS = os.environ.get("MANTA_SCREENSHOTS")
"""A folder for pictures of every page, where one is wanted."""


@dataclass
class Browsing:
    """A page of the browser, and what went wrong in it: errors of scripts, of the policy, of requests."""

    page: Any
    address: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: message.type in ("error", "warning") and self._note(message.text))
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("requestfailed", self._note_request)

    def _note(self, text: str) -> None:
        self.faults.append(f"{self.page.url}: {text}")

    def _note_request(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # A page that is left, or a download.
            self._note(f"{request.url} {request.failure}")

    async def open(self, path: str) -> None:
        answer = await self.page.goto(self.address + path)
        assert answer.status == 200, f"{path}: {answer.status}"

    async def look(self, name: str) -> None:
        """Take a picture, where pictures are wanted: wide and narrow, light and dark."""
        if SHOTS is None:
            return
        for scheme in ("light", "dark"):
            await self.page.emulate_media(color_scheme=scheme)
            for label, size in (("wide", WIDE), ("narrow", NARROW)):
                await self.page.set_viewport_size(size)
                await asyncio.sleep(0.15)
                await self.page.screenshot(path=Path(SHOTS) / f"{name}-{scheme}-{label}.png")
        await self.page.emulate_media(color_scheme="light")
        await self.page.set_viewport_size(WIDE)

    async def serious_findings(self, axe: str) -> list[str]:
        """Return what axe-core finds that is serious or critical."""
        await self.page.evaluate(axe)
        found = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {[node['html'][:160] for node in one['nodes']][:3]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]


@asynccontextmanager
async def browse(address: str, **options: Any) -> AsyncIterator[Browsing]:
    """Open a page of a new browser."""
    if CHROMIUM is None:
        needs.uninstalled("Chromium is not installed (on Debian: apt-get install chromium fonts-dejavu-core)")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        context = await browser.new_context(viewport=WIDE, **options)
        try:
            yield Browsing(await context.new_page(), address)
        finally:
            await browser.close()


def fetch_axe(folder: Path) -> str:
    """Return the source of axe-core, installed by npm."""
    _, npm = needs.node()
    command = [
        npm,
        "install",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--silent",
        "--prefix",
        str(folder),
        AXE,
    ]
    if subprocess.run(command, check=False, capture_output=True, timeout=120).returncode:
        needs.uninstalled(f"npm could not install {AXE}")
    return (folder / "node_modules/axe-core/axe.min.js").read_text()
