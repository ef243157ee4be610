"""An object that a hook goes with, as the target of their run; each rule alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rig.hooking import HOOK, MACHINES, OURS
from rig.hooking import HOOKS as PATH
from rig.pairing import API, MERGE, Alone, M, played

from dayfly.kube import errors
from dayfly.kube.cache import Change
from dayfly.kube.objects import Key
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.targets.adapter import KindLostError
from dayfly.operator.targets.lifecycle_hook import _has_stopped
from dayfly.plan.reasons import Reason
from dayfly.spec.kinds import Pin
from dayfly.spec.kube_object import Verdict
from dayfly.spec.lifecycle import Exec, Lifecycle, Unit, digest
from dayfly.spec.lifecycle_hook import Hold
from dayfly.spec.run import Phase, Request, State, UnitRecord

ASKED = Request(at=1, reason="Deleted")
HOLD = Hold(annotation="example.org/hold", value="yes")
ROLLOUT = Hold(path="/spec/rollout/paused", value=True)


def of(made: RunObject, *, hook: dict[str, Any] | None = None, **ledger: Any) -> RunObject:
    """The same run with another ledger, or hook."""
    spec = msgspec.structs.replace(made.spec, hook=msgspec.structs.replace(made.spec.hook, **(hook or {})))
    return msgspec.structs.replace(made, ledger=msgspec.structs.replace(made.ledger, **ledger), spec=spec)


class TestHeard:
    @pytest.mark.parametrize(
        ("ledger", "news"),
        [
            ({"started_at": 5}, False),
            ({}, True),
            ({"started_at": 5, "closed": ASKED}, True),
            ({"started_at": 5, "phase": Phase.CLEANED}, True),
        ],
    )
    def test_what_its_controller_says_matters_to_those_that_wait_for_that(self, ledger, news):
        async def story(bench: Alone):
            adapter, before = bench.watched.adapter, bench.machine_is(labels={})
            bench.caches.runs.put(of(bench.born(known=False), **ledger))
            meta = msgspec.structs.replace(before.metadata, resource_version="900")
            after = msgspec.structs.replace(before, metadata=meta)
            assert adapter.heard(Change(M, before, after)) is news
            assert adapter.heard(Change(M, None, after)) is True
            assert adapter.heard(Change(M, before, None)) is True
            assert adapter.heard(Change(M, before, before)) is True
            labelled = msgspec.structs.replace(after, metadata=msgspec.structs.replace(meta, labels={"a": "b"}))
            assert adapter.heard(Change(M, before, labelled)) is True

        played(story)

    def test_to_nobody_it_is_no_news(self):
        async def story(bench: Alone):
            before = bench.machine_is(labels={})
            meta = msgspec.structs.replace(before.metadata, resource_version="900")
            after = msgspec.structs.replace(before, metadata=meta)
            assert bench.watched.adapter.heard(Change(M, before, after)) is False

        played(story)


class TestDismissal:
    async def reason(self, bench: Alone, made: RunObject) -> tuple[str, int]:
        found = await bench.watched.adapter.dismissal(made)
        return (found.reason, found.at) if found else ("", 0)

    @pytest.mark.parametrize("seq", [0, 1])
    def test_a_hook_that_lives_dismisses_nobody_and_is_asked_for_only_where_a_run_begins(self, seq):
        async def story(bench: Alone):
            made, asked = of(bench.born(), seq=seq), []
            bench.server.faults = lambda call: asked.append(call.request.path)
            assert await self.reason(bench, made) == ("", 0)
            assert len(asked) == (not seq)

        played(story)

    def test_one_that_is_being_removed_dismisses_all_from_then_on(self):
        async def story(bench: Alone):
            made = of(bench.born(), seq=1)
            bench.ask("DELETE", f"{PATH}/{HOOK}")
            hook = bench.hears()
            assert hook.metadata.deletion_timestamp
            reason, at = await self.reason(bench, made)
            assert (reason, at % 1000) == (Reason.HOOK_REMOVED, 0)
            assert at != bench.clock
            assert await self.reason(bench, of(made, seq=0)) == (Reason.HOOK_REMOVED, bench.clock)

        played(story)

    @pytest.mark.parametrize("how", ["gone", "another"])
    def test_one_that_is_not_there_any_more_too(self, how):
        async def story(bench: Alone):
            made = of(bench.born(), seq=1)
            bench.forget_hook()
            if how == "another":
                body = {"metadata": {"name": HOOK}, "spec": bench.hook["spec"]}
                bench.ask("POST", PATH, body)
                bench.hears()
            else:
                bench.caches.hooks.drop(Key("", HOOK))
            assert await self.reason(bench, made) == (Reason.HOOK_REMOVED, bench.clock)
            assert await bench.watched.adapter.stays(made) is False

        played(story)


class TestGone:
    @pytest.mark.parametrize(
        ("definition", "there", "gone"),
        [("", "", False), ("d", "", True), ("d", "d", False), ("d", "another", True)],
    )
    def test_what_is_not_served_is_gone_once_its_definition_is(self, definition, there, gone):
        async def story(bench: Alone):
            made = of(bench.born(), hook={"definition": definition})
            bench.server.forget("machines")

            async def get(_resource, name, _namespace=""):
                assert name == "machines.cluster.example.org"
                if not there:
                    raise errors.NotFound("GET", "gone", status=404)
                return SimpleNamespace(metadata=SimpleNamespace(uid=there))

            bench.watched.adapter._client.get = get
            missing = errors.NotServed("GET", "no such kind", status=404)
            if gone:
                await bench.watched.adapter.vouch(made, missing)
            else:
                with pytest.raises(KindLostError):
                    await bench.watched.adapter.vouch(made, missing)

        played(story)

    @pytest.mark.parametrize(
        ("missing", "served", "gone"),
        [(errors.NotFound, True, True), (errors.NotFound, False, False), (errors.NotServed, True, False)],
    )
    def test_only_what_is_not_found_while_its_kind_is_served_is_gone(self, missing, served, gone):
        """A kind that was not served a moment ago may be again: then nobody has looked for the object."""

        async def story(bench: Alone):
            made, fault = bench.born(), missing("GET", "no", status=404)
            if not served:
                bench.server.forget("machines")
            if gone:
                await bench.watched.adapter.vouch(made, fault)
            else:
                with pytest.raises(KindLostError, match="if it is gone for good this ends by itself"):
                    await bench.watched.adapter.vouch(made, fault)

        played(story)

    def test_of_one_whose_kind_is_not_served_nobody_says_what_it_has(self):
        async def story(bench: Alone):
            made = bench.born()
            bench.server.forget("machines")
            with pytest.raises(KindLostError):
                await bench.watched.adapter.fields(made)

        played(story)

    def test_of_another_of_its_name_nothing_is_read(self):
        async def story(bench: Alone):
            made = bench.born()
            adapter = bench.watched.adapter
            assert (await adapter.fields(made))["metadata"]["uid"] == made.ledger.target.uid
            bench.ask("DELETE", f"{MACHINES}/m")
            assert await adapter.fields(made) is None
            bench.ask("POST", MACHINES, {"metadata": {"name": "m"}})
            assert await adapter.fields(made) is None

        played(story)


class TestHold:
    @pytest.mark.parametrize(
        ("hold", "there", "wanted"),
        [
            (None, {}, {}),
            (HOLD, {}, {"metadata": {"annotations": {"example.org/hold": "yes"}}}),
            (HOLD, {"metadata": {"annotations": {"example.org/hold": "theirs"}}}, {}),
            (Hold(annotation="a/b"), {}, {"metadata": {"annotations": {"a/b": ""}}}),
            (ROLLOUT, {}, {"spec": {"rollout": {"paused": True}}}),
            (ROLLOUT, {"spec": {"rollout": {"paused": False}}}, {}),
            (ROLLOUT, {"spec": {"rollout": "x"}}, {"spec": {"rollout": {"paused": True}}}),
        ],
    )
    def test_it_is_set_where_nobody_holds_it_already(self, hold, there, wanted):
        async def story(bench: Alone):
            if there:
                bench.ask("PATCH", f"{MACHINES}/m", there, MERGE)
            made, seen = of(bench.born(), hook={"hold": hold}), bench.machine_is(labels={"a": "b"})
            assert await bench.watched.adapter.grip(made, seen.metadata) == wanted
            other = msgspec.structs.replace(seen.metadata, resource_version="1")
            assert await bench.watched.adapter.grip(made, other) == {}, "it has changed since"
            bench.ask("DELETE", f"{MACHINES}/m")
            assert await bench.watched.adapter.grip(made, seen.metadata) == {}

        played(story)

    @pytest.mark.parametrize(
        ("hold", "there", "left"),
        [
            (HOLD, {"metadata": {"annotations": {"example.org/hold": "yes"}}}, None),
            (HOLD, {"metadata": {"annotations": {"example.org/hold": "theirs"}}}, "theirs"),
            (HOLD, {}, None),
            (None, {"metadata": {"annotations": {"example.org/hold": "yes"}}}, "yes"),
        ],
    )
    def test_it_is_taken_away_if_it_is_ours(self, hold, there, left):
        async def story(bench: Alone):
            if there:
                bench.ask("PATCH", f"{MACHINES}/m", there, MERGE)
            made = of(bench.born(), hook={"hold": hold})
            assert await bench.watched.adapter.loosen(made) is True
            found = bench.ask("GET", f"{MACHINES}/m")["metadata"].get("annotations", {})
            assert found.get("example.org/hold") == left
            bench.ask("DELETE", f"{MACHINES}/m")
            assert await bench.watched.adapter.loosen(made) is True

        played(story)

    def test_it_is_taken_away_in_the_version_in_which_it_was_set(self):
        async def story(bench: Alone):
            born = bench.born()
            target = msgspec.structs.replace(born.ledger.target, api_version="cluster.example.org/v1beta1")
            made = of(born, hook={"hold": ROLLOUT}, target=target)
            asked: list[str] = []

            async def held(_run):
                return {"metadata": {"uid": target.uid}, "spec": {"rollout": {"paused": True}}}

            bench.watched.adapter.fields = held
            bench.server.faults = lambda call: asked.append(f"{call.request.method} {call.request.path}")
            with pytest.raises(KindLostError):
                await bench.watched.adapter.loosen(made)
            assert f"PATCH {MACHINES.replace('v1', 'v1beta1')}/m" in asked

        played(story)

    def test_what_a_run_needs_itself_is_not_asked(self):
        async def story(bench: Alone):
            hook = {"hook": {"hold": {"annotation": HOLD.annotation, "value": HOLD.value}}}
            bench.born()
            bench.ask("PATCH", f"{API}/runs/{bench.name}", {"spec": hook}, MERGE)
            made = msgspec.convert(bench.ask("GET", f"{API}/runs/{bench.name}"), RunObject)
            assert made.spec.hook.hold == HOLD
            assert await bench.watched.adapter.loosen(made) is True

        played(story)

    def test_it_is_not_taken_away_where_its_kind_goes_just_before_that(self):
        """Else what waits for it to be taken away would wait until another operator begins."""

        async def story(bench: Alone):
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": {"example.org/hold": "yes"}}}, MERGE)
            made = of(bench.born(), hook={"hold": HOLD})

            def forget(call):
                if call.request.method == "PATCH":
                    bench.server.forget("machines")

            bench.server.faults = forget
            with pytest.raises(KindLostError):
                await bench.watched.adapter.loosen(made)

        played(story)

    @pytest.mark.parametrize("how", [errors.Conflict, errors.Invalid])
    @pytest.mark.parametrize("peer", [False, True])
    def test_where_the_server_does_not_take_it_away_that_is_no_peers_work(self, how, peer):
        """As a schema that wants the field: said and tried again, or its target never stops and nobody knows why."""

        async def story(bench: Alone):
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": {"example.org/hold": "yes"}}}, MERGE)
            made, adapter = of(bench.born(), hook={"hold": HOLD}), bench.watched.adapter

            async def patch(*_of, **_how):
                if peer:
                    bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": None}}, MERGE)
                raise how("PATCH", "spec.hold: Required value", status=422)

            adapter._client.patch = patch
            if peer:
                assert await adapter.loosen(made) is True
            else:
                with pytest.raises(how, match="Required value"):
                    await adapter.loosen(made)

        played(story)

    @pytest.mark.parametrize(
        ("change", "loosened"),
        [
            ({}, False),
            ({"hold": None}, True),
            ({"hold": "other"}, True),
            ({"phase": "cleaned"}, True),
            ({"phase": "cleaned", "documents": "gone"}, True),
            ({"units": "done"}, True),
            ({"gone": True}, True),
            ({"unheard": True}, True),
        ],
    )
    def test_it_stays_as_long_as_another_run_needs_it(self, change, loosened):
        """One that has something to do yet before the object stops."""

        async def story(bench: Alone):
            bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"annotations": {"example.org/hold": "yes"}}}, MERGE)
            made = of(bench.born(), hook={"hold": HOLD})
            step = Unit(name="drain", kind="exec", exec=Exec(script="#!/bin/sh"))
            spec = Lifecycle(target=made.ledger.target, pre_stop=(step,))
            body = {"metadata": {"name": "d"}, "spec": msgspec.to_builtins(spec)}
            document = bench.ask("POST", f"{API}/objectlifecyclemethods", body)
            pin = Pin(name="d", uid=document["metadata"]["uid"], digest=digest(spec))
            hold = {"other": ROLLOUT, None: None}.get(change["hold"]) if "hold" in change else HOLD
            done = {"drain": UnitRecord(attempt=1, state=State.DONE, outcome="succeeded")}
            other = of(made, hook={"hold": hold, "name": "other"}, uid="o", closed=ASKED, phase=Phase.CLOSED)
            other = of(other, started_at=5)
            other = of(other, units=done) if "units" in change else other
            other = of(other, phase=Phase.CLEANED) if "phase" in change else other
            other = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, documents=(pin,)))
            whole = msgspec.to_builtins(msgspec.structs.replace(other, metadata=other.metadata))
            body = {"metadata": {"name": "other"}, "ledger": whole["ledger"], "spec": whole["spec"]}
            stored = msgspec.convert(bench.ask("POST", f"{API}/runs", body), RunObject)
            if "unheard" not in change:
                bench.caches.runs.put(stored)
            if "gone" in change:
                bench.ask("DELETE", f"{API}/runs/other")
            if "documents" in change:
                bench.ask("DELETE", f"{API}/objectlifecyclemethods/d")
            assert await bench.watched.adapter.loosen(made) is loosened
            found = bench.ask("GET", f"{MACHINES}/m")["metadata"].get("annotations", {})
            assert ("example.org/hold" in found) is not loosened

        played(story)


class TestState:
    READY = Verdict(condition="Ready")

    async def state(self, bench: Alone, made: RunObject) -> tuple[bool, bool, bool]:
        found = await bench.watched.adapter.state(made)
        return found.started, found.stopped, bool(found.message)

    def test_it_has_started_and_lives_as_far_as_the_cache_knows(self):
        async def story(bench: Alone):
            made, asked = of(bench.born(), started_at=5), []
            bench.seen()
            bench.server.faults = lambda call: asked.append(call.request.path)
            assert await self.state(bench, made) == (True, False, False)
            assert asked == []
            assert await self.state(bench, of(made, closed=ASKED)) == (True, False, False)
            assert len(asked) == 1, "of one that closes the server is asked"
            assert await self.state(bench, of(made, started_at=0)) == (True, False, False)
            assert len(asked) == 2
            bench.caches.unfollow(None)
            bench.watched.adapter.cache.drop(M)
            await self.state(bench, made)
            assert len(asked) == 3
            other = {**bench.machine, "metadata": {**bench.machine["metadata"], "uid": "another"}}
            bench.machine = other
            bench.seen()
            await self.state(bench, made)
            assert len(asked) == 4

        played(story)

    def test_one_that_is_deleted_and_that_nobody_holds_has_stopped(self):
        """A pod has some seconds more."""
        meta = {"name": "m", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        assert _has_stopped({"kind": "Pod", "metadata": meta}, None) == (True, "")

    def test_of_a_run_that_is_over_nothing_is_asked(self):
        async def story(bench: Alone):
            made = of(bench.born(), phase=Phase.ABANDONED)
            bench.server.faults = lambda _call: pytest.fail("asked")
            assert await self.state(bench, made) == (False, False, False)

        played(story)

    @pytest.mark.parametrize("started", [True, False])
    def test_one_that_is_gone_has_stopped(self, started):
        async def story(bench: Alone):
            made = of(bench.born(), hook={"started": self.READY if started else None})
            bench.ask("DELETE", f"{MACHINES}/m")
            assert await self.state(bench, made) == (not started, True, False)

        played(story)

    def test_it_has_started_when_it_says_so(self):
        async def story(bench: Alone):
            made = of(bench.born(), hook={"started": self.READY})
            assert await self.state(bench, made) == (False, False, True)
            status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            bench.ask("PATCH", f"{MACHINES}/m/status", status, MERGE)
            assert (await self.state(bench, made))[:2] == (True, False)

        played(story)

    @pytest.mark.parametrize(
        ("verdict", "others", "stopped"), [(False, True, False), (False, False, True), (True, False, False)]
    )
    def test_it_has_stopped_once_only_we_hold_it_or_it_says_so(self, verdict, others, stopped):
        async def story(bench: Alone):
            made = of(bench.born(), hook={"stopped": self.READY if verdict else None})
            if not others:
                bench.ask("PATCH", f"{MACHINES}/m", {"metadata": {"finalizers": [OURS]}}, MERGE)
            bench.ask("DELETE", f"{MACHINES}/m")
            assert await self.state(bench, made) == (True, stopped, not stopped)
            if verdict:
                status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
                bench.ask("PATCH", f"{MACHINES}/m/status", status, MERGE)
                assert (await self.state(bench, made))[1] is True

        played(story, machine=("x/y", OURS))
