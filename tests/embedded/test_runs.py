"""The run cache: read on demand, read again after changes of rows, and dropped."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from tests.embedded import documents as doc

from dayfly.embedded.forks import BaselineProcesses
from dayfly.embedded.ledger import StoredRun
from dayfly.embedded.runs import RunCache, current_fork_values
from dayfly.plan.world import NeverRan, Running, TargetIntent
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import EndRequest, Run, UnitRecord
from dayfly.spec.workload import Workload

FORK = "fork:default/app"


class Bench:
    """Runs over scripted rows; `reads` are the rows that were read."""

    def __init__(self) -> None:
        self.rows: dict[str, StoredRun] = {}
        self.reads: list[str] = []
        self.fault: OSError | None = None
        self.followed: list[tuple[str, frozenset[str]]] = []
        self.baselines = BaselineProcesses()
        self.damaged = ""
        self.runs = RunCache(SimpleNamespace(load=self._load), self.baselines, SimpleNamespace(follow=self._follow))

    def _load(self, uid):
        self.reads.append(uid)
        if uid == self.damaged:
            raise RunDamagedError("its record is damaged")
        return self.rows.get(uid)

    def _follow(self, run, plan, there):
        self.followed.append((run, there))
        if self.fault:
            raise self.fault
        return msgspec.structs.replace(plan, digest="with addresses")

    def row(self, uid: str = "u", *, forks=(), closed: bool = False, **units: UnitRecord) -> None:
        records = {name if ":" in name else f"r/{name}": record for name, record in units.items()}
        request = EndRequest(at=1, reason="Deleted") if closed else None
        run = Run(uid=uid, target=doc.TARGET, plan="", closed=request, units=records)
        documents = (doc.resource("r", [doc.step("a")]),)
        self.rows[uid] = StoredRun(run=run, name="box", documents=documents, forks=tuple(forks), intent=TargetIntent())


@pytest.fixture
def bench():
    return Bench()


def test_a_row_that_was_changed_is_read_again_if_it_is_in_memory(bench):
    bench.row()
    bench.runs.refresh("u")
    assert bench.reads == []
    kept = bench.runs.load("u")
    bench.row(forks=[doc.fork()])
    bench.runs.refresh_all()
    assert kept is bench.runs.cached("u")
    assert list(kept.plan.kept) == [FORK]
    assert bench.runs.with_forks() == ["u"]
    bench.rows.clear()
    bench.runs.refresh_all()
    assert (bench.runs.count(), bench.runs.with_forks()) == (0, [])


def test_unreadable_run_does_not_block_rereading_others(bench):
    """Extended leases and changed baselines affect all runs, before their next turns."""
    for uid in ("bad", "good"):
        bench.row(uid)
        bench.runs.load(uid)
    bench.row("good", forks=[doc.fork()])
    bench.damaged = "bad"
    bench.runs.refresh_all()
    assert bench.runs.with_forks() == ["good"]
    assert bench.runs.cached("bad") is None
    with pytest.raises(RunDamagedError):
        bench.runs.load("bad")


@pytest.mark.parametrize(("closed", "followed"), [(False, 1), (True, 0)])
def test_closed_run_needs_no_fork_addresses(bench, closed, followed):
    """Ports of a closed run's forks are not noted."""
    bench.baselines.put(Workload(name="app", command=("app",), port=80))
    bench.row(forks=[doc.fork()], closed=closed)
    plan = bench.runs.peek("u").plan
    assert bench.followed == [("u", frozenset({FORK}))] * followed
    assert (plan.digest == "with addresses") is bool(followed)
    assert list(plan.kept) == [FORK]


def test_forks_wait_if_no_address_can_be_stored(bench):
    bench.fault = OSError("full")
    bench.row(forks=[doc.fork()])
    plan = bench.runs.peek("u").plan
    assert list(plan.kept) == [FORK]
    assert plan.digest != "with addresses"


def test_undesired_unit_keeps_only_name_and_kind(bench):
    bench.row(gone=UnitRecord(kind="webhook"))
    live = bench.runs.peek("u")
    assert live.unit("r/a").exec is not None
    assert live.unit("r/gone") == Unit(name="r/gone", kind="webhook")
    assert (live.kind("r/a"), live.kind("r/gone"), live.kind(FORK)) == ("exec", "webhook", "fork")


@pytest.mark.parametrize(
    ("fact", "answers"),
    [(None, False), (Running(since=1, ready=False), False), (Running(since=1), True), (NeverRan(reason="r"), False)],
)
def test_a_fork_answers_once_its_newest_attempt_is_ready(bench, fact, answers):
    bench.row(forks=[doc.fork()], **{FORK: UnitRecord(attempt=2)})
    live, asked = bench.runs.peek("u"), []
    facts = {(FORK, 1): Running(since=1)} | ({(FORK, 2): fact} if fact else {})
    bench.runs.fork_values = lambda of, answers: asked.append(of) or answers
    told = current_fork_values(live, bench.runs, SimpleNamespace(facts=lambda uid: facts if uid == "u" else {}))
    assert (told(FORK), asked) == (answers, [live])
