"""Changes to objects: with the namespace's ServiceAccount, by UID, and with retries."""

from __future__ import annotations

import pytest
from tests.execute.clients import Client

from dayfly.execute.object.run import EXTRA, FINALIZER, NotServedError, ObjectClient, account
from dayfly.kube import errors
from dayfly.kube.forms import Propagation
from dayfly.kube.objects import AnnotatedMeta, PartialObjectMetadata, Secret, ServedKind, untyped_resource

TOPIC = untyped_resource("queues.dev/v1", "Topic", "topics")
META = {"name": "t", "namespace": "shop", "uid": "uid", "resourceVersion": "7"}
FOUND = {"metadata": META}
WRITTEN = {"metadata": {"name": "t", "namespace": "shop", "ownerReferences": [{"uid": "run"}]}}
HELD = {"metadata": {**META, "finalizers": ["other", FINALIZER]}}
ACTING = ("acting_as", account("shop"), EXTRA)


def refusal(kind, message="no"):
    return kind("GET /x", message, status=400)


GONE = errors.NotFound("GET /x", "no", status=404)
UNSERVED = errors.NotServed("GET /x", "no such page", status=404)


def namespace(**meta):
    return PartialObjectMetadata(metadata=AnnotatedMeta(name="shop", **meta))


class TestKinds:
    SERVED = (
        ServedKind(name="topics/status", kind="Topic", namespaced=True),
        ServedKind(name="topics", kind="Topic", namespaced=True),
        ServedKind(name="zones", kind="Zone"),
    )

    async def test_kind_discovery_is_cached_for_a_minute(self):
        now = [5.0]
        client = Client(kinds=self.SERVED)
        objects = ObjectClient(client, clock=lambda: now[0])
        for now[0], asked in ((5.0, 1), (64.9, 1), (65.0, 2)):
            assert (await objects.discover_kind("queues.dev/v1", "Topic")).plural == "topics"
            assert len(client.done) == asked

    async def test_unsupported_or_cluster_scoped_kind_is_refused(self):
        client = Client(kinds=[self.SERVED, self.SERVED, UNSERVED])
        objects = ObjectClient(client)
        for kind, words, scope in (
            ("Zone", "cluster-scoped", True),
            ("Queue", "serves no", False),
            ("Topic", "serves no", False),
        ):
            with pytest.raises(NotServedError, match=words) as told:
                await objects.discover_kind("queues.dev/v1", kind)
            assert told.value.scope is scope


class TestLooking:
    async def test_kind_no_longer_served_is_discovered_again(self):
        """The kind is discovered again."""
        client = Client(kinds=TestKinds.SERVED, find=UNSERVED)
        objects = ObjectClient(client)
        kind = await objects.discover_kind("queues.dev/v1", "Topic")
        with pytest.raises(NotServedError, match=r"^this cluster serves no Topic of queues.dev/v1: "):
            await objects.find(kind, "t", "shop")
        await objects.discover_kind("queues.dev/v1", "Topic")
        assert len(client.calls_of("kinds")) == 2

    @pytest.mark.parametrize(
        ("found", "ending"),
        [(None, False), (namespace(), False), (namespace(deletion_timestamp="2026-01-01T00:00:00Z"), True)],
    )
    async def test_ending_namespace_is_detected(self, found, ending):
        assert await ObjectClient(Client(find=found)).is_ending("shop") is ending

    @pytest.mark.parametrize(
        ("found", "holds"),
        [
            (None, None),
            (Secret(metadata=AnnotatedMeta(name="s"), data=None), {}),
            (Secret(metadata=AnnotatedMeta(name="s"), data={"a": b"1"}), {"a": b"1"}),
        ],
    )
    async def test_secret_is_read_as_its_data(self, found, holds):
        client = Client(find=found)
        assert await ObjectClient(client).read_secret("s", "shop") == holds
        assert client.done[0] == ACTING


class TestChanging:
    async def test_webhook_without_dry_run_support_refuses_nothing(self):
        free = {"patch": GONE, "delete": GONE}
        refused = refusal(errors.Refused, "it does not support dry run")
        await ObjectClient(Client(create=refused, **free)).dry_run(TOPIC, WRITTEN)
        with pytest.raises(errors.Refused):
            await ObjectClient(Client(create=refusal(errors.Refused), **free)).dry_run(TOPIC, WRITTEN)

    @pytest.mark.parametrize("answer", [None, refusal(errors.NotFound), refusal(errors.Conflict)])
    async def test_replaced_object_is_left_unchanged(self, answer):
        client = Client(patch=answer, delete=answer)
        await ObjectClient(client).patch(TOPIC, FOUND, {"a": 1})
        for unchanged in (False, True):
            await ObjectClient(client).delete(TOPIC, FOUND, unchanged=unchanged)
        assert client.calls_of("patch") == [("Topic", {"a": 1}, "t", "shop", {})]
        gone = [(*of, more["uid"], more["resource_version"]) for *of, more in client.calls_of("delete")]
        assert gone == [("Topic", "t", "shop", "uid", ""), ("Topic", "t", "shop", "uid", "7")]
        assert client.calls_of("delete")[0][-1]["propagation"] is Propagation.FOREGROUND
        assert client.done.count(ACTING) == 3

    async def test_object_being_deleted_is_not_deleted_again(self):
        client = Client()
        await ObjectClient(client).delete(TOPIC, {"metadata": {**META, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        assert client.done == []


class TestLettingGo:
    @pytest.mark.parametrize("found", [FOUND, {"metadata": {**META, "finalizers": ["other"]}}])
    async def test_object_without_our_finalizer_is_left_unchanged(self, found):
        client = Client()
        await ObjectClient(client).remove_finalizer(TOPIC, found)
        assert client.done == []

    @pytest.mark.parametrize("seen", [None, {"metadata": {**META, "uid": "another"}}, FOUND])
    async def test_finalizer_of_a_gone_or_replaced_object_needs_no_retry(self, seen):
        await ObjectClient(Client(patch=GONE)).remove_finalizer(TOPIC, HELD)
        client = Client(patch=refusal(errors.Invalid), find=seen)
        await ObjectClient(client).remove_finalizer(TOPIC, HELD)
        assert len(client.calls_of("patch")) == 1

    async def test_object_of_unserved_kind_is_still_held(self):
        with pytest.raises(NotServedError, match=r"^this cluster serves no Topic of queues.dev/v1: "):
            await ObjectClient(Client(patch=UNSERVED)).remove_finalizer(TOPIC, HELD)

    async def test_moved_finalizer_is_removed_after_retries_or_raises(self):
        moved = {"metadata": {**META, "finalizers": [FINALIZER]}}
        client = Client(patch=[refusal(errors.Conflict), None], find=moved)
        await ObjectClient(client).remove_finalizer(TOPIC, HELD)
        assert client.calls_of("patch")[1][1][2] == {"op": "remove", "path": "/metadata/finalizers/0"}
        client = Client(patch=refusal(errors.Conflict), find=moved)
        with pytest.raises(errors.Conflict):
            await ObjectClient(client).remove_finalizer(TOPIC, HELD)
        assert len(client.calls_of("patch")) == 3
