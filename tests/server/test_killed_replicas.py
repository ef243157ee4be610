"""Two servers on one PostgreSQL, each killed during work: repeated requests take effect once."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from tests.server import specs
from tests.server.replicas import Replicas, RetryingClient

from dayfly.server.admin import audit_chain

ORG, CLUSTER = "acme", "far"


@pytest.fixture
def replicas(postgres, tmp_path):
    # The number of restarts.
    found = Replicas(postgres.fresh(), tmp_path, seconds=0.5)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.slow
def test_replicas_killed_in_turn_lose_no_answered_request(replicas):
    key = replicas.init(ORG)
    replicas.start()
    asking = RetryingClient(replicas.balancer.add_address(), ORG, key)
    asking.must("PUT", f"clusters/{CLUSTER}", {})
    numbers, said = itertools.count(1), {}

    def one_after_the_other(name):
        """The last requested state holds in the end, whatever was killed."""
        while replicas.kills < 3:
            number = next(numbers)
            asking.must("PUT", f"sandboxes/{name}", specs.empty(cluster=CLUSTER, labels={"n": str(number)}))
            asking.must("PUT", f"resource-plugins/db{number % 3}", specs.plugin(f"db{number % 3}@0.0.{number}"))
            said[name] = number

    with ThreadPoolExecutor() as pool:
        list(pool.map(one_after_the_other, [f"sb{number}" for number in range(3)]))
    found = {each["name"]: int(each["spec"]["labels"]["n"]) for each in asking.must("GET", "sandboxes")}
    assert found == said
    plugins = {each["name"] for each in asking.must("GET", "resource-plugins?version=all")}
    assert plugins == {f"db{number % 3}@0.0.{number}" for number in range(1, next(numbers))}
    check_audit(asking)


def check_audit(asking):
    """The audit chain has no gap, and no object was created twice."""
    entries = []
    while page := asking.must("GET", f"audit?after={len(entries)}")["entries"]:
        entries += page
    head = msgspec.convert(asking.must("GET", "audit")["head"], audit_chain.ChainHead)
    assert audit_chain.find_fault(ORG, msgspec.convert(entries, list[audit_chain.ChainEntry]), head) == ""
    made = [each["object"] for each in entries if each["action"] == "create"]
    assert len(made) == len(set(made))
