"""Offers that need no request, according to caches that are not behind our own writes."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.execute.pod import names
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.link.wire import Offer
from dayfly.operator.agent import offer_dedup
from dayfly.operator.cluster.objects import SERVED_END_ANNOTATION, RunObject, SandboxObject
from dayfly.operator.cluster.runs import RunStore
from dayfly.plan.reasons import Reason
from dayfly.spec.kinds import RunSpec, ServerTarget
from dayfly.spec.lifecycle import Baseline, Kind, Lifecycle, Route, Target, Unit
from dayfly.spec.run import EndRequest, Run

META = AnnotatedMeta(name="s-1", namespace="acme-sandboxes", uid="u")
SANDBOX = SandboxObject(metadata=META)
TARGET = Target(kind="Sandbox", namespace="acme-sandboxes", name="s-1", uid="u")
STOP = EndRequest(at=1, reason=Reason.DELETED)


def route(*keys: str) -> Unit:
    of = Baseline(kind="Deployment", namespace="shop", name="web")
    return Unit(name="web", kind=Kind.ROUTE, route=Route(baseline=of, keys=keys))


def offer(**changes) -> Offer:
    documents = (Lifecycle(target=TARGET),)
    made = Offer(uid="x", generation=7, name="shop", target=TARGET, documents=documents, forks=(route("a"),))
    return msgspec.structs.replace(made, **changes)


def run(*, closed: EndRequest | None = None, keys: str = "a", **offered) -> RunObject:
    spec = RunSpec(forks=(route(keys),), offered=ServerTarget(uid="x", **{"generation": 7, **offered}))
    ledger = Run(uid="u", target=TARGET, plan="sha256:0", closed=closed)
    return RunObject(metadata=AnnotatedMeta(name=names.run_name("s-1", "u")), ledger=ledger, spec=spec)


async def cluster(there: RunObject | None) -> SimpleNamespace:
    """The caches after the watch has delivered one run."""
    client, cache = KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1), Cache()
    ledger = RunStore(client, cache)
    if there is not None:
        cache.put(await ledger.create(there))
    return SimpleNamespace(runs=cache, ledger=ledger)


@pytest.mark.parametrize(
    ("there", "changes", "is_settled"),
    [
        (run(), {}, True),
        (None, {}, False),
        (run(), {"generation": 6, "forks": ()}, True),
        (run(), {"generation": 8}, False),
        (run(), {"forks": (route("b"),)}, False),
        (run(), {"expires_at": 9}, False),
        (run(expires_at=9), {"expires_at": 9}, True),
        (run(closed=STOP), {"generation": 8}, True),
        (msgspec.structs.replace(run(), spec=RunSpec(forks=(route("a"),))), {}, False),
    ],
)
async def test_offer_is_settled_if_the_run_has_all_of_it(there, changes, is_settled):
    assert offer_dedup.is_carried_out(await cluster(there), SANDBOX, offer(**changes)) is is_settled


async def test_offer_without_living_object_is_not_settled():
    there = await cluster(run())
    over = msgspec.structs.replace(META, annotations={SERVED_END_ANNOTATION: "{}"})
    assert not offer_dedup.is_carried_out(there, None, offer())
    assert not offer_dedup.is_carried_out(there, SandboxObject(metadata=over), offer())


async def test_own_write_unseen_by_the_watch_does_not_settle_an_offer():
    """An offer with another key has just been carried out, and now the earlier one is offered again."""
    there = await cluster(run())
    before = there.ledger.get(run().metadata.name)
    other = msgspec.structs.replace(before, spec=run(keys="b").spec)
    assert await there.ledger.replace(before, other)
    assert not offer_dedup.is_carried_out(there, SANDBOX, offer())
    there.runs.put(there.ledger.get(run().metadata.name))
    assert offer_dedup.is_carried_out(there, SANDBOX, offer(forks=(route("b"),)))


@pytest.mark.parametrize(
    ("old", "new", "is_back"),
    [
        (run(), run(), False),
        (run(), run(generation=8), False),
        (run(), run(stop=STOP), False),
        (run(), run(generation=6), True),
        (run(stop=STOP), run(), True),
        (run(), None, True),
        (run(stop=STOP), None, False),
        (run(closed=STOP), None, False),
        (None, run(), False),
        (msgspec.structs.replace(run(), spec=RunSpec()), None, False),
    ],
)
def test_run_with_less_than_before_went_back(old, new, is_back):
    assert offer_dedup.has_regressed(ObjectChange(Key("", "r"), old, new)) is is_back
