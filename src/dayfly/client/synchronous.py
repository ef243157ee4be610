"""`Client`, for programs without an event loop. Each method runs the coroutine of the asynchronous client.

Several threads may share a client, because each concurrent request has its own connection. A process and its forked
children may also share one, because a child opens new connections. A test compares all signatures with those of
`AsyncClient`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from dayfly.client.asynchronous import TIMEOUT_S, AsyncClient
from dayfly.client.blocking_io import BlockingIo
from dayfly.client.connection import run, run_iterator
from dayfly.client.interface import (
    BaselinesInterface,
    ClientInterface,
    PluginsInterface,
    PoolsInterface,
    RouteGroupsInterface,
    RunsInterface,
    SandboxesInterface,
    SteppedRunsInterface,
)
from dayfly.client.retry import RetryPolicy
from dayfly.client.types import Pool, RouteGroup, Sandbox

if TYPE_CHECKING:
    import datetime as dt
    import os
    import ssl
    from collections.abc import Callable, Iterator
    from typing import Self

    from dayfly.client.changes import Change
    from dayfly.client.connection import Io
    from dayfly.client.plugins import AsyncBaselines, AsyncPlugins
    from dayfly.client.runs import AsyncPools, AsyncRouteGroups, AsyncRuns, AsyncSandboxes, AsyncSteppedRuns
    from dayfly.client.secret_values import Secrets
    from dayfly.client.sources import Applied, Source, Variables
    from dayfly.client.types import Attempt, Baseline, Blocker, LogPiece, Move, Outputs, Plugin, PoolExplanation, Report
    from dayfly.spec.routing.rules import RoutingRule

T = TypeVar("T", bound=Sandbox | RouteGroup | Pool)


class Runs(RunsInterface, Generic[T]):
    """Sandboxes, route groups or pools of one server."""

    def __init__(self, asynchronous: AsyncRuns[T]) -> None:
        self._async = asynchronous

    def get(self, name: str) -> T:
        return run(self._async.get(name))

    def list(self, *, label: str = "") -> tuple[T, ...]:
        return run(self._async.list(label=label))

    def delete(self, name: str) -> None:
        run(self._async.delete(name))

    def wait_ready(self, name: str, *, timeout: float = 300, on_report: Callable[[Report], None] | None = None) -> T:
        return run(self._async.wait_ready(name, timeout=timeout, on_report=on_report))

    def wait_gone(self, name: str, *, timeout: float = 600, on_report: Callable[[Report], None] | None = None) -> str:
        return run(self._async.wait_gone(name, timeout=timeout, on_report=on_report))

    def follow(self, name: str = "", *, poll: float = 1.0) -> Iterator[Change[T]]:
        return run_iterator(self._async.follow(name, poll=poll))

    def report(self, name: str, *, after: int | None = None, wait: int = 0) -> Report:
        return run(self._async.report(name, after=after, wait=wait))

    def why(self, name: str) -> Blocker | None:
        return run(self._async.why(name))

    def attempts(self, name: str) -> tuple[Attempt, ...]:
        return run(self._async.attempts(name))

    def log(self, name: str, unit: str, *, attempt: int | None = None) -> str:
        return run(self._async.log(name, unit, attempt=attempt))

    def logs(
        self,
        name: str,
        unit: str = "",
        *,
        follow: bool = False,
        timestamps: bool = False,
        since: dt.datetime | dt.timedelta | None = None,
    ) -> Iterator[LogPiece]:
        return run_iterator(self._async.logs(name, unit, follow=follow, timestamps=timestamps, since=since))

    def history(self, name: str) -> tuple[Move, ...]:
        return run(self._async.history(name))

    def abandon(self, name: str, reason: str, *, force: bool = False) -> None:
        run(self._async.abandon(name, reason, force=force))


class SteppedRuns(Runs[T], SteppedRunsInterface):
    """Sandboxes or route groups of one server."""

    def __init__(self, asynchronous: AsyncSteppedRuns[T]) -> None:
        super().__init__(asynchronous)
        self._stepped = asynchronous

    def outputs(self, name: str) -> Outputs:
        return run(self._stepped.outputs(name))

    def retry(self, name: str, unit: str = "") -> dict[str, int]:
        return run(self._stepped.retry(name, unit))

    def extend(self, name: str, *, seconds: int = 0, until: dt.datetime | None = None) -> T:
        return run(self._stepped.extend(name, seconds=seconds, until=until))


class Sandboxes(SteppedRuns[Sandbox], SandboxesInterface):
    """The sandboxes of one server."""

    def __init__(self, asynchronous: AsyncSandboxes) -> None:
        super().__init__(asynchronous)
        self._sandboxes = asynchronous

    def apply(
        self,
        source: Source,
        *,
        variables: Variables | None = None,
        lease: int | None = None,
        secrets: Secrets | None = None,
    ) -> Sandbox:
        return run(self._sandboxes.apply(source, variables=variables, lease=lease, secrets=secrets))

    def lease(self, name: str, seconds: int) -> None:
        run(self._sandboxes.lease(name, seconds))

    def reset(self, name: str, resource: str) -> str:
        return run(self._sandboxes.reset(name, resource))


class RouteGroups(SteppedRuns[RouteGroup], RouteGroupsInterface):
    """The route groups of one server."""

    def __init__(self, asynchronous: AsyncRouteGroups) -> None:
        super().__init__(asynchronous)
        self._groups = asynchronous

    def apply(self, source: Source, *, variables: Variables | None = None) -> RouteGroup:
        return run(self._groups.apply(source, variables=variables))


class Pools(Runs[Pool], PoolsInterface):
    """The pools of one server."""

    def __init__(self, asynchronous: AsyncPools) -> None:
        super().__init__(asynchronous)
        self._pools = asynchronous

    def apply(self, source: Source, *, variables: Variables | None = None) -> Pool:
        return run(self._pools.apply(source, variables=variables))

    def pause(self, name: str) -> Pool:
        return run(self._pools.pause(name))

    def resume(self, name: str) -> Pool:
        return run(self._pools.resume(name))

    def drain(self, name: str) -> Pool:
        return run(self._pools.drain(name))

    def explain(self, name: str) -> PoolExplanation:
        return run(self._pools.explain(name))


class Plugins(PluginsInterface):
    """The resource plugins of one server. A name may include a version: `db@1.2.0`."""

    def __init__(self, asynchronous: AsyncPlugins) -> None:
        self._async = asynchronous

    def apply(self, source: Source, *, variables: Variables | None = None) -> Plugin:
        return run(self._async.apply(source, variables=variables))

    def get(self, name: str) -> Plugin:
        return run(self._async.get(name))

    def list(self, *, all_versions: bool = False) -> tuple[Plugin, ...]:
        return run(self._async.list(all_versions=all_versions))

    def versions(self, name: str) -> tuple[Plugin, ...]:
        return run(self._async.versions(name))

    def delete(self, name: str) -> None:
        run(self._async.delete(name))


class Baselines(BaselinesInterface):
    """The baselines of one server, by namespace and name."""

    def __init__(self, asynchronous: AsyncBaselines) -> None:
        self._async = asynchronous

    def apply(self, source: Source, *, variables: Variables | None = None) -> Baseline:
        return run(self._async.apply(source, variables=variables))

    def get(self, name: str, namespace: str = "default") -> Baseline:
        return run(self._async.get(name, namespace))

    def list(self) -> tuple[Baseline, ...]:
        return run(self._async.list())

    def delete(self, name: str, namespace: str = "default") -> None:
        run(self._async.delete(name, namespace))


class Client(ClientInterface):
    """A client of one server.

    A program must close it at its end, best with `with`. Without arguments, it uses the server that the command line
    uses: the server of `DAYFLY_URL`, otherwise that of the home.

    Args:
        url: The URL of the server, like `https://dayfly.example.com`.
        key: The API key.
        org: The organisation of the key, if it is not `local`.
        server: The name of a server from `dayfly login --name`, instead of `url` and `key`.
        home: The home to use instead of `DAYFLY_HOME`.
        tls: A TLS context, for example with a private certificate authority.
        timeout: Seconds without a byte from the server after which a request fails.
        retries: When requests are sent again.

    Raises:
        DayflyError: no server is known, or its address is invalid.
        ValueError: the arguments name two servers.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        org: str = "",
        server: str = "",
        home: str | os.PathLike[str] = "",
        tls: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT_S,
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008 # immutable
    ) -> None:
        self._async = _BlockingAsyncClient(
            url, key, org=org, server=server, home=home, tls=tls, timeout=timeout, retries=retries
        )
        self.sandboxes = Sandboxes(self._async.sandboxes)
        self.route_groups = RouteGroups(self._async.route_groups)
        self.pools = Pools(self._async.pools)
        self.plugins = Plugins(self._async.plugins)
        self.baselines = Baselines(self._async.baselines)

    @property
    def url(self) -> str:
        return self._async.url

    def version(self) -> str:
        return run(self._async.version())

    def routing_rules(self, *, baseline: str = "", key: str = "", sandbox: str = "") -> tuple[RoutingRule, ...]:
        return run(self._async.routing_rules(baseline=baseline, key=key, sandbox=sandbox))

    def apply(self, *paths: str | os.PathLike[str], variables: Variables | None = None) -> Applied:
        return run(self._async.apply(*paths, variables=variables))

    def close(self) -> None:
        run(self._async.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _BlockingAsyncClient(AsyncClient):
    """The asynchronous client over blocking sockets."""

    @staticmethod
    def _io(tls: ssl.SSLContext | None) -> Io:
        return BlockingIo(tls)
