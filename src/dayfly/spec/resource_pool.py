"""Resource pools: how many resources of a plugin are created before a sandbox needs them.

`compile` checks the params and the plugin's steps, because the plugin is known there.
"""

from __future__ import annotations

from typing import Annotated, Final

from dayfly.spec.errors import Faults, Path, SpecError
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MAX_VALUES, NAME_PATTERN, doc, list_of
from dayfly.spec.sandbox_rules import MAX_CLUSTER_BYTES
from dayfly.spec.scalars import cron, names, semver
from dayfly.spec.scalars.duration import milliseconds

KIND: Final = "ResourcePool"
MAX_READY: Final = 1_000
MAX_WINDOWS: Final = 32
MIN_AGE_MS: Final = 60_000
MIN_HIT_RATIO, MAX_HIT_RATIO = 0.5, 0.999
_DURATION: Final = "^([0-9]{1,9}[smh])?$"
MAY_CHANGE: Final = ("ready", "auto", "max_age", "schedule")
"""Fields that may change in a pool that exists. Other changes need a new pool."""


class PoolAuto(WireStruct, frozen=True, kw_only=True):
    """An automatic size: from the measured rate of requests and the time to create a member."""

    hit_ratio: Annotated[
        float,
        doc(
            "Wanted share of requests that find a ready member, from 0.5 to 0.999.",
            minimum=MIN_HIT_RATIO,
            maximum=MAX_HIT_RATIO,
        ),
    ] = 0.99
    min: Annotated[int, doc("Least number of ready members.", minimum=0, maximum=MAX_READY)] = 0
    max: Annotated[int, doc("Greatest number of ready members.", minimum=1, maximum=MAX_READY)]


class PoolWindow(WireStruct, frozen=True, kw_only=True):
    """A recurring time with another size. If several windows overlap, the greatest number holds."""

    cron: Annotated[str, doc("Beginning of the window as five cron fields, in UTC, like 0 7 * * 1-5.", 128)]
    duration: Annotated[str, doc("Length of the window, like 11h.", 16, pattern=_DURATION)]
    ready: Annotated[int, doc("Number of ready members in the window.", minimum=0, maximum=MAX_READY)]


class ResourcePoolSpec(WireStruct, frozen=True, kw_only=True):
    """The spec of a pool. Its size is `ready` or `auto`; in a window of `schedule` it is the window's."""

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
        str,
        doc(
            "Age at which an unused member is replaced, like 24h. At least 1m, by default never.", 16, pattern=_DURATION
        ),
    ] = ""
    schedule: Annotated[tuple[PoolWindow, ...], list_of("Recurring times with another size.", MAX_WINDOWS)] = ()


class ResourcePool(WireStruct, frozen=True, kw_only=True):
    """A pool: its name and spec."""

    name: str
    spec: ResourcePoolSpec


def check_resource_pool(pool: ResourcePool, keys: Path) -> None:
    """Check a pool by every rule that does not concern its plugin. `keys` is the path to its name.

    Raises:
        SpecError: The first fault, with those of other fields in `others`.
    """
    spec, root = pool.spec, ("spec",)
    faults = Faults()
    with faults:
        names.check("pool", pool.name, keys)
    with faults:
        if len(spec.cluster.encode()) > MAX_CLUSTER_BYTES:
            raise SpecError(f"a cluster name has at most {MAX_CLUSTER_BYTES} bytes", (*root, "cluster"))
    with faults:
        semver.split_reference(spec.plugin, (*root, "plugin"))
    with faults:
        if len(spec.params) > MAX_VALUES:
            raise SpecError(f"has {len(spec.params)} params; at most {MAX_VALUES} are allowed", (*root, "params"))
    with faults:
        if (spec.ready is None) == (spec.auto is None):
            found = "neither is" if spec.ready is None else "both are"
            raise SpecError(f"needs exactly one of ready and auto; {found} given", root)
    with faults:
        if spec.ready is not None:
            _check_number(spec.ready, 0, MAX_READY, (*root, "ready"))
    with faults:
        if spec.auto is not None:
            _check_auto(spec.auto, (*root, "auto"))
    with faults:
        if spec.max_age and milliseconds(spec.max_age, (*root, "maxAge")) < MIN_AGE_MS:
            problem = f"is {spec.max_age}, and each unused member would be replaced about as soon as it is ready"
            raise SpecError(f"{problem}; write at least 1m, or leave maxAge out", (*root, "maxAge"))
    with faults:
        if len(spec.schedule) > MAX_WINDOWS:
            problem = f"has {len(spec.schedule)} windows; at most {MAX_WINDOWS} are allowed"
            raise SpecError(problem, (*root, "schedule"))
    for index, window in enumerate(spec.schedule):
        with faults:
            _check_window(window, spec.auto, (*root, "schedule", index))
    faults.settle()


def _check_auto(auto: PoolAuto, keys: Path) -> None:
    faults = Faults()
    with faults:
        if not MIN_HIT_RATIO <= auto.hit_ratio <= MAX_HIT_RATIO:
            problem = f"{auto.hit_ratio:g} is outside the limits: write a number from {MIN_HIT_RATIO} to"
            raise SpecError(f"{problem} {MAX_HIT_RATIO}, like 0.99", (*keys, "hitRatio"))
    with faults:
        _check_number(auto.min, 0, MAX_READY, (*keys, "min"))
    with faults:
        _check_number(auto.max, 1, MAX_READY, (*keys, "max"))
    with faults:
        if auto.min > auto.max:
            raise SpecError(
                f"is {auto.min}, more than max, which is {auto.max}; lower min or raise max", (*keys, "min")
            )
    faults.settle()


def _check_window(window: PoolWindow, auto: PoolAuto | None, keys: Path) -> None:
    faults = Faults()
    with faults:
        cron.check(window.cron, (*keys, "cron"))
    with faults:
        milliseconds(window.duration, (*keys, "duration"))
    with faults:
        _check_number(window.ready, 0, MAX_READY, (*keys, "ready"))
    with faults:
        if auto is not None and auto.max < window.ready <= MAX_READY:
            problem = f"is {window.ready}, more than auto.max, which is {auto.max}; lower ready or raise auto.max"
            raise SpecError(problem, (*keys, "ready"))
    faults.settle()


def _check_number(value: int, least: int, most: int, keys: Path) -> None:
    if not least <= value <= most:
        raise SpecError(f"{value} is outside the limits: write a whole number from {least} to {most}", keys)
