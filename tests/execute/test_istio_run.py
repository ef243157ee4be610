"""Changes to VirtualServices: by resource version, and only Dayfly's rules in those of other owners."""

from __future__ import annotations

import pytest
from tests.execute.clients import Client

from dayfly.execute.istio.read import SHARED_LABEL, VirtualService, WrittenMeta
from dayfly.execute.istio.rules import RuleOwner
from dayfly.execute.istio.run import (
    AlteredRulesError,
    ForeignVirtualServiceError,
    VirtualServices,
    render_shared,
    shared_name,
)
from dayfly.kube import errors
from dayfly.kube.objects import Key, OwnerReference

KEY = Key("shop", "mesh")
THEIRS = {"route": [{"destination": {"host": "web"}}]}
OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web-uid"}
IDENTITY = {"uid": "uid", "resourceVersion": "7"}
DRY, REAL = {"dry_run": True}, {"dry_run": False}
NAME = RuleOwner(1_700_000_000_000, "box", "web").name(0)
OURS = {"name": NAME, "match": [{"headers": {"sd-key": {"exact": "k"}}}], "route": THEIRS["route"]}


def stored(*rules, ours=False, owners=None, **meta):
    about = {"name": "mesh", "namespace": "shop", "uid": "uid", "resource_version": "7", "owner_references": owners}
    labels = {SHARED_LABEL: "web"} if ours else {"theirs": "yes"}
    return VirtualService(metadata=WrittenMeta(**about, labels=labels, **meta), spec={"http": list(rules)})


def put_in(rules):
    return [OURS, *rules]


def take_out(rules):
    return [each for each in rules if each != OURS]


def refusal(kind):
    return kind("GET /x", "no", status=404)


class TestSharing:
    """The VirtualService that all forks of a Service share."""

    async def test_virtual_service_is_created_after_a_matching_dry_run(self):
        client = Client(find=None, create=stored(OURS, *render_shared(KEY, "web")["spec"]["http"]))
        await VirtualServices(client).ensure_shared(KEY, "web", OWNER, put_in)
        (_, manifest, *of, more), (_, again, *_, last) = client.calls_of("create")
        assert (of, more, last) == (["shop"], {"dry_run": True}, {})
        assert manifest == again
        assert manifest["metadata"]["ownerReferences"] == [OWNER]
        assert manifest["metadata"]["labels"][SHARED_LABEL] == "web"
        assert manifest["spec"] == {"hosts": ["web"], "http": [OURS, THEIRS]}
        assert shared_name("web") != shared_name("api")

    async def test_virtual_service_altered_by_the_dry_run_is_not_created(self):
        client = Client(find=None, create=stored({**OURS, "match": None}, THEIRS))
        with pytest.raises(AlteredRulesError, match="would store VirtualService shop/mesh without some"):
            await VirtualServices(client).ensure_shared(KEY, "web", OWNER, put_in)
        assert len(client.calls_of("create")) == 1

    async def test_virtual_service_of_another_owner_is_left_unchanged(self):
        with pytest.raises(ForeignVirtualServiceError, match="VirtualService shop/mesh exists and does not belong"):
            await VirtualServices(Client(find=stored(THEIRS))).ensure_shared(KEY, "web", OWNER, put_in)

    @pytest.mark.parametrize("known", [True, False])
    async def test_shared_virtual_service_gets_rules_and_owner_of_a_peer(self, known):
        peer = OwnerReference(api_version="apps/v1", kind="Deployment", name="api", uid="api-uid", controller=True)
        own = OwnerReference(api_version="apps/v1", kind="Deployment", name="web", uid="web-uid")
        seen = stored(THEIRS, ours=True, owners=[peer, own] if known else [peer])
        client = Client(find=seen, patch=stored(OURS, THEIRS, ours=True))
        await VirtualServices(client).ensure_shared(KEY, "web", OWNER, put_in)
        (_, patch, *of, more), (_, again, *_, last) = client.calls_of("patch")
        assert (of, more, last) == (["mesh", "shop"], DRY, REAL)
        assert patch == again
        assert patch["spec"] == {"http": [OURS, THEIRS]}
        owners = patch["metadata"].pop("ownerReferences", None)
        assert patch["metadata"] == IDENTITY
        assert owners is None if known else [each["uid"] for each in owners] == ["api-uid", "web-uid"]
        assert known or owners[0] == {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "api",
            "uid": "api-uid",
            "blockOwnerDeletion": False,
        }

    async def test_current_virtual_service_is_not_written(self):
        own = OwnerReference(api_version="apps/v1", kind="Deployment", name="web", uid="web-uid")
        client = Client(find=stored(OURS, THEIRS, ours=True, owners=[own]))
        await VirtualServices(client).ensure_shared(KEY, "web", OWNER, lambda rules: rules)
        assert [verb for verb, *_ in client.done] == ["find"]


class TestChanging:
    async def test_only_the_rules_are_written_at_the_version_seen(self):
        client = Client(find=stored(THEIRS), patch=stored(OURS, THEIRS))
        await VirtualServices(client).update_rules(KEY, put_in)
        assert client.calls_of("find") == [("VirtualService", "mesh", "shop", {})]
        assert [each[1] for each in client.calls_of("patch")] == [
            {"metadata": IDENTITY, "spec": {"http": [OURS, THEIRS]}}
        ] * 2

    @pytest.mark.parametrize(
        "found",
        [None, stored(THEIRS, deletion_timestamp="2026-01-01T00:00:00Z"), refusal(errors.NotServed)],
        ids=["gone", "ending", "its kind is no longer served"],
    )
    async def test_missing_virtual_service_needs_no_change(self, found):
        client = Client(find=found)
        await VirtualServices(client).update_rules(KEY, put_in)
        assert len(client.done) == 1

    async def test_change_altered_by_the_dry_run_is_not_written(self):
        client = Client(find=stored(THEIRS), patch=stored(THEIRS))
        with pytest.raises(AlteredRulesError):
            await VirtualServices(client).update_rules(KEY, put_in)
        assert len(client.calls_of("patch")) == 1

    async def test_change_that_drops_foreign_rules_is_not_written(self):
        client = Client(find=stored(THEIRS))
        with pytest.raises(AssertionError, match="must not change"):
            await VirtualServices(client).update_rules(KEY, lambda _rules: [OURS])
        assert len(client.done) == 1

    async def test_shared_virtual_service_is_deleted_with_its_last_rule(self):
        client = Client(find=stored(OURS, THEIRS, ours=True), delete=None)
        await VirtualServices(client).update_rules(KEY, take_out)
        assert client.calls_of("delete") == [
            ("VirtualService", "mesh", "shop", {"uid": "uid", "resource_version": "7"})
        ]
        client = Client(find=stored(OURS, THEIRS), patch=stored(THEIRS))
        await VirtualServices(client).update_rules(KEY, take_out)
        assert len(client.calls_of("patch")) == 2
        other = {**OURS, "name": RuleOwner(1_700_000_000_000, "other", "web").name(0)}
        client = Client(find=stored(OURS, other, THEIRS, ours=True), patch=stored(other, THEIRS))
        await VirtualServices(client).update_rules(KEY, take_out)
        assert len(client.calls_of("patch")) == 2


class TestAsking:
    async def test_virtual_services_with_rules_for_a_fork_are_found(self):
        other = {**OURS, "name": RuleOwner(1, "box", "api").name(0)}
        client = Client(list_all=type("Listing", (), {"items": [stored(THEIRS), stored(OURS), stored(other)]}))
        assert await VirtualServices(client).list_of_fork("box", "web", "shop") == [stored(OURS)]
        assert await VirtualServices(client).list_of_fork("other", "web", "shop") == []
        assert client.calls_of("list_all")[0][1] == "shop"

    async def test_unsupported_virtual_service_kind_has_none(self):
        client = Client(list_all=refusal(errors.NotServed))
        assert await VirtualServices(client).list_of_fork("box", "web", "shop") == []
