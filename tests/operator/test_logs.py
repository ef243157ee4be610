"""Logs of steps outlive their pods: stored with the Sandbox, in few writes, also after a crash."""

from __future__ import annotations

import asyncio
import base64

from tests.kube.fake import FakeCluster, Fault, Harm, Refusal, run
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, at_work, chain, gone, plugin, ready, step, wish
from tests.operator.rig.world import World

from dayfly.execute.pod.logs import TAIL_LIMIT
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import PODS, Key, Pod
from dayfly.operator.pods.log_follower import LogFollowers
from dayfly.operator.pods.node_access import FIRST_PAUSE_S, MAX_FAILURES
from dayfly.operator.status.step_logs import MAX_ATTEMPTS, MAX_LOGS_PER_OBJECT

LINE = "a line of its own\n"


def bundles(world: World) -> list:
    return world.cluster.objects("steplogs")


def kept(world: World) -> dict:
    return {(log["unit"], log["attempt"]): log for each in bundles(world) for log in each["spec"]["logs"]}


def test_steps_of_one_go_are_written_together_beside_the_sandbox():
    async def story(world: World) -> None:
        world.kubelet.scripts["db/seed"].fails = 1
        uid = world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
        await world.rest(2)
        [bundle] = bundles(world)
        assert bundle["metadata"]["namespace"] == "shop"
        assert bundle["spec"]["sandbox"] == {"namespace": "shop", "name": "box", "uid": uid}
        assert {key: (log["text"], log["size"]) for key, log in kept(world).items()} == {
            ("db/make", 1): (LINE, len(LINE)),
            ("db/seed", 1): (LINE, len(LINE)),
        }
        assert "db://1" not in str(bundle)
        world.delete()
        await gone(world)
        assert bundles(world) == []

    at_work(story)


def test_late_known_sensitive_output_is_masked_in_kept_logs():
    """The value was printed before the runner knew it. Readers get it as a sensitive input."""
    made = step("make", outputs=("url",))
    made["outputs"][0]["sensitive"] = True
    secret = plugin(
        [made, step("seed", reads=("make.url",), outputs=("user",))], [step("drop", reads=("make.url", "seed.user"))]
    )

    async def story(world: World) -> None:
        world.kubelet.scripts["db/make"].prints = b"\x1ff" * 40_000 + b"db://1 and ZGI6Ly8x, db%3A%2F%2F1\n"
        world.plugin("secret", secret)
        world.sandbox({"resources": [{"name": "db", "plugin": "secret"}]})
        await world.until(lambda: ready(world), "ready")
        await world.rest(20)
        text = kept(world)["db/make", 1]["text"]
        assert text.endswith("f****** and ********, ************\n")
        assert len(text) == TAIL_LIMIT
        told = [pod for pod in world.cluster.objects("secrets") if "log.tail" in pod["data"]]
        logs = [base64.b64decode(each["data"]["log.tail"]) for each in told]
        assert any(log.endswith(b"f****** and ********, ************\n") for log in logs)
        assert not any(b"db://1" in log for log in logs)
        orders = world.kubelet.keys
        assert "sensitive-output" in orders["db/make"]
        assert "sensitive-env" in orders["db/seed"]
        world.delete()
        await gone(world)
        assert "sensitive-env" in orders["db/drop"]

    at_work(story)


def test_log_of_a_finished_step_is_kept_during_a_long_one():
    """The log of the first step is readable before the second one ends."""

    async def story(world: World) -> None:
        world.kubelet.scripts["db/seed"].runs = 600
        world.sandbox(wish())
        await world.until(lambda: world.cloud.starts("db/seed"), "the second step")
        await world.rest(10)
        assert set(kept(world)) == {("db/make", 1)}
        world.delete()
        await gone(world)

    at_work(story)


def test_long_logs_are_cut_and_it_is_said_how_much():
    long = "x" * 999 + "\n"

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: world.cloud.starts("db/make"), "the first step")
        [pod] = world.pods("db/make")
        world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners").write(long.encode() * 100)
        await world.until(lambda: ready(world), "ready")
        await world.rest(2)
        log = kept(world)["db/make", 1]
        assert (len(log["text"]), log["size"]) == (TAIL_LIMIT, 100_000 + len(LINE))
        assert log["text"].endswith(LINE)
        world.delete()
        await gone(world)

    at_work(story)


def test_bytes_that_are_no_text_are_kept_as_they_are():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: world.cloud.starts("db/make"), "the first step")
        [pod] = world.pods("db/make")
        world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners").write(b"\xff\x00\n")
        await world.until(lambda: ready(world), "ready")
        await world.rest(2)
        log = kept(world)["db/make", 1]
        assert (log["encoding"], base64.b64decode(log["text"])) == ("base64", b"\xff\x00\n" + LINE.encode())
        world.delete()
        await gone(world)

    at_work(story)


def test_a_crash_before_they_are_written_loses_none():
    """The attempt's Secret contains the log; the next operator finds that no StepLogs object does."""

    async def story(world: World) -> None:
        world.kubelet.scripts["db/seed"].runs = 120
        uid = world.sandbox(wish())
        await world.until(lambda: world.cloud.succeeded("db/make", uid), "the first end")
        await world.until(lambda: world.ledger()["units"]["db/make"]["state"] == "done", "its record")
        assert bundles(world) == []
        [process] = world.processes
        world.processes.remove(process)
        await process.end()
        await world.rest(3)
        world.start()
        await world.until(lambda: ("db/make", 1) in kept(world), "its log", 60)
        assert kept(world)["db/make", 1]["text"] == LINE
        await world.rest(120)
        assert len(bundles(world)) == 2  # one for each, so nothing is written twice
        world.delete()
        await gone(world)

    at_work(story)


def test_log_of_a_step_that_ended_without_operator_is_read():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: world.cloud.starts("db/make"), "the first step")
        [process] = world.processes
        world.processes.remove(process)
        await process.end()
        await world.rest(30)
        world.start()
        await world.until(lambda: ready(world), "ready")
        await world.rest(15)
        assert kept(world)["db/make", 1]["text"] == LINE
        world.delete()
        await gone(world)

    at_work(story)


def test_log_of_a_step_too_short_to_follow_is_read():
    async def story(world: World) -> None:
        def refuse(_, call):
            follows = call.request.path.endswith("/log") and call.request.query.get("follow")
            return Fault(Harm.UNREACHABLE) if follows else None

        world.hook = refuse
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        await world.rest(2)
        assert kept(world)["db/make", 1]["text"] == LINE
        world.delete()
        await gone(world)

    at_work(story)


def test_unreadable_logs_block_nothing():
    asked = []

    async def story(world: World) -> None:
        def refuse(_, call):
            if not call.request.path.endswith("/log"):
                return None
            asked.append(call.request)
            return Fault(Harm.UNREACHABLE)

        world.hook = refuse
        world.kubelet.scripts["db/drop"].fails = 3
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        world.delete()
        await gone(world)
        assert kept(world) == {}

    scene = Scene(RETRY, RETRY_UNITS, chain)
    at_work(story, scene)
    assert len([request for request in asked if not request.query.get("follow")]) == 5  # once for each attempt


class Silent:
    """LogFollowers with an API server that reaches no kubelet until it is `back`; `asked` are the requested pods."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(seed=1)
        self.cluster.faults = self._harm
        self.back = False
        self.asked: list[str] = []
        self.followers = LogFollowers(KubeClient(self.cluster.transport("operator"), seed=1), lambda _: None)

    def _harm(self, call) -> Fault | None:
        if not call.request.path.endswith("/log"):
            return None
        self.asked.append(call.request.path.split("/")[-2])
        return None if self.back else Fault(Harm.TROUBLE_BEFORE)

    async def place(self, name: str, node: str) -> Pod:
        """Return a pod that has printed a line and runs."""
        container = {"name": "main", "image": "x"}
        spec = {"nodeName": node, "containers": [container]}
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        made = await KubeClient(self.cluster.transport("scheduler"), seed=1).create(PODS, body, "default")
        self.cluster.log_of(name, "default").write(b"a line\n")
        return made

    async def ask(self, pod: Pod, times: int = 1) -> int:
        """Read the log of an ended pod. Return the number of requests."""
        before = len(self.asked)
        for _ in range(times):
            await self.followers.read_tail(pod)
        return len(self.asked) - before


def test_unreachable_node_is_queried_with_backoff(caplog):
    silent = Silent()

    async def story() -> None:
        here, there = await silent.place("p", "here"), await silent.place("q", "there")
        for each in (here, there):
            silent.cluster.log_of(each.metadata.name, "default").write(b"", ended=True)
        silent.asked.clear()
        assert await silent.ask(here, 10) == MAX_FAILURES
        assert await silent.ask(there) == 1  # each node separately
        assert silent.followers.nodes.count_unreachable() == 1
        for pause in (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S):
            await asyncio.sleep(pause - 1)
            assert await silent.ask(here) == 0
            await asyncio.sleep(1.1)
            assert await silent.ask(here, 3) == 1
        silent.back = True
        await asyncio.sleep(4 * FIRST_PAUSE_S + 1)
        assert await silent.ask(here, 3) == 3
        assert silent.followers.nodes.count_unreachable() == 0

    run(story())
    said = [record.message for record in caplog.records if "node here" in record.message]
    assert len(said) == 1
    assert "connection refused" in said[0]


def test_step_on_a_silent_node_is_followed_after_recovery():
    silent = Silent()

    async def story() -> None:
        pods = [await silent.place(f"p{number}", "here") for number in range(20)]
        late = await silent.place("late", "here")
        silent.asked.clear()
        for pod in pods:
            silent.followers.follow(pod, "run")
        await asyncio.sleep(FIRST_PAUSE_S - 1)
        assert len(silent.asked) <= len(pods) + MAX_FAILURES  # only the requests that had begun
        silent.followers.follow(late, "run")
        before = len(silent.asked)
        await asyncio.sleep(FIRST_PAUSE_S)
        assert "late" not in silent.asked
        assert len(silent.asked) == before + 1, "only one waiting follower polls the node"
        silent.back = True
        await asyncio.sleep(4 * FIRST_PAUSE_S)
        assert silent.followers.nodes.count_unreachable() == 0
        silent.followers.follow(late, "run")
        await asyncio.sleep(1)
        assert "late" in silent.asked
        await silent.followers.close()

    run(story())


def test_unreachable_api_server_does_not_mark_nodes_silent():
    silent = Silent()

    async def story() -> None:
        pod = await silent.place("p", "here")
        silent.cluster.faults = lambda _call: Fault(Harm.UNREACHABLE)
        for _ in range(2 * MAX_FAILURES):
            assert await silent.followers.read_tail(pod) is None
        assert silent.followers.nodes.count_unreachable() == 0

    run(story())


def test_endless_cleanup_keeps_only_its_newest_logs():
    scene = Scene(RETRY, RETRY_UNITS, chain, clean=False)

    async def story(world: World) -> None:
        world.kubelet.scripts["db/drop"].fails = 99
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        world.delete()
        tries = MAX_ATTEMPTS + 5
        await world.until(
            lambda: world.ledger()["units"].get("db/drop", {}).get("failures", 0) >= tries, "many tries", 9e4
        )
        await world.rest(10)
        attempts = sorted(attempt for unit, attempt in kept(world) if unit == "db/drop")
        assert attempts == list(range(tries - MAX_ATTEMPTS + 1, tries + 1))
        world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "enough"}}})
        await gone(world)

    at_work(story, scene)


def test_a_write_that_was_lost_on_its_way_is_made_again():
    """The outcome is unknown at first, and a missing Secret does not mean that the namespace is gone."""

    async def story(world: World) -> None:
        lost = []

        def lose(_number, call):
            if call.write is None or not call.request.path.endswith("/steplogs") or lost:
                return None
            lost.append(call)
            return Fault(Harm.LOST_REQUEST)

        world.hook = lose
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        await world.rest(15)
        assert lost
        assert set(kept(world)) == {("db/make", 1), ("db/seed", 1)}
        world.delete()
        await gone(world)

    at_work(story)


def test_a_namespace_that_takes_none_stops_nothing():
    async def story(world: World) -> None:
        def forbid(operation, kind, old, new):
            if kind.plural == "steplogs" and new:
                raise Refusal(403, "it is ending")

        world.cluster.admission.append(forbid)
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        await world.rest(60)
        assert bundles(world) == []
        world.delete()
        await gone(world)

    at_work(story)


def test_many_at_once_are_no_object_too_large():
    assert MAX_LOGS_PER_OBJECT * (TAIL_LIMIT * 4 // 3 + 1000) < 1 << 20


class TestStatus:
    def test_waiting_status_names_its_time_without_rewrites(self):
        """A waiting retry causes no write until it ends, and its message stays true."""
        scene = Scene(RETRY, RETRY_UNITS, chain, clean=False)

        async def story(world: World) -> None:
            world.kubelet.scripts["db/drop"].fails = 3
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await world.until(lambda: "tries again at 2026-01-01T" in world.status().get("message", ""), "the retry")
            unit = next(each for each in world.status()["units"] if each["id"] == "db/drop")
            assert unit["message"].endswith(f"tries again at {unit['until']}")
            assert unit["reads"] == ["db/make"]
            await gone(world)

        at_work(story, scene)

    def test_status_names_the_pods_of_running_steps(self):
        async def story(world: World) -> None:
            world.kubelet.scripts["db/make"].runs = 60
            world.sandbox(wish())

            def said():
                return next((u for u in world.status().get("units", []) if u["id"] == "db/make"), {})

            await world.until(lambda: said().get("reason") == "Running", "it to run")
            namespace, _, name = said()["pod"].partition("/")
            assert world.cluster.store.get(world.cluster.kind("pods"), Key(namespace, name))
            assert said()["message"] == f"attempt 1 has been running since {said()['since']}"
            await world.until(lambda: ready(world), "ready")
            assert "pod" not in said()
            world.delete()
            await gone(world)

        at_work(story)
