"""Changes to forks: each names the UID of the object and keeps fields of other writers."""

import copy

import pytest
from tests.kube.fake import FakeCluster, run

from dayfly.execute.fork.read import ForkDeployment, ForkService
from dayfly.execute.fork.render import FORM_ANNOTATION, REPLICAS_ANNOTATION
from dayfly.execute.fork.run import DEPLOYMENTS, ForeignForkError, Forks
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta

REVISION = "deployment.kubernetes.io/revision"
OWNER = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "box", "uid": "run-uid"}


def manifest(form="1", replicas="2", **annotations):
    labels = {"app": "fork"}
    container = {"name": "main", "image": f"x:{form}"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "fork",
            "namespace": "default",
            "ownerReferences": [OWNER],
            "annotations": {FORM_ANNOTATION: form, REPLICAS_ANNOTATION: replicas, **annotations},
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def run_in_cluster(work, there=None):
    """Run `work` in a cluster with this Deployment; return its result and the Deployment afterwards."""

    async def main():
        cluster = FakeCluster(seed=1)
        cluster.controllers.settle = lambda: None  # no collector: the owner is not in this cluster
        client = KubeClient(cluster.transport("operator"), seed=1)
        if there is not None:
            await client.create(DEPLOYMENTS, there, "default")
        forks = Forks(client)
        said = await work(forks, await forks.find("fork", "default"))
        return said, await forks.read_baseline("fork", "default")

    return run(main())


def test_form_update_keeps_only_the_controller_revision():
    there = manifest(**{REVISION: "3", "team.example/note": "x"})
    kept, after = run_in_cluster(lambda forks, seen: forks.update(seen, manifest("2")), there)
    assert kept
    assert after["metadata"]["annotations"] == {REVISION: "3", FORM_ANNOTATION: "2", REPLICAS_ANNOTATION: "2"}
    assert after["spec"]["replicas"] == 2
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "x:2"


def test_fork_with_current_form_is_unchanged():
    kept, after = run_in_cluster(lambda forks, seen: forks.update(seen, manifest("1", "5")), manifest())
    assert kept
    assert after["metadata"]["annotations"][REPLICAS_ANNOTATION] == "2"


def test_changed_fork_is_not_overwritten():
    async def late(forks, seen):
        assert await forks.scale_up(seen)
        return await forks.update(seen, manifest("2"))

    kept, after = run_in_cluster(late, manifest())
    assert not kept
    assert after["metadata"]["annotations"][FORM_ANNOTATION] == "1"


@pytest.mark.parametrize(("noted", "replicas"), [("2", 2), ("0", 1), ("", 1), ("many", 1), ("-3", 1), ("9" * 5000, 1)])
def test_release_sets_the_recorded_replicas(noted, replicas):
    let_go, after = run_in_cluster(lambda forks, seen: forks.scale_up(seen), manifest(replicas=noted))
    assert (let_go, after["spec"]["replicas"]) == (True, replicas)


def test_release_without_a_record_sets_one_replica():
    there = manifest()
    del there["metadata"]["annotations"]
    assert run_in_cluster(lambda forks, seen: forks.scale_up(seen), there)[1]["spec"]["replicas"] == 1


def test_deleted_fork_needs_no_change():
    async def gone(forks, seen):
        assert await forks.remove(seen)
        return [await forks.remove(seen), await forks.scale_up(seen), await forks.find("fork", "default")]

    said, after = run_in_cluster(gone, manifest())
    assert said[:2] == [True, True]
    assert after is None or after["metadata"]["deletionTimestamp"]


def test_existing_service_must_have_the_owner():
    made, _ = run_in_cluster(lambda forks, _: forks.prepare(copy.deepcopy(manifest())), manifest())
    assert made is None
    for owners in ([], [{**OWNER, "uid": "another"}]):
        there = manifest()
        there["metadata"]["ownerReferences"] = owners
        with pytest.raises(ForeignForkError, match="Deployment default/fork exists and does not belong to Dayfly"):
            run_in_cluster(lambda forks, _: forks.prepare(manifest()), there)


def test_service_is_found_only_with_its_owner():
    async def main():
        cluster = FakeCluster(seed=1)
        cluster.controllers.settle = lambda: None  # no collector: the owner is not in this cluster
        forks = Forks(KubeClient(cluster.transport("operator"), seed=1))
        meta = {"name": "fork", "namespace": "default", "ownerReferences": [OWNER]}
        spec = {"ports": [{"port": 80}], "selector": {"app": "x"}}
        wished = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
        first = await forks.ensure_service(copy.deepcopy(wished))
        again = await forks.ensure_service(copy.deepcopy(wished))
        assert first.metadata.uid == again.metadata.uid == (await found(forks, OWNER)).metadata.uid
        with pytest.raises(ForeignForkError, match="Service default/fork exists and does not belong to Dayfly"):
            await found(forks, {**OWNER, "uid": "another"})
        return await forks.find_service("none", "default", OWNER)

    def found(forks, owner):
        return forks.find_service("fork", "default", owner)

    assert run(main()) is None


@pytest.mark.parametrize(("act", "kind"), [("remove", ForkDeployment), ("remove_service", ForkService)])
def test_object_being_deleted_needs_no_request(act, kind):
    """There is no request to the API server, and no retry is needed."""

    async def main():
        meta = AnnotatedMeta(name="fork", namespace="default", uid="u", deletion_timestamp="2026-01-01T00:00:00Z")
        return await getattr(Forks(None), act)(kind(metadata=meta))

    assert run(main()) is True
