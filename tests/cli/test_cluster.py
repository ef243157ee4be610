"""The verbs against a cluster: what a real operator said of its sandboxes, in the words of the embedded host."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from cli.clusters import FLAGS, Stage, changed, stage
from cli.command import refused
from dayfly.cli import cluster as subject
from dayfly.cli import kept
from dayfly.cli.logs import Tail
from dayfly.execute.fork.render import fork_name
from dayfly.kube.client import Client
from dayfly.plan.decide import decide
from dayfly.plan.status import describe
from dayfly.plan.why import why as chain
from kube.fake import FakeCluster, Fault, Harm

from rig.scenes import CHAIN, CHAIN_UNITS, RETRY, RETRY_UNITS, Scene, chain as life, ready, wish  # isort: skip
from rig.world import KINDS, World  # isort: skip

__all__ = ["stage"]

LIFE = Scene(CHAIN, CHAIN_UNITS, life)
STUCK = Scene(RETRY, RETRY_UNITS, life, clean=False)
LINE = "a line of its own\n"


async def up(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    await world.rest(5)


async def failing(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
    await world.rest(5)


async def stuck(world: World) -> None:
    """Its cleanup has failed once and is tried again later."""
    world.sandbox(wish())
    await world.until(lambda: ready(world), "ready")
    world.delete()
    await world.until(lambda: "tries again" in world.status().get("message", ""), "a failed cleanup")
    await world.rest(2)


async def running(world: World) -> None:
    world.sandbox(wish())
    await world.until(lambda: "running since" in world.status().get("message", ""), "the first step to run")


FAILING = changed(LIFE, db_seed={"fails": 9})
NEVER_GOES = changed(STUCK, db_drop={"fails": 99})
SLOW = changed(LIFE, db_make={"runs": 600})


class TestGet:
    def test_a_table_of_sandboxes(self, stage: Stage):
        done = stage(LIFE, up)("get")
        assert (done.code, done.err) == (0, "")
        header, row = done.out.splitlines()
        assert header.split() == ["SANDBOX", "PHASE", "REASON", "PROGRESS", "AGE"]
        assert row.split()[:4] == ["box", "Ready", "AllDesiredWorkloadsReady", "2/2"]

    def test_one_sandbox_with_its_steps(self, stage: Stage):
        done = stage(FAILING, failing)("get", "sandbox", "box")
        lines = done.out.splitlines()
        assert "Phase:         Failed" in lines
        assert "Message:       db/seed: ExitCode: exit code 1" in lines
        assert re.search(r"^✓ succeeded +db/make", done.out, re.MULTILINE)
        assert re.search(r"^✗ failed +db/seed .*ExitCode: exit code 1", done.out, re.MULTILINE)
        assert lines.index(next(line for line in lines if "db/make" in line)) < len(lines) - 1

    def test_its_resources(self, stage: Stage):
        asked = stage(FAILING, failing)
        assert asked("get", "resources").out.splitlines()[1].split()[:5] == ["db", "box", "pg", "Failed", "1/2"]
        refused(
            asked("get", "resource", "dbx"), 3, 'no resource "dbx"; see: dayfly get resources --context kind -n shop'
        )

    def test_as_data(self, stage: Stage):
        [found] = json.loads(stage(LIFE, up)("get", "-o", "json").out)
        assert (found["name"], found["phase"], found["done"], found["total"]) == ("box", "Ready", 2, 2)
        assert {unit["id"]: unit["state"] for unit in found["units"]}["db/make"] == "succeeded"

    def test_what_is_not_there(self, stage: Stage):
        asked = stage(LIFE, up)
        refused(
            asked("get", "sandbox", "bix"), 3, 'no sandbox "bix" in namespace shop; see: dayfly get sandboxes --context'
        )
        refused(asked("get", "box"), 2, "no kind 'box' here", "dayfly get sandbox box")


class TestSameWords:
    """The status is what a viewer may read; read back, it says what the operator itself would say at that moment."""

    @pytest.mark.parametrize(
        ("scene", "story"),
        [(LIFE, up), (FAILING, failing), (NEVER_GOES, stuck), (SLOW, running)],
        ids=["ready", "failed", "retrying", "running"],
    )
    def test_as_the_operator_and_the_embedded_host(self, stage: Stage, scene: Scene, story):
        reports = []

        async def seen(world: World) -> None:
            await story(world)
            [run] = world.cluster.objects("runs")
            scene = await world.processes[0].operator._lifecycles.gather(run["metadata"]["name"])
            reports.append(describe(scene.plan, scene.world, decide(scene.plan, scene.world, world.now())))

        asked = stage(scene, seen)
        host = asked.host()
        found, report = host.report("box"), reports[0]
        assert (found["reason"], found["message"]) == (report.reason, report.message)
        assert [(unit["id"], unit["state"], unit.get("message", "")) for unit in found["units"]] == [
            (unit.id, unit.state, unit.message) for unit in report.units
        ]
        blocker = chain(report, "box")
        said = host.why("box")
        assert _sentences(said) == (_sentences(_plain(blocker)) if blocker else [])
        host.close()


def _plain(blocker):
    return {
        "subject": blocker.subject,
        "reason": blocker.reason,
        "message": blocker.message,
        "next": blocker.next,
        "because": [_plain(each) for each in blocker.because],
    }


def _milliseconds(span: str) -> int:
    number, unit = span.split()
    return int(number) * {"ms": 1, "s": 1000}[unit]


def _sentences(blocker) -> list[tuple[str, ...]]:
    if not blocker:
        return []
    own = (blocker["subject"], blocker["reason"], blocker["message"], blocker.get("next", "").replace(FLAGS, ""))
    return [own, *(line for each in blocker.get("because", []) for line in _sentences(each))]


class TestWhy:
    def test_ready_waits_for_nothing(self, stage: Stage):
        assert stage(LIFE, up)("why", "box").out == "box waits for nothing\n"

    def test_a_failed_step_with_a_command_that_can_be_typed(self, stage: Stage):
        lines = stage(FAILING, failing)("why", "box").out.splitlines()
        assert lines[0].startswith("sandbox box: ResourceFailed: db/seed: ExitCode: exit code 1")
        assert "`dayfly logs box db seed --context kind -n shop`" in lines[-1]

    def test_the_clock_of_a_retry_is_that_of_whoever_asks(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        first = asked("why", "box").out
        asked.now += 1_000
        second = asked("why", "box").out
        left = [_milliseconds(re.search(r"tries again in (.+?) \(for", text)[1]) for text in (first, second)]
        assert 0 <= left[1] < left[0]

    def test_an_unknown_outcome_says_what_resolves_it_and_when(self, stage: Stage):
        scene = changed(LIFE, db_make={"runs": 30, "silent": True})

        async def lost(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: world.cloud.starts("db/make"), "the first step")
            [pod] = world.pods("db/make")
            meta = pod["metadata"]
            world.ask(
                "PATCH",
                f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}",
                {"metadata": {"finalizers": None}},
                "application/merge-patch+json",
            )
            world.ask(
                "DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", {"gracePeriodSeconds": 0}
            )
            await world.until(lambda: world.status().get("reason") == "OutcomeUnknown", "the doubt", 300)
            world.cloud.forgiven = True

        asked = stage(scene, lost, later=60)
        out = asked("why", "box").out
        assert "may have run and its outcome is not known" in out
        assert re.search(r"it is certain to have ended in \d+ (h|min)", out)
        assert "to do: nothing: it resolves by itself at its deadline, and nothing runs twice meanwhile" in out

    def test_what_no_operator_has_taken_up(self, stage: Stage):
        asked = stage.at(_still(), 1_767_225_600_000 + 60_000)
        out = asked("why", "box").out
        assert "sandbox box: NotTakenUp: no operator has taken it up (for 1 min)" in out
        assert "kubectl --context kind -n dayfly-system get pods" in out
        assert asked("get").out.splitlines()[1].split()[:2] == ["box", "Pending"]

    def test_a_deletion_that_no_operator_has_taken_up(self, stage: Stage):
        async def alone(world: World) -> None:
            await up(world)
            [process] = world.processes
            world.processes.remove(process)
            await process.end()
            world.delete()

        out = stage(LIFE, alone, later=90)("why", "box").out
        assert "its deletion was asked for, and no operator has taken that up (for 1 min 30 s)" in out

    def test_a_plugin_that_is_missing(self, stage: Stage):
        async def missing(world: World) -> None:
            world.sandbox({"resources": [{"name": "db", "plugin": "nosuch"}]})
            await world.until(lambda: world.status().get("reason") == "PluginMissing", "the refusal")

        out = stage(LIFE, missing)("why", "box").out
        assert "PluginMissing: resource plugin nosuch is not in this cluster" in out
        assert "to do: apply the plugin; the sandbox goes on by itself" in out


def _still(**status) -> FakeCluster:
    """A cluster without an operator, with a Sandbox whose status somebody has left."""
    world = World.__new__(World)
    world.cluster = FakeCluster(extra=KINDS, time=lambda: 0.0)
    world.namespace("shop")
    world.sandbox({"resources": []})
    if status:
        path = "/apis/dayfly.dev/v1alpha1/namespaces/shop/sandboxes/box/status"
        world.ask("PATCH", path, status, "application/merge-patch+json")
    return world.cluster


class TestLogs:
    def test_they_outlive_their_pods(self, stage: Stage):
        asked = stage(LIFE, up)
        assert asked.cluster.objects("pods") == []
        done = asked("logs", "box")
        assert (done.code, done.err) == (0, "")
        assert done.out == f"db/make | {LINE}db/seed | {LINE}"
        assert asked("logs", "box", "db", "seed").out == LINE
        assert asked("logs", "box", "db", "seed", "-f").out == LINE

    def test_a_viewer_of_the_namespace_reads_them(self, stage: Stage):
        asked = stage(LIFE, up)
        asked.denied = ("/runs", "/objectlifecyclemethods", "/secrets", "/pods", "/dayfly-runners")
        assert asked("logs", "box", "db", "make").out == LINE
        assert asked("why", "box").code == asked("get").code == 0

    def test_every_attempt(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        assert asked("logs", "box", "db", "drop", "--attempt", "1").out == LINE
        refused(asked("logs", "box", "db", "drop", "--attempt", "7"), 3, "db/drop has no attempt 7; there is 1")
        refused(asked("logs", "box", "dbx"), 3, '"box" has no dbx; there is db/make, db/drop')

    def test_what_was_cut_is_said(self, stage: Stage):
        async def long(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: world.cloud.starts("db/make"), "the first step")
            [pod] = world.pods("db/make")
            world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners").write(b"x" * 99_999 + b"\n")
            await world.until(lambda: ready(world), "ready")
            await world.rest(5)

        done = stage(LIFE, long)("logs", "box", "db", "make")
        assert done.err == f"db/make: attempt 1 printed {100_000 + len(LINE)} bytes, of which the last 65536 are kept\n"
        assert len(done.out) == 65536

    def test_of_a_running_step_as_far_as_it_has_come(self, stage: Stage):
        async def talking(world: World) -> None:
            await running(world)
            [pod] = world.pods("db/make")
            world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners").write(b"so far\n")

        asked = stage(SLOW, talking)
        assert asked("logs", "box", "db", "make").out == "so far\n"
        asked.denied = ("/log",)
        done = asked("logs", "box", "db", "make")
        assert (done.code, done.out) == (0, "")
        assert 'db/make: its log cannot be shown while it runs: User "ada" cannot get' in done.err
        assert "it can be read here within seconds of its end" in done.err

    def test_following_shows_what_comes_and_ends_with_the_step(self, stage: Stage):
        """In the cluster's own time: live while it runs, without the runner's own lines, and the next step after it."""
        pieces = []

        async def followed(world: World) -> None:
            world.kubelet.scripts["db/make"].runs = 30
            await running(world)
            client = Client(world.cluster.transport("ada"), seed=1)
            logs = kept.Logs(client, "shop")
            host = subject.Cluster.__new__(subject.Cluster)
            host._client, host._namespace, host._met, host.flags = client, "shop", {}, FLAGS
            [pod] = world.pods("db/make")
            out = world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners")
            for number in range(3):
                out.write(f"line {number}\n".encode())
                await world.rest(1)
                await logs.attempts(lambda: host._fetch("box"), world.now, follow=True)
                await world.rest(0.1)
                pieces.append(logs.text("db/make", 1))
            await world.until(lambda: ready(world), "ready")
            found = await logs.attempts(lambda: host._fetch("box"), world.now, follow=True)
            pieces.append(logs.text("db/make", 1))
            assert {(info["unit"], info["sealed"]) for info in found} >= {("db/make", True)}
            world.delete()
            await world.until(lambda: world.box() is None, "the end")
            assert all(
                each["sealed"] for each in await logs.attempts(lambda: host._living("box"), world.now, follow=True)
            )
            await logs.close()

        stage(LIFE, followed)
        assert pieces == [
            b"line 0\n",
            b"line 0\nline 1\n",
            b"line 0\nline 1\nline 2\n",
            b"line 0\nline 1\nline 2\n" + LINE.encode(),
        ]

    @pytest.mark.parametrize("long", [0, 80_000])
    def test_a_connection_that_breaks_hides_nothing(self, stage: Stage, capsys, long: int):
        """Once the pod is gone, what the operator has kept goes on where it broke, or it is said what is missing."""
        told = []

        async def broken(world: World) -> None:
            world.kubelet.scripts["db/make"].runs = 30
            await running(world)

            def breaks(_, call):
                follows = call.client == "ada" and call.request.path.endswith("/log")
                return Fault(Harm.BREAK, after=1) if follows else None

            world.hook = breaks
            client = Client(world.cluster.transport("ada"), seed=1)
            logs = kept.Logs(client, "shop")
            host = subject.Cluster.__new__(subject.Cluster)
            host._client, host._namespace, host._met, host.flags = client, "shop", {}, FLAGS
            [pod] = world.pods("db/make")
            out = world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners")
            out.write(b"line 0\n")
            await world.rest(1)
            await logs.attempts(lambda: host._fetch("box"), world.now, follow=True)
            await world.rest(0.2)
            told.append(logs.text("db/make", 1))
            out.write(b"x" * long + b"line 1\n")
            await world.until(lambda: ready(world), "ready")
            await world.rest(10)
            [info] = [
                each
                for each in await logs.attempts(lambda: host._fetch("box"), world.now, follow=True)
                if each["unit"] == "db/make"
            ]
            tail = Tail(info)
            tail.offset = len(told[0])
            tail.pour(SimpleNamespace(read=lambda _, *where: logs.text(*where)), "box", "", info)
            assert (info["sealed"], info["size"]) == (True, tail.offset)
            await logs.close()

        stage(LIFE, broken)
        whole = "line 0\n" + "x" * long + "line 1\n" + LINE
        assert told == [b"line 0\n"]
        missing = max(len(whole) - 7 - 65_536, 0)
        out, err = capsys.readouterr()
        assert out == whole[7 + missing :]
        assert err == (f"db/make: {missing} bytes are missing here\n" if missing else "")

    def test_of_a_fork_the_command_is_named_that_shows_its_pods(self, stage: Stage):
        asked = stage.at(
            _still(
                status={
                    "units": [
                        {"id": "fork:shop/web", "kind": "fork", "event": "start", "state": "running", "attempt": 1}
                    ]
                }
            ),
            1_767_225_601_000,
        )
        uid = asked.cluster.objects("sandboxes")[0]["metadata"]["uid"]
        done = asked("logs", "box", "web")
        assert (done.code, done.out) == (0, "")
        label = f"dayfly.dev/fork={fork_name('box', uid, 'shop', 'web')}"
        assert (
            done.err == f"the logs of forks are those of their pods: kubectl --context kind logs -n shop -l {label}\n"
        )


class TestAbandon:
    def test_the_reason_is_written_down_and_what_stays_is_named(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        done = asked("abandon", "box", "--reason", "the database is gone with its machine")
        assert done.code == 0, done.err
        assert done.err.splitlines() == [
            'Abandoned sandbox "box"; what its delete steps would have removed may be left over:',
            "  db (pg): make.url=db://1",
        ]
        [box] = asked.cluster.objects("sandboxes")
        assert box["metadata"]["annotations"] == {"dayfly.dev/abandon": "the database is gone with its machine"}

    def test_without_the_ledger_every_output_counts_as_sensitive(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        asked.denied = ("/runs",)
        assert "  db (pg): make.url (sensitive)" in asked("abandon", "box", "--reason", "x").err

    def test_without_the_right_to_secrets_it_goes_all_the_same(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        asked.denied = ("/secrets",)
        done = asked("abandon", "box", "--reason", "x")
        assert done.code == 0
        assert '  db (pg): its outputs cannot be shown: User "ada" cannot get' in done.err

    def test_no_reason_is_refused(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        refused(asked("abandon", "box", "--reason", "  "), 2, "--reason is empty")
        assert "annotations" not in asked.cluster.objects("sandboxes")[0]["metadata"]
        refused(asked("abandon", "nobody", "--reason", "x"), 3, 'no sandbox "nobody"')


class TestEnv:
    def test_outputs_from_the_namespace_s_secret(self, stage: Stage):
        assert stage(LIFE, up)("env", "box").out.splitlines() == [
            "DB_MAKE_URL=db://1",
            "# DB_SEED_USER is binary (5 bytes); take it from: dayfly env SANDBOX -o json",
        ]


class TestPlan:
    def test_with_the_plugins_of_the_cluster(self, stage: Stage, tmp_path):
        file = tmp_path / "box.yaml"
        file.write_text("{name: box, spec: {cluster: c, resources: [{name: db, plugin: pg}]}}")
        done = stage(LIFE, up)("plan", "-f", str(file))
        assert (done.code, done.err) == (0, "")
        assert "preStart, wave 2\n  db/seed (once, image busybox:1)\n    $MAKE_URL = db/make.url" in done.out

    def test_a_plugin_that_is_nowhere(self, stage: Stage, tmp_path):
        file = tmp_path / "box.yaml"
        file.write_text("{name: box, spec: {cluster: c, resources: [{name: db, plugin: nosuch}]}}")
        words = 'the plugin "nosuch" is neither in these files nor in the cluster'
        refused(stage(LIFE, up)("plan", "-f", str(file)), 3, words, "kubectl get resourceplugins")


class TestErrors:
    def test_a_right_that_is_missing_is_named(self, stage: Stage):
        asked = stage(LIFE, up)
        asked.denied = ("/sandboxes",)
        refused(
            asked("get"), 5, 'User "ada" cannot get', "/sandboxes", "ask the cluster's administrator for that right"
        )

    def test_dayfly_is_not_installed(self, stage: Stage):
        asked = stage.at(FakeCluster(time=lambda: 0.0), 0)
        words = ("Dayfly is not installed", "install it there: kubectl apply --server-side -f deploy/install.yaml")
        refused(asked("get"), 1, *words)
        refused(asked("why", "box"), 1, *words)

    def test_no_cluster_answers(self, stage: Stage):
        asked = stage(LIFE, up)
        asked.away = True
        refused(asked("get"), 6, "the cluster cannot be asked", "connection refused", "kubectl cluster-info")

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ("", "there is no such file"),
            ("- what is this", "this is no kubeconfig"),
            (
                "{apiVersion: v1, kind: Config, contexts: [{name: prod, context: {cluster: c, user: u}}]}",
                "there is prod",
            ),
        ],
        ids=["no file", "no kubeconfig", "no such context"],
    )
    def test_no_such_context(self, cli, config: str, words: str):
        path = cli.folder / "config"
        if config:
            path.write_text(config)
        done = cli("why", "box", "--context", "nowhere", KUBECONFIG=str(path))
        refused(done, 2, "no way into a cluster", words)

    def test_a_namespace_without_a_cluster(self, cli):
        refused(cli("get", "-n", "shop"), 2, "name the cluster too, with --context NAME")
