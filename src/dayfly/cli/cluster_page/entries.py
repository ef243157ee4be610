"""One Sandbox object as the page knows it: a line of the list, its report, whether it needs attention. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.cli.backends import cluster_report
from dayfly.kube.objects import AnnotatedMeta, Slim
from dayfly.operator.cluster.objects import SANDBOXES
from dayfly.server import attention
from dayfly.server.attention import AttentionSubject, Concern
from dayfly.spec.identity import routing_key
from dayfly.spec.report import RunReport

if TYPE_CHECKING:
    from collections.abc import Collection

_NONE = msgspec.Raw(b"{}")
# Of a wish the list shows so much. The whole of it comes with the sandbox itself.
_LISTED = ("description", "labels", "ttl")


class PageSandbox(Slim, frozen=True):
    """A Sandbox whose wish and status are read when somebody looks at it: there may be thousands."""

    metadata: AnnotatedMeta
    spec: msgspec.Raw = _NONE
    status: msgspec.Raw = _NONE


SEEN = SANDBOXES.read_as(PageSandbox)


class PageEntry(NamedTuple):
    """What is kept of one. `concerns`: whether it needs attention whatever the time is; times are unix milliseconds."""

    line: bytes
    version: int
    uid: str
    routing_key: str
    begins_at: int
    expires_at: int
    concerns: bool
    plugins: tuple[tuple[str, str], ...]


def whole(seen: PageSandbox) -> dict[str, Any]:
    """The object as the verbs read it."""
    read = msgspec.json.decode
    return {
        "metadata": msgspec.to_builtins(seen.metadata),
        "spec": read(seen.spec) or {},
        "status": read(seen.status) or {},
    }


def entry(seen: PageSandbox, name: str, version: int, now: int) -> PageEntry:
    """Of one that is called so on the page."""
    found = whole(seen)
    report = cluster_report.report(found, now)
    begins, expires = cluster_report.milliseconds(seen.metadata.creation_timestamp), _expires(found)
    wishes = found["spec"].get("resources") or ()
    return PageEntry(
        line=msgspec.json.encode(form(found, name, report, _LISTED)),
        version=version,
        uid=seen.metadata.uid,
        routing_key=_key(found),
        begins_at=begins,
        expires_at=expires,
        concerns=bool(attention.find_concerns([AttentionSubject(name, report, 0, 0)], now)),
        plugins=tuple((str(wish["name"]), str(wish["plugin"])) for wish in wishes if wish.get("plugin")),
    )


def form(found: Any, name: str, report: RunReport, listed: tuple[str, ...] = ()) -> dict[str, Any]:
    """As the API has a sandbox; with `listed` only so much of its wish."""
    meta, spoken = found["metadata"], found["status"]
    status: dict[str, Any] = {"ready": report.ready, "reason": report.reason, "message": report.message}
    if report.unsupported:
        status["unsupported"] = report.unsupported
    if end := spoken.get("expiresAt"):
        status["scheduledDeleteTime"] = end
    spec = found["spec"]
    return {
        "name": name,
        "namespace": meta["namespace"],
        "routingKey": _key(found),
        "createdAt": meta["creationTimestamp"],
        # A cluster does not record when a spec was changed.
        "updatedAt": meta["creationTimestamp"],
        "spec": {key: spec[key] for key in listed if key in spec} if listed else spec,
        "endpoints": spoken.get("endpoints") or [],
        "status": status,
        "progress": {
            "phase": report.phase.value,
            "done": report.done,
            "total": report.total,
            "tone": attention.tone(report).name.lower(),
        },
    }


def told(found: Any, name: str, version: int, report: RunReport, denied: dict[str, str]) -> dict[str, Any]:
    """As the API has a report."""
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


def concerns(found: Any, name: str, flags: str, now: int, mute: Collection[str] = ()) -> list[Concern]:
    """What of it needs attention; commands in it mean this cluster. `mute` as `attention.AttentionSubject` has it."""
    meta, bare = found["metadata"], found["metadata"]["name"]
    begins = cluster_report.milliseconds(meta["creationTimestamp"])
    box = AttentionSubject(bare, cluster_report.report(found, now), begins, _expires(found), mute)
    changed = []
    for each in attention.find_concerns([box], now):
        subject = each.subject.removesuffix(f"sandbox {bare}") + f"sandbox {name}"
        typed = cluster_report.typeable(each.next, flags)
        changed.append(msgspec.structs.replace(each, subject=subject, sandbox=name, next=typed))
    return changed


def _key(found: Any) -> str:
    return str(found["status"].get("routingKey") or routing_key(found["metadata"]["uid"]))


def _expires(found: Any) -> int:
    return cluster_report.milliseconds(found["status"].get("expiresAt"))
