"""The report of a host about a leak check, with its findings. Times are Unix milliseconds."""

from __future__ import annotations

from typing import Annotated

from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MILLISECONDS, doc


class LeakFinding(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """An item of the list, or a resource that the list lacks."""

    verdict: Annotated[str, doc("held, ending, orphan, missing, foreign or unknown.")]
    id: Annotated[str, doc("Resource ID; empty if the item has none.")] = ""
    name: Annotated[str, doc("Name of the item, or of the resource that is missing.")]
    reason: Annotated[str, doc("Why, in a phrase.")] = ""
    plugin: Annotated[str, doc("Recorded plugin as name@version; empty if it is not known.")] = ""
    created: Annotated[int, doc("When it was created or first listed, " + MILLISECONDS)] = 0
    deletable: Annotated[bool, doc("Whether the plugin's delete steps may run for the ID.")] = False
    sandbox_uid: Annotated[
        str, doc("UID at the server of the sandbox for which a cluster has created it; empty if it is not known.")
    ] = ""


class LeakDeletion(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A deletion by a leak check. It is recorded before its first step starts."""

    sequence: Annotated[int, doc("Number that rises with each deletion of a host.")]
    id: Annotated[str, doc("Resource ID.")]
    plugin: Annotated[str, doc("Plugin whose delete steps run, as name@version.")]
    plan: Annotated[str, doc("Digest of the plan that it belongs to; empty if the check decided.")] = ""
    at: Annotated[int, doc("Its begin, " + MILLISECONDS)] = 0
    done: Annotated[bool, doc("Whether its steps have succeeded.")] = False


class LeakReport(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The state of a leak check. Its findings are those of the latest complete list, without items that are held."""

    name: Annotated[str, doc("Name of the check.")]
    spec: Annotated[LeakCheckSpec, doc("Spec of the check.")]
    plugin: Annotated[str, doc("The plugin with its version.")]
    number: Annotated[int, doc("Number of sweeps that have ended.")] = 0
    is_sweeping: Annotated[bool, doc("Whether a sweep is under way.")] = False
    swept_at: Annotated[int, doc("Begin of the latest sweep, " + MILLISECONDS)] = 0
    listed_at: Annotated[int, doc("Begin of the latest complete list, " + MILLISECONDS)] = 0
    error: Annotated[str, doc("Why the latest sweep has no complete list; empty if it has one.")] = ""
    counts: Annotated[dict[str, int], doc("Number of findings by verdict.")] = {}
    findings: Annotated[
        tuple[LeakFinding, ...], doc("At most 1,000 findings other than held; deletable ones are first.")
    ] = ()
    plan: Annotated[
        str,
        doc(
            "Digest of everything that may be deleted; empty if that is nothing, or more than 1,000 items. A plan is "
            "only applied if this has not changed."
        ),
    ] = ""
    left: Annotated[
        int,
        doc(
            "Number of resources that wait for a plan, because they were too many for a sweep. Unless it is 0, the "
            "check deletes nothing by itself."
        ),
    ] = 0
    deleted: Annotated[tuple[str, ...], doc("Resource IDs that the latest sweep has deleted.")] = ()
    deletions: Annotated[tuple[LeakDeletion, ...], doc("Its latest deletions, at most 1,000, the oldest first.")] = ()
    applied: Annotated[str, doc("Result of the latest plan: done, or why it was refused. Empty without a plan.")] = ""
    applied_plan: Annotated[str, doc("Digest of the latest plan.")] = ""
    applied_number: Annotated[int, doc("Number of the sweep that had the latest plan; 0 without a plan.")] = 0
