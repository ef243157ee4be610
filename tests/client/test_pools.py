"""Pools in both clients."""

from __future__ import annotations

import msgspec
import pytest

from dayfly.client import ConflictError, FailedError, InvalidError, NotFoundError, Pool
from dayfly.plan.reasons import Reason
from dayfly.spec.report import PoolReport, UnitReport

PLUGIN = {"name": "db", "spec": {"create": [{"name": "make", "script": "#!/bin/sh"}]}}
POOL = {"name": "small", "spec": {"cluster": "local", "plugin": "db", "ready": 1}}

NEWEST = 1 << 52  # the host has accepted every spec so far


@pytest.fixture
def pools(dayfly):
    dayfly.plugins.apply(PLUGIN)
    dayfly.pools.apply(POOL)
    return dayfly.pools


def report(host, **numbers):
    (uid,) = host.offers
    unit = UnitReport(id="small-1", name="small-1", event="start", kind="member", state="succeeded", holder="demo/db")
    host.say(uid, ready=numbers.get("ready") == 1, reason=Reason.READY, message="", units=(unit,))
    host.reports[uid] = msgspec.structs.replace(host.reports[uid], pool=PoolReport(generation=NEWEST, **numbers))
    return uid


def test_pool_is_applied_read_and_deleted(pools, host, tmp_path):
    report(host, ready=1, wanted=1, hits=3)
    found = pools.wait_ready("small")
    assert isinstance(found, Pool)
    assert (found.spec["plugin"], found.status.counts.ready, found.status.hits) == ("db", 1, 3)
    assert [(each.name, each.state, each.holder) for each in found.status.members] == [("small-1", "held", "demo/db")]
    assert pools.list() == (found,)
    file = tmp_path / "pool.yaml"
    file.write_text("name: small\nspec: {cluster: local, plugin: db, ready: 4}\n")
    assert pools.apply(file).spec["ready"] == 4
    pools.delete("small")
    (uid,) = host.offers
    host.finish(uid)
    assert pools.wait_gone("small") == "cleaned"
    with pytest.raises(NotFoundError):
        pools.get("small")


def test_actions_return_the_pool(pools, host):
    for action in (pools.pause, pools.resume, pools.drain):
        assert action("small").name == "small"
    assert [action for _, action, _ in host.actions] == ["pause", "resume", "drain"]
    with pytest.raises(NotFoundError):
        pools.pause("other")
    pools.delete("small")
    with pytest.raises(ConflictError):
        pools.pause("small")


def test_wait_for_a_paused_pool_fails_at_once(pools, host):
    report(host, wanted=1, paused="3 members failed in a row")
    with pytest.raises(FailedError, match="is paused: 3 members failed in a row"):
        pools.wait_ready("small")


def test_invalid_pool_is_refused_with_its_place(pools):
    with pytest.raises(InvalidError) as wrong:
        pools.apply({"name": "other", "spec": {"cluster": "local", "plugin": "none", "ready": 1}})
    assert wrong.value.problems[0].keys == ("spec", "plugin")
