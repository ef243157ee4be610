#!/usr/bin/env python3
"""Follow the pages as a newcomer would, against the clock: newcomer.py docs/first-steps.md writes the table there.

A fresh clone, an empty HOME, and what the pages say, literally. Three things are added up: words to read until then,
commands to type or copy, and what the machine takes, which is measured. Needs the environment of `make dev`, and for
the last way what `make cluster` needs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from docs.transcript import commands, follow  # noqa: E402 - found beside this script

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = 200  # read in a minute
TYPING = 5.0  # seconds for a command that is typed or a block that is copied
KEPT = {"PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "TERM"}
REGISTRIES = ("PIP_", "GO", "UV_", "http", "HTTP", "https", "HTTPS", "no_proxy", "NO_PROXY")  # how packages come here
BEGIN, END = "<!-- measured: scripts/newcomer.py writes it -->\n", "<!-- end -->"
HEAD = "| way | read | type | the machine | all | target |\n|---|---|---|---|---|---|\n"


class Part(NamedTuple):
    """What of a page has to be read: from the line that begins so to the line that begins so."""

    page: str
    begin: str
    end: str

    @property
    def text(self) -> str:
        """Its Markdown."""
        whole = (ROOT / self.page).read_text()
        begin = whole.index(f"\n{self.begin}") if self.begin else 0
        return whole[begin : whole.index(f"\n{self.end}", begin + 1)]


class Way(NamedTuple):
    """From nothing to something: what leads there, and in how many minutes it should."""

    to: str
    minutes: float
    parts: tuple[Part, ...]


class Took(NamedTuple):
    """What a way took, in seconds: reading, typing, and the machine's part."""

    words: int
    typed: int
    machine: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.words / WORDS * 60 + self.typed * TYPING + self.machine


WAYS = {
    "resource": Way("the first resource", 2, (Part("README.md", "", "## Use it"),)),
    "plugin": Way("a plugin of one's own, tested", 10, (Part("docs/plugins.md", "", "## A program of the image"),)),
    "cluster": Way(
        "a sandbox in a cluster",
        20,
        (
            Part("README.md", "## Use it in Kubernetes", "## Write"),
            Part("docs/cluster.md", "", "## What a fork may change"),
        ),
    ),
}


def words(text: str) -> int:
    """Of what is read, without what is typed and what is printed."""
    prose = re.sub(r"^```.*?^```$|^    \S[^\n]*$|^\|[-|]+$", "", text, flags=re.MULTILINE | re.DOTALL)
    return len(re.findall(r"[\w./'`-]*\w[\w./'`-]*", re.sub(r"\]\([^)]*\)", "]", prose)))


class Newcomer:
    """Somebody with an empty home, a clone in it, and the variables that any shell of this machine has."""

    def __init__(self, home: Path) -> None:
        self.home, self.checkout = home, home / "dayfly"
        clone = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(self.checkout)]
        begun = time.monotonic()
        subprocess.run(clone, check=True)
        self.cloning = time.monotonic() - begun
        kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(REGISTRIES)}
        self.environment = {**kept, "HOME": str(home), "NO_COLOR": "1", "KUBERC": "off"}

    def take(self, way: Way) -> Took:
        """Type all that a way says."""
        read = typed = 0
        begun, said = time.monotonic(), ""
        for part in way.parts:
            said = self._follow(part, said)
            read += words(part.text)
            typed += len(commands(self._page))
        return Took(read, typed, time.monotonic() - begun)

    @property
    def _page(self) -> Path:
        return self.home / "page.md"

    def _follow(self, part: Part, said: str) -> str:
        """Type a part in the folder that it speaks of; what was said before may tell of variables to set."""
        exports = "".join(f"{line}\n" for line in re.findall(r"^    (export .*)$", said, re.MULTILINE))
        self._page.write_text((f"```sh\n{exports}```\n" if exports else "") + part.text)
        folder, environment = self.checkout, self.environment
        if part.page == "docs/plugins.md":  # it says: in an empty folder, with dayfly on the path
            folder = Path(tempfile.mkdtemp(dir=self.home))
            environment = {**environment, "PATH": f"{environment['PATH']}:{self.checkout}"}
        if part.page == "docs/cluster.md":
            folder = self.home
        return "\n".join(line for _, lines in follow(self._page, folder, environment, {}, 1500) for line in lines)


@contextlib.contextmanager
def newcomer() -> Iterator[Newcomer]:
    """Somebody who comes and goes."""
    home = Path(tempfile.mkdtemp(prefix="ada-"))
    found = Newcomer(home)
    # Kubernetes, its tools and its images are not built again: that is the quarter of an hour which is not counted.
    cache = os.environ.get("DAYFLY_CACHE") or Path.home() / ".cache" / "dayfly"
    found.environment["DAYFLY_CACHE"] = str(cache)
    try:
        yield found
    finally:
        if (found.checkout / ".cache" / "cluster").exists():
            subprocess.run(["make", "uninstall"], cwd=found.checkout, env=found.environment, check=True)
        shutil.rmtree(home)


def row(way: Way, took: Took) -> str:
    """A line of the table."""
    reading, typing = took.words / WORDS * 60, took.typed * TYPING
    cells = (
        way.to,
        f"{took.words} words, {_span(reading)}",
        f"{took.typed} times, {_span(typing)}",
        _span(took.machine),
        f"**{_span(took.seconds)}**",
        f"{way.minutes:g} min",
    )
    return f"| {' | '.join(cells)} |"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def written(page: str, rows: list[str], commit: str) -> str:
    """The page with the measured part anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{HEAD}" + "".join(f"{each}\n" for each in rows) + f"\nMeasured at `{commit}`.\n{END}{after}"


def took(name: str) -> Took:
    """Follow a way as somebody new."""
    with newcomer() as somebody:
        if name != "resource":  # whose clone has been set up by the first way
            setup = [somebody.checkout / "scripts" / "setup.sh", "run"]
            subprocess.run(setup, env=somebody.environment, check=True)
        return somebody.take(WAYS[name])


def main() -> None:
    rows = []
    for name, way in WAYS.items():
        print(f"the way to {way.to} ({name})", file=sys.stderr)
        rows.append(row(way, took(name)))
        print(rows[-1], file=sys.stderr)
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    page = Path(sys.argv[1])
    page.write_text(written(page.read_text(), rows, commit))


if __name__ == "__main__":
    main()
