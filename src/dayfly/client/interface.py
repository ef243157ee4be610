"""The methods of `Client` and `AsyncClient` and their parts, with their documentation.

Both clients inherit these classes, so each docstring is written once, and mypy checks both against one signature. The
results have the type `Any` here because they are values in one client and coroutines in the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime as dt
    import os
    from collections.abc import Callable

    from dayfly.client.secret_values import Secrets
    from dayfly.client.sources import Source, Variables
    from dayfly.client.types import Report


class RunsInterface:
    """Methods of sandboxes, route groups and pools."""

    def get(self, name: str) -> Any:
        """Return the current state of a sandbox, route group or pool.

        Raises:
            NotFoundError: there is none with that name.
        """

    def list(self, *, label: str = "") -> Any:
        """Return all, sorted by name; with `label` (`team=pay,!draft`), only the matching ones."""

    def delete(self, name: str) -> Any:
        """Request the deletion and return at once; `wait_gone` waits for its end.

        Raises:
            NotFoundError: there is none with that name.
        """

    def wait_ready(self, name: str, *, timeout: float = 300, on_report: Callable[[Report], None] | None = None) -> Any:
        """Wait until it is ready, and return its state.

        Args:
            name: The name of the sandbox, route group or pool.
            timeout: The maximum time to wait, in seconds.
            on_report: Called with each new report.

        Raises:
            FailedError: a step failed (the error has the end of its log), the object is being deleted, or a pool is
                paused.
            WaitTimeoutError: it is not ready in time. The work continues.
        """

    def wait_gone(self, name: str, *, timeout: float = 600, on_report: Callable[[Report], None] | None = None) -> Any:
        """Wait until it is gone, and return how it ended: `cleaned` or `abandoned`.

        The result for a name that does not exist is `cleaned`.

        Raises:
            WaitTimeoutError: it still exists after that time. The work continues.
        """

    def follow(self, name: str = "", *, poll: float = 1.0) -> Any:
        """Yield the current state of all as changes, then `synced`, then each later change.

        With `name`, only that object is followed, until its deletion. After a lost connection, the iteration resumes
        and yields everything that changed in between. If no event stream reaches this client, it polls every `poll`
        seconds.
        """

    def report(self, name: str, *, after: int | None = None, wait: int = 0) -> Any:
        """Return the report with the state of each unit.

        With `after` (a version), the server waits up to `wait` seconds for a newer one.
        """

    def why(self, name: str) -> Any:
        """Return what it waits for, down to the root cause, with advice; None if nothing blocks it."""

    def attempts(self, name: str) -> Any:
        """Return the attempts that have logs, for up to a week after the end."""

    def log(self, name: str, unit: str, *, attempt: int | None = None) -> Any:
        """Return the log so far of an attempt of a step or fork; by default of the latest attempt.

        Raises:
            RefusedError: there is no such log; the message lists the existing ones.
        """

    def logs(
        self,
        name: str,
        unit: str = "",
        *,
        follow: bool = False,
        timestamps: bool = False,
        since: dt.datetime | dt.timedelta | None = None,
    ) -> Any:
        """Yield the newest logs of a unit, of all units of a resource, or of all units.

        Args:
            name: The name of the sandbox, route group or pool.
            unit: The unit or the resource; empty for all units.
            follow: Continue until no more output can come.
            timestamps: Include the time of each line, in `LogPiece.times`.
            since: Only lines printed since this time, or within this duration. Lines without a known time are
                included.
        """

    def history(self, name: str) -> Any:
        """Return all moves of its ledger."""

    def abandon(self, name: str, reason: str, *, force: bool = False) -> Any:
        """End it without its remaining cleanup, and record the reason. Its resources may be left behind.

        Raises:
            ConflictError: it is not being deleted, and `force` is false.
        """


class SteppedRunsInterface(RunsInterface):
    """Methods of sandboxes and route groups, which have steps of their own and a time to live."""

    def outputs(self, name: str) -> Any:
        """Return all outputs of its steps, including sensitive values."""

    def retry(self, name: str, unit: str = "") -> Any:
        """End the back-off of one unit, or of all; return the number of the last attempt of each such unit.

        Raises:
            ConflictError: no unit is waiting to be retried.
        """

    def extend(self, name: str, *, seconds: int = 0, until: dt.datetime | None = None) -> Any:
        """Extend the time to live: by `seconds` from now, to `until`, or by another `ttl`. It is never shortened.

        Raises:
            ConflictError: it has no time to live.
        """


class SandboxesInterface:
    """Methods of sandboxes only."""

    def apply(
        self,
        source: Source,
        *,
        variables: Variables | None = None,
        lease: int | None = None,
        secrets: Secrets | None = None,
    ) -> Any:
        """Create or change a sandbox and return at once; `wait_ready` waits until it is ready.

        Args:
            source: The sandbox in the form of the REST API, or a file or folder that contains exactly one.
            variables: Values for `@{NAME}` in files.
            lease: Seconds until the sandbox is deleted, unless `lease` is called before.
            secrets: Values of params with `secret: true`, by resource and name: `{"db": {"password": ...}}`. They are
                sent only to a server on this machine, and no document contains them.

        Raises:
            InvalidError: the source is invalid; the error has all problems with their places. Nothing was changed.
        """

    def lease(self, name: str, seconds: int) -> Any:
        """Renew the lease: the sandbox is deleted after `seconds` (at most 86,400) without another renewal."""

    def reset(self, name: str, resource: str) -> Any:
        """Give a resource another pool member; return the name of the replaced one. Its values are then new.

        Raises:
            ConflictError: the resource is not from a pool, is not ready, or something has used its outputs.
        """


class RouteGroupsInterface:
    """Methods of route groups only."""

    def apply(self, source: Source, *, variables: Variables | None = None) -> Any:
        """Create or change a route group and return at once; `wait_ready` waits until it is ready.

        Args:
            source: The route group in the form of the REST API, or a file or folder that contains exactly one.
            variables: Values for `@{NAME}` in files.

        Raises:
            InvalidError: the source is invalid; the error has all problems with their places. Nothing was changed.
        """


class PoolsInterface:
    """Methods of pools only."""

    def apply(self, source: Source, *, variables: Variables | None = None) -> Any:
        """Create or change a pool and return at once; `wait_ready` waits until all its members are ready.

        Args:
            source: The pool in the form of the REST API, or a file or folder that contains exactly one.
            variables: Values for `@{NAME}` in files.

        Raises:
            InvalidError: the source is invalid, or its plugin cannot be pooled. The error has all problems with their
                places. Nothing was changed.
        """

    def pause(self, name: str) -> Any:
        """Create no further members until `resume`; return the pool. Ready members can still be used.

        Raises:
            ConflictError: it is being deleted, or has not reached its cluster yet.
        """

    def resume(self, name: str) -> Any:
        """Create members again, also after several have failed; return the pool. Errors are those of `pause`."""

    def drain(self, name: str) -> Any:
        """Pause it and delete its unused members; return the pool. Errors are those of `pause`."""

    def explain(self, name: str) -> Any:
        """Return how it is used, and the predicted misses for other sizes."""


class PluginsInterface:
    """Methods of resource plugins."""

    def apply(self, source: Source, *, variables: Variables | None = None) -> Any:
        """Publish a version. A version that is already published with the same content stays as it is.

        Raises:
            InvalidError: the plugin is invalid; the error has all problems with their places.
            ConflictError: the version is already published with other content.
        """

    def get(self, name: str) -> Any:
        """Return the version `NAME@VERSION`, or the highest version of `NAME`.

        Raises:
            NotFoundError: there is no such plugin or version.
        """

    def list(self, *, all_versions: bool = False) -> Any:
        """Return the highest version of each plugin, or all versions of all plugins."""

    def versions(self, name: str) -> Any:
        """Return all versions of a plugin, the highest first."""

    def delete(self, name: str) -> Any:
        """Remove the version `NAME@VERSION`, or the highest version of `NAME`.

        Raises:
            RefusedError: a sandbox uses it.
        """


class BaselinesInterface:
    """Methods of baselines."""

    def apply(self, source: Source, *, variables: Variables | None = None) -> Any:
        """Declare a baseline, or change it.

        Raises:
            InvalidError: the baseline is invalid; the error has all problems with their places.
        """

    def get(self, name: str, namespace: str = "default") -> Any:
        """Return a baseline as it was declared.

        Raises:
            NotFoundError: there is no such baseline.
        """

    def list(self) -> Any:
        """Return all baselines."""

    def delete(self, name: str, namespace: str = "default") -> Any:
        """Remove a baseline.

        Raises:
            ConflictError: a fork derives from it.
        """


class ClientInterface:
    """Methods of a client."""

    @property
    def url(self) -> str:
        """The URL of the server."""
        raise NotImplementedError

    def version(self) -> Any:
        """Return the version of the server; no key is needed."""

    def routing_rules(self, *, baseline: str = "", key: str = "", sandbox: str = "") -> Any:
        """Return the current routing rules: which key leads from which baseline to which fork.

        Args:
            baseline: Only rules of this baseline, `namespace/name`.
            key: Only rules of this routing key, of a sandbox or route group.
            sandbox: Only rules of this sandbox.
        """

    def apply(self, *paths: str | os.PathLike[str], variables: Variables | None = None) -> Any:
        """Apply all documents in files and folders, as `dayfly apply` does. All are checked before the first is sent.

        Raises:
            InvalidError: some documents are invalid; the error has all problems with their places.
        """

    def close(self) -> Any:
        """Close all connections."""
