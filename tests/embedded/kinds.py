"""A test bench for the executors of the embedded host over one run; the test sets facts and ports."""

from __future__ import annotations

from types import SimpleNamespace

from tests.embedded import documents as doc

from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.executors import ProcessForkExecutor, ProcessStepExecutor, ProcessWebhookExecutor
from dayfly.embedded.forks import BaselineProcesses
from dayfly.embedded.ledger import StoredRun
from dayfly.embedded.runs import LiveRun
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.run import AttemptFolder
from dayfly.plan.sealed import seal
from dayfly.plan.world import TargetIntent
from dayfly.spec.frames import decode
from dayfly.spec.resource_token import HostIdentity
from dayfly.spec.run import Run

KEY = UnitAttempt("u", "r/a", 1)


class Attempts:
    """Records calls; the test sets the facts."""

    def __init__(self, place: AttemptStorage) -> None:
        self.place = place
        self.done: list[tuple] = []
        self.slot_holders: set[UnitAttempt] = set()
        self.begun: list[UnitAttempt] = []
        self.outputs: dict[UnitAttempt, dict[str, bytes]] = {}
        self.now: dict[tuple[str, int], object] = {}

    def __getattr__(self, name):
        return lambda *given: self.done.append((name, *given))

    def folder(self, key):
        return AttemptFolder(self.place, *key)

    def create_step_folder(self, key):
        self.begun.append(key)
        return f"/begins/{key.unit}"

    def facts(self, uid):
        return self.now if uid == "u" else {}

    async def launch(self, *given):
        self.done.append(("launch", *given))


class Bench:
    """The three executors over one run."""

    def __init__(self, tmp_path) -> None:
        (tmp_path / "work").mkdir(mode=0o700)
        place = AttemptStorage(
            str(tmp_path / "work"), str(tmp_path / "logs"), "boot", "boot 1", str(tmp_path / "steps")
        )
        self.attempts = Attempts(place)
        self.asked: list[str] = []
        self.starter = SimpleNamespace(isolates_paths=True, is_slow=False, isolation="root", fork_isolation="user")
        self.runs = SimpleNamespace(
            peek=lambda uid: self.live if uid == "u" else None, refresh=None, fork_values=lambda _live, _answers: None
        )
        self.baselines = BaselineProcesses()
        self.ports = SimpleNamespace(find=self._port, renew=self._port, assign=self._port, forget=self.asked.append)
        self.port = 7
        self.secrets: dict[tuple[str, str], bytes] = {}
        records = SimpleNamespace(identity=lambda: HostIdentity("host", b"key"))
        self.reader = SimpleNamespace(value=self._value, secrets=self._secrets, records=records)
        common = self.reader, self.attempts, self.starter
        variables = {"SECRET": "s", "DNS_KEY": "s"}
        self.steps = ProcessStepExecutor(*common, runs=self.runs, environment=variables, has_images=False)
        self.hooks = ProcessWebhookExecutor(*common, runs=self.runs, environment=variables, allowed=frozenset())
        self.forks = ProcessForkExecutor(*common, runs=self.runs, baselines=self.baselines, ports=self.ports)
        self.live = self.of(doc.resource("r", [doc.step("a")]))

    def _value(self, uid, *output):
        self.asked.append(uid)
        return b"db://1" if output == ("r/make", "url") else None

    def _secrets(self, uid):
        self.asked.append(f"secrets of {uid}")
        return self.secrets

    def _port(self, _run, _fork):
        return self.port

    def of(self, *documents, wished=(), **units) -> LiveRun:
        """Create a run with these documents and records, and make it the current one."""
        plan = seal(documents, tuple(wished))
        records = {name.replace("__", "/"): record for name, record in units.items()}
        run = Run(uid="u", target=doc.TARGET, plan="", units=records)
        self.live = LiveRun(
            StoredRun(run=run, name="n", documents=documents, forks=tuple(wished), intent=TargetIntent()), plan
        )
        return self.live

    def records(self, order: bytes) -> dict[str, bytes]:
        """Return the last value of each key of an order."""
        return dict(decode("dayfly-order", order))

    def variables(self, order: bytes) -> dict[str, str]:
        every = (value.decode().partition("=") for key, value in decode("dayfly-order", order) if key == "env")
        return {name: value for name, _, value in every}
