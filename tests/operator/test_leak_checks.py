"""Leak checks in a cluster: lists, verdicts and reports."""

from __future__ import annotations

import gc
import random

import msgspec
import pytest
from tests.operator.rig.leaks import (
    BOX,
    CHECKS,
    PLUGIN,
    InventoryScript,
    check,
    item,
    leak_status,
    leak_world,
    leave_orphan,
    living,
    next_sweep,
    request,
    state_secrets,
    verdicts,
)
from tests.operator.rig.world import World, live

from dayfly.operator.leaks import check_controller, check_store
from dayfly.operator.leaks.check_status import limit_findings
from dayfly.spec.identity import resource_id
from dayfly.spec.leak_report import LeakFinding
from dayfly.spec.report import RunReport
from dayfly.spec.resource_token import KEY_BYTES, resource_token

OTHER = "0123456789abcdef0123456789"


def look(world: World) -> InventoryScript:
    script = world.kubelet.scripts["pg/look"]
    assert isinstance(script, InventoryScript)
    return script


def key_of(world: World) -> tuple[str, bytes]:
    """Return the name and key of this installation in tokens."""
    [secret] = [each for each in world.cluster.objects("secrets") if each["type"] == "dayfly.dev/resource-key"]
    data = msgspec.convert(secret["data"], dict[str, bytes])
    return data["host"].decode(), data["key"]


class TestReport:
    def test_orphan_is_reported_after_two_lists_and_not_deleted(self):
        async def story(world: World) -> None:
            world.start()
            held = await living(world)
            id_ = await leave_orphan(world)
            await world.rest(120)
            check(world)
            await next_sweep(world)
            assert verdicts(world) == {item(id_): "unknown"}
            assert leak_status(world)["reason"] == "NoLeaks"
            await next_sweep(world)
            assert verdicts(world) == {item(id_): "orphan"}
            assert leak_status(world)["counts"]["held"] == 1
            await world.until(lambda: ("Warning", "LeaksFound") in world.events(), "the Event")
            await next_sweep(world, 2)
            assert set(world.account.items) == {item(id_), item(held)}
            world.ask("DELETE", f"{CHECKS}/items")
            await world.until(lambda: not world.cluster.objects("leakchecks"), "the end of the check")
            assert not state_secrets(world)

        live(leak_world, story)

    def test_missing_resource_of_an_open_run_is_reported(self):
        async def story(world: World) -> None:
            world.start()
            held = await living(world)
            check(world)
            await next_sweep(world)
            del world.account.items[item(held)]
            await next_sweep(world)
            assert leak_status(world)["counts"]["missing"] == 0
            await next_sweep(world)
            [found] = leak_status(world)["findings"]
            assert (found["verdict"], found["name"], found["id"]) == ("missing", "other/db", held)

        live(leak_world, story)

    def test_items_of_others_are_foreign_whatever_they_carry(self):
        async def story(world: World) -> None:
            world.start()
            held = await living(world)
            host, key = key_of(world)
            add = world.account.add
            add(item(OTHER), OTHER)
            add("pg-wrong-key", "1" * 26, resource_token(b"x" * KEY_BYTES, host, "1" * 26))
            add("pg-other-host", "2" * 26, resource_token(key, "elsewhere", "2" * 26))
            add("pg-copied-token", "3" * 26, resource_token(key, host, held))
            add("pg-copied-tags", held, resource_token(key, host, held))
            add("pg-no-id", "")
            check(world, action="delete")
            await next_sweep(world, 4)
            expected = dict.fromkeys((item(OTHER), "pg-wrong-key", "pg-other-host", "pg-copied-token", "pg-no-id"))
            assert verdicts(world) == dict.fromkeys(expected, "foreign")
            assert leak_status(world)["counts"]["held"] == 2
            assert len(world.account.items) == 7
            assert not world.cloud.starts("pg/drop")

        live(leak_world, story)

    def test_token_without_a_record_proves_an_undeletable_orphan(self):
        async def story(world: World) -> None:
            world.start()
            await living(world)
            host, key = key_of(world)
            world.account.add(item(OTHER), OTHER, resource_token(key, host, OTHER))
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 3)
            [found] = leak_status(world)["findings"]
            assert (found["verdict"], found.get("deletable", False)) == ("orphan", False)
            assert "delete it by hand" in found["reason"]
            assert not world.cloud.starts("pg/drop")

        live(leak_world, story)

    def test_lost_ledger_keeps_unrecorded_items_unknown(self):
        async def story(world: World) -> None:
            world.start()
            uid = world.sandbox(BOX)
            await world.until(lambda: world.status().get("ready"), "ready")
            world.lose_ledger()
            await world.until(lambda: world.status()["reason"] == "LedgerLost", "the report")
            await world.rest(120)
            check(world, action="delete")
            await next_sweep(world, 3)
            assert verdicts(world) == {item(resource_id(uid, "db")): "unknown"}

        live(leak_world, story)

    @pytest.mark.parametrize("fault", ["incomplete", "failing", "without-log"])
    def test_list_that_proves_nothing_changes_no_verdict(self, fault):
        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            await world.rest(120)
            check(world)
            await next_sweep(world, 2)
            listed = leak_status(world)["listedAt"]
            world.account.items.clear()
            world.account.is_complete = fault != "incomplete"
            look(world).fails = 99 if fault == "failing" else 0
            look(world).logless = fault == "without-log"
            await next_sweep(world)
            status = leak_status(world)
            assert status["error"]
            assert (status["ready"], status["reason"], status["message"]) == (False, "ListFailed", status["error"])
            assert (status["listedAt"], verdicts(world)) == (listed, {item(id_): "orphan"})

        live(leak_world, story)


class TestCheck:
    @pytest.mark.parametrize(
        ("spec", "reason", "words"),
        [
            ({"plugin": "nothing"}, "PluginMissing", "nothing"),
            ({"plugin": "bare@1.0.0"}, "Refused", "has no inventory"),
            ({"params": {"region": "x"}}, "Refused", "region"),
            ({"every": "1s"}, "Refused", "too short"),
        ],
    )
    def test_invalid_check_is_refused_with_the_reason(self, spec, reason, words):
        async def story(world: World) -> None:
            bare = {key: each for key, each in PLUGIN.items() if key != "inventory"}
            world.plugin("bare@1.0.0", bare)
            world.start()
            check(world, **spec)
            await world.until(lambda: leak_status(world).get("reason") == reason, "the report")
            assert words in leak_status(world)["message"]
            assert not world.cloud.log

        live(leak_world, story)

    def test_check_of_a_namespace_without_a_grant_names_the_grant(self):
        async def story(world: World) -> None:
            world.namespace("tools", **{"dayfly.dev/runners": "true"})
            world.plugin("tool@1.0.0", {**PLUGIN, "runner": {"image": "busybox:1", "namespace": "tools"}})
            for unit in ("look", "drop"):
                world.kubelet.scripts[f"tool/{unit}"] = world.kubelet.scripts[f"pg/{unit}"]
                world.cloud.knows(f"tool/{unit}", creates=True, once=False, reads={})
            world.start()
            check(world, plugin="tool")
            await world.until(lambda: "runners-from" in leak_status(world).get("message", ""), "the report")
            assert leak_status(world)["reason"] == "NamespaceNotGranted"
            assert "an administrator can add * to" in leak_status(world)["message"]
            assert not world.cloud.log
            world.grant("tools", annotations={"dayfly.dev/runners-from": "*"})
            await next_sweep(world)
            assert leak_status(world)["reason"] == "NoLeaks"

        live(leak_world, story)

    def test_long_names_of_foreign_items_leave_the_status_small(self):
        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            for number in range(990):
                world.account.add(f"{number:04}" + "x" * 1_020, "y" * 1_024)
            await world.rest(120)
            check(world)
            await next_sweep(world, 2)
            status = leak_status(world)
            assert status["message"] == "1 orphan, 0 missing resources: see status.findings"
            assert status["counts"]["foreign"] == 990
            assert status["findings"][0]["id"] == id_
            assert status["plan"]
            assert 100 < len(status["findings"]) < 600
            assert len(msgspec.json.encode(status)) < 600_000

        live(leak_world, story)

    def test_orphans_that_the_status_cannot_show_have_no_plan(self):
        async def story(world: World) -> None:
            world.start()
            id_ = await leave_orphan(world)
            for number in range(990):
                world.account.add(f"{number:04}-{id_}-" + "x" * 990, id_)
            await world.rest(120)
            check(world)
            await next_sweep(world, 2)
            status = leak_status(world)
            assert (status["counts"]["orphan"], status["plan"]) == (991, "")
            assert all(each["deletable"] for each in status["findings"])
            assert 100 < len(status["findings"]) < 600
            assert len(msgspec.json.encode(status)) < 600_000

        live(leak_world, story)

    def test_reason_has_at_most_the_length_that_the_crd_accepts(self):
        finding = LeakFinding(verdict="orphan", name="x", reason="its run has ended; " + "é" * 2_000)
        [shown] = limit_findings([finding])
        assert (shown.reason, len(shown.reason)) == (finding.reason[: len(shown.reason)], 1_024)

    def test_request_that_is_too_large_for_the_record_is_carried_out(self, monkeypatch):
        async def story(world: World) -> None:
            world.start()
            check(world, every="24h")
            await next_sweep(world)
            request(world, "sweep " + random.Random(4).randbytes(100_000).hex())
            await next_sweep(world)
            assert leak_status(world)["reason"] == "NoLeaks"

        monkeypatch.setattr(check_store, "MAX_BYTES", 30_000)
        monkeypatch.setattr(check_controller, "RESERVED_BYTES", 10_000)
        live(leak_world, story)

    def test_list_without_room_for_errors_is_refused(self, monkeypatch):
        monkeypatch.setattr(check_store, "MAX_BYTES", 30_000)
        monkeypatch.setattr(check_controller, "RESERVED_BYTES", 20_000)

        async def story(world: World) -> None:
            world.start()
            for number in range(400):
                world.account.add(random.Random(number).randbytes(20).hex(), "")
            check(world)
            await next_sweep(world)
            assert "is too long for a cluster" in leak_status(world)["error"]

        live(leak_world, story)

    def test_reports_of_runs_that_have_ended_are_not_kept(self):
        def kept() -> int:
            gc.collect()
            return sum(isinstance(each, RunReport) for each in gc.get_objects())

        async def story(world: World) -> None:
            world.start()
            check(world)
            await next_sweep(world, 2)
            before = kept()
            await next_sweep(world, 10)
            assert kept() <= before + 2

        live(leak_world, story)

    def test_check_continues_when_its_plugin_is_published(self):
        async def story(world: World) -> None:
            world.start()
            check(world, plugin="pg@1.1.0")
            await world.until(lambda: leak_status(world).get("reason") == "PluginMissing", "the report")
            [plugin] = world.cluster.objects("resourceplugins")
            world.plugin("pg@1.1.0", {key: each for key, each in plugin["spec"].items() if key != "name"})
            await next_sweep(world)
            assert leak_status(world)["plugin"] == "pg@1.1.0"

        live(leak_world, story)
