"""Records of resources, which outlive their runs, and the resources of runs that a list should have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.plan.leaks.verdict import Evidence, ExpectedResource, ResourceRunState
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import LifecycleEvent, unit_id
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.spec.lifecycle import Lifecycle
    from dayfly.spec.run import Run

KEEP_RECORDS_MS = 400 * 24 * 3_600_000


class ResourceRecord(NamedTuple):
    """The record of a resource.

    Attributes:
        id: Its resource ID.
        run: The UID of its run.
        resource: Its name in the run.
        publisher: The publisher of its plugin.
        plugin: Its plugin as `name@version`; empty if its steps are inline.
        inventory: The digest of the params that select what the inventory lists; empty if it is not known.
        born_at: The birth of the run, in Unix milliseconds.
        ended_at: The end of the run, in Unix milliseconds; 0 if it has not ended.
    """

    id: str
    run: str
    resource: str
    publisher: str
    plugin: str
    inventory: str
    born_at: int
    ended_at: int = 0

    @property
    def plugin_name(self) -> str:
        """Return the name of the plugin without its version."""
        return semver.split_reference(self.plugin)[0]

    def evidence(self, state: ResourceRunState, *, has_token: bool) -> Evidence:
        """Return the evidence about the resource. `state` is the state of its run."""
        return Evidence(state, self.plugin, self.ended_at, has_token)


def record_resource(run: str, document: Lifecycle, born_at: int) -> ResourceRecord | None:
    """Return the record of a document; None if no resource of its own is made.

    That is so for hooks, for steps with the ID of another resource, and for a resource that a pool member provides.
    """
    origin = document.origin
    if not document.resource or document.resource_id is not None:
        return None
    if any("sharing" not in template for template in document.template):  # only parents have it
        return None
    return ResourceRecord(
        id=resource_id(run, document.resource),
        run=run,
        resource=document.resource,
        publisher=origin.publisher,
        plugin="" if origin.inline else semver.join_name(origin.plugin, origin.version),
        inventory=origin.inventory,
        born_at=born_at,
    )


def expected_resource(record: ResourceRecord, run: Run, documents: Iterable[Lifecycle]) -> ExpectedResource:
    """Return a resource of an open run that a list should have."""
    name = f"{run.target.name}/{record.resource}"
    return ExpectedResource(record.id, name, record.plugin, _made_at(run, documents, record.resource))


def _made_at(run: Run, documents: Iterable[Lifecycle], resource: str) -> int:
    """Return when all create steps of a resource had succeeded, in Unix milliseconds; 0 if they have not."""
    ends = []
    for document in documents:
        for event in (LifecycleEvent.PRE_START, LifecycleEvent.POST_START) if document.resource == resource else ():
            for unit in document.units(event):
                record = run.unit(unit_id(resource, unit.name))
                if record.outcome != "succeeded":
                    return 0
                ends.append(record.ended_at)
    return max(ends, default=0)
