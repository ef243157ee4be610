"""A cluster with Dayfly's operator, as the verbs see it: Sandboxes of one namespace, read with a viewer's rights."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shlex
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dayfly.cli import cluster_logs, from_status, lifetime
from dayfly.cli.exits import CliError, Exit, not_there
from dayfly.cli.port import NO_TIMES, Piece, Standing, When
from dayfly.cli.show import moment, talk
from dayfly.client import subject
from dayfly.execute.fork.render import FORK_LABEL, fork_name
from dayfly.execute.pod import names
from dayfly.execute.pod.read import stamp
from dayfly.kube import auth, errors
from dayfly.kube.client import Client, Limits
from dayfly.kube.objects import SECRETS
from dayfly.kube.transport import HttpTransport
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    GROUPS,
    PLUGINS,
    RETRY_ANNOTATION,
    RUNS,
    SANDBOXES,
    PluginObject,
)
from dayfly.plan.why import nothing_to_retry
from dayfly.spec import semver
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key
from dayfly.spec.lifecycle import workload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dayfly.cli.frame import Report
    from dayfly.kube.objects import Resource
    from dayfly.spec.plugin import Plugin

T = TypeVar("T")

_SANDBOXES, _GROUPS = SANDBOXES.read_as(dict[str, Any]), GROUPS.read_as(dict[str, Any])
_INSTALL = "install it there: kubectl apply --server-side -f deploy/install.yaml"
# Somebody is waiting: a server that is away is said to be after so long.
_PATIENCE_S = 10.0


class Cluster:
    """The Sandboxes of one namespace. Each call runs the loop until it is answered."""

    def __init__(self, loop: asyncio.Runner, client: Client, namespace: str, flags: str) -> None:
        self.flags = flags
        self._loop = loop
        self._client = client
        self.namespace = namespace
        self._logs = cluster_logs.Logs(client, namespace)
        self._met: dict[str, str] = {}

    @classmethod
    def connect(cls, context: str, namespace: str | None) -> Cluster:
        """The cluster of a context of the kubeconfig; without a namespace, the context's own.

        Raises:
            CliError: there is no such context, or it gives no credentials.
        """
        loop = asyncio.Runner()
        try:
            where = namespace or auth.namespace(context)
            client = loop.run(_client(context))
        except auth.CredentialsError as error:
            raise CliError(Exit.USAGE, f"cannot reach a cluster: {error}", "see --context and $KUBECONFIG") from None
        chosen = f" -n {shlex.quote(namespace)}" if namespace else ""
        return cls(loop, client, where, f" --context {shlex.quote(context)}{chosen}")

    def close(self) -> None:
        """End what is still followed, and let go of the connections."""
        self._loop.run(self._logs.close())
        self._loop.run(self._client.close())
        self._loop.close()

    def sandboxes(self) -> list[Standing]:
        return self._every(_SANDBOXES, "")

    def groups(self) -> list[Standing]:
        return self._every(_GROUPS, subject.PREFIX)

    def _every(self, kind: Resource[Any], prefix: str) -> list[Standing]:
        try:
            found = self._run(self._client.list_all(kind, self.namespace)).items
        except RecursionError:
            found = self._one_by_one(kind, prefix)
        return [self._standing(each) for each in sorted(found, key=lambda each: str(each["metadata"]["name"]))]

    def sandbox(self, name: str) -> Standing:
        return self._standing(self._get(name))

    def report(self, name: str) -> Report:
        try:
            return self._standing(self._get(name)).report
        except CliError as fault:
            if fault.code != Exit.NOT_FOUND or name not in self._met:
                raise
        return {"phase": "cleaned", "reason": "Cleaned", "message": "", "units": []}

    def why(self, name: str) -> Any:
        blocker = from_status.why(self._get(name), _now(), self.flags, name)
        return msgspec.to_builtins(blocker) if blocker else {}

    def attempts(self, name: str, *, follow: bool) -> list[Any]:
        return self._run(self._logs.attempts(lambda: self._living(name), _now, follow=follow))

    def turn_to_another(self) -> None:
        """Forget the logs of the sandbox that was asked for: another one's may have the same units and attempts."""
        self._run(self._logs.close())
        self._logs = cluster_logs.Logs(self._client, self.namespace)

    def read(
        self,
        name: str,  # noqa: ARG002 # `attempts` has read it
        unit: str,
        attempt: int,
        offset: int,
        when: When = NO_TIMES,
    ) -> Piece:
        return self._logs.piece(unit, attempt, offset, when)

    def elsewhere(self, name: str, unit: str, when: When = NO_TIMES) -> str:
        of = workload_of(unit)
        if of is None:
            return ""
        fork = fork_name(name, self._get(name)["metadata"]["uid"], of.namespace, of.name)
        times = f"{' --timestamps' if when.shown else ''}{f' --since-time={moment(when.since)}' if when.since else ''}"
        return f"kubectl{self.flags.partition(' -n ')[0]} logs -n {of.namespace} -l {FORK_LABEL}={fork}{times}"

    def pause(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    def outputs(self, name: str) -> list[Any]:
        sandbox = self._get(name)
        return self._run(self._outputs(sandbox))

    def abandon(self, name: str, reason: str) -> None:
        self._run(self._abandon(name, reason))

    def retry(self, name: str, unit: str) -> dict[str, int]:
        sandbox = self._get(name)
        found = from_status.report(sandbox, _now())
        there = [each.id for each in found.units]
        if unit and unit not in there:
            message = f'{subject.title(name)} has no unit "{unit}"'
            raise CliError(Exit.NOT_FOUND, message, f"it has {', '.join(there) or 'none yet'}")
        waiting = {each.id: each.attempt for each in found.units if each.state == "retrying" and unit in ("", each.id)}
        if not waiting:
            raise CliError(Exit.FAILED, nothing_to_retry(found, unit))
        note = " ".join(f"{each}={attempt}" for each, attempt in waiting.items())
        self._run(self._annotate(name, sandbox["metadata"]["uid"], RETRY_ANNOTATION, note))
        return waiting

    def extend(self, name: str, seconds: int, until: str) -> str:
        found = self._get(name)
        duration, end = lifetime.extended(found, name, seconds, until, _now())
        if duration:
            self._run(
                self._change(
                    name, {"metadata": {"uid": found["metadata"]["uid"]}, "spec": {"ttl": {"duration": duration}}}
                )
            )
        return stamp(end)

    def plugin(self, name: str, version: str) -> Plugin:
        found: dict[str, PluginObject] = {}
        for each in self._run(self._client.list_all(PLUGINS)).items:
            with contextlib.suppress(SpecError):  # one that nobody can name is not meant
                bare, have = semver.split_name(str(each.spec.get("name", "")))
                if bare == name and version in ("", semver.LATEST, have):
                    found[have] = each
        if not found:
            raise CliError(Exit.NOT_FOUND, f"no resource plugin {name}@{version or semver.LATEST}")
        highest = max(found, key=semver.precedence)
        try:
            return found[highest].parsed()
        except SpecError as fault:
            message = f"the resource plugin {name}@{highest} of the cluster is wrong: {fault}"
            raise CliError(Exit.FAILED, message, "see: kubectl get resourceplugins") from None

    def _one_by_one(self, kind: Resource[Any], prefix: str) -> list[Any]:
        """All of a kind, for one that cannot be read spoils the list of all; it is named and left out."""
        try:
            there = self._run(self._client.list_all(kind.metadata_only(), self.namespace)).items
        except RecursionError:
            message = f"a {subject.kind(prefix)} in namespace {self.namespace} is nested too deeply to be read"
            raise CliError(Exit.FAILED, message, f"see: kubectl{self.flags} get {kind.plural}.dayfly.dev") from None
        found = []
        for each in there:
            try:
                found.append(self._get(f"{prefix}{each.metadata.name}"))
            except CliError as fault:
                if fault.code not in (Exit.FAILED, Exit.NOT_FOUND):
                    raise
                if fault.code == Exit.FAILED:  # the other is gone meanwhile
                    talk(f"dayfly: {fault}")
        return found

    def _standing(self, sandbox: Any) -> Standing:
        meta = sandbox["metadata"]
        report = from_status.report(sandbox, _now())
        key = (sandbox.get("status") or {}).get("routingKey") or routing_key(meta["uid"])
        spoken = sandbox.get("status") or {}
        return Standing(
            meta["name"], meta["creationTimestamp"], key, sandbox["spec"], msgspec.to_builtins(report), spoken
        )

    def _get(self, name: str) -> Any:
        return self._run(self._fetch(name))

    async def _fetch(self, name: str) -> Any:
        subject.check(name)
        kind, bare = _kind(name), subject.bare(name)
        try:
            found = await self._client.get(kind, bare, self.namespace)
        except RecursionError:
            advice = f"see: kubectl{self.flags} get {kind.plural}.dayfly.dev {bare} -o yaml"
            message = f"the {subject.title(name)} is nested too deeply to be read"
            raise CliError(Exit.FAILED, message, advice) from None
        except errors.NotFound:
            # No such object, or no such kind? The list of a kind that is there may be empty, and is not missing.
            await self._client.page(kind.metadata_only(), self.namespace, limit=1)
            raise await self._no(name) from None
        self._met.setdefault(name, found["metadata"]["uid"])
        return found

    async def _no(self, name: str) -> CliError:
        known = []
        with contextlib.suppress(errors.ApiError):
            there = await self._client.list_all(_kind(name).metadata_only(), self.namespace)
            known = [each.metadata.name for each in there.items]
        message = f"no {subject.title(name)} in namespace {self.namespace}"
        return not_there(message, subject.bare(name), known, f"dayfly get {subject.at(name)[0]}{self.flags}")

    async def _abandon(self, name: str, reason: str) -> None:
        """Of the very Sandbox that is there now: one that is made meanwhile under its name is not meant."""
        await self._annotate(name, (await self._fetch(name))["metadata"]["uid"], ABANDON_ANNOTATION, reason)

    async def _annotate(self, name: str, uid: str, annotation: str, value: str) -> None:
        await self._change(name, {"metadata": {"uid": uid, "annotations": {annotation: value}}})

    async def _change(self, name: str, patch: dict[str, Any]) -> None:
        try:
            await self._client.patch(_kind(name), patch, subject.bare(name), self.namespace)
        except (errors.NotFound, errors.Conflict):
            raise await self._no(name) from None

    async def _living(self, name: str) -> Any:
        """The Sandbox that was asked for first; None once it, or whatever has its name now, is another or none."""
        try:
            found = await self._fetch(name)
        except CliError as fault:
            if fault.code != Exit.NOT_FOUND or name not in self._met:
                raise
            return None
        return found if found["metadata"]["uid"] == self._met[name] else None

    async def _outputs(self, sandbox: Any) -> list[Any]:
        """From the Secret of each resource in the Sandbox's namespace.

        What is sensitive only the ledger says. Without the right to it everything counts as sensitive.
        """
        meta, status = sandbox["metadata"], sandbox.get("status") or {}
        records: dict[str, Any] = {}
        if run := status.get("run"):
            try:
                records = dict((await self._client.get(RUNS, run)).ledger.units)
            except (errors.NotFound, errors.Forbidden):
                records = {}
        found = []
        for wish in sandbox["spec"].get("resources") or ():
            resource = wish["name"]
            secret = names.derived("", f"{meta['name']}-{resource}", "resource", meta["uid"], resource)
            try:
                data = (await self._client.get(SECRETS, secret, self.namespace)).data or {}
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

    def ask(self, what: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Let somebody who knows what to ask do so."""
        return self._run(what(self._client))

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(what)
        except errors.ApiError as error:
            raise _told(error, self.flags) from None


def _kind(name: str) -> Resource[dict[str, Any]]:
    """The kind of what a command is about."""
    return _GROUPS if subject.is_group(name) else _SANDBOXES


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _client(context: str) -> Client:
    credentials = await auth.load(context=context)
    return Client(HttpTransport(credentials), Limits(timeout=_PATIENCE_S))


def _told(error: errors.ApiError, flags: str) -> CliError:
    """Whose fault it is, and what to do next."""
    match error:
        case errors.Unauthorized():
            return CliError(Exit.DENIED, f"the cluster does not recognise you: {error.message}", "log in to it again")
        case errors.Forbidden():
            return CliError(Exit.DENIED, error.message, "ask the cluster's administrator for that right")
        case errors.NotFound():
            message = "this cluster lacks one of Dayfly's kinds: Dayfly is not installed, or an older version is"
            return CliError(Exit.FAILED, message, _INSTALL)
        case errors.OutcomeUnknown():
            advice = f"check before you try again: dayfly get sandboxes{flags}"
            return CliError(Exit.FAILED, f"whether it was done is not known: {error.message}", advice)
        case errors.ServerTrouble():
            return CliError(
                Exit.NO_SERVER, f"the cluster cannot be reached: {error.message}", "see: kubectl cluster-info"
            )
        case _:
            return CliError(Exit.FAILED, error.message or str(error), "fix that and try again")


def _text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
