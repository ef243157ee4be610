"""`plugin test` in a cluster: sandboxes of one namespace, with the rights of the user.

The test deletes the sandbox or a pod when the status reports a certain moment. An inventory step runs in a second
sandbox, because the resource may be reachable only from the cluster.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from dayfly.cli.plugin_test import cluster_cleanup, cluster_faults, cluster_specs
from dayfly.cli.plugin_test.cluster_cleanup import CreatedSandbox
from dayfly.cli.plugin_test.session import InventoryError, Workers, clean_up_at_end, find_failed_attempt, listed_names
from dayfly.cli.plugin_test.workers import StopRequest
from dayfly.client.errors import DayflyError, Exit
from dayfly.execute.pod import names as pod_names
from dayfly.plan.reasons import Reason
from dayfly.spec.report import FAILED
from dayfly.testing import (
    DeleteAt,
    Outcome,
    Scenario,
    SkippedScenario,
    Tampering,
    cluster_fault_scenarios,
    undisturbed_cluster_scenario,
)
from dayfly.testing.fault_scripts import parse_inventory_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.spec.plugin import Plugin
    from dayfly.spec.report import RunReport, UnitReport

_FINAL_REASONS = FAILED | {Reason.REFUSED}
_PUBLISH_ADVICE = "; use --publish for access that is granted to the name of the plugin"
_POLL_INTERVAL_S = 0.2
_GRACE_PERIOD_S = 1
_TAIL_LINES = 5


@contextlib.contextmanager
def use_workers(
    plugin: Plugin, clusters: Sequence[ClusterBackend], seconds: float, *, publish: bool
) -> Iterator[Workers]:
    """Use one worker for each connection to a cluster. At the end, all created objects are deleted, or reported.

    Raises:
        DayflyError: a right is missing, or the cluster cannot be reached.
    """
    specs, stop = cluster_specs.SpecBuilder(plugin, publish=publish), StopRequest()
    durations: dict[str, float] = {}
    benches = [_ClusterBench(plugin, cluster, seconds, specs, stop, durations) for cluster in clusters]
    benches[0].check()
    left = f"not everything was deleted: {specs.find_command(clusters[0].flags)}"
    with clean_up_at_end(benches, stop, left):
        yield Workers(benches, stop)


class _ClusterBench:
    def __init__(
        self,
        plugin: Plugin,
        cluster: ClusterBackend,
        seconds: float,
        specs: cluster_specs.SpecBuilder,
        stop: StopRequest,
        durations: dict[str, float],
    ) -> None:
        self.made = cluster_cleanup.CreatedObjects(cluster, seconds, specs, stop)
        self._plugin = plugin
        self._cluster = cluster
        self._seconds = seconds
        self._specs = specs
        self._durations = durations
        self._missed = self._inventory_error = ""

    def request_deletions(self) -> None:
        self.made.request_deletions()

    def clear(self) -> None:
        self.made.clear(lambda box, scenario: self.delete(scenario, box) is None)

    # Rights.

    def check(self) -> None:
        """Check the rights before anything is created, and delete old versions of killed tests.

        Raises:
            DayflyError: a right is missing.
        """
        here = self._cluster.namespace
        for verb in ("create", "get", "patch", "delete"):
            cluster_faults.require(self._cluster, verb, "dayfly.dev", "sandboxes", here)
        cluster_faults.require(self._cluster, "list", "dayfly.dev", "steplogs", here)
        if self._specs.publish:
            for verb in ("list", "create", "delete"):
                cluster_faults.require(self._cluster, verb, "dayfly.dev", "resourceplugins", "")
            self.made.delete_old_versions()

    def _runners(self) -> str:
        namespace = self._plugin.spec.runner.namespace
        return pod_names.RUNNERS if namespace in ("", "signadot") else namespace

    def undisturbed_scenario(self, params: Mapping[str, str]) -> Scenario:
        return undisturbed_cluster_scenario(self._plugin.spec, params)

    def fault_scenarios(self, params: Mapping[str, str]) -> Iterator[Scenario | SkippedScenario]:
        missing = cluster_faults.find_missing_rights(self._cluster, self._plugin, self._runners())
        return cluster_fault_scenarios(self._plugin.spec, params, self._durations, missing)

    # One scenario.

    def create(self, scenario: Scenario) -> CreatedSandbox:
        return self.made.create(self._specs.build(scenario, self._minutes()), scenario)

    def _minutes(self) -> int:
        """Return the time to live of sandboxes in minutes, longer than all waits of the test."""
        return 10 + int(self._seconds // 15)

    def wait_until_done(self, scenario: Scenario, box: CreatedSandbox) -> Outcome:
        deadline = time.monotonic() + self._seconds
        while True:
            report = self.made.read(box)
            if report is None:
                raise DayflyError(
                    Exit.FAILED, f"another user has deleted the sandbox {box.name}", "start the test again"
                )
            self._intervene(scenario, box, report)
            if scenario.delete_at is DeleteAt.WAITS and box.met:
                return Outcome()
            if report.ready:
                self._record_durations(report)
                return Outcome(reached="ready", missed_reason=self._missed_reason(scenario, box, report))
            if report.reason in _FINAL_REASONS:
                missed_reason = "" if scenario.deletes_pod else self._missed_reason(scenario, box, report)
                more = _PUBLISH_ADVICE if report.reason == Reason.REFUSED and not self._specs.publish else ""
                return Outcome(
                    reached="failed",
                    message=report.message + more,
                    log=self._log(box, report),
                    missed_reason=missed_reason,
                )
            if time.monotonic() > deadline:
                missed_reason = (
                    f"{scenario.step} did not start within {self._seconds:g} s"
                    if scenario.delete_at is DeleteAt.WAITS
                    else ""
                )
                message = f"not within {self._seconds:g} s: {report.message}"
                return Outcome(message=message, log=self._log(box, report), missed_reason=missed_reason)
            self._cluster.pause(_POLL_INTERVAL_S)

    def delete(self, scenario: Scenario | None, box: CreatedSandbox) -> tuple[str, tuple[str, ...]] | None:
        if scenario is not None and scenario.tampering is not None and not box.met:
            self._tamper(scenario, scenario.tampering, box)
        self.made.delete(box)
        deadline, last = time.monotonic() + self._seconds, None
        began: dict[str, float] = {}
        while (report := self.made.read(box)) is not None and time.monotonic() < deadline:
            last = report
            if scenario is not None:
                self._intervene(scenario, box, report)
            self._record_durations(report)
            for unit in report.units:
                if _is_running(unit) and unit.event in ("preStop", "postStop"):
                    began.setdefault(unit.name, time.monotonic())
            self._cluster.pause(_POLL_INTERVAL_S)
        if report is None:
            box.gone = True
            for name, since in began.items():  # the final status of a delete step is rarely observed
                self._durations.setdefault(name, max(time.monotonic() - since - _GRACE_PERIOD_S, 0.0))
            if scenario is not None and scenario.deletes_pod and not box.met and not self._missed:
                self._missed = f"{scenario.step} ended before its pod could be deleted"
            return None
        assert last is not None, "the sandbox still exists"
        held = f"not within {self._seconds:g} s: {last.reason}: {last.message}", self._log(box, last)
        self.made.abandon(box)
        return held

    def complete(self, scenario: Scenario, outcome: Outcome) -> Outcome:  # noqa: ARG002 # the bench's protocol
        missed_reason, inventory_error = outcome.missed_reason or self._missed, self._inventory_error
        self._missed = self._inventory_error = ""
        return outcome._replace(missed_reason=missed_reason, inventory_error=inventory_error)

    def _intervene(self, scenario: Scenario, box: CreatedSandbox, report: RunReport) -> None:
        """Check whether the step has reached its moment. Delete its pod then, if the scenario says so."""
        if scenario.moment is None or box.met:
            return
        unit = self._unit(scenario, report)
        if unit is None or not _is_running(unit) or unit.attempt != 1:
            return
        box.began = box.began or time.monotonic()
        if time.monotonic() - box.began < scenario.delay_s:
            return
        if scenario.deletes_pod:
            where, _, pod = box.pods.get(unit.id, "").partition("/")
            if not pod or not self._cluster.call(lambda client: cluster_faults.delete_pod(client, pod, where)):
                return
        box.met = True

    def _tamper(self, scenario: Scenario, tampering: Tampering, box: CreatedSandbox) -> None:
        """Change the object of the step."""
        manifest = next(
            step.object.manifest for step in self._plugin.spec.create if step.name == scenario.step and step.object
        )
        unit, here = f"{self._specs.resource}/{scenario.step}", self._cluster.namespace
        attempt = cluster_faults.PluginAttempt(box.uid, unit, box.attempts.get(unit, 0))
        done = self._cluster.call(
            lambda client: cluster_faults.tamper(client, tampering, manifest or {}, here, box.run, attempt)
        )
        box.met = True
        self._missed = "" if done else f"{scenario.step} has created no object"

    def _unit(self, scenario: Scenario, report: RunReport) -> UnitReport | None:
        wanted = f"{self._specs.resource}/{scenario.step}"
        return next((unit for unit in report.units if unit.id == wanted), None)

    def _missed_reason(self, scenario: Scenario, box: CreatedSandbox, report: RunReport) -> str:
        """Return why the test did not intervene in a create step; empty if it did."""
        if scenario.moment is None or box.met or any(step.name == scenario.step for step in self._plugin.spec.delete):
            return ""
        unit = self._unit(scenario, report)
        return f"{scenario.step} ended too early" if unit else f"{scenario.step} has not started"

    def _record_durations(self, report: RunReport) -> None:
        for unit in report.units:
            if unit.state == "succeeded" and unit.started_at and unit.ended_at:
                self._durations.setdefault(unit.name, (unit.ended_at - unit.started_at) / 1000)

    def _log(self, box: CreatedSandbox, report: RunReport) -> tuple[str, ...]:
        """Return the end of the log of the last failed attempt."""
        failed = find_failed_attempt((unit.id, unit.state, unit.attempt) for unit in report.units)
        if failed is None:
            return ()
        self._cluster.reset_logs()
        try:
            logs = self._cluster.attempts(box.name, follow=False)
            known = any((each["unit"], each["attempt"]) == failed for each in logs)
            text = self._cluster.read(box.name, *failed, 0).data if known else b""
        except DayflyError:
            return ()
        return tuple(text.decode(errors="replace").splitlines()[-_TAIL_LINES:])

    # The inventory.

    def inventory(self, scenario: Scenario, box: CreatedSandbox) -> tuple[str, ...] | None:
        if not self._plugin.spec.inventory:
            return None
        specs = self._specs.build_inventory(scenario, box.name, box.uid, box.key, self._minutes())
        box_of_inventory = self.made.create(specs, None)
        try:
            return self._read_inventory(box_of_inventory)
        except InventoryError as fault:
            self._inventory_error = str(fault)
            return None
        finally:
            self.made.delete(box_of_inventory)

    def _read_inventory(self, box: CreatedSandbox) -> tuple[str, ...]:
        deadline = time.monotonic() + self._seconds
        while True:
            report = self.made.read(box)
            if report is None or report.reason in _FINAL_REASONS or time.monotonic() > deadline:
                why = report.message if report else "another user has deleted its sandbox"
                raise InventoryError(f"the inventory failed: {why}")
            if report.ready:
                break
            self._cluster.pause(_POLL_INTERVAL_S)
        found: list[str] = []
        self._cluster.reset_logs()
        logs = {each["unit"]: each["attempt"] for each in self._cluster.attempts(box.name, follow=False)}
        for step in self._plugin.spec.inventory:
            unit = f"{self._specs.resource}/{step.name}"
            log = self._cluster.read(box.name, unit, logs[unit], 0).data if unit in logs else b""
            output, why = parse_inventory_log(log.decode(errors="replace"))
            if why:
                raise InventoryError(f"the inventory {step.name} {why}")
            found += listed_names(step.name, output.encode())
        return tuple(found)


def _is_running(unit: UnitReport) -> bool:
    return unit.state == "running" and (unit.kind == "object" or unit.reason == Reason.RUNNING)
