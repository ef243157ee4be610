"""Resource pools: how many resources of a plugin are created before a sandbox needs them."""

from __future__ import annotations

from typing import Annotated, Final

from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MAX_VALUES, NAME_PATTERN, doc, list_of

KIND: Final = "ResourcePool"
MAX_READY: Final = 1_000
MAX_WINDOWS: Final = 32
_DURATION: Final = "^([0-9]{1,9}[smh])?$"
MAY_CHANGE: Final = ("ready", "auto", "max_age", "schedule")
"""Fields that may change in a pool that exists. Other changes need a new pool."""


class PoolAuto(WireStruct, frozen=True, kw_only=True):
    """An automatic size: from the measured rate of requests and the time to create a member."""

    hit_ratio: Annotated[float, doc("Wanted share of requests that find a ready member, from 0.5 to 0.999.")] = 0.99
    min: Annotated[int, doc("Least number of ready members.", minimum=0, maximum=MAX_READY)] = 0
    max: Annotated[int, doc("Greatest number of ready members.", minimum=1, maximum=MAX_READY)]


class PoolWindow(WireStruct, frozen=True, kw_only=True):
    """A recurring time with a size of its own. If several apply, the greatest number holds."""

    cron: Annotated[str, doc("Beginning of the window as five cron fields, in UTC, like 0 7 * * 1-5.", 128)]
    duration: Annotated[str, doc("Length of the window, like 11h.", 16, pattern=_DURATION)]
    ready: Annotated[int, doc("Number of ready members in the window.", minimum=0, maximum=MAX_READY)]


class ResourcePoolSpec(WireStruct, frozen=True, kw_only=True):
    """The spec of a pool. Its size is `ready`, or `auto`, and the windows of `schedule` raise or lower it."""

    cluster: Annotated[str, doc("Name of the cluster of its members. It cannot change.", 255)] = ""
    plugin: Annotated[
        str,
        doc(
            "The plugin as name or name@version. Without a version, the pool follows the newest one.",
            253,
            pattern=f"^{NAME_PATTERN[1:-1]}(@.+)?$",
        ),
    ]
    params: Annotated[
        dict[str, str | None],
        doc(
            "Params with a fixed value. null fixes that the sandbox does not set the param. Other params are applied "
            "when a sandbox takes a member.",
            maxProperties=MAX_VALUES,
        ),
    ] = {}
    ready: Annotated[int | None, doc("Number of ready members that no sandbox uses.", minimum=0, maximum=MAX_READY)] = (
        None
    )
    auto: Annotated[PoolAuto | None, doc("An automatic number of ready members, instead of `ready`.")] = None
    max_age: Annotated[
        str, doc("Age at which an unused member is replaced, like 24h. By default never.", 16, pattern=_DURATION)
    ] = ""
    schedule: Annotated[tuple[PoolWindow, ...], list_of("Recurring times with a size of their own.", MAX_WINDOWS)] = ()


class ResourcePool(WireStruct, frozen=True, kw_only=True):
    """A pool: its name and spec."""

    name: str
    spec: ResourcePoolSpec
