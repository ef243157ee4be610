"""A rough parser for shell scripts: commands with their places and conditions, and the sources of variables.

It knows lines, quotes, comments, here-documents, and the words that begin and end a condition. It is not a shell: a
construct that it cannot follow is unknown, and rules then report nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh"})
UNKNOWN = "unknown"
RANDOM = "random"

_HERE = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)(\w+)\1")
_VARIABLE = re.compile(r"\$(?:\{[#!]?(\w+)[^}]*\}|(\w+)|([@*]))")
_ASSIGNMENT = re.compile(
    r"(?:(?:export|local|readonly|declare|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)\+?=(.*)", re.DOTALL
)
_RANDOM = re.compile(r"/dev/u?random|\buuidgen\b|\bmktemp\b|\$\{?RANDOM\b|openssl\s+rand|random/uuid|\bpwgen\b")
_SPLIT = re.compile(r";;?|&&|\|\|?|(?<![<>&])&(?![>&])|[()\n]|(?:(?<=\s)|^)[{}](?=\s|$)")
_OPENS = re.compile(r"^\s*(if|case|while|until|for)\b")
_CLOSES = re.compile(r"(?:^|[;\s])(fi|esac|done)\b")
_LEADING = re.compile(
    r"^\s*(?:(?:then|do|else|elif|if|while|until|!|\{|time|exec|sudo)\s+|\w+=(?:\"[^\"]*\"|'[^']*'|[^\s\"']*)\s+(?=\S))*"
)


class Command(NamedTuple):
    """One simple command: its words as written, and the token after it: `|`, `)`, `&&` ..., or none."""

    text: str
    then: str

    @property
    def program(self) -> str:
        """The program or builtin."""
        return (self.text.split(maxsplit=1) or [""])[0]

    @property
    def is_logged(self) -> bool:
        """Whether its output reaches the log: it is not piped, captured, or written to a file."""
        redirected = re.sub(r"\d?>&[12]\b|2>\s*\S+", "", blank(self.text))
        return ">" not in redirected and self.then not in ("|", ")")


class Statement(NamedTuple):
    """A line with its continuations, without comments. `body` is its here-document, `guards` are its conditions."""

    line: int
    text: str
    body: str = ""
    guards: tuple[str, ...] = ()

    @property
    def is_guarded(self) -> bool:
        """Whether its failure may be intended: it depends on a condition, or handles the failure."""
        return any(not guard.startswith("for") for guard in self.guards) or bool(
            re.search(r"\|\||&&|^\s*(!|if|while|until)\s", self.text)
        )

    @property
    def commands(self) -> list[Command]:
        """Its simple commands, with those inside `$(...)` unless they are in quotes."""
        found, begin = [], 0
        hidden = blank(self.text)
        for match in _SPLIT.finditer(hidden):
            found.append(Command(self._bare(begin, match.start()), match[0]))
            begin = match.end()
        found.append(Command(self._bare(begin, len(self.text)), ""))
        return [each for each in found if each.text]

    def _bare(self, begin: int, end: int) -> str:
        return _LEADING.sub("", self.text[begin:end]).strip()


class Script(NamedTuple):
    """A script: its text, its interpreter's name and the interpreter's arguments."""

    text: str
    interpreter: str
    flags: str

    @property
    def is_shell(self) -> bool:
        return self.interpreter in SHELLS

    @property
    def statements(self) -> Iterator[Statement]:
        return _statements(self.text)


def read(text: str) -> Script:
    """Return a script with the interpreter of its first line, without `/usr/bin/env`."""
    words = text.partition("\n")[0].removeprefix("#!").split()
    if words and words[0].endswith("/env"):
        words = [word for word in words[1:] if not word.startswith("-")]
    name = words[0].rsplit("/", 1)[-1] if words else ""
    return Script(text, name, " ".join(words[1:]))


def variables(text: str) -> set[str]:
    """Return the variables in a text, also within single quotes."""
    return {match[1] or match[2] or match[3] for match in _VARIABLE.finditer(text)}


def expanded_variables(text: str) -> set[str]:
    """Return the variables that the shell would expand: not those within single quotes."""
    return variables(_without_single_quoted(text))


def blank(text: str) -> str:
    """Return the same text with blanks for quoted characters."""
    return "".join(" " if quoted else char for char, quoted in _quoted(text))


def value_sources(statements: list[Statement], known: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the sources of each variable's value. `known` has those of variables from outside."""
    found = {name: frozenset({kind}) for name, kind in known.items()}
    for statement in statements:
        for command in _split_assignments(statement.text):
            if match := _ASSIGNMENT.fullmatch(command):
                found[match[1]] = found.get(match[1], frozenset()) | text_sources(match[2], found)
        for match in re.finditer(r"\b(?:read\s+(?:-\w+\s+)*|for\s+)(\w+)", statement.text):
            found.setdefault(match[1], frozenset({UNKNOWN}))
    return found


def text_sources(text: str, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the sources of a text, by its variables. The output of a command without variables has unknown sources."""
    found: frozenset[str] = frozenset()
    for name in variables(text):
        found |= known.get(name, frozenset({UNKNOWN}))
    if _RANDOM.search(text):
        return found | {RANDOM}
    return found | {UNKNOWN} if not found and ("$(" in text or "`" in text) else found


def _split_assignments(text: str) -> Iterator[str]:
    """Return parts of a statement that may be assignments. A value includes the commands that produce it."""
    hidden, depth, begin = blank(text), 0, 0
    for at, char in enumerate(hidden):
        depth += (char == "(") - (char == ")")
        if char in ";&|" and depth == 0:
            yield _strip(text[begin:at])
            begin = at + 1
    yield _strip(text[begin:])


def _strip(part: str) -> str:
    return re.sub(r"^\s*(?:then|do|else|if|\{)\s+", "", part).strip()


def _statements(text: str) -> Iterator[Statement]:
    guards: list[str] = []
    lines = text.split("\n")
    at = 1 if lines and lines[0].startswith("#!") else 0
    while at < len(lines):
        begin, parts, state = at, [_uncommented(lines[at])], ""
        at += 1
        # Each part is scanned once, with the quote that is open before it: a whole script may be one quote.
        while at < len(lines) and _is_continued(parts[-1], state := _open_quote(parts[-1], state)):
            parts[-1] = parts[-1].removesuffix("\\") + ("\n" if state else " ")
            parts.append(_uncommented(lines[at], within=state))
            at += 1
        joined = "".join(parts)
        body: list[str] = []
        for mark in _here_documents(joined):
            while at < len(lines) and lines[at].strip() != mark:
                body.append(lines[at])
                at += 1
            at += 1
        if joined.strip():
            _leave(joined, guards)
            yield Statement(begin + 1, joined.strip(), "\n".join(body), tuple(guards))
            _enter(joined, guards)


def _here_documents(text: str) -> list[str]:
    hidden = blank(text)
    return [match[2] for match in _HERE.finditer(text) if hidden[match.start()] == "<"]


def _leave(text: str, guards: list[str]) -> None:
    """Return the conditions that end at the start of this line. A condition that ends in its own line never began."""
    if guards and re.match(r"^\s*(fi|esac|done)\b", text):
        guards.pop()


def _enter(text: str, guards: list[str]) -> None:
    hidden = blank(text)
    if (match := _OPENS.match(hidden)) and not _CLOSES.search(hidden, match.end()):
        guards.append(text.strip())


def _is_continued(text: str, quote: str) -> bool:
    return bool(quote) or text.endswith("\\") or text.rstrip().endswith(("|", "&&"))


def _open_quote(text: str, within: str) -> str:
    """Return the quote that is still open at the end of a text."""
    *_, last = within, *_quote_states(text, within)
    return last


def _uncommented(line: str, *, within: str = "") -> str:
    """Return a line without its comment."""
    state = within
    for at, char in enumerate(line):
        if not state and char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at].rstrip()
        state = _quote_after(state, char, line[at - 1] if at else "")
    return line


def _quote_states(text: str, within: str = "") -> Iterator[str]:
    state, before = within, ""
    for char in text:
        state = _quote_after(state, char, before)
        yield state
        before = "" if before == "\\" else char


def _quote_after(state: str, char: str, before: str) -> str:
    """Return the quote that is open after a character."""
    if char == state and (char == "'" or before != "\\"):
        return ""
    if not state and char in "'\"" and before != "\\":
        return char
    return state


def _quoted(text: str) -> Iterator[tuple[str, bool]]:
    before = ""
    for char, state in zip(text, _quote_states(text), strict=True):
        yield char, bool(state or before)
        before = state


def _without_single_quoted(text: str) -> str:
    before, kept = "", []
    for char, state in zip(text, _quote_states(text), strict=True):
        kept.append(" " if "'" in (state, before) else char)
        before = state
    return "".join(kept)
