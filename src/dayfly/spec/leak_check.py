"""Leak checks: they compare the items in an account with the runs that should have them."""

from __future__ import annotations

import re
from typing import Annotated, Final

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import LEAK_CHECK_KIND, WireStruct
from dayfly.spec.meta import MAX_VALUES, NAME_PATTERN, doc
from dayfly.spec.sandbox_rules import MAX_CLUSTER_BYTES
from dayfly.spec.scalars import names, semver
from dayfly.spec.scalars.duration import milliseconds

KIND: Final = LEAK_CHECK_KIND
STATE_CHECK: Final = "terraform-states"
"""The name of the built-in check for Terraform states without a run."""
REPORT, DELETE = "report", "delete"
MIN_EVERY_MS: Final = 60_000
PRICE_PATTERN: Final = r"[0-9]{1,9}(\.[0-9]{1,6})?( [A-Z]{3})?"
_DURATION: Final = "^([0-9]{1,9}[smh])?$"


class LeakCheckSpec(WireStruct, frozen=True, kw_only=True):
    """The spec of a leak check: one for each account, region or folder, and each set of credentials."""

    cluster: Annotated[str, doc("Name of the cluster whose host lists and deletes.", 255)] = ""
    plugin: Annotated[
        str,
        doc(
            "The plugin with an inventory, as name or name@version. Without a version it is the newest one.",
            253,
            pattern=f"^{NAME_PATTERN[1:-1]}(@.+)?$",
        ),
    ]
    params: Annotated[
        dict[str, str],
        doc("Params of the inventory and of the delete steps, like the region.", maxProperties=MAX_VALUES),
    ] = {}
    every: Annotated[str, doc("Interval between two lists, at least 1m. Default: 1h.", 16, pattern=_DURATION)] = "1h"
    grace: Annotated[
        str,
        doc("Age below which nothing is an orphan, like 24h. Default: 24h.", 16, pattern=_DURATION),
    ] = "24h"
    action: Annotated[
        str,
        doc(
            "What happens with orphans: report (the default), or delete for the plugin's delete steps. A check deletes "
            "at most ten items at a time, and at most a tenth of the list. If more are left, it waits for a plan.",
            enum=[REPORT, DELETE],
        ),
    ] = REPORT

    price_per_hour: Annotated[
        str,
        doc(
            "Price of one resource for an hour, as a number and optionally a currency, like 0.05 EUR. Orphans are then "
            "shown with the amount since their creation. Currencies are not converted.",
            32,
            pattern=f"^({PRICE_PATTERN})?$",
        ),
    ] = ""

    @property
    def every_ms(self) -> int:
        """The interval between two lists."""
        return milliseconds(self.every)

    @property
    def grace_ms(self) -> int:
        """The grace period."""
        return milliseconds(self.grace)


class LeakCheck(WireStruct, frozen=True, kw_only=True):
    """A leak check: its name and spec."""

    name: str
    spec: LeakCheckSpec


def check_leak_check(check: LeakCheck, keys: Path) -> None:
    """Check a leak check by every rule that does not concern its plugin. `keys` is the path to its name.

    Raises:
        SpecError: The first fault, with those of other fields in `others`.
    """
    spec, root = check.spec, ("spec",)
    faults = Faults()
    with faults:
        names.check("leak check", check.name, keys)
        if check.name == STATE_CHECK:
            raise SpecError(f"{STATE_CHECK} is a built-in check; use another name", keys)
    with faults:
        if not spec.cluster:
            raise SpecError("is required: the cluster whose host lists and deletes", (*root, "cluster"))
        if len(spec.cluster.encode()) > MAX_CLUSTER_BYTES:
            raise SpecError(f"a cluster name has at most {MAX_CLUSTER_BYTES} bytes", (*root, "cluster"))
    with faults:
        semver.split_reference(spec.plugin, (*root, "plugin"))
    with faults:
        if len(spec.params) > MAX_VALUES:
            raise SpecError(f"has {len(spec.params)} params; at most {MAX_VALUES} are allowed", (*root, "params"))
    with faults:
        if milliseconds(spec.every, (*root, "every")) < MIN_EVERY_MS:
            raise SpecError(f"{spec.every} is too short: a list is at most made once a minute", (*root, "every"))
    with faults:
        milliseconds(spec.grace, (*root, "grace"))
    with faults:
        if spec.price_per_hour and not re.fullmatch(PRICE_PATTERN, spec.price_per_hour, re.ASCII):
            problem = f"{quote(spec.price_per_hour)} is not a price: write a number and, if you like, a currency"
            raise SpecError(f"{problem}, like 0.05 EUR", (*root, "pricePerHour"))
    with faults:
        if spec.action not in (REPORT, DELETE):
            raise SpecError(
                f"{quote(spec.action)} is not known here; write one of {REPORT}, {DELETE}", (*root, "action")
            )
    faults.settle()
