r"""All output: results on stdout as JSON, YAML, tables or text, and messages on stderr.

Output is sanitised here. Text of scripts, files and other users may contain escape sequences that retitle a terminal,
hide lines or type input. Formatted output always shows them escaped, like `\x1b`. Raw output (logs and the values of
`env`) shows them escaped only on a terminal; files and pipes get the original bytes.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from dayfly.cli.output import style

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

GAP = "   "
# The control characters that `escape_controls` leaves unescaped.
_LAYOUT = frozenset("\n\t")
_MAX_CHAR_CELLS = 2
"""The widest character, in cells of a terminal."""


def emit(data: Any, output: str) -> None:
    """Print data in a format of `options.OutputFormat`. Known times in Unix milliseconds are printed in RFC 3339.

    If stdout is not UTF-8 (`LC_ALL=de_DE.ISO-8859-1`), or the text contains control characters, only ASCII is printed.
    All other characters are escapes of JSON or YAML, because stdout's own escapes (`backslashreplace`) are valid in
    neither format.
    """
    from dayfly.cli.output import formats

    if output == "name":
        for each in formats.names(data):
            print_line(each)
        return
    data = formats.with_times(data, timestamp)
    if output.startswith("jsonpath="):
        for each in formats.values(data, output.partition("=")[2]):
            print_block(each)
        return
    utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    dump = _json if output == "json" else _yaml
    text = dump(data, unicode=utf8)
    if utf8 and not all(map(_is_harmless, text)):
        text = dump(data, unicode=False)
    sys.stdout.write(text)


def print_line(text: str = "", look: str = "") -> None:
    """Print one line of text, on a terminal in the style `look`."""
    sys.stdout.write(style.apply(escape_line(text), look) + "\n")


def print_difference(line: str) -> None:
    """Print a line of a difference."""
    sys.stdout.write(style.apply_to_difference(escape_controls(line)) + "\n")


def print_block(text: str) -> None:
    """Print text of several lines."""
    sys.stdout.write(escape_controls(text) + "\n")


class TerminalWriter:
    """Prints bytes on a terminal: decodes them as UTF-8, in pieces of any size, and escapes control characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held_return = ""

    def put(self, data: bytes, *, final: bool = False) -> None:
        text = self._held_return + self._decoder.decode(data, final)
        # A carriage return is part of a line break only if a line feed follows.
        self._held_return = "\r" if text.endswith("\r") and not final else ""
        text = text.removesuffix(self._held_return) if self._held_return else text
        sys.stdout.write(escape_controls(text.replace("\r\n", "\n")))
        sys.stdout.flush()


_terminal = TerminalWriter()


def flush_terminal() -> None:
    """Print the bytes that `print_bytes` still holds back: an incomplete UTF-8 character or a carriage return."""
    if sys.stdout.isatty():
        _terminal.put(b"", final=True)


def print_bytes(data: bytes) -> None:
    """Print bytes and flush. On a terminal, control characters are escaped."""
    if sys.stdout.isatty():
        _terminal.put(data)
        return
    sys.stdout.flush()
    out = sys.stdout.buffer
    rest = memoryview(data)
    while rest:  # an unbuffered stream (PYTHONUNBUFFERED) may write only a part
        rest = rest[out.write(rest) :]
    out.flush()


def print_message(message: str) -> None:
    """Print a message on stderr. Stdout is flushed first, because both may go to the same file.

    If stderr cannot be written (`2>&1 | head`, a closed terminal), later messages are discarded and the command
    continues.
    """
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    try:
        sys.stderr.write(escape_line(message) + "\n")
        sys.stderr.flush()
    except OSError:
        discard_output(sys.stderr)


def flush() -> None:
    """Write the printed text now, for a command that goes on."""
    sys.stdout.flush()


def discard_output(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, including its buffered output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_set(key: str) -> bool:
    """Return whether the command line has an option that is stored in click's `Context.meta`."""
    import click

    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(key))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    elastic: str = "",
    wide: int = 0,
    widths: list[int] | None = None,
) -> None:
    """Print a table with aligned columns.

    Args:
        header: The titles of the columns.
        rows: The cells.
        elastic: The column whose cells are cut if the terminal is too narrow.
        wide: The number of columns at the end that are printed only with `-o wide`.
        widths: The widths of the rows that were printed before, to which this call adds its own. If there are any, the
            header is not printed again.
    """
    if wide and not _is_set("dayfly.wide"):
        header, rows = header[:-wide], [row[:-wide] for row in rows]
    lines = [list(header), *([escape_line(cell) for cell in row] for row in rows)]
    before = widths if widths is not None else []
    hidden = bool(before) or _is_set("dayfly.no-headers")
    widths = [max(display_width(line[column]) for line in lines) for column in range(len(header))]
    widths = before[:] = [max(pair) for pair in zip(widths, before or widths, strict=True)]
    if elastic and sys.stdout.isatty():
        column = list(header).index(elastic)
        room = os.get_terminal_size(sys.stdout.fileno()).columns or sys.maxsize  # 0: the width is unknown
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - room
        widths[column] = max(widths[column] - max(excess, 0), len(elastic))
        for line in lines:
            line[column] = truncate(line[column], widths[column])
    states = {column for column, title in enumerate(header) if title in style.STATE_COLUMNS}
    for number, line in enumerate(lines):
        if hidden and not number:
            continue
        padded = [cell + " " * (width - display_width(cell)) for cell, width in zip(line, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        colored = [style.apply_to_state(cell) if at in states and number else cell for at, cell in enumerate(padded)]
        sys.stdout.write(GAP.join(colored).rstrip() + "\n")


def print_facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Print `Name:   value` lines with aligned values. Pairs with an empty value are left out."""
    given = [(f"{name}:", escape_line(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in given), default=0)
    for name, value in given:
        shown = style.apply_to_state(value) if name.rstrip(":") in style.STATE_COLUMNS else value
        sys.stdout.write(f"{name.ljust(width)}{GAP}{shown}\n")


def describe_empty(title: str, titles: str, others: int) -> str:
    """Return the message for an empty list. `others` is the number of objects that a selector does not match."""
    if not others:
        return f"There are no {titles}."
    return f"No {title} has matching labels; there {'is' if others == 1 else 'are'} {others} without --label."


def truncate(text: str, width: int) -> str:
    """Return the text in at most `width` cells of a terminal, with dots if it was cut."""
    if len(text) * _MAX_CHAR_CELLS <= width or display_width(text) <= width:
        return text
    room, dots = max(width - 3, 0), "..."[: max(width, 0)]
    if text.isascii():
        return text[:room] + dots
    from rich.cells import set_cell_size

    return set_cell_size(text, room) + dots


def display_width(text: str) -> int:
    """Return the width in cells of a terminal. Chinese characters and emoji take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def capitalize(text: str) -> str:
    """Return the text with an upper-case first letter."""
    return text[:1].upper() + text[1:]


def escape_line(text: str) -> str:
    """Return the text as one line, with control characters escaped and white space replaced by spaces."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else _escape(char) for char in text)


def escape_controls(text: str) -> str:
    """Return the text with control characters escaped, except line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(char if _is_harmless(char) else _escape(char) for char in text)


def _is_harmless(char: str) -> bool:
    """Return whether the character cannot control a terminal: it is no control (C0, C1) and no bidirectional control.

    Line feeds, tabs and Unicode spaces are harmless too.
    """
    return char.isprintable() or char in _LAYOUT or (char.isspace() and char >= "\xa0")


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def timestamp(ms: int) -> str:
    """Format Unix milliseconds as `2026-01-02T03:04:05.678Z`."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age(timestamp: str) -> str:
    """Return the age of an RFC 3339 time in whole units, the largest that fits: `5s`, `3m`, `2h`, `4d`.

    An invalid time is returned unchanged.
    """
    from datetime import UTC, datetime

    try:
        then = datetime.fromisoformat(timestamp)
    except ValueError:
        return timestamp
    seconds = max(int((datetime.now(UTC) - then).total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def yaml_lines(data: Any) -> list[str]:
    """Return data as lines of YAML."""
    return _yaml(data, unicode=True).splitlines()


def _json(data: Any, *, unicode: bool) -> str:
    import json

    # DEL is the only control character that `json.dumps` leaves in ASCII text.
    return json.dumps(data, indent=2, ensure_ascii=not unicode).replace("\x7f", "\\u007f") + "\n"


def _yaml(data: Any, *, unicode: bool) -> str:
    import yaml

    from dayfly.spec.parsing.yaml_scalars import resolve

    class Dumper(yaml.SafeDumper):
        """Writes multi-line text as literal blocks, and quotes text that YAML would read back as another value."""

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
