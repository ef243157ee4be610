"""The benchmarks of bench/cluster with small numbers on separate clusters: they measure the documented events.

`make bench-cluster` checks the targets, on a machine without other work.
"""

import json
import sys
import time
from base64 import b64decode
from collections.abc import Iterator

import pytest
from bench.cluster import bulk, idle, steps, timeline, writes
from bench.cluster.audit import Audit, Write
from bench.cluster.place import Place, operator, place
from bench.cluster.timeline import Moment
from tests.cluster.waiting import eventually


@pytest.fixture(scope="module")
def real(machine) -> Iterator[Place]:
    """A cluster with a real node and a running operator."""
    with place() as where, operator(where):
        yield where


# Writes of the server that bypass its log: heartbeats every ten seconds, allocations, and the compaction revision.
_ITS_OWN = ("/registry/masterleases/", "/registry/ranges/", "compact_rev_key")
_EVERY_KEY = """
import urllib.request
every = b'{"key": "AA==", "range_end": "AA==", "keys_only": true}'
print(urllib.request.urlopen("http://127.0.0.1:2379/v3/kv/range", every, timeout=10).read().decode())
"""


def stored(where: Place) -> int:
    """Return the number of writes to etcd without writes that bypass the log."""
    found = json.loads(where.cluster.run_inside([sys.executable, "-c", _EVERY_KEY]))
    own = [int(each["version"]) for each in found["kvs"] if b64decode(each["key"]).decode().startswith(_ITS_OWN)]
    assert own
    return int(found["header"]["revision"]) - sum(own)


def standstill(where: Place, audit: Audit) -> tuple[int, list[Write]]:
    """Wait for a second without writes; return the number of writes, and the new writes in the log."""
    told: list[Write] = []

    def still() -> int:
        before = stored(where)
        time.sleep(1)
        told.extend(audit.new_writes())
        return before if stored(where) == before else 0

    return eventually(still, "a second in which nothing is stored"), told


def test_steps_and_bare_pods_are_timed(real):
    """(a), (b): both sides finish, and the log has the times of a chain in order."""
    rows = steps.measure(real, rounds=1)
    assert [row.what[:3] for row in rows] == ["(a)", "(b)"]
    assert all(float(row.value.split()[0]) > 0 for row in rows)
    lives = timeline.lives(Audit(real.cluster.audit_log).events(), by=timeline.ASKED)
    assert len(lives) == 2  # one to warm up, and a measured one
    for life in lives:
        told = [life[moment] for moment in (Moment.SEALED, Moment.RECORDED, Moment.STARTED, Moment.RECORDED_TOO)]
        assert sorted(told) == told
        assert life[Moment.CLAIMED] <= life[Moment.RELEASED] <= life[Moment.PLACED] <= life[Moment.STARTED]


@pytest.mark.proof
def test_writes_are_counted_as_etcd_counts_them(real):
    """(c): a further step has one pod, one Secret and one binding. A ready sandbox causes no writes."""
    audit = Audit(real.cluster.audit_log)
    before, _ = standstill(real, audit)
    counted = writes.count(real, rounds=1, lengths=(1, 2), idle=3)
    after, told = standstill(real, audit)
    for what, writer in (
        ("create pods", "operator"),
        ("delete pods", "operator"),
        ("create secrets", "operator"),
        ("create pods/binding", "scheduler"),
    ):
        assert counted.a_step((what, writer)) == 1, what
        assert counted.fixed((what, writer)) == 0, what
    assert not [key for key in counted.quiet if key[1] == "operator"]
    # The kubelet's last word on a pod, to delete it at once, is stored twice: as its grace, and as its end.
    twice = sum(write.what == "delete pods" and write.writer == "system:node:node" for write in told)
    assert twice == 1 + 1 + 2 + 1  # steps: the first one, both chains, and the idle one
    assert after - before == len(told) + twice


@pytest.mark.proof
@pytest.mark.builds("kwok")
@pytest.mark.timeout(400, func_only=True)  # two clusters
def test_bare_loop_makes_the_same_requests_as_the_operator(machine):
    """(d): both sides have done the same work."""
    sandboxes = 4
    ours, bare = bulk.compare(waves=2, of=sandboxes // 2)
    assert sandboxes * bulk.STEPS == ours.changes["create pods"] == bare.changes["create pods"]
    # The operator may have written several changes of the ledger at once, or one of its changes came too late.
    assert abs(ours.changes.total() - bare.changes.total()) <= sandboxes, (ours.changes, bare.changes)
    assert all(row.ours and row.yardstick for row in bulk.rows(ours, bare, sandboxes))


@pytest.mark.proof
@pytest.mark.builds("kwok")
@pytest.mark.timeout(400, func_only=True)  # a cluster, and two operators
def test_idle_sandboxes_are_held_and_found_again(machine):
    """(e): each has its run, before and after a restart."""
    memory, restart = idle.measure(sandboxes=20)
    assert 10 < float(memory.ours.split()[0]) < 500
    assert float(restart.ours.split()[0]) > 0
