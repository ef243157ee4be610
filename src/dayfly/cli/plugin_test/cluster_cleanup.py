"""What `plugin test` has made on a cluster: remembered by UID, and taken away in the end. Nothing else is touched."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.cli.backends import cluster_report
from dayfly.cli.local.child import Interrupted, Signals
from dayfly.cli.output import show
from dayfly.cli.plugin_test import cluster_specs
from dayfly.client.errors import DayflyError
from dayfly.kube import errors
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, PLUGINS, SANDBOXES
from dayfly.testing import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.cli.plugin_test.cluster_specs import PluginSpecs
    from dayfly.kube.client import Client
    from dayfly.kube.objects import Resource
    from dayfly.spec.report import RunReport

_SANDBOXES, _PLUGINS = SANDBOXES.read_as(dict[str, Any]), PLUGINS.read_as(dict[str, Any])
_LOOK_S = 0.2


class MadeSandbox(msgspec.Struct):
    """A sandbox that we made.

    Attributes:
        life: What it is for; None for a look of the inventory.
        run: The name of its run, in `pods` the pod of each unit and in `attempts` its newest, as its status says.
        began: Since when the step of its life runs, by our own clock.
        met: Whether somebody has come to that step, or to what it has made.
    """

    name: str
    uid: str
    key: str
    life: Life | None
    run: str = ""
    pods: dict[str, str] = {}
    attempts: dict[str, int] = {}
    began: float = 0.0
    met: bool = False
    gone: bool = False


class Made:
    """All that one test has made."""

    def __init__(self, cluster: ClusterBackend, seconds: float, wishes: cluster_specs.Wishes) -> None:
        self.signals = Signals()
        self._cluster = cluster
        self._seconds = seconds
        self._wishes = wishes
        self._boxes: list[MadeSandbox] = []
        self._versions: dict[str, str] = {}

    def make(self, wish: PluginSpecs, life: Life | None) -> MadeSandbox:
        self.heed()
        if wish.plugin is not None:
            made = self._cluster.call(_create(_PLUGINS, wish.plugin))
            self._versions[made["metadata"]["name"]] = made["metadata"]["uid"]
        found = self._cluster.call(_create(_SANDBOXES, wish.sandbox, self._cluster.namespace))
        box = MadeSandbox(found["metadata"]["name"], found["metadata"]["uid"], "", life)
        self._boxes.append(box)
        return box

    def heed(self) -> None:
        """Let a signal that came meanwhile be heard: between requests, so that we know what we have made."""
        with self.signals.raising():
            pass

    def look(self, box: MadeSandbox) -> RunReport | None:
        """How it stands; None once it is gone."""
        self.heed()
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

    def delete(self, box: MadeSandbox) -> None:
        here = self._cluster.namespace

        async def delete(client: Client) -> None:
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await client.delete(_SANDBOXES, box.name, here, uid=box.uid)

        self._cluster.call(delete)

    def give_up(self, box: MadeSandbox) -> None:
        """Its cleanup hangs, which has been seen: nobody waits for it any more."""
        here, why = self._cluster.namespace, "dayfly plugin test: its cleanup did not end in time"
        patch = {"metadata": {"uid": box.uid, "annotations": {ABANDON_ANNOTATION: why}}}

        async def abandon(client: Client) -> None:
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await client.patch(_SANDBOXES, patch, box.name, here)

        self._cluster.call(abandon)

    def clear(self, end: Callable[[MadeSandbox, Life | None], bool]) -> None:
        """Take away whatever is still there; `end` deletes a sandbox, waits, and says whether it is gone."""
        try:
            there = [box for box in self._boxes if not box.gone]
            for box in there:
                self.delete(box)
            stuck = [box for box in there if not end(box, box.life) and not end(box, None)]
            left = [*(f"sandbox {box.name}" for box in stuck), *self._retract()]
        except (Interrupted, DayflyError) as fault:
            show.print_message(
                f"dayfly: {fault}; not everything that was made is gone: {self._wishes.see(self._cluster.flags)}"
            )
            return
        if left:
            show.print_message(f"dayfly: still there: {', '.join(left)}; {self._wishes.see(self._cluster.flags)}")

    def _retract(self) -> list[str]:
        """Delete the versions that were published; those that stay in use."""
        deadline = time.monotonic() + self._seconds
        while self._versions and time.monotonic() < deadline:
            self.heed()
            for name, uid in list(self._versions.items()):
                if self._cluster.call(_unpublish(name, uid)):
                    del self._versions[name]
            if self._versions:
                self._cluster.pause(_LOOK_S)
        return [f"plugin {name}" for name in self._versions]

    def forget(self) -> None:
        """Versions of tests that were killed, and are over."""
        label = cluster_specs.LABEL
        there = self._cluster.call(lambda client: client.list_all(PLUGINS.metadata_only(), labels=label)).items
        for each in there:
            born = cluster_report.milliseconds(each.metadata.creation_timestamp)
            ours = f".{cluster_specs.VERSION}" in each.metadata.name
            if ours and time.time() - born / 1000 > cluster_specs.OLD_S:
                self._cluster.call(_unpublish(each.metadata.name, each.metadata.uid))


def _create(
    kind: Resource[dict[str, Any]], body: dict[str, Any], namespace: str = ""
) -> Callable[[Client], Coroutine[Any, Any, dict[str, Any]]]:
    """Make it. Where the answer is lost it may be there all the same; nobody else has its name."""

    async def create(client: Client) -> dict[str, Any]:
        try:
            return await client.create(kind, body, namespace)
        except errors.OutcomeUnknown:
            found = await client.find(kind, body["metadata"]["name"], namespace)
            if found is None:
                raise
            return found

    return create


def _unpublish(name: str, uid: str) -> Callable[[Client], Coroutine[Any, Any, bool]]:
    """Delete a version; whether it is gone. One that sandboxes use is refused (policy dayfly-in-use)."""

    async def delete(client: Client) -> bool:
        try:
            await client.delete(_PLUGINS, name, uid=uid)
        except (errors.NotFound, errors.Conflict):
            return True
        except errors.Forbidden:
            return False
        return True

    return delete
