"""A file with its document, its text and its embedded files; and the place of a line of a script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.spec.errors import Path
    from dayfly.spec.parsing.text import ParsedDocument

_EMBED = re.compile(r"\s*@\{\s*embed\s*(?:\[raw\])?\s*:\s*([^}]*[^}\s])\s*\}\s*")
_BLOCK = re.compile(r":\s*\|[-+0-9]*\s*(#.*)?$")
_SILENCED = re.compile(r"#.*\bdayfly:\s*ignore=([A-Za-z0-9]+(?:\s*,\s*[A-Za-z0-9]+)*)")


class Embedded(NamedTuple):
    """An embedded file: its name for messages, and its text."""

    file: str
    text: str


class SourcePosition(NamedTuple):
    """A place in a file; 0 = not known."""

    file: str
    line: int = 0
    column: int = 0


class Source(NamedTuple):
    """One document of a file.

    Attributes:
        written: The parsed document with its directives.
        document: The same with expanded directives.
        text: The whole file.
        embedded: Its embedded files, by the path in the directive.
    """

    written: ParsedDocument
    document: ParsedDocument
    text: str = ""
    embedded: Mapping[str, Embedded] = {}

    def position_of(self, keys: Path, line: int = 0) -> SourcePosition:
        """Return the place of a value, or of a line (from 1) of a script."""
        fault = self.written.error("", keys)
        here = SourcePosition(fault.file, fault.line, fault.column)
        if not line:
            return here
        written = _value_at(self.written.data, keys)
        if isinstance(written, str) and (match := _EMBED.fullmatch(written)):
            found = self.embedded.get(match[1])
            return SourcePosition(found.file, line) if found else here
        lines = self.text.splitlines()
        if 0 < here.line <= len(lines) and _BLOCK.search(lines[here.line - 1]):
            return SourcePosition(here.file, here.line + line)
        return here

    def silences(self, place: SourcePosition, code: str) -> bool:
        """Return whether a comment in this line, or in its own line above, silences the rule."""
        inner = next((each.text for each in self.embedded.values() if each.file == place.file), None)
        lines = (self.text if inner is None else inner).splitlines()
        around = lines[place.line - 1 : place.line] if place.line else []
        if place.line > 1 and lines[place.line - 2 : place.line - 1] and lines[place.line - 2].lstrip().startswith("#"):
            around.append(lines[place.line - 2])
        return any(
            code in (word.strip().upper() for word in match[1].split(","))
            for line in around
            if (match := _SILENCED.search(line))
        )


def has_directive(document: ParsedDocument, keys: Path) -> bool:
    """Return whether a value is, or contains, a variable without a value."""
    found = _value_at(document.data, keys)
    return isinstance(found, str) and "@{" in found


def _value_at(data: Any, keys: Path) -> Any:
    for key in keys:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return None
    return data
