"""The site of the docs leads each reader to every page, shows what the pages link to, and asks nobody else for anything."""

from __future__ import annotations

import contextlib
import functools
import http.server
import re
import runpy
import shutil
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.docs.conftest import ROOT
from tests.page.browser import chromium, visit
from tests.page.network import own_network

SCRIPT = ROOT / "scripts" / "docs.py"
DOCS = runpy.run_path(str(SCRIPT))
SPHINX = ROOT / ".cache" / "docs" / "bin" / "python"
FRONT = "# A\n\n## People\n\n| page | for |\n|---|---|\n| [it](it.md) | them |\n| [all](../examples/) | all |\n"
GOOD = "# It\n\n## A part\n\n[here](#a-part), [there](../examples/one/deep/run.sh), [all](../examples/), [law](../LICENSE)\n"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    site = DOCS["Site"](DOCS["tracked"]())
    site.add(ROOT / "docs" / "README.md")
    return {str(at): text for at, text in site.pages.items()}


def test_every_page_has_one_place_in_the_navigation():
    groups = DOCS["navigation"]((ROOT / "docs" / "README.md").read_text())
    assert list(groups) == ["Tutorials", "How-to guides", "Reference", "Explanation"]
    named = Counter(name for names in groups.values() for name in names)
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").glob("*/*.md")}
    assert set(named) >= there
    assert set(named.values()) == {1}


def test_site_contains_each_link_target(pages: dict[str, str]):
    example = pages["examples/postgres-schema/README.md"]
    assert "](../../examples/postgres-schema/README.md#provisionsh)" in pages["docs/guides/plugins.md"]
    assert "### provision.sh\n\n```sh\n#!/bin/sh\n" in example
    assert "[machinery/](README.md)" in pages["examples/minicluster/README.md"]
    assert "[Examples](examples/index.md)" in pages["index.md"]
    assert "- [controllers/machine](controllers/machine/README.md)" in pages["examples/index.md"]


def test_links_in_code_blocks_are_unchanged(tmp_path: Path):
    for name in ("scripts", "docs"):
        (tmp_path / name).mkdir()
    script = Path(shutil.copy(SCRIPT, tmp_path / "scripts"))
    front, page = tmp_path / "docs" / "README.md", tmp_path / "docs" / "it.md"
    front.write_text(FRONT)
    page.write_text("[a](README.md)\n```md\n[a](README.md)\n```\n")
    site = runpy.run_path(str(script))["Site"]({front, page})
    site.add(page)
    assert site.pages[Path("docs/it.md")] == "[a](../index.md)\n```md\n[a](README.md)\n```\n"


def build(project: Path, page: str) -> subprocess.CompletedProcess[str]:
    """A site of a project with one page."""
    subprocess.run([ROOT / "scripts" / "setup.sh", "docs"], check=True)
    texts = {
        "docs/README.md": FRONT,
        "LICENSE": "Do.\n",
        "docs/it.md": page,
        "examples/one/README.md": "# One\n",
        "examples/one/deep/run.sh": "#!/bin/sh\n",
    }
    for name, text in texts.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "scripts").mkdir()
    shutil.copy(SCRIPT, project / "scripts")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    command = [SPHINX, "scripts/docs.py", "dist"]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.proof
def test_a_site_is_made_of_pages_that_lead_somewhere(tmp_path: Path):
    made = build(tmp_path, GOOD)
    assert made.returncode == 0, made.stderr
    links = re.findall(r'class="reference internal" href="([^"]+)"', (tmp_path / "dist/docs/it.html").read_text())
    wanted = {"#a-part", "../examples/one/README.html#deep-run-sh", "../examples/index.html", "../LICENSE.html"}
    assert wanted <= set(links)
    assert 'id="deep-run-sh"' in (tmp_path / "dist/examples/one/README.html").read_text()


@pytest.mark.proof
@pytest.mark.parametrize("link", ["none.md", "#none", "README.md#none", "../examples/none", "none.png"])
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, link: str):
    made = build(tmp_path, f"# It\n\n{'!' * link.endswith('png')}[a]({link})\n")
    assert made.returncode != 0
    assert re.search(r"docs/it\.md:3: WARNING: .*none", made.stderr)


@pytest.mark.proof
def test_site_sends_no_outside_requests_and_has_a_search(tmp_path: Path):
    """Built as one builds it, and looked at in a browser."""
    said = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=110).stdout
    (folder,) = re.findall(r"http\.server --directory (\S+)", said)
    with own_network(), serving(ROOT / folder) as url, chromium() as browser, visit(browser, url) as seen:
        seen.open("/index.html", "text=How-to guides")
        seen.open("/search.html?q=routing+key", "ul.search li:has-text('Routing')")
        seen.open("/docs/guides/plugins.html", "h1")
        for each in (ROOT / folder).rglob("*.html"):
            assert not re.search(r'(?:src|<link[^>]* href)="(?:https?:)?//', each.read_text()), each


@contextlib.contextmanager
def serving(folder: Path):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
