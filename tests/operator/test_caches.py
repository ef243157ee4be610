"""What a process knows of the cluster: which runs fork what, whose a run is, how old its caches are, and its clock."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from rig.gateways import KINDS as GATEWAY_KINDS
from rig.meshes import KIND as VIRTUAL_SERVICE
from rig.world import KINDS

from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.cache import Change
from dayfly.kube.client import Client
from dayfly.kube.objects import AnnotatedMeta, Key, ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from dayfly.operator.cluster.caches import Cluster, Forking, Targeting, belonging
from dayfly.operator.cluster.objects import SANDBOXES, TARGET_FINALIZER, RunObject, RunSpec, owner
from dayfly.operator.cluster.route_kinds import FIRST_LIST_S
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import Fork, Target, Unit
from dayfly.spec.run import Run
from dayfly.work.pace import Urgency
from dayfly.work.queue import work
from kube.fake import FakeCluster, run

GONE = errors.NotFound("GET box", "gone", status=404)
UNSERVED = errors.NotServed("GET box", "no such kind", status=404)
MOVED = errors.Conflict("PATCH box", "moved", status=409)
WEB, API = Key("shop", "web"), Key("bank", "api")


def a_run(name: str, *baselines: Key, target: str = "u") -> RunObject:
    units = tuple(
        Unit(
            name=of.name,
            kind="fork",
            fork=Fork(baseline=lifecycle.Baseline(kind="Deployment", namespace=of.namespace, name=of.name)),
        )
        for of in baselines
    )
    ledger = Run(uid=target, target=Target(kind="Sandbox", namespace="shop", name="box", uid=target), plan="")
    return RunObject(metadata=AnnotatedMeta(name=name, uid=name), ledger=ledger, spec=RunSpec(forks=units))


def told(note, name: str, old: RunObject | None, new: RunObject | None) -> RunObject | None:
    note(Change(Key("", name), old, new))
    return new


def test_a_run_is_found_by_the_baselines_that_it_forks_now():
    forking = Forking()
    first = told(forking.note, "a", None, a_run("a", WEB))
    told(forking.note, "b", None, a_run("b", WEB, API))
    assert (forking.of(WEB), forking.of(API)) == (["a", "b"], ["b"])
    assert (forking.within("shop"), forking.within("bank"), forking.within("none")) == (["a", "b"], ["b"], [])
    revised = told(forking.note, "a", first, a_run("a", API))
    assert (forking.of(WEB), forking.of(API)) == (["b"], ["a", "b"])
    told(forking.note, "a", revised, None)
    assert (forking.of(API), forking.within("bank")) == (["b"], ["b"])
    told(forking.note, "b", a_run("b", WEB, API), None)
    assert forking._runs == {}, "nothing is kept of baselines that nobody forks"


def test_runs_are_found_by_their_targets_uid():
    targets = Targeting()
    first = told(targets.note, "a", None, a_run("a"))
    second = told(targets.note, "b", None, a_run("b"))
    told(targets.note, "c", None, a_run("c", target="other"))
    assert (targets.of("u"), targets.of("other"), targets.of("none")) == (("a", "b"), ("c",), ())
    told(targets.note, "a", first, first)
    assert targets.of("u") == ("a", "b")
    told(targets.note, "a", first, None)
    assert targets.of("u") == ("b",)
    told(targets.note, "b", second, None)
    assert targets.of("u") == ()
    assert "u" not in targets._runs


@pytest.fixture
def cluster():
    return Cluster(Client(FakeCluster(extra=KINDS).transport("operator"), seed=1))


def test_a_run_takes_the_turn_of_its_targets_namespace(cluster):
    cluster.runs.put(a_run("a"))
    assert (cluster._namespace_of("a"), cluster._namespace_of("unknown")) == ("shop", "")


def test_its_age_is_that_of_the_most_backward_cache(cluster):
    """Before all have been whole once there is none; one that is added later counts from its first list on."""
    cluster.reflectors = [SimpleNamespace(age=age, synced=True) for age in (1.0, 7.0)]
    fresh = SimpleNamespace(age=float("inf"), synced=False)
    assert cluster.age == 7.0
    cluster.reflectors.append(fresh)
    assert cluster.age == float("inf")
    cluster._whole = True
    assert cluster.age == 7.0


def test_what_was_there_before_us_has_time(cluster):
    assert cluster.when_found() is Urgency.BACKGROUND
    cluster._whole = True
    assert cluster.when_found() is Urgency.NORMAL


def test_a_label_alone_makes_nothing_a_runs_own(cluster):
    def pod(name: str, *owners: OwnerReference) -> Pod:
        labels = {names.RUN_LABEL: "box"}
        meta = ObjectMeta(name=name, namespace="n", uid=name, labels=labels, owner_references=list(owners))
        return Pod(metadata=meta, spec=PodSpec(), status=PodStatus())

    reference = {"api_version": "v1", "uid": "r"}
    cluster.pods.put(pod("bare"))
    cluster.pods.put(pod("other-kind", OwnerReference(kind="Job", name="box", **reference)))
    cluster.pods.put(pod("other-run", OwnerReference(kind="Run", name="bix", **reference)))
    cluster.pods.put(pod("own", OwnerReference(kind="Run", name="box", **reference)))
    assert [each.metadata.name for each in belonging(cluster.pods, "box")] == ["own"]


class TestOurFinalizer:
    """It is taken off that very object, whatever a peer does meanwhile."""

    META = AnnotatedMeta(name="box", uid="r", finalizers=["theirs", TARGET_FINALIZER])

    class Server:
        """One that answers in turn: to patches with these faults, to reads with these forms."""

        def __init__(self, faults=(), forms=()) -> None:
            self.faults, self.forms = [*faults], [*forms]
            self.patches: list[str] = []

        async def patch(self, _resource, operations, *_args, **_options):
            self.patches.append(operations[-1]["path"])
            if self.faults and (fault := self.faults.pop(0)):
                raise fault

        async def get(self, *_args):
            form = self.forms.pop(0)
            if isinstance(form, Exception):
                raise form
            return SimpleNamespace(metadata=form)

    async def drop(self, cluster, meta=META, **how):
        cluster.client = server = self.Server(**how)
        await cluster.drop_finalizer(SANDBOXES, meta, TARGET_FINALIZER)
        return server.patches

    async def test_it_goes_in_one_write(self, cluster):
        assert await self.drop(cluster) == ["/metadata/finalizers/1"]

    @pytest.mark.parametrize("finalizers", [None, [], ["theirs"]])
    async def test_without_it_nothing_is_written(self, cluster, finalizers):
        assert await self.drop(cluster, msgspec.structs.replace(self.META, finalizers=finalizers)) == []

    async def test_what_is_gone_has_none(self, cluster):
        assert len(await self.drop(cluster, faults=[GONE])) == 1
        faults = [MOVED]
        assert len(await self.drop(cluster, faults=faults, forms=[GONE])) == 1

    @pytest.mark.parametrize("how", [{"faults": [UNSERVED]}, {"faults": [MOVED], "forms": [UNSERVED]}])
    async def test_what_is_out_of_sight_may_have_it_still(self, cluster, how):
        with pytest.raises(errors.NotServed):
            await self.drop(cluster, **how)

    async def test_it_is_found_where_it_has_moved(self, cluster):
        moved = msgspec.structs.replace(self.META, finalizers=[TARGET_FINALIZER])
        patches = await self.drop(cluster, faults=[MOVED], forms=[moved])
        assert patches == ["/metadata/finalizers/1", "/metadata/finalizers/0"]

    async def test_another_of_its_name_keeps_its_own(self, cluster):
        another = msgspec.structs.replace(self.META, uid="another")
        patches = await self.drop(cluster, faults=[MOVED], forms=[another])
        assert len(patches) == 1

    async def test_the_third_refusal_is_told(self, cluster):
        faults = [MOVED] * 3
        with pytest.raises(errors.Conflict):
            await self.drop(cluster, faults=faults, forms=[self.META] * 3)
        assert len(cluster.client.patches) == 3


async def test_it_is_whole_once_all_its_caches_are(cluster):
    """The last one to be is waited for as the first."""
    synced = [asyncio.Event() for _ in range(3)]
    cluster.reflectors = [SimpleNamespace(wait_synced=event.wait) for event in synced]
    waiting = asyncio.create_task(cluster.wait_synced())
    for event in synced:
        await asyncio.sleep(0)
        assert not waiting.done()
        assert cluster.when_found() is Urgency.BACKGROUND
        event.set()
    await waiting
    assert cluster.when_found() is Urgency.NORMAL


def test_what_belongs_to_a_run_names_it_and_does_not_hold_it_up():
    found = owner(a_run("box"))
    assert (found["kind"], found["name"], found["uid"]) == ("Run", "box", "box")
    assert found["blockOwnerDeletion"] is False


@pytest.mark.parametrize("kind", [VIRTUAL_SERVICE, GATEWAY_KINDS[0]])
async def test_what_leads_requests_is_known_before_anything_is_said_of_them(kind):
    server = FakeCluster(extra=KINDS)
    server.serve(kind)
    made = Cluster(Client(server.transport("operator"), seed=1))
    assert not made.routed
    await made.looked()
    assert made.routed
    assert made.by_istio is (kind is VIRTUAL_SERVICE)
    made.close()


def test_what_is_served_is_asked_for_before_its_first_list_is_waited_for(cluster, monkeypatch):
    asked = []

    async def look():
        asked.append("what is served")

    monkeypatch.setattr(cluster.gateway, "look", look)
    run(cluster.gateway.seen())
    assert asked


async def test_of_routes_that_are_served_no_more_none_is_believed():
    server, routes = FakeCluster(extra=KINDS), GATEWAY_KINDS[0]
    server.serve(routes)
    made = Cluster(Client(server.transport("operator"), seed=1))
    await made.looked()
    cache = made.gateway.routes[routes.plural]
    cache.put(RouteObject(metadata=AnnotatedMeta(name="web", uid="u", resource_version="1")))
    server.forget(routes.plural)
    await made.gateway.look()
    assert list(cache) == []
    made.close()


@pytest.mark.parametrize(
    ("synced", "trouble", "took"),
    [(False, None, FIRST_LIST_S), (True, None, 0), (False, errors.ServerTrouble("", ""), 0)],
)
def test_the_first_list_of_routes_is_waited_for_and_not_for_ever(cluster, synced, trouble, took):
    async def story():
        cluster.gateway._looked = True
        cluster.gateway._followed = {"httproutes": SimpleNamespace(synced=synced, trouble=trouble)}
        clock = asyncio.get_running_loop().time
        began = clock()
        await cluster.gateway.seen()
        return clock() - began

    assert run(story()) == pytest.approx(took, abs=0.01)


@pytest.mark.parametrize(("synced", "said"), [(False, "not allowed"), (True, "")])
def test_routes_that_were_seen_once_are_no_trouble(cluster, synced, said):
    refused = errors.Forbidden("GET httproutes", "not allowed", status=403)
    cluster.gateway._followed = {
        "grpcroutes": SimpleNamespace(trouble=None, synced=False),
        "httproutes": SimpleNamespace(trouble=refused, synced=synced),
    }
    assert cluster.gateway.trouble == said


async def test_once_it_is_closed_nobody_is_given_work_of_any_kind():
    made = Cluster(Client(FakeCluster(extra=KINDS).transport("operator"), seed=1))
    made.close()
    for queue in (made.queue, made.wishes, made.published, made.hooked, made.pairs, made.grouped):
        async with asyncio.timeout(1):
            await work(queue, None)
