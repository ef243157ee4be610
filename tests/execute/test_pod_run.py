"""Changes to pods: ownership, recall, and outputs from the log."""

import asyncio
import base64
import copy
import hashlib
from types import SimpleNamespace

import pytest
from tests.execute.clients import Client as Requests
from tests.kube.fake import FakeCluster, run

from dayfly.execute.pod import names
from dayfly.execute.pod.run import ForeignPodError, PodClient
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import PODS, ObjectMeta, Pod, PodSpec, SchedulingGate
from dayfly.spec.frames import encode

OWNER = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "box", "uid": "run-uid"}
MANIFEST = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "r-make",
        "namespace": "default",
        "annotations": {names.NONCE_ANNOTATION: "nonce-1"},
        "finalizers": [names.FINALIZER],
        "ownerReferences": [OWNER],
    },
    "spec": {"containers": [{"name": "main", "image": "x"}]},
}


def another(**metadata):
    made = copy.deepcopy(MANIFEST)
    made["metadata"] |= metadata
    made["metadata"] = {field: value for field, value in made["metadata"].items() if value is not None}
    return made


def prepared(there):
    """Return the result of `prepare` if this pod exists."""

    async def main():
        cluster = FakeCluster(seed=1)
        cluster.controllers.settle = lambda: None  # no collector: the owner is not in this cluster
        client = KubeClient(cluster.transport("operator"), seed=1)
        await client.create(PODS, there, "default")
        return await PodClient(client).prepare(copy.deepcopy(MANIFEST))

    return run(main())


def test_pod_created_by_an_earlier_attempt_is_ours():
    assert prepared(MANIFEST) is None


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {}},
        {"annotations": {names.NONCE_ANNOTATION: "nonce-2"}},
        {"finalizers": []},
        {"ownerReferences": []},
        {"annotations": None, "finalizers": None, "ownerReferences": None},
        {"ownerReferences": [OWNER | {"uid": "another"}]},
    ],
)
def test_pod_without_our_nonce_is_foreign(metadata):
    with pytest.raises(ForeignPodError, match="default/r-make exists and does not belong to Dayfly"):
        prepared(another(**metadata))


def test_outputs_need_the_receipt_with_the_sealed_digest():
    """A log is requested by pod name and can be from another pod."""
    document = encode("dayfly-receipt", [("content", b"url\0db://1")])
    digest = hashlib.sha256(document).hexdigest()
    log = b"\x1edayfly-receipt 1 %d\n\x1e=%s\n\x1edayfly-end %s\n" % (
        len(document),
        base64.b64encode(document),
        digest.encode(),
    )

    async def main(wanted):
        cluster = FakeCluster(seed=1)
        client = KubeClient(cluster.transport("operator"), seed=1)
        body = {"metadata": {"name": "r-make"}, "spec": MANIFEST["spec"]}
        pod = await client.create(PODS, body, "default")
        assert isinstance(pod, Pod)
        cluster.log_of("r-make", "default").write(log, ended=True)
        async with asyncio.timeout(60):
            return await PodClient(client).read_outputs(pod, wanted)

    assert run(main(digest)) == {"url": b"db://1"}
    assert run(main("of another document")) is None


def test_replaced_pod_is_not_read():
    async def main():
        cluster = FakeCluster(seed=1)
        client = KubeClient(cluster.transport("operator"), seed=1)
        body = {"metadata": {"name": "r-make"}, "spec": MANIFEST["spec"]}
        first = await client.create(PODS, body, "default")
        whole = await PodClient(client).read_stored(first)
        await client.delete(PODS, "r-make", "default", uid=first.metadata.uid, grace=0)
        await client.create(PODS, body, "default")
        return whole["metadata"]["uid"] == first.metadata.uid, await PodClient(client).read_stored(first)

    assert run(main()) == (True, None)


class TestRecall:
    """The runner in an ephemeral container excludes the start of the step."""

    OURS = {"name": f"{names.RECALL}5"}

    def recalled(self, *, stored="the pod", fault=None, image="spare", added=()):
        """Return the result of the recall and the sent patches."""
        sent = []

        async def find(*_):
            if stored is None:
                return None
            containers = [{"name": "side", "image": "spare"}, {"name": "main", "image": "missing"}]
            spec = {"containers": containers, **({"ephemeralContainers": list(added)} if added else {})}
            return {"metadata": {"uid": "u", "resourceVersion": "9"}, "spec": spec}

        async def patch(_kind, body, *_, **how):
            sent.append((how, body))
            if fault:
                raise fault

        pod = Pod(metadata=ObjectMeta(name="r", namespace="n", uid="u"))
        return run(PodClient(SimpleNamespace(find=find, patch=patch)).recall(pod, image, 7)), sent

    @pytest.mark.parametrize("added", [(), ({"name": "debugger"},)])
    def test_recall_adds_a_container_to_that_version_of_the_pod(self, added):
        way, [(how, body)] = self.recalled(added=added)
        assert (way, how) == (True, {"subresource": "ephemeralcontainers"})
        assert body["metadata"] == {"uid": "u", "resourceVersion": "9"}
        *before, ours = body["spec"]["ephemeralContainers"]
        assert before == list(added)
        assert (ours["name"], ours["image"], ours["imagePullPolicy"]) == ("dayfly-recall-7", "spare", "IfNotPresent")
        assert ours["command"] == ["/dayfly/runner", "void"]

    @pytest.mark.parametrize(
        ("fault", "way"),
        [
            (errors.NotFound("PATCH", "gone", status=404), True),
            (errors.Conflict("PATCH", "moved", status=409), True),
            (errors.Forbidden("PATCH", "a policy", status=403), False),
            (errors.Invalid("PATCH", "a field", status=422), False),
        ],
    )
    def test_moved_pod_is_recalled_later_and_refusal_is_final(self, fault, way):
        assert self.recalled(fault=fault)[0] is way

    @pytest.mark.parametrize("how", [{"stored": None}, {"added": (OURS,)}])
    def test_missing_or_recalled_pod_needs_no_recall(self, how):
        assert self.recalled(**how) == (True, [])

    def test_pod_without_the_fallback_image_cannot_be_recalled(self):
        assert self.recalled(image="missing") == (False, [])


def test_log_that_does_not_end_raises_a_temporary_error():
    """The content of the log is unknown then, which differs from a log without a receipt."""

    async def main():
        cluster = FakeCluster(seed=1)
        client = KubeClient(cluster.transport("operator"), seed=1)
        body = {"metadata": {"name": "r-make"}, "spec": MANIFEST["spec"]}
        pod = await client.create(PODS, body, "default")
        cluster.log_of("r-make", "default").write(b"a line\n")
        pods = PodClient(
            SimpleNamespace(log=lambda *_, **__: client.log("r-make", "default", container="main", follow=True))
        )
        with pytest.raises(errors.ServerError, match=r"log of pod r-make: incomplete after \d+ s"):
            await pods.read_outputs(pod, "x")

    run(main())


def test_unheld_pod_needs_no_release():
    gone = Pod(metadata=ObjectMeta(name="r", namespace="n", uid="u", deletion_timestamp="2026-01-01T00:00:00Z"))
    run(PodClient(None).release(gone))


def test_pod_without_gate_needs_no_ungating():
    pod = Pod(metadata=ObjectMeta(name="r", namespace="n", uid="u"))
    assert run(PodClient(None).remove_gate(pod)) is True


@pytest.mark.parametrize("fault", [errors.NotFound, errors.Conflict, errors.Invalid])
def test_changed_pod_is_not_ungated(fault):
    gate = SchedulingGate(name=names.GATE)
    pod = Pod(metadata=ObjectMeta(name="r", namespace="n", uid="u"), spec=PodSpec(scheduling_gates=[gate]))
    assert run(PodClient(Requests(patch=fault("PATCH /x", "no", status=409))).remove_gate(pod)) is False
    assert run(PodClient(Requests(patch=pod)).remove_gate(pod)) is True
