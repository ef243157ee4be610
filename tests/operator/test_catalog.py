"""The catalog of a cluster: which pools it offers to the sandboxes of a namespace, and with how much work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.scenes import CHAIN
from tests.operator.test_pool_matching import PARAM

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, Key, ObjectMeta
from dayfly.operator.catalog import Catalog, PluginMissingError
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import PluginObject, ResourcePoolObject
from dayfly.spec.errors import SpecError


@pytest.fixture
def cluster() -> ClusterWatches:
    return ClusterWatches(KubeClient(FakeCluster(extra=()).transport("operator"), seed=1))


def publish(cluster: ClusterWatches, name: str = "pg@1.0.0", spec: dict[str, Any] = PARAM) -> None:
    meta = ObjectMeta(name=name.replace("@", "-"), uid=name, generation=1, resource_version="1")
    cluster.plugins.put(PluginObject(metadata=meta, spec={"name": name, **spec}))


def pool(
    cluster: ClusterWatches, name: str, plugin: str = "pg", *, created: int = 1, namespace: str = "shop", **params: Any
) -> ResourcePoolObject:
    meta = AnnotatedMeta(
        name=name,
        namespace=namespace,
        uid=f"{namespace}/{name}",
        generation=1,
        resource_version="1",
        creation_timestamp=f"2026-01-01T00:00:{created:02}Z",
    )
    made = ResourcePoolObject(metadata=meta, spec={"plugin": plugin, "ready": 1, "params": params})
    cluster.holds.pools.put(made)
    return made


def offered(catalog: Catalog, namespace: str = "shop") -> list[str]:
    return sorted(each.name for each in catalog.pools(namespace, {"pg"}))


def count_calls(work: Callable[[], object]) -> int:
    calls = []
    sys.setprofile(lambda _frame, event, _argument: calls.append(1) if event in ("call", "c_call") else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(calls)


def test_oldest_of_equal_pools_is_used_until_it_is_gone(cluster):
    catalog = Catalog(cluster)
    publish(cluster)
    young = pool(cluster, "a-young", created=2, size="1")
    old = pool(cluster, "old", created=1, size="1")
    assert offered(catalog) == ["old"]
    assert catalog.pool(old).name == "old"
    with pytest.raises(SpecError, match='the pool "old" already has'):
        catalog.pool(young)
    cluster.holds.pools.drop(Key("shop", "old"))
    assert offered(catalog) == ["a-young"]
    assert catalog.pool(young).name == "a-young"


def test_pool_that_is_being_deleted_is_not_used(cluster):
    catalog = Catalog(cluster)
    publish(cluster)
    seen = pool(cluster, "warm", size="1")
    assert offered(catalog) == ["warm"]
    meta = AnnotatedMeta(
        name="warm",
        namespace="shop",
        uid=seen.metadata.uid,
        generation=2,
        resource_version="2",
        deletion_timestamp="2026-01-02T00:00:00Z",
    )
    cluster.holds.pools.put(ResourcePoolObject(metadata=meta, spec=seen.spec))
    assert offered(catalog) == []


def test_default_of_a_newer_plugin_can_make_two_pools_equal(cluster):
    """A param that is fixed as not given has the default of the plugin, and the newest version is used."""
    catalog = Catalog(cluster)
    publish(cluster)
    pool(cluster, "large", created=1, size="large")
    pool(cluster, "default", created=2, size=None)
    assert offered(catalog) == ["default", "large"]
    make, seed = PARAM["create"]
    revised = {**make, "inputs": [{**make["inputs"][0], "default": "large"}]}
    publish(cluster, "pg@2.0.0", {**PARAM, "create": [revised, seed]})
    assert offered(catalog) == ["large"]
    cluster.plugins.drop(Key("", "pg-2.0.0"))
    assert offered(catalog) == ["default", "large"]


def test_pool_is_used_after_its_plugin_is_published(cluster):
    catalog = Catalog(cluster)
    publish(cluster, "pg@1.0.0", CHAIN)
    seen = pool(cluster, "warm", "pg@2.0.0", size="1")
    assert offered(catalog) == []
    with pytest.raises(PluginMissingError):
        catalog.pool(seen)
    publish(cluster, "pg@2.0.0")
    assert offered(catalog) == ["warm"]


def test_pool_is_used_after_the_parent_of_its_plugin_is_published(cluster):
    catalog = Catalog(cluster)
    publish(cluster, "pg@1.0.0", {**CHAIN, "parent": {"plugin": "server@1.0.0"}})
    pool(cluster, "warm")
    assert offered(catalog) == []
    publish(cluster, "server@1.0.0", CHAIN)
    assert offered(catalog) == ["warm"]
    cluster.plugins.drop(Key("", "server-1.0.0"))
    assert offered(catalog) == []


def test_pools_of_other_namespaces_are_not_offered(cluster):
    catalog = Catalog(cluster)
    publish(cluster)
    pool(cluster, "warm", size="1")
    pool(cluster, "warm", namespace="bank", size="2")
    assert [each.fixed for each in catalog.pools("bank", None)] == [{"size": "2"}]


@pytest.mark.parametrize("is_equal", [False, True], ids=["other-params", "same-params"])
def test_work_for_each_pool_does_not_grow_with_their_number(cluster, is_equal):
    """A tenant with many pools does not slow down other tenants. The test counts calls, because times vary."""
    catalog = Catalog(cluster)
    publish(cluster)

    def check(seen: ResourcePoolObject) -> None:
        try:
            catalog.pool(seen)
        except SpecError:
            assert is_equal

    def add(number: int) -> None:
        check(pool(cluster, f"warm-{number:03}", size="1" if is_equal else str(number)))

    few = count_calls(lambda: [add(number) for number in range(20)])
    for number in range(20, 180):
        add(number)
    many = count_calls(lambda: [add(number) for number in range(180, 200)])
    assert many < 1.2 * few
    every = list(cluster.holds.pools)
    assert count_calls(lambda: [check(seen) for seen in every]) < 10 * 1.2 * count_calls(
        lambda: [check(seen) for seen in every[:20]]
    )
    gone = count_calls(lambda: [cluster.holds.pools.drop(Key.from_object(seen)) for seen in every[:20]])
    assert count_calls(lambda: [cluster.holds.pools.drop(Key.from_object(seen)) for seen in every[180:]]) < 1.2 * gone


def test_work_for_a_pool_does_not_grow_with_other_plugins(cluster):
    catalog = Catalog(cluster)
    publish(cluster)
    seen = pool(cluster, "warm", size="1")
    catalog.pool(seen)
    alone = count_calls(lambda: catalog.pool(seen))
    for number in range(100):
        publish(cluster, f"other-{number}@1.0.0")
    assert count_calls(lambda: catalog.pool(seen)) == alone
