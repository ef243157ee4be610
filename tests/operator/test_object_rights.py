"""Objects in a namespace whose permissions are missing or were revoked."""

from __future__ import annotations

import pytest
from tests.operator.rig.scenes import ready, wish
from tests.operator.rig.world import World
from tests.operator.test_objects import alone, ended, play, said, unit

from dayfly.kube import errors
from dayfly.operator.objects import grants
from dayfly.plan.reasons import Reason


def test_without_the_right_it_says_the_line_to_type_and_goes_on():
    async def story(world: World) -> None:
        world.sandbox(wish())
        line = (
            "kubectl create role dayfly-objects-claims.db.example.org --namespace shop --verb=get,create,patch,delete "
            "--resource=claims.db.example.org && kubectl create rolebinding dayfly-objects-claims.db.example.org "
            "--namespace shop --role=dayfly-objects-claims.db.example.org --serviceaccount=shop:dayfly-objects"
        )
        await world.until(lambda: said(world, "db/claim", line), "the line", 60)
        found = unit(world, "db/claim")
        assert (found["reason"], found["state"]) == ("ObjectsNotGranted", "waiting")
        world.may("claims.db.example.org")
        await world.until(lambda: said(world, "db/claim", "may not read Secret creds-db-claim-"), "the Secret's", 60)
        assert "--verb=get --resource=secrets --resource-name=creds-db-claim-" in unit(world, "db/claim")["message"]
        world.may("secrets", verbs="get")
        await world.until(lambda: ready(world), "ready", 120)
        world.delete()
        await ended(world)

    play(story, grants=False)


def test_a_right_that_is_taken_away_is_waited_for_at_the_end():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        rights = set(world.cluster.rights)
        world.cluster.rights.clear()
        world.delete()
        await world.until(lambda: said(world, "db/remove-claim", "may not get claims.db.example.org"), "the lack", 120)
        await world.rest(1200)
        world.cluster.rights |= rights
        await ended(world)

    play(story)


def test_rights_deleted_with_their_namespace_are_reported():
    """Role bindings are deleted first, and none can be created there: the advice is a cluster-wide command."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 60)
        rights = set(world.cluster.rights)
        world.cluster.rights.clear()
        world.ask("DELETE", "/api/v1/namespaces/shop")
        line = (
            "kubectl create clusterrole dayfly-objects-claims.db.example.org-shop --verb=get,create,patch,delete "
            "--resource=claims.db.example.org && kubectl create clusterrolebinding "
            "dayfly-objects-claims.db.example.org-shop --clusterrole=dayfly-objects-claims.db.example.org-shop "
            "--serviceaccount=shop:dayfly-objects"
        )
        await world.until(lambda: said(world, "db/remove-claim", line), "the line", 120)
        world.cluster.rights |= rights
        await ended(world)
        assert "shop" not in {item["metadata"]["name"] for item in world.cluster.objects("namespaces")}

    play(story, alone(), {})


# Once for each permission that its end needs.
@pytest.mark.parametrize("verb", ["get", "delete"])
def test_removal_without_rights_is_retried_slowly(verb):
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: world.cluster.objects("claims"), "it is made", 60)
        world.cluster.rights = {right for right in world.cluster.rights if right[1] != verb}
        world.delete()
        await world.until(lambda: said(world, "db/claim", f"may not {verb} claims.db.example.org"), "what it lacks", 60)
        before = len(world.cluster.calls)
        await world.rest(300)  # rig.pace checks how often
        asked = [call for call in world.cluster.calls[before:] if "/claims" in call.request.path]
        assert 8 <= len(asked) <= 120
        world.may("claims.db.example.org")
        await ended(world)

    play(story, alone(ready={"condition": "Never"}))


LACK = 'claims.x is forbidden: User "x" cannot create resource "claims" in API group "x" in the namespace "shop"'
CORE = 'services is forbidden: User "x" cannot create resource "services" in API group "" in the namespace "shop"'
PATH = 'User "x" is forbidden: User "x" cannot get path "/apis/x"'
IMPERSONATION = (
    'x is forbidden: User "op" cannot impersonate resource "serviceaccounts" in API group "" in namespace "shop"'
)
POLICY = 'a policy: teams cannot create resource "claims" in API group "x"'


def objection(message: str, kind: type[errors.Refused] = errors.Forbidden, *, ending: bool = False) -> tuple[str, str]:
    error = kind("POST claim", message, status=403, reason="Forbidden")
    found = grants.explain_refusal(error, "shop", 7, ending=ending)
    return found.reason, found.message


@pytest.mark.parametrize(("message", "resource"), [(LACK, "claims.x"), (CORE, "services")])
def test_missing_right_is_reported_with_the_line_that_grants_it(message, resource):
    reason, sentence = objection(message)
    assert reason == Reason.OBJECTS_NOT_GRANTED
    account = "the account dayfly-objects of namespace shop"
    assert sentence.startswith(f"{account} may not create {resource}; its admin")
    assert sentence.endswith(
        f"kubectl create role dayfly-objects-{resource} --namespace shop --verb=get,create,patch,delete "
        f"--resource={resource} && kubectl create rolebinding dayfly-objects-{resource} --namespace shop "
        f"--role=dayfly-objects-{resource} --serviceaccount=shop:dayfly-objects"
    )


def test_missing_right_to_impersonate_is_for_the_installer():
    assert "apply the install manifest again" in objection(IMPERSONATION)[1]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("exceeded quota", errors.Forbidden),
        (PATH, errors.Forbidden),
        (POLICY, errors.Forbidden),
        (LACK, errors.Invalid),
    ],
)
def test_other_refusals_are_reported_in_the_servers_words(message, kind):
    assert objection(message, kind) == ("Forbidden", message)
