"""The backend for a cluster with the operator: Sandboxes of one namespace, with the rights of the kubeconfig's user."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dayfly.cli.backends import cluster_logs, cluster_pools, cluster_report
from dayfly.cli.backends.cluster_leaks import ClusterLeaks
from dayfly.cli.backends.cluster_objects import GROUP_DICTS, SANDBOX_DICTS, Objects, now, to_dayfly_error
from dayfly.cli.backends.protocol import NO_TIMES, LogPart, LogTimeOptions, RunView
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.kube import auth, errors
from dayfly.kube.client import KubeClient, Limits
from dayfly.kube.transport import HttpTransport
from dayfly.plan.why import units_without_output
from dayfly.spec.identity import routing_key

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dayfly.cli.output.frame import Report
    from dayfly.link.wire import PoolAction
    from dayfly.spec.plugin import Plugin

T = TypeVar("T")

_REQUEST_TIMEOUT_S = 10.0


class ClusterBackend:
    """The Sandboxes of one namespace. Each call runs the event loop until it has the result."""

    def __init__(self, loop: asyncio.Runner, client: KubeClient, namespace: str, flags: str, context: str = "") -> None:
        self.flags = flags
        self.context = context
        self._loop = loop
        self._client = client
        self.namespace = namespace
        self._objects = Objects(client, namespace, flags)
        self._logs = cluster_logs.ClusterLogs(client, namespace)

    @classmethod
    def connect(cls, context: str, namespace: str | None) -> ClusterBackend:
        """Connect to the cluster of a kubeconfig context. The default namespace is the context's.

        Raises:
            DayflyError: the context does not exist, or has no credentials.
        """
        loop = asyncio.Runner()
        try:
            client, where = loop.run(connect_client(context, namespace))
        except BaseException:
            loop.close()
            raise
        return cls(loop, client, where, command_flags(context, namespace), context)

    def close(self) -> None:
        """Stop following logs and close all connections."""
        self._loop.run(self._logs.close())
        self._loop.run(self._client.close())
        self._loop.close()

    def sandboxes(self, *, mine: bool = False) -> list[RunView]:
        if mine:
            message = "--mine is for a server: a cluster does not record who created a sandbox"
            raise DayflyError(Exit.USAGE, message, "select by label: dayfly get -l KEY=VALUE --context NAME")
        return [_view(each) for each in self._run(self._objects.list_all(SANDBOX_DICTS))]

    def leak_checks(self) -> ClusterLeaks:
        """Return the leak checks of the cluster, which are in no namespace."""
        return ClusterLeaks(self._run, self._client, self.context)

    def groups(self) -> list[RunView]:
        return [_view(each) for each in self._run(self._objects.list_all(GROUP_DICTS))]

    def sandbox(self, name: str) -> RunView:
        return _view(self._get(name))

    def report(self, name: str) -> Report:
        try:
            return _view(self._get(name)).report
        except DayflyError as fault:
            if fault.code != Exit.NOT_FOUND or not self._objects.was_fetched(name):
                raise
        return {"phase": "cleaned", "reason": "Cleaned", "message": "", "units": []}

    def find_same(self, name: str) -> RunView | None:
        """Return the run that was first fetched by this name; None once it is deleted or replaced."""
        found = self._run(self._objects.find_same(name))
        return _view(found) if found is not None else None

    def why(self, name: str) -> Any:
        if (other := subject.parse_published(name)) is not None:
            obstacle = self._run(self._objects.explain_published(*other))
            return msgspec.to_builtins(obstacle) if obstacle else {}
        found = self._get(name)
        blocker = self._objects.why(found, name, units_without_output(self._run(self._logs.list_stored(found))))
        return msgspec.to_builtins(blocker) if blocker else {}

    def attempts(self, name: str, *, follow: bool) -> list[Any]:
        return self._run(self._logs.attempts(lambda: self._objects.find_same(name), now, follow=follow))

    def reset_logs(self) -> None:
        """Forget the logs of the current sandbox. Another sandbox may have the same units and attempts."""
        self._run(self._logs.close())
        self._logs = cluster_logs.ClusterLogs(self._client, self.namespace)

    def read(
        self,
        name: str,  # noqa: ARG002 # `attempts` has fetched the sandbox
        unit: str,
        attempt: int,
        offset: int,
        times: LogTimeOptions = NO_TIMES,
    ) -> LogPart:
        return self._logs.chunk(unit, attempt, offset, times)

    def external_log_command(self, name: str, unit: str, times: LogTimeOptions = NO_TIMES) -> str:
        return self._run(self._objects.external_log_command(name, unit, times))

    def pause(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    def outputs(self, name: str) -> list[Any]:
        return self._run(self._objects.outputs(self._get(name)))

    def delete(self, name: str) -> str:
        """Request its deletion. Return its UID."""
        return self._run(self._objects.delete(name))

    def abandon(self, name: str, reason: str, *, force: bool) -> None:
        self._run(self._objects.abandon(name, reason, force=force))

    def retry(self, name: str, unit: str) -> dict[str, int]:
        return self._run(self._objects.retry(name, unit))

    def reset(self, name: str, resource: str) -> str:
        return self._run(self._objects.reset(name, resource))

    def extend(self, name: str, seconds: int, until: str) -> str:
        return self._run(self._objects.extend(name, seconds, until))

    def pools(self) -> list[Any]:
        return [_pool_form(each) for each in self._run(self._objects.pools())]

    def pool(self, name: str) -> Any:
        return _pool_form(self._get(subject.pool_subject(name)))

    def explain_pool(self, name: str) -> Any:
        return self._run(self._objects.explain_pool(name))

    def control_pool(self, name: str, action: PoolAction) -> Any:
        self._run(self._objects.control_pool(name, action))
        return self.pool(name)

    def plugin(self, name: str, version: str) -> Plugin:
        return self._run(self._objects.plugin(name, version))

    def call(self, request: Callable[[KubeClient], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine of the caller with the client of this cluster."""
        return self._run(request(self._client))

    def _get(self, name: str) -> Any:
        return self._run(self._objects.fetch(name))

    def _run(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(request)
        except errors.ApiError as error:
            raise to_dayfly_error(error, self.flags) from None


def command_flags(context: str, namespace: str | None) -> str:
    """Return the options that make a command use this cluster and namespace."""
    chosen = f" -n {shlex.quote(namespace)}" if namespace else ""
    return f" --context {shlex.quote(context)}{chosen}"


async def connect_client(context: str, namespace: str | None) -> tuple[KubeClient, str]:
    """Return a client for a kubeconfig context, and the namespace: by default the context's.

    Raises:
        DayflyError: the context does not exist, or has no credentials.
    """
    try:
        where = namespace or auth.namespace(context)
        credentials = await auth.load(context=context)
    except auth.CredentialsError as error:
        raise DayflyError(Exit.USAGE, f"cannot reach a cluster: {error}", "see --context and $KUBECONFIG") from None
    return KubeClient(HttpTransport(credentials), Limits(timeout=_REQUEST_TIMEOUT_S)), where


def _view(sandbox: Any) -> RunView:
    meta, status = sandbox["metadata"], sandbox.get("status") or {}
    report = cluster_report.report(sandbox, now())
    key = status.get("routingKey") or routing_key(meta["uid"])
    return RunView(meta["name"], meta["creationTimestamp"], key, sandbox["spec"], msgspec.to_builtins(report), status)


def _pool_form(pool: Any) -> Any:
    return cluster_pools.form(pool, cluster_report.report(pool, now()))
