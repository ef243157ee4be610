#!/usr/bin/env python3
"""Follow the pages as a newcomer would, and measure the time: newcomer.py bench/first-steps.md writes the table there.

It uses a fresh clone and an empty HOME, and follows the pages literally. The time is the sum of three parts: words to
read, commands to type or copy, and the measured time of the machine. It needs the environment of `make dev` and, for
the last journey, that of `make cluster`.
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
sys.path.insert(0, str(ROOT))

from tests.docs.transcript import commands, follow  # noqa: E402 - found beside this script

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS_PER_MIN = 200  # words read per minute
TYPING_S = 5.0  # seconds for a command that is typed or a block that is copied
KEPT = {"PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "TERM"}
REGISTRIES = ("PIP_", "GO", "UV_", "http", "HTTP", "https", "HTTPS", "no_proxy", "NO_PROXY")  # package registries
BEGIN, END = "<!-- measured: scripts/newcomer.py writes it -->\n", "<!-- end -->"
HEAD = "| journey | reading | typing | machine | total | target |\n|---|---|---|---|---|---|\n"


class Part(NamedTuple):
    """The part of a page to read: between the lines that start with `begin` and `end`."""

    page: str
    begin: str
    end: str

    @property
    def text(self) -> str:
        """The Markdown of this part."""
        whole = (ROOT / self.page).read_text()
        begin = whole.index(f"\n{self.begin}") if self.begin else 0
        return whole[begin : whole.index(f"\n{self.end}", begin + 1)]


class Journey(NamedTuple):
    """A goal, its target time in minutes, and the parts of pages that lead to it."""

    goal: str
    minutes: float
    parts: tuple[Part, ...]


class Effort(NamedTuple):
    """The measured effort: words to read, commands to type, and the machine's seconds."""

    words: int
    typed: int
    machine: float

    @property
    def seconds(self) -> float:
        """The sum in seconds."""
        return self.words / WORDS_PER_MIN * 60 + self.typed * TYPING_S + self.machine


JOURNEYS = {
    "resource": Journey("the first resource", 2, (Part("README.md", "", "## Use it"),)),
    "plugin": Journey("a tested plugin", 10, (Part("docs/guides/plugins.md", "", "## A program of the image"),)),
    "cluster": Journey(
        "a sandbox in a cluster",
        20,
        (
            Part("README.md", "## Use it in Kubernetes", "## Write"),
            Part("docs/guides/cluster.md", "", "## Read logs and outputs"),
        ),
    ),
}


def words(text: str) -> int:
    """Count the words to read, without commands and their output."""
    prose = re.sub(r"^```.*?^```$|^    \S[^\n]*$|^\|[-|]+$", "", text, flags=re.MULTILINE | re.DOTALL)
    return len(re.findall(r"[\w./'`-]*\w[\w./'`-]*", re.sub(r"\]\([^)]*\)", "]", prose)))


class Newcomer:
    """A home with a clone in it, and only the variables that any shell on this machine has."""

    def __init__(self, home: Path) -> None:
        self.home, self.checkout = home, home / "dayfly"
        clone = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(self.checkout)]
        begun = time.monotonic()
        subprocess.run(clone, check=True)
        self.cloning = time.monotonic() - begun
        kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(REGISTRIES)}
        self.environment = {**kept, "HOME": str(home), "NO_COLOR": "1", "KUBERC": "off"}

    def follow_journey(self, journey: Journey) -> Effort:
        """Execute all commands of a journey."""
        read = typed = 0
        begun, said = time.monotonic(), ""
        for part in journey.parts:
            said = self._follow(part, said)
            read += words(part.text)
            typed += len(commands(self._page))
        return Effort(read, typed, time.monotonic() - begun)

    @property
    def _page(self) -> Path:
        return self.home / "page.md"

    def _follow(self, part: Part, said: str) -> str:
        """Execute a part in the folder that its page names, with the variables exported in earlier output."""
        exports = "".join(f"{line}\n" for line in re.findall(r"^    (export .*)$", said, re.MULTILINE))
        self._page.write_text((f"```sh\n{exports}```\n" if exports else "") + part.text)
        folder, environment = self.checkout, self.environment
        if part.page == "docs/guides/plugins.md":  # the page requires an empty folder, and dayfly on the path
            folder = Path(tempfile.mkdtemp(dir=self.home))
            environment = {**environment, "PATH": f"{environment['PATH']}:{self.checkout}"}
        if part.page == "docs/guides/cluster.md":
            folder = self.home
        return "\n".join(line for _, lines in follow(self._page, folder, environment, {}, 1500) for line in lines)


@contextlib.contextmanager
def newcomer() -> Iterator[Newcomer]:
    """Provide a newcomer, and remove everything afterwards."""
    home = Path(tempfile.mkdtemp(prefix="ada-"))
    found = Newcomer(home)
    # Kubernetes, its tools and its images are not built again: these 15 minutes do not count.
    cache = os.environ.get("DAYFLY_CACHE") or Path.home() / ".cache" / "dayfly"
    found.environment["DAYFLY_CACHE"] = str(cache)
    try:
        yield found
    finally:
        if (found.checkout / ".cache" / "cluster").exists():
            subprocess.run(["make", "uninstall"], cwd=found.checkout, env=found.environment, check=True)
        shutil.rmtree(home)


def row(journey: Journey, effort: Effort) -> str:
    """Return a row of the table."""
    reading, typing = effort.words / WORDS_PER_MIN * 60, effort.typed * TYPING_S
    cells = (
        journey.goal,
        f"{effort.words} words, {_span(reading)}",
        f"{effort.typed} times, {_span(typing)}",
        _span(effort.machine),
        f"**{_span(effort.seconds)}**",
        f"{journey.minutes:g} min",
    )
    return f"| {' | '.join(cells)} |"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def updated_page(page: str, rows: list[str], commit: str) -> str:
    """Return the page with a new measured part."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{HEAD}" + "".join(f"{each}\n" for each in rows) + f"\nMeasured at `{commit}`.\n{END}{after}"


def measure(name: str) -> Effort:
    """Measure one journey, from a fresh home."""
    with newcomer() as fresh:
        if name != "resource":  # the first journey sets up the clone itself
            setup = [fresh.checkout / "scripts" / "setup.sh", "run"]
            subprocess.run(setup, env=fresh.environment, check=True)
        return fresh.follow_journey(JOURNEYS[name])


def main() -> None:
    rows = []
    for name, journey in JOURNEYS.items():
        print(f"following the pages to {journey.goal} ({name})", file=sys.stderr)
        rows.append(row(journey, measure(name)))
        print(rows[-1], file=sys.stderr)
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    page = Path(sys.argv[1])
    page.write_text(updated_page(page.read_text(), rows, commit))


if __name__ == "__main__":
    main()
