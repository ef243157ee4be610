"""Makes resources for tests, keeps them while they are used, and has them removed."""

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
RENEW_S = 10
KEPT_S = 3600
READY_S = 300.0
GONE_S = 300.0


class ReadySandbox(Mapping[str, str]):
    """A sandbox that is ready: a mapping of its outputs, by `resource/step.output`, `step.output` or `output`.

    Attributes:
        name: Of the sandbox.
        outputs: With all that is known of each.
        endpoints: The addresses of its endpoints, by name.
    """

    def __init__(self, client: Client, name: str, outputs: Outputs, endpoints: dict[str, str]) -> None:
        self._client = client
        self.name = name
        self.outputs = outputs
        self.endpoints = endpoints

    @property
    def env(self) -> dict[str, str]:
        """Its outputs as environment variables, named as `dayfly env` names them."""
        return self.outputs.variables()

    def log(self, unit: str) -> str:
        """What a step (`db/provision`) or fork has printed so far."""
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


class Making:
    """What this process of pytest makes: its client, its server, and what renews the leases.

    Attributes:
        kept: What of it is left to be looked at, a line each, until somebody has said so.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._own: OwnServer | None = None
        self._alive: set[str] = set()
        self.kept: list[str] = []
        self._over = threading.Event()
        name = config.getoption("dayfly_server")
        if name or os.environ.get("DAYFLY_URL"):
            self.client = Client(server=name)
            self.flags = f" --server {name}" if name else ""
        else:
            self._own = OwnServer(_home(config))
            self.client = self._own.client
            self.flags = ""
        self._thread = threading.Thread(target=self._renew, name="dayfly leases", daemon=True)
        self._thread.start()

    @property
    def keeps(self) -> bool:
        """Whether what a failed test had is to be looked at."""
        return bool(self._config.getoption("dayfly_keep"))

    @contextlib.contextmanager
    def scope(self, request: pytest.FixtureRequest) -> Iterator[FactoryScope]:
        """What is made within this is removed at its end."""
        of = FactoryScope(self, request)
        try:
            yield of
        finally:
            of.remove()

    def apply(self, body: dict[str, Any], name: str, secrets: Secrets) -> None:
        """Wish for a sandbox, which lives as long as this process from now on."""
        self._alive.add(name)
        self.revive_server()
        self.client.sandboxes.apply({**body, "name": name}, lease=LEASE_S, secrets=secrets)

    def forget(self, name: str) -> None:
        """Renew its lease no more."""
        self._alive.discard(name)

    def revive_server(self) -> None:
        """Start the run's own server again if it was killed: it deletes what the tests have made."""
        if self._own is not None:
            self._own.revive()

    def look(self, name: str) -> str:
        """The command that shows it."""
        before = f"DAYFLY_HOME={self._own.home} " if self._own else ""
        return f"{before}dayfly get sandbox {name}{self.flags}"

    def close(self) -> None:
        """Let go of all."""
        self._over.set()
        self._thread.join(RENEW_S)
        self.client.close()
        if self._own is not None:
            self._own.close()

    def _renew(self) -> None:
        while not self._over.wait(RENEW_S):
            self.revive_server()
            for name in tuple(self._alive):
                with contextlib.suppress(DayflyError):  # it is going, or the server is away for a moment
                    self.client.sandboxes.lease(name, LEASE_S)


class FactoryScope:
    """What one factory has made."""

    def __init__(self, making: Making, request: pytest.FixtureRequest) -> None:
        self._making, self._request = making, request
        self._client = making.client
        self._made: list[str] = []
        self._failed_before = request.session.testsfailed

    def resource(
        self,
        plugin: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        secrets: Mapping[str, str] | None = None,
        **more: object,
    ) -> ReadyResource:
        """A resource of a plugin, ready for use.

        Args:
            plugin: A plugin's file or folder, beside the test or below pytest's root; or `name[@version]` of a
                published one.
            params: Those whose names are no Python names.
            secrets: Those with `secret: true`, by name.
            **more: The others.
        """
        given = {name: str(value) for name, value in {**(params or {}), **more}.items()}
        wish = self._plugin(plugin)
        if wish is None:
            short = str(plugin).partition("@")[0]
            resource = short[:30].rstrip("-")
            found = [{"name": resource, "plugin": str(plugin), "params": given}]
            body: dict[str, Any] = {"spec": {"cluster": temporary.CLUSTER, "resources": found}}
        else:
            short, resource = wish.name, temporary.resource_name(wish)
            of = temporary.params_by_plugin([wish], given.items(), "")
            body = temporary.sandbox_of_plugins([wish], of, "")
        return ReadyResource(*self._run(body, short, {resource: secrets} if secrets else {}))

    def sandbox(
        self,
        file: str | os.PathLike[str],
        variables: Mapping[str, object] | None = None,
        *,
        secrets: Secrets | None = None,
        **more: object,
    ) -> ReadySandbox:
        """A sandbox of a file or folder, ready for use, under a name of its own.

        Args:
            file: Beside the test or below pytest's root. Plugins in it are not published, baselines are declared.
            variables: Fill in those of `@{NAME}` that are no Python names.
            secrets: Values of params with `secret: true`, by resource and name.
            **more: The others.
        """
        place = self._place(file)
        if place is None:
            raise FileNotFoundError(f"{file}: no such file beside the test or below {self._request.config.rootpath}")
        with sources.errors_with_places(None):
            found = files.load([str(place)], sources.sets({**(variables or {}), **more}))
        for each in found:
            if isinstance(each.wish, Workload):
                self._client.baselines.apply(documents.export(each.wish))
        body = temporary.sandbox_with_plugins(found)
        return ReadySandbox(*self._run(body, str(body["name"]), secrets or {}))

    def remove(self) -> None:
        """Have all of it removed, and wait until it is gone; of a failed test, only if nothing is to be kept."""
        if self._made:
            self._making.revive_server()
        keep = self._making.keeps and self._request.session.testsfailed > self._failed_before
        for name in self._made:
            self._making.forget(name)
            if keep:
                self._keep(name)
            else:
                with contextlib.suppress(DayflyError):  # what there is to say of it is said below
                    self._client.sandboxes.delete(name)
        left = [] if keep else [fault for name in self._made if (fault := self._gone(name))]
        if left:
            raise DayflyError(left[0].code, "; ".join(fault.message for fault in left), left[0].advice)

    def _gone(self, name: str) -> DayflyError | None:
        try:
            self._client.sandboxes.wait_gone(name, timeout=GONE_S)
        except DayflyError as fault:
            return fault
        return None

    def _keep(self, name: str) -> None:
        with contextlib.suppress(DayflyError):
            self._client.sandboxes.lease(name, KEPT_S)
            self._making.kept.append(
                f"{name}, of {self._request.node.nodeid or 'the session'}: {self._making.look(name)}"
            )

    def _run(self, body: dict[str, Any], of: str, secrets: Secrets) -> tuple[Client, str, Outputs, dict[str, str]]:
        body["spec"]["description"] = f"pytest: {self._request.node.nodeid or 'session'}"[:500]
        name = temporary.unique_name("t", of)
        self._made.append(name)
        self._making.apply(body, name, secrets)
        sandbox = self._client.sandboxes.wait_ready(name, timeout=READY_S)
        endpoints = {each.name: each.url for each in sandbox.endpoints if each.url}
        return self._client, name, self._client.sandboxes.outputs(name), endpoints

    def _plugin(self, plugin: str | os.PathLike[str]) -> Plugin | None:
        place = self._place(plugin)
        if place is None:
            if isinstance(plugin, Path) or "/" in str(plugin) or str(plugin).endswith(files.ENDINGS):
                raise FileNotFoundError(
                    f"{plugin}: no such plugin beside the test or below {self._request.config.rootpath}"
                )
            return None
        inside = place / "plugin.yaml"
        with sources.errors_with_places(None):
            found = files.load_one([str(inside if inside.is_file() else place)], [], "plugin").wish
        assert isinstance(found, Plugin), "asked for by its kind"
        return found

    def _place(self, path: str | os.PathLike[str]) -> Path | None:
        """A path as the author of a test means it."""
        beside: Path | None = None if self._request.scope == "session" else self._request.path.parent
        bases = (beside, self._request.config.rootpath, Path.cwd())
        return next((base / path for base in bases if base is not None and (base / path).exists()), None)


def shown(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same, whose failure is shown at the line of the test, and not with how we work."""

    @functools.wraps(method)
    def called(*given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        try:
            return method(*given, **named)
        except FailedError as fault:
            fault.advice = ""  # it is removed in a moment, and what its step has printed is in the message
            raise fault.with_traceback(None) from None
        except (DayflyError, FileNotFoundError) as fault:
            raise fault.with_traceback(None) from None

    return called


def _home(config: pytest.Config) -> Path:
    cache = getattr(config, "cache", None)
    if cache is not None:
        return Path(cache.mkdir("dayfly"))
    import tempfile

    found = Path(tempfile.gettempdir()) / f"dayfly-pytest-{os.getuid()}"
    found.mkdir(mode=0o700, exist_ok=True)
    return found
