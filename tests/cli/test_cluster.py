"""The verbs against a cluster show the statuses of a real operator in the same words as the embedded host."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.command import refused
from tests.cli.frozen_cluster import (
    FAILING,
    FLAGS,
    LIFE,
    NEVER_GOES,
    SLOW,
    Stage,
    changed,
    failing,
    running,
    stage,
    still,
    stuck,
    up,
)
from tests.kube.fake import FakeCluster

from dayfly.kube import errors
from dayfly.operator.observe import Observer
from dayfly.spec.identity import resource_id

from tests.operator.rig.scenes import CHAIN, Scene, ready, wish  # isort: skip
from tests.operator.rig.world import World  # isort: skip

__all__ = ["stage"]


class TestGet:
    def test_a_table_of_sandboxes(self, stage: Stage):
        done = stage(LIFE, up)("get")
        assert (done.code, done.err) == (0, "")
        header, row = done.out.splitlines()
        assert header.split() == ["SANDBOX", "PHASE", "REASON", "PROGRESS", "AGE"]
        assert row.split()[:4] == ["box", "Ready", "AllDesiredWorkloadsReady", "2/2"]

    def test_ready_sandbox_with_ignored_fields_is_unsupported(self, stage: Stage):
        async def partly(world: World) -> None:
            world.sandbox(wish() | {"local": [{"name": "laptop"}]})
            await world.until(lambda: ready(world), "ready")
            await world.rest(5)

        asked = stage(LIFE, partly)
        assert asked("get").out.splitlines()[1].split()[:4] == ["box", "Ready", "Unsupported", "2/2"]
        assert "Reason:        Unsupported" in asked("get", "sandbox", "box").out.splitlines()
        [found] = json.loads(asked("get", "-o", "json").out)
        [said] = found["unsupported"]
        assert said.startswith("spec.local (it needs a host that routes on the developer's machine")
        assert said.endswith("dayfly up --routing)")
        assert asked("why", "box").out.startswith("sandbox box: Unsupported: Not supported here: spec.local (it needs")

    def test_one_sandbox_with_its_steps(self, stage: Stage):
        done = stage(FAILING, failing)("get", "sandbox", "box")
        lines = done.out.splitlines()
        assert "Phase:         Failed" in lines
        assert "Message:       db/seed: exit code 1" in lines
        assert re.search(r"^✓ succeeded +db/make", done.out, re.MULTILINE)
        assert re.search(r"^✗ failed +db/seed .*exit code 1", done.out, re.MULTILINE)
        assert lines.index(next(line for line in lines if "db/make" in line)) < len(lines) - 1

    def test_step_shorter_than_a_second_has_its_duration(self, stage: Stage):
        short = changed(LIFE, db_make={"runs": 0.35}, db_seed={"runs": 1.6})
        lines = stage(short, up)("get", "sandbox", "box").out.splitlines()
        took = {unit: next(line for line in lines if unit in line) for unit in ("db/make", "db/seed")}
        assert re.search(r"db/make +3[45]\d ms", took["db/make"])
        assert re.search(r"db/seed +1 s", took["db/seed"])

    @pytest.mark.parametrize(
        ("started", "ended", "shown"),
        [
            ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01Z", "< 1 s"),
            ("2026-01-01T00:00:01.100Z", "2026-01-01T00:00:01.100Z", "0 ms"),
            ("2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z", "2 s"),
        ],
    )
    def test_times_in_whole_seconds_are_not_shown_as_0_ms(self, stage: Stage, started: str, ended: str, shown: str):
        unit = {"id": "db/make", "event": "preStart", "kind": "exec", "state": "succeeded", "attempt": 1}
        unit |= {"startedAt": started, "endedAt": ended}
        status = {"phase": "Ready", "ready": True, "reason": "Ready", "message": "m", "units": [unit]}
        out = stage.at(still(status=status), 5_000)("get", "sandbox", "box").out
        assert re.search(rf"db/make +{shown}$", out, re.MULTILINE), out

    def test_its_resources(self, stage: Stage):
        asked = stage(FAILING, failing)
        assert asked("get", "resources").out.splitlines()[1].split()[:5] == ["db", "box", "pg", "Failed", "1/2"]
        refused(
            asked("get", "resource", "dbx"),
            3,
            'no resource "dbx"; did you mean "db"? see: dayfly get resources --context kind -n shop',
        )

    def test_as_data(self, stage: Stage):
        [found] = json.loads(stage(LIFE, up)("get", "-o", "json").out)
        assert (found["name"], found["phase"], found["done"], found["total"]) == ("box", "Ready", 2, 2)
        assert {unit["id"]: unit["state"] for unit in found["units"]}["db/make"] == "succeeded"

    def test_sandbox_get_and_list_print_as_for_a_server(self, stage: Stage):
        asked = stage(FAILING, failing)
        header, row = asked("sandbox", "list").out.splitlines()
        assert header.split() == ["NAME", "ROUTING", "KEY", "DESCRIPTION", "CLUSTER", "CREATED", "STATUS"]
        [found] = json.loads(asked("sandbox", "list", "-o", "json").out)
        assert row.split()[:2] == ["box", found["routingKey"]]
        assert row.split()[-1] == found["status"]["reason"] == "ResourceFailed"
        assert asked("sb", "list", "-l", "!none").out.splitlines()[1] == row
        assert asked("sb", "list", "-l", "none").err == "No sandbox has matching labels; there is 1 without --label.\n"
        one = asked("sandbox", "get", "box")
        assert one.out.splitlines()[:2] == ["Name:          box", f"Cluster:       {found['spec']['cluster']}"]
        assert "Message:       db/seed: exit code 1" in one.out.splitlines()
        assert found.items() <= json.loads(asked("sandbox", "get", "box", "-o", "json").out).items()
        refused(asked("sandbox", "get", "bxo"), 3, 'did you mean "box"?', "dayfly get sandboxes --context kind -n shop")

    def test_unreadable_sandbox_does_not_hide_others(self, stage: Stage):
        """Users who may write Sandboxes can nest fields of any type deeply."""

        async def another(world: World) -> None:
            await up(world)
            world.sandbox({"middleware": [{"name": "DEEP"}]}, name="deep")

        asked = stage(LIFE, another)
        done = asked("get")
        assert done.code == 0
        assert [line.split()[0] for line in done.out.splitlines()] == ["SANDBOX", "box", "deep"]
        assert asked("why", "deep").code == 0

    def test_get_of_unknown_name_suggests_a_known_one(self, stage: Stage):
        asked = stage(LIFE, up)
        refused(
            asked("get", "sandbox", "bix"),
            3,
            '"bix" in namespace shop; did you mean "box"? see: dayfly get sandboxes --context',
        )
        refused(asked("get", "box"), 2, "unknown kind 'box'", "dayfly get sandbox box")


class TestSameWords:
    """A viewer may only read the status. Its times become the same text as on the embedded host."""

    @pytest.mark.parametrize(
        ("scene", "story", "message"),
        [
            (LIFE, up, "All desired workloads are available."),
            (FAILING, failing, "db/seed: exit code 1"),
            (NEVER_GOES, stuck, "db/drop: attempt 1 failed (exit code 1); tries again in 1 s"),
            (SLOW, running, "db/make: attempt 1 has been running for 5 s (and 1 more)"),
        ],
        ids=["ready", "failed", "retrying", "running"],
    )
    def test_report_has_relative_times(self, stage: Stage, scene: Scene, story, message: str):
        boxes = []

        async def seen(world: World) -> None:
            await story(world)
            boxes.extend(world.cluster.objects("sandboxes"))

        host = stage(scene, seen).host()
        found, status = host.report("box"), boxes[0]["status"]
        assert (found["reason"], found["message"]) == (status["reason"], message)
        published = [(unit["id"], unit["state"]) for unit in status["units"]]
        assert [(unit["id"], unit["state"]) for unit in found["units"]] == published
        host.close()


def _milliseconds(span: str) -> int:
    number, unit = span.split()
    return int(number) * {"ms": 1, "s": 1000}[unit]


async def _broken(*_args, **_more):
    raise errors.Forbidden("GET /api", "the operator may not look", status=403)


class TestWhy:
    def test_ready_waits_for_nothing(self, stage: Stage):
        asked = stage(LIFE, up)
        assert asked("why", "box").out == "box is not waiting for anything\n"
        assert json.loads(asked("why", "box", "-o", "json").out) == {
            "subject": "sandbox box",
            "reason": "AllDesiredWorkloadsReady",
            "message": "it is not waiting for anything",
        }

    def test_a_failed_step_with_a_command_that_can_be_typed(self, stage: Stage):
        lines = stage(FAILING, failing)("why", "box").out.splitlines()
        assert lines[0].startswith("sandbox box: ResourceFailed: db/seed: exit code 1")
        assert "`dayfly logs box db seed --context kind -n shop`" in lines[-1]

    def test_a_log_in_which_nothing_stands_is_not_advised(self, stage: Stage):
        last = stage(changed(LIFE, db_seed={"fails": 9, "prints": b""}), failing)("why", "box").out.splitlines()[-1]
        assert "to do: see its message (it printed nothing), fix the plugin" in last

    def test_why_counts_retry_time_by_the_local_clock(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        first = asked("why", "box").out
        asked.now += 1_000
        second = asked("why", "box").out
        left = [_milliseconds(re.search(r"tries again in (.+?) \(for", text)[1]) for text in (first, second)]
        assert 0 <= left[1] < left[0]

    @pytest.mark.parametrize("begun", [False, True])
    def test_reason_of_hindered_sandbox_is_the_operators_error(self, stage: Stage, begun, monkeypatch):
        """An operator runs, so the advice is not to look for one."""

        async def hindered(world: World) -> None:
            if begun:
                world.sandbox(wish())
                await world.until(lambda: ready(world), "ready")
            monkeypatch.setattr(Observer, "scene", _broken)
            if not begun:
                world.sandbox(wish())
                await world.until(world.status, "a status")
            world.delete()
            await world.until(lambda: world.status().get("phase") == "Deleting", "the deletion", 60)
            await world.rest(10)

        said = stage(LIFE, hindered)("why", "box").out
        assert said.startswith("sandbox box: Blocked: cannot continue and is retried: the operator may not look")
        assert "WaitingForOperator" not in said

    def test_why_of_unknown_outcome_names_resolution_and_time(self, stage: Stage):
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
        assert "may have run, and its outcome is not known" in out
        assert re.search(r"it ends in \d+ (h|min)", out)
        assert "to do: wait: the step's deadline resolves it, and nothing runs twice" in out

    def test_why_of_new_sandbox_without_operator(self, stage: Stage):
        asked = stage.at(still(), 1_767_225_600_000 + 60_000)
        out = asked("why", "box").out
        assert "sandbox box: WaitingForOperator: no operator has picked it up (for 1 min)" in out
        assert "kubectl --context kind -n dayfly-system get pods" in out
        assert asked("get").out.splitlines()[1].split()[:2] == ["box", "Pending"]

    @pytest.mark.parametrize("deleted", [False, True])
    def test_why_points_to_the_log_if_no_status_is_stored(self, stage: Stage, *, deleted: bool):
        world = World.__new__(World)
        world.cluster = still()
        path = "/apis/dayfly.dev/v1alpha1/namespaces/shop/sandboxes/box"
        held = {"metadata": {"finalizers": ["dayfly.dev/lifecycle"]}}
        world.ask("PATCH", path, held, "application/merge-patch+json")
        if deleted:
            world.ask("DELETE", path)
        out = stage.at(world.cluster, 1_767_225_600_000 + 60_000)("why", "box").out
        assert "the operator has picked it up, but could not store a status yet (for 1 min)" in out
        assert "kubectl --context kind -n dayfly-system logs deployment/dayfly-operator" in out

    def test_a_deletion_that_no_operator_has_taken_up(self, stage: Stage):
        async def alone(world: World) -> None:
            await up(world)
            [process] = world.processes
            world.processes.remove(process)
            await process.end()
            world.delete()

        out = stage(LIFE, alone, later=90)("why", "box").out
        assert "its deletion was requested, but no operator has picked that up (for 1 min 30 s)" in out

    def test_a_plugin_that_is_missing(self, stage: Stage):
        async def missing(world: World) -> None:
            world.sandbox({"resources": [{"name": "db", "plugin": "nosuch"}]})
            await world.until(lambda: world.status().get("reason") == "PluginMissing", "the refusal")

        out = stage(LIFE, missing)("why", "box").out
        assert "PluginMissing: resource plugin nosuch is not in this cluster" in out
        assert "to do: apply the plugin; the sandbox then continues by itself" in out


class TestAbandon:
    def test_abandon_records_reason_and_names_leftovers(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        done = asked("abandon", "box", "--reason", "the database is gone with its machine")
        assert done.code == 0, done.err
        assert done.err.splitlines() == [
            'Abandoned sandbox "box"; its resources may be left over:',
            "  db (pg): make.url=db://1",
        ]
        [box] = asked.cluster.objects("sandboxes")
        assert box["metadata"]["annotations"] == {"dayfly.dev/abandon": "the database is gone with its machine"}

    def test_ready_sandbox_is_refused_without_force(self, stage: Stage):
        asked = stage(LIFE, up)
        first = f"run first: dayfly sandbox delete box{FLAGS}; or leave everything behind with --force"
        refused(asked("abandon", "box", "--reason", "x"), 1, 'sandbox "box" is not being deleted', first)
        assert "annotations" not in asked.cluster.objects("sandboxes")[0]["metadata"]
        assert asked("abandon", "box", "--reason", "x y", "--force").code == 0
        [box] = asked.cluster.objects("sandboxes")
        assert box["metadata"]["annotations"] == {"dayfly.dev/abandon": "force: x y"}

    def test_why_of_abandoned_sandbox_names_reason_and_leftovers(self, stage: Stage):
        async def held(world: World) -> None:
            await up(world)
            world.change({"metadata": {"finalizers": [*world.box()["metadata"]["finalizers"], "example.org/hold"]}})
            world.delete()
            await world.until(lambda: world.cloud.starts("db/drop"), "a try of the cleanup")
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "its machine burnt"}}})
            await world.until(lambda: world.status().get("reason") == "Abandoned", "its end")

        asked = stage(NEVER_GOES, held)
        told = json.loads(asked("why", "box", "-o", "json").out)
        assert (told["reason"], "since" in told) == ("Abandoned", True)
        message = "its cleanup was abandoned by annotation dayfly.dev/abandon: its machine burnt"
        assert told["message"] == message
        [left] = [each for each in told["because"] if each["reason"] == "LeftoversPossible"]
        [box] = asked.cluster.objects("sandboxes")
        assert left["message"].endswith(f"(DAYFLY_RESOURCE_ID={resource_id(box['metadata']['uid'], 'db')})")
        text = asked("why", "box").out
        assert f"sandbox box: Abandoned: {message}" in text
        assert left["message"] in text

    def test_sandbox_with_deletion_not_picked_up_can_be_abandoned(self, stage: Stage):
        async def alone(world: World) -> None:
            await up(world)
            [process] = world.processes
            world.processes.remove(process)
            await process.end()
            world.delete()

        assert stage(LIFE, alone)("abandon", "box", "--reason", "x").code == 0

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


class TestRetry:
    def test_the_attempt_that_failed_is_written_down(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        done = asked("retry", "box")
        [unit] = [
            each for each in asked.cluster.objects("sandboxes")[0]["status"]["units"] if each["state"] == "retrying"
        ]
        said = f"{unit['id']}: attempt {unit['attempt']} has failed; it is retried now."
        assert (done.code, done.err.splitlines()) == (0, [said, f"See: dayfly why box{FLAGS}"])
        [box] = asked.cluster.objects("sandboxes")
        assert box["metadata"]["annotations"] == {"dayfly.dev/retry": f"{unit['id']}={unit['attempt']}"}

    def test_retry_without_waiting_units_changes_nothing(self, stage: Stage):
        asked = stage(LIFE, up)
        refused(asked("retry", "box"), 1, "nothing in it is waiting for a retry")
        refused(asked("retry", "box", "db/nothing"), 3, 'no unit "db/nothing"; it has db/make')
        refused(asked("retry", "nobody"), 3, 'no sandbox "nobody"')
        assert "annotations" not in asked.cluster.objects("sandboxes")[0]["metadata"]


class TestEnv:
    def test_outputs_from_the_namespace_s_secret(self, stage: Stage):
        assert stage(LIFE, up)("env", "box").out.splitlines() == [
            "DB_MAKE_URL=db://1",
            "# DB_SEED_USER is binary (4 bytes); read it with: dayfly env SANDBOX -o json",
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

    def test_faulty_plugin_fails_only_plans_that_name_it(self, stage: Stage, tmp_path):
        async def published(world: World) -> None:
            await up(world)
            world.plugin("bad", {**CHAIN, "runner": {"image": "busybox:1", "podTemplateOverlay": "spec: [1"}})

        asked = stage(LIFE, published)
        file = tmp_path / "box.yaml"
        file.write_text("{name: box, spec: {cluster: c, resources: [{name: db, plugin: pg}]}}")
        assert asked("plan", "-f", str(file)).code == 0
        file.write_text("{name: box, spec: {cluster: c, resources: [{name: db, plugin: bad}]}}")
        words = "the resource plugin bad@0.0.0 in the cluster is invalid: spec.runner.podTemplateOverlay: line 2"
        refused(asked("plan", "-f", str(file)), 1, words, "kubectl get resourceplugins")


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
        refused(asked("get"), 6, "the cluster cannot be reached", "connection refused", "kubectl cluster-info")

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
        refused(done, 2, "cannot reach a cluster", words)

    def test_a_namespace_without_a_cluster(self, cli):
        refused(cli("get", "-n", "shop"), 2, "add --context NAME")
