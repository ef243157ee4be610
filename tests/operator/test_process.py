"""The process: hot standby, start and stop, health checks, and messages before the start."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace

import aiohttp
import pytest
from tests.kube.fake import FakeCluster, Fault, Harm
from tests.operator.rig.leader_election import cut_off, elected
from tests.operator.rig.memory import remembered
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, at_work, fork, forked, ready, wish
from tests.operator.rig.world import KINDS, RUNNER, Process, World, live
from tests.ports import free_port

from dayfly import __version__
from dayfly.cli.verbs import run
from dayfly.kube.client import KubeClient
from dayfly.kube.lease import Elector
from dayfly.kube.objects import Key, untyped_resource
from dayfly.operator import main
from dayfly.operator.main import Operator, ProcessIdentity, operate
from dayfly.operator.monitoring.health_server import serve_health
from dayfly.operator.monitoring.json_log import JsonLines
from dayfly.operator.monitoring.metrics import Metrics
from dayfly.operator.pods.namespaces import RunnerConfigMap
from dayfly.operator.sandboxes.extension import SandboxesExtension

SHORT = Scene(RETRY, RETRY_UNITS, forked)
NAMESPACES = untyped_resource("v1", "Namespace", "namespaces", namespaced=False)


def memories(process: Process, uid: str) -> list[str]:
    """Return what the operator's memories remember of a sandbox."""
    return [place for place in remembered(process.operator, uid) if ".memories." in place]


class TestLease:
    def test_standby_does_nothing_and_takes_over(self):
        """The Lease avoids duplicate work: the standby has current caches, and takes over when the leader dies."""

        async def story(world: World) -> None:
            electors = await elected(world)
            world.sandbox(wish())
            await world.until(lambda: world.cloud.starts("db/make"), "the first step")
            [leader] = [
                process for process, elector in zip(world.processes, electors, strict=True) if elector.is_leading
            ]
            working = {call.client for call in world.cluster.calls if call.write and "/leases" not in call.request.path}
            assert working == {leader.name}
            world.processes.remove(leader)
            await leader.end()
            await world.until(lambda: ready(world), "ready", 60)
            world.delete()
            await world.until(lambda: not world.leftovers(), "everything to go")

        at_work(story, count=2)

    def test_new_leader_writes_the_status_again(self):
        """Another operator was the leader in the meantime, and its last status is outdated."""

        async def story(world: World) -> None:
            world.forks.baseline()
            electors = await elected(world)
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: ready(world), "ready", 60)
            [first] = [number for number, elector in enumerate(electors) if elector.is_leading]
            other = world.processes[1 - first]
            cut_off(world, world.processes[first])
            await world.until(lambda: electors[1 - first].is_leading, "the other one to lead", 60)
            world.forks.slow(10)
            for pod in world.forks.all("pods"):
                world.ask("DELETE", f"/api/v1/namespaces/shop/pods/{pod['metadata']['name']}")
            await world.until(lambda: not ready(world), "the other one to say so", 60)
            world.processes.remove(other)
            await other.end()
            await world.rest(60)
            assert not ready(world)
            world.hook = lambda _number, _call: None
            await world.until(lambda: ready(world), "the first one to say what is so now", 60)

        at_work(story, SHORT, count=2)

    def test_new_leader_forgets_runs_that_another_ended(self):
        async def story(world: World) -> None:
            electors = await elected(world)
            world.kubelet.scripts["db/make"].runs = 60
            uid = world.sandbox(wish())
            await world.until(lambda: world.cloud.starts("db/make"), "the first step", 60)
            [first] = [number for number, elector in enumerate(electors) if elector.is_leading]
            process, other = world.processes[first], world.processes[1 - first]
            cut_off(world, process)
            await world.until(lambda: electors[1 - first].is_leading, "the other one to lead", 60)
            world.delete()
            await world.until(lambda: not world.leftovers(), "the end of it all", 600)
            assert not memories(process, uid)
            world.processes.remove(other)
            await other.end()
            world.hook = lambda _number, _call: None
            await world.until(lambda: electors[first].is_leading, "the first one to lead", 60)
            await world.rest(60)
            assert not memories(process, uid)

        at_work(story, SHORT, count=2)

    def test_graceful_end_releases_the_lease_at_once(self):
        async def story(world: World) -> None:
            [process] = world.processes
            await process.end()
            world.processes.clear()
            client = KubeClient(world.cluster.transport("one"), seed=1)
            elector = Elector(client, "dayfly-operator", "dayfly-runners", "one", seed=1)
            operator = Operator(client, runner=RUNNER, front=SandboxesExtension, elector=elector, now=world.now, seed=1)
            task = asyncio.create_task(operator.run())
            await elector.wait_leading()
            world.sandbox(wish())
            await world.until(lambda: world.cloud.starts("db/make"), "the first step")
            before = world.cluster.time()
            operator.stop()
            await task
            assert world.cluster.time() - before < 5
            [lease] = world.cluster.objects("leases")
            assert not lease["spec"].get("holderIdentity")

        at_work(story)


class TestProcess:
    async def test_process_serves_until_stopped(self, caplog):
        """The process is alive at once, ready when the caches are complete, and stops quickly on request."""
        caplog.set_level(logging.INFO, "dayfly.operator")
        cluster = FakeCluster(extra=KINDS)
        namespace = {"metadata": {"name": "dayfly-system"}}
        await KubeClient(cluster.transport("admin")).create(NAMESPACES, namespace)
        stop, port = asyncio.Event(), free_port()
        place = ProcessIdentity("one", "dayfly-system", port)
        client = KubeClient(cluster.transport("operator"), seed=1)
        process = asyncio.create_task(operate(client, RunnerConfigMap.from_program(b"program"), place, stop))
        async with aiohttp.ClientSession() as session:
            status = 0
            while status != 200:
                assert not process.done()
                try:
                    async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                        status = answer.status
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.02)
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == 200
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert "dayfly_queue_depth" in await answer.text()
        first = json.loads(JsonLines().format(caplog.records[0]))
        assert (first["event"], first["version"], first["identity"]) == ("begun", __version__, "one")
        assert {"pods", "runs", "sandboxes"} < set(first["watches"].split(", "))
        stop.set()
        async with asyncio.timeout(5):
            await process

    @staticmethod
    async def begun(monkeypatch, run, port: int = 0) -> asyncio.Task[None]:
        """Start a process whose operator only calls `run`."""
        began = asyncio.Event()

        async def running(_operator: Operator) -> None:
            began.set()
            await run()

        monkeypatch.setattr(Operator, "run", running)
        client = KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1)
        place = ProcessIdentity("one", "dayfly-system", port or free_port(), lease_s=0)
        process = asyncio.create_task(operate(client, RunnerConfigMap.from_program(b"program"), place, asyncio.Event()))
        await began.wait()
        return process

    async def test_cancelled_process_ends_the_operator_first(self, monkeypatch):
        """No task is left when the process reports its end."""
        ended = asyncio.Event()

        async def run() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.set()

        process = await self.begun(monkeypatch, run)
        process.cancel()
        async with asyncio.timeout(10):
            await asyncio.gather(process, return_exceptions=True)
        assert ended.is_set()

    async def test_process_is_alive_but_not_ready_before_its_lists(self, monkeypatch):
        port = free_port()
        process = await self.begun(monkeypatch, asyncio.Event().wait, port)
        async with aiohttp.ClientSession() as session:
            for path, status in (("healthz", 200), ("readyz", 503)):
                async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                    assert answer.status == status
        process.cancel()
        await asyncio.gather(process, return_exceptions=True)

    @pytest.mark.parametrize("pod", ["", "dayfly-0"])
    async def test_in_a_pod_it_asks_that_one_for_its_own_image(self, monkeypatch, pod):
        asked: list[tuple[str, str] | None] = []

        async def run(_operator: Operator) -> None:
            """Do nothing."""

        monkeypatch.setattr(Operator, "run", run)
        monkeypatch.setattr(main, "FallbackImage", lambda _client, _image="", own=None: asked.append(own))
        client = KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1)
        place = ProcessIdentity("one", "dayfly-system", free_port(), lease_s=0, pod=pod)
        await operate(client, RunnerConfigMap.from_program(b"program"), place, asyncio.Event())
        assert asked[0] == (("dayfly-system", "dayfly-0") if pod else None)

    @pytest.mark.parametrize(("seconds", "elects"), [(0, False), (5, True)])
    async def test_leader_election_runs_only_with_a_lease(self, monkeypatch, seconds, elects):
        made: list[str] = []

        async def run(_operator: Operator) -> None:
            """Do nothing."""

        def elector(_client: KubeClient, name: str, *_: object) -> None:
            made.append(name)

        monkeypatch.setattr(Operator, "run", run)
        monkeypatch.setattr(main, "Elector", elector)
        client = KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1)
        place = ProcessIdentity("one", "dayfly-system", free_port(), lease_s=seconds)
        await operate(client, RunnerConfigMap.from_program(b"program"), place, asyncio.Event())
        assert made == ["dayfly-operator"] * elects

    async def test_operator_without_front_queues_no_sandboxes(self):
        """Their results do not accumulate either."""
        client = KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1)
        for front in (None, SandboxesExtension):
            cluster = Operator(client, runner=RUNNER, front=front).cluster
            for queue, key in ((cluster.sandbox_queue, Key("shop", "box")), (cluster.published, "pg")):
                queue.add(key)
                assert len(queue) == (1 if front else 0)

    async def test_frozen_counts_of_all_controllers_are_added(self):
        client = KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1)
        operator = Operator(
            client,
            runner=RUNNER,
            hooks=lambda *_: SimpleNamespace(frozen_count=2),
            groups=lambda *_: SimpleNamespace(frozen_count=4),
        )
        assert b"dayfly_frozen 6.0" in operator.metrics.render()

    async def test_operator_crash_ends_the_process(self, monkeypatch):
        """The kubelet starts another process."""

        async def run() -> None:
            raise ValueError("a defect")

        process = await self.begun(monkeypatch, run)
        async with asyncio.timeout(10):
            with pytest.raises(ValueError, match="a defect"):
                await process

    def test_process_stops_before_its_server_has_answered(self):
        """A rollout does not wait for an operator whose first lists never complete."""

        async def story(world: World) -> None:
            world.hook = lambda _number, _call: Fault(Harm.UNREACHABLE)
            world.start()
            process = world.processes.pop()
            await world.rest(60)
            process.operator.stop()
            ended, _ = await asyncio.wait([process.task], timeout=5)
            assert ended
            process.task.result()

        live(SHORT.world, story)

    async def test_silence_is_unhealthy(self):
        """An operator without answers of the API server for minutes reports it, and the kubelet restarts it."""
        cluster = FakeCluster(extra=KINDS)
        operator = Operator(KubeClient(cluster.transport("operator"), seed=1), runner=RUNNER, front=SandboxesExtension)
        figures = Metrics(operator.cluster)
        port = free_port()
        async with (
            serve_health(port, age=lambda: 181.0, started=lambda: 900.0, metrics=figures),
            aiohttp.ClientSession() as session,
        ):
            for path in ("healthz", "readyz"):
                async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                    assert answer.status == 503


class TestCommand:
    @pytest.mark.parametrize(
        ("arguments", "environment", "seconds"),
        [
            ([], {}, 15),
            (["--lease-seconds", "5"], {}, 5),
            ([], {"DAYFLY_LEASE_SECONDS": "5"}, 5),
            (["--no-lease"], {}, 0),
        ],
    )
    def test_how_long_a_lease_lasts(self, arguments, environment, seconds, monkeypatch):
        async def operate(_context: str, _runner: RunnerConfigMap, place: ProcessIdentity, *_others: object) -> None:
            told.append(place.lease_s)

        told: list[int] = []
        monkeypatch.setattr("dayfly.cli.commands.operator._operate", operate)
        monkeypatch.setattr("dayfly.operator.monitoring.json_log.to_stderr", lambda _level: None)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert run(["operator", "--runner", "/bin/true", *arguments]) == 0
        assert told == [seconds]

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            ([], 2, "no runner program is named"),
            (["--runner", "/nonexistent"], 2, "cannot read the runner program /nonexistent"),
            (["--runner", "/bin/true"], 1, "cannot reach a cluster"),
        ],
    )
    def test_missing_configuration_is_reported_before_start(self, arguments, code, said, capsys, monkeypatch):
        monkeypatch.delenv("DAYFLY_RUNNER", raising=False)
        monkeypatch.setenv("KUBECONFIG", "/nonexistent")
        assert run(["operator", *arguments]) == code
        assert said in capsys.readouterr().err
