"""Changes to derived routes: by UID and resource version, and never a route that would match all requests."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.execute.clients import Client

from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.run import HTTP_ROUTES, AlteredRouteError, ForeignRouteError, Routes
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, OwnerReference

HEADERS = [{"name": "sd-key", "value": "k"}]
RULES = [{"matches": [{"headers": HEADERS}], "backendRefs": [{"name": "f-web"}]}, {"backendRefs": [{"name": "f-api"}]}]
OWNER = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "r", "uid": "run-uid"}
META = {"name": "web-1", "namespace": "shop", "ownerReferences": [OWNER]}
MANIFEST = {"metadata": META, "spec": {"rules": RULES}}
DRY, REAL = {"dry_run": True}, {}


def route(rules=RULES, *, owner="run-uid", **meta):
    reference = OwnerReference(api_version="v1", kind="Run", name="r", uid=owner)
    about = AnnotatedMeta(
        name="web-1",
        namespace="shop",
        uid="uid",
        resource_version="7",
        owner_references=[reference] if owner else None,
        **meta,
    )
    return RouteObject(metadata=about, spec={"rules": rules})


def refusal(kind, **more):
    return kind("POST /x", "no", status=400, **more)


def listed(*items):
    return SimpleNamespace(items=items)


class TestMaking:
    async def test_route_is_created_after_a_matching_dry_run(self):
        client, made = Client(create=[route(), route(labels={"made": "it"})]), route(labels={"made": "it"})
        assert await Routes(client).ensure(HTTP_ROUTES, MANIFEST) == made
        assert client.calls_of("create") == [
            ("HTTPRoute", MANIFEST, "shop", DRY),
            ("HTTPRoute", MANIFEST, "shop", REAL),
        ]

    @pytest.mark.parametrize(
        "kept",
        [
            [{"matches": [{}]}, {}],
            [{"matches": [{"headers": HEADERS}, {}]}, {}],
            [{"matches": [{"headers": HEADERS}]}],
            [{"matches": [{"headers": HEADERS, "queryParams": [{"name": "a"}]}]}, {}],
        ],
    )
    async def test_route_altered_by_the_dry_run_is_not_created(self, kept):
        client = Client(create=route(kept))
        with pytest.raises(AlteredRouteError, match="would store HTTPRoute web-1 without some"):
            await Routes(client).ensure(HTTP_ROUTES, MANIFEST)
        assert len(client.done) == 1

    @pytest.mark.parametrize("fault", [refusal(errors.AlreadyExists), errors.OutcomeUnknown("POST /x", "no")])
    async def test_route_created_by_an_earlier_attempt_is_found(self, fault):
        client = Client(create=[route(), fault], find=route())
        assert await Routes(client).ensure(HTTP_ROUTES, MANIFEST) == route()
        assert client.calls_of("find") == [("HTTPRoute", "web-1", "shop", {})]
        client = Client(create=fault, find=None)
        with pytest.raises(type(fault)):
            await Routes(client).ensure(HTTP_ROUTES, MANIFEST)

    @pytest.mark.parametrize("owner", ["another", ""])
    async def test_route_of_another_owner_is_left_unchanged(self, owner):
        client = Client(create=refusal(errors.AlreadyExists), find=route(owner=owner))
        with pytest.raises(ForeignRouteError, match="HTTPRoute shop/web-1 exists and does not belong to Dayfly"):
            await Routes(client).ensure(HTTP_ROUTES, MANIFEST)


class TestKeeping:
    async def test_route_is_updated_by_uid_and_version(self):
        client = Client(update=route())
        assert await Routes(client).update(HTTP_ROUTES, route(), MANIFEST) == route()
        (_, body, *of, more), (_, again, *_, last) = client.calls_of("update")
        assert body == again == {**MANIFEST, "metadata": {**META, "uid": "uid", "resourceVersion": "7"}}
        assert (of, more, last) == (["web-1", "shop"], DRY, REAL)

    async def test_route_altered_by_the_dry_run_is_not_updated(self):
        client = Client(update=route([{}, {}]))
        with pytest.raises(AlteredRouteError):
            await Routes(client).update(HTTP_ROUTES, route(), MANIFEST)
        assert len(client.done) == 1


class TestRemoving:
    @pytest.mark.parametrize(
        ("answer", "gone"),
        [
            (None, True),
            (refusal(errors.NotFound), True),
            (refusal(errors.NotServed), True),
            (refusal(errors.Conflict), False),
        ],
    )
    async def test_route_is_deleted_by_uid(self, answer, gone):
        client = Client(delete=answer)
        assert await Routes(client).remove(HTTP_ROUTES, route()) is gone
        assert client.calls_of("delete") == [("HTTPRoute", "web-1", "shop", {"uid": "uid"})]

    async def test_route_being_deleted_is_not_deleted_again(self):
        client = Client()
        assert await Routes(client).remove(HTTP_ROUTES, route(deletion_timestamp="2026-01-01T00:00:00Z")) is True
        assert client.done == []


class TestAsking:
    async def test_routes_of_a_fork_are_found_by_label(self):
        client = Client(list_all=listed(route()))
        assert await Routes(client).list_of_fork(HTTP_ROUTES, "box", "web", "shop") == [route()]
        [(_, namespace, more)] = client.calls_of("list_all")
        assert (namespace, more) == ("shop", {"labels": "dayfly.dev/run=box,dayfly.dev/route=web"})

    async def test_unsupported_route_kind_has_no_routes(self):
        assert (
            await Routes(Client(list_all=refusal(errors.NotServed))).list_of_fork(HTTP_ROUTES, "box", "web", "shop")
            == []
        )

    @pytest.mark.parametrize(
        ("slices", "answers"),
        [
            ([], False),
            ([{}, {"endpoints": None}], False),
            ([{"endpoints": [{"conditions": {"ready": False}}]}], False),
            ([{"endpoints": [{"conditions": {"ready": False}}, {"conditions": {}}]}], True),
            ([{}, {"endpoints": [{}]}], True),
        ],
    )
    async def test_service_with_a_ready_pod_has_a_ready_endpoint(self, slices, answers):
        client = Client(list_all=listed(*slices))
        assert await Routes(client).has_ready_endpoint("f-web", "shop") is answers
        [(_, namespace, more)] = client.calls_of("list_all")
        assert (namespace, more) == ("shop", {"labels": "kubernetes.io/service-name=f-web"})

    @pytest.mark.parametrize("fault", [errors.NotServed, errors.Forbidden])
    async def test_fork_with_unreadable_endpoints_counts_as_answering(self, fault):
        assert await Routes(Client(list_all=refusal(fault))).has_ready_endpoint("f-web", "shop") is True
