"""Guards around forks, each alone: what a cache has may be gone, replaced, or somebody else's, and the wish may be old."""

from __future__ import annotations

import msgspec
import pytest
from rig.alone import DEPLOYMENTS, MERGE, NAME, OWN, SERVICES, UNIT, Alone

from dayfly.execute.fork.read import Service, Workload
from dayfly.execute.fork.render import FORM_ANNOTATION, REPLICAS_ANNOTATION, form
from dayfly.execute.fork.run import Forks
from dayfly.execute.gateway.render import ROUTE_LABEL
from dayfly.execute.in_place import in_place
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.objects import Key, ObjectMeta
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Held, Objection, Running, Waiting
from dayfly.spec.run import State
from kube.fake import Refusal, run


def played(story):
    """The story in virtual time."""
    return run(story())


def fresh_form(alone: Alone) -> str:
    """What a fork of `web` is made of now."""
    return form(UNIT, msgspec.convert(alone.web["metadata"], ObjectMeta), {})


class TestSeeing:
    @pytest.mark.parametrize(("ours", "fact"), [(True, Running), (False, Ended)])
    def test_one_of_ours_that_nobody_claimed_holds_up_the_end_of_the_claimed_one(self, ours, fact):
        """It may make pods of the very label; a stranger's is a stranger's."""

        async def story():
            alone = Alone()
            alone.deployment(ours=ours)
            alone.claimed("gone")
            alone.look()
            return (await alone.observe()).facts[NAME, 1]

        assert isinstance(played(story), fact)

    @pytest.mark.parametrize("cached", ["nothing", "another"])
    def test_what_the_cache_does_not_know_is_asked_for(self, cached):
        async def story():
            alone = Alone()
            if cached == "another":
                alone.deployment()
                alone.look()
                alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
            alone.claimed(alone.deployment(replicas=1)["metadata"]["uid"])
            seen = await alone.observe()
            return seen.facts[NAME, 1], seen.seen[NAME].metadata.uid == alone.run.ledger.units[NAME].ref

        fact, is_it = played(story)
        assert isinstance(fact, Waiting)
        assert is_it

    def test_what_leaves_replica_sets_has_not_ended_and_is_looked_at_again(self):
        async def story():
            alone = Alone()
            path = "/apis/apps/v1/namespaces/shop/replicasets"
            alone.ask("POST", path, {"metadata": alone.meta(OWN, ours=False), "spec": {}})
            alone.claimed("gone")
            fact = (await alone.observe()).facts[NAME, 1]
            return fact, await alone.caches.queue.take()

        fact, again = played(story)
        assert isinstance(fact, Running)
        assert again == "box"

    @pytest.mark.parametrize(("replicas", "fact"), [(0, Held), (1, Running)])
    def test_what_was_prepared_is_held_unless_it_has_pods(self, replicas, fact):
        async def story():
            alone = Alone()
            alone.deployment(replicas=replicas)
            alone.look()
            return (await alone.observe()).facts

        facts = played(story)
        assert list(facts) == [(NAME, 1)]
        assert isinstance(facts[NAME, 1], fact)

    def test_what_is_being_deleted_is_not_held(self):
        async def story():
            alone = Alone()
            alone.deployment(finalizers=["x/y"])
            alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
            alone.look()
            seen = await alone.observe()
            return seen.facts, seen.objections[NAME].reason

        assert played(story) == ({}, Reason.STOPPING)

    def test_one_whose_end_is_recorded_is_not_held_for_the_next_attempt(self):
        async def story():
            alone = Alone()
            alone.claimed(alone.deployment()["metadata"]["uid"], State.DONE)
            alone.look()
            return (await alone.observe()).facts

        assert played(story) == {}

    def test_a_strangers_of_our_label_is_not_seen(self):
        """Nor one that names a run of our run's name, which was another."""

        async def story():
            alone = Alone()
            before = alone.meta(OWN)["ownerReferences"][0] | {"uid": "before"}
            alone.deployment(ownerReferences=[before])
            alone.look()
            return (await alone.observe()).facts

        assert played(story) == {}


class TestFollowing:
    async def following(self, change=None, **how):
        """What is written for a fork that runs in an old form, after a change that the caches have not heard of."""
        alone = Alone()
        alone.claimed(alone.deployment(replicas=how.pop("replicas", 1), **how)["metadata"]["uid"])
        alone.service()
        alone.look()
        if change:
            change(alone)
            alone.changes.clear()
        await alone.keep()
        return alone

    def test_it_takes_the_form_that_is_wished_for(self):
        alone = run(self.following())
        assert alone.changes == [f"PUT {OWN}"]
        found = alone.now()
        assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "web:1"
        assert found["metadata"]["annotations"][FORM_ANNOTATION] == fresh_form(alone)
        assert found["spec"]["replicas"] == 1

    @pytest.mark.parametrize("what", ["services", "deployments"])
    def test_it_does_though_what_is_left_of_others_may_not_be_taken_away(self, what):
        """Rights may be taken back in one of the namespaces that the sandbox had forks in."""

        async def story():
            alone = Alone()
            alone.claimed(alone.deployment(replicas=1, form="of before")["metadata"]["uid"])
            alone.service()
            for name in ("f-1", "f-2"):
                alone.deployment(name) if what == "deployments" else alone.service(name)
            alone.look()
            alone.server.refuses = lambda request: (
                Refusal(403, "no") if request.method == "DELETE" and request.path.endswith("/f-1") else None
            )
            with pytest.raises(errors.Forbidden):
                await alone.keep()
            return alone.now()["metadata"]["annotations"][FORM_ANNOTATION] == fresh_form(alone), alone.there(what)

        assert played(story) == (True, ["f-1", OWN])

    def test_one_that_nobody_has_claimed_gets_no_pods(self):
        async def story():
            alone = Alone()
            alone.deployment(form="of before")
            alone.service()
            alone.look()
            return await alone.keep()

        assert played(story) == []

    def test_one_that_has_the_form_is_left_alone(self):
        async def story():
            alone = Alone()
            alone.claimed(alone.deployment(replicas=1, form=fresh_form(alone))["metadata"]["uid"])
            alone.service()
            alone.look()
            sight, asked = await alone.observe(), []
            alone.server.faults = lambda call: asked.append(call.request.path)
            await alone.forks.keep(alone.run, alone.plan, sight)
            return asked

        assert played(story) == [], "nor is it asked for, turn after turn"

    def test_one_without_pods_waits_for_its_replicas(self):
        assert run(self.following(replicas=0)).changes == []

    @pytest.mark.parametrize("heard", [True, False])
    def test_one_that_is_being_deleted_is_left_to_its_end(self, heard):
        def deleted(alone):
            alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
            if heard:
                alone.look()

        assert run(self.following(deleted, finalizers=["x/y"])).changes == []

    def test_one_that_took_its_place_is_not_given_its_form(self):
        def replaced(alone):
            alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
            alone.deployment(replicas=1)

        assert run(self.following(replaced)).changes == []

    def test_one_that_is_gone_is_not_made_anew(self):
        assert run(self.following(lambda alone: alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}"))).changes == []

    def test_a_wish_that_is_not_the_newest_is_not_followed(self):
        assert run(self.following(Alone.revised)).changes == []

    def test_a_baseline_that_is_gone_changes_nothing(self):
        def forsaken(alone):
            alone.caches.baselines.drop(Key("shop", "web"))

        assert run(self.following(forsaken)).changes == []
        assert run(self.following(lambda alone: alone.ask("DELETE", f"{DEPLOYMENTS}/web"))).changes == [], "unheard of"

    @pytest.mark.parametrize("has_it", [True, False])
    def test_once_nothing_keeps_it_from_its_form_that_is_said(self, has_it):
        async def story():
            alone, looked = Alone(), []
            form = fresh_form(alone) if has_it else ""
            alone.claimed(alone.deployment(replicas=1, form=form)["metadata"]["uid"])
            alone.service()
            alone.look()
            alone.caches.queue.add = lambda run, **_: looked.append(run)
            alone.memory.stuck[NAME] = Objection(reason="Quota", message="no room", since=1)
            await alone.keep()
            return alone.memory.stuck, looked

        assert played(story) == ({}, ["box"])

    def test_its_service_gets_the_ports_of_its_model(self):
        def reported(alone):
            alone.ask("PATCH", f"{SERVICES}/web", {"spec": {"ports": [{"port": 90}]}}, MERGE)
            alone.look()

        alone = run(self.following(reported))
        assert f"PATCH {OWN}" in alone.changes
        [own] = [each for each in alone.server.objects("services") if each["metadata"]["name"] == OWN]
        assert [port["port"] for port in own["spec"]["ports"]] == [90]

    def test_a_service_that_is_gone_is_made_again(self):
        def removed(alone):
            alone.ask("DELETE", f"{SERVICES}/{OWN}")
            alone.caches.services.drop(Key("shop", OWN))

        assert run(self.following(removed)).there("services") == [OWN]

    def test_a_service_is_not_made_again_where_the_wish_is_not_the_newest(self):
        """A peer that knows more has taken it away: the two would make and remove it without end."""

        def removed(alone):
            alone.ask("DELETE", f"{SERVICES}/{OWN}")
            alone.caches.services.drop(Key("shop", OWN))
            alone.revised()

        assert run(self.following(removed)).there("services") == []

    def test_a_run_that_ends_changes_no_fork(self):
        async def story():
            alone = Alone()
            alone.claimed(alone.deployment(replicas=1)["metadata"]["uid"])
            closed = {"closed": {"at": 1, "reason": "Deleted"}, "phase": "closed"}
            path = "/apis/dayfly.dev/v1alpha1/runs/box"
            alone.run = msgspec.convert(alone.ask("PATCH", path, {"ledger": closed}, MERGE), type(alone.run))
            alone.service()
            alone.look()
            return await alone.keep()

        assert played(story) == []


class TestTidying:
    def test_what_nobody_wishes_for_goes(self):
        async def story():
            alone = Alone(wished=False)
            alone.deployment("f-old")
            alone.service("f-old")
            alone.look()
            await alone.keep()
            return alone.there(), alone.there("services")

        assert played(story) == ([], [])

    def test_a_service_that_a_route_leads_by_is_the_routes(self):
        async def story():
            alone = Alone(wished=False)
            labels = {RUN_LABEL: "box", ROUTE_LABEL: OWN}
            spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
            alone.ask("POST", SERVICES, {"metadata": {**alone.meta("by-key"), "labels": labels}, "spec": spec})
            alone.look()
            await alone.keep()
            return alone.there("services")

        assert played(story) == ["by-key"]

    def test_it_stays_where_the_wish_is_not_the_newest(self):
        async def story():
            alone = Alone(wished=False)
            alone.deployment("f-old")
            alone.service("f-old")
            alone.look()
            alone.revised()
            await alone.keep()
            return alone.there(), alone.there("services")

        assert played(story) == (["f-old"], ["f-old"])

    def test_what_is_to_be_claimed_stays(self):
        async def story():
            alone = Alone()
            alone.deployment()
            alone.service()
            alone.look()
            await alone.keep()
            return alone.there(), alone.there("services")

        assert played(story) == ([OWN], [OWN])

    def test_what_is_claimed_stays_and_what_bears_its_name_goes(self):
        """A fork of another name that a ledger holds as well: only the UID says whose it is."""

        async def story(claimed: bool):
            alone = Alone(wished=False)
            uid = alone.deployment()["metadata"]["uid"]
            alone.claimed(uid if claimed else "another")
            alone.service()
            alone.look()
            await alone.keep()
            return alone.there(), alone.there("services")

        assert run(story(claimed=True)) == ([OWN], [OWN])
        assert run(story(claimed=False)) == ([], [OWN])

    def test_a_strangers_stay(self):
        async def story():
            alone = Alone(wished=False)
            alone.deployment("f-mine", ours=False)
            alone.service("f-mine", ours=False)
            alone.look()
            await alone.keep()
            await alone.forks.clear("box")
            return alone.there(), alone.there("services")

        assert played(story) == (["f-mine"], ["f-mine"])

    def test_all_goes_with_the_run(self):
        async def story():
            alone = Alone()
            alone.claimed(alone.deployment()["metadata"]["uid"])
            alone.service()
            alone.look()
            await alone.forks.clear("box")
            return alone.there(), alone.there("services")

        assert played(story) == ([], [])

    def test_one_that_may_not_be_taken_away_keeps_none_of_the_others(self):
        """Rights may be taken back in one of its namespaces."""

        async def story():
            alone = Alone()
            for name in ("f-1", "f-2"):
                alone.deployment(name)
                alone.service(name)
            alone.look()
            remove = alone.forks._forks.remove

            async def refused(seen):
                if seen.metadata.name == "f-1":
                    raise errors.Forbidden("DELETE", "no", status=403)
                return await remove(seen)

            alone.forks._forks.remove = refused
            with pytest.raises(errors.Forbidden):
                await alone.forks.clear("box")
            return alone.there(), alone.there("services")

        assert played(story) == (["f-1"], [])


class TestDoing:
    async def done(self, what, **how):
        """Whether it is done, and how the Deployment is then; `how` is how it was."""
        alone = Alone()
        made = alone.deployment(**how)
        alone.look()
        answer = await what(alone, Forks(alone.caches.client), msgspec.convert(made, Workload))
        return answer, alone

    @pytest.mark.parametrize(("noted", "replicas"), [("3", 3), ("0", 1), ("many", 1), ("", 1)])
    def test_it_is_let_go_with_as_many_as_are_noted(self, noted, replicas):
        async def let_go(_alone, forks, seen):
            return await forks.let_go(seen)

        answer, alone = run(self.done(let_go, annotations={REPLICAS_ANNOTATION: noted}))
        assert answer is True
        assert alone.now()["spec"]["replicas"] == replicas

    @pytest.mark.parametrize("act", ["let_go", "remove"])
    def test_what_took_its_place_is_left_alone(self, act):
        async def late(alone, forks, seen):
            alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
            alone.deployment()
            return await getattr(forks, act)(seen)

        answer, alone = run(self.done(late))
        assert answer is False
        assert alone.now()["spec"]["replicas"] == 0
        assert alone.there() == [OWN]

    @pytest.mark.parametrize("act", ["let_go", "remove"])
    def test_what_is_gone_needs_nothing(self, act):
        async def late(alone, forks, seen):
            alone.ask("DELETE", f"{DEPLOYMENTS}/{OWN}")
            return await getattr(forks, act)(seen)

        answer, alone = run(self.done(late))
        assert answer is True
        assert alone.now() is None

    def test_it_goes_with_its_pods(self):
        async def remove(_alone, forks, seen):
            return await forks.remove(seen)

        answer, alone = run(self.done(remove))
        assert answer is True
        assert alone.there() == []

    def test_a_form_is_given_to_the_version_that_was_seen(self):
        async def late(alone, forks, seen):
            alone.ask("PATCH", f"{DEPLOYMENTS}/{OWN}", {"metadata": {"annotations": {"new": "yes"}}}, MERGE)
            manifest = {"metadata": {"name": OWN, "annotations": {FORM_ANNOTATION: "b", REPLICAS_ANNOTATION: "1"}}}
            manifest |= {key: alone.now()[key] for key in ("apiVersion", "kind", "spec")}
            return await forks.keep(seen, manifest)

        answer, alone = run(self.done(late))
        assert answer is False
        assert alone.now()["metadata"]["annotations"][FORM_ANNOTATION] == ""

    @pytest.mark.parametrize(("change", "answer"), [("none", True), ("replaced", False), ("gone", True)])
    def test_a_service_gets_ports_as_the_one_that_was_seen(self, change, answer):
        async def story():
            alone = Alone()
            seen = msgspec.convert(alone.service(port=1), Service)
            like = msgspec.convert(alone.service("like", port=2), Service)
            if change != "none":
                alone.ask("DELETE", f"{SERVICES}/{OWN}")
            if change == "replaced":
                alone.service(port=3)
            done = await Forks(alone.caches.client).keep_service(seen, like)
            every = {item["metadata"]["name"]: item for item in alone.server.objects("services")}
            return done, [port["port"] for port in every.get(OWN, {}).get("spec", {}).get("ports", [])]

        assert played(story) == (answer, {"none": [2], "replaced": [3], "gone": []}[change])


@pytest.mark.parametrize(
    ("state", "generation"), [(State.CLAIMED, "g"), (State.UNKNOWN, "g"), (State.DONE, ""), (State.VOID, "")]
)
def test_a_fork_that_lives_is_not_replaced_for_a_new_wish(state, generation):
    async def story():
        return Alone().claimed("ref", state).ledger

    plan = seal((), (UNIT,))
    found = in_place(plan, played(story), {"fork"}).kept[NAME].generation
    assert found == (generation or plan.kept[NAME].generation)
