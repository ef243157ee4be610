"""The rules of forks on this machine: refusals, objections, work orders, and readiness."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.embedded import documents as doc
from tests.embedded.kinds import Bench
from tests.embedded.machine import until

from dayfly.embedded import attempt_executor, forks
from dayfly.embedded.attempts import UnitAttempt
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.actions import Fence
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Running
from dayfly.spec.run import OutputRecord, Result, State, UnitRecord
from dayfly.spec.workload import Workload

NOW = 1_000
FORK = "fork:default/app"


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(attempt_executor, "now_ms", lambda: NOW)
    return Bench(tmp_path)


class TestForks:
    def order(self, bench, unit=None, port=8080):
        unit = unit or doc.fork()
        bench.of(wished=[unit])
        bench.baselines.put(Workload(name="app", command=("/bin/app",), port=port, env={}))
        return bench.forks.order(bench.live, UnitAttempt("u", FORK, 1), unit)

    @pytest.mark.parametrize(("port", "told"), [(8080, "7"), (0, None)])
    def test_fork_receives_the_port_of_its_baseline(self, bench, port, told):
        order = self.order(bench, port=port)
        assert bench.variables(order).get("PORT") == told
        records = bench.records(order)
        assert records["isolation"] == b"user"
        assert "cwd" not in records
        assert bench.attempts.begun == [], "it starts in the directory of its baseline"
        assert not bench.attempts.folder(UnitAttempt("u", FORK, 1)).log_size()

    def test_fork_has_baseline_environment_with_ordered_changes(self, bench):
        changes = [
            doc.set_env("A", "1"),
            doc.set_env("A", delete=True),
            doc.set_env("B", delete=True),
            doc.set_env("B", "2"),
            doc.set_env("NONE", delete=True),
        ]
        unit = doc.fork(env=changes, grace_ms=77)
        workload = Workload(name="app", command=("/bin/app", "-v"), workdir="/srv", env={"A": "0", "B": "0", "C": "0"})
        bench.of(wished=[unit])
        bench.baselines.put(workload)
        order = bench.forks.order(bench.live, UnitAttempt("u", FORK, 1), unit)
        variables = bench.variables(order)
        assert {name: variables.get(name) for name in "ABC"} == {"A": None, "B": "2", "C": "0"}
        assert (bench.records(order)["cwd"], bench.records(order)["grace-ms"]) == (b"/srv", b"77")

    def test_fork_without_baseline_is_not_started(self, bench):
        bench.of(doc.resource("r", [doc.step("a")]), wished=[doc.fork()])
        with pytest.raises(CannotRenderError, match="its baseline app is not declared"):
            bench.forks.order(bench.live, UnitAttempt("u", FORK, 1), doc.fork())
        objection = bench.forks.observations(bench.live).objections[FORK]
        assert objection.reason == Reason.BASELINE_MISSING
        assert objection.message == "its baseline default/app is not declared; apply a file of kind Deployment"
        bench.baselines.put(Workload(name="app", command=("/bin/app",)))
        assert bench.forks.observations(bench.live).objections == {}

    def test_fork_reading_an_address_without_port_is_objected_to(self, bench):
        source = {"fork": {"forkOf": {"kind": "Deployment", "namespace": "default", "name": "api"}, "expression": "x"}}
        asks = doc.fork(env=[doc.set_env("API", source=source)])
        for name in ("app", "api"):
            bench.baselines.put(Workload(name=name, command=("/bin/app",)))
        bench.of(wished=[asks, doc.fork("api")])
        assert {name: each.reason for name, each in bench.forks.objections(bench.live).items()} == {
            FORK: Reason.FORK_WITHOUT_PORT
        }

    def test_fork_reading_an_address_without_port_is_not_started(self, bench):
        source = {"fork": {"forkOf": {"kind": "Deployment", "namespace": "default", "name": "api"}, "expression": "x"}}
        with pytest.raises(CannotRenderError, match="has no port for its fork to listen on"):
            self.order(bench, doc.fork(env=[doc.set_env("API", source=source)]))

    def test_fork_reading_a_value_no_variable_can_hold_is_refused(self, bench):
        told = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1, text=False)}
        made = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=told)
        reads = doc.fork(inputs=["url=r:make.url"], env=[doc.set_env("URL", input="url")])
        bench.baselines.put(Workload(name="app", command=("/bin/app",)))
        bench.of(doc.resource("r", [doc.step("make", outputs=[("url", "/u")])]), wished=[reads], r__make=made)
        assert [each.reason for each in bench.forks.objections(bench.live).values()] == [Reason.INPUT_NOT_TEXT]
        with pytest.raises(CannotRenderError):
            bench.forks.order(bench.live, UnitAttempt("u", FORK, 1), reads)

    @pytest.mark.parametrize(("before", "told"), [(0, []), (7, []), (8, ["u"])])
    def test_forks_that_know_another_port_are_started_again(self, bench, before, told):
        refreshed = []
        bench.baselines.put(Workload(name="app", command=("/bin/app",), port=80))
        bench.runs.refresh, bench.ports.find = refreshed.append, lambda *_: before
        bench.forks.order(bench.of(wished=[doc.fork()]), UnitAttempt("u", FORK, 1), doc.fork())
        assert refreshed == told
        assert bench.attempts.done == [("on_change", uid) for uid in told]

    async def test_ports_are_removed_with_their_run(self, bench):
        await bench.forks.clear(bench.live)
        assert bench.asked == ["u"]
        assert bench.attempts.done == [("drop", "u")]


class TestProbing:
    """A fork is ready once its port accepts connections; without a port, once it runs."""

    KEY = UnitAttempt("u", FORK, 1)

    def running(self, bench, monkeypatch, answers: bool = True) -> list[int]:
        """Start a fork; return the ports that are probed."""
        asked: list[int] = []

        async def answered(port, is_there):
            assert is_there()
            asked.append(port)
            return answers

        monkeypatch.setattr(forks, "wait_answering", answered)
        bench.of(wished=[doc.fork()], **{FORK: UnitRecord(attempt=1, state=State.CLAIMED, generation="g")})
        bench.attempts.now[FORK, 1] = Running(since=3, ready=False)
        return asked

    @staticmethod
    async def asked_all():
        """Wait until no probe is running."""
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    @pytest.mark.parametrize(("port", "answers", "ready"), [(7, True, 1), (7, False, 0), (0, False, 1)])
    async def test_fork_is_ready_once_its_port_answers(self, bench, monkeypatch, port, answers, ready):
        asked = self.running(bench, monkeypatch, answers)
        bench.port = port
        bench.forks.adopt(bench.live, FORK)
        bench.forks.adopt(bench.live, FORK)
        await self.asked_all()
        told = [each for each in bench.attempts.done if each[0] == "set_fact"]
        assert told == [("set_fact", self.KEY, Running(since=3, ready=True))] * ready
        assert asked == ([port] if port else []), "by one probe"

    async def test_unfenced_running_fork_is_probed(self, bench, monkeypatch):
        """The server was killed before the fork's marker was set."""
        asked = self.running(bench, monkeypatch)
        [(key, begun)] = bench.attempts.now.items()
        bench.attempts.now.clear()
        bench.attempts.fence = lambda *_: bench.attempts.now.update({key: begun})
        await bench.forks.fence(bench.live, Fence(unit=FORK, attempt=1, reason="", message=""))
        await self.asked_all()
        assert (asked, bench.attempts.done) == ([7], [("set_fact", self.KEY, Running(since=3, ready=True))])

    async def test_fork_that_ended_during_the_probe_is_not_ready(self, bench, monkeypatch):
        self.running(bench, monkeypatch)

        async def answered(_port, is_there):
            bench.attempts.now[FORK, 1] = Ended(result=Result(outcome="failed"))
            assert not is_there()
            return True

        monkeypatch.setattr(forks, "wait_answering", answered)
        bench.forks.adopt(bench.live, FORK)
        await self.asked_all()
        assert [word for word, *_ in bench.attempts.done] == ["adopt"]

    async def test_closing_the_kind_ends_its_probes(self, bench, monkeypatch):
        self.running(bench, monkeypatch)
        ended = asyncio.Event()

        async def answered(_port, _is_there):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.set()

        monkeypatch.setattr(forks, "wait_answering", answered)
        bench.forks.adopt(bench.live, FORK)
        await asyncio.sleep(0)
        await bench.forks.close()
        assert ended.is_set()


class TestAnswering:
    @pytest.fixture
    def pauses(self, monkeypatch):
        """Record the pauses between probes instead of sleeping."""
        found: list[float] = []
        monkeypatch.setattr(forks.asyncio, "sleep", self._noted(found))
        monkeypatch.setattr(forks, "time", SimpleNamespace(monotonic=lambda: sum(found)))
        return found

    @staticmethod
    def _noted(found: list[float]):
        async def sleep(seconds: float) -> None:
            found.append(seconds)

        return sleep

    @staticmethod
    def listening(monkeypatch, after: int) -> list[int]:
        """Accept a connection after a number of probes; return the probed ports."""
        asked: list[int] = []

        async def connect(host, port):
            assert host == "127.0.0.1"
            asked.append(port)
            if len(asked) <= after:
                raise ConnectionRefusedError
            return None, SimpleNamespace(close=lambda: asked.append(0))

        monkeypatch.setattr(forks.asyncio, "open_connection", connect)
        return asked

    async def test_probing_stops_once_the_process_is_gone(self, monkeypatch, pauses):
        asked = self.listening(monkeypatch, after=99)
        there = iter((True, True, False))
        assert not await forks.wait_answering(7, lambda: next(there))
        assert (len(asked), len(pauses)) == (2, 2)
