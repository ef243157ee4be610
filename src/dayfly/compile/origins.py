"""The origin of a published plugin's steps: its publisher, name and version, and the params of its inventory."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from dayfly.spec.lifecycle import StepOrigin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.spec.plugin import Plugin, PluginSpec
    from dayfly.spec.sandbox import Param

_DIGEST_LENGTH = 26


def published_origin(plugin: Plugin, publisher: str, params: Mapping[str, str | Param]) -> StepOrigin:
    """Return the origin of a published plugin's steps. `params` has the given values and the defaults."""
    inventory = inventory_digest(plugin.spec, params)
    return StepOrigin(publisher=publisher, plugin=plugin.name, version=plugin.version, inventory=inventory)


def inventory_digest(spec: PluginSpec, params: Mapping[str, str | Param]) -> str:
    """Return the digest of the params that the inventory reads; empty without an inventory, or if one is not known.

    Two resources with the same digest are in the same account, region or folder, so one inventory lists both.
    """
    names = sorted({item.name for step in spec.inventory for item in step.inputs})
    values = {name: params.get(name) for name in names}
    is_known = spec.secrets().isdisjoint(names) and all(
        each is None or isinstance(each, str) for each in values.values()
    )
    if not spec.inventory or not is_known:
        return ""
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()[:_DIGEST_LENGTH]
