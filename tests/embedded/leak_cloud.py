"""A fake cloud for leak checks: a folder with a file for each item, and faults of its list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dayfly.compile import compile, compile_leak_check  # noqa: A004
from dayfly.link.wire import Offer, PutLeakCheck, SweepLeaks
from dayfly.spec import documents
from dayfly.spec.leak_check import LeakCheck
from dayfly.spec.lifecycle import Target
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Sandbox

# `folder` has the items; a file `list` there replaces the list, and `fail` makes the list fail.
LIST = """#!/usr/bin/env python3
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["FOLDER"])
wanted = os.environ.get("DAYFLY_RESOURCE_ID", "")
while (folder / "slow").exists():
    time.sleep(0.05)
if (folder / "warn").exists():
    print("warning: the list may be slow", file=sys.stderr, flush=True)
if (folder / "list").exists():
    print((folder / "list").read_text())
    sys.exit()
files = sorted(each for each in folder.iterdir() if each.name.startswith("item-"))
if (folder / "half").exists():
    print(json.dumps({"name": "item-1"}))
    sys.exit()
found = [json.loads(each.read_text()) for each in files]
found = [each for each in found if wanted in ("", each.get("id"))]
for each in found:
    print(json.dumps(each))
if (folder / "fail").exists():
    sys.exit("An error occurred (AccessDenied)")
print(json.dumps({"complete": True, "count": len(found)}))
"""
MAKE = """#!/bin/sh
set -eu
printf '{"id": "%s", "name": "item-%s", "created": %s, "token": "%s"}' \
    "$DAYFLY_RESOURCE_ID" "$DAYFLY_RESOURCE_ID" "$(date +%s)" "$DAYFLY_RESOURCE_TOKEN" \
    >"$FOLDER/item-$DAYFLY_RESOURCE_ID"
"""
DROP = """#!/bin/sh
set -eu
[ ! -e "$FOLDER/stuck" ] || exit 1
echo "drop $DAYFLY_RESOURCE_ID ${MADE:-none}" >>"$FOLDER/journal"
# By tag, as careless plugins do: this also removes copies.
grep -lF "\\"$DAYFLY_RESOURCE_ID\\"" "$FOLDER"/item-* 2>/dev/null | xargs -r rm -f
"""
FOLDER = {"name": "folder", "valueFromSandbox": True, "required": True}


_SPEC = {
    "create": [{"name": "make", "script": MAKE, "inputs": [FOLDER]}],
    "delete": [{"name": "drop", "script": DROP, "inputs": [FOLDER]}],
}


def plugin(version: str = "1.0.0", name: str = "item") -> Plugin:
    spec = {
        **_SPEC,
        "inventory": [{"name": "list", "script": LIST, "inputs": [{"name": "folder", "valueFromSandbox": True}]}],
    }
    found = documents.from_wire({"name": f"{name}@{version}", "spec": spec}, "ResourcePlugin")
    assert isinstance(found, Plugin)
    return found


class Cloud:
    """A folder of items, and the documents for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def names(self) -> set[str]:
        return {each.name for each in self.folder.glob("item-*")}

    def journal(self) -> list[str]:
        file = self.folder / "journal"
        return file.read_text().splitlines() if file.exists() else []

    def add(self, name: str, **row: Any) -> None:
        (self.folder / name).write_text(json.dumps({"name": name, **row}))

    def copy(self, name: str, other: str, **changes: Any) -> None:
        """Copy an item with its tags, as a restored snapshot does."""
        row = json.loads((self.folder / name).read_text())
        del row["name"]
        self.add(other, **{**row, **changes})

    def age(self, seconds: int = 86_400) -> None:
        """Make all items older."""
        for file in self.folder.glob("item-*"):
            row = json.loads(file.read_text())
            file.write_text(json.dumps({**row, "created": row["created"] - seconds}))

    def fault(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def heal(self, name: str) -> None:
        (self.folder / name).unlink()

    def offer(self, uid: str, version: str = "1.0.0", name: str = "item", *, inline: bool = False) -> Offer:
        """Return the offer of a sandbox with one item. `inline` steps are in the sandbox, without a plugin."""
        resource: dict[str, Any] = {"name": "it", "params": {"folder": str(self.folder)}}
        resource |= {"spec": _SPEC} if inline else {"plugin": f"{name}@{version}"}
        body = {"name": uid, "spec": {"cluster": "local", "resources": [resource]}}
        sandbox = documents.from_wire(body, "Sandbox")
        assert isinstance(sandbox, Sandbox)
        compiled = compile(sandbox, {(name, version): plugin(version, name)}, uid=uid, routing_key="k")
        target = Target(kind="Sandbox", name=uid, uid=uid)
        return Offer(uid=uid, generation=1, name=uid, target=target, documents=compiled.documents)

    def check(self, action: str = "report", grace: str = "1s", versions: tuple[str, ...] = ("1.0.0",)) -> PutLeakCheck:
        """Return the order that creates a check, with the delete steps of some versions."""
        spec = {
            "cluster": "local",
            "plugin": "item",
            "params": {"folder": str(self.folder)},
            "grace": grace,
            "every": "1h",
            "action": action,
        }
        wished = documents.from_wire({"name": "items", "spec": spec}, "LeakCheck")
        assert isinstance(wished, LeakCheck)
        made = {version: compile_leak_check(wished, plugin(version)) for version in versions}
        return PutLeakCheck(
            uid="leakcheck/items",
            name="items",
            spec=wished.spec,
            plugin=f"item@{versions[0]}",
            inventory=made[versions[0]].inventory,
            deletes={f"item@{version}": each.delete for version, each in made.items() if each.delete is not None},
        )


SWEEP = SweepLeaks(uid="leakcheck/items", name="items")
