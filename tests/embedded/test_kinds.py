"""What this machine can run, each kind alone: what it refuses and objects to, what its orders say, what it probes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dayfly.embedded import executors as kinds
from dayfly.embedded import forks
from dayfly.embedded.attempts import Key
from dayfly.embedded.executors import ForkExecutor, StepExecutor, WebhookExecutor
from dayfly.embedded.forks import Baselines
from dayfly.execute.executor import Known
from dayfly.execute.order import CannotRenderError
from dayfly.execute.process.place import Place
from dayfly.execute.process.run import Folder
from dayfly.plan.actions import Cancel, Fence, Launch, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, NeverRan, Running
from dayfly.spec.frames import decode
from dayfly.spec.lifecycle import Baseline, Unit, Webhook
from dayfly.spec.run import OutputRecord, Result, Run, State, UnitRecord
from dayfly.spec.wire import RefusedError
from dayfly.spec.workload import Workload
from embedded import documents as doc
from embedded.machine import until

NOW = 1_000
FORK = "fork:default/app"
KEY = Key("u", "r/a", 1)
TOLD = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1)}
MADE = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=TOLD)
ALIVE = UnitRecord(attempt=1, state=State.CLAIMED)


class Attempts:
    """Notes what becomes of attempts; facts are the test's."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.done: list[tuple] = []
        self.busy: set[Key] = set()
        self.values: dict[Key, dict[str, bytes]] = {}
        self.now: dict[tuple[str, int], object] = {}

    def __getattr__(self, name):
        return lambda *given: self.done.append((name, *given))

    def at(self, key):
        return Folder(self.place, *key)

    def begin(self, key):
        return f"/begins/{key.unit}"

    def facts(self, uid):
        return self.now if uid == "u" else {}

    async def launch(self, *given):
        self.done.append(("launch", *given))


class Bench:
    """The three kinds over one run."""

    def __init__(self, tmp_path) -> None:
        (tmp_path / "work").mkdir(mode=0o700)
        place = Place(str(tmp_path / "work"), str(tmp_path / "logs"), "boot", "boot 1", str(tmp_path / "steps"))
        self.attempts = Attempts(place)
        self.asked: list[str] = []
        self.starter = SimpleNamespace(apart=True, slow=False, isolation="root", fork_isolation="user")
        self.runs = SimpleNamespace(look=lambda uid: self.live if uid == "u" else None, refresh=None)
        self.baselines = Baselines()
        self.ports = SimpleNamespace(known=self._port, renew=self._port, of=self._port, forget=self.asked.append)
        self.port = 7
        reader = SimpleNamespace(values=self._values)
        common = reader, self.attempts, self.starter
        variables = {"SECRET": "s"}
        self.steps = StepExecutor(*common, runs=self.runs, environment=variables, has_images=False)
        self.hooks = WebhookExecutor(*common, environment=variables, allowed=frozenset())
        self.forks = ForkExecutor(*common, runs=self.runs, baselines=self.baselines, ports=self.ports)
        self.live = self.of(doc.resource("r", [doc.step("a")]))

    def _values(self, uid):
        self.asked.append(uid)
        return {("r/make", "url"): b"db://1"}

    def _port(self, _run, _fork):
        return self.port

    def of(self, *documents, wished=(), **units) -> SimpleNamespace:
        """A run with these documents and records, from now on the one there is."""
        plan = seal(documents, tuple(wished))
        records = {name.replace("__", "/"): record for name, record in units.items()}
        run = Run(uid="u", target=doc.TARGET, plan="", units=records)
        unit = lambda name: plan.unit(name) or Unit(name=name, kind=run.kind(name))  # noqa: E731 - a run's method
        self.live = SimpleNamespace(run=run, plan=plan, unit=unit, kind=lambda name: unit(name).kind)
        return self.live

    def records(self, order: bytes) -> dict[str, bytes]:
        """The last of each key of an order."""
        return dict(decode("dayfly-order", order))

    def variables(self, order: bytes) -> dict[str, str]:
        every = (value.decode().partition("=") for key, value in decode("dayfly-order", order) if key == "env")
        return {name: value for name, _, value in every}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "now_ms", lambda: NOW)
    return Bench(tmp_path)


class TestKnown:
    def test_each_kind_tells_of_its_own_and_of_the_values_that_are_there(self, bench):
        bench.of(doc.resource("r", [doc.step("a"), doc.step("b")]), wished=[doc.fork()])
        end = Ended(result=Result(outcome="succeeded"))
        bench.attempts.now = {("r/a", 1): end, ("r/b", 1): end, (FORK, 1): Running(since=1)}
        bench.attempts.values = {KEY: {"url": b"1"}, Key("v", "r/b", 1): {"url": b"2"}}
        known = bench.steps.known(bench.live)
        assert known == Known(
            facts={("r/a", 1): end, ("r/b", 1): end}, objections={}, outputs={("r/a", 1): {"url": b"1"}}
        )
        assert list(bench.forks.known(bench.live).facts) == [(FORK, 1)]


class TestLaunching:
    @pytest.mark.parametrize(
        ("fault", "reason"),
        [(CannotRenderError(Reason.INPUT_UNFIT, "m"), Reason.INPUT_UNFIT), (OSError("m"), Reason.CANNOT_START)],
    )
    async def test_what_cannot_be_ordered_never_ran_and_has_no_place(self, bench, monkeypatch, fault, reason):
        def order(*_):
            raise fault

        monkeypatch.setattr(bench.steps, "order", order)
        bench.attempts.busy |= {KEY, KEY._replace(unit="r/b")}
        await bench.steps.launch(bench.live, Launch(unit="r/a", attempt=1))
        assert bench.attempts.busy == {KEY._replace(unit="r/b")}
        assert bench.attempts.done == [("tell", KEY, NeverRan(reason=reason, message="m"))]

    async def test_what_can_is_begun_with_its_order(self, bench):
        live = bench.of(doc.resource("r", [doc.step("a")]), r__a=ALIVE)
        await bench.steps.launch(live, Launch(unit="r/a", attempt=1))
        [(word, key, unit, record, order)] = bench.attempts.done
        assert (word, key, unit, record) == ("launch", KEY, live.unit("r/a"), ALIVE)
        assert bench.records(order)["attempt"] == b"1"

    async def test_what_is_asked_of_an_attempt_is_asked_of_that_one(self, bench):
        live, of = bench.of(doc.resource("r", [doc.step("a")]), r__a=ALIVE), {"unit": "r/a", "attempt": 1}
        await bench.steps.fence(live, Fence(**of, reason="why", message="in words"))
        await bench.steps.cancel(live, Cancel(**of, reason="r", message="m"))
        await bench.steps.release(live, Release(**of))
        await bench.steps.clear(live)
        assert bench.attempts.done == [
            ("fence", KEY, live.unit("r/a"), ALIVE, "why", "in words"),
            ("cancel", KEY),
            ("release", KEY),
            ("drop", "u"),
        ]


class TestOrders:
    READS = doc.step("a", inputs=["url=make.url"], schedule_ms=20, pull_ms=3)
    MAKE = doc.step("make", outputs=[("url", "/u")])

    def test_it_says_where_and_until_when_it_may_begin_and_with_what(self, bench):
        live = bench.of(doc.resource("r", [self.MAKE, self.READS]), r__make=MADE)
        order = bench.steps.order(live, KEY, self.READS)
        records = bench.records(order)
        assert (records["isolation"], records["cwd"]) == (b"root", b"/begins/r/a")
        assert records["start-before-ms"] == b"%d" % (NOW + 23)
        assert records["log"] == bench.attempts.at(KEY).log.encode()
        assert "private" in records
        assert bench.variables(order)["URL"] == "db://1"
        assert bench.variables(order)["DAYFLY_OUTPUTS_COMPLETE"] == "false"
        assert bench.asked == ["u"]

    def test_without_namespaces_nothing_is_private(self, bench):
        bench.starter.isolation = "none"
        assert "private" not in bench.records(bench.steps.order(bench.live, KEY, doc.step("a")))

    def test_what_reads_nothing_that_is_told_asks_for_no_values(self, bench):
        unit = doc.step("a", inputs=[doc.constant("mode", "x")])
        live = bench.of(doc.resource("r", [unit]))
        assert bench.variables(bench.steps.order(live, KEY, unit))["MODE"] == "x"
        assert bench.asked == []

    def test_a_delete_step_is_given_nothing_for_what_no_variable_can_hold_and_its_log_says_so(self, bench):
        told = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1, text=False)}
        made = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=told)
        drop = doc.step("a", inputs=["url=make.url"])
        live = bench.of(doc.resource("r", [self.MAKE], [drop]), r__make=made)
        order = bench.steps.order(live, KEY, drop)
        assert bench.variables(order)["URL"] == ""
        assert bench.variables(order)["DAYFLY_OUTPUTS_COMPLETE"] == "true"
        said = bench.attempts.at(KEY).read_log(0, 1000)
        assert b"input url contains a zero byte" in said
        assert b"; it is passed as absent]" in said

    def test_a_create_step_is_refused_that(self, bench):
        told = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1, text=False)}
        made = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=told)
        live = bench.of(doc.resource("r", [self.MAKE, self.READS]), r__make=made)
        with pytest.raises(CannotRenderError):
            bench.steps.order(live, KEY, self.READS)

    def test_a_webhook_is_sent_by_a_process_of_ours_whatever_scripts_run_in(self, bench):
        request = {"method": "POST", "url": "https://dns.example/"}
        unit = Unit(name="a", kind="webhook", webhook=Webhook(request=request))
        records = bench.records(bench.hooks.order(bench.of(doc.resource("r", [unit])), KEY, unit))
        assert records["isolation"] == b"user"


class TestSteps:
    def test_in_containers_each_step_names_its_image(self, bench):
        inside = StepExecutor(None, bench.attempts, bench.starter, runs=bench.runs, environment={}, has_images=True)
        inside.admit("r/a", doc.step("a", image="busybox:1"))
        with pytest.raises(RefusedError, match=r"r/a: steps run in containers here, and it names no image"):
            inside.admit("r/a", doc.step("a"))
        bench.steps.admit("r/a", doc.step("a"))

    @pytest.mark.parametrize(
        ("entry", "fits"),
        [
            ({"name": "SECRET", "valueFrom": {}}, True),
            ({"name": "OTHER", "valueFrom": {}}, False),
            ({"name": "OTHER", "value": "x"}, True),
        ],
    )
    def test_what_a_template_takes_from_a_cluster_is_to_be_in_the_environment(self, bench, entry, fits):
        unit = doc.step("a", template={"spec": {"containers": [{"name": "main", "env": [entry]}]}})
        if fits:
            bench.steps.admit("r/a", unit)
        else:
            with pytest.raises(RefusedError, match="takes OTHER from a cluster"):
                bench.steps.admit("r/a", unit)

    SHARED = doc.step("a", outputs=[("x", "/srv/x"), ("y", "/srv/y")])

    def objections(self, bench, *busy: Key):
        other = doc.step("b", outputs=[("y", "/srv/y")])
        bench.of(doc.resource("r", [self.SHARED, other, doc.step("c", outputs=[("z", "/srv/z")])]))
        bench.attempts.busy |= set(busy)
        return {name: (each.reason, each.message) for name, each in bench.steps.objections(bench.live).items()}

    def test_who_shares_a_path_with_one_that_runs_waits_and_nobody_else(self, bench):
        bench.starter.apart = False
        [(name, (reason, message))] = self.objections(bench, KEY).items()
        assert (name, reason) == ("r/b", Reason.PATH_BUSY)
        assert message.startswith("uses /srv/y as the running r/a does, and this machine cannot keep them apart")

    def test_also_with_one_of_another_run(self, bench):
        bench.starter.apart = False
        other = SimpleNamespace(unit=lambda _name: self.SHARED)
        look = bench.runs.look
        bench.runs.look = lambda uid: other if uid == "v" else look(uid)
        assert set(self.objections(bench, Key("v", "r/a", 1))) == {"r/a", "r/b"}

    def test_one_of_a_run_that_is_gone_shares_nothing(self, bench):
        bench.starter.apart = False
        assert self.objections(bench, Key("gone", "r/a", 1)) == {}

    def test_where_each_has_its_own_they_share_nothing(self, bench):
        assert self.objections(bench, KEY) == {}


def test_a_header_takes_its_secret_from_the_environment(bench):
    def hook(name):
        header = {"$secret": {"name": name, "key": "key"}}
        return Unit(name="a", kind="webhook", webhook=Webhook(request={"headers": {"Authorization": header}}))

    bench.hooks._environment = {"DNS_KEY": "s"}
    bench.hooks.admit("r/a", hook("dns"))
    with pytest.raises(RefusedError, match="set OTHER_KEY in the environment"):
        bench.hooks.admit("r/a", hook("other"))


class TestForks:
    def test_only_process_workloads_have_forks_here(self, bench):
        bench.forks.admit(FORK, doc.fork(env=[doc.set_env("A", "b")]))
        unit = doc.fork()
        of = Baseline(kind="StatefulSet", namespace="default", name="app")
        with pytest.raises(RefusedError, match="declared as kind Deployment, not StatefulSet"):
            bench.forks.admit(FORK, Unit(name="app", kind="fork", fork=type(unit.fork)(baseline=of)))

    @pytest.mark.parametrize("kind", ["secret", "configMap"])
    def test_what_only_a_cluster_has_is_no_value_of_a_fork(self, bench, kind):
        change = doc.set_env("TOKEN", source={kind: {"name": "s", "key": "k"}})
        with pytest.raises(RefusedError, match=f"TOKEN comes from a {kind}"):
            bench.forks.admit(FORK, doc.fork(env=[change]))

    def order(self, bench, unit=None, port=8080):
        unit = unit or doc.fork()
        bench.of(wished=[unit])
        bench.baselines.take(Workload(name="app", command=("/bin/app",), port=port, env={}))
        return bench.forks.order(bench.live, Key("u", FORK, 1), unit)

    @pytest.mark.parametrize(("port", "told"), [(8080, "7"), (0, None)])
    def test_it_is_told_its_port_if_its_baseline_has_one(self, bench, port, told):
        order = self.order(bench, port=port)
        assert bench.variables(order).get("PORT") == told
        records = bench.records(order)
        assert records["isolation"] == b"user"
        assert "cwd" not in records
        assert not bench.attempts.at(Key("u", FORK, 1)).log_size()

    def test_what_is_not_applied_is_said_in_its_log(self, bench):
        self.order(bench, doc.fork(images=[{"image": "web:2"}]))
        assert b"not supported here: images of the fork of default/app" in bench.attempts.at(
            Key("u", FORK, 1)
        ).read_log(0, 999)

    def test_without_its_baseline_it_cannot_be_started_and_is_objected_to(self, bench):
        bench.of(doc.resource("r", [doc.step("a")]), wished=[doc.fork()])
        with pytest.raises(CannotRenderError, match="its baseline app is not declared"):
            bench.forks.order(bench.live, Key("u", FORK, 1), doc.fork())
        objection = bench.forks.known(bench.live).objections[FORK]
        assert objection.reason == Reason.BASELINE_MISSING
        assert objection.message == "its baseline default/app is not declared; apply a file of kind Deployment"
        bench.baselines.take(Workload(name="app", command=("/bin/app",)))
        assert bench.forks.known(bench.live).objections == {}

    def test_one_that_asks_for_the_address_of_one_without_a_port_is_objected_to(self, bench):
        source = {"fork": {"forkOf": {"kind": "Deployment", "namespace": "default", "name": "api"}, "expression": "x"}}
        asks = doc.fork(env=[doc.set_env("API", source=source)])
        for name in ("app", "api"):
            bench.baselines.take(Workload(name=name, command=("/bin/app",)))
        bench.of(wished=[asks, doc.fork("api")])
        assert {name: each.reason for name, each in bench.forks.objections(bench.live).items()} == {
            FORK: Reason.FORK_WITHOUT_PORT
        }

    async def test_with_its_run_go_its_ports(self, bench):
        await bench.forks.clear(bench.live)
        assert bench.asked == ["u"]
        assert bench.attempts.done == [("drop", "u")]


class TestProbing:
    """A fork is ready once it answers at its port; without one, once it runs."""

    KEY = Key("u", FORK, 1)

    def running(self, bench, monkeypatch, answers: bool = True) -> list[int]:
        """A fork that runs; returns the ports that are asked."""
        asked: list[int] = []

        async def answered(port, is_there):
            assert is_there()
            asked.append(port)
            return answers

        monkeypatch.setattr(forks, "answered", answered)
        bench.of(wished=[doc.fork()], **{FORK: UnitRecord(attempt=1, state=State.CLAIMED, generation="g")})
        bench.attempts.now[FORK, 1] = Running(since=3, ready=False)
        return asked

    @pytest.mark.parametrize(("port", "answers", "ready"), [(7, True, 1), (7, False, 0), (0, False, 1)])
    async def test_it_is_told_once_it_answers(self, bench, monkeypatch, port, answers, ready):
        asked = self.running(bench, monkeypatch, answers)
        bench.port = port
        bench.forks.adopt(bench.live, FORK)
        bench.forks.adopt(bench.live, FORK)
        await until(lambda: not bench.forks._probes)
        told = [each for each in bench.attempts.done if each[0] == "tell"]
        assert told == [("tell", self.KEY, Running(since=3, ready=True))] * ready
        assert asked == ([port] if port else []), "by one alone"

    async def test_one_that_has_ended_meanwhile_is_not_ready(self, bench, monkeypatch):
        self.running(bench, monkeypatch)

        async def answered(_port, is_there):
            bench.attempts.now[FORK, 1] = Ended(result=Result(outcome="failed"))
            assert not is_there()
            return True

        monkeypatch.setattr(forks, "answered", answered)
        bench.forks.adopt(bench.live, FORK)
        await until(lambda: not bench.forks._probes)
        assert [word for word, *_ in bench.attempts.done] == ["adopt"]

    async def test_nobody_asks_one_that_does_not_run_or_is_not_wished_for(self, bench, monkeypatch):
        asked = self.running(bench, monkeypatch)
        bench.attempts.now.clear()
        bench.forks.adopt(bench.live, FORK)
        bench.attempts.now[FORK, 1] = Running(since=3)
        bench.of(**{FORK: UnitRecord(attempt=1, state=State.CLAIMED, generation="g")})
        bench.forks.adopt(bench.live, FORK)
        await asyncio.sleep(0)
        assert (bench.forks._probes, asked) == ({}, [])

    async def test_at_the_end_nobody_asks_any_more(self, bench, monkeypatch):
        self.running(bench, monkeypatch)
        forever = asyncio.Event()

        async def answered(*_):
            await forever.wait()

        monkeypatch.setattr(forks, "answered", answered)
        bench.forks.adopt(bench.live, FORK)
        [probe] = bench.forks._probes.values()
        await asyncio.wait_for(bench.forks.close(), 10)
        assert probe.cancelled()


class TestAnswering:
    """Whether something accepts connections at a port, asked as long as the process is there."""

    @pytest.fixture
    def pauses(self, monkeypatch):
        """Between two questions; they take no time."""
        found: list[float] = []
        monkeypatch.setattr(forks.asyncio, "sleep", self._noted(found))
        return found

    @staticmethod
    def _noted(found: list[float]):
        async def sleep(seconds: float) -> None:
            found.append(seconds)

        return sleep

    @staticmethod
    def listening(monkeypatch, after: int) -> list[int]:
        """Somebody listens, after so many questions; returns the ports that are asked."""
        asked: list[int] = []

        async def connect(host, port):
            assert host == "127.0.0.1"
            asked.append(port)
            if len(asked) <= after:
                raise ConnectionRefusedError
            return None, SimpleNamespace(close=lambda: asked.append(0))

        monkeypatch.setattr(forks.asyncio, "open_connection", connect)
        return asked

    async def test_it_is_asked_less_and_less_often(self, monkeypatch, pauses):
        asked = self.listening(monkeypatch, after=10)
        assert await forks.answered(7, lambda: True)
        assert asked == [7] * 11 + [0], "and let go"
        assert pauses == pytest.approx([min(0.05 * 1.5**n, 1.0) for n in range(10)])

    async def test_and_no_more_once_it_is_gone(self, monkeypatch, pauses):
        asked = self.listening(monkeypatch, after=99)
        there = iter((True, True, False))
        assert not await forks.answered(7, lambda: next(there))
        assert (len(asked), len(pauses)) == (2, 2)
