"""Facts of an object step before its object exists, and while its outputs are missing."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from dayfly.execute.object.render import FINALIZER
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.objects import object_view
from dayfly.operator.objects.object_observer import ObjectMemory, ObjectObserver, ObjectTurn
from dayfly.operator.objects.object_view import ObjectView
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Fact, NeverRan, Prepared, Running, UnitRefusal
from dayfly.spec.lifecycle import Lifecycle, Object, SecretKey, Target, Unit, UnitOutput, UnitTimeouts
from dayfly.spec.run import Phase, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
NOW, CLAIMED, RUN_MS = 500, 100, 1_000
MANIFEST = {"apiVersion": "db.example.org/v1", "kind": "Claim", "spec": {}}
QUOTA = UnitRefusal(reason="Quota", message="no room", since=NOW)
UNFIT = NeverRan(reason="InputInvalid", message="m")


class Bench:
    """A run with one claimed object step; the test defines the object on the API server."""

    def __init__(self, *outputs: UnitOutput, ref: str = "o", now: int = NOW, phase: Phase = Phase.OPEN, **how: bool):
        written = {"manifest": MANIFEST, "ready": {"condition": "Ready"}}
        limits = UnitTimeouts(run_ms=RUN_MS)
        unit = Unit(name="make", kind="object", object=Object(written=written), outputs=outputs, timeouts=limits)
        self.plan = seal((Lifecycle(target=TARGET, resource="db", pre_start=(unit,)),))
        record = UnitRecord(attempt=1, state=State.CLAIMED, kind="object", ref=ref, claimed_at=CLAIMED)
        ledger = Run(uid="u", target=TARGET, plan="", units={"db/make": record}, phase=phase)
        self.run = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
        closing = how.get("closing", False)
        self.turn = ObjectTurn(self.run, self.plan, now, closing=closing, abandoned=False)
        self.memory = ObjectMemory()
        self.found: dict | None = None
        self.secret: object = None
        objects = SimpleNamespace(read_secret=self._secret)
        self.observer = ObjectObserver(objects, SimpleNamespace(read=self._look))

    async def _look(self, *_: object) -> ObjectView:
        return ObjectView("kind", self.found, None)

    async def _secret(self, name: str, namespace: str) -> object:
        assert (namespace, name) == ("shop", "s")
        if isinstance(self.secret, Exception):
            raise self.secret
        return self.secret

    def become_ready(self, **status: str) -> None:
        place = object_view.object_of(self.run, self.plan.steps["db/make"], 1)
        meta = {"name": place.name, "namespace": "shop", "uid": "o", "finalizers": [FINALIZER]}
        meta["annotations"] = {names.NONCE_ANNOTATION: place.identity.token}
        conditions = [{"type": "Ready", "status": "True"}]
        self.found = {**MANIFEST, "metadata": meta, "status": {"conditions": conditions, **status}}

    async def made(self) -> Fact:
        return await self.observer.observe_create(self.turn, self.plan.steps["db/make"], self.memory)


@pytest.mark.parametrize(
    ("how", "refused", "reason"),
    [
        ({}, None, "to be made"),
        ({"now": CLAIMED + RUN_MS}, None, "to be made"),  # an operator may have paused since it claimed it
        ({"closing": True}, None, "to be made"),  # another replica may be creating it
        ({"closing": True, "phase": Phase.CLOSED}, None, Reason.CANCELLED),
        ({"now": CLAIMED + RUN_MS - 1}, QUOTA, "waits"),
        ({"now": CLAIMED + RUN_MS}, QUOTA, "Quota"),
        ({}, UNFIT, "InputInvalid"),
    ],
)
async def test_claimed_object_that_does_not_exist_yet(how, refused, reason):
    bench = Bench(ref="", **how)
    if isinstance(refused, UnitRefusal):
        refused = msgspec.structs.replace(refused, since=bench.turn.now)
    bench.memory.refused = refused
    fact = await bench.made()
    match reason:
        case "to be made":
            assert fact == Prepared(ref="")
        case "waits":
            assert fact == Running(since=CLAIMED, reason="Quota", message="no room")
        case _:
            assert isinstance(fact, NeverRan)
            assert fact.reason == reason


class TestOutputs:
    HOST = UnitOutput(name="host", json_path="$.status.host")
    PASSWORD = UnitOutput(name="password", secret=SecretKey(name="s", key="password"), sensitive=True)
    NAMED = UnitOutput(name="password", secret=SecretKey(json_path="$.status.secret", key="password"))
    LACK = 'secrets "s" is forbidden: User "x" cannot get resource "secrets" in API group "" in the namespace "shop"'

    async def told(self, *outputs: UnitOutput, secret: object = None, **status: str) -> tuple[Fact, dict]:
        bench = Bench(*outputs)
        bench.become_ready(**status)
        bench.secret = secret
        return await bench.made(), bench.turn.outputs

    async def test_outputs_of_a_ready_object_are_recorded(self):
        fact, values = await self.told(self.HOST, self.PASSWORD, secret={"password": b"s3cr3t\0"}, host="h")
        assert values == {("db/make", 1): {"host": b"h", "password": b"s3cr3t\0"}}
        assert {name: (each.size, each.sensitive, each.text) for name, each in fact.result.outputs.items()} == {
            "host": (1, False, True),
            "password": (7, True, False),
        }

    @pytest.mark.parametrize(
        ("output", "secret", "message"),
        [
            (HOST, None, "$.status.host finds no single value"),
            (NAMED, None, "$.status.secret names no Secret"),
            (PASSWORD, None, "there is no Secret shop/s"),
            (PASSWORD, {"other": b"x"}, "Secret shop/s has no key password"),
            (PASSWORD, errors.Forbidden("GET secret", "a policy", status=403), "a policy"),
        ],
    )
    async def test_step_waits_for_a_missing_output(self, output, secret, message):
        fact, values = await self.told(output, secret=secret)
        assert (fact.since, fact.reason) == (CLAIMED, Reason.OBJECT_NOT_READY)
        assert fact.message.endswith(f"its output {output.name} has no value yet: {message}")
        assert values == {}

    async def test_missing_right_to_a_secret_is_reported_with_its_grant(self):
        fact, _ = await self.told(self.PASSWORD, secret=errors.Forbidden("GET secret", self.LACK, status=403))
        assert (fact.reason, "its administrator can run" in fact.message) == (Reason.OBJECTS_NOT_GRANTED, True)

    @pytest.mark.parametrize(("size", "reason"), [(65_536, ""), (65_537, Reason.OUTPUT_TOO_LARGE)])
    async def test_output_may_have_64_kib(self, size, reason):
        fact, _ = await self.told(self.HOST, host="x" * size)
        assert isinstance(fact, Ended)
        assert fact.result.reason == reason
