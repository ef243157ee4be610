"""`Client`: one server, for programs without an event loop. Each method is the asynchronous one, carried out at once.

Nothing is decided here: a test holds every signature against that of `AsyncClient`'s parts. It may be used by several
threads, for each request has a connection of its own, and by a process and those that it forks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from dayfly.client.asynchronous import TIMEOUT_S, AsyncClient
from dayfly.client.blocking_io import BlockingIo
from dayfly.client.connection import run, walk
from dayfly.client.retry import Retry
from dayfly.client.types import RouteGroup, Sandbox

if TYPE_CHECKING:
    import datetime as dt
    import os
    import ssl
    from collections.abc import Callable, Iterator
    from typing import Self

    from dayfly.client.changes import Change
    from dayfly.client.connection import Io
    from dayfly.client.plugins import AsyncBaselines, AsyncPlugins
    from dayfly.client.runs import AsyncRouteGroups, AsyncRuns, AsyncSandboxes
    from dayfly.client.secret_values import Secrets
    from dayfly.client.sources import Applied, Source, Variables
    from dayfly.client.types import Attempt, Baseline, Blocker, LogPiece, Move, Outputs, Plugin, Report
    from dayfly.spec.routing.rules import RoutingRule

T = TypeVar("T", bound=Sandbox | RouteGroup)


class Runs(Generic[T]):
    """Sandboxes, or route groups, of one server."""

    def __init__(self, of: AsyncRuns[T]) -> None:
        self._of = of

    def get(self, name: str) -> T:
        """As it stands.

        Raises:
            NotFoundError: there is none of that name.
        """
        return run(self._of.get(name))

    def list(self, *, label: str = "") -> tuple[T, ...]:
        """All of them, by name; with `label` (`team=pay,!draft`) those that match."""
        return run(self._of.list(label=label))

    def delete(self, name: str) -> None:
        """Have it end, and return at once: `wait_gone` waits.

        Raises:
            NotFoundError: there is none of that name.
        """
        run(self._of.delete(name))

    def wait_ready(self, name: str, *, timeout: float = 300, on_report: Callable[[Report], None] | None = None) -> T:
        """Wait until it is ready; as it stands then.

        Args:
            name: Of what is waited for.
            timeout: For how many seconds.
            on_report: Called with each new report.

        Raises:
            FailedError: it failed, with the end of the log of the step that did; or somebody deletes it.
            WaitTimeoutError: it is not ready in time. The work goes on.
        """
        return run(self._of.wait_ready(name, timeout=timeout, on_report=on_report))

    def wait_gone(self, name: str, *, timeout: float = 600, on_report: Callable[[Report], None] | None = None) -> str:
        """Wait until it is gone; how it ended, `cleaned` or `abandoned`. One that is not there is gone.

        Raises:
            WaitTimeoutError: it is still there after that time. The work goes on.
        """
        return run(self._of.wait_gone(name, timeout=timeout, on_report=on_report))

    def follow(self, name: str = "", *, poll: float = 1.0) -> Iterator[Change[T]]:
        """All as it stands, then `synced`, and then what changes; of one name to its end.

        It goes on where it was when the server has been away, and misses nothing that is still so. Where no stream of
        events gets through, the server is asked every `poll` seconds.
        """
        return walk(self._of.follow(name, poll=poll))

    def report(self, name: str, *, after: int | None = None, wait: int = 0) -> Report:
        """How each of its units stands; with `after`, a version, the answer waits for a newer one, `wait` seconds."""
        return run(self._of.report(name, after=after, wait=wait))

    def why(self, name: str) -> Blocker | None:
        """What it waits for, down to the root, and what to do; None if nothing holds it up."""
        return run(self._of.why(name))

    def outputs(self, name: str) -> Outputs:
        """All that its steps have handed over, sensitive values too."""
        return run(self._of.outputs(name))

    def attempts(self, name: str) -> tuple[Attempt, ...]:
        """The logs that there are; also of one that has ended, for a week."""
        return run(self._of.attempts(name))

    def log(self, name: str, unit: str, *, attempt: int | None = None) -> str:
        """What an attempt of a step or fork has printed so far: the latest one, if none is named.

        Raises:
            RefusedError: it has no such log; it names those that there are.
        """
        return run(self._of.log(name, unit, attempt=attempt))

    def logs(
        self,
        name: str,
        unit: str = "",
        *,
        follow: bool = False,
        timestamps: bool = False,
        since: dt.datetime | dt.timedelta | None = None,
    ) -> Iterator[LogPiece]:
        """The newest logs of a unit, of a resource's units, or of all.

        Args:
            name: Of what printed them.
            unit: Whose logs; empty for all.
            follow: Go on until nothing more can come.
            timestamps: Tell when they were printed, in the pieces' `times`.
            since: Leave out lines that are older than that, or were printed before then. Lines of which nobody knows
                the time stay.
        """
        return walk(self._of.logs(name, unit, follow=follow, timestamps=timestamps, since=since))

    def history(self, name: str) -> tuple[Move, ...]:
        """Every move of its ledger."""
        return run(self._of.history(name))

    def retry(self, name: str, unit: str = "") -> dict[str, int]:
        """Try again now what waits to be: one unit, or all; after which attempt each waited.

        Raises:
            ConflictError: nothing waits.
        """
        return run(self._of.retry(name, unit))

    def extend(self, name: str, *, seconds: int = 0, until: dt.datetime | None = None) -> T:
        """Let it live so long from now, or until then, or for as long again as its `ttl` says; never shorter.

        Raises:
            ConflictError: it has no time to live.
        """
        return run(self._of.extend(name, seconds=seconds, until=until))

    def abandon(self, name: str, reason: str, *, force: bool = False) -> None:
        """Give its cleanup up, which is recorded with the reason: what it has may be left over.

        Raises:
            ConflictError: it is not being deleted, and `force` is not set.
        """
        run(self._of.abandon(name, reason, force=force))


class Sandboxes(Runs[Sandbox]):
    """The sandboxes of one server."""

    def __init__(self, of: AsyncSandboxes) -> None:
        super().__init__(of)
        self._sandboxes = of

    def apply(
        self,
        source: Source,
        *,
        variables: Variables | None = None,
        lease: int | None = None,
        secrets: Secrets | None = None,
    ) -> Sandbox:
        """Make it, or change it, and return at once: `wait_ready` waits.

        Args:
            source: A wish as the API takes it, or a file or folder with exactly one.
            variables: Fill in `@{NAME}` in files.
            lease: Have it deleted so many seconds from now, if `lease` is not called before that.
            secrets: Values of params with `secret: true`, by resource and name: `{"db": {"password": ...}}`. They go to
                a server of this machine alone, and stand in no document.

        Raises:
            InvalidError: what is wrong, with its places; nothing was changed.
        """
        return run(self._sandboxes.apply(source, variables=variables, lease=lease, secrets=secrets))

    def lease(self, name: str, seconds: int) -> None:
        """Have it live for so many seconds from now, at most 86,400, and be deleted then."""
        run(self._sandboxes.lease(name, seconds))


class RouteGroups(Runs[RouteGroup]):
    """The route groups of one server."""

    def __init__(self, of: AsyncRouteGroups) -> None:
        super().__init__(of)
        self._groups = of

    def apply(self, source: Source, *, variables: Variables | None = None) -> RouteGroup:
        """Make it, or change it, and return at once: `wait_ready` waits.

        Args:
            source: A wish as the API takes it, or a file or folder with exactly one.
            variables: Fill in `@{NAME}` in files.

        Raises:
            InvalidError: what is wrong, with its places; nothing was changed.
        """
        return run(self._groups.apply(source, variables=variables))


class Plugins:
    """The resource plugins of one server. A name may have a version behind it, `db@1.2.0`."""

    def __init__(self, of: AsyncPlugins) -> None:
        self._of = of

    def apply(self, source: Source, *, variables: Variables | None = None) -> Plugin:
        """Publish a version; one that is there with the same content is left as it is.

        Raises:
            InvalidError: what is wrong, with its places.
            ConflictError: that version is there, with other content.
        """
        return run(self._of.apply(source, variables=variables))

    def get(self, name: str) -> Plugin:
        """One version; the highest if none is named.

        Raises:
            NotFoundError: there is none.
        """
        return run(self._of.get(name))

    def list(self, *, all_versions: bool = False) -> tuple[Plugin, ...]:
        """The highest version of each, or all versions of all."""
        return run(self._of.list(all_versions=all_versions))

    def versions(self, name: str) -> tuple[Plugin, ...]:
        """All versions of one, the highest first."""
        return run(self._of.versions(name))

    def delete(self, name: str) -> None:
        """Remove a version, the highest if none is named.

        Raises:
            RefusedError: a sandbox uses it.
        """
        run(self._of.delete(name))


class Baselines:
    """The baselines of one server, by namespace and name."""

    def __init__(self, of: AsyncBaselines) -> None:
        self._of = of

    def apply(self, source: Source, *, variables: Variables | None = None) -> Baseline:
        """Declare it, or change it.

        Raises:
            InvalidError: what is wrong, with its places.
        """
        return run(self._of.apply(source, variables=variables))

    def get(self, name: str, namespace: str = "default") -> Baseline:
        """As it was declared.

        Raises:
            NotFoundError: there is none.
        """
        return run(self._of.get(name, namespace))

    def list(self) -> tuple[Baseline, ...]:
        """All of them."""
        return run(self._of.list())

    def delete(self, name: str, namespace: str = "default") -> None:
        """Remove it.

        Raises:
            ConflictError: a fork derives from it.
        """
        run(self._of.delete(name, namespace))


class Client:
    """A client of one server. To be closed at its end, best by `with`.

    Without arguments it asks the server that the command line asks: that of `DAYFLY_URL`, else the one of the home.

    Args:
        url: Where the server listens, like `https://dayfly.example.com`.
        key: The key it takes.
        org: The organisation of that key, if it is not `local`.
        server: In place of those, the name of a server that somebody has logged in to with `dayfly login --name`.
        home: Another home than `DAYFLY_HOME` says.
        tls: For a certificate authority of your own.
        timeout: Seconds after which a server that says nothing counts as gone.
        retries: How patient it is.

    Raises:
        DayflyError: no server is known, or its address is none.
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
        retries: Retry = Retry(),  # noqa: B008 # a value
    ) -> None:
        self._of = _Unhurried(url, key, org=org, server=server, home=home, tls=tls, timeout=timeout, retries=retries)
        self.sandboxes = Sandboxes(self._of.sandboxes)
        self.route_groups = RouteGroups(self._of.route_groups)
        self.plugins = Plugins(self._of.plugins)
        self.baselines = Baselines(self._of.baselines)

    @property
    def url(self) -> str:
        """Where the server listens."""
        return self._of.url

    def version(self) -> str:
        """The server's; needs no key."""
        return run(self._of.version())

    def routing_rules(self, *, baseline: str = "", key: str = "", sandbox: str = "") -> tuple[RoutingRule, ...]:
        """Which routing key leads from which baseline to whose fork now; all of them, unless some are asked for.

        Args:
            baseline: As `namespace/name`.
            key: A routing key, of a sandbox or of a route group.
            sandbox: A sandbox's name.
        """
        return run(self._of.routing_rules(baseline=baseline, key=key, sandbox=sandbox))

    def apply(self, *paths: str | os.PathLike[str], variables: Variables | None = None) -> Applied:
        """Apply all that is in some files and folders, as `dayfly apply` does: all are checked before one is sent.

        Raises:
            InvalidError: all mistakes, with their places.
        """
        return run(self._of.apply(*paths, variables=variables))

    def close(self) -> None:
        """Let go of all connections."""
        run(self._of.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Unhurried(AsyncClient):
    """The same over sockets that block."""

    @staticmethod
    def _io(tls: ssl.SSLContext | None) -> Io:
        return BlockingIo(tls)
