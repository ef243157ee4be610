"""The objects that `plugin test` has created in a cluster. They are deleted by UID; nothing else is touched."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.cli.backends import cluster_report
from dayfly.cli.output import show
from dayfly.cli.plugin_test import cluster_specs
from dayfly.client.errors import DayflyError
from dayfly.kube import errors
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, PLUGINS, SANDBOXES
from dayfly.testing import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.cli.plugin_test.cluster_specs import PluginSpecs
    from dayfly.cli.plugin_test.workers import StopRequest
    from dayfly.kube.client import KubeClient
    from dayfly.kube.objects import ApiResource
    from dayfly.spec.report import RunReport

_SANDBOXES, _PLUGINS = SANDBOXES.read_as(dict[str, Any]), PLUGINS.read_as(dict[str, Any])
_POLL_INTERVAL_S = 0.2


class CreatedSandbox(msgspec.Struct):
    """A sandbox of the test.

    Attributes:
        scenario: Its scenario; None for a run of the inventory.
        run: The name of its run, from its status.
        pods: The pod of each unit, from its status.
        attempts: The last attempt of each unit, from its status.
        began: When the test first saw the step of the scenario run, on the monotonic clock.
        met: Whether the test has intervened in that step or changed its object.
    """

    name: str
    uid: str
    key: str
    scenario: Scenario | None
    run: str = ""
    pods: dict[str, str] = {}
    attempts: dict[str, int] = {}
    began: float = 0.0
    met: bool = False
    gone: bool = False


class CreatedObjects:
    """All objects that one worker has created. The worker stops only between requests, so that it knows all objects."""

    def __init__(
        self, cluster: ClusterBackend, seconds: float, specs: cluster_specs.SpecBuilder, stop: StopRequest
    ) -> None:
        self._stop = stop
        self._cluster = cluster
        self._seconds = seconds
        self._specs = specs
        self._boxes: list[CreatedSandbox] = []
        self._versions: dict[str, str] = {}

    def create(self, specs: PluginSpecs, scenario: Scenario | None) -> CreatedSandbox:
        self._stop.check()
        if specs.plugin is not None:
            version = self._cluster.call(_create(_PLUGINS, specs.plugin))
            self._versions[version["metadata"]["name"]] = version["metadata"]["uid"]
        found = self._cluster.call(_create(_SANDBOXES, specs.sandbox, self._cluster.namespace))
        box = CreatedSandbox(found["metadata"]["name"], found["metadata"]["uid"], "", scenario)
        self._boxes.append(box)
        return box

    def read(self, box: CreatedSandbox) -> RunReport | None:
        """Return the report of a sandbox; None once it is gone."""
        self._stop.check()
        here = self._cluster.namespace
        found = self._cluster.call(lambda client: client.find(_SANDBOXES, box.name, here))
        if found is None or found["metadata"]["uid"] != box.uid:
            return None
        status = found.get("status") or {}
        box.run = status.get("run", "") or box.run
        box.key = status.get("routingKey", "") or box.key
        box.pods = {unit["id"]: unit.get("pod", "") for unit in status.get("units") or ()}
        box.attempts = {unit["id"]: unit.get("attempt", 0) for unit in status.get("units") or ()}
        return cluster_report.report(found, time.time_ns() // 1_000_000)

    def delete(self, box: CreatedSandbox) -> None:
        here = self._cluster.namespace

        async def delete(client: KubeClient) -> None:
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await client.delete(_SANDBOXES, box.name, here, uid=box.uid)

        self._cluster.call(delete)

    def abandon(self, box: CreatedSandbox) -> None:
        """Abandon a cleanup that did not end in time."""
        here, why = self._cluster.namespace, "dayfly plugin test: its cleanup did not end in time"
        patch = {"metadata": {"uid": box.uid, "annotations": {ABANDON_ANNOTATION: why}}}

        async def annotate(client: KubeClient) -> None:
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await client.patch(_SANDBOXES, patch, box.name, here)

        self._cluster.call(annotate)

    def request_deletions(self) -> None:
        for box in self._boxes:
            if not box.gone:
                with contextlib.suppress(DayflyError):  # `clear` deletes it again
                    self.delete(box)

    def clear(self, end: Callable[[CreatedSandbox, Scenario | None], bool]) -> None:
        """Delete everything that still exists.

        `end` deletes a sandbox, waits, and returns whether it is gone. After a timeout it abandons the sandbox, so a
        second call waits for the end of an abandoned one.

        Raises:
            DayflyError: the cluster refuses a request, or cannot be reached.
            Interrupted: this process has received a signal.
        """
        remaining = [box for box in self._boxes if not box.gone]
        stuck = [box for box in remaining if not end(box, box.scenario) and not end(box, None)]
        if left := [*(f"sandbox {box.name}" for box in stuck), *self._unpublish_versions()]:
            where = self._specs.find_command(self._cluster.flags)
            show.print_message(f"dayfly: not deleted: {', '.join(left)}; {where}")

    def _unpublish_versions(self) -> list[str]:
        """Delete the published versions. Return those that remain in use."""
        deadline = time.monotonic() + self._seconds
        while self._versions and time.monotonic() < deadline:
            self._stop.check()
            for name, uid in list(self._versions.items()):
                if self._cluster.call(_unpublish(name, uid)):
                    del self._versions[name]
            if self._versions:
                self._cluster.pause(_POLL_INTERVAL_S)
        return [f"plugin {name}" for name in self._versions]

    def delete_old_versions(self) -> None:
        """Delete old versions of tests that were killed."""
        label = cluster_specs.LABEL
        versions = self._cluster.call(lambda client: client.list_all(PLUGINS.metadata_only(), labels=label)).items
        for each in versions:
            created = cluster_report.milliseconds(each.metadata.creation_timestamp)
            is_test = f".{cluster_specs.VERSION}" in each.metadata.name
            if is_test and time.time() - created / 1000 > cluster_specs.MAX_VERSION_AGE_S:
                self._cluster.call(_unpublish(each.metadata.name, each.metadata.uid))


def _create(
    kind: ApiResource[dict[str, Any]], body: dict[str, Any], namespace: str = ""
) -> Callable[[KubeClient], Coroutine[Any, Any, dict[str, Any]]]:
    """Create an object. If the response is lost, check whether it exists: its name is unique."""

    async def create(client: KubeClient) -> dict[str, Any]:
        try:
            return await client.create(kind, body, namespace)
        except errors.OutcomeUnknown:
            found = await client.find(kind, body["metadata"]["name"], namespace)
            if found is None:
                raise
            return found

    return create


def _unpublish(name: str, uid: str) -> Callable[[KubeClient], Coroutine[Any, Any, bool]]:
    """Delete a version. Return whether it is gone. The policy dayfly-in-use rejects it while sandboxes use it."""

    async def delete(client: KubeClient) -> bool:
        try:
            await client.delete(_PLUGINS, name, uid=uid)
        except (errors.NotFound, errors.Conflict):
            return True
        except errors.Forbidden:
            return False
        return True

    return delete
