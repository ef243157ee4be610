"""A Sandbox object as JSON of the REST API: its row in the list, its report, and whether it needs attention. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.cli.backends import cluster_report
from dayfly.kube.objects import AnnotatedMeta, KubeStruct
from dayfly.operator.cluster.objects import SANDBOXES
from dayfly.server import attention
from dayfly.server.attention import AttentionSubject, Concern
from dayfly.server.runs import pool_forms
from dayfly.spec.identity import routing_key
from dayfly.spec.report import RunReport

if TYPE_CHECKING:
    from collections.abc import Collection

_NONE = msgspec.Raw(b"{}")
# The fields of a spec in the list. The sandbox itself has all fields.
_LISTED = ("description", "labels", "ttl")


class PageSandbox(KubeStruct, frozen=True):
    """A Sandbox whose spec and status are decoded on demand, because there may be thousands."""

    metadata: AnnotatedMeta
    spec: msgspec.Raw = _NONE
    status: msgspec.Raw = _NONE


PAGE_SANDBOXES = SANDBOXES.read_as(PageSandbox)


class PageEntry(NamedTuple):
    """The stored data of a Sandbox. `needs_attention` ignores its expiry. Times are Unix milliseconds."""

    line: bytes
    version: int
    uid: str
    routing_key: str
    begins_at: int
    expires_at: int
    needs_attention: bool
    plugins: tuple[tuple[str, str], ...]


def decode(sandbox: PageSandbox) -> dict[str, Any]:
    """Decode a Sandbox to the form that the verbs use."""
    read = msgspec.json.decode
    return {
        "metadata": msgspec.to_builtins(sandbox.metadata),
        "spec": read(sandbox.spec) or {},
        "status": read(sandbox.status) or {},
    }


def build_entry(sandbox: PageSandbox, name: str, version: int, now: int) -> PageEntry:
    """Return the entry of a Sandbox. `name` is its name on the page."""
    found = decode(sandbox)
    report = cluster_report.report(found, now)
    begins, expires = cluster_report.milliseconds(sandbox.metadata.creation_timestamp), _expires(found)
    resources = found["spec"].get("resources") or ()
    return PageEntry(
        line=msgspec.json.encode(sandbox_json(found, name, report, _LISTED)),
        version=version,
        uid=sandbox.metadata.uid,
        routing_key=_key(found),
        begins_at=begins,
        expires_at=expires,
        needs_attention=bool(attention.find_concerns([AttentionSubject(name, report, 0, 0)], now)),
        plugins=tuple((str(each["name"]), str(each["plugin"])) for each in resources if each.get("plugin")),
    )


def sandbox_json(found: Any, name: str, report: RunReport, listed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a sandbox as the REST API does; with `listed`, only these fields of its spec."""
    meta, reported = found["metadata"], found["status"]
    status: dict[str, Any] = {"ready": report.ready, "reason": report.reason, "message": report.message}
    if report.unsupported:
        status["unsupported"] = report.unsupported
    if end := reported.get("expiresAt"):
        status["scheduledDeleteTime"] = end
    if pooled := pool_forms.describe_resources(report.units):
        status["resources"] = pooled
    spec = found["spec"]
    return {
        "name": name,
        "namespace": meta["namespace"],
        "routingKey": _key(found),
        "createdAt": meta["creationTimestamp"],
        # A cluster does not record when a spec was changed.
        "updatedAt": meta["creationTimestamp"],
        "spec": {key: spec[key] for key in listed if key in spec} if listed else spec,
        "endpoints": reported.get("endpoints") or [],
        "status": status,
        "progress": {
            "phase": report.phase.value,
            "done": report.done,
            "total": report.total,
            "severity": attention.severity(report).name.lower(),
        },
    }


def report_json(found: Any, name: str, version: int, report: RunReport, denied: dict[str, str]) -> dict[str, Any]:
    """Return a report as the REST API does."""
    return {
        **msgspec.to_builtins(report),
        "uid": report.uid,
        "name": name,
        "cluster": "",
        "routingKey": _key(found),
        "version": version,
        "endpoints": found["status"].get("endpoints") or [],
        "denied": denied,
    }


def find_concerns(found: Any, name: str, flags: str, now: int, mute: Collection[str] = ()) -> list[Concern]:
    """Return why a Sandbox needs attention, with commands for this cluster. `mute` is as in `AttentionSubject`."""
    meta, bare = found["metadata"], found["metadata"]["name"]
    begins = cluster_report.milliseconds(meta["creationTimestamp"])
    box = AttentionSubject(bare, cluster_report.report(found, now), begins, _expires(found), mute)
    changed = []
    for each in attention.find_concerns([box], now):
        subject = each.subject.removesuffix(f"sandbox {bare}") + f"sandbox {name}"
        command = cluster_report.add_flags(each.next, flags)
        changed.append(msgspec.structs.replace(each, subject=subject, sandbox=name, next=command))
    return changed


def _key(found: Any) -> str:
    return str(found["status"].get("routingKey") or routing_key(found["metadata"]["uid"]))


def _expires(found: Any) -> int:
    return cluster_report.milliseconds(found["status"].get("expiresAt"))
