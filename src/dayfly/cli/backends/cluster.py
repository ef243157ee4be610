"""A cluster with Dayfly's operator, as the verbs see it: Sandboxes of one namespace, read with a viewer's rights."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dayfly.cli.backends import cluster_logs, cluster_report
from dayfly.cli.backends.cluster_objects import GROUP_DICTS, SANDBOX_DICTS, Objects, now, told
from dayfly.cli.backends.protocol import NO_TIMES, Piece, RunView, When
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.kube import auth, errors
from dayfly.kube.client import Client, Limits
from dayfly.kube.transport import HttpTransport
from dayfly.plan.why import units_without_output
from dayfly.spec.identity import routing_key

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dayfly.cli.output.frame import Report
    from dayfly.spec.plugin import Plugin

T = TypeVar("T")

# Somebody is waiting: a server that is away is said to be after so long.
_PATIENCE_S = 10.0


class ClusterBackend:
    """The Sandboxes of one namespace. Each call runs the loop until it is answered."""

    def __init__(self, loop: asyncio.Runner, client: Client, namespace: str, flags: str) -> None:
        self.flags = flags
        self._loop = loop
        self._client = client
        self.namespace = namespace
        self._objects = Objects(client, namespace, flags)
        self._logs = cluster_logs.ClusterLogs(client, namespace)

    @classmethod
    def connect(cls, context: str, namespace: str | None) -> ClusterBackend:
        """The cluster of a context of the kubeconfig; without a namespace, the context's own.

        Raises:
            DayflyError: there is no such context, or it gives no credentials.
        """
        loop = asyncio.Runner()
        try:
            client, where = loop.run(connected(context, namespace))
        except BaseException:
            loop.close()
            raise
        return cls(loop, client, where, flags_of(context, namespace))

    def close(self) -> None:
        """End what is still followed, and let go of the connections."""
        self._loop.run(self._logs.close())
        self._loop.run(self._client.close())
        self._loop.close()

    def sandboxes(self) -> list[RunView]:
        return [_standing(each) for each in self._run(self._objects.every(SANDBOX_DICTS))]

    def groups(self) -> list[RunView]:
        return [_standing(each) for each in self._run(self._objects.every(GROUP_DICTS))]

    def sandbox(self, name: str) -> RunView:
        return _standing(self._get(name))

    def report(self, name: str) -> Report:
        try:
            return _standing(self._get(name)).report
        except DayflyError as fault:
            if fault.code != Exit.NOT_FOUND or not self._objects.has_met(name):
                raise
        return {"phase": "cleaned", "reason": "Cleaned", "message": "", "units": []}

    def living(self, name: str) -> RunView | None:
        """The very one that was asked for first; None once it is gone."""
        found = self._run(self._objects.living(name))
        return _standing(found) if found is not None else None

    def why(self, name: str) -> Any:
        if (other := subject.published(name)) is not None:
            judged = self._run(self._objects.judged(*other))
            return msgspec.to_builtins(judged) if judged else {}
        found = self._get(name)
        blocker = self._objects.why(found, name, units_without_output(self._run(self._logs.kept(found))))
        return msgspec.to_builtins(blocker) if blocker else {}

    def attempts(self, name: str, *, follow: bool) -> list[Any]:
        return self._run(self._logs.attempts(lambda: self._objects.living(name), now, follow=follow))

    def turn_to_another(self) -> None:
        """Forget the logs of the sandbox that was asked for: another one's may have the same units and attempts."""
        self._run(self._logs.close())
        self._logs = cluster_logs.ClusterLogs(self._client, self.namespace)

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
        return self._run(self._objects.elsewhere(name, unit, when))

    def pause(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    def outputs(self, name: str) -> list[Any]:
        return self._run(self._objects.outputs(self._get(name)))

    def delete(self, name: str) -> str:
        """Ask for its end; its UID."""
        return self._run(self._objects.delete(name))

    def abandon(self, name: str, reason: str, *, force: bool) -> None:
        self._run(self._objects.abandon(name, reason, force=force))

    def retry(self, name: str, unit: str) -> dict[str, int]:
        return self._run(self._objects.retry(name, unit))

    def extend(self, name: str, seconds: int, until: str) -> str:
        return self._run(self._objects.extend(name, seconds, until))

    def plugin(self, name: str, version: str) -> Plugin:
        return self._run(self._objects.plugin(name, version))

    def ask(self, what: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Let somebody who knows what to ask do so."""
        return self._run(what(self._client))

    def _get(self, name: str) -> Any:
        return self._run(self._objects.fetch(name))

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(what)
        except errors.ApiError as error:
            raise told(error, self.flags) from None


def flags_of(context: str, namespace: str | None) -> str:
    """What a command needs behind it to mean that cluster and namespace."""
    chosen = f" -n {shlex.quote(namespace)}" if namespace else ""
    return f" --context {shlex.quote(context)}{chosen}"


async def connected(context: str, namespace: str | None) -> tuple[Client, str]:
    """A client of the cluster of a context of the kubeconfig, and the namespace that is meant: if none, its own.

    Raises:
        DayflyError: there is no such context, or it gives no credentials.
    """
    try:
        where = namespace or auth.namespace(context)
        credentials = await auth.load(context=context)
    except auth.CredentialsError as error:
        raise DayflyError(Exit.USAGE, f"cannot reach a cluster: {error}", "see --context and $KUBECONFIG") from None
    return Client(HttpTransport(credentials), Limits(timeout=_PATIENCE_S)), where


def _standing(sandbox: Any) -> RunView:
    meta, spoken = sandbox["metadata"], sandbox.get("status") or {}
    report = cluster_report.report(sandbox, now())
    key = spoken.get("routingKey") or routing_key(meta["uid"])
    return RunView(meta["name"], meta["creationTimestamp"], key, sandbox["spec"], msgspec.to_builtins(report), spoken)
