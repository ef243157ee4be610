"""Runs of hooks if caches are stale or a peer was paused: only quorum reads count."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.kube.fake import run
from tests.operator.rig.hook_bench import API, MERGE, Bench, QueueBench
from tests.operator.rig.hook_targets import HOOK, MACHINES, OURS
from tests.operator.rig.hook_targets import HOOKS as PATH

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


def _replace_by_hook_of_another_kind(bench: Bench) -> None:
    bench.forget_hook()
    selector = {"apiVersion": "db.example.org/v1", "kind": "Claim"}
    spec = {**bench.hook["spec"], "selector": selector}
    made = bench.ask("POST", PATH, {"metadata": {"name": HOOK, "finalizers": [HOOK_FINALIZER]}, "spec": spec})
    bench.caches.hooks.put(msgspec.convert(made, HookObject))


def _replace_machine(bench: Bench) -> None:
    bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"finalizers": None}}, MERGE)
    bench.ask("DELETE", f"{MACHINES}/m")
    bench.ask("POST", MACHINES, {"metadata": {"name": "m"}})


def _finalizers(bench: Bench, path: str, finalizers: list[str] | None) -> None:
    bench.ask("PATCH", path, {"metadata": {"finalizers": finalizers}}, MERGE)


# Changes since the caches received the hook and its object; each must prevent a run.
STALE: dict[str, Callable[[Bench], None]] = {
    "hook is being deleted": lambda bench: bench.ask("DELETE", f"{PATH}/{HOOK}"),
    "hook has no finalizer": lambda bench: _finalizers(bench, f"{PATH}/{HOOK}", None),
    "hook has another finalizer": lambda bench: _finalizers(bench, f"{PATH}/{HOOK}", ["x/y"]),
    "hook is gone": Bench.forget_hook,
    "hook of another kind": _replace_by_hook_of_another_kind,
    "object is being deleted": lambda bench: bench.ask("DELETE", f"{MACHINES}/m"),
    "object is held already": lambda bench: _finalizers(bench, f"{MACHINES}/m", [OURS, "x/y"]),
    "another object": _replace_machine,
}


class TestBirth:
    @pytest.mark.parametrize("change", ["nothing", *STALE])
    def test_run_is_born_only_if_hook_and_object_are_unchanged(self, change):
        async def story():
            bench = Bench(machine=("x/y",))
            bench.cache_target()
            STALE.get(change, lambda _bench: None)(bench)
            await bench.pair()
            return len(bench.runs())

        assert run(story()) == int(change == "nothing")

    def test_run_names_the_version_its_hook_is_written_for(self):
        """One version is watched, and versions differ in their fields."""

        async def story():
            bench = QueueBench()
            bench.edit_hook(selector={"apiVersion": "cluster.example.org/v1beta1"})
            bench.cache_target()
            await bench.pair()
            [made] = bench.runs()
            [document] = bench.server.objects("objectlifecyclemethods")
            return [target["apiVersion"] for target in (made["ledger"]["target"], document["spec"]["target"])]

        assert run(story()) == ["cluster.example.org/v1beta1"] * 2

    @pytest.mark.parametrize("cached", [True, False])
    def test_run_that_is_born_after_its_hook_ends_at_once(self, cached):
        """A paused replica may create it late, while the cache still has the hook."""

        async def story():
            bench = Bench(machine=(OURS,))
            found = bench.create_run()
            bench.forget_hook()
            if not cached:
                bench.caches.hooks.drop(Key("", HOOK))
            wish = await bench.targets.read_intent(found)
            return wish.stop and wish.stop.reason

        assert run(story()) == "HookRemoved"

    @pytest.mark.parametrize("held", [(), (OURS,)])
    def test_run_without_its_hook_is_removed_before_it_begins(self, held):
        """The documents of the run are gone by then, so it could not even end."""

        async def story():
            bench = Bench(machine=held)
            found = bench.create_run()
            bench.forget_hook()
            permitted = await bench.targets.ensure_finalizer(found)
            [machine] = bench.server.objects("machines")
            return permitted, bench.runs(), machine["metadata"].get("finalizers") or []

        assert run(story()) == (False, [], [])


def _write_document(bench: Bench, name: str, hook: str) -> None:
    labels = {names.RUN_LABEL: bench.name} | ({HOOK_LABEL: hook} if hook else {})
    meta = {"name": name, "labels": labels, "finalizers": [DOCUMENT_FINALIZER]}
    spec = {"target": bench.target(), "origin": {"publisher": "hook", "plugin": HOOK}}
    made = bench.ask("POST", f"{API}/objectlifecyclemethods", {"metadata": meta, "spec": spec})
    bench.caches.documents.put(msgspec.convert(made, DocumentObject))


class TestEnd:
    @pytest.mark.parametrize("alive", [True, False])
    def test_ledger_stays_while_hook_and_target_exist(self, alive):
        async def story():
            bench = Bench(machine=(OURS,))
            found = bench.create_run(phase="abandoned", closed={"at": 1, "reason": "Abandoned"})
            if not alive:
                bench.forget_hook()
            over = await bench.targets.release(found)
            [machine] = bench.server.objects("machines")
            return over, machine["metadata"].get("finalizers") or []

        assert run(story()) == (not alive, [])

    def test_hook_stays_while_a_run_exists_that_no_cache_has(self):
        async def story():
            bench = Bench()
            bench.create_run(known=False)
            bench.ask("DELETE", f"{PATH}/{HOOK}")
            [hook] = bench.server.objects("lifecyclehooks")
            bench.caches.hooks.put(msgspec.convert(hook, HookObject))
            await bench.controller.reconcile(HOOK)
            return len(bench.server.objects("lifecyclehooks"))

        assert run(story()) == 1

    @pytest.mark.parametrize("alive", [True, False])
    def test_documents_of_a_run_never_born_go_with_their_hook(self, alive):
        """The documents are deleted although their target exists."""

        async def story():
            bench = Bench()
            _write_document(bench, "d", bench.hook["metadata"]["uid"])
            if not alive:
                bench.forget_hook()
            await bench.sweeper.sweep()
            return len(bench.server.objects("objectlifecyclemethods"))

        assert run(story()) == int(alive)

    def test_documents_stay_while_hooks_are_not_served(self):
        """In this state the operator cannot know whether the hook is gone. A document without a hook is removed with
        its target.
        """

        async def story():
            bench = Bench()
            _write_document(bench, "a", bench.hook["metadata"]["uid"])
            _write_document(bench, "b", "")
            bench.server.forget("lifecyclehooks")
            bench.ask("DELETE", f"{MACHINES}/m")
            await bench.sweeper.sweep()
            return [each["metadata"]["name"] for each in bench.server.objects("objectlifecyclemethods")]

        assert run(story()) == ["a"]


class TestGone:
    def test_object_of_an_unserved_kind_is_not_gone(self):
        async def story():
            bench = Bench()
            found = bench.create_run()
            bench.server.forget("machines")
            with pytest.raises(
                KindLostError, match=r"the cluster no longer serves Machine of cluster\.example\.org/v1"
            ):
                await bench.targets.read_intent(found)
            with pytest.raises(KindLostError):
                await bench.targets.adapter_for(found).read_state(found)

        run(story())

    def test_run_stays_if_the_kind_goes_as_its_object_is_held(self):
        async def story():
            bench = Bench()
            found = bench.create_run()
            bench.cache_target()

            def forget(call):
                if call.request.method == "PATCH":
                    bench.server.forget("machines")

            bench.server.faults = forget
            with pytest.raises(KindLostError):
                await bench.targets.ensure_finalizer(found)
            return len(bench.runs())

        assert run(story()) == 1

    def test_hook_is_not_gone_while_hooks_are_not_served(self):
        async def story():
            bench = Bench(machine=(OURS,))
            found = bench.create_run()
            bench.server.forget("lifecyclehooks")
            with pytest.raises(KindLostError):
                await bench.targets.read_intent(found)

        run(story())

    def test_object_is_gone_if_another_has_its_name(self):
        async def story():
            bench = Bench()
            found = bench.create_run()
            bench.ask("DELETE", f"{MACHINES}/m")
            bench.ask("POST", MACHINES, {"metadata": {"name": "m"}})
            state = await bench.targets.adapter_for(found).read_state(found)
            return state.stopped

        assert run(story()) is True
