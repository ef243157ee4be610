"""Debian's Chromium, driven by playwright, and a page whose violations are recorded.

Tests use the headless shell, which takes half the CPU time; the proof uses the browser that people have.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.selection import SELECTION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 800}
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
# Records of a page: violations of its policy, and layout shifts without user input.
NOTES = """
window.notes = {policy: [], shift: 0, moved: []};
document.addEventListener("securitypolicyviolation", (e) => window.notes.policy.push(e.violatedDirective + " " + e.blockedURI));
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) if (!each.hadRecentInput) {
    window.notes.shift += each.value;
    for (const source of each.sources) window.notes.moved.push((source.node && (source.node.outerHTML || source.node.textContent) || "?").slice(0, 120));
  }
}).observe({type: "layout-shift", buffered: true});
"""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, or a skip where the machine has none; in CI that is a failure."""
    program = (not SELECTION.is_complete and shutil.which("chromium-headless-shell")) or shutil.which("chromium")
    if not program or not AXE.exists():
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say("the page's tests need chromium (apt-get install chromium) and: scripts/page.sh tools")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One window on a server's page; `check` reports violations."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.context = context
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self.expected = re.compile(r"status of 40[01349]|status of 412|ERR_INCOMPLETE_CHUNKED_ENCODING")
        context.on("request", self._asks)
        self.page.on("pageerror", lambda fault: self.errors.append(str(fault)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)

    def _asks(self, request: Any) -> None:
        if not request.url.startswith((self.url + "/", "data:", "blob:")):
            self.elsewhere.append(request.url)

    def open(self, path: str, wait: str) -> None:
        """Go to a view by its address, and wait for something in it."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector(wait)

    def text(self) -> str:
        return self.page.inner_text("body")

    def shift(self) -> tuple[float, list[str]]:
        """Return the sum of layout shifts without user input, and the shifted elements."""
        notes = self.page.evaluate("window.notes")
        return notes["shift"], notes["moved"]

    def axe(self) -> list[str]:
        """Return the violations that an accessibility checker finds."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['html'][:150]} {node.get('failureSummary', '')[:200]}"
            for each in found["violations"]
            for node in each["nodes"][:3]
        ]

    def check(self) -> None:
        """Check that there was no request to another server, no violation of the policy and no error."""
        assert self.elsewhere == []
        assert self.page.evaluate("window.notes.policy") == []
        failed = [each for each in self.errors if not self.expected.search(each)]
        assert failed == [], failed  # pytest explains no assertion of a file that is no test


@contextlib.contextmanager
def visit(browser: Browser, url: str, link: str = "", **options: Any) -> Iterator[Visit]:
    """Open a separate window, signed in by `link` if there is one; check it at the end."""
    context = browser.new_context(viewport=options.pop("viewport", DESKTOP), **options)
    context.add_init_script(NOTES)
    found = Visit(context, url)
    try:
        if link:
            found.page.goto(link)
            found.page.wait_for_selector("header nav")
        yield found
        found.check()
    finally:
        context.close()


def link_of(client: Any, key: str = "") -> str:
    """A fresh link to sign in by, of a test's own server."""
    headers = {"signadot-api-key": key} if key else None
    made = client.call("POST", "/api/v2/page/links", {}, headers)
    assert made.status == 200, made.body
    return f"http://127.0.0.1:{client.port}{made.json['path']}"


def dayfly(*arguments: str, home: Path, folder: Path) -> str:
    """Return the output of one command."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("DAYFLY_") or name == "DAYFLY_RUNNER"
    }
    done = subprocess.run(
        [str(ROOT / "dayfly"), *arguments],
        env={**kept, "DAYFLY_HOME": str(home)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
