"""Addresses of endpoints: when one works, what it waits for, where it leads, and when it is removed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.kube.fake import Fault, Harm, Refusal, run
from tests.operator.rig.fork_bench import NAME, OWN, SERVICES, UNIT, ForkBench
from tests.operator.rig.gateways import KINDS
from tests.operator.rig.kubelet import EPOCH_MS

from dayfly.execute.fork.read import ForkService
from dayfly.execute.gateway.preview import PREVIEW_LABEL, PreviewGateway, label
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.execute.pod.read import format_time
from dayfly.kube.objects import Key
from dayfly.operator.refusals import KEPT_RETRY_AFTER_S
from dayfly.operator.routes.previews import PATIENCE_MS, SETTLE_MS, Previews
from dayfly.operator.routes.route_builder import fork_of
from dayfly.operator.routes.route_memory import RouteMemory
from dayfly.plan.sealed import seal
from dayfly.plan.world import Running, UnitRefusal, Waiting
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import Kind, PreviewUnit, Route, Unit, route_id
from dayfly.spec.run import EndRequest, State, UnitRecord

EDGE = PreviewGateway("edges", "edge", "example.com", "https")
ROUTES = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes"
SHOWN = label("box", "u", "page")
STEP = "preview:page"
WITHOUT_GRANT = (
    "forked by sandboxes of shop: an administrator can annotate it dayfly.dev/sandboxes-from=shop "
    "(separate several names with commas)"
)


def page(**more: Any) -> Unit:
    wished = {"scheme": "http", "host": "web.shop.svc", "port": 80, "key": "k", **more}
    return Unit(name="page", kind=Kind.PREVIEW, preview=PreviewUnit(**wished))


class Bench(ForkBench):
    """The bench with an endpoint before `web`, and a Gateway whose status the test sets."""

    def __init__(
        self, *, edge: PreviewGateway | None = EDGE, served: bool = True, forked: bool = False, **wished: Any
    ) -> None:
        super().__init__()
        for kind in KINDS:
            self.server.serve(kind)
        self.plan = seal((), (page(**wished), *((UNIT,) if forked else ())))
        self.step = self.plan.kept[STEP]
        self.clock, self.later = EPOCH_MS, list[float]()  # the clock of the server
        self.caches.now = lambda: self.clock
        self.caches.queue = SimpleNamespace(
            add=lambda _key, after=0.0, **_: self.later.append(after), backoff=lambda _failures: 0.2
        )
        self.caches.follow_also = lambda _kind, _cache: None
        self.served = served
        self.labels: dict[str, str] | None = {"app": "web"}
        self.previews = Previews(self.caches, edge, SimpleNamespace(read=self._labels))
        self.routes = RouteMemory()

    async def _labels(self, _of: Any) -> dict[str, str] | None:
        return self.labels

    def shown(self) -> dict[str, Any] | None:
        return next(iter(self.server.objects("httproutes")), None)

    def sync_cache(
        self, *, accepted: str = "", refs: str = "", generation: int | None = None, at: int | None = None
    ) -> None:
        """Update the cache to the current routes, with the status of their Gateway."""
        self.look()
        for route in self.caches.gateway.routes["httproutes"]:
            self.caches.gateway.routes["httproutes"].drop(Key.from_object(route))
        for item in self.server.objects("httproutes"):
            seen = item["metadata"].get("generation", 1) if generation is None else generation
            said = [("Accepted", accepted), ("ResolvedRefs", refs)]
            told = [
                {
                    "type": kind,
                    "status": status,
                    "reason": "NoMatchingParent",
                    "message": "none",
                    "observedGeneration": seen,
                    "lastTransitionTime": format_time(self.clock if at is None else at),
                }
                for kind, status in said
                if status
            ]
            whole = {**item, "status": {"parents": [{"conditions": told}]}}
            self.caches.gateway.routes["httproutes"].put(msgspec.convert(whole, RouteObject))

    async def observe(self) -> tuple[str, str, str]:
        """Return its reason, why it leads nowhere, and its address."""
        fact, lack, url = await self.previews.observe(self.run, self.step, 5, self.routes)
        assert fact.since == 5
        assert isinstance(fact, Running | Waiting)
        return (fact.message if isinstance(fact, Waiting) else ""), lack, url

    async def keep(self) -> None:
        self.later.clear()
        await self.previews.keep(self.run, self.plan, [STEP], self.routes)

    def leads_to(self) -> str:
        found = self.shown()
        assert found is not None
        return str(found["spec"]["rules"][0]["backendRefs"][0]["name"])


def played(story: Any, **how: Any) -> Any:
    async def main() -> Any:
        bench = Bench(**how)
        if bench.served:
            await bench.caches.gateway.discover()
        return await story(bench)

    return run(main())


class TestStanding:
    def test_address_works_once_its_gateway_has_settled(self):
        async def story(bench: Bench):
            bench.sync_cache()
            assert await bench.observe() == ("its route is being written", "", "")
            assert bench.later == [PATIENCE_MS / 1000 + 0.001]
            await bench.keep()
            bench.sync_cache()
            assert (await bench.observe())[0] == "Gateway edges/edge has not accepted the route yet"
            bench.sync_cache(accepted="True", refs="True")
            bench.later.clear()
            assert (await bench.observe())[0] == "its Gateway has accepted it and is configuring its proxies"
            assert bench.later == [SETTLE_MS / 1000 + 0.001]
            bench.clock += SETTLE_MS - 1
            assert (await bench.observe())[2] == ""
            bench.clock += 1
            assert await bench.observe() == ("", "", f"https://{SHOWN}.example.com")

        played(story)

    def test_gateway_clock_ahead_delays_no_address(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            bench.sync_cache(accepted="True", refs="True", at=bench.clock + 60_000)
            await bench.observe()
            bench.clock += SETTLE_MS
            assert (await bench.observe())[2]

        played(story)

    def test_address_without_a_gateway_status_is_given_up(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.observe()
            bench.clock += PATIENCE_MS - 1
            assert (await bench.observe())[0] == "its route is being written"
            assert bench.later[-1] == pytest.approx(0.002)
            bench.clock += 1
            assert await bench.observe() == ("", "its route is being written", "")

        played(story)

    def test_wait_for_a_gateway_survives_a_restart(self):
        """A resting run has no memory, and the server's clock may be ahead of the operator's."""

        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            bench.sync_cache()
            bench.clock += PATIENCE_MS - 1
            assert (await bench.observe())[0] == "Gateway edges/edge has not accepted the route yet"
            bench.routes = RouteMemory()
            bench.clock += 1
            assert await bench.observe() == ("", "Gateway edges/edge has not accepted the route yet", "")
            bench.routes = RouteMemory()
            bench.clock -= 60_000
            assert (await bench.observe())[0]
            bench.clock += PATIENCE_MS
            assert (await bench.observe())[1]

        played(story)

    def test_refusal_of_a_gateway_is_reported(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            bench.sync_cache(accepted="False", refs="True")
            said = "Gateway edges/edge rejects the route: NoMatchingParent: none"
            assert await bench.observe() == ("", said, "")
            bench.sync_cache(accepted="False", refs="True", generation=0)
            assert (await bench.observe())[0], "an older form causes no change"

        played(story)

    def test_changed_hostname_is_written_again(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            bench.ask("PATCH", f"{ROUTES}/{SHOWN}", {"spec": {"hostnames": ["other"]}}, "application/merge-patch+json")
            bench.sync_cache(accepted="True", refs="True")
            bench.clock += SETTLE_MS
            assert (await bench.observe())[0] == "its route is being written"

        played(story)

    def test_refused_write_is_reported(self):
        async def story(bench: Bench):
            bench.sync_cache()
            bench.routes.stuck[STEP] = UnitRefusal(reason="r", message="a quota", since=1)
            assert await bench.observe() == ("", "a quota", "")

        played(story)

    @pytest.mark.parametrize(
        ("how", "said"),
        [
            ({"edge": None}, "endpoints get addresses only if the operator has the option --preview-gateway"),
            ({"served": False}, "endpoints get addresses from the Gateway API, which is not installed"),
            ({"scheme": "https"}, "a Gateway connects to it without TLS, so it would not answer"),
            ({"port": 81}, "there is no Service web.shop.svc with port 81"),
            ({"host": "other.shop.svc"}, "there is no Service other.shop.svc with port 80"),
            ({"host": "web"}, f"workloads of namespace default may not be {WITHOUT_GRANT}"),
            ({"host": "web.shop"}, ""),
        ],
    )
    def test_endpoint_without_an_address_reports_why(self, how, said):
        async def story(bench: Bench):
            bench.sync_cache()
            assert (await bench.observe())[1] == said
            assert bench.previews.is_impossible(bench.step) is bool(said)
            await bench.keep()
            assert (bench.shown() is None) is bool(said)

        played(story, **how)

    def test_service_without_ports_gets_no_address(self):
        """Kubernetes stores a Service without ports in this form."""

        async def story(bench: Bench):
            bench.ask("POST", SERVICES, {"metadata": {"name": "bare"}, "spec": {"clusterIP": "None"}})
            bench.sync_cache()
            assert (await bench.observe())[1] == "there is no Service bare.shop.svc with port 80"

        played(story, host="bare.shop.svc")

    def test_services_of_another_namespace_need_a_grant(self):
        async def story(bench: Bench):
            bench.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "away"}})
            bench.sync_cache()
            assert "an administrator can annotate it dayfly.dev/sandboxes-from=shop" in (await bench.observe())[1]
            assert bench.later == [KEPT_RETRY_AFTER_S + 0.001]
            notes = {"metadata": {"annotations": {"dayfly.dev/sandboxes-from": "shop"}}}
            bench.ask("PATCH", "/api/v1/namespaces/away", notes, "application/merge-patch+json")
            assert (await bench.observe())[1] == "there is no Service web.away.svc with port 80"

        played(story, host="web.away.svc")


class TestKeeping:
    def test_address_is_created_restored_and_removed(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            made = bench.shown()
            assert (made["metadata"]["name"], made["metadata"]["labels"][PREVIEW_LABEL]) == (SHOWN, "page")
            assert made["spec"]["hostnames"] == [f"{SHOWN}.example.com"]
            bench.sync_cache()
            await bench.keep()
            assert bench.changes == []
            bench.ask("PATCH", f"{ROUTES}/{SHOWN}", {"spec": {"hostnames": ["other"]}}, "application/merge-patch+json")
            bench.sync_cache()
            await bench.keep()
            assert bench.shown()["spec"]["hostnames"] == [f"{SHOWN}.example.com"]
            bench.sync_cache()
            await bench.previews.keep(bench.run, bench.plan, [], bench.routes)
            assert bench.shown() is None

        played(story)

    def test_only_address_routes_are_removed_with_their_unit(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            made = bench.shown()
            for name, labels in (("a-route", {}), ("a-preview", {PREVIEW_LABEL: "a"})):
                labels |= {RUN_LABEL: bench.run.metadata.name}
                meta = {"name": name, "labels": labels, "ownerReferences": made["metadata"]["ownerReferences"]}
                bench.ask("POST", ROUTES, {"metadata": meta, "spec": made["spec"] | {"hostnames": ["other"]}})
            bench.sync_cache(accepted="True", refs="True")
            assert (await bench.observe())[0] == "its Gateway has accepted it and is configuring its proxies"
            bench.plan = seal(())
            await bench.keep()
            left = [each["metadata"]["name"] for each in bench.server.objects("httproutes")]
            assert left == ["a-route"], "the addresses are no longer in the spec"

        played(story)

    def test_address_of_a_closed_run_is_removed(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            bench.sync_cache()
            closed = msgspec.structs.replace(bench.run.ledger, closed=EndRequest(at=1, reason="Deleted"))
            bench.run = msgspec.structs.replace(bench.run, ledger=closed)
            await bench.keep()
            assert bench.shown() is None

        played(story)

    def test_forbidden_deletion_does_not_stop_other_addresses(self):
        """Each is in the namespace of its Service, where the operator may have lost its rights."""

        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            one = bench.shown()
            assert one is not None
            for name in ("a", "b"):
                meta = {key: one["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
                bench.ask("POST", ROUTES, {"metadata": {**meta, "name": name}, "spec": one["spec"]})
            bench.sync_cache()
            tries = []

            def refuse(request):
                if request.method != "DELETE" or not request.path.endswith("/a"):
                    return None
                tries.append(request)
                return Refusal(403, "no")

            bench.server.refuses = refuse
            for _ in range(2):
                await bench.previews.keep(bench.run, bench.plan, [], bench.routes)
            assert bench.routes.retries
            assert len(tries) == 1, "the second turn comes too soon after the refusal"
            assert [each["metadata"]["name"] for each in bench.server.objects("httproutes")] == ["a"]

        played(story)

    def test_route_of_another_owner_stays(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            patch = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Run", "name": "box", "uid": "x"}]}}
            bench.ask("PATCH", f"{ROUTES}/{SHOWN}", patch, "application/merge-patch+json")
            bench.sync_cache()
            await bench.previews.keep(bench.run, bench.plan, [], bench.routes)
            assert bench.shown() is not None
            assert await bench.previews.remove(bench.run, "page", bench.routes) is True

        played(story)

    def test_refusal_is_remembered_until_the_next_write(self):
        async def story(bench: Bench):
            bench.sync_cache()
            bench.server.denied = {("create", "httproutes.gateway.networking.k8s.io")}
            await bench.keep()
            assert bench.routes.stuck[STEP].message
            assert bench.later == [0.0]
            await bench.keep()
            assert bench.later == [KEPT_RETRY_AFTER_S], "the same report is not written twice"
            bench.server.denied = set()
            await bench.keep()
            assert (bench.routes.stuck, bench.later) == ({}, [0.0])
            bench.sync_cache()
            await bench.keep()
            assert bench.later == []

        played(story)

    def test_conflict_is_retried_soon(self):
        async def story(bench: Bench):
            bench.sync_cache()
            bench.server.faults = lambda call: Fault(Harm.CONFLICT) if call.write is not None else None
            await bench.keep()
            assert (bench.later, bench.routes.stuck) == ([1.0], {})

        played(story)

    def test_whether_it_is_gone_the_server_says(self):
        async def story(bench: Bench):
            assert await bench.previews.remove(bench.run, "page", bench.routes) is True
            bench.sync_cache()
            await bench.keep()
            assert await bench.previews.remove(bench.run, "other", bench.routes) is True
            assert await bench.previews.remove(bench.run, "page", bench.routes) is False
            assert bench.shown() is None
            assert await bench.previews.remove(bench.run, "page", bench.routes) is True
            bench.server.forget("httproutes")
            assert await bench.previews.remove(bench.run, "page", bench.routes) is True

        played(story)


class TestLeading:
    @pytest.mark.parametrize(
        ("labels", "port", "to"),
        [
            *(({"app": "web"}, 80, OWN), ({"app": "other"}, 80, "web"), (None, 80, "web")),
            *(({"app": "web"}, 81, "web"), ({"app": "web"}, None, "web")),
        ],
    )
    def test_address_leads_to_the_fork_of_its_service(self, labels, port, to):
        async def story(bench: Bench):
            assert NAME in bench.plan.kept
            if port is None:
                bench.ask("POST", SERVICES, {"metadata": bench.meta(OWN), "spec": {"clusterIP": "None"}})
            else:
                bench.service(port=port)
            bench.labels = labels
            bench.sync_cache()
            await bench.keep()
            assert bench.leads_to() == to

        played(story, forked=True)

    @pytest.mark.parametrize(("within", "to"), [("shop", OWN), ("away", "web")])
    def test_address_of_a_group_leads_to_the_fork_of_its_key(self, within, to):
        """A group's run has no forks, so its address follows the key."""

        async def story(bench: Bench):
            of = lifecycle.Baseline(kind="Deployment", namespace=within, name="web")
            route = Unit(name=f"{within}/web", kind=Kind.ROUTE, route=Route(baseline=of, keys=("k",)))
            records = {route_id(of): UnitRecord(attempt=1, state=State.CLAIMED, kind="route")}
            spec = msgspec.structs.replace(bench.run.spec, forks=(route,))
            ledger = msgspec.structs.replace(bench.run.ledger, units=records)
            bench.caches.runs.put(msgspec.structs.replace(bench.run, spec=spec, ledger=ledger))
            bench.service()
            bench.sync_cache()
            if within != "shop":
                meta = {"name": fork_of(bench.run, of).name, "namespace": within, "uid": "away"}
                bench.caches.services.put(
                    msgspec.convert({"metadata": meta, "spec": {"ports": [{"port": 80}]}}, ForkService)
                )
            await bench.keep()
            assert bench.leads_to() == to

        played(story)

    @pytest.mark.parametrize(("to", "goes"), [(OWN, True), ("web-2", False), ("nothing", False)])
    def test_address_stuck_at_a_fork_is_removed(self, to, goes):
        """The fork could not end. Other leftovers of the address do no harm."""

        async def story(bench: Bench):
            bench.service()
            ports = {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
            bench.ask("POST", "/api/v1/namespaces/shop/services", {"metadata": {"name": "web-2"}, **ports})
            bench.sync_cache()
            await bench.keep()
            rules = [{"backendRefs": [{"name": to, "port": 80}]}]
            bench.ask("PATCH", f"{ROUTES}/{SHOWN}", {"spec": {"rules": rules}}, "application/merge-patch+json")
            bench.sync_cache()
            bench.server.denied = {("update", "httproutes.gateway.networking.k8s.io")}
            await bench.keep()
            assert bench.routes.stuck[STEP].message
            assert (bench.shown() is None) is goes

        played(story)

    def test_address_without_a_fork_leads_to_its_service(self):
        async def story(bench: Bench):
            bench.sync_cache()
            await bench.keep()
            assert bench.leads_to() == "web"
            assert "sd-sandbox=k" in json.dumps(bench.shown()), "and gives the key"

        played(story, forked=True)
