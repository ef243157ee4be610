"""The Sandboxes and route groups of one namespace of a cluster, read and changed with the rights of whoever asks.

The verbs with `--context` and the page with `--context` both ask here, so they say and do the same.
"""

from __future__ import annotations

import base64
import contextlib
import time
from typing import TYPE_CHECKING, Any

from dayfly.cli.backends import cluster_report, lifetime
from dayfly.cli.backends.protocol import NO_TIMES, When, abandoned_too_early
from dayfly.cli.output.show import moment
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit, not_there
from dayfly.execute.fork.render import FORK_LABEL, fork_name
from dayfly.execute.pod import names
from dayfly.execute.pod.read import stamp
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    GROUPS,
    HOOKS,
    PLUGINS,
    RETRY_ANNOTATION,
    RUNS,
    SANDBOXES,
    PluginObject,
    forced_abandonment,
)
from dayfly.plan.why import Obstacle, nothing_to_retry
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import workload_of
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Collection

    from dayfly.kube.client import Client
    from dayfly.kube.objects import Resource
    from dayfly.spec.plugin import Plugin

SANDBOX_DICTS, GROUP_DICTS = SANDBOXES.read_as(dict[str, Any]), GROUPS.read_as(dict[str, Any])
HOOK_DICTS, PLUGIN_DICTS = HOOKS.read_as(dict[str, Any]), PLUGINS.read_as(dict[str, Any])
_INSTALL = "install it there: kubectl apply --server-side -f deploy/install.yaml"


class Objects:
    """Of one namespace. `flags` is what a command needs behind it to mean this cluster and namespace.

    Methods raise `DayflyError` if there is none of that name, and `errors.RequestError` as the client does.
    """

    def __init__(self, client: Client, namespace: str, flags: str) -> None:
        self.client, self.namespace, self.flags = client, namespace, flags
        self._met: dict[str, str] = {}

    async def every(self, kind: Resource[dict[str, Any]]) -> list[Any]:
        """All of a kind, by name."""
        found = (await self.client.list_all(kind, self.namespace)).items
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    async def fetch(self, name: str) -> Any:
        """One of them."""
        subject.check(name)
        kind, bare = kind_of(name), subject.bare(name)
        try:
            found = await self.client.get(kind, bare, self.namespace)
        except errors.NotFound:
            raise await self._no(name) from None
        self._met.setdefault(name, found["metadata"]["uid"])
        return found

    def has_met(self, name: str) -> bool:
        """Whether it was there when it was asked for first."""
        return name in self._met

    async def living(self, name: str) -> Any:
        """The one that was asked for first; None once it, or whatever has its name now, is another or none."""
        try:
            found = await self.fetch(name)
        except DayflyError as fault:
            if fault.code != Exit.NOT_FOUND or name not in self._met:
                raise
            return None
        return found if found["metadata"]["uid"] == self._met[name] else None

    def why(self, found: Any, name: str, mute: Collection[str] = ()) -> Obstacle | None:
        """What holds up what was fetched by that name; as `plan.why.why` has it."""
        return cluster_report.why(found, now(), self.flags, name, mute)

    async def judged(self, kind: str, name: str) -> Obstacle | None:
        """What holds up a lifecycle hook or a resource plugin, as its status says; None if nothing does."""
        resource = HOOK_DICTS if kind == "lifecyclehook" else PLUGIN_DICTS
        every = (await self.client.list_all(resource)).items
        found = next((each for each in every if name in (each["metadata"]["name"], each["spec"].get("name"))), None)
        if found is None:
            known = [str(each["metadata"]["name"]) for each in every]
            see = f"kubectl{self.flags.partition(' -n ')[0]} get {resource.plural}.{resource.group}"
            raise not_there(f'no {subject.PUBLISHED[kind]} "{name}"', name, known, see)
        return cluster_report.why_published(found, now(), self.flags, f"{kind}/{found['metadata']['name']}")

    async def elsewhere(self, name: str, unit: str, when: When = NO_TIMES) -> str:
        """The command that shows a fork's log; empty for a step."""
        of = workload_of(unit)
        if of is None:
            return ""
        fork = fork_name(name, (await self.fetch(name))["metadata"]["uid"], of.namespace, of.name)
        times = f"{' --timestamps' if when.shown else ''}{f' --since-time={moment(when.since)}' if when.since else ''}"
        return f"kubectl{self.flags.partition(' -n ')[0]} logs -n {of.namespace} -l {FORK_LABEL}={fork}{times}"

    async def outputs(self, sandbox: Any) -> list[Any]:
        """From the Secret of each resource in the Sandbox's namespace.

        What is sensitive only the ledger says. Without the right to it everything counts as sensitive.
        """
        meta, status = sandbox["metadata"], sandbox.get("status") or {}
        records: dict[str, Any] = {}
        if run := status.get("run"):
            try:
                records = dict((await self.client.get(RUNS, run)).ledger.units)
            except (*errors.ABSENT, errors.Forbidden):
                records = {}
        found = []
        for wish in sandbox["spec"].get("resources") or ():
            resource = wish["name"]
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
        """Ask for its end; its UID. It goes once its delete steps have."""
        uid: str = (await self.fetch(name))["metadata"]["uid"]
        try:
            await self.client.delete(kind_of(name), subject.bare(name), self.namespace, uid=uid)
        except (errors.NotFound, errors.Conflict):
            raise await self._no(name) from None
        return uid

    async def abandon(self, name: str, reason: str, *, force: bool) -> None:
        """Give up the cleanup of this very object; with `force` also a cleanup that has not begun."""
        found = await self.fetch(name)
        meta = found["metadata"]
        if not force and not meta.get("deletionTimestamp") and cluster_report.report(found, now()).closed is None:
            raise abandoned_too_early(name, self.flags)
        value = forced_abandonment(reason) if force else reason
        await self._annotate(name, meta["uid"], ABANDON_ANNOTATION, value)

    async def retry(self, name: str, unit: str) -> dict[str, int]:
        """Try again now what waits for that: one unit, or all for an empty one; after which attempts they waited."""
        sandbox = await self.fetch(name)
        found = cluster_report.report(sandbox, now())
        there = [each.id for each in found.units]
        if unit and unit not in there:
            message = f'{subject.title(name)} has no unit "{unit}"'
            raise DayflyError(Exit.NOT_FOUND, message, f"it has {', '.join(there) or 'none yet'}")
        waiting = {each.id: each.attempt for each in found.units if each.state == "retrying" and unit in ("", each.id)}
        if not waiting:
            raise DayflyError(Exit.FAILED, nothing_to_retry(found, unit, subject.kind(name)))
        note = " ".join(f"{each}={attempt}" for each, attempt in waiting.items())
        await self._annotate(name, sandbox["metadata"]["uid"], RETRY_ANNOTATION, note)
        return waiting

    async def extend(self, name: str, seconds: int, until: str) -> str:
        """Let it live so long from now on (0: its own length), or until then; until when it lives, in any case."""
        found = await self.fetch(name)
        duration, end = lifetime.extended(found, name, seconds, until, now())
        if duration:
            patch = {"metadata": {"uid": found["metadata"]["uid"]}, "spec": {"ttl": {"duration": duration}}}
            await self._change(name, patch)
        return stamp(end)

    async def plugin(self, name: str, version: str) -> Plugin:
        """A published plugin; the highest version for an empty one."""
        found: dict[str, PluginObject] = {}
        for each in (await self.client.list_all(PLUGINS)).items:
            with contextlib.suppress(SpecError):  # one that nobody can name is not meant
                bare, have = semver.split_name(str(each.spec.get("name", "")))
                if bare == name and version in ("", semver.LATEST, have):
                    found[have] = each
        if not found:
            raise DayflyError(Exit.NOT_FOUND, f"no resource plugin {name}@{version or semver.LATEST}")
        highest = max(found, key=semver.order)
        try:
            return found[highest].parsed()
        except SpecError as fault:
            message = f"the resource plugin {name}@{highest} of the cluster is wrong: {fault}"
            raise DayflyError(Exit.FAILED, message, "see: kubectl get resourceplugins") from None

    async def _no(self, name: str) -> DayflyError:
        known = []
        with contextlib.suppress(errors.ApiError):
            there = await self.client.list_all(kind_of(name).metadata_only(), self.namespace)
            known = [each.metadata.name for each in there.items]
        message = f"no {subject.title(name)} in namespace {self.namespace}"
        return not_there(message, subject.bare(name), known, f"dayfly get {subject.at(name)[0]}{self.flags}")

    async def _annotate(self, name: str, uid: str, annotation: str, value: str) -> None:
        await self._change(name, {"metadata": {"uid": uid, "annotations": {annotation: value}}})

    async def _change(self, name: str, patch: dict[str, Any]) -> None:
        try:
            await self.client.patch(kind_of(name), patch, subject.bare(name), self.namespace)
        except (errors.NotFound, errors.Conflict):
            raise await self._no(name) from None


def kind_of(name: str) -> Resource[dict[str, Any]]:
    """The kind of what a command is about."""
    return GROUP_DICTS if subject.is_group(name) else SANDBOX_DICTS


def now() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def told(error: errors.ApiError, flags: str) -> DayflyError:
    """Whose fault it is, and what to do next."""
    match error:
        case errors.Unauthorized():
            return DayflyError(
                Exit.DENIED, f"the cluster does not recognise you: {error.message}", "log in to it again"
            )
        case errors.Forbidden():
            return DayflyError(Exit.DENIED, error.message, "ask the cluster's administrator for that right")
        case errors.NotServed():
            message = "this cluster lacks one of Dayfly's kinds: Dayfly is not installed, or an older version is"
            return DayflyError(Exit.FAILED, message, _INSTALL)
        case errors.OutcomeUnknown():
            advice = f"check before you try again: dayfly get sandboxes{flags}"
            return DayflyError(Exit.FAILED, f"it is not known whether this was done: {error.message}", advice)
        case errors.ServerTrouble():
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
