"""Sandboxes and route groups of one namespace of a cluster, read and changed with the rights of the user.

The verbs and the page use it with `--context`, so that both behave alike.
"""

from __future__ import annotations

import base64
import contextlib
import time
from typing import TYPE_CHECKING, Any

from dayfly.cli.backends import cluster_pools, cluster_report, lifetime
from dayfly.cli.backends.protocol import NO_TIMES, LogTimeOptions, abandoned_too_early, pool_retry_error
from dayfly.cli.output.show import timestamp
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit, unknown_name_error
from dayfly.execute.fork.render import FORK_LABEL, fork_name
from dayfly.execute.pod import names
from dayfly.execute.pod.read import format_time
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    GROUPS,
    HOOKS,
    PLUGINS,
    POOL_MEMBERS,
    POOL_REQUEST_ANNOTATION,
    POOLS,
    RETRY_ANNOTATION,
    RUNS,
    SANDBOXES,
    PluginObject,
    forced_abandonment,
)
from dayfly.plan.why import Obstacle, explain_no_retry
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import workload_of
from dayfly.spec.pool_ledger import PoolLedger
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Collection

    from dayfly.kube.client import KubeClient
    from dayfly.kube.objects import ApiResource
    from dayfly.link.wire import PoolAction
    from dayfly.spec.plugin import Plugin

SANDBOX_DICTS, GROUP_DICTS = SANDBOXES.read_as(dict[str, Any]), GROUPS.read_as(dict[str, Any])
POOL_DICTS, MEMBER_DICTS = POOLS.read_as(dict[str, Any]), POOL_MEMBERS.read_as(dict[str, Any])
HOOK_DICTS, PLUGIN_DICTS = HOOKS.read_as(dict[str, Any]), PLUGINS.read_as(dict[str, Any])
_INSTALL = "install it there: kubectl apply --server-side -f deploy/install.yaml"


class Objects:
    """The objects of one namespace. `flags` are the options that make a command use this cluster and namespace.

    Methods raise `DayflyError` if the object does not exist, and `errors.ApiError` as the client does.
    """

    def __init__(self, client: KubeClient, namespace: str, flags: str) -> None:
        self.client, self.namespace, self.flags = client, namespace, flags
        self._first_uids: dict[str, str] = {}

    async def list_all(self, kind: ApiResource[dict[str, Any]]) -> list[Any]:
        """Return all objects of a kind, sorted by name."""
        found = (await self.client.list_all(kind, self.namespace)).items
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    async def fetch(self, name: str) -> Any:
        """Return the Sandbox, `routegroup/NAME`, or `pool/NAME` with its members."""
        subject.check(name)
        kind, bare = kind_of(name), subject.bare_name(name)
        try:
            found = await self.client.get(kind, bare, self.namespace)
        except errors.NotFound:
            raise await self._not_found_error(name) from None
        if subject.is_pool(name):
            (found,) = await self._with_members([found])
        self._first_uids.setdefault(name, found["metadata"]["uid"])
        return found

    async def pools(self) -> list[Any]:
        """Return all pools with their members, sorted by name."""
        return await self._with_members(await self.list_all(POOL_DICTS))

    async def _with_members(self, pools: list[Any]) -> list[Any]:
        return cluster_pools.join_members(pools, await self.list_all(MEMBER_DICTS)) if pools else []

    async def explain_pool(self, name: str) -> dict[str, Any]:
        """Return the use of a pool, which only its ledger records, and predictions for other sizes."""
        found = await self.fetch(subject.pool_subject(name))
        run = (found.get("status") or {}).get("run")
        record = (await self.client.get(RUNS, run)).spec.pool if run else None
        ledger = record.ledger if record is not None else PoolLedger(uid=found["metadata"]["uid"])
        return cluster_pools.explain(found, ledger, now(), cluster_report.milliseconds)

    async def control_pool(self, name: str, action: PoolAction) -> None:
        """Pause, resume or drain a pool."""
        found = await self.fetch(target := subject.pool_subject(name))
        if found["metadata"].get("deletionTimestamp"):
            raise DayflyError(Exit.FAILED, f"{subject.title(target)} is being deleted", "create a new pool")
        await self._annotate(
            target, found["metadata"]["uid"], POOL_REQUEST_ANNOTATION, f"{action} {format_time(now())}"
        )

    def was_fetched(self, name: str) -> bool:
        """Whether the object existed at the first `fetch`."""
        return name in self._first_uids

    async def find_same(self, name: str) -> Any:
        """Return the object that was fetched first; None once it is deleted or another object has its name."""
        try:
            found = await self.fetch(name)
        except DayflyError as fault:
            if fault.code != Exit.NOT_FOUND or name not in self._first_uids:
                raise
            return None
        return found if found["metadata"]["uid"] == self._first_uids[name] else None

    def why(self, found: Any, name: str, mute: Collection[str] = ()) -> Obstacle | None:
        """Return what a fetched object waits for, as `plan.why.why` does."""
        return cluster_report.why(found, now(), self.flags, name, mute)

    async def explain_published(self, kind: str, name: str) -> Obstacle | None:
        """Return what a lifecycle hook or resource plugin waits for, by its status; None for nothing."""
        resource = HOOK_DICTS if kind == "lifecyclehook" else PLUGIN_DICTS
        every = (await self.client.list_all(resource)).items
        found = next((each for each in every if name in (each["metadata"]["name"], each["spec"].get("name"))), None)
        if found is None:
            known = [str(each["metadata"]["name"]) for each in every]
            see = f"kubectl{self.flags.partition(' -n ')[0]} get {resource.plural}.{resource.group}"
            raise unknown_name_error(f'no {subject.PUBLISHED[kind]} "{name}"', name, known, see)
        return cluster_report.why_published(found, now(), self.flags, f"{kind}/{found['metadata']['name']}")

    async def external_log_command(self, name: str, unit: str, times: LogTimeOptions = NO_TIMES) -> str:
        """Return the command that shows the log of a fork; empty for a step."""
        workload = workload_of(unit)
        if workload is None:
            return ""
        fork = fork_name(name, (await self.fetch(name))["metadata"]["uid"], workload.namespace, workload.name)
        options = " --timestamps" if times.shown else ""
        options += f" --since-time={timestamp(times.since)}" if times.since else ""
        return f"kubectl{self.flags.partition(' -n ')[0]} logs -n {workload.namespace} -l {FORK_LABEL}={fork}{options}"

    async def outputs(self, sandbox: Any) -> list[Any]:
        """Return the outputs in the Secrets of the resources, in the Sandbox's namespace.

        Only the ledger records which outputs are sensitive. Without the right to read it, all are marked as sensitive.
        """
        meta, status = sandbox["metadata"], sandbox.get("status") or {}
        records: dict[str, Any] = {}
        if run := status.get("run"):
            try:
                records = dict((await self.client.get(RUNS, run)).ledger.units)
            except (*errors.ABSENT, errors.Forbidden):
                records = {}
        found = []
        for each in sandbox["spec"].get("resources") or ():
            resource = each["name"]
            secret = names.derive_name("", f"{meta['name']}-{resource}", "resource", meta["uid"], resource)
            try:
                data = (await self.client.get(SECRETS, secret, self.namespace)).data or {}
            except errors.NotFound:
                continue
            for key, value in data.items():
                step, _, output = key.partition(".")
                record = records.get(f"{resource}/{step}")
                sensitive = record is None or output not in record.outputs or record.outputs[output].sensitive
                text, encoding = _text(value)
                place = {"resource": resource, "step": step, "output": output}
                found.append({**place, "value": text, "encoding": encoding, "sensitive": sensitive})
        return found

    async def delete(self, name: str) -> str:
        """Request its deletion, which runs its delete steps. Return its UID."""
        uid: str = (await self.fetch(name))["metadata"]["uid"]
        try:
            await self.client.delete(kind_of(name), subject.bare_name(name), self.namespace, uid=uid)
        except (errors.NotFound, errors.Conflict):
            raise await self._not_found_error(name) from None
        return uid

    async def abandon(self, name: str, reason: str, *, force: bool) -> None:
        """Give up the cleanup of an object; with `force` also if it is not being deleted."""
        found = await self.fetch(name)
        meta = found["metadata"]
        if not force and not meta.get("deletionTimestamp") and cluster_report.report(found, now()).closed is None:
            raise abandoned_too_early(name, self.flags)
        value = forced_abandonment(reason) if force else reason
        await self._annotate(name, meta["uid"], ABANDON_ANNOTATION, value)

    async def retry(self, name: str, unit: str) -> dict[str, int]:
        """Retry a waiting unit now, or all waiting units if `unit` is empty. Return their last attempts."""
        if subject.is_pool(name):
            raise pool_retry_error(name, self.flags)
        sandbox = await self.fetch(name)
        found = cluster_report.report(sandbox, now())
        known = [each.id for each in found.units]
        if unit and unit not in known:
            message = f'{subject.title(name)} has no unit "{unit}"'
            raise DayflyError(Exit.NOT_FOUND, message, f"it has {', '.join(known) or 'none yet'}")
        waiting = {each.id: each.attempt for each in found.units if each.state == "retrying" and unit in ("", each.id)}
        if not waiting:
            raise DayflyError(Exit.FAILED, explain_no_retry(found, unit, subject.kind(name)))
        note = " ".join(f"{each}={attempt}" for each, attempt in waiting.items())
        await self._annotate(name, sandbox["metadata"]["uid"], RETRY_ANNOTATION, note)
        return waiting

    async def extend(self, name: str, seconds: int, until: str) -> str:
        """Extend its life by `seconds` from now (0: its time to live) or to `until`. Return its expiry time."""
        found = await self.fetch(name)
        duration, end = lifetime.extend_duration(found, name, seconds, until, now())
        if duration:
            patch = {"metadata": {"uid": found["metadata"]["uid"]}, "spec": {"ttl": {"duration": duration}}}
            await self._change(name, patch)
        return format_time(end)

    async def plugin(self, name: str, version: str) -> Plugin:
        """Return a published plugin; the highest version if `version` is empty."""
        found: dict[str, PluginObject] = {}
        for each in (await self.client.list_all(PLUGINS)).items:
            with contextlib.suppress(SpecError):  # plugins with an invalid name cannot be referenced
                bare, have = semver.split_name(str(each.spec.get("name", "")))
                if bare == name and version in ("", semver.LATEST, have):
                    found[have] = each
        if not found:
            raise DayflyError(Exit.NOT_FOUND, f"no resource plugin {name}@{version or semver.LATEST}")
        highest = max(found, key=semver.order)
        try:
            return found[highest].parsed()
        except SpecError as fault:
            message = f"the resource plugin {name}@{highest} in the cluster is invalid: {fault}"
            raise DayflyError(Exit.FAILED, message, "see: kubectl get resourceplugins") from None

    async def _not_found_error(self, name: str) -> DayflyError:
        known = []
        with contextlib.suppress(errors.ApiError):
            there = await self.client.list_all(kind_of(name).metadata_only(), self.namespace)
            known = [each.metadata.name for each in there.items]
        message = f"no {subject.title(name)} in namespace {self.namespace}"
        return unknown_name_error(
            message, subject.bare_name(name), known, f"dayfly get {subject.path(name)[0]}{self.flags}"
        )

    async def _annotate(self, name: str, uid: str, annotation: str, value: str) -> None:
        await self._change(name, {"metadata": {"uid": uid, "annotations": {annotation: value}}})

    async def _change(self, name: str, patch: dict[str, Any]) -> None:
        try:
            await self.client.patch(kind_of(name), patch, subject.bare_name(name), self.namespace)
        except (errors.NotFound, errors.Conflict):
            raise await self._not_found_error(name) from None


def kind_of(name: str) -> ApiResource[dict[str, Any]]:
    """Return the kind of a Sandbox, of `routegroup/NAME` or of `pool/NAME`."""
    if subject.is_pool(name):
        return POOL_DICTS
    return GROUP_DICTS if subject.is_group(name) else SANDBOX_DICTS


def now() -> int:
    """Return the time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def to_dayfly_error(error: errors.ApiError, flags: str) -> DayflyError:
    """Convert an error of the API server to one with an exit code and advice."""
    match error:
        case errors.Unauthorized():
            return DayflyError(
                Exit.DENIED, f"the cluster does not recognise you: {error.message}", "log in to it again"
            )
        case errors.Forbidden():
            return DayflyError(Exit.DENIED, error.message, "ask the cluster's administrator for that right")
        case errors.NotServed():
            message = (
                "this cluster does not have all kinds of Dayfly: Dayfly is not installed, or its version is too old"
            )
            return DayflyError(Exit.FAILED, message, _INSTALL)
        case errors.OutcomeUnknown():
            advice = f"check before you try again: dayfly get sandboxes{flags}"
            return DayflyError(
                Exit.FAILED, f"it is unknown whether the request was carried out: {error.message}", advice
            )
        case errors.ServerError():
            return DayflyError(
                Exit.NO_SERVER, f"the cluster cannot be reached: {error.message}", "see: kubectl cluster-info"
            )
        case _:
            return DayflyError(Exit.FAILED, error.message or str(error), "fix that and try again")


def _text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
