#!/usr/bin/env python3
"""Build a site from the docs: docs.py FOLDER, with the packages of requirements/docs.txt (`make docs` installs them).

The pages stay as they are, readable on a forge. Sphinx gets a copy with three differences: docs/README.md is the first
page, its tables are the sidebar, and linked files and folders (an example, the licence) become pages. A broken link or
anchor fails the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from os.path import relpath
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FRONT = ROOT / "docs" / "README.md"
EXAMPLES = ROOT / "examples"
STAGE = ROOT / ".cache" / "site"
PICTURES = {".png", ".svg"}
# Markdown as forges read it. The site loads nothing from other hosts.
SETTINGS = {
    "project": "Dayfly",
    "html_title": "Dayfly",
    "extensions": "myst_parser",
    "html_theme": "furo",
    "html_copy_source": "0",
    "html_show_copyright": "0",
    "myst_heading_anchors": "4",
    # The content of a console block is often not in the language of the block.
    "suppress_warnings": "misc.highlighting_failure",
}
LANGUAGES = {
    ".go": "go",
    ".json": "json",
    ".py": "python",
    ".sh": "sh",
    ".sql": "sql",
    ".tf": "terraform",
    ".yaml": "yaml",
    ".mod": "text",
}
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def tracked() -> set[Path]:
    """Return the files of the project that git tracks or would add, without generated files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()}


def navigation(front: str) -> dict[str, list[str]]:
    """Return the pages in each table of the front page, by heading."""
    groups: dict[str, list[str]] = {}
    for part in front.split("\n## ")[1:]:
        heading, _, rows = part.partition("\n")
        groups[heading] = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", rows, re.MULTILINE)
    return groups


class Site:
    """The pages for Sphinx. A page adds all pages that it links to."""

    def __init__(self, files: set[Path]) -> None:
        self.files = files
        self.pages: dict[Path, str] = {}
        self._wanted: list[Path] = []

    def add(self, page: Path) -> None:
        """Add a page and all pages that it links to, directly or indirectly."""
        self._wanted.append(page)
        while self._wanted:
            source = self._wanted.pop()
            at = _place(source)
            if at not in self.pages:
                self.pages[at] = self._linked(source, self._text(source))

    def write(self, stage: Path, groups: dict[str, list[str]]) -> None:
        """Write the pages and pictures, the first page with the navigation."""
        shutil.rmtree(stage, ignore_errors=True)
        for at, text in self.pages.items():
            (stage / at).parent.mkdir(parents=True, exist_ok=True)
            (stage / at).write_text(text)
        for picture in self.files:
            if picture.suffix in PICTURES and picture.parent == ROOT / "docs":
                shutil.copy(picture, stage / "docs")
        shown = {Path("index.md"), Path("examples/index.md")}
        for heading, names in groups.items():
            pages = [_place(_source((FRONT.parent / name).resolve())) for name in names]
            _navigate(stage / "index.md", f":caption: {heading}", pages)
            shown.update(pages)
        # All other pages are below the examples, because Sphinx requires each page to be in the navigation.
        rest = [Path(relpath(at, "examples")) for at in sorted(self.pages) if at not in shown]
        _navigate(stage / "examples" / "index.md", "", rest)

    def _text(self, source: Path) -> str:
        if source.is_dir():
            pages = sorted(path for path in self.files if path.name == "README.md" and source in path.parents)
            rows = (f"- [{page.parent.relative_to(source)}]({page.relative_to(source)})" for page in pages)
            return "\n".join([f"# {source.name.capitalize()}", "", *rows, ""])
        if source.suffix != ".md":
            return f"# {source.name}\n\n```text\n{source.read_text()}```\n"
        text = source.read_text()
        if EXAMPLES not in source.parents:
            return text
        files = sorted(path for path in self.files if source.parent in path.parents and path != source)
        return "\n".join([text, "## Files", "", *(_shown(path, source.parent) for path in files)])

    def _linked(self, source: Path, text: str) -> str:
        """Return the page's text with links to the pages of the site."""
        parts = _FENCE.split(text)
        parts[::2] = [_LINK.sub(lambda found: self._link(found[0], source), part) for part in parts[::2]]
        return "".join(parts)

    def _link(self, link: str, source: Path) -> str:
        name, hash_, anchor = link.partition("#")
        target = ((source if source.is_dir() else source.parent) / name).resolve()
        if not name or ":" in name or target.suffix in PICTURES:
            return link
        if target not in self.files and not any(target in path.parents for path in self.files):
            return link  # Sphinx reports the broken link and its place
        page = _source(target)
        self._wanted.append(page)
        if target in self.files and target != page:
            hash_, anchor = "#", _slug(str(target.relative_to(page.parent)))
        return f"{relpath(_place(page), _place(source).parent)}{hash_}{anchor}"


def _source(target: Path) -> Path:
    """Return the file shown for a target: the README of an example for all of its files."""
    for folder in (target, *target.parents):
        if EXAMPLES in folder.parents and (folder / "README.md").is_file():
            return folder / "README.md"
    return target


def _place(source: Path) -> Path:
    """Return the path of a file's page in the site."""
    if source == FRONT:
        return Path("index.md")
    here = source.relative_to(ROOT)
    return here / "index.md" if source.is_dir() else here.with_suffix(".md")


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _shown(path: Path, folder: Path) -> str:
    text = path.read_text()
    fence = "````" if "```" in text else "```"
    return f"### {path.relative_to(folder)}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def _navigate(page: Path, option: str, pages: list[Path]) -> None:
    page.parent.mkdir(exist_ok=True)
    with page.open("a") as text:
        entries = (str(each.with_suffix("")) for each in pages)
        text.write("\n".join(["", "```{toctree}", ":hidden:", option, "", *entries, "```", ""]))


def main() -> None:
    groups = navigation(FRONT.read_text())
    site = Site(tracked())
    site.add(FRONT)
    site.write(STAGE, groups)
    out = Path(sys.argv[1]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    settings = [word for name, value in SETTINGS.items() for word in ("-D", f"{name}={value}")]
    strict = ("-q", "-W", "--keep-going", "-b", "html", "-d", f"{STAGE}-read", "-C")
    command = [sys.executable, "-m", "sphinx", *strict, *settings, str(STAGE), str(out)]
    ended = subprocess.run(command, check=False)
    if ended.returncode:
        sys.exit(ended.returncode)
    here = relpath(out)
    print(f"The docs are in {here}: open {here}/index.html, or serve them to others with")
    print(f"    python3 -m http.server --directory {here}")


if __name__ == "__main__":
    main()
