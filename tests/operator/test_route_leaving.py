"""How a route goes: no request fits it first, and it is taken away once all proxies know that; each rule alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rig.routing import NAME, Timed

from dayfly.execute.gateway import render
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import ROUTE_LABEL
from dayfly.execute.gateway.run import HTTP_ROUTES
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.operator.routes.route_reconciler import CONFLICT_S, RouteReconciler
from dayfly.operator.routes.standing import PATIENCE_MS, SETTLE_MS
from dayfly.plan import words
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Running
from dayfly.spec.lifecycle import DRAIN_MS
from dayfly.spec.routing import Forms
from dayfly.spec.run import State, UnitRecord
from kube.fake import run

RULE = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "f-web", "port": 80}]}


class Bench(Timed):
    """One route of the run, and what is done to it."""

    def __init__(self, *, stays: bool = False) -> None:
        super().__init__()
        self.routes = RouteReconciler(self.caches, Forms(), SimpleNamespace(of=None))
        self.done: list[str] = []
        self.fault: Exception | None = None
        self.routes._routes = SimpleNamespace(keep=self._keep, remove=self._remove)
        self.woven: list[tuple[str, set[str]]] = []
        self.left_woven: list[Any] = []
        self.strays, self.held = False, ""
        weaver = SimpleNamespace(has_strays=lambda *_: self.strays, tidy=self._tidy_woven, left=self._left_woven)
        self.routes._weaver = weaver
        self.memory = RouteMemory()
        self.stays = stays

    async def _keep(self, _kind: Any, _seen: Any, manifest: Any) -> None:
        if self.fault is not None:
            raise self.fault
        assert manifest["spec"]["rules"] != [RULE]
        self.done.append("withdrawn")

    async def _remove(self, _kind: Any, _seen: Any) -> None:
        self.done.append("removed")

    async def _left_woven(self, *_: Any) -> list[Any]:
        return self.left_woven

    async def _tidy_woven(self, name: str, stays: set[str], _within: Any) -> None:
        self.woven.append((name, stays))

    def route(self, *, withdrawn: bool = False, seen: int | None = None, deleted: bool = False) -> RouteObject:
        meta = {"name": "r", "namespace": "shop", "uid": "r", "generation": 2, "labels": {RUN_LABEL: "box"}}
        meta["labels"][ROUTE_LABEL] = "f-web"
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Run", "name": "box", "uid": self.run.metadata.uid}]
        if deleted:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        body = {"metadata": meta, "spec": {"rules": [RULE]}}
        if seen is not None:
            told = [{"type": "Accepted", "status": "True", "observedGeneration": seen}]
            body["status"] = {"parents": [{"conditions": told}]}
        found = msgspec.convert(body, RouteObject)
        if withdrawn:
            gone = render.withdrawn(HTTP_ROUTES, found)
            noted = {**meta, "annotations": gone["metadata"]["annotations"]}
            found = msgspec.convert({**body, "metadata": noted, "spec": gone["spec"]}, RouteObject)
            assert render.is_withdrawn(found)
        return found

    async def hold(self, _run: Any, key: Any, _of: Any, memory: RouteMemory) -> str:
        if self.held:
            memory.led[key] = {}
        return self.held

    def _claimed(self) -> RunObject:
        units = {NAME: UnitRecord(attempt=1, state=State.CLAIMED, kind="route", claimed_at=1)}
        return msgspec.structs.replace(self.run, ledger=msgspec.structs.replace(self.run.ledger, units=units))

    async def goes(self) -> Any:
        """What is known of the route, of which nothing is left, and nothing was seen."""
        return await self.routes._going(self._claimed(), NAME, self.clock, self.memory, None)

    async def removes(self) -> list[float]:
        self.later.clear()
        await self.routes.remove(self._claimed(), NAME, self.memory)
        return self.later

    async def take(self, seen: RouteObject) -> list[str]:
        self.done.clear()
        await self.routes._take_away(self.run, (NAME, 1), (HTTP_ROUTES, seen), self.memory)
        return list(self.done)


def played(story: Any) -> Any:
    async def main() -> Any:
        return await story(Bench())

    return run(main())


class TestTaking:
    def test_no_request_fits_it_first(self):
        async def story(bench: Bench):
            assert await bench.take(bench.route()) == ["withdrawn"]
            assert bench.later == [CONFLICT_S]
            assert await bench.take(bench.route(deleted=True)) == []
            assert len(bench.later) == 1

        played(story)

    @pytest.mark.parametrize(
        ("fault", "done"),
        [
            (errors.Conflict("PUT", "moved", status=409), []),
            (errors.NotFound("PUT", "gone", status=404), []),
            (errors.Forbidden("PUT", "no", status=403), ["removed"]),
        ],
    )
    def test_what_may_not_be_withdrawn_goes_at_once(self, fault, done):
        """Better a few requests are lost than that a sandbox cannot end."""

        async def story(bench: Bench):
            bench.fault = fault
            assert await bench.take(bench.route()) == done
            assert bench.later == [CONFLICT_S]

        played(story)

    def test_it_goes_a_moment_after_its_gateways_know(self):
        async def story(bench: Bench):
            assert await bench.take(bench.route(withdrawn=True, seen=1)) == []
            assert bench.later[-1] == pytest.approx(PATIENCE_MS / 1000 + 0.001)
            bench.clock += 1_000
            assert await bench.take(bench.route(withdrawn=True, seen=2)) == []
            assert bench.later[-1] == pytest.approx(SETTLE_MS / 1000 + 0.001)
            bench.clock += SETTLE_MS - 1
            assert await bench.take(bench.route(withdrawn=True, seen=2)) == []
            assert bench.later[-1] == pytest.approx(0.002), "it counts from when they first knew"
            bench.clock += 1
            bench.later.clear()
            assert await bench.take(bench.route(withdrawn=True, seen=2)) == ["removed"]
            assert (bool(bench.memory), bench.later) == (False, [])

        played(story)

    def test_whatever_they_say_it_goes_in_time(self):
        async def story(bench: Bench):
            await bench.take(bench.route(withdrawn=True, seen=1))
            bench.clock += PATIENCE_MS - 1
            assert await bench.take(bench.route(withdrawn=True, seen=1)) == []
            assert await bench.take(bench.route(withdrawn=True, seen=2)) == []
            bench.clock += 1
            assert await bench.take(bench.route(withdrawn=True, seen=2)) == ["removed"]

        played(story)

    def test_one_that_may_not_be_deleted_is_not_withdrawn_anew(self):
        async def story(bench: Bench):
            async def no(*_):
                raise errors.Forbidden("DELETE", "no", status=403)

            await bench.take(bench.route(withdrawn=True, seen=2))
            bench.clock += PATIENCE_MS
            bench.routes._routes.remove = no
            with pytest.raises(errors.Forbidden):
                await bench.take(bench.route(withdrawn=True, seen=2))
            assert bench.memory

        played(story)

    def test_of_one_that_somebody_else_has_deleted_nothing_is_remembered_once_its_route_is_over(self):
        """A run that rests is kept in memory for whatever is remembered of it."""

        async def story(bench: Bench):
            await bench.take(bench.route(withdrawn=True, seen=1))
            bench.memory.gone_at[NAME, 1], bench.memory.led[NAME, 1] = bench.clock, {}
            bench.memory.gone_at["route:shop/page", 1] = bench.clock
            alive = {(NAME, 1)}
            bench.memory.keep_only(alive)
            assert bench.memory.gone_at.keys() == bench.memory.led.keys() == bench.memory.withdrawn_at.keys() == alive
            over = UnitRecord(attempt=1, state=State.DONE, kind="route", claimed_at=1)
            ledger = msgspec.structs.replace(bench.run.ledger, units={NAME: over})
            run_ = msgspec.structs.replace(bench.run, ledger=ledger)
            await bench.routes.observe(run_, seal(()), bench.clock, bench.memory)
            assert not bench.memory

        played(story)

    def test_one_that_was_wanted_again_meanwhile_gives_its_requests_time_once_more(self):
        async def story(bench: Bench):
            await bench.take(bench.route(withdrawn=True, seen=2))
            bench.clock += PATIENCE_MS
            assert await bench.take(bench.route()) == ["withdrawn"], "it led again, and is to go now"
            assert await bench.take(bench.route(withdrawn=True, seen=1)) == []
            assert bench.later[-1] == pytest.approx(PATIENCE_MS / 1000 + 0.001)

        played(story)


class TestWoven:
    def test_as_long_as_somebodys_rules_lead_to_the_fork_it_has_not_gone(self):
        async def story(bench: Bench):
            bench.routes._addresses = SimpleNamespace(hold=bench.hold)
            bench.left_woven = ["a VirtualService"]
            assert await bench.goes() == Running(since=1, ready=False)
            bench.left_woven = []
            assert isinstance(await bench.goes(), Ended)

        played(story)


class TestAddresses:
    """What other runs' addresses lead to the fork is waited for after its own routes have gone."""

    def test_it_goes_on_once_none_does_and_gives_its_requests_time(self):
        async def story(bench: Bench):
            said = "an address leads to it"
            bench.routes._addresses = SimpleNamespace(hold=bench.hold)
            bench.held = said
            assert await bench.goes() == Running(since=1, ready=False, reason=Reason.STOPPING, message=said)
            assert await bench.removes() == [], "it is woken by what it waits for"
            bench.held = ""
            assert (await bench.goes()).message == words.draining()
            bench.held = said
            bench.clock += DRAIN_MS
            assert (await bench.goes()).message == said
            bench.held = ""
            assert (await bench.goes()).message == words.draining(), "they have all of it once more"
            bench.clock += DRAIN_MS
            assert isinstance(await bench.goes(), Ended)

        played(story)

    def test_where_none_led_there_is_nothing_to_wait_for(self):
        async def story(bench: Bench):
            bench.routes._addresses = SimpleNamespace(hold=bench.hold)
            assert await bench.removes() == [0.0]
            assert isinstance(await bench.goes(), Ended), "nothing of it was ever there"

        played(story)


class TestTidying:
    @pytest.mark.parametrize(
        ("stays", "newest", "strays", "removed", "woven"),
        [
            (set(), True, False, 1, 1),
            (set(), False, False, 0, 0),
            ({"f-web"}, True, False, 0, 0),
            ({"f-web"}, True, True, 0, 1),
        ],
    )
    def test_what_no_living_route_is_for_goes(self, stays, newest, strays, removed, woven):
        async def story(bench: Bench):
            bench.caches.gateway.routes["httproutes"].put(bench.route())
            bench.strays = strays
            if not newest:
                bench.revised()
            await bench.routes._tidy(bench.run, stays)
            assert (bench.done.count("removed"), len(bench.woven)) == (removed, woven)
            assert all(each == ("box", stays) for each in bench.woven)

        played(story)

    def test_so_does_a_service_that_only_a_route_led_to(self):
        async def story(bench: Bench):
            meta = bench.meta("f-web-2")
            meta["labels"] = {RUN_LABEL: "box", ROUTE_LABEL: "f-web"}
            spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
            bench.ask("POST", "/api/v1/namespaces/shop/services", {"metadata": meta, "spec": spec})
            bench.look()
            await bench.routes._tidy(bench.run, {"f-web"})
            assert bench.server.store.get(bench.server.kind("services"), Key("shop", "f-web-2"))
            await bench.routes._tidy(bench.run, set())
            assert not bench.server.store.get(bench.server.kind("services"), Key("shop", "f-web-2"))
            assert len(bench.woven) == 1

        played(story)

    def test_with_a_run_that_is_gone_all_goes(self):
        async def story(bench: Bench):
            bench.caches.gateway.routes["httproutes"].put(bench.route())
            await bench.routes.clear("box")
            assert (bench.done, bench.woven) == (["removed"], [("box", set())])

        played(story)

    def test_what_may_not_be_taken_away_keeps_none_of_the_rest(self):
        """Rights may be taken back in one of its namespaces."""

        async def story(bench: Bench):
            route, routes = bench.route(), bench.caches.gateway.routes["httproutes"]
            for name in ("r", "s"):
                routes.put(msgspec.structs.replace(route, metadata=msgspec.structs.replace(route.metadata, name=name)))

            async def refused(_kind: Any, seen: RouteObject) -> None:
                if seen.metadata.name == "r":
                    raise errors.Forbidden("DELETE", "no", status=403)
                bench.done.append(seen.metadata.name)

            bench.routes._routes.remove = refused
            with pytest.raises(errors.Forbidden):
                await bench.routes.clear("box")
            assert (bench.done, bench.woven) == (["s"], [("box", set())])

        played(story)
