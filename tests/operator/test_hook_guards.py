"""Guards around a hook's runs: what a cache that is behind, a peer that stood still, or a missing kind may not cause."""

from __future__ import annotations

import msgspec
import pytest
from rig.hooking import HOOK, MACHINES, OURS
from rig.hooking import HOOKS as PATH
from rig.pairing import API, MERGE, Bench, of_the_two

from dayfly.execute.pod import names
from dayfly.kube.objects import Key
from dayfly.operator.cluster.objects import (
    DOCUMENT_FINALIZER,
    HOOK_FINALIZER,
    HOOK_LABEL,
    DocumentObject,
    HookObject,
)
from dayfly.operator.targets.adapter import KindLostError
from dayfly.operator.targets.targets import kind_of
from dayfly.plan.reasons import Reason
from kube.fake import run


class TestBirth:
    @pytest.mark.parametrize(
        ("hook", "born"),
        [((HOOK_FINALIZER,), 1), ((), 0), (("x/y",), 0)],
        ids=["held", "not held yet", "held by others"],
    )
    def test_only_a_hook_that_is_held_begins_anything(self, hook, born):
        """It could go at once, and nobody would know of what it owes."""

        async def story():
            bench = Bench(hook=hook)
            bench.wing._kinds.want(kind_of(of_the_two(bench)))
            bench.seen()
            await bench.pair()
            return len(bench.runs())

        assert run(story()) == born

    @pytest.mark.parametrize("what", ["hook", "machine"])
    def test_nothing_is_begun_for_what_is_on_its_way_out(self, what):
        """The cache does not know yet."""

        async def story():
            bench = Bench(machine=("x/y",))
            bench.wing._kinds.want(kind_of(of_the_two(bench)))
            bench.seen()
            bench.ask("DELETE", f"{PATH}/{HOOK}" if what == "hook" else f"{MACHINES}/m")
            await bench.pair()
            return bench.runs()

        assert run(story()) == []

    def test_what_is_held_already_is_not_begun_again(self):
        """The cache has it without our finalizer: all may have run, and be about to end."""

        async def story():
            bench = Bench()
            bench.wing._kinds.want(kind_of(of_the_two(bench)))
            bench.seen()
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"finalizers": [OURS]}}, MERGE)
            await bench.pair()
            return bench.runs()

        assert run(story()) == []

    @pytest.mark.parametrize("known", ["alive", "not at all"])
    def test_a_run_that_was_born_after_its_hooks_end_is_over_before_it_begins(self, known):
        """Whoever posts it stood still while all went; the cache may still have the hook."""

        async def story():
            bench = Bench(machine=(OURS,))
            found = bench.born()
            bench.forget_hook()
            if known == "not at all":
                bench.caches.hooks.drop(Key("", HOOK))
            wish = await bench.targets.wish(found)
            return wish.stop and wish.stop.reason

        assert run(story()) == "HookRemoved"

    @pytest.mark.parametrize("held", [(), (OURS,)])
    def test_it_is_taken_away_again_with_all_that_was_made_for_it(self, held):
        """Its documents are gone by then, so it could not even end."""

        async def story():
            bench = Bench(machine=held)
            found = bench.born()
            bench.forget_hook()
            fenced = await bench.targets.fence(found)
            [machine] = bench.server.objects("machines")
            return fenced, bench.runs(), machine["metadata"].get("finalizers") or []

        assert run(story()) == (False, [], [])

    def test_a_hook_that_lives_dismisses_nobody(self):
        async def story():
            bench = Bench(machine=(OURS,))
            return (await bench.targets.wish(bench.born())).stop

        assert run(story()) is None


class TestStaying:
    @pytest.mark.parametrize(
        ("phase", "machine", "known", "stays"),
        [
            ("cleaned", (), True, True),
            ("cleaned", (OURS,), True, False),
            ("cleaned", (), False, False),
            ("open", (), True, False),
        ],
        ids=["let go", "held", "not in the cache", "at work"],
    )
    def test_of_one_that_is_over_only_its_targets_end_is_news(self, phase, machine, known, stays):
        async def story():
            bench = Bench(machine=machine)
            made = bench.born(phase=phase)
            if known:
                bench.seen()
            plain = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, hook=None))
            found = bench.targets._stays(made.metadata.name)
            bench.caches.runs.drop(Key("", made.metadata.name))
            bench.caches.ledger._gone.clear()
            bench.caches.runs.put(plain)
            assert not bench.targets._stays(made.metadata.name), "but for a hook nobody lives on"
            return found

        assert run(story()) is stays


class TestTrouble:
    def test_with_a_hook_goes_what_was_wrong_with_its_objects(self):
        async def story():
            bench = Bench(machine=(OURS,))
            bench.wing._status.trouble(bench.born(), Reason.LEDGER_LOST, "restore it")
            frozen = [bench.wing.frozen]
            bench.caches.hooks.drop(Key("", HOOK))
            return [*frozen, bench.wing.frozen]

        assert run(story()) == [1, 0]

    @pytest.mark.parametrize(("troubled", "seconds"), [(False, 5.001), (True, 1.001)])
    def test_of_one_in_trouble_more_is_told_the_sooner(self, troubled, seconds):
        async def story():
            bench = Bench(machine=(OURS,))
            bench.caches.now = lambda: 1_000
            found, status = bench.born(), bench.wing._status
            if troubled:
                status.trouble(found, Reason.HINDERED, "a quota")
            seen = msgspec.convert(bench.hook, HookObject)
            assert await status.say(seen, Reason.TAKEN_UP, "one") == 0.0
            return await status.say(seen, Reason.TAKEN_UP, "two")

        assert run(story()) == seconds


class TestEnd:
    @pytest.mark.parametrize("alive", [True, False])
    def test_a_ledger_stays_as_long_as_hook_and_target_are_there(self, alive):
        async def story():
            bench = Bench(machine=(OURS,))
            found = bench.born(phase="abandoned", closed={"at": 1, "reason": "Abandoned"})
            status, hook = bench.wing._status, bench.hook["metadata"]["uid"]
            status.trouble(found, "Hindered", "a quota")
            assert "a quota" in status.standing(hook, "all is well")
            if not alive:
                bench.forget_hook()
            over = await bench.targets.release(found)
            assert status.standing(hook, "all is well") == "all is well", "nobody need look at it any more"
            [machine] = bench.server.objects("machines")
            return over, machine["metadata"].get("finalizers") or []

        assert run(story()) == (not alive, [])

    def test_a_hook_is_not_let_go_while_a_run_is_there_that_no_cache_knows(self):
        async def story():
            bench = Bench()
            bench.born(known=False)
            bench.ask("DELETE", f"{PATH}/{HOOK}")
            [hook] = bench.server.objects("lifecyclehooks")
            bench.caches.hooks.put(msgspec.convert(hook, HookObject))
            await bench.wing._controller.reconcile(HOOK)
            return len(bench.server.objects("lifecyclehooks"))

        assert run(story()) == 1

    @pytest.mark.parametrize("alive", [True, False])
    def test_documents_for_a_run_that_was_never_born_go_with_their_hook(self, alive):
        """Although their target lives."""

        async def story():
            bench = Bench()
            bench.wing._kinds.want(kind_of(of_the_two(bench)))
            labels = {names.RUN_LABEL: bench.name, HOOK_LABEL: bench.hook["metadata"]["uid"]}
            meta = {"name": "d", "labels": labels, "finalizers": [DOCUMENT_FINALIZER]}
            spec = {"target": bench.target(), "origin": {"publisher": "hook", "plugin": HOOK}}
            made = bench.ask("POST", f"{API}/objectlifecyclemethods", {"metadata": meta, "spec": spec})
            bench.caches.documents.put(msgspec.convert(made, DocumentObject))
            if not alive:
                bench.forget_hook()
            await bench.sweeper.sweep()
            return len(bench.server.objects("objectlifecyclemethods"))

        assert run(story()) == int(alive)

    def test_where_hooks_are_not_served_their_documents_stay_and_the_operator_goes_on(self):
        """Nobody knows then whether their hook is gone."""

        async def story():
            bench = Bench()
            bench.wing._kinds.want(kind_of(of_the_two(bench)))
            for name, hook in (("a", bench.hook["metadata"]["uid"]), ("b", "")):
                labels = {names.RUN_LABEL: bench.name} | ({HOOK_LABEL: hook} if hook else {})
                meta = {"name": name, "labels": labels, "finalizers": [DOCUMENT_FINALIZER]}
                spec = {"target": bench.target(), "origin": {"publisher": "hook", "plugin": HOOK}}
                made = bench.ask("POST", f"{API}/objectlifecyclemethods", {"metadata": meta, "spec": spec})
                bench.caches.documents.put(msgspec.convert(made, DocumentObject))
            bench.server.forget("lifecyclehooks")
            bench.ask("DELETE", f"{MACHINES}/m")
            await bench.sweeper.sweep()
            return [each["metadata"]["name"] for each in bench.server.objects("objectlifecyclemethods")]

        assert run(story()) == ["a"], "the other's target is gone, and is seen to be"


class TestGone:
    def test_what_the_server_does_not_find_is_gone_while_it_serves_the_kind(self):
        async def story():
            bench = Bench()
            found = bench.born()
            bench.ask("DELETE", f"{MACHINES}/m")
            wish = await bench.targets.wish(found)
            return wish.stop and wish.stop.reason, (await bench.targets.of(found).state(found)).stopped

        assert run(story()) == ("Deleted", True)

    def test_what_is_not_served_is_not_gone(self):
        async def story():
            bench = Bench()
            found = bench.born()
            bench.server.forget("machines")
            with pytest.raises(
                KindLostError, match=r"the cluster serves no Machine of cluster\.example\.org/v1 any more"
            ):
                await bench.targets.wish(found)
            with pytest.raises(KindLostError):
                await bench.targets.of(found).state(found)

        run(story())

    def test_what_goes_out_of_sight_as_it_is_to_be_held_keeps_its_run(self):
        async def story():
            bench = Bench()
            found = bench.born()
            bench.seen()

            def forget(call):
                if call.request.method == "PATCH":
                    bench.server.forget("machines")

            bench.server.faults = forget
            with pytest.raises(KindLostError):
                await bench.targets.fence(found)
            return len(bench.runs())

        assert run(story()) == 1

    def test_nor_is_a_hook_gone_where_hooks_are_not_served(self):
        async def story():
            bench = Bench(machine=(OURS,))
            found = bench.born()
            bench.server.forget("lifecyclehooks")
            with pytest.raises(KindLostError):
                await bench.targets.wish(found)

        run(story())

    def test_another_of_its_name_is_not_it(self):
        async def story():
            bench = Bench()
            found = bench.born()
            bench.ask("DELETE", f"{MACHINES}/m")
            bench.ask("POST", MACHINES, {"metadata": {"name": "m"}})
            state = await bench.targets.of(found).state(found)
            return state.stopped

        assert run(story()) is True
