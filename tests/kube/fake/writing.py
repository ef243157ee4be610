"""Create, change and delete, by the rules of the real server's registries."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import re
from collections.abc import Callable
from typing import Any

from tests.kube.fake import pods, workloads
from tests.kube.fake.kinds import DEPLOYMENTS, NAMESPACES, PODS, SECRETS, SERVICES, Kind
from tests.kube.fake.refusals import Refusal, invalid, not_found
from tests.kube.fake.store import Object, Store

from dayfly.kube.objects import Key

Admission = Callable[[str, Kind, Object | None, Object | None], Object | None]
"""(operation, kind, old, new) -> the object to store in place of `new`; raise `Refusal` to deny. None keeps `new`."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


@dataclasses.dataclass
class Writer:
    """Applies one change to the store, completely or not at all."""

    store: Store
    time: Callable[[], float]
    dice: random.Random
    admission: list[Admission] = dataclasses.field(default_factory=list)

    def stamp(self, after: float = 0.0) -> str:
        return (_EPOCH + dt.timedelta(seconds=int(self.time() + after))).strftime("%Y-%m-%dT%H:%M:%SZ")

    def exact_stamp(self) -> str:
        """Return the time in nanoseconds, as a kubelet writes it before a line."""
        return (_EPOCH + dt.timedelta(seconds=self.time())).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")

    def create(self, kind: Kind, namespace: str, body: Object, *, dry_run: bool = False) -> Object:
        _check_identity(kind, body)
        metadata = {key: value for key, value in body.get("metadata", {}).items() if key not in _SERVER_OWNED}
        if metadata.pop("resourceVersion", ""):
            raise Refusal(500, "resourceVersion should not be set on objects to be created")
        self._check_namespace(kind, namespace, metadata)
        if kind.namespaced:
            metadata["namespace"] = namespace
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(self.dice.choices(_LETTERS, k=5))
        if not metadata.get("name"):
            raise invalid("metadata.name", "Required value: name or generateName is required")
        if not _NAME.fullmatch(metadata["name"]):
            raise invalid("metadata.name", f'Invalid value: "{metadata["name"]}"')
        new = body | {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        metadata["uid"] = str(self._uuid())
        metadata["creationTimestamp"] = self.stamp()
        if kind.generation:
            metadata["generation"] = 1
        if kind.status:
            new.pop("status", None)
        self._born(kind, new)
        new = self._admit("CREATE", kind, None, new)
        key = Key(metadata.get("namespace", ""), metadata["name"])
        if self.store.get(kind, key):
            message = f'{kind.qualified} "{key.name}" already exists'
            raise Refusal(409, message, reason="AlreadyExists")
        return self._put(kind, key, new, dry_run)

    def update(
        self,
        kind: Kind,
        key: Key,
        body: Object,
        *,
        status: bool,
        patch: bool,
        dry_run: bool = False,
        adds: bool = False,
    ) -> Object:
        """Replace the current object; `status` and `adds` name the subresource."""
        current = self._current(kind, key)
        _check_identity(kind, body)
        sent = body.get("metadata", {})
        if sent.get("name", "") != key.name:
            raise Refusal(400, f"the name of the object ({sent.get('name')}) does not match the name on the URL")
        if sent.get("namespace", key.namespace) not in ("", key.namespace):
            raise Refusal(400, "the namespace of the provided object does not match the namespace sent on the request")
        uid = sent.get("uid", "")
        if patch:  # in a patch the UID is an immutable field
            _check_preconditions(kind, key, current, "", sent.get("resourceVersion", ""))
            passed_over = status and kind.custom  # only the status of such a patch counts
            if uid and uid != current["metadata"]["uid"] and not passed_over:
                raise invalid("metadata.uid", f'Invalid value: "{uid}": field is immutable')
        else:
            _check_preconditions(kind, key, current, uid, sent.get("resourceVersion", ""))
        if kind.custom and not sent.get("resourceVersion"):
            raise invalid("metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update")
        new = self._changed_status(kind, current, body) if status else self._changed(kind, current, body, adds=adds)
        new = self._admit("UPDATE", kind, current, new)
        if new == current:
            return current
        if _may_go(kind, new):
            return self._put(kind, key, None, dry_run) or new
        return self._put(kind, key, new, dry_run)

    def bind(self, key: Key, node: str) -> None:
        pod = self._current(PODS, key)
        self._put(PODS, key, pods.bind(pod, node), False)

    def delete(self, kind: Kind, key: Key, options: dict[str, Any], *, dry_run: bool = False) -> Object:
        """Mark an object for deletion or remove it; return its last state."""
        current = self._current(kind, key)
        conditions = options.get("preconditions", {})
        _check_preconditions(kind, key, current, conditions.get("uid", ""), conditions.get("resourceVersion", ""))
        self._admit("DELETE", kind, current, None)
        metadata = dict(current["metadata"])
        grace = pods.grace(current, options.get("gracePeriodSeconds")) if kind is PODS else 0
        finalizers = list(metadata.get("finalizers", []))
        wanted = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(options.get("propagationPolicy", ""))
        if wanted and wanted not in finalizers:
            finalizers.append(wanted)
        if finalizers:
            metadata["finalizers"] = finalizers
        held = finalizers or grace or kind is NAMESPACES
        if not held and kind is not PODS:
            self._put(kind, key, None, dry_run)
            return current
        before = metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" not in metadata or (kind is PODS and before is not None and grace < before):
            if "generation" in metadata and "deletionTimestamp" not in metadata:
                metadata["generation"] += 1
            metadata["deletionTimestamp"] = self.stamp(grace)
            metadata["deletionGracePeriodSeconds"] = grace
        new = current | {"metadata": metadata}
        if kind is NAMESPACES:
            metadata.pop("deletionGracePeriodSeconds")
            new["status"] = {"phase": "Terminating"}
        if new != current:
            new = self._put(kind, key, new, dry_run)
        if not held:
            self._put(kind, key, None, dry_run)  # a pod without grace period is marked first, in a separate write
        return new

    def evict(self, key: Key, options: dict[str, Any]) -> Object:
        """Write twice, like the real server: a mark, then a deletion."""
        pod = self._current(PODS, key)
        _check_preconditions(PODS, key, pod, options.get("preconditions", {}).get("uid", ""), "")
        marked = pods.disrupted(pod)
        if marked != pod:
            self._put(PODS, key, marked, dry_run=False)
        return self.delete(PODS, key, options)

    def remove(self, kind: Kind, key: Key) -> None:
        """Remove an object, for the controllers."""
        self.store.put(kind, key, None, self.time())

    def rewrite(self, kind: Kind, key: Key, new: Object) -> None:
        """Store an object for the controllers, or remove it if no finalizer is left."""
        self.store.put(kind, key, None if _may_go(kind, new) else new, self.time())

    def _uuid(self) -> str:
        digits = f"{self.dice.getrandbits(128):032x}"
        return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])

    def _current(self, kind: Kind, key: Key) -> Object:
        current = self.store.get(kind, key)
        if current is None:
            raise not_found(kind.qualified, key.name)
        return current

    def _check_namespace(self, kind: Kind, namespace: str, metadata: dict[str, Any]) -> None:
        if not kind.namespaced:
            return
        if metadata.get("namespace", namespace) != namespace:
            raise Refusal(400, "the namespace of the provided object does not match the namespace sent on the request")
        found = self.store.get(NAMESPACES, Key("", namespace))
        if not found:
            raise not_found("namespaces", namespace)
        if found["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise Refusal(403, message, causes=(("NamespaceTerminating", "metadata.namespace"),))

    def _born(self, kind: Kind, new: Object) -> None:
        _prune(kind, new)
        if kind is PODS:
            pods.born(new)
        if kind is DEPLOYMENTS:
            workloads.deployment_born(new)
        if kind is SERVICES:
            workloads.service_born(new, self.dice)
        if kind is SECRETS:
            new.setdefault("type", "Opaque")
        if kind is NAMESPACES:
            new["status"] = {"phase": "Active"}

    def _admit(self, operation: str, kind: Kind, old: Object | None, new: Object | None) -> Any:
        for hook in self.admission:
            new = hook(operation, kind, old, new) or new
        return new

    def _changed(self, kind: Kind, current: Object, body: Object, *, adds: bool = False) -> Object:
        """Return the current object with the changes that the main endpoint permits."""
        new = body | {"apiVersion": kind.api_version, "kind": kind.kind}
        if kind.status:
            new.pop("status", None)
            if "status" in current:
                new["status"] = current["status"]
        old_meta = current["metadata"]
        metadata = {key: value for key, value in body.get("metadata", {}).items() if value not in (None, [], {})}
        for key in (*_SERVER_OWNED, "resourceVersion", "namespace", "generateName"):
            metadata.pop(key, None)
            if key in old_meta:
                metadata[key] = old_meta[key]
        added = set(metadata.get("finalizers", [])) - set(old_meta.get("finalizers", []))
        if added and "deletionTimestamp" in old_meta:
            message = "Forbidden: no new finalizers can be added if the object is being deleted"
            raise invalid("metadata.finalizers", message)
        new["metadata"] = metadata
        _prune(kind, new)
        if kind is PODS:
            pods.changed(current, new, adds=adds)
        if kind is SECRETS:
            _check_secret(current, new)
        if kind is DEPLOYMENTS:
            workloads.deployment_changed(current, new)
        if kind is SERVICES:
            workloads.service_changed(current, new)
        if kind.generation and _content(kind, new) != _content(kind, current):
            metadata["generation"] = old_meta["generation"] + 1
        return new

    def _changed_status(self, kind: Kind, current: Object, body: Object) -> Object:
        if not kind.status:
            raise Refusal(404, "the server could not find the requested resource")
        new = dict(current)
        if "status" in body:
            new["status"] = body["status"]
        else:
            new.pop("status", None)
        return new

    def _put(self, kind: Kind, key: Key, new: Object | None, dry_run: bool) -> Any:
        if dry_run:
            return new
        return self.store.put(kind, key, new, self.time())


def _prune(kind: Kind, new: Object) -> None:
    """Drop fields that a typed object loses when it is decoded and encoded."""
    if kind is PODS and not new.get("spec", {}).get("schedulingGates", True):
        new["spec"] = {key: value for key, value in new["spec"].items() if key != "schedulingGates"}
    if kind is SECRETS and not new.get("data"):
        new.pop("data", None)


def _content(kind: Kind, item: Object) -> Object:
    """Return the fields that make a new generation."""
    apart = ("metadata", "status") if kind.status else ("metadata",)
    content = {key: value for key, value in item.items() if key not in apart}
    # In the real registry a Deployment's annotations count as spec.
    return content | {"annotations": item["metadata"].get("annotations")} if kind is DEPLOYMENTS else content


def _may_go(kind: Kind, item: Object) -> bool:
    """Return whether the object is marked for deletion and has no finalizers."""
    metadata = item["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return kind is not NAMESPACES and not metadata.get("deletionGracePeriodSeconds")


def _check_identity(kind: Kind, body: Object) -> None:
    said = (body.get("apiVersion", kind.api_version), body.get("kind", kind.kind))
    if said != (kind.api_version, kind.kind):
        raise Refusal(400, f"the object provided is {said[0]} {said[1]}, not {kind.api_version} {kind.kind}")


def _check_preconditions(kind: Kind, key: Key, current: Object, uid: str, version: str) -> None:
    metadata = current["metadata"]
    if uid and uid != metadata["uid"]:
        message = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
        raise Refusal(409, f'Operation cannot be fulfilled on {kind.qualified} "{key.name}": {message}')
    if version and version != metadata["resourceVersion"]:
        message = "the object has been modified; please apply your changes to the latest version and try again"
        raise Refusal(409, f'Operation cannot be fulfilled on {kind.qualified} "{key.name}": {message}')


def _check_secret(old: Object, new: Object) -> None:
    if new.get("type", "Opaque") != old.get("type"):
        raise invalid("type", "field is immutable")
    if old.get("immutable") and (new.get("data") != old.get("data") or not new.get("immutable")):
        raise invalid("data", "Forbidden: field is immutable when `immutable` is set")
