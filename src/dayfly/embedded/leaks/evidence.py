"""Evidence in the ledger of this machine about resource IDs in a list, and resources that the list should have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.plan.leaks.records import expected_resource
from dayfly.plan.leaks.verdict import Evidence, ExpectedResource, ResourceRunState
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.resource_token import verified_host

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dayfly.embedded.ledger import SqliteLedger, StoredRun
    from dayfly.plan.leaks.listing import InventoryItem
    from dayfly.plan.leaks.records import ResourceRecord
    from dayfly.spec.lifecycle import StepOrigin
    from dayfly.spec.resource_token import HostIdentity


def gather_evidence(
    reader: SqliteLedger, items: Iterable[InventoryItem], deleting: Collection[str] = ()
) -> dict[str, Evidence]:
    """Return what is known of each resource ID in a list. `deleting` are the IDs that a check is deleting now."""
    identity = reader.records.identity()
    tokens: dict[str, bool] = {}
    for item in items:
        if item.id:
            tokens[item.id] = tokens.get(item.id, False) or _is_ours(identity, item)
    records = reader.records.find(tokens.keys())
    found = {}
    for id_, has_token in tokens.items():
        record = records.get(id_)
        state = ResourceRunState.CLOSED if id_ in deleting else _run_state(reader, record)
        known = record.evidence(state, has_token=has_token) if record is not None else None
        found[id_] = known or Evidence(state, has_token=has_token)
    return found


def expected_resources(reader: SqliteLedger, origin: StepOrigin) -> list[ExpectedResource]:
    """Return the resources of open runs with the plugin and the params of an inventory."""
    if not origin.inventory:
        return []
    found = []
    for record in reader.records.living(origin.publisher, origin.plugin, origin.inventory):
        stored = _load(reader, record.run)
        if stored is not None and stored.run.closed is None:
            found.append(expected_resource(record, stored.run, stored.documents))
    return found


def _is_ours(identity: HostIdentity, item: InventoryItem) -> bool:
    return verified_host(identity.key, item.token, item.id) == identity.host


def _run_state(reader: SqliteLedger, record: ResourceRecord | None) -> ResourceRunState:
    if record is None or record.ended_at:
        return ResourceRunState.NONE
    stored = _load(reader, record.run)
    if stored is None:
        # Its run is lost or damaged, or has just ended.
        return ResourceRunState.UNANSWERED
    return ResourceRunState.OPEN if stored.run.closed is None else ResourceRunState.CLOSED


def _load(reader: SqliteLedger, run: str) -> StoredRun | None:
    try:
        return reader.load(run)
    except RunDamagedError:
        return None
