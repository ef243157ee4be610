"""`plugin test` in a cluster: sandboxes of one namespace, with the rights of the person who tests.

A fault comes from outside: the sandbox or a pod is deleted when the status reports a certain moment. An inventory step
runs in a second sandbox, because only the cluster may reach the resource.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from dayfly.cli.local.child import Signals
from dayfly.cli.plugin_test import cluster_cleanup, cluster_faults, cluster_specs
from dayfly.cli.plugin_test.cluster_cleanup import MadeSandbox
from dayfly.cli.plugin_test.session import BlindError, heeding
from dayfly.client.errors import DayflyError, Exit
from dayfly.execute.pod import names as pod_names
from dayfly.plan.reasons import Reason
from dayfly.spec.report import FAILED
from dayfly.testing import DeleteAt, Hand, Life, NotPlayed, Played, first_outside, lives_outside
from dayfly.testing.fault_scripts import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.spec.plugin import Plugin
    from dayfly.spec.report import RunReport, UnitReport

_HOPELESS = FAILED | {Reason.REFUSED}
_PUBLISH = "; what was granted to it by its name it has with --publish"
_LOOK_S = 0.2
_KILL_S = 1
_TAIL_LINES = 5


@contextlib.contextmanager
def bench(plugin: Plugin, cluster: ClusterBackend, seconds: float, *, publish: bool) -> Iterator[_ClusterBench]:
    """A place in a cluster; in the end, and after Ctrl-C, all that was made there is gone, or said.

    Raises:
        DayflyError: a right is missing, or the cluster cannot be reached.
    """
    place = _ClusterBench(plugin, cluster, seconds, cluster_specs.Wishes(plugin, publish=publish))
    place.check()
    with heeding(place):
        yield place


class _ClusterBench:
    def __init__(self, plugin: Plugin, cluster: ClusterBackend, seconds: float, wishes: cluster_specs.Wishes) -> None:
        self.made = cluster_cleanup.Made(cluster, seconds, wishes)
        self._plugin = plugin
        self._cluster = cluster
        self._seconds = seconds
        self._wishes = wishes
        self._took: dict[str, float] = {}
        self._missed = self._blind = ""

    @property
    def signals(self) -> Signals:
        """Those that are heard between requests, so that we know what we have made."""
        return self.made.signals

    @signals.setter
    def signals(self, signals: Signals) -> None:
        self.made.signals = signals

    def clear(self) -> None:
        self.made.clear(lambda box, life: self.end(life, box) is None)

    # What the person may.

    def check(self) -> None:
        """Refuse before anything is made, and forget what tests left that were killed.

        Raises:
            DayflyError: a right is missing.
        """
        here = self._cluster.namespace
        for verb in ("create", "get", "patch", "delete"):
            cluster_faults.need(self._cluster, verb, "dayfly.dev", "sandboxes", here)
        cluster_faults.need(self._cluster, "list", "dayfly.dev", "steplogs", here)
        if self._wishes.publish:
            for verb in ("list", "create", "delete"):
                cluster_faults.need(self._cluster, verb, "dayfly.dev", "resourceplugins", "")
            self.made.forget()

    def _runners(self) -> str:
        wished = self._plugin.spec.runner.namespace
        return pod_names.RUNNERS if wished in ("", "signadot") else wished

    def lives(self, params: Mapping[str, str]) -> Iterator[Life | NotPlayed]:
        """The first is played before the others are made: they depend on how long its steps took."""
        yield first_outside(self._plugin.spec, params)
        runners = self._runners()
        hands = cluster_faults.lacking(self._cluster, self._plugin, runners)
        yield from lives_outside(self._plugin.spec, params, self._took, hands)

    # One life.

    def begin(self, life: Life) -> MadeSandbox:
        return self.made.make(self._wishes.of_life(life, self._span()), life)

    def _span(self) -> int:
        """How many minutes what is made may live: longer than anything that we wait for."""
        return 10 + int(self._seconds // 15)

    def until(self, life: Life, box: MadeSandbox) -> Played:
        deadline = time.monotonic() + self._seconds
        while True:
            report = self.made.look(box)
            if report is None:
                raise DayflyError(
                    Exit.FAILED, f"somebody else has deleted the sandbox {box.name}", "start the test again"
                )
            self._meet(life, box, report)
            if life.ends is DeleteAt.WAITS and box.met:
                return Played()
            if report.ready:
                self._time(report)
                return Played(reached="ready", missed=self._passed(life, box, report))
            if report.reason in _HOPELESS:
                missed = "" if life.pod else self._passed(life, box, report)
                more = _PUBLISH if report.reason == Reason.REFUSED and not self._wishes.publish else ""
                return Played(
                    reached="failed", message=report.message + more, log=self._log(box, report), missed=missed
                )
            if time.monotonic() > deadline:
                missed = f"{life.step} has not begun within {self._seconds:g} s" if life.ends is DeleteAt.WAITS else ""
                return Played(message=f"not within {self._seconds:g} s: {report.message}", missed=missed)
            self._cluster.pause(_LOOK_S)

    def end(self, life: Life | None, box: MadeSandbox) -> tuple[str, tuple[str, ...]] | None:
        if life is not None and life.hand is not None and not box.met:
            self._meddle(life, life.hand, box)
        self.made.delete(box)
        deadline, last = time.monotonic() + self._seconds, None
        began: dict[str, float] = {}
        while (report := self.made.look(box)) is not None and time.monotonic() < deadline:
            last = report
            if life is not None:
                self._meet(life, box, report)
            self._time(report)
            for unit in report.units:
                if _begun(unit) and unit.event in ("preStop", "postStop"):
                    began.setdefault(unit.name, time.monotonic())
            self._cluster.pause(_LOOK_S)
        if report is None:
            box.gone = True
            for name, since in began.items():  # its own last word is rarely seen
                self._took.setdefault(name, max(time.monotonic() - since - _KILL_S, 0.0))
            if life is not None and life.pod and not box.met and not self._missed:
                self._missed = f"{life.step} was over before anybody could delete its pod"
            return None
        assert last is not None, "it is still there"
        held = f"not within {self._seconds:g} s: {last.reason}: {last.message}", self._log(box, last)
        self.made.give_up(box)
        return held

    def close(self, life: Life, played: Played) -> Played:  # noqa: ARG002 # the bench's protocol
        missed, blind = played.missed or self._missed, self._blind
        self._missed = self._blind = ""
        return played._replace(missed=missed, blind=blind)

    def _meet(self, life: Life, box: MadeSandbox, report: RunReport) -> None:
        """Come to the step at its moment; its pod is deleted then, if that is meant."""
        if life.moment is None or box.met:
            return
        unit = self._unit(life, report)
        if unit is None or not _begun(unit) or unit.attempt != 1:
            return
        box.began = box.began or time.monotonic()
        if time.monotonic() - box.began < life.after:
            return
        if life.pod:
            where, _, pod = box.pods.get(unit.id, "").partition("/")
            if not pod or not self._cluster.call(lambda client: cluster_faults.delete_pod(client, pod, where)):
                return
        box.met = True

    def _meddle(self, life: Life, hand: Hand, box: MadeSandbox) -> None:
        """Lay hand on what the step has made."""
        manifest = next(
            step.object.manifest for step in self._plugin.spec.create if step.name == life.step and step.object
        )
        unit, here = f"{self._wishes.resource}/{life.step}", self._cluster.namespace
        of = cluster_faults.PluginAttempt(box.uid, unit, box.attempts.get(unit, 0))
        done = self._cluster.call(lambda client: cluster_faults.meddle(client, hand, manifest or {}, here, box.run, of))
        box.met = True
        self._missed = "" if done else f"nothing is there that {life.step} has made"

    def _unit(self, life: Life, report: RunReport) -> UnitReport | None:
        wanted = f"{self._wishes.resource}/{life.step}"
        return next((unit for unit in report.units if unit.id == wanted), None)

    def _passed(self, life: Life, box: MadeSandbox, report: RunReport) -> str:
        """Why a create step was not met, if it was not."""
        if life.moment is None or box.met or any(step.name == life.step for step in self._plugin.spec.delete):
            return ""
        unit = self._unit(life, report)
        return f"{life.step} was over before anybody could come to it" if unit else f"{life.step} has not begun"

    def _time(self, report: RunReport) -> None:
        for unit in report.units:
            if unit.state == "succeeded" and unit.started_at and unit.ended_at:
                self._took.setdefault(unit.name, (unit.ended_at - unit.started_at) / 1000)

    def _log(self, box: MadeSandbox, report: RunReport) -> tuple[str, ...]:
        """The end of what the step that failed has printed."""
        failed = next((unit for unit in report.units if unit.state in ("retrying", "failed")), None)
        if failed is None:
            return ()
        self._cluster.reset_logs()
        try:
            logs = [each for each in self._cluster.attempts(box.name, follow=False) if each["unit"] == failed.id]
            text = self._cluster.read(box.name, failed.id, logs[-1]["attempt"], 0).data if logs else b""
        except DayflyError:
            return ()
        return tuple(text.decode(errors="replace").splitlines()[-_TAIL_LINES:])

    # What is there.

    def inventory(self, life: Life, box: MadeSandbox) -> tuple[str, ...] | None:
        if not self._plugin.spec.inventory:
            return None
        wish = self._wishes.of_inventory(life, box.name, box.uid, box.key, self._span())
        look = self.made.make(wish, None)
        try:
            return self._listed(look)
        except BlindError as fault:
            self._blind = str(fault)
            return None
        finally:
            self.made.delete(look)

    def _listed(self, look: MadeSandbox) -> tuple[str, ...]:
        deadline = time.monotonic() + self._seconds
        while True:
            report = self.made.look(look)
            if report is None or report.reason in _HOPELESS or time.monotonic() > deadline:
                why = report.message if report else "somebody has deleted its sandbox"
                raise BlindError(f"the inventory cannot be run: {why}")
            if report.ready:
                break
            self._cluster.pause(_LOOK_S)
        found: list[str] = []
        self._cluster.reset_logs()
        logs = {each["unit"]: each["attempt"] for each in self._cluster.attempts(look.name, follow=False)}
        for step in self._plugin.spec.inventory:
            unit = f"{self._wishes.resource}/{step.name}"
            log = self._cluster.read(look.name, unit, logs[unit], 0).data if unit in logs else b""
            lines, why = listed(log.decode(errors="replace"))
            if why:
                raise BlindError(f"the inventory {step.name} {why}")
            found += lines
        return tuple(found)


def _begun(unit: UnitReport) -> bool:
    return unit.state == "running" and (unit.kind == "object" or unit.reason == Reason.RUNNING)
