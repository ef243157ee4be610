"""`plugin test` on this machine: a server of its own, in a home of its own."""

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
from dayfly.cli.local.temporary_server import Sharing
from dayfly.cli.output import show
from dayfly.cli.plugin_test.fault_proxy import FaultProxy
from dayfly.cli.plugin_test.session import BlindError, heeding
from dayfly.client import waiting
from dayfly.client.connection import run
from dayfly.client.errors import DayflyError, Exit, RefusedError
from dayfly.client.home import Home
from dayfly.compile.compiler import step_environment
from dayfly.spec import documents
from dayfly.spec.identity import resource_id
from dayfly.spec.report import FAILED
from dayfly.spec.scalars import names
from dayfly.testing import DeleteAt, Life, Played, first, lives
from dayfly.testing.fault_scripts import took

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dayfly.spec.plugin import Plugin, Step

_STOP_S = 60
_INVENTORY_S = 60
_LONGEST_LEASE_S = 86_400
_TAIL_LINES = 5
_LOOK_S = 0.05
_ALLOW = "--allow-webhook"


@contextlib.contextmanager
def bench(
    plugin: Plugin, seconds: float, allowed: tuple[str, ...] = (), secrets: Mapping[str, str] = MappingProxyType({})
) -> Iterator[_LocalBench]:
    """A server in a home of its own, and a folder that its steps see; nothing of either stays.

    If this process is killed, leases end its sandboxes, and the server stops itself after them.

    Webhooks are asked on their way, too; `allowed` are the servers that they may ask anyway. `secrets` are the plugin's
    params of that kind.

    Raises:
        DayflyError: no server could be started, or none on one machine runs such a plugin.
    """
    steps = (*plugin.spec.create, *plugin.spec.delete)
    if thing := next((step.name for step in steps if step.object), ""):
        raise DayflyError(Exit.USAGE, f'the step "{thing}" is an object of a cluster', "name one with --context NAME")
    with tempfile.TemporaryDirectory(prefix="dayfly-test-", ignore_cleanup_errors=True) as place:
        home = Home(Path(place) / "home")
        folder = Path(place) / "seen"
        folder.mkdir()
        journal = folder / "journal"
        journal.touch()
        with contextlib.ExitStack() as ways:
            led = {step.name: ways.enter_context(FaultProxy(step, _writer(journal))) for step in steps if step.webhook}
            asked = [word for name in (*allowed, *(way.name for way in led.values())) for word in (_ALLOW, name)]
            ways.enter_context(Sharing(home, 0))
            client = server_process.start(home, ["--port", "0", "--while-used", *asked])
            bench_ = _LocalBench(client, plugin, journal, seconds, led, secrets)
            try:
                with heeding(bench_):
                    yield bench_
            finally:
                client.close()
                if (pid := home.server_process()) is not None:
                    server_process.stop(home, pid, _STOP_S)


def _writer(journal: Path) -> Callable[[str], None]:
    def say(line: str) -> None:
        with journal.open("a") as file:
            file.write(f"{line}\n")

    return say


class _LocalBench:
    def __init__(
        self,
        client: ServerClient,
        plugin: Plugin,
        journal: Path,
        seconds: float,
        ways: Mapping[str, FaultProxy],
        secrets: Mapping[str, str],
    ) -> None:
        self._client = client
        self._secrets = secrets
        self._plugin = plugin
        self._journal = journal
        self._ways = ways
        self._seconds = seconds
        self._resource = plugin.name[: names.LIMITS["resource"]].rstrip("-")
        self.signals = Signals()
        self._there: dict[str, tuple[Life, Any]] = {}
        self._number = 0
        self._blind = ""
        self._took: dict[str, float] = {}

    def lives(self, params: Mapping[str, str]) -> Iterator[Life]:
        """The first is played before the others are made: they depend on how long its steps took."""
        yield first(self._plugin.spec, params, str(self._journal))
        urls = {name: way.url for name, way in self._ways.items()}
        yield from lives(self._plugin.spec, params, str(self._journal), self._took, urls)

    def begin(self, life: Life) -> Any:
        self._heed()
        self._number += 1
        for name, way in self._ways.items():
            way.expect(life.trouble if name == life.step else None)
        plugin = documents.export(self._plugin_of(life))
        given, kept = self._given(life), life.spec.secrets()
        params = {name: value for name, value in given.items() if name not in kept and name in life.params}
        resource = {"name": self._resource, "spec": plugin["spec"], "params": params}
        name = f"test-{self._number}"
        # It is made, looked at and deleted by then, even beside a twin.
        lease = {"seconds": min(int(6 * self._seconds) + 10 * _INVENTORY_S, _LONGEST_LEASE_S)}
        wish = {"name": name, "spec": {"cluster": CLUSTER, "forks": [], "resources": [resource]}, "lease": lease}
        if taken := {each: value for each, value in given.items() if each in kept}:
            wish["secrets"] = {self._resource: taken}
        box = self._client.put("sandboxes", name, body=wish)
        self._there[name] = life, box
        return box

    def _given(self, life: Life) -> dict[str, str]:
        """Return all values that a life gives; its own value of a secret replaces the one of `--secrets-file`."""
        return {**self._secrets, **life.params}

    def _plugin_of(self, life: Life) -> Plugin:
        import msgspec

        return msgspec.structs.replace(self._plugin, spec=life.spec)

    def until(self, life: Life, box: Any) -> Played:
        """How far it comes before it is to be deleted."""
        deadline = time.monotonic() + self._seconds
        report: Any = {}
        while time.monotonic() < deadline:
            self._heed()
            if life.ends is DeleteAt.WAITS and life.waits in self._lines():
                return Played(reached="")
            wait = None if life.ends is DeleteAt.WAITS or not report else 1
            report = self._client.get(
                "sandboxes", box["name"], "report", after=report.get("version") if wait else None, wait=wait
            )
            if report.get("ready"):
                return Played(reached="ready")
            if report["reason"] in FAILED:
                return Played(reached="failed", message=report["message"], log=self._log(box["name"], report))
            if life.ends is DeleteAt.WAITS:
                time.sleep(_LOOK_S)
        return Played(message=f"not within {self._seconds:g} s: {report.get('message', '')}")

    def end(self, life: Life, box: Any) -> tuple[str, tuple[str, ...]] | None:  # noqa: ARG002 # the bench's protocol
        """Delete a sandbox and wait; None once it is gone, else what holds it, which is given up then."""
        name = box["name"]
        report: Any = {}
        deadline = time.monotonic() + self._seconds
        try:
            self._client.delete("sandboxes", name)
            for way in self._ways.values():
                way.let_go()
            while not report or time.monotonic() < deadline:
                self._heed()
                report = self._client.get(
                    "sandboxes", name, "report", after=report.get("version"), wait=1 if report else None
                )
                if report["phase"] == "cleaned":
                    self._client.get("sandboxes", name)  # until it is gone by its name, too
                    time.sleep(_LOOK_S)
        except RefusedError as fault:
            if fault.code == Exit.NOT_FOUND:
                self._there.pop(name, None)
                return None
            raise
        held = f"not within {self._seconds:g} s: {report['reason']}: {report['message']}", self._log(name, report)
        self._client.delete("sandboxes", name, force="true")
        self._there.pop(name, None)
        return held

    def _heed(self) -> None:
        with self.signals.raising():
            pass

    def clear(self) -> None:
        """End what still lives: its server goes, and what steps have made would stay."""
        try:
            for life, box in [*self._there.values()]:
                if (held := self.end(life, box)) is not None:
                    show.print_message(f"dayfly: what {box['name']} has made may still be there: {held[0]}")
        except (Interrupted, DayflyError) as fault:
            show.print_message(f"dayfly: {fault}; what steps have made may still be there")

    def close(self, life: Life, played: Played) -> Played:  # noqa: ARG002 # the bench's protocol
        """How often steps began, by their own word."""
        lines = self._lines()
        self._took = {**took(lines), **self._took}
        begun = Counter(line.removesuffix(" begins") for line in lines if line.endswith(" begins"))
        blind, self._blind = self._blind, ""
        self._journal.write_text("")
        return played._replace(begun=begun, blind=blind)

    def _log(self, name: str, report: Any) -> tuple[str, ...]:
        """The end of what the step that failed has printed."""
        states = ("retrying", "failed")
        failed = next((unit for unit in report.get("units", ()) if unit["state"] in states), None)
        if failed is None:
            return ()
        waited = waiting.WaitedRun(self._client.json, name, is_patient=False)
        try:
            return tuple((run(waited.tail(failed["id"], failed["attempt"])) or ())[-_TAIL_LINES:])
        except RefusedError:
            return ()

    def _lines(self) -> list[str]:
        return self._journal.read_text(errors="replace").splitlines()

    def inventory(self, life: Life, box: Any) -> tuple[str, ...] | None:
        """What there is of a sandbox's resource; None if the plugin cannot tell."""
        if not self._plugin.spec.inventory:
            return None
        found: list[str] = []
        try:
            for step in self._plugin.spec.inventory:
                found += self._listed(step, life, box)
        except BlindError as fault:
            self._blind = str(fault)
            return None
        return tuple(found)

    def _listed(self, step: Step, life: Life, box: Any) -> list[str]:
        given = {name: rule.default for name, rule in self._plugin.spec.params().items() if rule.default is not None}
        given |= self._given(life)
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
                ended = run_group(script, {**os.environ, **built_in, **inputs}, _INVENTORY_S)
            except (OSError, subprocess.TimeoutExpired) as fault:
                raise BlindError(f"the inventory {step.name} cannot be run: {fault}") from None
        if ended.returncode:
            said = ended.stderr.strip().splitlines()[-1:] or ["it says nothing"]
            raise BlindError(f"the inventory {step.name} ends with exit code {ended.returncode}: {said[0]}")
        return [line for line in ended.stdout.splitlines() if line.strip()]

    def _uid(self, box: Any) -> str:
        if "uid" not in box:
            box["uid"] = self._client.get("sandboxes", box["name"], "report")["uid"]
        return str(box["uid"])
