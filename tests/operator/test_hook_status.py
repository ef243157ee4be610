"""What is said of a hook and of its objects, each rule alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rig.hooking import HOOK
from rig.hooking import HOOKS as PATH
from rig.pairing import LACK, MERGE, Alone, played

from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.operator.cluster.objects import HookObject, RunObject
from dayfly.operator.targets.adapter import FrozenError
from dayfly.plan.reasons import Reason
from dayfly.spec.report import UnitReport
from dayfly.spec.run import Phase
from kube.fake import Fault, Harm


class TestSaying:
    async def trouble(self, bench: Alone, made: RunObject, **how: Any) -> str:
        scene = SimpleNamespace(world=SimpleNamespace(run=made.ledger))
        told = {"uid": made.ledger.uid, "reason": "Ready", "message": "m", "units": (), **how}
        hindrance = told.pop("hindrance", "")
        report = SimpleNamespace(**told, about="", closed=None)
        assert await bench.status.tell(scene, report, hindrance=hindrance) == 0.0
        return bench.status.standing(made.spec.hook.uid, "well")

    @pytest.mark.parametrize(
        ("hindrance", "said", "reason"),
        [
            (LACK.message, "Machine shop/m: the operator may not patch machines.cluster", Reason.TARGETS_NOT_GRANTED),
            ("a quota", "Machine shop/m: cannot go on and is being retried: a quota", Reason.HINDERED),
        ],
    )
    def test_what_hinders_a_run_is_said_of_its_object_until_it_goes_on(self, hindrance, said, reason):
        async def story(bench: Alone):
            made = bench.born()
            bench.taken("hooked")
            assert (await self.trouble(bench, made, hindrance=hindrance)).startswith(said)
            assert bench.events == [("Warning", reason)]
            assert bench.taken("hooked") == [(HOOK, 0.0)]
            await self.trouble(bench, made, hindrance=hindrance)
            assert (bench.taken("hooked"), len(bench.events)) == ([], 1), "it is said once"
            assert await self.trouble(bench, made) == "well"
            assert bench.taken("hooked") == [(HOOK, 0.0)]
            await self.trouble(bench, made)
            assert bench.taken("hooked") == []

        played(story)

    @pytest.mark.parametrize(
        ("reason", "told", "kind"),
        [("Doubtful", True, ""), ("Pulling", False, ""), ("ExitCode", None, "Warning"), ("TakenUp", None, "Normal")],
    )
    def test_how_grave_it_is(self, reason, told, kind):
        """A warning of the whole is trouble; a step's own trouble is told by the step."""

        async def story(bench: Alone):
            made = bench.born()
            if told is not None:
                said = await self.trouble(bench, made, reason=reason)
                assert said == ("Machine shop/m: m" if told else "well")
            else:
                bench.status.trouble(made, reason, "m")
                assert bench.events == [(kind, reason)]

        played(story)

    def test_of_what_is_frozen_that_is_said(self):
        async def story(bench: Alone):
            made = bench.born()
            why = FrozenError("restore it")
            why.reason = Reason.PLAN_LOST
            await bench.watched.adapter.freeze(made, why)
            assert bench.status.standing(made.spec.hook.uid, "well") == "Machine shop/m: restore it"
            assert bench.wing.frozen == 1

        played(story)

    def test_what_settles_is_said_of_its_own_hook(self):
        async def story(bench: Alone):
            made = bench.born()
            other = msgspec.structs.replace(bench.hears().metadata, name="other", uid="other")
            bench.caches.hooks.put(HookObject(metadata=other))
            bench.status.trouble(made, Reason.HINDERED, "a quota")
            bench.looked.clear()
            bench.status.settle(made.spec.hook.uid, bench.name)
            assert bench.taken("hooked") == [(HOOK, 0.0)]

        played(story)

    def test_another_word_of_the_same_is_no_event(self):
        async def story(bench: Alone):
            made = bench.born()
            await self.trouble(bench, made, hindrance="a quota of 1")
            bench.taken("hooked")
            await self.trouble(bench, made, hindrance="a quota of 2")
            assert (bench.taken("hooked"), len(bench.events)) == ([(HOOK, 0.0)], 1)
            bench.status.trouble(made, Reason.PLAN_LOST, "restore it")
            assert bench.events[-1] == ("Warning", Reason.PLAN_LOST)

        played(story)

    def test_of_several_the_worst_is_said(self):
        async def story(bench: Alone):
            made = bench.born()
            bench.status.trouble(made, Reason.HINDERED, "a quota")
            target = msgspec.structs.replace(made.ledger.target, name="a")
            bench.status.note(HOOK, made.spec.hook.uid, "a", target, (Reason.LEDGER_LOST, "restore it"))
            said = bench.status.standing(made.spec.hook.uid, "well")
            assert said == "Machine shop/a: restore it (and 1 more)"
            assert bench.wing.frozen == 1
            await bench.look()
            assert (bench.said["message"], bench.said["troubled"]) == (said, 2)

        played(story)

    @pytest.mark.parametrize("units", [True, False])
    def test_of_a_run_in_trouble_its_object_is_named(self, units):
        async def story(bench: Alone):
            made = bench.born()
            failed = UnitReport(id="drain", name="drain", event="preStop", kind="exec", state="failed")
            how = {"units": (failed,)} if units else {"reason": "ResourceFailed"}
            said = await self.trouble(bench, made, **how)
            assert said == "Machine shop/m: m"

        played(story)

    def newer(self, made: RunObject, by: int = 1) -> AnnotatedMeta:
        version = str(int(made.metadata.resource_version) + by)
        return msgspec.structs.replace(made.metadata, resource_version=version)

    async def _over(self, bench: Alone, made: RunObject) -> RunObject:
        over = msgspec.structs.replace(made.ledger, phase=Phase.CLEANED)
        after = msgspec.structs.replace(made, ledger=over, metadata=self.newer(made))
        bench.caches.runs.put(after)
        return after

    def test_nobody_need_look_at_one_that_is_over(self):
        async def story(bench: Alone):
            made = bench.born()
            bench.status.trouble(made, Reason.HINDERED, "a quota")
            bench.looked.clear()
            after = await self._over(bench, made)
            assert bench.status.standing(made.spec.hook.uid, "well") == "well"
            assert (HOOK, 0.0) in bench.taken("hooked")
            bench.caches.runs.put(msgspec.structs.replace(made, metadata=self.newer(after)))
            assert bench.taken("hooked") == [(HOOK, 0.0)], "its phase is another one"
            bench.caches.runs.put(msgspec.structs.replace(after, metadata=self.newer(after, 2)))
            assert await self.trouble(bench, after, reason="ResourceFailed") == "well"
            assert await self.trouble(bench, after, hindrance="a quota") != "well", "its target is not let go"

        played(story)

    def test_its_objects_are_counted_anew_when_a_run_comes_is_over_or_goes(self):
        async def story(bench: Alone):
            bench.looked.clear()
            made = bench.born()
            assert (HOOK, 0.0) in bench.taken("hooked")
            meta = msgspec.structs.replace(made.metadata, resource_version="900")
            bench.caches.runs.put(msgspec.structs.replace(made, metadata=meta))
            assert bench.taken("hooked") == []
            uid = made.spec.hook.uid
            assert [each.metadata.name for each in bench.status.every_run()] == [bench.name]
            bench.status.trouble(made, Reason.HINDERED, "a quota")
            bench.looked.clear()
            bench.caches.runs.drop(Key("", bench.name))
            assert bench.taken("hooked") == [(HOOK, 0.0), (HOOK, 0.0)]
            assert bench.status.standing(uid, "well") == "well"
            assert (bench.status._runs, bench.status.runs_of(uid)) == ({}, [])

        played(story)

    def test_of_what_is_no_hooks_nothing_is_told(self):
        async def story(bench: Alone):
            made = bench.born()
            plain = msgspec.structs.replace(made.spec, hook=None)
            meta = msgspec.structs.replace(made.metadata, resource_version="900")
            bench.caches.runs.put(msgspec.structs.replace(made, spec=plain, metadata=meta))
            assert await self.trouble(bench, made, hindrance="a quota") == "well"
            bench.caches.runs.drop(Key("", bench.name))
            assert await self.trouble(bench, made, hindrance="a quota") == "well"

        played(story)

    def test_what_stands_is_said_once_and_again_where_somebody_wrote_over_it(self):
        async def story(bench: Alone):
            await bench.look()
            bench.ask("PATCH", f"{PATH}/{HOOK}", {"metadata": {"labels": {"a": "b"}}}, MERGE)
            version = bench.hears().metadata.resource_version
            bench.clock += 60_000
            await bench.look()
            assert bench.hears().metadata.resource_version == version
            bench.ask("PATCH", f"{PATH}/{HOOK}/status", {"status": {"message": "mine"}}, MERGE)
            bench.hears()
            await bench.look()
            assert bench.said["message"] == "goes with 0 objects"
            began = bench.said["conditions"][0]["lastTransitionTime"]
            bench.born()
            bench.clock += 60_000
            bench.hears()
            await bench.look()
            assert bench.said["conditions"][0]["lastTransitionTime"] == began

        played(story)

    def test_mere_progress_is_said_a_moment_later(self):
        async def story(bench: Alone):
            await bench.look()
            bench.born()
            bench.hears()
            bench.looked.clear()
            await bench.look()
            assert bench.taken("hooked") == [(HOOK, 5.001)]

        played(story)

    def test_one_that_is_gone_is_forgotten(self):
        async def story(bench: Alone):
            seen = bench.hears()
            bench.status.trouble(bench.born(), Reason.HINDERED, "a quota")
            bench.forget_hook()
            assert await bench.status.say(seen, Reason.TAKEN_UP, "m") == 0.0
            assert (bench.status._throttles, bench.status._troubles) == ({}, {})

        played(story)

    def test_where_others_write_at_the_same_time_it_is_said_again(self):
        """A server that has tried five times in vain gives up. The hook lives, and so do its objects' troubles."""

        async def story(bench: Alone):
            seen = bench.hears()
            bench.status.trouble(bench.born(), Reason.LEDGER_LOST, "it is gone")
            bench.server.faults = lambda call: Fault(Harm.CONFLICT) if call.write is not None else None
            assert await bench.status.say(seen, Reason.TAKEN_UP, "m") == 1.0
            bench.server.faults = lambda _: None
            assert bench.status.frozen == 1
            assert await bench.status.say(seen, Reason.TAKEN_UP, "m") == 0.0
            assert (bench.said["message"], bench.said["troubled"]) == ("m", 1)

        played(story)

    def test_after_another_has_spoken_it_is_said_again(self):
        async def story(bench: Alone):
            await bench.look()
            bench.ask("PATCH", f"{PATH}/{HOOK}/status", {"status": {"message": "mine"}}, MERGE)
            bench.wing.reset()
            await bench.look()
            assert bench.said["message"] == "goes with 0 objects"

        played(story)
