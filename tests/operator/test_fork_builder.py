"""What a fork is made of: where it finds the values that it reads, and the form that it is found to have."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from rig.alone import NAME, OWN, UNIT, Alone

from dayfly.execute.fork.render import FORK_LABEL, form
from dayfly.execute.fork.run import ForeignForkError
from dayfly.execute.order import CannotRenderError
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.execute.pod.render import SecretKey
from dayfly.kube import errors
from dayfly.kube.cache import Cache
from dayfly.kube.objects import ContainerState, ContainerStatus, Key, ObjectMeta, Pod, PodStatus, StateWaiting
from dayfly.operator.forks import fork_builder
from dayfly.operator.forks.fork_builder import ForkBuilder
from dayfly.operator.forks.fork_reconciler import _objection
from dayfly.operator.refusals import KEPT_AGAIN_S
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import As, Exec, Fork, Input, Lifecycle, Output, Ref, Target, Unit
from dayfly.spec.run import OutputRecord, Request, State, UnitRecord
from kube.fake import run

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")


def resource(name: str) -> Lifecycle:
    make = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh"), outputs=(Output(name="url", path="/u"),))
    return Lifecycle(target=TARGET, resource=name, pre_start=(make,))


def reads(name: str, of: str, output: str) -> Input:
    return Input(name=name, from_=Ref(resource=of, unit="make", output=output), as_=As(env=name.upper()))


class TestInputs:
    def found(self, monkeypatch, *inputs: Input):
        """Where each is found, and for which resources a Secret was made; those tell `url`, and `db` also `user`."""
        bound: list[tuple[str, str]] = []

        async def bind(_client, _run, document, namespace):
            bound.append((document.resource, namespace))
            return f"{document.resource}-in-{namespace}"

        monkeypatch.setattr(fork_builder, "bind", bind)
        told = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1)}
        records = {
            "db/make": UnitRecord(
                attempt=1, state=State.DONE, outcome="succeeded", outputs=told | {"user": told["url"]}
            ),
            "cache/make": UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=told),
        }

        async def story():
            alone = Alone()
            ledger = msgspec.structs.replace(alone.run.ledger, units=records)
            made = ForkBuilder(SimpleNamespace(client=None, baselines=Cache()), None)
            unit = msgspec.structs.replace(UNIT, inputs=inputs)
            plan = seal((resource("db"), resource("cache")), (unit,))
            return await made._inputs(msgspec.structs.replace(alone.run, ledger=ledger), plan, unit)

        return run(story()), bound

    def test_a_value_lies_in_its_resources_secret_in_the_forks_namespace(self, monkeypatch):
        values, bound = self.found(monkeypatch, reads("url", "db", "url"))
        assert values == {"url": SecretKey("db-in-shop", "make.url")}
        assert bound == [("db", "shop")]

    def test_one_secret_serves_for_all_of_a_resource(self, monkeypatch):
        values, bound = self.found(
            monkeypatch, reads("url", "db", "url"), reads("at", "cache", "url"), reads("user", "db", "user")
        )
        assert values == {
            "url": SecretKey("db-in-shop", "make.url"),
            "at": SecretKey("cache-in-shop", "make.url"),
            "user": SecretKey("db-in-shop", "make.user"),
        }
        assert bound == [("db", "shop"), ("cache", "shop")]

    def test_what_was_never_told_is_absent_and_those_after_it_are_found(self, monkeypatch):
        values, bound = self.found(monkeypatch, reads("user", "cache", "user"), reads("url", "db", "url"))
        assert values == {"user": None, "url": SecretKey("db-in-shop", "make.url")}
        assert bound == [("db", "shop")]


def test_a_fork_whose_annotations_somebody_took_away_gets_its_form_again():
    async def story():
        alone = Alone()
        alone.claimed(alone.deployment(replicas=1, annotations=None)["metadata"]["uid"])
        alone.service()
        alone.look()
        return await alone.keep()

    assert run(story()) == [f"PUT {OWN}"]


@pytest.mark.parametrize(
    ("wished", "closed", "reason"),
    [(True, False, "Deleted"), (False, False, "Cancelled"), (True, True, "Cancelled")],
)
def test_a_fork_that_is_gone_was_deleted_by_somebody_if_it_is_wished_for_still(wished, closed, reason):
    async def story():
        alone = Alone(wished=wished)
        found = alone.claimed("gone")
        if closed:
            ledger = msgspec.structs.replace(found.ledger, closed=Request(at=1, reason="Deleted"))
            alone.run = msgspec.structs.replace(found, ledger=ledger)
        alone.look()
        return (await alone.observe()).facts[NAME, 1]

    assert run(story()).result.reason == reason


@pytest.mark.parametrize(("old", "reason"), [(True, Reason.REPLACED), (False, "Starting")])
def test_a_fork_of_an_older_form_is_told_to_be_replaced(old, reason):
    async def story():
        alone = Alone()
        now = form(UNIT, msgspec.convert(alone.web["metadata"], ObjectMeta), {})
        alone.claimed(alone.deployment(replicas=1, form="" if old else now)["metadata"]["uid"])
        alone.look()
        return (await alone.observe()).facts[NAME, 1]

    assert run(story()).reason == reason


def test_a_baseline_that_is_out_of_reach_is_looked_at_again():
    """Nobody tells us when its namespace lets the sandbox fork there."""

    async def story():
        alone = Alone()
        of = lifecycle.Baseline(kind="Deployment", namespace="away", name="web")
        alone.plan = seal((), (msgspec.structs.replace(UNIT, fork=Fork(baseline=of)),))
        alone.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "away"}})
        again = []
        alone.caches.queue.add = lambda key, after=0.0, **_: again.append((key, after))
        objections = (await alone.observe()).objections
        return {name: each.reason for name, each in objections.items()}, again

    objections, again = run(story())
    assert objections == {"fork:away/web": Reason.NAMESPACE_NOT_GRANTED}
    assert again == [("box", KEPT_AGAIN_S)]


@pytest.mark.parametrize(
    ("error", "reason", "advice"),
    [
        (errors.Forbidden("POST", "exceeded quota", status=403, reason="Forbidden"), "Forbidden", False),
        (errors.Forbidden("POST", 'x is forbidden: User "op" cannot create resource "y"', status=403), "Refused", True),
        (errors.Invalid("POST", "m", status=422, reason="Invalid"), "Invalid", False),
        (ForeignForkError("m"), "NameTaken", False),
        (CannotRenderError(Reason.BAD_PATCH, "m"), "BadPatch", False),
    ],
)
def test_what_stands_in_the_way_is_said_with_what_to_do_where_somebody_can(error, reason, advice):
    found = _objection(error, 5)
    assert (found.reason, found.since) == (reason, 5)
    assert ("an administrator can bind the ClusterRole dayfly-forks" in found.message) is advice


@pytest.mark.parametrize(("of", "reason"), [(OWN, "ErrImagePull"), ("f-other", "Starting")])
def test_what_troubles_the_pods_of_a_fork_is_said_of_that_one(of, reason):
    async def story():
        alone = Alone()
        alone.claimed(alone.deployment(replicas=1)["metadata"]["uid"])
        alone.look()
        alone.caches.baselines.drop(Key("shop", "web"))  # else it would be of an older form
        waits = ContainerStatus(name="main", state=ContainerState(waiting=StateWaiting(reason="ErrImagePull")))
        meta = ObjectMeta(name="p", uid="p", labels={RUN_LABEL: "box", FORK_LABEL: of})
        alone.caches.pods.put(Pod(metadata=meta, status=PodStatus(phase="Pending", container_statuses=[waits])))
        return (await alone.observe()).facts[NAME, 1]

    assert run(story()).reason == reason
