"""When a hook is taken up, what it waits for before, with which objects it begins, and when it may go; each rule alone."""

from __future__ import annotations

import msgspec
import pytest
from rig.hooking import HOOK, MACHINES, OURS
from rig.hooking import HOOKS as PATH
from rig.pairing import BOTH, KIND, LACK, MERGE, Alone, played

from dayfly.kube import errors
from dayfly.kube.objects import Key, PartialObjectMetadata
from dayfly.operator.cluster.objects import HOOK_FINALIZER
from dayfly.operator.hooks import controller
from dayfly.operator.hooks.target_grants import BELIEVED_MS
from dayfly.plan.reasons import Reason
from dayfly.spec.run import Phase, Request
from kube.fake import Refusal


class TestTakingUp:
    def test_it_is_held_said_and_begins_with_what_it_selects(self):
        async def story(bench: Alone):
            bench.seen()
            await bench.look()
            assert bench.ask("GET", f"{PATH}/{HOOK}")["metadata"]["finalizers"] == [HOOK_FINALIZER]
            assert (bench.reason, bench.said["message"]) == (Reason.TAKEN_UP, "goes with 0 objects")
            assert (bench.said["ready"], bench.said["observedGeneration"]) == (True, 1)
            assert bench.taken("pairs") == [(BOTH, 0.0)]
            assert bench.taken("hooked") == []
            assert [hook.metadata.name for hook in bench.controller.hooks_of(KIND)] == [HOOK]
            assert bench.controller.hooks_of(("", "others")) == []

        played(story, hook=())

    @pytest.mark.parametrize("how", ["unselected", "deleted", "begun"])
    def test_and_not_with_anything_else(self, how):
        async def story(bench: Alone):
            if how == "unselected":
                bench.edits(selector={"labels": {"a": "b"}})
            if how == "begun":
                bench.born()
            bench.seen()
            if how == "deleted":
                bench.ask("DELETE", f"{MACHINES}/m")
                bench.machine_is(labels={})
            await bench.look()
            assert bench.reason == Reason.TAKEN_UP
            assert bench.taken("pairs") == []

        played(story, machine=("x/y",))

    def test_but_with_what_its_labels_say(self):
        async def story(bench: Alone):
            bench.edits(selector={"labels": {"a": "b"}})
            bench.machine_is(labels={"a": "b"})
            await bench.look()
            assert bench.taken("pairs") == [(BOTH, 0.0)]

        played(story)

    def test_what_comes_later_is_begun_with_once_it_is_taken_up(self):
        async def story(bench: Alone):
            bench.seen()
            bench.machine_is(labels={"a": "b"})
            assert bench.taken("pairs") == []
            await bench.look()
            assert bench.taken("pairs") == [(BOTH, 0.0)]
            bench.machine_is(labels={"a": "c"})
            assert bench.taken("pairs") == [(BOTH, 0.0)]
            bench.trouble = LACK
            await bench.look()
            bench.machine_is(labels={"a": "d"})
            assert bench.taken("pairs") == [], "nor while it cannot be taken up any more"

        played(story)

    def test_one_that_is_wrong_by_now_begins_with_nobody(self):
        async def story(bench: Alone):
            await bench.look()
            bench.edits(preStop=[{"name": "a", "script": "#!/bin/sh\n", "after": ["nobody"]}])
            bench.machine_is(labels={"a": "b"})
            assert bench.taken("pairs") == []

        played(story)

    def test_what_is_served_below_its_objects_is_not_its_kind(self):
        async def story(bench: Alone):
            found = await bench.controller._client.kinds("cluster.example.org/v1")
            [served] = [each for each in found if each.name == "machines"]
            below = msgspec.structs.replace(served, name="machines/scale")

            async def kinds(_version):
                return [below, served]

            bench.controller._client.kinds = kinds
            await bench.look()
            assert bench.controller._selects == {HOOK: KIND}

        played(story)

    def test_one_that_has_gone_selects_nothing(self):
        async def story(bench: Alone):
            await bench.look()
            bench.caches.hooks.drop(Key("", HOOK))
            assert bench.controller.hooks_of(KIND) == []
            await bench.look()
            assert (bench.controller._known, bench.controller._selects) == ({}, {})
            assert list(bench.wing._kinds) == [], "its kind is watched by nobody"
            assert bench.unfollowed == [bench.watched.adapter.cache]
            assert [adapter.resource.plural for adapter in bench.targets] == []

        played(story)

    def test_with_another_kind_the_one_before_is_not_watched(self):
        async def story(bench: Alone):
            await bench.look()
            bench.edits(selector={"apiVersion": "db.example.org/v1", "kind": "Claim"})
            bench.server.denied = {("list", "claims.db.example.org")}
            await bench.look()
            assert [each.adapter.resource.plural for each in bench.wing._kinds] == ["claims"]
            assert bench.controller._selects == {HOOK: ("db.example.org", "claims")}
            assert bench.reason == Reason.NOT_TAKEN_UP

        played(story)

    def test_of_a_kind_with_which_a_run_goes_it_is_watched_without_a_hook(self):
        async def story(bench: Alone):
            bench.born()
            bench.caches.hooks.drop(Key("", HOOK))
            await bench.look()
            assert len(list(bench.wing._kinds)) == 1

        played(story)

    def test_with_how_many_it_goes_is_said(self):
        async def story(bench: Alone):
            made = bench.born()
            await bench.look()
            assert bench.said["message"] == "goes with 1 object"
            older = msgspec.structs.replace(made.spec.hook, older=True)
            for name in ("a", "b"):
                meta = msgspec.structs.replace(made.metadata, name=name, uid=name)
                spec = msgspec.structs.replace(made.spec, hook=older)
                bench.caches.runs.put(msgspec.structs.replace(made, metadata=meta, spec=spec))
                bench.clock += 60_000
                bench.hears()
                await bench.look()
                were = {"a": "1 was", "b": "2 were"}[name]
                count = {"a": 2, "b": 3}[name]
                said = f"goes with {count} objects, of which {were} there before the hook: preStart was passed over"
                assert bench.said["message"] == said
            assert (bench.said["objects"], bench.said["older"]) == (3, 2)
            over = msgspec.structs.replace(made.ledger, phase=Phase.CLEANED)
            meta = msgspec.structs.replace(made.metadata, name="c", uid="c")
            bench.caches.runs.put(msgspec.structs.replace(made, metadata=meta, ledger=over))
            ending = msgspec.structs.replace(made.ledger, closed=Request(at=1, reason="Deleted"))
            meta = msgspec.structs.replace(made.metadata, name="d", uid="d")
            bench.caches.runs.put(msgspec.structs.replace(made, metadata=meta, ledger=ending))
            bench.clock += 60_000
            bench.hears()
            await bench.look()
            assert (bench.said["objects"], bench.said["ending"]) == (4, 1)
            assert bench.said["message"].startswith("goes with 4 objects, ")

        played(story)


class TestWaiting:
    def no(self, bench: Alone, reason: str, *, again: bool = True) -> str:
        assert (bench.reason, bench.said["ready"]) == (reason, False)
        assert bench.taken("hooked") == ([(HOOK, controller.AGAIN_S)] if again else [])
        return str(bench.said["message"])

    def test_what_is_wrong_waits_for_its_owner(self):
        async def story(bench: Alone):
            bench.edits(runner={"podTemplateOverlay": "spec: {hostPID: true}"})
            await bench.look()
            said = self.no(bench, Reason.REFUSED, again=False)
            assert said.endswith("; change spec.runner.podTemplateOverlay")
            bench.edits(runner={"podTemplateOverlay": None})
            await bench.look()
            assert bench.reason == Reason.TAKEN_UP

        played(story)

    def test_what_means_nothing_at_all_too(self):
        async def story(bench: Alone):
            bench.edits(preStop=[{"name": "a", "script": "#!/bin/sh\n", "after": ["nobody"]}])
            await bench.look()
            self.no(bench, Reason.REFUSED, again=False)
            assert bench.controller._selects == {}

        played(story)

    @pytest.mark.parametrize("version", ["cluster.example.org/v1", "nobody.example.org/v1"])
    def test_a_kind_that_is_not_served_is_waited_for(self, version):
        async def story(bench: Alone):
            bench.edits(selector={"apiVersion": version, "kind": "Motor"})
            await bench.look()
            said = self.no(bench, Reason.KIND_NOT_SERVED)
            assert said == f"this cluster serves no Motor of {version}: have its definition installed"

        played(story)

    def test_a_kind_in_no_namespace_is_not(self):
        async def story(bench: Alone):
            bench.edits(selector={"apiVersion": "wide.example.org/v1", "kind": "Widget"})
            await bench.look()
            self.no(bench, Reason.REFUSED, again=False)

        played(story)

    @pytest.mark.parametrize(
        ("trouble", "whole", "reason", "said"),
        [
            (LACK, True, Reason.TARGETS_NOT_GRANTED, "the operator may not patch machines.cluster.example.org; "),
            (errors.Forbidden("LIST", "no", status=403), True, Reason.HINDERED, "its objects cannot be watched: no"),
            (
                errors.ServerTrouble("LIST", "slow", status=500),
                False,
                Reason.HINDERED,
                "its objects cannot be watched: slow",
            ),
            (errors.ServerTrouble("LIST", "slow", status=500), True, "", ""),
            (None, False, Reason.NOT_TAKEN_UP, "objects of kind Machine are being listed"),
        ],
    )
    def test_what_cannot_be_watched(self, trouble, whole, reason, said):
        """A watch that broke is begun again by itself; a refusal stays until somebody does something."""

        async def story(bench: Alone):
            bench.trouble, bench.whole = trouble, whole
            await bench.look()
            if reason:
                assert self.no(bench, reason).startswith(said)
            else:
                assert bench.reason == Reason.TAKEN_UP

        played(story)

    def test_what_may_not_be_held_is_asked_before_anything_is_begun(self):
        async def story(bench: Alone):
            bench.seen()
            bench.server.denied = {("patch", "machines.cluster.example.org")}
            await bench.look()
            said = self.no(bench, Reason.TARGETS_NOT_GRANTED)
            assert said.startswith("the operator may not patch machines")
            assert "kubectl create clusterrole" in said
            assert bench.taken("pairs") == []
            bench.server.denied = set()
            await bench.look()
            assert bench.taken("pairs") == [(BOTH, 0.0)]
            bench.server.denied = {("patch", "machines.cluster.example.org")}
            await bench.look()
            assert bench.taken("pairs") == [(BOTH, 0.0)], "it is believed for a while"
            bench.clock += BELIEVED_MS
            await bench.look()
            assert bench.taken("pairs") == []

        played(story)

    def test_so_is_what_may_not_be_read_and_nothing_is_written_for_it(self):
        async def story(bench: Alone):
            bench.seen()
            dry = []

            def note(call):
                if call.request.method == "PATCH" and call.request.path.endswith("/m"):
                    dry.append(call.request.query.get("dryRun"))

            bench.server.faults = note
            bench.server.denied = {("get", "machines.cluster.example.org")}
            await bench.look()
            assert self.no(bench, Reason.TARGETS_NOT_GRANTED).startswith("the operator may not get machines")
            bench.server.denied = set()
            await bench.look()
            assert (bench.reason, dry) == (Reason.TAKEN_UP, ["All"])

        played(story)

    def test_what_is_not_selected_needs_no_right(self):
        async def story(bench: Alone):
            bench.edits(selector={"labels": {"a": "b"}})
            bench.seen()
            bench.server.denied = {("patch", "machines.cluster.example.org")}
            await bench.look()
            assert bench.reason == Reason.TAKEN_UP

        played(story)

    def test_another_refusal_is_no_lack_of_a_right_and_is_said(self):
        def no(operation, kind, _old, _new):
            if operation == "UPDATE" and kind.plural == "machines":
                raise Refusal(403, "a policy says no")

        async def story(bench: Alone):
            bench.seen()
            bench.server.admission.append(no)
            await bench.look()
            assert (bench.reason, bench.taken("pairs")) == (Reason.HINDERED, [])
            assert bench.said["message"] == "its objects cannot be changed: a policy says no"
            # As soon as it is lifted the hook is taken up, though nobody says so.
            assert bench.taken("hooked") == [(HOOK, controller.AGAIN_S)]

        played(story)

    @pytest.mark.parametrize("status", [403, 422])
    def test_what_nobody_may_change_in_one_namespace_holds_up_no_other(self, status):
        def no(operation, kind, old, _new):
            if operation == "UPDATE" and kind.plural == "machines" and old["metadata"]["namespace"] == "shop":
                raise Refusal(status, "a policy says no")

        async def story(bench: Alone):
            bench.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
            other = bench.ask("POST", MACHINES.replace("shop", "team"), {"metadata": {"name": "n"}})
            bench.server.admission.append(no)
            bench.seen()
            bench.watched.adapter.cache.put(msgspec.convert(other, PartialObjectMetadata))
            await bench.look()
            assert bench.reason == Reason.TAKEN_UP
            assert [pair for pair, _ in bench.taken("pairs")] == [BOTH, BOTH._replace(key=Key("team", "n"))]

        played(story)

    @pytest.mark.parametrize("how", ["changed", "gone"])
    def test_one_that_has_just_been_changed_is_looked_at_again(self, how):
        async def story(bench: Alone):
            if how == "changed":
                bench.ask("PATCH", f"{PATH}/{HOOK}", {"metadata": {"labels": {"a": "b"}}}, MERGE)
            else:
                bench.ask("DELETE", f"{PATH}/{HOOK}")
            await bench.look()
            assert bench.taken("hooked") == [(HOOK, controller.AGAIN_S)]
            if how == "changed":
                assert (bench.reason, bench.said["message"]) == (Reason.NOT_TAKEN_UP, "it has just been changed")

        played(story, hook=())


class TestRemoval:
    def removed(self, bench: Alone) -> None:
        bench.ask("DELETE", f"{PATH}/{HOOK}")
        bench.hears()
        bench.looked.clear()

    def test_one_that_owes_nothing_goes_at_once(self):
        async def story(bench: Alone):
            self.removed(bench)
            await bench.look()
            assert bench.server.objects("lifecyclehooks") == []

        played(story)

    def test_as_long_as_it_owes_something_it_stays_and_says_what(self):
        async def story(bench: Alone):
            bench.born()
            self.removed(bench)
            await bench.look()
            assert bench.said["message"] == "is being removed: 1 object to be left in order first"
            assert (bench.reason, bench.said["ready"]) == (Reason.DELETING, False)
            assert bench.taken("hooked") == [(HOOK, controller.AGAIN_S)]

        played(story)

    @pytest.mark.parametrize(
        ("machine", "heard", "stays"), [((OURS,), True, True), (("x/y",), True, False), ((OURS,), False, False)]
    )
    def test_a_run_that_is_over_is_owed_until_its_object_is_let_go(self, machine, heard, stays):
        async def story(bench: Alone):
            bench.born(phase="cleaned")
            if heard:
                bench.seen()
            self.removed(bench)
            await bench.look()
            assert len(bench.server.objects("lifecyclehooks")) == stays

        played(story, machine=machine)

    def test_another_of_its_name_is_owed_nothing(self):
        async def story(bench: Alone):
            made = bench.born(phase="cleaned")
            bench.machine = {**bench.machine, "metadata": {**bench.machine["metadata"], "uid": "another"}}
            bench.seen()
            assert not bench.controller._owes(made)
            again = msgspec.structs.replace(made.ledger, phase=Phase.OPEN)
            assert bench.controller._owes(msgspec.structs.replace(made, ledger=again)) is True

        played(story, machine=(OURS,))

    def test_one_that_others_hold_is_theirs(self):
        async def story(bench: Alone):
            bench.born()
            self.removed(bench)
            await bench.look()
            assert bench.said == {}
            assert bench.looked == {}

        played(story, hook=("x/y",))
