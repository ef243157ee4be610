"""Discovery of kinds and namespaces before an object is created."""

import contextlib
import json
from types import SimpleNamespace

import pytest
from tests.kube.fake import FakeCluster
from tests.kube.fake.kinds import Kind

from dayfly.execute.object.run import ObjectClient
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import untyped_resource
from dayfly.kube.transport import KubeRequest

JOB = Kind("batch", "v1", "jobs", "Job")


class Bench:
    """A client for objects of a cluster with Jobs, with a clock of the test."""

    def __init__(self) -> None:
        self.server = FakeCluster(seed=1, extra=[JOB])
        self.server.controllers.settle = lambda: None  # a deleted object stays in deletion
        self.now = 1000.0
        self.objects = ObjectClient(KubeClient(self.server.transport("operator"), seed=1), lambda: self.now)

    def ask(self, method, path, body=None):
        answer = self.server.answer(KubeRequest(method, path, {}, json.dumps(body or {}).encode()))
        assert answer.status < 300, answer.body


async def test_discovery_is_cached_for_a_minute():
    bench = Bench()
    for now, asked in ((1000.0, 1), (1059.9, 1), (1060.0, 2), (1060.1, 2)):
        bench.now = now
        kind = await bench.objects.discover_kind("batch/v1", "Job")
        assert (kind.group, kind.plural) == ("batch", "jobs")
        assert len(bench.server.calls) == asked


@pytest.mark.parametrize(("message", "refused"), [("exceeded quota", True), ("w does not support dry run", False)])
async def test_missing_dry_run_support_is_no_refusal(message, refused):
    async def create(*_, dry_run):
        assert dry_run
        raise errors.Refused("POST jobs", message, status=400)

    async def none(*_, **_how):
        raise errors.NotFound("PATCH jobs", "not found", status=404)

    client = SimpleNamespace(create=create, patch=none, delete=none)
    objects = ObjectClient(SimpleNamespace(acting_as=lambda *_: client))
    with pytest.raises(errors.Refused, match=message) if refused else contextlib.nullcontext():
        await objects.dry_run(
            untyped_resource("batch/v1", "Job", "jobs"),
            {"metadata": {"name": "x", "namespace": "shop", "ownerReferences": [{"uid": "r"}]}},
        )


async def test_namespace_is_ending_from_deletion_until_gone():
    bench = Bench()
    assert not await bench.objects.is_ending("shop"), "there is no such namespace"
    bench.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop", "finalizers": ["example.org/x"]}})
    assert not await bench.objects.is_ending("shop")
    bench.ask("DELETE", "/api/v1/namespaces/shop")
    assert await bench.objects.is_ending("shop")
