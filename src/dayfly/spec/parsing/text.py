"""YAML or JSON text as plain data, with a place for every value and a limit for every cost.

YAML is read as Kubernetes reads it (YAML 1.1 converted to JSON): `on`, `off`, `yes`, `no`, `y`, `n` are booleans, `012`
is octal, dates and `1:30` are strings. Aliases and merge keys (`<<`) refer to anchors of the same document. Unlike
Kubernetes, duplicate keys and keys that are not strings are refused. The parser's events are read one by one, and an
alias counts as all its values, so an alias bomb ends at the first event beyond a limit.
"""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import yaml

from dayfly.spec import shared_inputs
from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.parsing.yaml_faults import syntax_fault
from dayfly.spec.parsing.yaml_scalars import INTEGER_LIMIT, MIN_INTEGER, is_plain, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 10_000
BYTE_ORDER_MARK = "\ufeff"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Characters that YAML does not allow, and old line ends that its parsers would silently convert.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
# UTF-16 and UTF-32: a byte order mark, or two ASCII characters.
_WIDE = re.compile(rb"\xff\xfe|\xfe\xff|\0\0\xfe\xff|[^\0]\0[^\0]\0|\0[^\0]\0[^\0]")
_ESCAPED_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")

_MERGE = "<<"
_STRING_TAGS = ("tag:yaml.org,2002:str", "!")
_COLLECTION_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!")


class NotTextError(Exception):
    """A file that is not UTF-8. The message names its encoding; `at` is the offset of the byte."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem)
        self.at = at


class ParsedDocument(msgspec.Struct, frozen=True):
    """One document of a file.

    Attributes:
        data: Dicts with string keys, lists, strings, booleans, integers, floats and None.
        marks: Line and column (from 1) of each value; for a mapping's entry, those of its key.
        spelled: The text of an unquoted word that became a boolean or a number.
        file: Name of the file, for messages.
        embedded: Paths of the files that are embedded whole, by the path of their text.
    """

    data: Any
    marks: dict[Path, tuple[int, int]]
    spelled: dict[Path, str]
    file: str = ""
    embedded: dict[Path, str] = {}

    def error(self, problem: str, keys: Path = ()) -> SpecError:
        """Return a `SpecError` with the place of the value at `keys`, or of the nearest value around it.

        A copy of a plugin's shared input has the place of that input.
        """
        keys = shared_inputs.find_written(self.data, keys)
        if keys in self.embedded:
            problem = f"{self.embedded[keys]}: {problem}"
        for end in range(len(keys), -1, -1):
            if keys[:end] in self.marks:
                line, column = self.marks[keys[:end]]
                return SpecError(problem, keys, file=self.file, line=line, column=column)
        return SpecError(problem, keys, file=self.file)

    def with_positions(self, fault: SpecError) -> SpecError:
        """Return the fault, and the others in it, with their places in this document."""
        found = fault if fault.file or fault.line else self.error(fault.problem, fault.keys)
        found.others = tuple(self.with_positions(other) for other in fault.others)
        return found


def parse(text: str | bytes, *, file: str) -> list[ParsedDocument]:
    """Return all documents of a YAML or JSON text, without empty ones.

    Raises:
        SpecError: It is not UTF-8, not YAML (nor JSON, by the file's name), beyond a limit, or refused as described
            above; with line and column.
    """
    decoded = _decode(text, file)
    try:
        return list(_Builder(file).documents(yaml.parse(decoded, Loader=_LOADER)))
    except yaml.MarkedYAMLError as fault:
        raise syntax_fault(fault, decoded, file) from None


def parse_one(text: str | bytes, *, file: str) -> ParsedDocument:
    """Return the only document of a text."""
    documents = parse(text, file=file)
    if len(documents) != 1:
        raise SpecError(f"expected one document, found {len(documents)}", file=file)
    return documents[0]


def dump(data: Any) -> str:
    """Return plain data as YAML that `parse` and Kubernetes read alike: words like `on` quoted, scripts as blocks."""
    written: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    return written


def check_bounds(data: Any) -> None:
    """Check data that did not come as text (a request's body) for the same depth, number of values and NUL characters.

    JSON decoders accept values that no text of ours can have: halves of surrogate pairs, and numbers beyond 64 bits.
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
        elif isinstance(value, int | float) and not MIN_INTEGER <= value < INTEGER_LIMIT:
            raise SpecError(f"must be a number from {MIN_INTEGER} to {INTEGER_LIMIT - 1}", keys)


class _Anchored(NamedTuple):
    """A value with an anchor: its place, and the numbers of its values by depth."""

    value: Any
    keys: Path
    nodes: int
    depth: int


class _Builder:
    """Builds documents from the parser's events, and counts their values."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.nodes = 0
        self.marks: dict[Path, tuple[int, int]] = {}
        self.spelled: dict[Path, str] = {}
        self.anchors: dict[str, _Anchored | None] = {}

    def documents(self, events: Iterator[yaml.Event]) -> Iterator[ParsedDocument]:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.marks, self.spelled, self.anchors = {}, {}, {}
                start = next(events)
                self.marks[()] = _position(start)
                data = self.value(start, events, ())
                if data is not None:
                    yield ParsedDocument(data=data, marks=self.marks, spelled=self.spelled, file=self.file)

    def value(self, event: yaml.Event, events: Iterator[yaml.Event], keys: Path) -> Any:
        self.admit(event, keys)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, keys)
        anchor: str | None = getattr(event, "anchor", None)
        if anchor is None:
            return self.content(event, events, keys)
        self.anchors[anchor], before = None, self.nodes
        value = self.content(event, events, keys)
        self.anchors[anchor] = _Anchored(value, keys, self.nodes - before + 1, _depth(value))
        return value

    def alias(self, event: yaml.AliasEvent, keys: Path) -> Any:
        """Return the value of an anchor, as if it were repeated here."""
        name = str(event.anchor)
        found = self.anchors.get(name)
        if found is None:
            why = "is inside its own anchor" if name in self.anchors else f"has no anchor &{name} before it"
            raise self.error(event, f"the alias *{name} {why}; write it in quotes if it is text", keys)
        self.nodes += found.nodes
        self.check_count(event)
        if len(keys) + found.depth > MAX_DEPTH:
            raise self.error(event, f"nested more than {MAX_DEPTH} deep", keys[:8])
        self.copy_places(found.value, found.keys, keys, _position(event))
        return copy.deepcopy(found.value)

    def copy_places(self, value: Any, source: Path, target: Path, place: tuple[int, int]) -> None:
        """Record the place of a repeated value, and the spelling of its words."""
        for within in _paths(value):
            self.marks.setdefault((*target, *within), place)
            if (word := self.spelled.get((*source, *within))) is not None:
                self.spelled[*target, *within] = word

    def content(self, event: yaml.Event, events: Iterator[yaml.Event], keys: Path) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, keys)
        if len(keys) >= MAX_DEPTH:
            raise self.error(event, f"nested more than {MAX_DEPTH} deep", keys[:8])
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(events, keys)
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            here = (*keys, len(items))
            self.marks[here] = _position(event)
            items.append(self.value(event, events, here))
        return items

    def mapping(self, events: Iterator[yaml.Event], keys: Path) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        merged: list[tuple[yaml.Event, Path, dict[str, Any]]] = []
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self.key(event, keys)
            here = (*keys, key)
            if here in self.marks:
                first = self.marks[here][0]
                raise self.error(event, f"the key {quote(key)} appears twice; the first is in line {first}", here)
            self.marks[here] = _position(event)
            value = self.value(next(events), events, here)
            if key == _MERGE and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                merged += self.merge(event, value, here)
            else:
                entries[key] = value
        for event, source, more in merged:
            for key, value in more.items():
                if key not in entries:
                    entries[key] = value
                    self.marks[*keys, key] = _position(event)
                    self.copy_places(value, (*source, key), (*keys, key), _position(event))
        return entries

    def merge(self, event: yaml.Event, value: Any, keys: Path) -> list[tuple[yaml.Event, Path, dict[str, Any]]]:
        """Return the mappings of a merge key with their places; earlier ones have precedence."""
        sources = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        if not all(isinstance(each, dict) for _, each in sources):
            raise self.error(event, "a merge key (<<) takes a mapping, or a list of mappings", keys)
        return [(event, keys if at is None else (*keys, at), each) for at, each in sources]

    def key(self, event: yaml.Event, keys: Path) -> str:
        self.admit(event, keys)
        if isinstance(event, yaml.AliasEvent):
            key = self.alias(event, keys)
        elif isinstance(event, yaml.ScalarEvent):
            key = self.scalar(event, keys)
            if event.anchor is not None:
                self.anchors[event.anchor] = _Anchored(key, (*keys, key), 1, 0)
        else:
            raise self.error(event, "a key must be a string, not a mapping or a list", keys)
        self.spelled.pop(keys, None)
        if not isinstance(key, str):
            kind = "nothing" if key is None else kind_of(key)
            word = getattr(event, "value", f"*{getattr(event, 'anchor', '')}")
            raise self.error(event, f"{quote(word)} is {kind} in YAML; write {quote(word)} in quotes", keys)
        return key

    def admit(self, event: yaml.Event, keys: Path) -> None:
        """Refuse an invalid value or key, and count the others."""
        self.nodes += 1
        self.check_count(event)
        tag = getattr(event, "tag", None)
        if tag and tag not in (_STRING_TAGS if isinstance(event, yaml.ScalarEvent) else _COLLECTION_TAGS):
            raise self.error(event, f"the tag {quote(tag)} is not supported; leave it out", keys)

    def check_count(self, event: yaml.Event) -> None:
        if self.nodes > MAX_NODES:
            raise self.error(event, f"more than {MAX_NODES} keys and values, including those of aliases")

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
                event, f"{quote(text)} is not possible in JSON; write it in quotes if it is text", keys
            ) from None
        if not isinstance(value, str) and value is not None:
            self.spelled[keys] = text
        return value

    def error(self, event: yaml.Event, problem: str, keys: Path = ()) -> SpecError:
        line, column = _position(event)
        return SpecError(problem, keys, file=self.file, line=line, column=column)


class _Dumper(_DUMPER):  # type: ignore[misc]  # the C or the Python one, whichever is there
    """PyYAML's dumper, with quotes for words that YAML 1.1 would convert, and without aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  -- the name and arity are PyYAML's
        return True

    def write_string(self, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        if _FORBIDDEN.search(value) or not is_plain(value):
            style = '"'
        node: yaml.ScalarNode = self.represent_scalar(_STRING_TAGS[0], value, style=style)
        return node


_Dumper.add_representer(str, _Dumper.write_string)


def kind_of(value: Any) -> str:
    """Return a value's kind with its article, for a message."""
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
        raise SpecError(f"contains half of a surrogate pair at character {fault.start}; write both", keys) from None


def _paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path to each value within a value, the value itself first."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _paths(item, (*at, key))


def _depth(value: Any) -> int:
    return max(map(len, _paths(value)))


def _position(event: yaml.Event) -> tuple[int, int]:
    mark: Any = event.start_mark  # the stubs allow None, for events without a text
    return mark.line + 1, mark.column + 1


def _decode(source: str | bytes, file: str) -> str:
    size = len(source)
    if size > MAX_BYTES:
        raise SpecError(f"{size} bytes are too many; the limit is {MAX_BYTES}", file=file)
    text = source if isinstance(source, str) else _decode_utf8(source, file)
    text = text.removeprefix(BYTE_ORDER_MARK)
    if match := _FORBIDDEN.search(text):
        at = match.start()
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        problem = (
            f"the character U+{ord(match[0]):04X} is not allowed in a text file; remove it or write it as an escape"
        )
        raise SpecError(problem, file=file, line=line, column=column)
    return _join_surrogates(text)


def decode(content: bytes) -> str:
    """Return a file's content as text, without a byte order mark.

    Raises:
        NotTextError: the content is not UTF-8.
    """
    if _WIDE.match(content):
        raise NotTextError("UTF-16, not UTF-8", 0)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise NotTextError(f"not UTF-8 at byte {fault.start}", fault.start) from None


def _decode_utf8(text: bytes, file: str) -> str:
    try:
        return decode(text)
    except NotTextError as fault:
        line = text.count(b"\n", 0, fault.at) + 1
        column = fault.at - text.rfind(b"\n", 0, fault.at)
        raise SpecError(f"{fault}; save the file as UTF-8", file=file, line=line, column=column) from None


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
