"""Removal of routes: withdrawn first, deleted once all proxies know, and never blocking the end of a sandbox."""

from __future__ import annotations

import pytest
from tests.kube.fake import Refusal
from tests.operator.rig import fake_istio
from tests.operator.rig.fork_bench import OWN, SERVICES
from tests.operator.rig.gateways import PATH
from tests.operator.rig.route_bench import NAME, THEIRS, Bench, run_story

from dayfly.execute.gateway.preview import PREVIEW_LABEL
from dayfly.execute.gateway.render import ROUTE_LABEL, WITHDRAWN_ANNOTATION
from dayfly.execute.istio.rules import RuleOwner
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.operator.routes.differences import PATIENCE_MS, SETTLE_MS
from dayfly.operator.routes.route_reconciler import CONFLICT_RETRY_AFTER_S
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Running
from dayfly.spec.lifecycle import DRAIN_MS
from dayfly.spec.run import State

HOLDS = Running(since=1, ready=False, reason=Reason.STOPPING, message=messages.kept_by_address("shop/site"))


class Removing(Bench):
    """A fork with a route that leads to it."""

    async def begin(self) -> None:
        await super().begin()
        await self.keep()
        self.accept_current()
        self.look()

    async def remove(self) -> str:
        """Remove the route as far as possible, and return its state (led, withdrawn or gone)."""
        self.changes.clear()
        self.later.clear()
        await self.routes.remove(self.run, NAME, self.noted)
        ours = self.ours()
        if not ours:
            return "gone"
        meta = ours[0]["metadata"]
        return "withdrawn" if WITHDRAWN_ANNOTATION in meta["annotations"] else "led"

    def accept_current(self) -> None:
        """The Gateways have accepted the current version of the route."""
        [ours] = self.ours()
        self.accept_route(ours["metadata"]["name"])

    def address(self, to: str) -> None:
        """Let an endpoint's address lead to this Service."""
        owner = {"apiVersion": "v1", "kind": "Run", "name": "box", "uid": self.run.metadata.uid}
        meta = {"name": "site", "labels": {PREVIEW_LABEL: "site", RUN_LABEL: "box"}, "ownerReferences": [owner]}
        self.caches.runs.put(self.run)
        spec = {"rules": [{"backendRefs": [{"name": to, "port": 80}]}]}
        self.ask("POST", PATH, {"metadata": meta, "spec": spec})


def removing(story) -> None:
    run_story(story, Removing)


def test_route_is_deleted_once_its_gateways_know_it_is_withdrawn():
    async def story(bench: Removing):
        assert (await bench.remove(), bench.later) == ("withdrawn", [CONFLICT_RETRY_AFTER_S])
        assert (await bench.remove(), bench.changes) == ("withdrawn", [])
        assert bench.later == [pytest.approx(PATIENCE_MS / 1000 + 0.001)]
        bench.clock += 1_000
        bench.accept_current()
        assert await bench.remove() == "withdrawn"
        assert bench.later == [pytest.approx(SETTLE_MS / 1000 + 0.001)]
        bench.clock += SETTLE_MS - 1
        assert await bench.remove() == "withdrawn"
        assert bench.later == [pytest.approx(0.002)], "it counts from when they first knew"
        bench.clock += 1
        assert (await bench.remove(), bool(bench.noted), bench.later) == ("gone", False, [])

    removing(story)


def test_route_is_deleted_in_time_whatever_its_gateways_report():
    async def story(bench: Removing):
        await bench.remove()
        await bench.remove()
        bench.clock += PATIENCE_MS - 1
        bench.accept_current()
        assert await bench.remove() == "withdrawn"
        bench.clock += 1
        assert await bench.remove() == "gone"

    removing(story)


@pytest.mark.parametrize(("status", "then"), [(409, "led"), (403, "gone")], ids=["changed", "forbidden"])
def test_route_that_may_not_be_withdrawn_is_deleted_at_once(status, then):
    """Rather a few failed requests than a sandbox that cannot end."""

    async def story(bench: Removing):
        bench.server.refuses = lambda request: Refusal(status, "no") if request.method == "PUT" else None
        assert (await bench.remove(), bench.later) == (then, [CONFLICT_RETRY_AFTER_S])

    removing(story)


def test_route_that_led_again_is_withdrawn_for_the_full_time():
    async def story(bench: Removing):
        await bench.remove()
        await bench.remove()
        bench.clock += PATIENCE_MS
        bench.look()
        await bench.keep()
        assert await bench.remove() == "withdrawn"
        assert await bench.remove() == "withdrawn"
        assert bench.later == [pytest.approx(PATIENCE_MS / 1000 + 0.001)]

    removing(story)


def test_nothing_is_remembered_of_a_route_that_is_over():
    """Otherwise a resting run would stay in memory."""

    async def story(bench: Removing):
        await bench.remove()
        await bench.remove()
        assert bench.noted
        bench.claim(State.DONE)
        await bench.observe()
        assert not bench.noted

    removing(story)


def test_route_ends_only_after_its_virtual_service_rules():
    async def story(bench: Bench):
        await bench.meshed({**THEIRS, "name": RuleOwner(1, "box", OWN).name(0)})
        assert await bench.read_ending_fact() == Running(since=1, ready=False)
        await bench.routes.remove(bench.run, NAME, bench.noted)
        assert isinstance(await bench.read_ending_fact(), Ended)

    run_story(story)


def test_route_ends_only_after_addresses_that_lead_to_its_fork():
    """After it leads elsewhere, open requests have the drain time."""

    async def story(bench: Bench):
        bench.address(OWN)
        assert await bench.read_ending_fact() == HOLDS
        bench.ask("DELETE", f"{PATH}/site")
        await bench.read_ending_fact()
        bench.clock += SETTLE_MS
        assert (await bench.read_ending_fact()).message == messages.draining()
        bench.clock += DRAIN_MS - 1
        bench.address(OWN)
        assert await bench.read_ending_fact() == HOLDS
        bench.ask("DELETE", f"{PATH}/site")
        await bench.read_ending_fact()
        bench.clock += SETTLE_MS
        assert (await bench.read_ending_fact()).message == messages.draining(), "they have all of it again"
        bench.clock += DRAIN_MS
        assert isinstance(await bench.read_ending_fact(), Ended)

    class Led(Removing):
        async def begin(self) -> None:
            await Bench.begin(self)

    run_story(story, Led)


def test_route_that_was_never_created_ends_at_once():
    async def story(bench: Bench):
        bench.later.clear()
        await bench.routes.remove(bench.run, NAME, bench.noted)
        assert bench.later == [0.0], "no event would wake the run"
        assert isinstance(await bench.read_ending_fact(), Ended)

    run_story(story)


@pytest.mark.parametrize(("newest", "left"), [(True, 0), (False, 1)])
def test_late_service_and_route_of_an_ended_route_are_removed(newest, left):
    """A paused peer may have created them. If the run has changed, an operator with the current version removes them."""

    async def story(bench: Removing):
        meta = bench.meta("f-web-2")
        meta["labels"] = {RUN_LABEL: "box", ROUTE_LABEL: OWN}
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        bench.ask("POST", SERVICES, {"metadata": meta, "spec": spec})
        bench.look()
        bench.claim(State.DONE)
        if not newest:
            bench.revised()
        await bench.keep()
        services = [each["metadata"]["name"] for each in bench.server.objects("services")]
        assert (len(bench.ours()), services.count("f-web-2")) == (left, left)

    removing(story)


def test_forbidden_deletion_does_not_stop_other_deletions():
    """The operator may have lost its rights in one of the namespaces."""

    async def story(bench: Removing):
        [first] = bench.ours()
        meta = {key: first["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
        bench.ask("POST", PATH, {"metadata": {**meta, "name": "a-second"}, "spec": first["spec"]})
        bench.look()
        names = sorted(each["metadata"]["name"] for each in bench.ours())
        bench.server.refuses = lambda request: (
            Refusal(403, "no") if request.method == "DELETE" and request.path.endswith(names[0]) else None
        )
        with pytest.raises(errors.Forbidden):
            await bench.routes.clear("box")
        assert [each["metadata"]["name"] for each in bench.ours()] == names[:1]
        bench.server.refuses = lambda _request: None
        await bench.routes.clear("box")
        assert bench.ours() == []

    removing(story)


def test_forbidden_virtual_service_does_not_stop_the_others():
    """The garbage collector does not remove rules from VirtualServices of other owners."""

    async def story(bench: Bench):
        mine = {**THEIRS, "name": RuleOwner(1, "box", OWN).name(0)}
        await bench.meshed(mine)
        body = {"metadata": {"name": "a"}, "spec": {"hosts": ["a"], "http": [mine, THEIRS]}}
        bench.ask("POST", fake_istio.path(), body)
        bench.look()
        bench.server.refuses = lambda request: (
            Refusal(403, "no") if request.method != "GET" and request.path.endswith("/a") else None
        )
        with pytest.raises(errors.Forbidden):
            await bench.routes.clear("box")
        rules = {each["metadata"]["name"]: each["spec"]["http"] for each in bench.server.objects("virtualservices")}
        assert rules == {"a": [mine, THEIRS], "web": [THEIRS]}

    run_story(story)


@pytest.mark.parametrize(("within", "left"), [(None, 0), ({"shop"}, 0), ({"bank"}, 1), (set(), 1)])
def test_rules_are_removed_only_where_the_run_had_routes(within, left):
    """In other namespaces, other users may write rules in the run's name."""

    async def story(bench: Bench):
        await bench.meshed({**THEIRS, "name": RuleOwner(1, "box", OWN).name(0)})
        await bench.routes.clear("box", within)
        [web] = bench.server.objects("virtualservices")
        assert web["spec"]["http"][left:] == [THEIRS]

    run_story(story)
