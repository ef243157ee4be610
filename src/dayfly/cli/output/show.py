r"""How results and talk are laid out: JSON, YAML, tables, ages. Results go to stdout, talk to stderr.

This is the one place of output, so the one place where it is made harmless: what scripts, files and other people wrote
may hold commands for a terminal (retitle it, hide lines, type for its owner). Whatever is laid out here has them
written as `\x1b`, wherever it goes. What is printed as it is, logs and the values of `env`, is made visible likewise
where stdout is a terminal, and is left byte for byte as it was for a file or a pipe.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

GAP = "   "
_LAYOUT = frozenset("\n\t")
_WIDEST = 2
"""Cells of a terminal that a character takes at most."""


def emit(data: Any, output: str) -> None:
    """Print data as JSON or YAML, as `output` says.

    Where output is not in UTF-8 (`LC_ALL=de_DE.ISO-8859-1`, an old container), what is not ASCII is written in escapes
    of JSON or YAML itself: those of the stream mean nothing in either.
    """
    utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    dump = _json if output == "json" else _yaml
    text = dump(data, unicode=utf8)
    if utf8 and not all(map(_harmless, text)):
        text = dump(data, unicode=False)
    sys.stdout.write(text)


def line(text: str = "") -> None:
    """Print one line for people."""
    sys.stdout.write(plain(text) + "\n")


def block(text: str) -> None:
    """Print text of several lines for people."""
    sys.stdout.write(visible(text) + "\n")


class Screen:
    """Bytes on their way to a terminal: read as UTF-8, whatever pieces they come in, and made harmless."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._return = ""

    def put(self, data: bytes, *, final: bool = False) -> None:
        text = self._return + self._decoder.decode(data, final)
        # A carriage return belongs to the end of its line only if that is what comes next.
        self._return = "\r" if text.endswith("\r") and not final else ""
        text = text.removesuffix(self._return) if self._return else text
        sys.stdout.write(visible(text.replace("\r\n", "\n")))
        sys.stdout.flush()


_screen = Screen()


def finish() -> None:
    """End a text that came by `put`, also where its last character is only half there."""
    if sys.stdout.isatty():
        _screen.put(b"", final=True)


def put(data: bytes) -> None:
    """Print bytes at once: as they are, whatever the encoding, and on a terminal without what would drive it."""
    if sys.stdout.isatty():
        _screen.put(data)
        return
    sys.stdout.flush()
    out = sys.stdout.buffer
    rest = memoryview(data)
    while rest:  # unbuffered (PYTHONUNBUFFERED), it writes what fits and says how much that was
        rest = rest[out.write(rest) :]
    out.flush()


def talk(message: str) -> None:
    """Say something that is no result, below what was printed before: both may lead to one log.

    Whoever has gone (`| head`, a closed terminal) does not end what was begun.
    """
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    try:
        sys.stderr.write(plain(message) + "\n")
        sys.stderr.flush()
    except OSError:
        hush(sys.stderr)


def hush(stream: TextIO) -> None:
    """Let what is written to a stream go nowhere, also what is still on its way: nobody takes it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, elastic: str = "") -> None:
    """Print columns. On a terminal too narrow for them the column named `elastic` is cut."""
    lines = [list(header), *([plain(cell) for cell in row] for row in rows)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(header))]
    if elastic and sys.stdout.isatty():
        column = list(header).index(elastic)
        room = os.get_terminal_size(sys.stdout.fileno()).columns or sys.maxsize  # 0: nobody has told how wide it is
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - room
        widths[column] = max(widths[column] - max(excess, 0), len(elastic))
        for line in lines:
            line[column] = cut(line[column], widths[column])
    for line in lines:
        filled = [cell + " " * (width - cells(cell)) for cell, width in zip(line, widths, strict=True)]
        sys.stdout.write(GAP.join(filled).rstrip() + "\n")


def facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Print `Name:   value` lines, values in one column; empty ones are left out."""
    given = [(f"{name}:", plain(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in given), default=0)
    for name, value in given:
        sys.stdout.write(f"{name.ljust(width)}{GAP}{value}\n")


def cut(text: str, width: int) -> str:
    """The text in at most `width` cells of a terminal, with dots where it was cut."""
    if len(text) * _WIDEST <= width or cells(text) <= width:
        return text
    room, dots = max(width - 3, 0), "..."[: max(width, 0)]
    if text.isascii():
        return text[:room] + dots
    from rich.cells import set_cell_size

    return set_cell_size(text, room) + dots


def cells(text: str) -> int:
    """How many cells of a terminal it takes: a character of Chinese, or a picture, takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def plain(text: str) -> str:
    """One line in which nothing drives a terminal: all other white space is a blank."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else _escape(char) for char in text)


def visible(text: str) -> str:
    """Text of several lines, tabs in it, in which nothing else drives a terminal."""
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else _escape(char) for char in text)


def _harmless(char: str) -> bool:
    """Whether a terminal only shows it. Not printable are controls, C0 and C1, and what turns the way of writing."""
    return char.isprintable() or char in _LAYOUT or (char.isspace() and char >= "\xa0")


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def moment(ms: int) -> str:
    """Unix milliseconds as `2026-01-02T03:04:05.678Z`."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age(moment: str) -> str:
    """How long ago an RFC 3339 time was, in its largest unit: `5s`, `3m`, `2h`, `4d`."""
    from datetime import UTC, datetime

    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    seconds = max(int((datetime.now(UTC) - then).total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _json(data: Any, *, unicode: bool) -> str:
    import json

    # Of the controls JSON itself lets only this one through.
    return json.dumps(data, indent=2, ensure_ascii=not unicode).replace("\x7f", "\\u007f") + "\n"


def _yaml(data: Any, *, unicode: bool) -> str:
    import yaml

    from dayfly.spec.parsing.yaml_scalars import resolve

    class Dumper(yaml.SafeDumper):
        """Scripts as literal blocks; in quotes whatever would be read back as anything but itself."""

    def write(dumper: Dumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None if _reads_back(value) else "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    def _reads_back(value: str) -> bool:
        try:
            return isinstance(resolve(value), str)
        except ValueError:
            return False

    Dumper.add_representer(str, write)
    dumped: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=unicode, width=120)
    return dumped
