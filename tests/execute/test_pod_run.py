"""What is done to pods, each by itself: which one is ours, and which log is the one that was sealed."""

import asyncio
import base64
import copy
import hashlib

import pytest

from dayfly.execute.pod import names
from dayfly.execute.pod.run import ForeignPodError, Pods
from dayfly.kube.client import Client
from dayfly.kube.objects import PODS, Pod
from dayfly.spec.frames import encode
from kube.fake import FakeCluster, run

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
    return made


def prepared(there):
    """What comes of making our pod where that one is already."""

    async def main():
        cluster = FakeCluster(seed=1)
        cluster.controllers.settle = lambda: None  # no collector: the owner is not in this cluster
        client = Client(cluster.transport("operator"), seed=1)
        await client.create(PODS, there, "default")
        return await Pods(client).prepare(copy.deepcopy(MANIFEST))

    return run(main())


def test_one_that_an_earlier_try_has_made_is_ours():
    assert prepared(MANIFEST) is None


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {}},
        {"annotations": {names.NONCE_ANNOTATION: "nonce-2"}},
        {"finalizers": []},
        {"ownerReferences": []},
        {"ownerReferences": [OWNER | {"uid": "another"}]},
    ],
)
def test_one_that_lacks_what_nobody_else_can_know_is_not(metadata):
    with pytest.raises(ForeignPodError, match="default/r-make exists and does not belong to Dayfly"):
        prepared(another(**metadata))


def test_outputs_come_from_the_very_document_that_was_sealed():
    """A log is found by name, and is on a node's disk."""
    document = encode("dayfly-receipt", [("content", b"url\0db://1")])
    digest = hashlib.sha256(document).hexdigest()
    log = b"\x1edayfly-receipt 1 %d\n\x1e=%s\n\x1edayfly-end %s\n" % (
        len(document),
        base64.b64encode(document),
        digest.encode(),
    )

    async def main(wanted):
        cluster = FakeCluster(seed=1)
        client = Client(cluster.transport("operator"), seed=1)
        body = {"metadata": {"name": "r-make"}, "spec": MANIFEST["spec"]}
        pod = await client.create(PODS, body, "default")
        assert isinstance(pod, Pod)
        cluster.log_of("r-make", "default").write(log, ended=True)
        async with asyncio.timeout(60):
            return await Pods(client).contents(pod, wanted)

    assert run(main(digest)) == {"url": b"db://1"}
    assert run(main("of another document")) is None


def test_a_pod_that_took_its_place_is_not_read_for_it():
    async def main():
        cluster = FakeCluster(seed=1)
        client = Client(cluster.transport("operator"), seed=1)
        body = {"metadata": {"name": "r-make"}, "spec": MANIFEST["spec"]}
        first = await client.create(PODS, body, "default")
        whole = await Pods(client).whole(first)
        await client.delete(PODS, "r-make", "default", uid=first.metadata.uid, grace=0)
        await client.create(PODS, body, "default")
        return whole["metadata"]["uid"] == first.metadata.uid, await Pods(client).whole(first)

    assert run(main()) == (True, None)
