"""Creates resources for tests, renews their leases, and deletes them."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dayfly.client import Client, DayflyError, FailedError, Outputs, files, sources, temporary
from dayfly.pytest_plugin.own_server import OwnServer
from dayfly.spec import documents
from dayfly.spec.plugin import Plugin
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    import pytest

    from dayfly.client.secret_values import Secrets

LEASE_S = 60
RENEW_INTERVAL_S = 10
KEPT_LEASE_S = 3600
READY_TIMEOUT_S = 300.0
GONE_TIMEOUT_S = 300.0


class ReadySandbox(Mapping[str, str]):
    """A ready sandbox: a mapping of its outputs, by `resource/step.output`, `step.output` or `output`.

    Attributes:
        name: The name of the sandbox.
        outputs: The outputs with all their fields.
        endpoints: The addresses of its endpoints, by name.
    """

    def __init__(self, client: Client, name: str, outputs: Outputs, endpoints: dict[str, str]) -> None:
        self._client = client
        self.name = name
        self.outputs = outputs
        self.endpoints = endpoints

    @property
    def env(self) -> dict[str, str]:
        """Its outputs as environment variables, with the names of `dayfly env`."""
        return self.outputs.variables()

    def log(self, unit: str) -> str:
        """Return the log of a step (`db/provision`) or fork so far."""
        return self._client.sandboxes.log(self.name, unit)

    def __getitem__(self, name: str) -> str:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.outputs!r}>"


class ReadyResource(ReadySandbox):
    """The resource of one plugin."""


class PluginSession:
    """The client, server and lease renewal of this process of pytest.

    Attributes:
        kept: A line for each kept sandbox that is not in a report yet.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._own: OwnServer | None = None
        self._alive: set[str] = set()
        self.kept: list[str] = []
        self._stopped = threading.Event()
        name = config.getoption("dayfly_server")
        if name or config.getoption("dayfly_home") or os.environ.get("DAYFLY_URL"):
            self.client = Client(server=name)
            self.flags = f" --server {name}" if name else ""
        else:
            self._own = OwnServer(_home(config))
            self.client = self._own.client
            self.flags = ""
        self._thread = threading.Thread(target=self._renew, name="dayfly leases", daemon=True)
        self._thread.start()

    @property
    def keeps_failed(self) -> bool:
        """Whether sandboxes of failed tests are kept."""
        return bool(self._config.getoption("dayfly_keep"))

    @contextlib.contextmanager
    def scope(self, request: pytest.FixtureRequest) -> Iterator[FactoryScope]:
        """Return factories whose resources are deleted at the end of the context."""
        factories = FactoryScope(self, request)
        try:
            yield factories
        finally:
            factories.delete_all()

    def apply(self, body: dict[str, Any], name: str, secrets: Secrets) -> None:
        """Apply a sandbox and renew its lease from now on."""
        self._alive.add(name)
        self.revive_server()
        self.client.sandboxes.apply({**body, "name": name}, lease=LEASE_S, secrets=secrets)

    def stop_renewing(self, name: str) -> None:
        """Stop renewing the lease of a sandbox."""
        self._alive.discard(name)

    def revive_server(self) -> None:
        """Restart the server of this test run if it was killed, so that the sandboxes are deleted."""
        if self._own is not None:
            self._own.revive()

    def inspect_command(self, name: str) -> str:
        """Return the command that shows a sandbox."""
        environment = f"DAYFLY_HOME={self._own.home} " if self._own else ""
        return f"{environment}dayfly get sandbox {name}{self.flags}"

    def close(self) -> None:
        """Stop renewing leases, and close the client and the lock of the server."""
        self._stopped.set()
        self._thread.join(RENEW_INTERVAL_S)
        self.client.close()
        if self._own is not None:
            self._own.close()

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_INTERVAL_S):
            self.revive_server()
            for name in tuple(self._alive):
                with contextlib.suppress(DayflyError):  # the sandbox is ending, or the server is restarting
                    self.client.sandboxes.lease(name, LEASE_S)


class FactoryScope:
    """The factories of one fixture, and the sandboxes that they have created."""

    def __init__(self, session: PluginSession, request: pytest.FixtureRequest) -> None:
        self._session, self._request = session, request
        self._client = session.client
        self._created: list[str] = []
        self._failed_before = request.session.testsfailed

    def resource(
        self,
        plugin: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        secrets: Mapping[str, str] | None = None,
        **more: object,
    ) -> ReadyResource:
        """Create a resource of a plugin and wait until it is ready.

        Args:
            plugin: The file or folder of a plugin, relative to the test or to pytest's root; or `name[@version]` of a
                published plugin.
            params: Params whose names are not Python identifiers.
            secrets: Params with `secret: true`, by name.
            **more: The other params.
        """
        given = {name: str(value) for name, value in {**(params or {}), **more}.items()}
        spec = self._load_plugin(plugin)
        if spec is None:
            short = str(plugin).partition("@")[0]
            resource = short[:30].rstrip("-")
            found = [{"name": resource, "plugin": str(plugin), "params": given}]
            body: dict[str, Any] = {"spec": {"cluster": temporary.CLUSTER, "resources": found}}
        else:
            short, resource = spec.name, temporary.resource_name(spec)
            params = temporary.params_by_plugin([spec], given.items(), "")
            body = temporary.sandbox_of_plugins([spec], params, "")
        return ReadyResource(*self._create(body, short, {resource: secrets} if secrets else {}))

    def sandbox(
        self,
        file: str | os.PathLike[str],
        variables: Mapping[str, object] | None = None,
        *,
        secrets: Secrets | None = None,
        **more: object,
    ) -> ReadySandbox:
        """Create a sandbox from a file or folder, with a generated name, and wait until it is ready.

        Args:
            file: A path relative to the test or to pytest's root. Its plugins are not published; its baselines are
                declared.
            variables: Values of `@{NAME}` whose names are not Python identifiers.
            secrets: Values of params with `secret: true`, by resource and name.
            **more: The other values of `@{NAME}`.
        """
        place = self._find_path(file)
        if place is None:
            raise FileNotFoundError(f"{file}: no such file next to the test or below {self._request.config.rootpath}")
        with sources.errors_with_places(None):
            found = files.load([str(place)], sources.to_sets({**(variables or {}), **more}))
        for each in found:
            if isinstance(each.content, Workload):
                self._client.baselines.apply(documents.export(each.content))
        body = temporary.sandbox_with_plugins(found)
        return ReadySandbox(*self._create(body, str(body["name"]), secrets or {}))

    def delete_all(self) -> None:
        """Delete all sandboxes and wait until they are gone. With `--dayfly-keep`, keep those of a failed test."""
        if self._created:
            self._session.revive_server()
        keep = self._session.keeps_failed and self._request.session.testsfailed > self._failed_before
        for name in self._created:
            self._session.stop_renewing(name)
            if keep:
                self._keep(name)
            else:
                with contextlib.suppress(DayflyError):  # `_wait_gone` reports the error
                    self._client.sandboxes.delete(name)
        faults = [] if keep else [fault for name in self._created if (fault := self._wait_gone(name))]
        if faults:
            raise DayflyError(faults[0].code, "; ".join(fault.message for fault in faults), faults[0].advice)

    def _wait_gone(self, name: str) -> DayflyError | None:
        try:
            self._client.sandboxes.wait_gone(name, timeout=GONE_TIMEOUT_S)
        except DayflyError as fault:
            return fault
        return None

    def _keep(self, name: str) -> None:
        with contextlib.suppress(DayflyError):
            self._client.sandboxes.lease(name, KEPT_LEASE_S)
            self._session.kept.append(
                f"{name}, of {self._request.node.nodeid or 'the session'}: {self._session.inspect_command(name)}"
            )

    def _create(
        self, body: dict[str, Any], base_name: str, secrets: Secrets
    ) -> tuple[Client, str, Outputs, dict[str, str]]:
        body["spec"]["description"] = f"pytest: {self._request.node.nodeid or 'session'}"[:500]
        name = temporary.unique_name("t", base_name)
        self._created.append(name)
        self._session.apply(body, name, secrets)
        sandbox = self._client.sandboxes.wait_ready(name, timeout=READY_TIMEOUT_S)
        endpoints = {each.name: each.url for each in sandbox.endpoints if each.url}
        return self._client, name, self._client.sandboxes.outputs(name), endpoints

    def _load_plugin(self, plugin: str | os.PathLike[str]) -> Plugin | None:
        place = self._find_path(plugin)
        if place is None:
            if isinstance(plugin, Path) or "/" in str(plugin) or str(plugin).endswith(files.ENDINGS):
                raise FileNotFoundError(
                    f"{plugin}: no such plugin next to the test or below {self._request.config.rootpath}"
                )
            return None
        inside = place / "plugin.yaml"
        with sources.errors_with_places(None):
            found = files.load_one([str(inside if inside.is_file() else place)], [], "plugin").content
        assert isinstance(found, Plugin), "the kind is an argument"
        return found

    def _find_path(self, path: str | os.PathLike[str]) -> Path | None:
        """Return an existing path relative to the test, the root or the working directory; None if there is none."""
        folder: Path | None = None if self._request.scope == "session" else self._request.path.parent
        bases = (folder, self._request.config.rootpath, Path.cwd())
        return next((base / path for base in bases if base is not None and (base / path).exists()), None)


def hide_traceback(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a factory so that pytest shows a failure at the line of the test, without the frames of the plugin."""

    @functools.wraps(method)
    def wrapper(*given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        try:
            return method(*given, **named)
        except FailedError as fault:
            fault.advice = ""  # it would name a sandbox that is about to be deleted; the log is in the message
            raise fault.with_traceback(None) from None
        except (DayflyError, FileNotFoundError) as fault:
            raise fault.with_traceback(None) from None

    return wrapper


def _home(config: pytest.Config) -> Path:
    cache = getattr(config, "cache", None)
    if cache is not None:
        return Path(cache.mkdir("dayfly"))
    import tempfile

    found = Path(tempfile.gettempdir()) / f"dayfly-pytest-{os.getuid()}"
    found.mkdir(mode=0o700, exist_ok=True)
    return found
