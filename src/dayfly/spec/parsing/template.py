"""`@{...}` in a document's strings: variables from the command line, and the content of other files.

A directive is `@{name}` or `@{embed: path}`, with an optional encoding in brackets: `[raw]` (the default) is text,
`[yaml]` the parsed value, `[binary]` base64. A string that consists of one directive may become any value; a longer
string may contain only raw directives. Inserted text is not expanded again, and there is no escape, so text cannot
become code.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.parsing import text
from dayfly.spec.parsing.text import ParsedDocument
from dayfly.spec.scalars.numbers import parse_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_DIRECTIVE = re.compile(r"@\{[^}]+\}")
_VARIABLE = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]*")
_WORD = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\])?")
_ENCODINGS = ("raw", "yaml", "binary")

_USERS_OWN_MAPS = ("labels", "params")
"""Mappings with users' own keys. A `port` in them is not a port number and stays a string."""
_MAX_PORT = 9_999_999_999
"""The limit for a written number. The document's parser checks whether it is a port."""
_HOOKS: Path = ("spec", "hooks")
_RESOURCES: Path = ("spec", "resources")


def parse_sets(pairs: Iterable[str]) -> dict[str, str]:
    """Return the variables of `--set` arguments of the form `name=value`. The value may contain `=` or be empty.

    Raises:
        SpecError: No `=`, a bad name, or two values for one name.
    """
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SpecError(f"--set expects <var>=<val> syntax, got {quote(pair)}")
        if not _VARIABLE.fullmatch(name):
            raise SpecError(f"invalid variable name: {quote(name)}")
        values = found.setdefault(name, [])
        if value not in values:
            values.append(value)
    conflicts = [f"\n\t{name}: {', '.join(values)}" for name, values in sorted(found.items()) if len(values) > 1]
    if conflicts:
        raise SpecError("conflicting variable defs:" + "".join(conflicts))
    return {name: values[0] for name, values in found.items()}


def expand(document: ParsedDocument, variables: Mapping[str, str], read: Callable[[str], bytes]) -> ParsedDocument:
    """Expand every directive in a document's strings (values, not keys).

    Args:
        document: The parsed document.
        variables: Values by name. Unused ones are allowed.
        read: Returns the content of an embedded file. It gets the path as written and resolves it in the folder of the
            document's file (the current folder for standard input); `/etc/x` may be `<folder>/etc/x`. It raises
            `OSError` if the file cannot be read.

    Raises:
        SpecError: A malformed directive, an unreadable file, a variable without a value, or a result beyond the limits.
    """
    expansion = _Expansion(document, variables, read)
    data = expansion.expand_value(document.data, ())
    if expansion.missing:
        first = next(iter(expansion.missing.values()))
        missing = sorted(expansion.missing)
        give = " ".join(f"--set {name}=..." for name in missing)
        raise document.error(f"unexpanded variable: {', '.join(missing)}; give {give}", first)
    spelled = document.spelled | expansion.spelled
    return msgspec.structs.replace(document, data=data, spelled=spelled, embedded=expansion.embedded_at)


def unused_variables(variables: Iterable[str], documents: Iterable[ParsedDocument]) -> list[str]:
    """Return the variables that no directive of the documents names."""
    named = {word for document in documents for text in _strings(document.data) for word in _words_of_directives(text)}
    return [name for name in variables if name not in named]


def _strings(value: Any) -> Iterator[str]:
    """Yield each string in plain data, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _words_of_directives(text: str) -> Iterator[str]:
    for directive in _DIRECTIVE.findall(text[: text.rfind("}") + 1]):
        yield from _VARIABLE.findall(directive)


def integer_ports(document: ParsedDocument) -> ParsedDocument:
    """Turn every `port` of a sandbox file that is a string (as directives leave them) into a number.

    Raises:
        SpecError: `port is not int: "http"`.
    """

    def convert(value: Any, keys: Path) -> Any:
        if isinstance(value, list):
            return [convert(item, (*keys, index)) for index, item in enumerate(value)]
        if isinstance(value, dict):
            free = _is_users_own(keys)
            return {key: item if free else convert(item, (*keys, key)) for key, item in value.items()}
        if isinstance(value, str) and keys and keys[-1] == "port":
            if (port := parse_whole(value, _MAX_PORT)) is None:
                raise document.error(f"port is not int: {quote(value)}", keys)
            return port
        return value

    return msgspec.structs.replace(document, data=convert(document.data, ()))


def _is_users_own(keys: Path) -> bool:
    """Return whether this mapping of a sandbox has users' own keys, such as the body that a step sends."""
    in_place = keys[:2] == _RESOURCES and len(keys) == 4 and keys[-1] == "spec"
    return keys == _HOOKS or in_place or (bool(keys) and keys[-1] in _USERS_OWN_MAPS)


class _Directive(NamedTuple):
    """The content of the braces: a variable's name or an embedded file's path, and the encoding."""

    embeds: bool
    argument: str
    encoding: str


class _Expansion:
    """One pass over a document. It collects the variables without a value and counts the inserted text."""

    def __init__(self, document: ParsedDocument, variables: Mapping[str, str], read: Callable[[str], bytes]) -> None:
        self.document = document
        self.variables = variables
        self.read = read
        self.missing: dict[str, Path] = {}
        self.spelled: dict[Path, str] = {}
        self.embedded_at: dict[Path, str] = {}
        self.bytes = 0
        self.nodes = len(document.marks)

    def expand_value(self, value: Any, keys: Path) -> Any:
        if isinstance(value, dict):
            return {key: self.expand_value(item, (*keys, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.expand_value(item, (*keys, index)) for index, item in enumerate(value)]
        return self.expand_string(value, keys) if isinstance(value, str) else value

    def expand_string(self, value: str, keys: Path) -> Any:
        whole = _DIRECTIVE.fullmatch(value)
        if whole:
            return self.expand_whole(self.parse_directive(whole[0], keys), keys)
        # No directive ends after the last brace. Otherwise each possible start would be followed to the end of the
        # text.
        end = value.rfind("}") + 1
        filled = _DIRECTIVE.sub(lambda match: self.expand_part(self.parse_directive(match[0], keys), keys), value[:end])
        return filled + value[end:]

    def parse_directive(self, source: str, keys: Path) -> _Directive:
        word, colon, path = source[2:-1].partition(":")
        match = _WORD.fullmatch(word.rstrip())
        if not match:
            raise self.document.error(f"invalid op spec: {quote(word.strip())}: imbalanced '[]'", keys)
        name, encoding = match[1].strip(), match[2] if match[2] is not None else "raw"
        if encoding not in _ENCODINGS:
            raise self.document.error(f"unrecognized template op type: {quote(encoding)}", keys)
        if colon:
            if name != "embed":
                raise self.document.error(f"error parsing template: unsupported operation: {quote(name)}", keys)
            if not path.strip():
                raise self.document.error("error parsing template: embed needs a path: @{embed: ./file}", keys)
            return _Directive(embeds=True, argument=path.strip(), encoding=encoding)
        if not _VARIABLE.fullmatch(name):
            raise self.document.error(f"invalid variable name: {quote(name)}", keys)
        return _Directive(embeds=False, argument=name, encoding=encoding)

    def expand_part(self, directive: _Directive, keys: Path) -> str:
        if directive.encoding != "raw":
            what = "embed" if directive.embeds else "variable"
            raise self.document.error(
                f"invalid encoding: {what} {directive.encoding} does not work as part of a larger string", keys
            )
        return self.decode_text(directive, keys)

    def expand_whole(self, directive: _Directive, keys: Path) -> Any:
        if directive.encoding == "raw":
            if directive.embeds:
                self.embedded_at[keys] = directive.argument
            return self.decode_text(directive, keys)
        content = self.read_content(directive, keys)
        if directive.encoding == "binary":
            return base64.b64encode(content).decode()
        if not directive.embeds and directive.argument in self.missing:
            return None
        return self.parse_yaml(directive, content, keys)

    def parse_yaml(self, directive: _Directive, content: bytes, keys: Path) -> Any:
        inner = text.parse(content, file=directive.argument)
        if not inner:
            return None
        if len(inner) > 1:
            raise self.document.error(
                f"{quote(directive.argument)} holds {len(inner)} documents; [yaml] takes one", keys
            )
        self.nodes += len(inner[0].marks)
        if self.nodes > text.MAX_NODES:
            raise self.document.error(f"more than {text.MAX_NODES} keys and values with what is put in here", keys)
        self.spelled.update({(*keys, *within): word for within, word in inner[0].spelled.items()})
        return inner[0].data

    def decode_text(self, directive: _Directive, keys: Path) -> str:
        try:
            decoded = text.decode(self.read_content(directive, keys))
        except text.NotTextError as fault:
            problem = f"{quote(directive.argument)} is {fault}; save it as UTF-8, or embed it with [binary]"
            raise self.document.error(problem, keys) from None
        if "\0" in decoded:
            raise self.document.error(
                f"{quote(directive.argument)} holds a NUL character; embed it with [binary]", keys
            )
        return decoded

    def read_content(self, directive: _Directive, keys: Path) -> bytes:
        content = (
            self.read_embedded(directive.argument, keys)
            if directive.embeds
            else self.read_variable(directive.argument, keys)
        )
        self.bytes += len(content)
        if self.bytes > text.MAX_BYTES:
            raise self.document.error(f"more than {text.MAX_BYTES} bytes are put into one document", keys)
        return content

    def read_variable(self, name: str, keys: Path) -> bytes:
        if name not in self.variables:
            self.missing.setdefault(name, keys)
            return b""
        return self.variables[name].encode(errors="surrogateescape")

    def read_embedded(self, path: str, keys: Path) -> bytes:
        try:
            return self.read(path)
        except OSError as fault:
            reason = (fault.strerror or "cannot be read").lower()
            raise self.document.error(f"open {fault.filename or path}: {reason}", keys) from None
