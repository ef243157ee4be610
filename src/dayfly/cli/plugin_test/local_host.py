"""`plugin test` on this machine, with a separate server and home."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dayfly.cli.backends.target_server import CLUSTER, ServerClient
from dayfly.cli.local import server_process
from dayfly.cli.local.child import Interrupted, Signals, run_group
from dayfly.cli.local.temporary_server import UserLock
from dayfly.cli.output import show
from dayfly.cli.plugin_test.fault_proxy import FaultProxy
from dayfly.cli.plugin_test.session import InventoryError, clean_up_at_end, find_failed_attempt, listed_names
from dayfly.cli.plugin_test.shared_parents import ParentKeeper
from dayfly.client import waiting
from dayfly.client.connection import run
from dayfly.client.errors import DayflyError, Exit, RefusedError
from dayfly.client.home import Home
from dayfly.compile.compiler import step_environment
from dayfly.spec import documents
from dayfly.spec.identity import resource_id
from dayfly.spec.report import FAILED
from dayfly.spec.scalars import names
from dayfly.testing import DeleteAt, Outcome, Scenario, fault_scenarios, undisturbed_scenario
from dayfly.testing.fault_scripts import parse_durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dayfly.spec.plugin import Plugin, Step

_STOP_TIMEOUT_S = 60
_INVENTORY_TIMEOUT_S = 60
_MAX_LEASE_S = 86_400
_TAIL_LINES = 5
_POLL_INTERVAL_S = 0.05
_STARTS_HOST = "dayfly up"
_ALLOW_OPTION = "--allow-webhook"


@contextlib.contextmanager
def bench(
    plugin: Plugin,
    seconds: float,
    allowed: tuple[str, ...] = (),
    secrets: Mapping[str, str] = MappingProxyType({}),
    parents: tuple[Plugin, ...] = (),
) -> Iterator[_LocalBench]:
    """Run a bench with a separate server and a folder for its steps. Both are deleted at the end.

    If this process is killed, the leases of its sandboxes expire, and then the server stops itself.

    Each webhook step has a proxy. `allowed` are further servers that webhooks may use. `secrets` are the plugin's
    params with `secret: true`. `parents` are its shared parents, each after its own parent.

    Raises:
        DayflyError: the server does not start, or the plugin needs a cluster.
    """
    steps = (*plugin.spec.create, *plugin.spec.delete)
    every = (*steps, *(step for each in parents for step in (*each.spec.create, *each.spec.delete)))
    if name := next((step.name for step in every if step.object), ""):
        raise DayflyError(Exit.USAGE, f'the step "{name}" is an object and needs a cluster', "add --context NAME")
    with tempfile.TemporaryDirectory(prefix="dayfly-test-", ignore_cleanup_errors=True) as place:
        home = Home(Path(place) / "home")
        folder = Path(place) / "seen"
        folder.mkdir()
        journal = folder / "journal"
        journal.touch()
        with contextlib.ExitStack() as stack:
            writer = _writer(journal)
            proxies = {each.name: stack.enter_context(FaultProxy(each, writer)) for each in steps if each.webhook}
            servers = (*allowed, *(proxy.address for proxy in proxies.values()))
            options = [word for each in servers for word in (_ALLOW_OPTION, each)]
            stack.enter_context(UserLock(home, 0))
            client = server_process.start(home, ["--port", "0", "--while-used", *options])
            keeper = ParentKeeper(client, home, plugin, parents) if plugin.spec.parent else None
            bench_ = _LocalBench(client, plugin, journal, seconds, proxies, secrets, keeper)
            try:
                with clean_up_at_end(bench_):
                    yield bench_
            finally:
                client.close()
                if (pid := home.server_process()) is not None:
                    server_process.stop(home, pid, _STOP_TIMEOUT_S)


def _writer(journal: Path) -> Callable[[str], None]:
    def write(line: str) -> None:
        with journal.open("a") as file:
            file.write(f"{line}\n")

    return write


class _LocalBench:
    def __init__(
        self,
        client: ServerClient,
        plugin: Plugin,
        journal: Path,
        seconds: float,
        proxies: Mapping[str, FaultProxy],
        secrets: Mapping[str, str],
        keeper: ParentKeeper | None,
    ) -> None:
        self._client = client
        self._keeper = keeper
        self._secrets = secrets
        self._plugin = plugin
        self._journal = journal
        self._proxies = proxies
        self._seconds = seconds
        self._resource = plugin.name[: names.LIMITS["resource"]].rstrip("-")
        self.signals = Signals()
        self._existing: dict[str, tuple[Scenario, Any]] = {}
        self._number = 0
        self._inventory_error = ""
        self._durations: dict[str, float] = {}

    def scenarios(self, params: Mapping[str, str]) -> Iterator[Scenario]:
        """Yield the scenarios. The first runs before the others are built from the durations of its steps."""
        if self._keeper is not None:
            self._keeper.start(params, self._seconds, self._lease_s, self._check_signals)
        yield undisturbed_scenario(self._plugin.spec, params, str(self._journal))
        urls = {name: proxy.url for name, proxy in self._proxies.items()}
        yield from fault_scenarios(self._plugin.spec, params, str(self._journal), self._durations, urls)

    def create(self, scenario: Scenario) -> Any:
        self._check_signals()
        self._number += 1
        for name, proxy in self._proxies.items():
            proxy.set_fault(scenario.webhook_fault if name == scenario.step else None)
        given, kept = self._values(scenario), scenario.spec.secrets()
        params = {name: value for name, value in given.items() if name not in kept and name in scenario.params}
        resource = {"name": self._resource, **self._plugin_of(scenario), "params": params}
        name = f"test-{self._number}"
        lease = {"seconds": self._lease_s}
        body = {"name": name, "spec": {"cluster": CLUSTER, "forks": [], "resources": [resource]}, "lease": lease}
        if taken := {each: value for each, value in given.items() if each in kept}:
            body["secrets"] = {self._resource: taken}
        try:
            box = self._client.put("sandboxes", name, body=body)
        except RefusedError as fault:
            # The host advises to start `dayfly up` with a variable, and this command starts the host.
            if _STARTS_HOST not in fault.message:
                raise
            message = fault.message.replace(_STARTS_HOST, "dayfly plugin test")
            raise DayflyError(fault.code, message, fault.advice) from None
        self._existing[name] = scenario, box
        return box

    def _values(self, scenario: Scenario) -> dict[str, str]:
        """Return all values of a scenario, whose values of secrets replace those of `--secrets-file`."""
        return {**self._secrets, **scenario.params}

    @property
    def _lease_s(self) -> int:
        """A lease that is long enough to create, inspect and delete a sandbox, even with a twin."""
        return min(int(6 * self._seconds) + 10 * _INVENTORY_TIMEOUT_S, _MAX_LEASE_S)

    def _plugin_of(self, scenario: Scenario) -> dict[str, Any]:
        """Return the plugin as fields of a resource: its spec, or a new version of it because it has a parent."""
        if self._keeper is not None:
            self._keeper.renew(self._lease_s)
            return {"plugin": self._keeper.publish(scenario.spec)}
        import msgspec

        return {"spec": documents.export(msgspec.structs.replace(self._plugin, spec=scenario.spec))["spec"]}

    def wait_until_done(self, scenario: Scenario, box: Any) -> Outcome:
        """Wait for the state in which the sandbox is to be deleted."""
        deadline = time.monotonic() + self._seconds
        report: Any = {}
        while time.monotonic() < deadline:
            self._check_signals()
            if scenario.delete_at is DeleteAt.WAITS and scenario.wait_line in self._lines():
                return Outcome(reached="")
            wait = None if scenario.delete_at is DeleteAt.WAITS or not report else 1
            report = self._client.get(
                "sandboxes", box["name"], "report", after=report.get("version") if wait else None, wait=wait
            )
            if report.get("ready"):
                return Outcome(reached="ready")
            if report["reason"] in FAILED:
                return Outcome(reached="failed", message=report["message"], log=self._log(box["name"], report))
            if scenario.delete_at is DeleteAt.WAITS:
                time.sleep(_POLL_INTERVAL_S)
        message = f"not within {self._seconds:g} s: {report.get('message', '')}"
        return Outcome(message=message, log=self._log(box["name"], report))

    def delete(self, scenario: Scenario, box: Any) -> tuple[str, tuple[str, ...]] | None:  # noqa: ARG002 # the bench's protocol
        """Delete a sandbox and wait. Return None once it is gone, otherwise the reason, and abandon it."""
        name = box["name"]
        report: Any = {}
        deadline = time.monotonic() + self._seconds
        try:
            self._client.delete("sandboxes", name)
            for proxy in self._proxies.values():
                proxy.release()
            while not report or time.monotonic() < deadline:
                self._check_signals()
                report = self._client.get(
                    "sandboxes", name, "report", after=report.get("version"), wait=1 if report else None
                )
                if report["phase"] == "cleaned":
                    self._client.get("sandboxes", name)  # until its name is free, too
                    time.sleep(_POLL_INTERVAL_S)
        except RefusedError as fault:
            if fault.code == Exit.NOT_FOUND:
                self._existing.pop(name, None)
                return None
            raise
        held = f"not within {self._seconds:g} s: {report['reason']}: {report['message']}", self._log(name, report)
        self._client.delete("sandboxes", name, force="true")
        self._existing.pop(name, None)
        return held

    def _check_signals(self) -> None:
        with self.signals.raise_interrupts():
            pass

    def clear(self) -> None:
        """Delete the remaining sandboxes before their server stops."""
        try:
            for scenario, box in [*self._existing.values()]:
                if (held := self.delete(scenario, box)) is not None:
                    show.print_message(f"dayfly: resources of {box['name']} may be left over: {held[0]}")
            if self._keeper is not None:
                self._keeper.stop(self._seconds, self._check_signals)
        except (Interrupted, DayflyError) as fault:
            show.print_message(f"dayfly: {fault}; resources may be left over")

    def complete(self, scenario: Scenario, outcome: Outcome) -> Outcome:  # noqa: ARG002 # the bench's protocol
        """Add the number of starts of each step, from the journal."""
        lines = self._lines()
        self._durations = {**parse_durations(lines), **self._durations}
        start_counts = Counter(line.removesuffix(" begins") for line in lines if line.endswith(" begins"))
        inventory_error, self._inventory_error = self._inventory_error, ""
        self._journal.write_text("")
        return outcome._replace(start_counts=start_counts, inventory_error=inventory_error)

    def _log(self, name: str, report: Any) -> tuple[str, ...]:
        """Return the end of the log of the last failed attempt."""
        units = ((unit["id"], unit["state"], unit.get("attempt", 0)) for unit in report.get("units", ()))
        if (failed := find_failed_attempt(units)) is None:
            return ()
        waited = waiting.WaitedRun(self._client.json, name, is_patient=False)
        try:
            return tuple((run(waited.tail(*failed)) or ())[-_TAIL_LINES:])
        except RefusedError:
            return ()

    def _lines(self) -> list[str]:
        return self._journal.read_text(errors="replace").splitlines()

    def inventory(self, scenario: Scenario, box: Any) -> tuple[str, ...] | None:
        """Return what exists of a sandbox's resource; None if there is no inventory or it failed."""
        if not self._plugin.spec.inventory:
            return None
        found: list[str] = []
        try:
            for step in self._plugin.spec.inventory:
                found += self._run_inventory(step, scenario, box)
        except InventoryError as fault:
            self._inventory_error = str(fault)
            return None
        return tuple(found)

    def _run_inventory(self, step: Step, scenario: Scenario, box: Any) -> list[str]:
        given = {name: rule.default for name, rule in self._plugin.spec.params().items() if rule.default is not None}
        given |= self._values(scenario)
        inputs = {wanted.env: given[wanted.name] for wanted in step.inputs if wanted.name in given}
        built_in = {
            **step_environment(box["name"], box["routingKey"], "", self._resource),
            "DAYFLY_RESOURCE_ID": resource_id(self._uid(box), self._resource),
        }
        with tempfile.TemporaryDirectory(prefix="dayfly-inventory-") as place:
            script = Path(place) / "inventory"
            script.write_text(step.script or "")
            script.chmod(0o700)
            try:
                ended = run_group(script, {**os.environ, **built_in, **inputs}, _INVENTORY_TIMEOUT_S)
            except (OSError, subprocess.TimeoutExpired) as fault:
                raise InventoryError(f"the inventory {step.name} cannot run: {fault}") from None
        if ended.returncode:
            error = ended.stderr.strip().splitlines()[-1:] or ["no message"]
            raise InventoryError(f"the inventory {step.name} failed with exit code {ended.returncode}: {error[0]}")
        return listed_names(step.name, ended.stdout.encode())

    def _uid(self, box: Any) -> str:
        if "uid" not in box:
            box["uid"] = self._client.get("sandboxes", box["name"], "report")["uid"]
        return str(box["uid"])
