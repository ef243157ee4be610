"""Records of sandboxes and route groups for tests that write to the store directly."""

from __future__ import annotations

from dayfly.link.server_end import Links
from dayfly.server.records import run_records
from dayfly.server.records.run_records import SANDBOXES, RunRecord, find, save
from dayfly.server.runs.group_strategy import GroupStrategy
from dayfly.server.runs.group_sweep import GroupSweep
from dayfly.server.runs.run_service import RunService
from dayfly.spec.route_group import RouteGroupSpec
from dayfly.spec.sandbox import SandboxSpec


def sandbox(uid="u", *, org="acme", name="", cluster="far", at=1, **spec):
    """Return a record that is not stored yet; `spec` are fields of its spec."""
    return RunRecord(
        org=org,
        uid=uid,
        name=name or uid,
        routing_key=uid,
        cluster=cluster,
        spec=SandboxSpec(cluster=cluster, **spec),
        created_at=at,
        updated_at=at,
    )


def group(uid="g", *, org="acme", name="", cluster="far", at=1, unmatched_since=0, **spec):
    """See `sandbox`. Without a cluster in its spec it is a group of all clusters."""
    spec = {"match": {"label": {"key": "a", "value": "b"}}, **spec}
    return RunRecord(
        org=org,
        uid=uid,
        name=name or uid,
        routing_key=uid,
        cluster=cluster,
        spec=RouteGroupSpec(**spec),
        created_at=at,
        updated_at=at,
        unmatched_since=unmatched_since,
    )


async def write(store, record):
    """Store a record, as its organisation."""
    return await store.for_org(record.org).write(lambda rows: save(rows, record, declares=False))


async def read(store, org, name, kind=SANDBOXES):
    """Return the stored record of that name."""
    return await store.for_org(org).read(lambda rows: find(rows, kind, name))


async def read_all(store, org, kind=SANDBOXES):
    """Return all stored records of that kind, by name."""
    return await store.for_org(org).read(lambda rows: run_records.read_all(rows, kind))


def group_sweep(store, sync):
    """Return the sweep of route groups for a server without hosts."""
    strategy = GroupStrategy(store, Links(), sync)
    return GroupSweep(store, Links(), sync, RunService(store, Links(), sync, strategy), strategy)
