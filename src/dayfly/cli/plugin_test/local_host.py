"""`plugin test` on this machine, with a separate server and home."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.cli.backends.target_server import CLUSTER, ServerClient
from dayfly.cli.local import server_process
from dayfly.cli.local.child import run_group
from dayfly.cli.local.temporary_server import UserLock
from dayfly.cli.output import show
from dayfly.cli.plugin_test.fault_proxy import FaultProxy
from dayfly.cli.plugin_test.session import InventoryError, Workers, clean_up_at_end, find_failed_attempt, listed_names
from dayfly.cli.plugin_test.shared_parents import ParentKeeper
from dayfly.cli.plugin_test.workers import StopRequest
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
    from collections.abc import Iterable, Iterator, Mapping

    from dayfly.spec.plugin import Plugin, Step

_STOP_TIMEOUT_S = 60
_INVENTORY_TIMEOUT_S = 60
_MAX_LEASE_S = 86_400
_TAIL_LINES = 5
_POLL_INTERVAL_S = 0.05
_STARTS_HOST = "dayfly up"
_ALLOW_OPTION = "--allow-webhook"


class _Test(NamedTuple):
    """The data that all workers of a test share.

    Attributes:
        plugin: The plugin.
        seconds: The limit of each wait.
        secrets: The plugin's params with `secret: true`.
        keeper: Keeps the shared parents; None for a plugin without one.
        stop: The request to end.
        numbers: The numbers of the sandboxes.
        durations: The duration of each step in the first scenario that ran it, in seconds.
        listing: Held while an inventory runs. It uses the /tmp of this machine, where a step has its own.
    """

    plugin: Plugin
    seconds: float
    secrets: Mapping[str, str]
    keeper: ParentKeeper | None
    stop: StopRequest
    numbers: Iterator[int]
    durations: dict[str, float]
    listing: threading.Lock

    @property
    def lease_s(self) -> int:
        """A lease that is long enough to create, inspect and delete a sandbox, even with a twin."""
        return min(int(6 * self.seconds) + 10 * _INVENTORY_TIMEOUT_S, _MAX_LEASE_S)


@contextlib.contextmanager
def start_workers(
    plugin: Plugin,
    params: Mapping[str, str],
    seconds: float,
    allowed: tuple[str, ...] = (),
    secrets: Mapping[str, str] = MappingProxyType({}),
    parents: tuple[Plugin, ...] = (),
    count: int = 1,
) -> Iterator[Workers]:
    """Start a separate server and `count` workers with folders for their steps. All are deleted at the end.

    If this process is killed, the leases of its sandboxes expire, and then the server stops itself.

    Each worker has a proxy for each webhook step. `allowed` are further servers that webhooks may use. `secrets` are
    the plugin's params with `secret: true`. `parents` are its shared parents, each after its own parent.

    Raises:
        DayflyError: the server does not start, or the plugin needs a cluster.
    """
    steps = (*plugin.spec.create, *plugin.spec.delete)
    every = (*steps, *(step for each in parents for step in (*each.spec.create, *each.spec.delete)))
    if name := next((step.name for step in every if step.object), ""):
        raise DayflyError(Exit.USAGE, f'the step "{name}" is an object and needs a cluster', "add --context NAME")
    with (
        tempfile.TemporaryDirectory(prefix="dayfly-test-", ignore_cleanup_errors=True) as place,
        contextlib.ExitStack() as stack,
    ):
        home = Home(Path(place) / "home")
        folder = Path(place) / "seen"
        folder.mkdir()
        journals = [folder / f"journal-{number}" for number in range(count)]
        proxies = [_start_proxies(stack, steps, journal) for journal in journals]
        servers = (*allowed, *(proxy.address for each in proxies for proxy in each.values()))
        options = [word for each in servers for word in (_ALLOW_OPTION, each)]
        stack.enter_context(UserLock(home, 0))
        client = server_process.start(home, ["--port", "0", "--while-used", *options])
        try:
            with contextlib.ExitStack() as clients:
                clients.callback(client.close)
                stop = StopRequest()
                keeper = None
                if plugin.spec.parent is not None:
                    keeper = ParentKeeper(client, home, plugin, parents, seconds=seconds, workers=count, stop=stop)
                test = _Test(plugin, seconds, secrets, keeper, stop, itertools.count(1), {}, threading.Lock())
                benches = []
                for journal, own in zip(journals, proxies, strict=True):
                    own_client = ServerClient(client.address)  # for the thread of this worker
                    clients.callback(own_client.close)
                    benches.append(_LocalBench(test, own_client, journal, own))
                with clean_up_at_end([*benches, *([keeper] if keeper else ())], stop, "resources may be left over"):
                    if keeper is not None:
                        keeper.start(params, test.lease_s)
                    yield Workers(benches, stop)
        finally:
            if (pid := home.server_process()) is not None:
                server_process.stop(home, pid, _STOP_TIMEOUT_S)


def _start_proxies(stack: contextlib.ExitStack, steps: Iterable[Step], journal: Path) -> dict[str, FaultProxy]:
    """Start the proxies of the webhook steps for one worker. They write to its new journal."""

    def write(line: str) -> None:
        with journal.open("a") as file:
            file.write(f"{line}\n")

    journal.touch()
    return {each.name: stack.enter_context(FaultProxy(each, write)) for each in steps if each.webhook}


class _LocalBench:
    def __init__(self, test: _Test, client: ServerClient, journal: Path, proxies: Mapping[str, FaultProxy]) -> None:
        self._test = test
        self._client = client
        self._plugin = test.plugin
        self._journal = journal
        self._proxies = proxies
        self._seconds = test.seconds
        self._resource = test.plugin.name[: names.LIMITS["resource"]].rstrip("-")
        self._existing: dict[str, tuple[Scenario, Any]] = {}
        self._inventory_error = ""

    def undisturbed_scenario(self, params: Mapping[str, str]) -> Scenario:
        return undisturbed_scenario(self._plugin.spec, params, str(self._journal))

    def fault_scenarios(self, params: Mapping[str, str]) -> Iterator[Scenario]:
        urls = {name: proxy.url for name, proxy in self._proxies.items()}
        return fault_scenarios(self._plugin.spec, params, str(self._journal), self._test.durations, urls)

    def create(self, scenario: Scenario) -> Any:
        self._test.stop.check()
        for name, proxy in self._proxies.items():
            proxy.set_fault(scenario.webhook_fault if name == scenario.step else None)
        given, kept = self._values(scenario), scenario.spec.secrets()
        params = {name: value for name, value in given.items() if name not in kept and name in scenario.params}
        resource = {"name": self._resource, **self._plugin_of(scenario), "params": params}
        name = f"test-{next(self._test.numbers)}"
        lease = {"seconds": self._test.lease_s}
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
        return {**self._test.secrets, **scenario.params}

    def _plugin_of(self, scenario: Scenario) -> dict[str, Any]:
        """Return the plugin as fields of a resource: its spec, or a new version of it because it has a parent."""
        if (keeper := self._test.keeper) is not None:
            keeper.renew(self._test.lease_s)
            return {"plugin": keeper.publish(scenario.spec)}
        import msgspec

        return {"spec": documents.export(msgspec.structs.replace(self._plugin, spec=scenario.spec))["spec"]}

    def wait_until_done(self, scenario: Scenario, box: Any) -> Outcome:
        """Wait for the state in which the sandbox is to be deleted."""
        deadline = time.monotonic() + self._seconds
        report: Any = {}
        while time.monotonic() < deadline:
            self._test.stop.check()
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
                self._test.stop.check()
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

    def request_deletions(self) -> None:
        for name in self._existing:
            with contextlib.suppress(DayflyError):  # `clear` deletes it again
                self._client.delete("sandboxes", name)

    def clear(self) -> None:
        """Delete the remaining sandboxes before their server stops."""
        for scenario, box in [*self._existing.values()]:
            if (held := self.delete(scenario, box)) is not None:
                show.print_message(f"dayfly: resources of {box['name']} may be left over: {held[0]}")

    def complete(self, scenario: Scenario, outcome: Outcome) -> Outcome:  # noqa: ARG002 # the bench's protocol
        """Add the number of starts of each step, from the journal."""
        lines = self._lines()
        for step, seconds in parse_durations(lines).items():
            self._test.durations.setdefault(step, seconds)
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
                with self._test.listing:
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
