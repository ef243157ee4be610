"""The field reference: the meaning of each field of each kind, generated from the types like the schemas.

`fields` is for views of a few fields (`dayfly explain`); `render_page` is docs/reference.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import inspect as types

from dayfly.spec import route_group, sandbox, workload
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.schema import crd, json_schema
from dayfly.spec.schema.reference_examples import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.spec.schema.crd_rules import Schema

_WORDS = {"string": "text", "integer": "whole number", "boolean": "true or false", "object": "mapping"}
_ABOUT = {
    "plugin": "Written once by a platform team, and published. A published version never changes.",
    "sandbox": "Written by a developer. Parts of it may change while it lives.",
    "routegroup": "A match over sandboxes' labels, with its own routing key. Parts of it may change while\nit lives.",
    "hook": "Steps around the lives of objects of any kind in a cluster. It may change at any time, except "
    "for\n`apiVersion` and `kind` of its selector.",
    json_schema.BASELINE: "The process from which forks are derived if there is no cluster. A Kubernetes Deployment\n"
    "is accepted, too. Its fields are at the top, without `spec`. It may change at any time; its forks change with it.",
}
_HEAD = """\
# Fields

Every field of every kind of file. This page is generated from the types that read them (`scripts/reference.py`).
`dayfly explain KIND[.FIELD...]` prints the same in a terminal; `dayfly schema KIND` prints a JSON Schema for editors:

```
$ dayfly explain plugin.create.retry
$ dayfly schema plugin > plugin.schema.json
```

With the line `# yaml-language-server: $schema=plugin.schema.json` at the top of a file, editors with the YAML language
server check and complete it. `plugin init` writes both.

A field may be left out unless it is required. In the place of a value, `@{name}` is a variable and `@{embed: file}` a
file's content; write such values in quotes. YAML anchors (`&x`), aliases (`*x`) and merge keys (`<<: *x`) work within a
document. An alias counts as all its values: a document has at most 10,000 keys and values.

Every field exists since 0.1.0, the first version. An example follows each table. Fields that exclude each other are in
separate examples, between lines of `---`.
"""
_MAY_CHANGE: dict[type[WireStruct], tuple[str, ...]] = {
    sandbox.SandboxSpec: sandbox.MAY_CHANGE,
    route_group.RouteGroupSpec: route_group.MAY_CHANGE,
}


class Field(NamedTuple):
    """One field: its name, its type in words, whether it is required, its default, and its meaning.

    `changes` states whether the field of a live object may change; empty if all fields of the type are alike.
    """

    name: str
    holds: str
    struct: type[WireStruct] | None
    required: bool
    default: str
    about: str
    changes: str = ""


def root_type(word: str) -> type[WireStruct]:
    """Return the type of a file's fields under `spec`, or at its top, for a kind of `json_schema.words`."""
    return workload.Workload if word == json_schema.BASELINE else json_schema.FILES[word][1]


def fields(struct: type[WireStruct]) -> list[Field]:
    """Return the fields of a type, with their names in documents."""
    schema = crd.schema(struct)
    info: Any = types.type_info(struct)
    made = [_field(each, schema["properties"][each.encode_name], schema) for each in info.fields]
    if (may := _MAY_CHANGE.get(struct)) is None:
        return made
    words = ["yes" if each.name in may else "no" for each in info.fields]
    return [field._replace(changes=word) for field, word in zip(made, words, strict=True)]


def find(path: str) -> tuple[type[WireStruct], Field | None]:
    """Return the type or field at a path like `plugin.create.retry`, in which `spec` and indexes are optional.

    Raises:
        KeyError: The unknown part, and the known ones.
    """
    word, *names = [part.partition("[")[0] for part in path.split(".")]
    if word not in json_schema.file_kinds():
        raise KeyError(word, json_schema.file_kinds())
    names = names[1:] if names[:1] == ["spec"] else names
    struct: type[WireStruct] = root_type(word)
    last: Field | None = None
    for index, name in enumerate(names):
        known = {field.name: field for field in fields(struct)}
        if name not in known:
            raise KeyError(name, tuple(known))
        last = known[name]
        if last.struct is None and names[index + 1 :]:
            raise KeyError(names[index + 1], ())
        struct = last.struct or struct
    return struct, last


def render_page() -> str:
    """Return docs/reference.md."""
    seen: set[type[WireStruct]] = set()
    return _HEAD + "".join(_section(word, seen) for word in json_schema.file_kinds())


def describe_type(struct: type[WireStruct]) -> str:
    """Return the meaning of a type."""
    text = str(crd.schema(struct)["description"])
    for field in msgspec.structs.fields(struct):
        if "_" in field.name:
            text = text.replace(field.name, field.encode_name)
    return text


def type_example(struct: type[WireStruct]) -> str:
    """Return an example in YAML; alternatives are separated by `---`."""
    return EXAMPLES[struct.__name__]


def _field(info: Any, schema: Schema, owner: Schema) -> Field:
    required = info.encode_name in owner.get("required", ())
    default = info.default
    shown = "" if required or default in (None, "", (), msgspec.UNSET, msgspec.NODEFAULT) else _format_default(default)
    return Field(
        info.encode_name,
        _describe_value(info.type, schema),
        _struct_type(info.type),
        required,
        shown,
        schema["description"],
    )


def _format_default(default: Any) -> str:
    if isinstance(default, msgspec.Struct):
        return ""
    if isinstance(default, tuple):
        return f"[{', '.join(map(str, default))}]"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _struct_type(info: Any) -> type[WireStruct] | None:
    match info:
        case types.StructType(cls=cls) if issubclass(cls, WireStruct):
            return cls
        case types.VarTupleType(item_type=inner) | types.Metadata(type=inner):
            return _struct_type(inner)
        case types.UnionType(types=some):
            found = [held for each in some if (held := _struct_type(each)) is not None]
            return found[0] if len(found) == 1 else None
    return None


def _describe_value(info: Any, schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(each for each in schema["enum"] if each)
    if schema.get("type") == "array":
        inner = _struct_type(info)
        return "list of " + (inner.__name__ if inner else _WORDS.get(schema["items"].get("type", ""), "values"))
    if found := _struct_type(info):
        return found.__name__
    if isinstance(values := schema.get("additionalProperties"), dict):
        return "mapping of " + _WORDS.get(values.get("type", ""), "values")
    return _WORDS.get(schema.get("type", ""), "anything")


def _section(word: str, seen: set[type[WireStruct]]) -> str:
    title = json_schema.FILES[word][0] if word in json_schema.FILES else "Deployment"
    return f"\n## {word}: {title}\n\n{_ABOUT[word]}\n" + "".join(map(_table, _structs(root_type(word), seen)))


def _structs(root: type[WireStruct], seen: set[type[WireStruct]]) -> Iterator[type[WireStruct]]:
    """Return a type and the types of its fields, in the order of a reader, without those in `seen`."""
    waiting = [root]
    while waiting:
        struct = waiting.pop(0)
        if struct in seen:
            continue
        seen.add(struct)
        yield struct
        waiting += [field.struct for field in fields(struct) if field.struct is not None]


def _table(struct: type[WireStruct]) -> str:
    found = fields(struct)
    told = any(field.changes for field in found)
    head = f"| field | holds | default | {'may change | ' if told else ''}meaning |\n"
    rows = [
        f"\n### {struct.__name__}\n\n{_escaped(describe_type(struct))}\n\n",
        head,
        "|---" * (5 if told else 4) + "|\n",
    ]
    for field in found:
        holds = field.holds
        if field.struct is not None:
            name = field.struct.__name__
            holds = holds.replace(name, f"[{name}](#{name.lower()})")
        default = "**required**" if field.required else f"`{field.default}`" if field.default else ""
        changes = f" {field.changes} |" if told else ""
        rows.append(f"| `{field.name}` | {_escaped(holds)} | {default} |{changes} {_escaped(field.about)} |\n")
    return "".join([*rows, f"\n```yaml\n{type_example(struct)}```\n"])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
