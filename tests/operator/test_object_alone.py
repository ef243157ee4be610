"""Objects that steps make, each rule alone: what is known of one by what there is of it, and by what was said."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from dayfly.execute.inputs import UntoldError
from dayfly.execute.object.render import FINALIZER, RELEASE_ANNOTATION
from dayfly.execute.order import CannotRenderError
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.objects import grants, object_view
from dayfly.operator.objects.object_memory import AGAIN_MS, ObjectMemory
from dayfly.operator.objects.object_observer import _LONGEST_VALUE, ObjectObserver, Turn
from dayfly.operator.objects.object_view import View
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Held, NeverRan, Objection, Running
from dayfly.spec.kube_object import GONE
from dayfly.spec.lifecycle import Lifecycle, Object, Output, SecretKey, Target, Timeouts, Unit
from dayfly.spec.run import Phase, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
NOW, CLAIMED, RUN_MS = 500, 100, 1_000
MANIFEST = {"apiVersion": "db.example.org/v1", "kind": "Claim", "spec": {}}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {}}
SAID = Objection(reason="Quota", message="no room", since=NOW)


def unit(*outputs: Output, manifest: dict = MANIFEST, ready: dict | None = None) -> Unit:
    written = {"manifest": manifest, "ready": ready or {"condition": "Ready"}, "failed": {"condition": "Failed"}}
    return Unit(
        name="make", kind="object", object=Object(written=written), outputs=outputs, timeouts=Timeouts(run_ms=RUN_MS)
    )


REMOVE = Unit(name="drop", kind="object", object=Object(remove="make"), outputs=(Output(name=GONE),))
ALIVE = UnitRecord(attempt=1, state=State.CLAIMED, kind="object", ref="o", claimed_at=CLAIMED)
UNSEEN = msgspec.structs.replace(ALIVE, ref="")


class Bench:
    """One run with an object that is made and removed; what the server has of it is the test's."""

    def __init__(
        self,
        made: Unit | None = None,
        *,
        closing: bool = False,
        abandoned: bool = False,
        now: int = NOW,
        phase: Phase = Phase.OPEN,
        **records,
    ):
        made = made or unit()
        self.plan = seal((Lifecycle(target=TARGET, resource="db", pre_start=(made,), post_stop=(REMOVE,)),))
        units = {"db/make": records.get("make", ALIVE), "db/drop": records.get("drop", ALIVE)}
        ledger = Run(uid="u", target=TARGET, plan="", units=units, phase=phase)
        self.run = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
        self.turn = Turn(self.run, self.plan, now, closing=closing, abandoned=abandoned)
        self.memory = ObjectMemory()
        self.found: dict | None = None
        self.hindered: Objection | None = None
        self.secret: object = None
        self.asked: list[tuple[str, str]] = []
        self.fault: Exception | None = None
        objects = SimpleNamespace(secret=self._secret, try_out=self._try_out)
        self.observer = ObjectObserver(objects, SimpleNamespace(look=self._look, manifest=self._manifest))

    async def _look(self, _where, _now):
        return View("kind", self.found, self.hindered)

    async def _manifest(self, *_):
        if isinstance(self.fault, CannotRenderError):
            raise self.fault
        return MANIFEST

    async def _try_out(self, _kind, _manifest):
        if self.fault is not None:
            raise self.fault

    async def _secret(self, name, namespace):
        self.asked.append((namespace, name))
        if isinstance(self.secret, Exception):
            raise self.secret
        return self.secret

    def there(
        self,
        *conditions: str,
        uid: str = "o",
        deleted: bool = False,
        finalizers=(FINALIZER,),
        status=None,
        rests: bool = False,
    ):
        """What there is of the object."""
        place = object_view.place(self.run, self.plan.steps["db/make"], 1)
        meta = {"name": place.name, "namespace": "shop", "uid": uid, "finalizers": list(finalizers)}
        meta["annotations"] = {names.NONCE_ANNOTATION: place.identity.token}
        if rests:
            meta["annotations"][RELEASE_ANNOTATION] = '{"suspend": false}'
        if deleted:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        every = [{"type": each, "status": "True"} for each in conditions]
        kind = {key: place.manifest[key] for key in ("apiVersion", "kind")}
        self.found = {**kind, "metadata": meta, "spec": {}, "status": {"conditions": every, **(status or {})}}
        return self

    async def made(self):
        return await self.observer.made(self.turn, self.plan.steps["db/make"], self.memory)

    async def ask(self):
        return await self.observer.ask(self.turn, self.plan.steps["db/make"], 2)

    async def removed(self):
        return await self.observer.removed(self.turn, self.plan.steps["db/drop"], self.memory)


def failed(fact) -> tuple[str, str]:
    """Reason of an end that is a failure, and the beginning of what it says."""
    assert isinstance(fact, Ended)
    assert (fact.result.outcome, fact.result.started_at) == ("failed", CLAIMED)
    return fact.result.reason, fact.result.message


class TestMaking:
    async def test_one_that_is_ready_and_tells_nothing_is_done(self):
        bench = Bench().there("Ready")
        fact = await bench.made()
        assert isinstance(fact, Ended)
        assert (fact.result.outcome, fact.result.ended_at, fact.result.outputs) == ("succeeded", NOW, {})
        assert bench.turn.outputs == {("db/make", 1): {}}
        assert bench.turn.found == {("db/make", 1): bench.found}
        assert bench.turn.made == {}, "the ledger has its UID"

    async def test_at_first_sight_its_uid_is_told(self):
        bench = Bench(make=UNSEEN).there()
        assert isinstance(await bench.made(), Running)
        assert bench.turn.made == {("db/make", 1): "o"}

    async def test_it_is_waited_for_and_may_fail(self):
        fact = await Bench().there().made()
        assert (fact.since, fact.reason) == (CLAIMED, Reason.OBJECT_NOT_READY)
        assert failed(await Bench().there("Failed", "Ready").made())[0] == Reason.OBJECT_FAILED

    async def test_what_stands_in_the_way_of_looking_is_said(self):
        bench = Bench()
        bench.hindered = SAID
        assert await bench.made() == Running(since=CLAIMED, reason="Quota", message="no room")

    async def test_of_one_that_is_given_up_nobody_asks(self):
        bench = Bench(abandoned=True).there("Ready")
        assert failed(await bench.made())[0] == Reason.CANCELLED

    async def test_one_that_is_not_there_yet_is_to_be_made(self):
        assert await Bench(make=UNSEEN).made() == Held(ref="")

    async def test_also_where_its_time_is_over_and_nothing_was_in_its_way(self):
        """It is claimed, and nobody has made it yet: an operator may have stood still."""
        assert await Bench(make=UNSEEN, now=CLAIMED + RUN_MS).made() == Held(ref="")

    async def test_what_stands_in_the_way_of_the_next_is_said_before_it_is_tried_out(self):
        bench = Bench()
        bench.hindered = SAID
        assert await bench.ask() == SAID

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            (errors.Invalid("POST claim", "spec.size is wanted", status=422, reason="Invalid"), "Invalid"),
            (errors.AlreadyExists("POST claim", "m", status=409), Reason.NAME_TAKEN),
            (None, ""),
        ],
    )
    async def test_what_the_server_has_against_the_next_is_said_before_it_is_claimed(self, fault, reason):
        bench = Bench()
        bench.fault = fault
        said = await bench.ask()
        assert (said.reason if said is not None else "") == reason

    async def test_what_it_can_never_be_made_of_is_said_once_it_is_claimed_and_what_it_cannot_now_at_once(self):
        bench = Bench()
        bench.fault = CannotRenderError(Reason.INPUT_UNFIT, "m")
        assert await bench.ask() is None
        bench.fault = UntoldError(Reason.WAITING_FOR_FORKS, "m")
        with pytest.raises(UntoldError):
            await bench.ask()

    async def test_its_name_may_be_taken_by_another(self):
        bench = Bench(make=UNSEEN).there()
        bench.found["metadata"]["annotations"] = {}
        fact = await bench.made()
        assert isinstance(fact, NeverRan)
        assert fact.reason == Reason.FOREIGN
        assert bench.turn.found == {}

    async def test_one_that_is_not_made_when_the_run_is_closed_never_is(self):
        fact = await Bench(make=UNSEEN, closing=True, phase=Phase.CLOSED).made()
        assert isinstance(fact, NeverRan)
        assert fact.reason == Reason.CANCELLED

    async def test_before_the_ledger_is_closed_a_peer_may_be_making_it(self):
        assert await Bench(make=UNSEEN, closing=True).made() == Held(ref="")

    async def test_what_can_never_be_made_is_not_tried_again(self):
        bench = Bench(make=UNSEEN)
        bench.memory.refused = NeverRan(reason="InputUnfit", message="m")
        assert await bench.made() == bench.memory.refused

    @pytest.mark.parametrize(
        ("now", "fact"),
        [
            (CLAIMED + RUN_MS - 1, Running(since=CLAIMED, reason="Quota", message="no room")),
            (CLAIMED + RUN_MS, NeverRan(reason="Quota", message="no room")),
        ],
    )
    async def test_what_is_refused_is_tried_as_long_as_it_has_time(self, now, fact):
        bench = Bench(make=UNSEEN, now=now)
        bench.memory.refused = msgspec.structs.replace(SAID, since=now)
        assert await bench.made() == fact

    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            ({"closing": True}, Reason.CANCELLED),
            ({"now": CLAIMED + RUN_MS}, Reason.RUN_DEADLINE),
            ({}, Reason.OBJECT_GONE),
        ],
    )
    async def test_one_that_is_gone_before_it_was_ready_has_failed(self, how, reason):
        assert failed(await Bench(**how).made())[0] == reason
        assert failed(await Bench(**how).there(uid="another").made())[0] == reason
        assert failed(await Bench(**how).there("Ready", deleted=True).made())[0] == reason

    @pytest.mark.parametrize(
        ("others", "said"), [(("x/y",), "the finalizer x/y"), (("x/y", "x/z"), "the finalizers x/y")]
    )
    async def test_what_holds_one_that_is_to_go_is_said(self, others, said):
        fact = await Bench().there(deleted=True, finalizers=(FINALIZER, *others)).made()
        assert (fact.since, fact.reason) == (CLAIMED, Reason.OBJECT_ENDING)
        assert f"it still has {said}" in fact.message

    @pytest.mark.parametrize(("rests", "fact"), [(True, Held), (False, Running)])
    async def test_one_that_was_made_at_rest_is_to_be_released(self, rests, fact):
        bench = Bench(unit(manifest=JOB)).there(rests=rests)
        assert isinstance(await bench.made(), fact)

    async def test_unless_that_was_refused_a_moment_ago(self):
        bench = Bench(unit(manifest=JOB)).there(rests=True)
        bench.memory.refused = SAID
        assert await bench.made() == Running(since=CLAIMED, reason="Quota", message="no room")

    @pytest.mark.parametrize(("closing", "fact"), [(True, Running), (False, Ended)])
    async def test_that_it_could_not_be_deleted_matters_once_it_is_to_go(self, closing, fact):
        bench = Bench(closing=closing).there("Ready")
        bench.memory.refused = SAID
        assert isinstance(await bench.made(), fact)


class TestOutputs:
    HOST = Output(name="host", json_path="$.status.host")
    PASSWORD = Output(name="password", secret=SecretKey(name="s", key="password"), sensitive=True)
    NAMED = Output(name="password", secret=SecretKey(json_path="$.status.secret", key="password"))

    async def told(self, *outputs: Output, secret: object = None, **status):
        bench = Bench(unit(*outputs)).there("Ready", status=status)
        bench.secret = secret
        return await bench.made(), bench

    async def test_they_are_told_with_its_end(self):
        fact, bench = await self.told(self.HOST, self.PASSWORD, secret={"password": b"s3cr3t\0"}, host="h")
        assert bench.turn.outputs == {("db/make", 1): {"host": b"h", "password": b"s3cr3t\0"}}
        told = fact.result.outputs
        assert {name: (each.size, each.sensitive, each.text) for name, each in told.items()} == {
            "host": (1, False, True),
            "password": (7, True, False),
        }
        assert bench.asked == [("shop", "s")]

    @pytest.mark.parametrize(
        ("output", "secret", "said"),
        [
            (HOST, None, "$.status.host finds no single value"),
            (NAMED, None, "$.status.secret names no Secret"),
            (PASSWORD, None, "there is no Secret shop/s"),
            (PASSWORD, {"other": b"x"}, "Secret shop/s has no key password"),
            (PASSWORD, errors.Forbidden("GET secret", "a policy", status=403), "a policy"),
        ],
    )
    async def test_one_that_is_not_there_yet_is_waited_for(self, output, secret, said):
        fact, bench = await self.told(output, secret=secret)
        assert isinstance(fact, Running)
        assert (fact.since, fact.reason) == (CLAIMED, Reason.OBJECT_NOT_READY)
        assert fact.message.endswith(f"its output {output.name} is waited for: {said}")
        assert bench.turn.outputs == {}

    async def test_a_right_that_lacks_is_said_with_who_can_give_it(self):
        words = (
            'secrets "s" is forbidden: User "x" cannot get resource "secrets" in API group "" in the namespace "shop"'
        )
        fact, _ = await self.told(self.PASSWORD, secret=errors.Forbidden("GET secret", words, status=403))
        assert (fact.reason, "its administrator can type" in fact.message) == (Reason.OBJECTS_NOT_GRANTED, True)

    @pytest.mark.parametrize(("size", "fits"), [(_LONGEST_VALUE, True), (_LONGEST_VALUE + 1, False)])
    async def test_it_may_be_so_long(self, size, fits):
        fact, _ = await self.told(self.HOST, host="x" * size)
        assert isinstance(fact, Ended)
        assert fact.result.reason == ("" if fits else Reason.OUTPUT_TOO_LARGE)


class TestRemoving:
    GONE = {("db/drop", 1): {GONE: b"true"}}

    async def gone(self, bench: Bench) -> bool:
        fact = await bench.removed()
        done = isinstance(fact, Ended) and fact.result.outcome == "succeeded"
        assert not done or bench.turn.outputs == self.GONE
        return done

    @pytest.mark.parametrize(
        "made",
        [UnitRecord(kind="object"), UnitRecord(attempt=1, kind="object", state=State.VOID)],
        ids=["never", "void"],
    )
    async def test_what_was_never_made_is_gone_and_nobody_is_asked(self, made):
        bench = Bench(make=made).there()
        bench.hindered = SAID
        assert await self.gone(bench)

    async def test_what_was_void_once_it_was_there_is_asked_for(self):
        bench = Bench(make=UnitRecord(attempt=1, kind="object", state=State.VOID, ref="o")).there()
        assert await bench.removed() == Held(ref="o")

    @pytest.mark.parametrize("made", [ALIVE, UNSEEN], ids=["seen", "not seen yet"])
    async def test_one_that_is_there_is_to_go(self, made):
        bench = Bench(make=made).there()
        assert await bench.removed() == Held(ref="o")
        assert bench.turn.found == {("db/make", 1): bench.found}

    async def test_one_that_is_not_there_or_is_anothers_is_gone(self):
        assert await self.gone(Bench())
        assert await self.gone(Bench().there(uid="another"))

    async def test_one_that_only_we_hold_is_gone_and_else_what_holds_it_is_said(self):
        assert await self.gone(Bench().there(deleted=True))
        fact = await Bench().there(deleted=True, finalizers=(FINALIZER, "x/y")).removed()
        assert (fact.since, fact.reason) == (CLAIMED, Reason.OBJECT_ENDING)

    async def test_what_stands_in_the_way_is_said(self):
        looking, deleting = Bench().there(), Bench().there()
        looking.hindered = deleting.memory.refused = SAID
        for bench in (looking, deleting):
            assert await bench.removed() == Running(since=CLAIMED, reason="Quota", message="no room")

    async def test_a_cleanup_that_is_given_up_is_over(self):
        assert failed(await Bench(abandoned=True).there().removed())[0] == Reason.CANCELLED


class TestMemory:
    def test_it_is_looked_at_more_and_more_seldom_while_it_stays_the_same(self):
        memory = ObjectMemory()
        assert [memory.look_again("1") for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        assert [memory.look_again("2"), memory.look_again("2")] == [1.0, 2.0]

    @pytest.mark.parametrize(
        ("now", "stands"), [(NOW - 1, False), (NOW, True), (NOW + AGAIN_MS - 1, True), (NOW + AGAIN_MS, False)]
    )
    def test_what_was_refused_stands_for_a_while(self, now, stands):
        assert (ObjectMemory(refused=SAID).hindrance(now) is SAID) is stands
        assert ObjectMemory(refused=NeverRan(reason="r")).hindrance(NOW) is None


class TestGrants:
    """The very line that gives a right, for whoever may give it."""

    def test_it_is_given_in_the_namespace(self):
        assert grants.line("shop", "claims.x") == (
            "kubectl create role dayfly-objects-claims.x --namespace shop --verb=get,create,patch,delete "
            "--resource=claims.x && kubectl create rolebinding dayfly-objects-claims.x --namespace shop "
            "--role=dayfly-objects-claims.x --serviceaccount=shop:dayfly-objects"
        )

    def said(self, message: str, *, kind=errors.Forbidden, ending: bool = False):
        found = grants.objection(kind("POST claim", message, status=403, reason="Forbidden"), "shop", 7, ending=ending)
        assert found.since == 7
        return found.reason, found.message

    LACKS = 'claims.x is forbidden: User "x" cannot create resource "claims" in API group "x" in the namespace "shop"'
    CORE = 'services is forbidden: User "x" cannot create resource "services" in API group "" in the namespace "shop"'
    BORROWS = (
        'x is forbidden: User "op" cannot impersonate resource "serviceaccounts" in API group "" in namespace "shop"'
    )

    def test_what_lacks_is_named_with_its_line(self):
        reason, message = self.said(self.LACKS)
        assert reason == Reason.OBJECTS_NOT_GRANTED
        assert message.startswith("the account dayfly-objects of namespace shop may not create claims.x; its admin")
        assert message.endswith(grants.line("shop", "claims.x"))
        assert grants.line("shop", "services") in self.said(self.CORE)[1]

    def test_what_names_no_resource_is_said_in_the_servers_words(self):
        path = 'User "x" is forbidden: User "x" cannot get path "/apis/x"'
        assert self.said(path) == ("Forbidden", path)

    def test_in_a_namespace_that_goes_it_is_given_from_outside(self):
        reason, message = self.said(self.LACKS, ending=True)
        assert reason == Reason.OBJECTS_NOT_GRANTED
        assert message.startswith("namespace shop is being deleted")
        assert "kubectl create clusterrole dayfly-objects-claims.x-shop" in message

    def test_that_the_operator_may_not_act_as_it_is_its_installers_matter(self):
        assert "apply the install manifest again" in self.said(self.BORROWS)[1]

    POLICY = 'a policy: teams cannot create resource "claims" in API group "x"'

    @pytest.mark.parametrize(
        ("message", "kind"), [("exceeded quota", errors.Forbidden), (POLICY, errors.Forbidden), (LACKS, errors.Invalid)]
    )
    def test_anything_else_is_said_as_it_was(self, message, kind):
        assert self.said(message, kind=kind) == ("Forbidden", message)
