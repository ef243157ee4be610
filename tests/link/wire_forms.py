"""The fields of all messages between a server and connected clusters, one per line.

`messages-2.forms` holds the fields of the first release of protocol 2 and all later additions. Clusters are upgraded
later than servers, some of them earlier. So within one protocol version, a message only gains optional fields, and new
messages must be ones that a peer may ignore.

    PYTHONPATH=src python -m tests.link.wire_forms

records additions, and refuses changes that would break a peer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from dayfly.link import envelope as mailbox
from dayfly.link import wire

FORMS = Path(__file__).with_name(f"messages-{wire.PROTOCOL}.forms")
MAIL = (
    mailbox.SessionRequest,
    mailbox.Session,
    mailbox.UnreadMessages,
    mailbox.SentMessages,
    mailbox.ReceivedCount,
    mailbox.StartRequest,
)
REQUIRED = "required"


def forms() -> dict[str, str]:
    """Return the current fields: for each `Message.field` its type, and whether it is optional."""
    types = (*wire.AnyToHost.__args__, *wire.AnyToServer.__args__, *MAIL)
    _, components = msgspec.json.schema_components(types)
    found: dict[str, str] = {}
    for name, schema in components.items():
        if "enum" in schema:
            found |= {f"{name} = {each}": "value" for each in schema["enum"]}
        found |= {
            f"{name}.{field}": f"{_type(of)}{f' {REQUIRED}' if field in schema.get('required', ()) else ''}"
            for field, of in schema.get("properties", {}).items()
        }
    return dict(sorted(found.items()))


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    kind = schema.get("type", "anything")
    if kind == "array":
        items = schema.get("items") or schema.get("prefixItems") or {}
        return f"[{', '.join(map(_type, items)) if isinstance(items, list) else _type(items)}]"
    if kind == "object":
        return f"{{{_type(schema.get('additionalProperties') or {})}}}"
    return str(kind)


def broken(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the changes that a peer with the recorded fields would not understand."""
    found = [f"{name} was {was} and is gone" for name, was in before.items() if name not in now]
    found += [f"{name} was {was} and is {now[name]}" for name, was in before.items() if now.get(name, was) != was]
    structs = {name.partition(".")[0] for name in before}
    found += [
        f"{name} is new and {REQUIRED}: make it optional"
        for name, form in now.items()
        if name not in before and form.endswith(REQUIRED) and name.partition(".")[0] in structs
    ]
    enums = {name.partition(" = ")[0] for name in before if " = " in name}
    new = (name for name in now if name not in before and " = " in name)
    return found + [f"{name} is new: an older peer cannot read it" for name in new if name.partition(" = ")[0] in enums]


def read() -> dict[str, str]:
    """Return the recorded fields."""
    lines = FORMS.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line)  # type: ignore[arg-type] # pairs, all of them


def write() -> None:
    """Record added fields."""
    now = forms()
    if FORMS.exists() and (found := broken(read(), now)):
        sys.exit("\n".join([*found, "Raise wire.PROTOCOL and let servers support both, or undo the change."]))
    FORMS.write_text("".join(f"{name}: {form}\n" for name, form in now.items()))


if __name__ == "__main__":
    write()
