#!/usr/bin/env python3
"""Record the README's first commands in a real terminal: recording.py FILE.svg (`make recording` does it).

A shell in a pseudo terminal executes the commands of the README in a fresh home. Every state of every line of its
output becomes a text in one SVG, and CSS shows each at its time. The SVG has no script, font or address, and its text
can be selected. It follows light and dark mode, and shows only the end if the reader prefers no motion.

Each state is visible for a minimum time, so this is slower than reality. The packaged renderers for asciinema's casts
support only one theme, and have had no release for years.
"""

from __future__ import annotations

import contextlib
import html
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 100, 40
# The commands of the README that matter to a newcomer. The others have long output, or only list locations.
SHOWN = ("folder=", "up ", "apply ", "why ", "env ", "sandbox delete ", "down")
PROMPT = "\x1b]133;D;$?\x07"  # the shell's report of an exit code, before the next command
_WAITS = re.compile(rb"\x1b\]133;D;(\d+)\x07$")
TYPED, HELD, LEAST, END = 0.035, 1.2, 0.4, 9.0  # seconds: a letter, after a command, a state, the last one
CELL, LINE, MARGIN, BAR = 8.4, 20, 16, 36
STYLE = """
svg{--back:#fbfbfa;--edge:#d4d4d0;--text:#24292f;--green:#116329;--cyan:#0a5c7a;--red:#a40e26;--brown:#7d4e00;--blue:#0550ae;
--magenta:#6639a6}
@media(prefers-color-scheme:dark){svg{--back:#15181c;--edge:#363b42;--text:#d6dbe1;--green:#6bd17f;--cyan:#63c7e8;--red:#ff8b82;
--brown:#e3b55b;--blue:#84b8ff;--magenta:#d0a8ff}}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--text);white-space:pre}
.bold{font-weight:700}.dim{opacity:.65}
.green{fill:var(--green)}.cyan{fill:var(--cyan)}.red{fill:var(--red)}.brown{fill:var(--brown)}.blue{fill:var(--blue)}
.magenta{fill:var(--magenta)}
.edge{fill:var(--back);stroke:var(--edge)}circle{fill:var(--edge)}
g g{visibility:hidden}g .end{visibility:visible}
"""


class Said(NamedTuple):
    """A command, and its output with the time of each piece."""

    command: str
    printed: list[tuple[float, str]]


def commands(readme: str) -> list[str]:
    """Return the README's commands that are recorded, without comments."""
    block = re.search(r"## Use it\n.*?```sh\n(.*?)```", readme, re.DOTALL)
    assert block, "the README begins with a block of commands"
    typed = [line.partition("  #")[0].rstrip() for line in block[1].splitlines()]
    return [line for line in typed if f"{line.removeprefix('./dayfly ')} ".startswith(SHOWN)]


def play(typed: list[str], environment: Mapping[str, str]) -> Iterator[Said]:
    """Type commands into a shell in a terminal, each after the end of the one before."""
    process, terminal = pty.fork()
    if not process:
        os.chdir(ROOT)
        os.execvpe("/bin/sh", ["/bin/sh", "-i"], {**environment, "PS1": PROMPT, "TERM": "xterm-256color"})
    try:
        termios.tcsetwinsize(terminal, (ROWS, COLUMNS))
        calm = termios.tcgetattr(terminal)
        calm[3] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, calm)
        list(_until_it_waits(terminal))
        for command in typed:
            os.write(terminal, f"{command}\n".encode())
            yield Said(command, list(_until_it_waits(terminal)))
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def _until_it_waits(terminal: int) -> Iterator[tuple[float, str]]:
    begun, kept, said = time.monotonic(), b"", ""
    while True:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"nothing for a minute after {said!r}"
        kept += os.read(terminal, 65536)
        waits = _WAITS.search(kept)
        with contextlib.suppress(UnicodeDecodeError):  # an incomplete character: the rest follows
            if text := (kept[: waits.start()] if waits else kept).decode():
                yield time.monotonic() - begun, text
            kept, said = b"", said + text
        if waits:
            assert waits[1] == b"0", f"it failed: {said}"
            return


@contextlib.contextmanager
def newcomer() -> Iterator[tuple[dict[str, str], str]]:
    """Provide an environment with an empty home, and the path of that home."""
    home = tempfile.mkdtemp(prefix="ada-")
    try:
        steers = ("DAYFLY_", "XDG_", "COLUMNS", "LINES", "NO_COLOR", "HOSTNAME", "USER", "LOGNAME")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(steers)}
        environment = {**kept, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
        yield environment, home
    finally:
        if Path(home, ".local/state/dayfly/url").exists():  # a command failed
            subprocess.run([ROOT / "dayfly", "down"], env=environment, check=False)
        shutil.rmtree(home)


class Film:
    """Every state of every line, with the times at which it appears and disappears."""

    def __init__(self) -> None:
        from pyte import ByteStream, Screen  # noqa: PLC0415 - needed only for drawing

        self.screen = Screen(COLUMNS, ROWS)
        self._stream = ByteStream(self.screen)
        self.now = 1.0
        self._shown: dict[int, tuple[float, str]] = {}
        self.states: list[tuple[int, float, float | None, str]] = []

    def add(self, said: Said) -> None:
        """Type a command and show its output."""
        self._feed("\x1b[32m$\x1b[0m ", 0.5)
        for part in re.findall(r".{1,3}", said.command):
            self._feed(part, TYPED * len(part))
        self._feed("\r\n", LEAST)
        last = 0.0
        for at, text in said.printed:
            # Each redraw of a progress display is a separate state, even if several arrived in one read.
            for piece in re.split(r"(?=\x1b\[2K(?:\x1b\[1A)+)", text.replace("\r\n\x1b[2K", "\n\r\x1b[2K")):
                self._feed(piece, max(at - last, LEAST))
                last = at
        self.now += HELD

    def _feed(self, text: str, lasts: float) -> None:
        self._stream.feed(text.encode())
        for row in range(ROWS):
            drawn = self._line(row)
            begun, before = self._shown.get(row, (0.0, ""))
            if drawn != before:
                if before:
                    self.states.append((row, begun, self.now, before))
                self._shown[row] = (self.now, drawn)
        self.now += lasts

    def _line(self, row: int) -> str:
        """Return the texts of a line, one for each run of a style."""
        cells = [self.screen.buffer[row][column] for column in range(COLUMNS)]
        while cells and cells[-1].data == " ":
            cells.pop()
        runs: list[tuple[int, str, str]] = []
        for column, cell in enumerate(cells):
            style = " ".join(filter(None, [cell.fg if cell.fg != "default" else "", "bold" if cell.bold else ""]))
            if runs and runs[-1][2] == style:
                runs[-1] = (runs[-1][0], runs[-1][1] + cell.data, style)
            else:
                runs.append((column, cell.data, style))
        return "".join(_text(column, text, style) for column, text, style in runs if text.strip())

    def svg(self) -> str:
        """Return the complete SVG."""
        last = [(row, begun, None, drawn) for row, (begun, drawn) in self._shown.items() if drawn]
        states = sorted([*self.states, *last], key=lambda state: (state[0], state[1]))
        length = self.now + END
        times: dict[tuple[float, float | None], str] = {}
        body = []
        for row, begun, ended, drawn in states:
            name = times.setdefault((begun, ended), f"t{len(times)}")
            end = " end" if ended is None else ""
            body.append(f'<g class="{name}{end}" transform="translate({MARGIN} {BAR + (row + 1) * LINE})">{drawn}</g>')
        high = max(row for row, *_ in last) + 1
        width, height = round(COLUMNS * CELL + 2 * MARGIN), BAR + high * LINE + MARGIN
        said = html.escape("\n".join(line.rstrip() for line in self.screen.display[:high]))
        frames = "".join(_keyframes(name, *span, length) for span, name in times.items())
        moving = f"@media(prefers-reduced-motion:no-preference){{{frames}}}"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
                f"<title>Dayfly in a terminal</title>\n<desc>{said}</desc>",
                f"<style>{STYLE}{moving}</style>",
                f'<rect class="edge" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="9"/>',
                "".join(f'<circle cx="{MARGIN + 6 + 18 * n}" cy="18" r="5.5"/>' for n in range(3)),
                "<g>",
                *body,
                "</g>\n</svg>\n",
            ]
        )


def _text(column: int, text: str, style: str) -> str:
    """Return a text that is as wide as its cells in any font."""
    at, wide = f"{column * CELL:g}", f"{len(text.rstrip()) * CELL:g}"
    kind = f' class="{style}"' if style else ""
    return f'<text x="{at}" textLength="{wide}"{kind}>{html.escape(text.rstrip())}</text>'


def _keyframes(name: str, begun: float, ended: float | None, length: float) -> str:
    """Return CSS that shows a state between two times, in a recording that repeats."""
    gone = f"{ended / length:.2%}{{visibility:hidden}}" if ended else ""
    frames = f"0%{{visibility:hidden}}{begun / length:.2%}{{visibility:visible}}{gone}"
    return f"@keyframes {name}{{{frames}}}.{name}{{animation:{name} {length:.1f}s step-end infinite}}\n"


def main() -> None:
    film = Film()
    with newcomer() as (environment, home):
        for said in play(commands((ROOT / "README.md").read_text()), environment):
            film.add(Said(said.command, [(at, text.replace(home, "/home/ada")) for at, text in said.printed]))
    drawn = film.svg()
    assert str(ROOT) not in drawn, "the recording must not contain the path of the checkout"
    Path(sys.argv[1]).write_text(drawn)
    print(f"{sys.argv[1]}: {len(drawn) // 1000} kB")


if __name__ == "__main__":
    main()
