"""The benches of bench/cluster with small numbers: they measure what they say, on clusters of their own.

Whether the aims are met is for `make bench-cluster` to say, on a machine that does nothing else.
"""

import time
from collections.abc import Iterator

import pytest
from bench.cluster import bulk, idle, steps, timeline, writes
from bench.cluster.audit import Audit
from bench.cluster.place import Place, operator, place
from bench.cluster.timeline import Moment


@pytest.fixture(scope="module")
def real(machine) -> Iterator[Place]:
    """A cluster with a real node and a running operator."""
    with place() as where, operator(where):
        yield where


def revision(where: Place) -> int:
    """How often etcd has stored anything: its revision, by a consistent read of whatever there is."""
    _, listed = where.cluster.get("/api/v1/namespaces/default/configmaps")
    return int(listed["metadata"]["resourceVersion"])


def test_steps_and_bare_pods_are_timed(real):
    """(a), (b): both sides run to their end, and the log tells where the time of a chain went, moment after moment."""
    rows = steps.measure(real, rounds=1)
    assert [row.what[:3] for row in rows] == ["(a)", "(b)"]
    assert all(float(row.value.split()[0]) > 0 for row in rows)
    lives = timeline.lives(Audit(real.cluster.audit_log).events())
    assert len(lives) == 2  # one to warm up, one that counts
    for life in lives:
        told = [life[moment] for moment in (Moment.SEALED, Moment.RECORDED, Moment.STARTED, Moment.RECORDED_TOO)]
        assert sorted(told) == told
        assert life[Moment.CLAIMED] <= life[Moment.LET_GO] <= life[Moment.PLACED] <= life[Moment.STARTED]


def test_writes_are_counted_as_etcd_counts_them(real):
    """(c): a further step has one pod, one Secret, one binding; beside a sandbox that is ready nothing is written."""
    audit = Audit(real.cluster.audit_log)
    audit.news()
    before, began = revision(real), time.monotonic()
    counted = writes.count(real, rounds=1, lengths=(1, 2), idle=3)
    told, stored = len(audit.news()), revision(real) - before
    for what, writer in (
        ("create pods", "operator"),
        ("delete pods", "operator"),
        ("create secrets", "operator"),
        ("create pods/binding", "scheduler"),
    ):
        assert counted.a_step((what, writer)) == 1, what
        assert counted.fixed((what, writer)) == 0, what
    assert not [key for key in counted.quiet if key[1] == "operator"]
    # The server writes a few keys of its own past its log: each ten seconds that it lives, seldom what it allocates.
    assert 0 <= stored - told <= 3 + (time.monotonic() - began) / 5


@pytest.mark.timeout(400, func_only=True)  # two clusters
def test_a_bare_loop_asks_for_what_the_operator_asked_for(machine):
    """(d): what is compared has done the same work."""
    sandboxes = 4
    ours, bare = bulk.compare(waves=2, of=sandboxes // 2)
    assert sandboxes * bulk.STEPS == ours.changes["create pods"] == bare.changes["create pods"]
    # Where the operator wrote the ledger in fewer versions than the loop can, or a change of its own came too late.
    assert abs(ours.changes.total() - bare.changes.total()) <= sandboxes, (ours.changes, bare.changes)
    assert all(row.ours and row.yardstick for row in bulk.rows(ours, bare, sandboxes))


@pytest.mark.timeout(400, func_only=True)  # a cluster, and two operators
def test_idle_sandboxes_are_held_and_found_again(machine):
    """(e): each has its run, before and after a restart."""
    memory, restart = idle.measure(sandboxes=20)
    assert 10 < float(memory.ours.split()[0]) < 500
    assert float(restart.ours.split()[0]) > 0
