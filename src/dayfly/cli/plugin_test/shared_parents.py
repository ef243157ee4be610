"""Shared parents of the plugin that is tested: their files, and a sandbox that keeps them for the time of the test."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.cli.backends.target_server import CLUSTER
from dayfly.cli.output import show
from dayfly.client import files
from dayfly.client.errors import DayflyError, Exit, RefusedError
from dayfly.compile.parents import add_parents
from dayfly.spec import documents
from dayfly.spec.plugin import Input, Plugin, PluginSpec, Step
from dayfly.spec.report import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dayfly.cli.backends.target_server import ServerClient
    from dayfly.cli.plugin_test.workers import StopRequest
    from dayfly.client.home import Home

_NAME = "dayfly-test-parent"
_POLL_INTERVAL_S = 0.05


def load(paths: Iterable[str], sets: Iterable[str]) -> tuple[Plugin, tuple[Plugin, ...]]:
    """Return the plugin to test and its parents, each after its own parent. One of the files has the plugin.

    Raises:
        DayflyError: Several plugins could be the one to test, or the file of a parent is missing.
        SpecError: A file has a fault, or another kind.
    """
    found = files.load(paths, sets, show.print_message)
    for each in found:
        if each.kind != "plugin":
            raise each.document.error(f"is a {each.kind}, not a plugin; apply it with: {each.apply_command}")
    contents = (each.content for each in found)
    plugins = {(each.name, each.version): each for each in contents if isinstance(each, Plugin)}
    above = {each.spec.parent.version for each in plugins.values() if each.spec.parent is not None}
    if len(tested := [key for key in plugins if key not in above]) != 1:
        named = ", ".join(plugin.wire_name for plugin in plugins.values())
        message = f"one plugin can be tested, and of {named} {len(tested)} are not the parent of another one"
        raise DayflyError(Exit.USAGE, message, "give the file of the plugin and the files of its parents")
    plugin = plugins.pop(tested[0])
    missing: list[str] = []

    def find(name: str, version: str) -> Plugin | None:
        if (name, version) not in plugins:
            missing.append(f"{name}@{version}")
        return plugins.get((name, version))

    used = add_parents({tested[0]: plugin}, find)
    if missing:
        message = f"{plugin.wire_name} has the shared parent {missing[0]}, whose file is not given"
        raise DayflyError(Exit.USAGE, message, "add it: -f FILE")
    return plugin, tuple(plugins[key] for key in plugins if key in used)


def in_test(spec: PluginSpec, workers: int) -> PluginSpec:
    """Return a spec whose parent ends with its last holder and has room for the sandboxes of a test."""
    if spec.parent is None:
        return spec
    capacity = max(spec.parent.capacity, 2 * workers + 1)  # each scenario has up to two sandboxes
    return msgspec.structs.replace(spec, parent=msgspec.structs.replace(spec.parent, linger="", capacity=capacity))


class ParentKeeper:
    """Publishes the parents of a plugin, and keeps them with a sandbox that holds the same parent and does nothing.

    So all scenarios use one parent, and an inventory can list what is in it.
    """

    def __init__(
        self,
        client: ServerClient,
        home: Home,
        plugin: Plugin,
        parents: Iterable[Plugin],
        *,
        seconds: float,
        workers: int,
        stop: StopRequest,
    ) -> None:
        """`seconds` limits each wait, and `workers` is the number of concurrent scenarios."""
        self._seconds = seconds
        self._workers = workers
        self._stop = stop
        self._lock = threading.Lock()
        self._client = client
        self._home = home
        self._plugin = plugin
        self._parents = tuple(parents)
        self._count = 0

    def publish(self, spec: PluginSpec, name: str = "") -> str:
        """Publish a spec as the next version of the plugin, or of a plugin `name`. Return its name with the version."""
        with self._lock:
            self._count += 1
            version = f"0.0.{self._count}"
            self._put(msgspec.structs.replace(self._plugin, name=name or self._plugin.name, version=version, spec=spec))
        return f"{name or self._plugin.name}@{version}"

    def start(self, params: Mapping[str, str], lease_s: int) -> None:
        """Create the parents.

        Raises:
            DayflyError: They have failed, or are not ready in time.
            Interrupted: This process has received a signal.
        """
        for each in self._parents:
            self._put(each)
        assert self._plugin.spec.parent is not None, "only such plugins have a keeper"
        rules, read = self._plugin.spec.params(), self._plugin.spec.parent.read_params()
        inputs = tuple(
            Input(name=name, value_from_sandbox=True, required=rules[name].required, default=rules[name].default)
            for name in read
        )
        keep = Step(name="keep", inputs=inputs, script="#!/bin/sh\n")
        spec = PluginSpec(create=(keep,), runner=self._plugin.spec.runner, parent=self._plugin.spec.parent)
        values = {name: value for name, value in params.items() if name in read}
        resource = {"name": "parent", "plugin": self.publish(spec, _NAME), "params": values}
        wish = {"cluster": CLUSTER, "forks": [], "resources": [resource]}
        self._client.put("sandboxes", _NAME, body={"name": _NAME, "spec": wish, "lease": {"seconds": lease_s}})
        self._wait_until_ready(time.monotonic() + self._seconds)

    def renew(self, lease_s: int) -> None:
        """Keep the parents for a further time."""
        with self._lock:
            self._client.put("sandboxes", _NAME, "lease", body={"seconds": lease_s})

    def request_deletions(self) -> None:
        """Request nothing: the parents are deleted last."""

    def clear(self) -> None:
        """Delete the parents after all other sandboxes, and print what is not gone in time."""
        from dayfly.embedded.startup import count_living_runs

        with contextlib.suppress(RefusedError):  # it was not created, or its lease has expired
            self._client.delete("sandboxes", _NAME)
        deadline = time.monotonic() + self._seconds
        while count_living_runs(self._home.path):
            self._stop.check()
            if time.monotonic() > deadline:
                message = f"the shared parent of {self._plugin.wire_name} is not gone after {self._seconds:g} s"
                show.print_message(f"dayfly: {message}; it may be left over")
                return
            time.sleep(_POLL_INTERVAL_S)

    def _put(self, plugin: Plugin) -> None:
        published = msgspec.structs.replace(plugin, spec=in_test(plugin.spec, self._workers))
        self._client.put("resource-plugins", plugin.name, body=documents.export(published))

    def _wait_until_ready(self, deadline: float) -> None:
        report: Any = {}
        while not report.get("ready"):
            self._stop.check()
            if report.get("reason") in FAILED or time.monotonic() > deadline:
                message = f"the shared parent of {self._plugin.wire_name} cannot be created: {report['message']}"
                raise DayflyError(Exit.FAILED, message, "test it first: dayfly plugin test -f FILE, with its own file")
            after = report.get("version")
            report = self._client.get("sandboxes", _NAME, "report", after=after, wait=1 if report else None)
