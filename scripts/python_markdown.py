"""Markdown of Python classes and functions, from signatures and docstrings in Google's style, for generated pages."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import typing
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECTION = re.compile(r"^(Args|Attributes|Raises):\n((?:    .*\n?)+)", re.MULTILINE)
_TITLES = {"Args": "argument", "Attributes": "attribute", "Raises": "error"}
_LONGEST = 100


class _Text(str):
    """An annotation that a signature shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def show_class(of: type, *, constructor: bool = False) -> Iterator[str]:
    """Return the description of a class, without its methods: its constructor, docstring and attributes."""
    if constructor:
        yield show_block(show_signature(of.__name__, of))
    yield show_docstring(of)
    if "Attributes:" in (of.__doc__ or ""):
        return
    if issubclass(of, enum.Enum):
        yield "\n| value | name |\n|---|---|\n"
        yield from (f"| `{each.value}` | `{each.name}` |\n" for each in of)
    elif rows := [*_fields(of), *_properties(of)]:
        has_meaning = any(about for _, _, about in rows)
        yield f"\n| attribute | type |{' meaning |' * has_meaning}\n|---|---|{'---|' * has_meaning}\n"
        for name, hint, about in rows:
            yield f"| `{name}` | {_code(hint)} |{f' {about} |' * has_meaning}\n"


def _fields(of: type) -> Iterator[tuple[str, str, str]]:
    """Return name, type and meaning of each field of a struct, a named tuple or a dataclass."""
    if issubclass(of, msgspec.Struct):
        yield from ((each.name, *_hint(each.type)) for each in msgspec.structs.fields(of))
    elif hasattr(of, "_fields"):
        yield from ((name, *_hint(of.__annotations__[name])) for name in of._fields)
    elif dataclasses.is_dataclass(of):
        yield from ((each.name, *_hint(each.type)) for each in dataclasses.fields(of))


def _hint(hint: Any) -> tuple[str, str]:
    """Return an annotation without module names, and the description in its metadata."""
    about = ""
    if typing.get_origin(hint) is typing.Annotated:
        hint, *more = typing.get_args(hint)
        about = next((each.description for each in more if each.description), "")
    text = getattr(hint, "__forward_arg__", hint)
    text = text if isinstance(text, str) else inspect.formatannotation(text)
    return re.sub(r"[\w.]+\.(?=\w)|~", "", text), about


def _properties(of: type) -> Iterator[tuple[str, str, str]]:
    for name, each in vars(of).items():
        if isinstance(each, property) and not name.startswith("_"):
            about = " ".join((inspect.getdoc(getattr(of, name)) or "").split())
            yield name, _hint(inspect.signature(each.fget).return_annotation)[0], about  # type: ignore[arg-type]


def _code(hint: str) -> str:
    return "`" + hint.replace("|", "\\|") + "`"


def show_methods(owner: type, level: str = "###") -> Iterator[str]:
    """Return the methods of a class with their docstrings."""
    for name, each in vars(owner).items():
        if not name.startswith("_") and inspect.isfunction(each):
            yield f"\n{level} {name}\n\n{show_function(name, getattr(owner, name))}"


def show_function(name: str, of: Any) -> str:
    """Return the signature and docstring of a function."""
    return show_block(show_signature(name, of)) + _sections(inspect.getdoc(of) or "")


def show_signature(name: str, of: Any) -> str:
    """Return the signature of a function or class, with a line for each parameter if it is long."""
    found = inspect.signature(of)
    given = [each for key, each in found.parameters.items() if key != "self"]
    given = [each.replace(annotation=_Text(_hint(each.annotation)[0])) for each in given]
    result = "" if inspect.isclass(of) else f" -> {_hint(found.return_annotation)[0]}"
    prefix = "async " if inspect.iscoroutinefunction(of) else ""
    line = f"{prefix}{name}{found.replace(parameters=given, return_annotation=inspect.Signature.empty)}{result}"
    line = re.sub(r"<function .*? at \w+>", "...", re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", line))
    if len(line) <= _LONGEST:
        return line
    inner = line[len(prefix + name) + 1 : line.rindex(")" + result)]
    return f"{prefix}{name}(\n    " + re.sub(r", (?=\w+: |\*)", ",\n    ", inner) + f",\n){result}"


def show_block(code: str) -> str:
    """Return a block of Python code."""
    return f"```python\n{code}\n```\n\n"


def show_docstring(of: type) -> str:
    """Return the docstring of a class as Markdown."""
    return _sections(inspect.cleandoc(of.__doc__ or ""))


def _sections(text: str) -> str:
    """Return a docstring in Google's style as Markdown, its sections as tables."""
    return _SECTION.sub(_table, text + "\n")


def _table(section: re.Match[str]) -> str:
    items = re.findall(r"^    ([\w.]+): (.*\n(?:     .*\n?)*)", section[2], re.MULTILINE)
    rows = "".join(f"| `{name}` | {' '.join(about.split())} |\n" for name, about in items)
    return f"| {_TITLES[section[1]]} | meaning |\n|---|---|\n{rows}"
