#!/usr/bin/env python3
"""Write src/dayfly/kube/merge_keys.json, the merge keys of lists in Kubernetes' own kinds, from a real API server.

    testcluster/up --no-kubelet
    kubectl get --raw /openapi/v2 | scripts/merge-keys.py

For each type that has or refers to a list with a merge strategy, the table contains only those fields. Other fields
merge by the general rule: maps key by key, everything else is replaced.
"""

import json
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "src" / "dayfly" / "kube" / "merge_keys.json"
TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def own(definitions: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Return each field of a type that refers to another type or has a strategy."""
    fields = {}
    for field, schema in definitions[name].get("properties", {}).items():
        target = (schema.get("items") or schema).get("$ref", "").removeprefix("#/definitions/")
        strategy = schema.get("x-kubernetes-patch-strategy", "")
        entry = {
            "type": target,
            "strategy": strategy,
            "key": schema.get("x-kubernetes-patch-merge-key", ""),
        }
        if target or strategy:
            fields[field] = {key: value for key, value in entry.items() if value}
    return fields


def main() -> None:
    definitions = json.load(sys.stdin)["definitions"]
    everything = {name: own(definitions, name) for name in definitions}
    telling = {name for name, fields in everything.items() if any("strategy" in field for field in fields.values())}
    while True:
        leading = {
            name
            for name, fields in everything.items()
            if any(field.get("type") in telling for field in fields.values())
        }
        if leading <= telling:
            break
        telling |= leading

    kinds = {}
    for name, definition in definitions.items():
        gvks = definition.get("x-kubernetes-group-version-kind", [])
        has_meta = definition.get("properties", {}).get("metadata", {})
        is_object = "#/definitions/" + OBJECT_META in json.dumps(has_meta)
        if name in telling and is_object and len(gvks) == 1:
            gvk = gvks[0]
            kinds["/".join(filter(None, [gvk["group"], gvk["version"], gvk["kind"]]))] = name

    reached, waiting = set(), [TEMPLATE, *kinds.values()]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [field["type"] for field in everything[name].values() if field.get("type") in telling]
    types = {
        name: {
            field: {key: value for key, value in entry.items() if key != "type" or value in telling}
            for field, entry in everything[name].items()
            if "strategy" in entry or entry.get("type") in telling
        }
        for name in reached
    }
    table = {"kinds": kinds, "types": types}
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    sys.stderr.write(f"{TABLE}: {len(kinds)} kinds, {len(types)} types\n")


if __name__ == "__main__":
    main()
