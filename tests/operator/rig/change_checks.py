"""Checks the content of each change by an operator in every test, and the objects that it names.

A stale cache names objects that have been replaced. So every change names its object by UID. If it replaces a list, or
an item of one, it names the version too. An operator only writes objects that belong to a Run. The only other object is
the built-in leak check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from tests.kube.fake import Call, FakeCluster
from tests.operator.rig.cloud import Object

from dayfly.execute.istio.read import SHARED_LABEL
from dayfly.execute.istio.rules import rules_of_others
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube.objects import Key
from dayfly.kube.transport import KubeRequest
from dayfly.spec.leak_check import STATE_CHECK

JSON_PATCH = "application/json-patch+json"
OF_A_RUN = frozenset(
    {"pods", "deployments", "services", "secrets", "resources", "steplogs", "httproutes", "grpcroutes"}
)
SPOKEN = frozenset(
    {
        "sandboxes",
        "routegroups",
        "resourcepools",
        "poolmembers",
        "resources",
        "resourceplugins",
        "lifecyclehooks",
        "leakchecks",
    }
)  # kinds whose status an operator writes
OWN_SECRETS = frozenset(
    f"dayfly.dev/{name}" for name in ("agent", "resource-key", "server-keys", "resource-records", "leak-check")
)  # the operator's own, in its namespace
LABELLED = frozenset({"namespaces", "resourceplugins"})  # kinds on which an operator only sets one label
UNGUARDED = frozenset({"events", "leases"})  # no other user has these names, and nothing depends on them
IN_USE = "dayfly.dev/in-use"


class Change(NamedTuple):
    """A change before it is made: the request, and the current object of that name."""

    method: str
    plural: str
    subresource: str
    body: Any
    json: bool
    now: Object | None

    @property
    def metadata(self) -> Object:
        return {} if self.json else self.body.get("metadata", {})

    @property
    def uid(self) -> str:
        """Return the UID that it names."""
        if self.method == "DELETE":
            return self.body.get("preconditions", {}).get("uid", "")
        if self.json:
            return next((op["value"] for op in _tests(self.body) if op["path"] == "/metadata/uid"), "")
        return self.metadata.get("uid", "")


class ChangeChecks:
    """Checks every change; `broken` is called with each violation."""

    def __init__(self, cluster: FakeCluster, broken: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._broken = broken
        self._known = 0  # the version up to which Runs were recorded
        self._runs: dict[str, tuple[str, str]] = {}  # by UID, also deleted ones: name, and UID of the target

    def __call__(self, call: Call) -> None:
        """Check a change before it is made."""
        request = call.request
        # Also for a kind that is no longer served: the client gets the server's answer, and this check must not fail.
        kind, key, subresource = self._cluster.target(request.path, forgotten=True)
        if kind.plural in UNGUARDED or request.query.get("dryRun") == "All":
            return
        body = msgspec.json.decode(request.body) if request.body else {}
        now = self._cluster.store.get(kind, key)
        change = Change(request.method, kind.plural, subresource, body, request.content_type == JSON_PATCH, now)
        if kind.custom and request.method == "POST" and not body.get("kind"):
            self._broken(
                f"{call.client}: {request.method} {request.path}: the real server refuses a body without a kind"
            )
        user = request.headers.get("Impersonate-User")
        owned = self._owned(change) if user is None else self._by_account(change, request, key)
        for sentence in (*_carries(change), *owned):
            self._broken(f"{call.client}: {request.method} {request.path}: {sentence}")

    def _owned(self, change: Change) -> Iterator[str]:
        """Check that a write names an object of a Run."""
        self._note_runs()
        item = change.body if change.method == "POST" else change.now
        if item is None or (change.method != "POST" and item["metadata"]["uid"] != change.uid):
            return  # no object exists, so the server refuses the request
        meta = item["metadata"]
        if change.plural == "secrets" and item.get("type") in OWN_SECRETS and meta["namespace"] == "dayfly-system":
            return
        if change.plural in OF_A_RUN:
            owners = [each for each in meta.get("ownerReferences", []) if each["kind"] == "Run"]
            label = meta.get("labels", {}).get(RUN_LABEL)
            if [each["name"] for each in owners] != [label] or not self._is_run(label, owners[0]["uid"]):
                yield f"it belongs to no Run: owners {owners}, labels {meta.get('labels')}"
        elif change.plural == "objectlifecyclemethods":
            if RUN_LABEL not in meta.get("labels", {}):
                yield "it belongs to no Run"
        elif change.plural == "poolmembers" and (change.method == "POST" or not meta.get("finalizers")):
            # It is created for the open run of a holder or of a pool, and deleted again if it never got a run.
            holder = item["spec"].get("holder", {}).get("run", "") or item["spec"].get("poolUid", "")
            if change.subresource:
                return
            if holder not in {of for _, of in self._runs.values()} and meta.get("uid") not in {
                of for _, of in self._runs.values()
            }:
                yield "it is created for no Run"
        elif (change.plural, change.method, meta["name"]) == ("leakchecks", "POST", STATE_CHECK):
            return
        elif change.plural in ("sandboxes", "routegroups", "resourcepools", "leakchecks"):
            fenced = "dayfly.dev/lifecycle" in meta.get("finalizers", [])
            served = "dayfly.dev/served" in meta.get("labels", {})
            runs = {of for _, of in self._runs.values()}
            if not change.subresource and not (fenced or served) and meta.get("uid") not in runs:
                yield "it is no Run's target"
        elif meta.get("uid") in {of for _, of in self._runs.values()}:
            return  # the target of a Run, of whatever kind
        elif change.plural == "machines":
            if not (
                change.json and any(each.startswith("lifecycle.dayfly.dev/") for each in meta.get("finalizers", []))
            ):
                yield "it is no Run's target"
        elif change.plural == "lifecyclehooks":
            if not (
                change.json or change.subresource or change.metadata.keys() == {"uid", "resourceVersion", "finalizers"}
            ):
                yield f"it changes more than our finalizer: {change.body}"
        elif change.plural == "virtualservices":
            yield from _woven(change)
        elif change.plural in LABELLED:
            if change.method != "PATCH" or not (change.subresource or _only_label(change.metadata, change.body)):
                yield f"it changes more than our label: {change.body}"
        elif change.plural != "runs" and (change.plural, change.method) != ("configmaps", "POST"):
            yield f"an operator has no business with {change.plural}"

    def _by_account(self, change: Change, request: KubeRequest, key: Key) -> Iterator[str]:
        """Check that an object of a namespace's account is marked and belongs to a Run."""
        self._note_runs()
        if request.headers["Impersonate-User"] != f"system:serviceaccount:{key.namespace}:dayfly-objects":
            yield f"it is written by {request.headers['Impersonate-User']}"
        if request.headers.get("Impersonate-Extra-dayfly.dev%2Fobjects") != "true":
            yield "it does not say what it is"
        item = change.body if change.method == "POST" else change.now
        if item is None or (change.method != "POST" and item["metadata"]["uid"] != change.uid):
            return
        owners = [each["uid"] for each in item["metadata"].get("ownerReferences", []) if each["kind"] == "Run"]
        if len(owners) != 1 or owners[0] not in self._runs:
            yield f"it belongs to no Run: owners {owners}"

    def _is_run(self, name: str, uid: str) -> bool:
        """Return whether such a Run exists or existed; for a deleted one the name is enough."""
        return uid in self._runs or self._cluster.store.get(self._cluster.kind("runs"), Key("", name)) is None

    def _note_runs(self) -> None:
        for write in self._cluster.store.after(self._cluster.kind("runs"), self._known):
            if write.new is not None:
                self._runs[write.new["metadata"]["uid"]] = write.key.name, write.new["ledger"]["target"]["uid"]
            self._known = write.version


def _carries(change: Change) -> Iterator[str]:
    """Check that the request names the UID, and the version if it changes a list."""
    if change.method == "POST":
        return
    if not change.uid:
        yield "it names no UID"
    recalls = (change.plural, change.subresource) == ("pods", "ephemeralcontainers")
    if change.subresource and not recalls and (change.subresource != "status" or change.plural not in SPOKEN):
        yield f"an operator has no business with {change.plural}/{change.subresource}"
    if change.json:
        tested = {op["path"] for op in _tests(change.body)}
        for op in change.body:
            parent, _, last = op["path"].rpartition("/")
            if op["op"] == "remove" and last.isdigit() and not any(path.startswith(op["path"]) for path in tested):
                yield f"it takes away whatever is at {parent}/{last}"
    elif _replaces(change) and not change.metadata.get("resourceVersion"):
        yield "it replaces a whole list or object without its version"


def _woven(change: Change) -> Iterator[str]:
    """Check that only our rules of a foreign VirtualService are changed."""
    item = change.body if change.method == "POST" else change.now
    ours = SHARED_LABEL in item["metadata"].get("labels", {})
    if change.method == "POST" or ours:
        if not ours or {each["kind"] for each in item["metadata"]["ownerReferences"]} != {"Run"}:
            yield "it creates an object without our mark"
        return
    if change.method != "PATCH" or change.body.keys() != {"metadata", "spec"} or change.body["spec"].keys() != {"http"}:
        yield f"more of it is changed than its rules: {change.method} {change.body}"
    elif change.metadata.keys() != {"uid", "resourceVersion"}:
        yield f"its metadata is changed: {change.metadata}"
    elif rules_of_others(change.body["spec"]["http"]) != rules_of_others(item["spec"].get("http", [])):
        yield "rules of others are changed"


def _tests(operations: list[Object]) -> list[Object]:
    """Return the JSON Patch tests before the first change."""
    first = next((at for at, op in enumerate(operations) if op["op"] != "test"), len(operations))
    return operations[:first]


def _replaces(change: Change) -> bool:
    lists = change.subresource != "status" and _has_list(change.body)
    return change.method == "PUT" or (change.method == "PATCH" and lists)


def _has_list(body: Any) -> bool:
    return isinstance(body, list) or (isinstance(body, dict) and any(map(_has_list, body.values())))


def _only_label(meta: Object, body: Object) -> bool:
    return body.keys() == {"metadata"} and meta.keys() == {"uid", "labels"} and meta["labels"].keys() == {IN_USE}
