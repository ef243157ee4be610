"""The digest of the params that an inventory reads: equal for resources that one inventory lists."""

from typing import Any

import msgspec
import pytest

from dayfly.compile.origins import inventory_digest, published_origin
from dayfly.spec import documents
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Param


def plugin(*, secret: bool = False, inventory: bool = True) -> Plugin:
    def step(name: str, **rule: Any) -> dict[str, Any]:
        region = {"name": "region", "valueFromSandbox": True, **rule}
        return {"name": name, "script": "#!/bin/sh\n", "inputs": [region]}

    spec = {"create": [step("make", **({"secret": True} if secret else {}))], "delete": [step("drop")]}
    if inventory:
        spec["inventory"] = [step("list")]
    found = documents.from_wire({"name": "bucket@1.2.0", "spec": spec}, "ResourcePlugin")
    assert isinstance(found, Plugin)
    return found


def test_origin_has_the_version_and_the_digest():
    origin = published_origin(plugin(), "acme", {"region": "west"})
    assert (origin.publisher, origin.plugin, origin.version) == ("acme", "bucket", "1.2.0")
    assert origin.inventory == inventory_digest(plugin().spec, {"region": "west"})


def test_only_params_of_the_inventory_change_the_digest():
    west = inventory_digest(plugin().spec, {"region": "west"})
    assert west
    assert inventory_digest(plugin().spec, {"region": "west", "size": "9"}) == west
    assert inventory_digest(plugin().spec, {"region": "east"}) != west
    assert inventory_digest(plugin().spec, {}) not in ("", west)


OUTPUT = msgspec.convert({"valueFrom": {"resource": {"name": "vpc", "outputKey": "region"}}}, Param)


@pytest.mark.parametrize(
    ("written", "params"),
    [
        (plugin(inventory=False), {"region": "west"}),
        (plugin(secret=True), {}),
        (plugin(), {"region": OUTPUT}),
    ],
    ids=["no inventory", "secret param", "output of another resource"],
)
def test_unknown_params_have_no_digest(written: Plugin, params: dict[str, str | Param]):
    assert inventory_digest(written.spec, params) == ""
