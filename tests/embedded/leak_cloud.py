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

# `folder` has the items, each in a file with one line. Other files there are faults and settings.
# `list` replaces the list, and `slow` delays it. `fail`, `half`, `lost` and `warn` are faults of its pages.
# `ahead` has the seconds by which the cloud's clock is ahead, and `timeless` hides times. `precise` deletes by name.
LIST = r"""#!/bin/sh
cd "$FOLDER"
while [ -e slow ]; do sleep 0.05; done
[ ! -e warn ] || echo "warning: the list may be slow" >&2
if [ -e list ]; then cat list; exit; fi
[ ! -e half ] || { echo '{"name": "item-1"}'; exit; }
set -- item-*"${DAYFLY_RESOURCE_ID:-}"*
[ -e "$1" ] || shift
[ ! -e lost ] || [ $# -eq 0 ] || shift
[ $# -eq 0 ] || cat -- "$@"
[ ! -e fail ] || { echo "An error occurred (AccessDenied)" >&2; exit 1; }
printf '{"complete": true, "count": %d}\n' $#
"""
MAKE = r"""#!/bin/sh
set -eu
id=$DAYFLY_RESOURCE_ID created=null
[ -e "$FOLDER/timeless" ] || created=$(($(date +%s) + $(cat "$FOLDER/ahead" 2>/dev/null || echo 0)))
printf '{"id": "%s", "name": "item-%s", "created": %s, "token": "%s"}\n' \
    "$id" "$id" "$created" "$DAYFLY_RESOURCE_TOKEN" >"$FOLDER/new-$id"
mv "$FOLDER/new-$id" "$FOLDER/item-$id"
echo "make $id ${DAYFLY_RESOURCE_TOKEN%%.*}" >>"$FOLDER/makers"
"""
DROP = r"""#!/bin/sh
set -eu
[ ! -e "$FOLDER/stuck" ] || exit 1
echo "drop $DAYFLY_RESOURCE_ID ${MADE:-none}" >>"$FOLDER/journal"
echo "drop $DAYFLY_RESOURCE_ID ${DAYFLY_RESOURCE_TOKEN%%.*}" >>"$FOLDER/makers"
if [ -e "$FOLDER/precise" ]; then rm -f "$FOLDER/item-$DAYFLY_RESOURCE_ID"; exit; fi
# By tag, as careless plugins do: this also removes copies.
grep -lF "\"$DAYFLY_RESOURCE_ID\"" "$FOLDER"/item-* 2>/dev/null | xargs -r rm -f
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
        folder.mkdir(exist_ok=True)

    def names(self) -> set[str]:
        return {each.name for each in self.folder.glob("item-*")}

    def journal(self) -> list[str]:
        file = self.folder / "journal"
        return file.read_text().splitlines() if file.exists() else []

    def add(self, name: str, **row: Any) -> None:
        self._write(name, {"name": name, **row})

    def copy(self, name: str, other: str, **changes: Any) -> None:
        """Copy an item with its tags, as a restored snapshot does."""
        row = json.loads((self.folder / name).read_text())
        del row["name"]
        self.add(other, **{**row, **changes})

    def age(self, seconds: int = 86_400) -> None:
        """Make all items older."""
        for file in self.folder.glob("item-*"):
            row = json.loads(file.read_text())
            self._write(file.name, {**row, "created": row["created"] - seconds})

    def _write(self, name: str, row: dict[str, Any]) -> None:
        """Write an item at once: a list never has a part of it."""
        fresh = self.folder / f"new-{name}"
        fresh.write_text(json.dumps(row) + "\n")
        fresh.replace(self.folder / name)

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
