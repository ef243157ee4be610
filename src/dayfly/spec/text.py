"""YAML or JSON text to plain data, with a place for every value and a bound on every cost.

YAML is read as Kubernetes reads it (YAML 1.1 on its way to JSON): `on`, `off`, `yes`, `no`, `y`, `n` are booleans,
`012` is octal, dates and `1:30` are strings. What Kubernetes would let pass and people regret is refused: aliases,
duplicate keys, keys that are no strings. The parser's events are read one at a time, so a bomb ends at the first event
past a limit.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from dayfly.spec.errors import Path, SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 10_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# What YAML does not allow, and the line ends of old that its parsers would turn into others without a word.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_ESCAPED_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{form: True for word in ("y", "yes", "on", "true") for form in (word, word.capitalize(), word.upper())},
    **{form: False for word in ("n", "no", "off", "false") for form in (word, word.capitalize(), word.upper())},
}
_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES = {"0x": 16, "0b": 2, "0o": 8}
_SMALLEST, _LARGEST = -(2**63), 2**64
_STRING_TAGS = ("tag:yaml.org,2002:str", "!")
_COLLECTION_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!")


class Document(msgspec.Struct, frozen=True):
    """One document of a file.

    Attributes:
        data: Dicts with string keys, lists, strings, booleans, integers, floats and None.
        marks: Line and column (from 1) of each value; for a mapping's entry, those of its key.
        spelled: How a plain word that became a boolean or a number was written.
        file: Name of the file, for messages.
    """

    data: Any
    marks: dict[Path, tuple[int, int]]
    spelled: dict[Path, str]
    file: str = ""

    def error(self, problem: str, keys: Path = ()) -> SpecError:
        """A `SpecError` with the place of the value at `keys`, or of the nearest value around it."""
        for end in range(len(keys), -1, -1):
            if keys[:end] in self.marks:
                line, column = self.marks[keys[:end]]
                return SpecError(problem, keys, file=self.file, line=line, column=column)
        return SpecError(problem, keys, file=self.file)

    def placed(self, fault: SpecError) -> SpecError:
        """The fault, and the others in it, with their places in this document."""
        found = fault if fault.file or fault.line else self.error(fault.problem, fault.keys)
        found.others = tuple(self.placed(other) for other in fault.others)
        return found


def parse(text: str | bytes, *, file: str) -> list[Document]:
    """Read all documents of a YAML or JSON text; empty ones are left out.

    Raises:
        SpecError: not UTF-8, not YAML (nor JSON, by the file's name), past a limit, or refused as said above; with line
            and column.
    """
    decoded = _decode(text, file)
    try:
        return list(_Builder(file).documents(yaml.parse(decoded, Loader=_LOADER)))
    except yaml.MarkedYAMLError as fault:
        raise _explain(fault, decoded, file) from None


def parse_one(text: str | bytes, *, file: str) -> Document:
    """As `parse`, for a text that must hold exactly one document."""
    documents = parse(text, file=file)
    if len(documents) != 1:
        raise SpecError(f"expected one document, found {len(documents)}", file=file)
    return documents[0]


def dump(data: Any) -> str:
    """Plain data as YAML that `parse` and Kubernetes read as the same: words like `on` quoted, scripts as blocks."""
    written: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return written


def check_bounds(data: Any) -> None:
    """Hold data that came without text (a request's body) to the same depth, number of values and ban on NUL.

    JSON decoders let pass what no text of ours can hold: halves of surrogate pairs, numbers past 64 bits.
    """
    count = 0
    waiting: list[tuple[Any, Path]] = [(data, ())]
    while waiting:
        value, keys = waiting.pop()
        count += 1
        if count > MAX_NODES or len(keys) > MAX_DEPTH:
            raise SpecError(f"at most {MAX_NODES} values, nested at most {MAX_DEPTH} deep, are read", keys[:8])
        if isinstance(value, dict):
            for key in value:
                _check_string(key, keys)
            waiting += [(item, (*keys, key)) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(item, (*keys, index)) for index, item in enumerate(value)]
        elif isinstance(value, str):
            _check_string(value, keys)
        elif isinstance(value, int | float) and not _SMALLEST <= value < _LARGEST:
            raise SpecError(f"must be a number from {_SMALLEST} to {_LARGEST - 1}", keys)


class _Builder:
    """Turns the parser's events into documents, counting as it goes."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.nodes = 0
        self.marks: dict[Path, tuple[int, int]] = {}
        self.spelled: dict[Path, str] = {}

    def documents(self, events: Iterator[yaml.Event]) -> Iterator[Document]:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.marks, self.spelled = {}, {}
                start = next(events)
                self.marks[()] = _place(start)
                data = self.value(start, events, ())
                if data is not None:
                    yield Document(data=data, marks=self.marks, spelled=self.spelled, file=self.file)

    def value(self, event: yaml.Event, events: Iterator[yaml.Event], keys: Path) -> Any:
        self.admit(event, keys)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, keys)
        if len(keys) >= MAX_DEPTH:
            raise self.error(event, f"nested more than {MAX_DEPTH} deep", keys[:8])
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(events, keys)
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            here = (*keys, len(items))
            self.marks[here] = _place(event)
            items.append(self.value(event, events, here))
        return items

    def mapping(self, events: Iterator[yaml.Event], keys: Path) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self.key(event, keys)
            here = (*keys, key)
            if key in entries:
                first = self.marks[here][0]
                raise self.error(event, f"the key {quote(key)} appears twice; the first is in line {first}", here)
            self.marks[here] = _place(event)
            entries[key] = self.value(next(events), events, here)
        return entries

    def key(self, event: yaml.Event, keys: Path) -> str:
        self.admit(event, keys)
        if not isinstance(event, yaml.ScalarEvent):
            raise self.error(event, "a key must be a string, not a mapping or a list", keys)
        key = self.scalar(event, keys)
        self.spelled.pop(keys, None)
        if not isinstance(key, str):
            kind = "nothing" if key is None else kind_of(key)
            raise self.error(
                event, f"{quote(event.value)} is {kind} in YAML; write {quote(event.value)} in quotes", keys
            )
        return key

    def admit(self, event: yaml.Event, keys: Path) -> None:
        """Refuse what no value or key may be, and count the rest."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.error(event, f"more than {MAX_NODES} keys and values")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.error(event, "anchors and aliases (& and *) are not read; write the value out", keys)
        tag = getattr(event, "tag", None)
        if tag and tag not in (_STRING_TAGS if isinstance(event, yaml.ScalarEvent) else _COLLECTION_TAGS):
            raise self.error(event, f"the tag {quote(tag)} is not read; leave it out", keys)

    def scalar(self, event: yaml.ScalarEvent, keys: Path) -> Any:
        text: str = event.value
        if "\0" in text:
            raise self.error(event, "contains a NUL character, which scripts, variables and paths cannot have", keys)
        if not event.implicit[0] or event.tag:
            return text
        try:
            value = resolve(text)
        except ValueError:
            raise self.error(
                event, f"{quote(text)} cannot be written in JSON; write it in quotes if it is text", keys
            ) from None
        if not isinstance(value, str) and value is not None:
            self.spelled[keys] = text
        return value

    def error(self, event: yaml.Event, problem: str, keys: Path = ()) -> SpecError:
        line, column = _place(event)
        return SpecError(problem, keys, file=self.file, line=line, column=column)


class _Dumper(_DUMPER):  # type: ignore[misc]  # the C or the Python one, whichever is there
    """PyYAML's, but it quotes what YAML 1.1 would not leave a string, and repeats values instead of naming them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  -- the name and arity are PyYAML's
        return True

    def write_string(self, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        if _FORBIDDEN.search(value) or not _is_plain(value):
            style = '"'
        node: yaml.ScalarNode = self.represent_scalar(_STRING_TAGS[0], value, style=style)
        return node


_Dumper.add_representer(str, _Dumper.write_string)


def resolve(word: str) -> Any:
    """What a plain word means: None, a boolean, an integer, a float, or itself.

    Raises:
        ValueError: infinite or not a number, which JSON cannot say.
    """
    if word in _WORDS:
        return _WORDS[word]
    if match := _INTEGER.fullmatch(word):
        digits = match[2].replace("_", "").lower()
        base = _BASES.get(digits[:2], 8 if digits[0] == "0" else 10)
        number = int(match[1] + digits, base) if len(digits) <= 66 and digits not in _BASES else _LARGEST
        if _SMALLEST <= number < _LARGEST:
            return number
    if _FLOAT.fullmatch(word):
        value = float(word.replace("_", ""))
        if value in (float("inf"), float("-inf")):
            raise ValueError(word)
        return value
    if _NOT_FINITE.fullmatch(word):
        raise ValueError(word)
    return word


def _is_plain(word: str) -> bool:
    """Whether a word without quotes would stay a string."""
    try:
        return isinstance(resolve(word), str)
    except ValueError:
        return False


def kind_of(value: Any) -> str:
    """A value's kind in the words of a message, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a mapping" if isinstance(value, dict) else "a list"


def _check_string(value: str, keys: Path) -> None:
    if "\0" in value:
        raise SpecError("contains a NUL character, which scripts, variables and paths cannot have", keys)
    try:
        value.encode()
    except UnicodeEncodeError as fault:
        raise SpecError(f"holds half of a surrogate pair at character {fault.start}; write both", keys) from None


def _place(event: yaml.Event) -> tuple[int, int]:
    mark: Any = event.start_mark  # the stubs allow None, for events that were not read from a text
    return mark.line + 1, mark.column + 1


def _decode(source: str | bytes, file: str) -> str:
    size = len(source)
    if size > MAX_BYTES:
        raise SpecError(f"{size} bytes are too many; at most {MAX_BYTES} are read", file=file)
    text = source if isinstance(source, str) else _decode_utf8(source, file)
    text = text.removeprefix("\ufeff")
    if match := _FORBIDDEN.search(text):
        at = match.start()
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        problem = (
            f"the character U+{ord(match[0]):04X} may not stand in a text file; remove it or write it as an escape"
        )
        raise SpecError(problem, file=file, line=line, column=column)
    return _join_surrogates(text)


def _decode_utf8(text: bytes, file: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as fault:
        line = text.count(b"\n", 0, fault.start) + 1
        column = fault.start - text.rfind(b"\n", 0, fault.start)
        problem = f"not UTF-8 at byte {fault.start}; save the file as UTF-8"
        raise SpecError(problem, file=file, line=line, column=column) from None


def _join_surrogates(text: str) -> str:
    r"""Write JSON's `\ud83d\ude00` as YAML's `\U0001F600`; only in a text that is JSON throughout."""
    if "\\u" not in text or text.lstrip()[:1] not in ("{", "["):
        return text
    joined = _ESCAPED_PAIR.sub(_join_pair, text)
    if joined != text:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return text
    return joined


def _join_pair(match: re.Match[str]) -> str:
    high, low = int(match[2], 16), int(match[3], 16)
    return f"{match[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"


def _explain(fault: yaml.MarkedYAMLError, text: str, file: str) -> SpecError:
    mark = fault.problem_mark or fault.context_mark
    assert mark is not None, "scanner and parser always say where"
    line, column = mark.line, mark.column
    lines = text.splitlines()
    if line < len(lines) and lines[line][column : column + 1] == "\t":
        problem = "a tab cannot indent YAML; use spaces"
    else:
        problem = ", ".join(part for part in (fault.context, fault.problem) if part)
        braced = text.lstrip()[:1] in ("{", "[")
        problem = (
            f"{'not JSON' if file.endswith('.json') else 'neither JSON nor YAML' if braced else 'not YAML'}: {problem}"
        )
    return SpecError(problem, file=file, line=line + 1, column=column + 1)
