"""A hook and an object that it selects: how their run comes to be, what is lost, and who looks again; each rule alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rig.hooking import HOOK, MACHINES, OURS
from rig.hooking import HOOKS as PATH
from rig.pairing import BOTH, KIND, MERGE, Alone, M, of_the_two, played

from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import Pair
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION
from dayfly.operator.hooks import pairs


class TestPairs:
    """An object and a hook that selects it."""

    async def pair(self, bench: Alone) -> list[Any]:
        bench.looked.clear()
        await bench.pair()
        return bench.runs()

    def test_the_two_get_a_run_of_their_own(self):
        async def story(bench: Alone):
            bench.edits(preStart=[{"name": "before", "script": "#!/bin/sh\n"}])
            bench.seen()
            [made] = await self.pair(bench)
            [document] = bench.server.objects("objectlifecyclemethods")
            hook, machine = bench.hook["metadata"], bench.machine["metadata"]
            assert made["metadata"]["name"] == bench.name
            labels = {"dayfly.dev/run-target": machine["uid"], "dayfly.dev/hook": hook["uid"]}
            assert made["metadata"]["labels"] == labels
            assert made["ledger"]["target"] == bench.target()
            assert made["ledger"]["uid"] == bench.uid
            assert made["spec"]["documents"][0]["uid"] == document["metadata"]["uid"]
            assert (made["spec"]["hook"]["name"], made["spec"]["hook"]["uid"]) == (HOOK, hook["uid"])
            assert made["spec"]["plural"] == "machines"
            assert not made["spec"]["hook"].get("older")
            assert (bench.name, 0.0) in bench.taken("queue")

        played(story)

    @pytest.mark.parametrize(
        ("steps", "older"), [({"preStart": [{"name": "before", "script": "#!/bin/sh\n"}]}, True), ({}, False)]
    )
    def test_of_one_that_was_there_before_pre_start_has_passed(self, steps, older):
        async def story(bench: Alone):
            hook = bench.edits(**steps)
            later = msgspec.structs.replace(hook.metadata, creation_timestamp="2030-01-01T00:00:00Z")
            bench.seen()
            find = bench.wing._pairs._client.find

            async def found(resource, name, namespace=""):
                item = await find(resource, name, namespace)
                return msgspec.structs.replace(hook, metadata=later) if name == HOOK else item

            bench.wing._pairs._client.find = found
            [made] = await self.pair(bench)
            assert bool(made["spec"]["hook"].get("older")) is older
            [document] = bench.server.objects("objectlifecyclemethods")
            assert not document["spec"].get("preStart")

        played(story)

    @pytest.mark.parametrize(
        "how",
        [
            *("unwatched", "unknown", "no hook", "deleted", "hook deleted"),
            *("another", "unselected", "gone", "hook gone", "hook of another kind"),
            *("leaving", "hook leaving", "hook let go"),
        ],
    )
    def test_nothing_is_begun_where_one_of_them_is_not(self, how):
        async def story(bench: Alone):
            if how == "unwatched":
                bench.wing._kinds._watched.clear()
            elif how != "unknown":
                bench.seen()
            if how == "no hook":
                bench.forget_hook()
                bench.caches.hooks.drop(Key("", HOOK))
            if how == "deleted":
                bench.ask("DELETE", f"{MACHINES}/m")
                bench.machine_is(labels={})
            if how == "hook deleted":
                bench.ask("DELETE", f"{PATH}/{HOOK}")
                bench.hears()
            if how in ("leaving", "hook leaving"):  # as no cache knows yet
                bench.ask("DELETE", f"{MACHINES}/m" if how == "leaving" else f"{PATH}/{HOOK}")
            if how == "hook let go":
                bench.ask("PATCH", f"{PATH}/{HOOK}", {"metadata": {"finalizers": None}}, MERGE)
            if how in ("another", "gone"):
                bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"finalizers": None}}, MERGE)
                bench.ask("DELETE", f"{MACHINES}/m")
            if how == "another":
                bench.ask("POST", MACHINES, {"metadata": {"name": "m"}})
            if how in ("hook gone", "hook of another kind"):
                bench.forget_hook()
            if how == "hook of another kind":
                selector = {"apiVersion": "db.example.org/v1", "kind": "Claim"}
                meta = {"name": HOOK, "finalizers": bench.hook["metadata"]["finalizers"]}
                bench.ask("POST", PATH, {"metadata": meta, "spec": {**bench.hook["spec"], "selector": selector}})
                bench.hears()
            if how == "unselected":
                bench.ask("PATCH", f"{PATH}/{HOOK}", {"spec": {"selector": {"labels": {"a": "b"}}}}, MERGE)
            asked: list[str] = []
            bench.server.faults = lambda call: asked.append(call.request.path)
            assert await self.pair(bench) == []
            assert bench.looked == {}
            if how in ("unwatched", "unknown", "no hook", "deleted", "hook deleted"):
                assert asked == [], "no cache says that there is anything to do"

        played(story, machine=("x/y",))

    def test_one_that_is_held_as_nobody_knew_is_looked_at_again(self):
        async def story(bench: Alone):
            bench.seen()
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"finalizers": [OURS]}}, MERGE)
            assert await self.pair(bench) == []
            assert bench.taken("pairs") == [(BOTH, pairs.AGAIN_S)]

        played(story)

    def test_its_object_is_read_in_the_version_that_the_hook_is_written_for(self):
        """All versions have the same objects, and are watched by one of them; their fields differ."""

        async def story(bench: Alone):
            bench.edits(selector={"apiVersion": "cluster.example.org/v1beta1"})
            bench.seen()
            [made] = await self.pair(bench)
            [document] = bench.server.objects("objectlifecyclemethods")
            for target in (made["ledger"]["target"], document["spec"]["target"]):
                assert target["apiVersion"] == "cluster.example.org/v1beta1"

        played(story)

    def test_what_was_written_for_it_before_is_taken_as_it_is(self):
        async def story(bench: Alone):
            bench.seen()
            [made] = await self.pair(bench)
            path = f"/apis/dayfly.dev/v1alpha1/runs/{bench.name}"
            bench.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            bench.ask("DELETE", path)
            bench.caches.ledger.forget(bench.name)
            [again] = await self.pair(bench)
            assert again["metadata"]["uid"] != made["metadata"]["uid"]
            assert again["spec"]["documents"] == made["spec"]["documents"]

        played(story)

    def test_once_it_has_its_run_nobody_need_look_at_it(self):
        async def story(bench: Alone):
            bench.seen()
            made = bench.born()
            bench.status.note(HOOK, made.spec.hook.uid, f"{M} {made.ledger.target.uid}", made.ledger.target, ("r", "m"))
            assert len(await self.pair(bench)) == 1
            assert bench.status.standing(made.spec.hook.uid, "well") == "well"

        played(story)

    def test_a_hook_that_means_nothing_for_it_says_so_in_its_status(self):
        async def story(bench: Alone):
            bench.seen()
            bench.ask(
                "PATCH",
                f"{PATH}/{HOOK}",
                {"spec": {"preStop": [{"name": "a", "script": "#!/bin/sh\n", "after": ["b"]}]}},
                MERGE,
            )
            assert await self.pair(bench) == []

        played(story)

    @pytest.mark.parametrize("right", [True, False])
    def test_what_defines_its_kind_is_noted_where_that_may_be_known(self, right):
        async def story(bench: Alone):
            bench.seen()
            meta = {"name": "machines.cluster.example.org"}
            made = bench.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"metadata": meta})
            if not right:
                bench.server.denied = {("get", "customresourcedefinitions.apiextensions.k8s.io")}
            [born] = await self.pair(bench)
            assert born["spec"]["hook"].get("definition", "") == (made["metadata"]["uid"] if right else "")

        played(story)


class TestLost:
    """Its finalizer is on the object, and there is no run."""

    def test_it_is_frozen_and_told(self):
        async def story(bench: Alone):
            bench.seen()
            await bench.pair()
            said = bench.status.standing(bench.hook["metadata"]["uid"], "well")
            assert said.startswith(f"Machine shop/m: it has the finalizer {OURS} and the ledger is gone")
            assert bench.wing.frozen == 1
            assert bench.runs() == []

        played(story, machine=(OURS,))

    @pytest.mark.parametrize("how", ["let go", "gone"])
    def test_it_is_told_until_it_is_held_no_more(self, how):
        async def story(bench: Alone):
            bench.seen()
            await bench.look()
            await bench.pair()
            bench.machine_is(labels={"a": "b"})
            assert bench.wing.frozen == 1
            if how == "let go":
                bench.machine_is(finalizers=["x/y"])
            else:
                bench.watched.adapter.cache.drop(M)
            assert bench.wing.frozen == 0

        played(story, machine=(OURS,))

    @pytest.mark.parametrize("how", ["abandoned", "no hook"])
    def test_it_is_let_go_if_somebody_says_so_or_nobody_can(self, how):
        async def story(bench: Alone):
            bench.machine_is(annotations={ABANDON_ANNOTATION: "by hand"} if how == "abandoned" else {})
            if how == "no hook":
                bench.forget_hook()
                bench.caches.hooks.drop(Key("", HOOK))
            await bench.pair()
            [machine] = bench.server.objects("machines")
            assert not machine["metadata"].get("finalizers")

        played(story, machine=(OURS,))

    @pytest.mark.parametrize("how", ["let go", "another", "gone"])
    def test_one_that_was_let_go_meanwhile_has_lost_nothing(self, how):
        async def story(bench: Alone):
            bench.seen()
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"finalizers": None}}, MERGE)
            if how != "let go":
                bench.ask("DELETE", f"{MACHINES}/m")
            if how == "another":
                bench.ask("POST", MACHINES, {"metadata": {"name": "m", "finalizers": [OURS]}})
            await bench.pair()
            assert bench.status.standing(bench.hook["metadata"]["uid"], "well") == "well"

        played(story, machine=(OURS,))

    def test_a_run_of_which_the_cache_has_not_heard_is_waited_for(self):
        async def story(bench: Alone):
            bench.born(known=False)
            bench._stand_in()
            bench.seen()
            await bench.pair()
            assert bench.taken("pairs") == [(BOTH, pairs.AGAIN_S)]
            assert bench.wing.frozen == 0

        played(story, machine=(OURS,))

    def test_a_run_that_is_restored_while_it_is_looked_for_has_lost_nothing(self):
        async def story(bench: Alone):
            bench.seen()

            def restored(call: Any) -> None:
                if (call.request.method, call.request.path) == ("GET", f"{PATH}/{HOOK}"):
                    bench.caches.runs.put(of_the_two(bench))

            bench.server.faults = restored
            await bench.pair()
            assert bench.caches.ledger.get(bench.name) is not None
            assert bench.wing.frozen == 0

        played(story, machine=(OURS,))

    @pytest.mark.parametrize("hook", [True, False])
    def test_a_run_that_it_has_besides_is_not_the_hooks(self, hook):
        """Another hook's; or its own, as a Sandbox has one."""

        async def story(bench: Alone):
            made = bench.born(known=False)
            other = {"spec": {"hook": {**msgspec.to_builtins(made.spec.hook), "name": "other"} if hook else None}}
            bench.ask("PATCH", f"/apis/dayfly.dev/v1alpha1/runs/{bench.name}", other, MERGE)
            bench._stand_in()
            bench.seen()
            await bench.pair()
            assert bench.wing.frozen == 1

        played(story, machine=(OURS,))

    def test_where_the_hook_is_not_heard_of_yet_nothing_is_said(self):
        async def story(bench: Alone):
            bench.seen()
            bench.caches.hooks.drop(Key("", HOOK))
            await bench.pair()
            assert bench.wing.frozen == 0

        played(story, machine=(OURS,))


class TestWing:
    def test_news_of_a_hook_is_looked_at_and_its_end_by_its_runs(self):
        async def story(bench: Alone):
            bench.born()
            bench.looked.clear()
            bench.ask("PATCH", f"{PATH}/{HOOK}", {"metadata": {"labels": {"a": "b"}}}, MERGE)
            bench.hears()
            assert (bench.taken("hooked"), bench.taken("queue")) == ([(HOOK, 0.0)], [])
            bench.ask("DELETE", f"{PATH}/{HOOK}")
            bench.hears()
            assert bench.taken("queue") == [(bench.name, 0.0)]
            bench.ask("PATCH", f"{PATH}/{HOOK}", {"metadata": {"labels": {"a": "c"}}}, MERGE)
            bench.hears()
            assert bench.taken("queue") == [], "that it ends is no news any more"
            bench.caches.hooks.drop(Key("", HOOK))
            assert bench.taken("queue") == [(bench.name, 0.0)]
            bench.hears()
            assert bench.taken("queue") == [(bench.name, 0.0)], "nor did we know of it before"

        played(story)

    def test_a_run_that_comes_has_its_kind_watched(self):
        async def story(bench: Alone):
            bench.wing._kinds._watched.clear()
            made = bench.born()
            assert bench.wing._kinds.find(KIND) is not None
            bench.caches.runs.drop(Key("", bench.name))
            bench.wing._kinds._watched.clear()
            meta = msgspec.structs.replace(made.metadata, name="plain", uid="plain")
            plain = msgspec.structs.replace(made.spec, hook=None)
            bench.caches.runs.put(msgspec.structs.replace(made, metadata=meta, spec=plain))
            assert bench.wing._kinds.find(KIND) is None, "no hook's"

        played(story)

    def test_what_is_held_without_a_run_is_looked_at_for_each_hook_that_holds_it(self):
        async def story(bench: Alone):
            other = "lifecycle.dayfly.dev/other"
            item = bench.machine_is(finalizers=["dayfly.dev/lifecycle", OURS, "x/y", other])
            bench.looked.clear()
            bench.watched.adapter.lost(item)
            assert bench.taken("pairs") == [(BOTH, 0.0), (Pair("other", KIND, M), 0.0)]

        played(story)

    def test_a_machine_that_is_gone_is_in_want_of_nothing(self):
        async def story(bench: Alone):
            bench.seen()
            await bench.look()
            bench.looked.clear()
            bench.watched.adapter.cache.drop(M)
            assert bench.taken("pairs") == []

        played(story)
