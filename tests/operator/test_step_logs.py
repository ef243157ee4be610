"""When the logs of steps are written to the Sandbox's namespace, how many at once, and which old ones are deleted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.execute.pod import names
from dayfly.execute.pod.logs import TAIL_LIMIT
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta, OwnerReference, Secret
from dayfly.operator.cluster.objects import RunObject, StepLogsObject
from dayfly.operator.status.status_throttle import SETTLED_MS
from dayfly.operator.status.step_logs import (
    MAX_ATTEMPTS,
    MAX_BYTES_PER_OBJECT,
    MAX_LOGS_PER_OBJECT,
    RECOVER_AFTER_MS,
    LogMemory,
    StepLogWriter,
)
from dayfly.plan.sealed import seal
from dayfly.spec.kinds import SandboxRef, StepLog, StepLogsSpec
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import Phase, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
MAKE = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh"))
SCENE = SimpleNamespace(plan=seal((Lifecycle(target=TARGET, resource="db", pre_start=(MAKE,)),)))
NOW = 10_000_000
KEY = "db/make", 1
EXISTS = errors.AlreadyExists("POST steplogs", "exists", status=409)


def entry(unit: str = "db/make", attempt: int = 1) -> StepLog:
    return StepLog(unit=unit, attempt=attempt, size=1, text="x")


def bundle(*logs: StepLog, owner: str = "r", name: str = "l") -> StepLogsObject:
    owners = [OwnerReference(api_version="v1", kind="Run", name="box", uid=owner)]
    sandbox = SandboxRef(namespace="shop", name="box", uid="u")
    meta = ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}", owner_references=owners)
    return StepLogsObject(metadata=meta, spec=StepLogsSpec(sandbox=sandbox, logs=logs))


class Bench:
    """The logs of one run, and a server that records writes."""

    def __init__(self, *, ready: bool = True, phase: Phase = Phase.OPEN, **units: UnitRecord) -> None:
        records = {f"db/{name}": record for name, record in units.items()}
        ledger = Run(uid="u", target=TARGET, plan="", phase=phase, units=records)
        self.run = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
        state = "succeeded" if ready else "running"
        unit = UnitReport(id="db/make", name="make", kind="exec", state=state, event="preStart", attempt=1)
        self.report = RunReport(
            uid="u", phase=phase, ready=ready, reason="r", message="m", done=0, total=1, units=(unit,)
        )
        self.memory = LogMemory()
        self.written: list[list[tuple[str, int]]] = []
        self.faults: list[Exception | None] = []
        self.there: list[StepLogsObject] = []
        self.deleted: list[tuple[str, str]] = []
        self.noted, self.tail = b"0 1000 4 2000", b"recalled"
        client = SimpleNamespace(
            create=self._create, find=self._find, get=self._get, list_all=self._list, delete=self._delete
        )
        self.logs = StepLogWriter(SimpleNamespace(client=client, now=lambda: NOW))

    async def _create(self, _kind, body, namespace):
        assert namespace == "shop"
        if self.faults and (fault := self.faults.pop(0)):
            raise fault
        self.written.append([(log["unit"], log["attempt"]) for log in body["spec"]["logs"]])
        self.times = [log.get("times", ()) for log in body["spec"]["logs"]]
        self.bodies = body["spec"]["logs"]

    async def _find(self, _kind, _name, _namespace):
        return self.there[0] if self.there else None

    async def _get(self, _kind, _name, _namespace):
        return Secret(metadata=AnnotatedMeta(name="s"), data={"log.tail": self.tail, "log.times": self.noted})

    async def _list(self, _kind, namespace, *, labels):
        assert (namespace, labels) == ("shop", f"{names.RUN_LABEL}=box")
        return SimpleNamespace(items=self.there)

    async def _delete(self, _kind, name, namespace, *, uid):
        self.deleted.append((name, uid))

    def heard(self, *keys: tuple[str, int]):
        for key in keys:
            self.memory.waiting[key] = entry(*key)
        return self

    async def look(self) -> float:
        return await self.logs.write_due(SCENE, self.run, self.report, self.memory)


def done(ended_at: int = NOW - 1_000, attempt: int = 1) -> UnitRecord:
    return UnitRecord(attempt=attempt, state=State.DONE, ended_at=ended_at)


class TestWhen:
    async def test_once_nothing_is_under_way_at_once(self):
        bench = Bench(make=done()).heard(KEY)
        assert await bench.look() == 0.0
        assert bench.written == [[KEY]]
        assert (bench.memory.waiting, bench.memory.handled) == ({}, {KEY})

    async def test_while_something_is_they_wait_for_company(self):
        ended = NOW - 1_000
        bench = Bench(ready=False, make=done(ended)).heard(KEY)
        assert await bench.look() == (ended + SETTLED_MS - NOW) / 1000 + 0.001
        assert bench.written == []
        assert list(bench.memory.waiting) == [KEY]

    async def test_and_no_longer_than_that(self):
        bench = Bench(ready=False, make=done(NOW - SETTLED_MS)).heard(KEY)
        assert await bench.look() == 0.0
        assert bench.written == [[KEY]]

    async def test_empty_log_is_not_written(self):
        bench = Bench(make=done())
        bench.memory.handled |= {KEY}
        assert await bench.look() == 0.0
        assert bench.written == []

    @pytest.mark.parametrize(
        ("noted", "times"), [(b"0 1000 4 2000", (0, 1000, 4, 2000)), (b"", ()), (b"0 x", ()), (b"0 5 1", ())]
    )
    async def test_log_from_before_a_crash_keeps_its_times(self, noted, times):
        bench = Bench(make=done(NOW - RECOVER_AFTER_MS))
        bench.noted = noted
        await bench.look()
        assert (bench.written, list(map(tuple, bench.times))) == ([[KEY]], [times])

    @pytest.mark.parametrize(
        ("tail", "size", "text", "encoding"),
        [
            ("ä".encode(), 2, "ä", "utf-8"),
            (b"\xff", 1, "/w==", "base64"),
            (b"y" * TAIL_LIMIT, 0, "y" * TAIL_LIMIT, "utf-8"),
        ],
        ids=["text", "bytes", "perhaps cut"],
    )
    async def test_log_from_before_a_crash_is_read_from_its_secret(self, tail, size, text, encoding):
        """The size of a log is only known if the log is complete."""
        bench = Bench(make=done(NOW - RECOVER_AFTER_MS))
        bench.tail = tail
        await bench.look()
        [log] = bench.bodies
        assert (log.get("size", 0), log["text"], log.get("encoding", "utf-8")) == (size, text, encoding)

    @pytest.mark.parametrize("phase", [Phase.CLEANED, Phase.ABANDONED])
    async def test_with_its_run_they_go(self, phase):
        bench = Bench(make=done(), phase=phase).heard(KEY)
        assert await bench.look() == 0.0
        assert (bench.written, bench.memory.waiting) == ([], {})

    @pytest.mark.parametrize(("ago", "after"), [(RECOVER_AFTER_MS - 1, 0.002), (RECOVER_AFTER_MS, 0.0)])
    async def test_log_from_before_a_restart_is_written_after_a_pause(self, ago, after):
        bench = Bench(make=done(NOW - ago))
        assert await bench.look() == after
        assert bench.written == ([] if after else [[KEY]])

    async def test_log_written_before_a_restart_is_not_written_again(self):
        bench = Bench(make=done(NOW - RECOVER_AFTER_MS))
        bench.there = [bundle(entry())]
        assert await bench.look() == 0.0
        assert (bench.written, bench.memory.handled) == ([], {KEY})

    @pytest.mark.parametrize(
        "fault",
        [
            errors.NotFound("POST steplogs", "m", status=404),
            errors.Forbidden("POST steplogs", "m", status=403),
            errors.Invalid("POST steplogs", "m", status=422),
        ],
    )
    async def test_refused_log_is_skipped(self, fault):
        bench = Bench(make=done()).heard(KEY)
        bench.faults = [fault]
        assert await bench.look() == 0.0
        assert (bench.memory.waiting, bench.memory.handled) == ({}, {KEY})

    async def test_server_error_is_retried(self):
        bench = Bench(make=done()).heard(KEY)
        bench.faults = [errors.ServerError("POST steplogs", "busy")]
        with pytest.raises(errors.ServerError):
            await bench.look()
        assert list(bench.memory.waiting) == [KEY]


class TestTogether:
    EVERY = [("db/make", attempt) for attempt in range(1, MAX_LOGS_PER_OBJECT + 3)]

    async def test_so_many_lie_in_one_object_in_their_order(self):
        bench = Bench(make=done(attempt=1)).heard(*reversed(self.EVERY[:MAX_LOGS_PER_OBJECT]), ("db/seed", 1))
        await bench.look()
        assert bench.written == [self.EVERY[:MAX_LOGS_PER_OBJECT], [("db/seed", 1)]]

    @pytest.mark.parametrize(
        ("printed", "objects"),
        [("x", 1), ("<", 4), ("\x01", 4), ("\u2028", 2), ("\x1b[1m", 2)],
        ids=["letters", "markup", "control characters", "separators", "colours"],
    )
    async def test_no_more_of_them_than_a_server_takes(self, printed, objects):
        """Kubernetes escapes these characters, and etcd accepts a megabyte and a half."""
        bench = Bench(make=done())
        text = printed * (TAIL_LIMIT // len(printed.encode()))
        for key in self.EVERY[:MAX_LOGS_PER_OBJECT]:
            bench.memory.waiting[key] = StepLog(unit=key[0], attempt=key[1], size=TAIL_LIMIT, text=text)
        await bench.look()
        assert [key for some in bench.written for key in some] == self.EVERY[:MAX_LOGS_PER_OBJECT]
        assert len(bench.written) == objects
        size = len("".join(f"\\u{ord(each):04x}" if each in "<>&\u2028\x01\x1b" else each for each in text))
        assert max(map(len, bench.written)) * size < 1_400_000

    async def test_one_alone_is_written_whatever_its_size(self):
        bench = Bench(make=done())
        bench.memory.waiting[KEY] = StepLog(
            unit="db/make", attempt=1, size=1, text="\x01" * (MAX_BYTES_PER_OBJECT // 4)
        )
        await bench.look()
        assert bench.written == [[KEY]]

    async def test_logs_of_an_earlier_try_are_not_written_twice(self):
        bench = Bench(make=done()).heard(("db/make", 1), ("db/make", 2), ("db/make", 3))
        bench.faults, bench.there = [EXISTS], [bundle(entry(attempt=1), entry(attempt=3))]
        await bench.look()
        assert bench.written == [[("db/make", 2)]]

    async def test_write_with_unknown_outcome_is_retried(self):
        bench = Bench(make=done()).heard(KEY)
        bench.faults = [errors.OutcomeUnknown("POST steplogs", "no answer")]
        with pytest.raises(errors.OutcomeUnknown):
            await bench.look()
        assert list(bench.memory.waiting) == [KEY]


class TestTrimming:
    async def trimmed(self, attempt: int, *there: StepLogsObject) -> list[tuple[str, str]]:
        bench = Bench(make=done(attempt=attempt)).heard(("db/make", attempt))
        bench.there = list(there)
        await bench.look()
        return bench.deleted

    async def test_logs_of_old_attempts_are_deleted(self):
        newest = MAX_ATTEMPTS + 2
        old, mixed, new = (
            bundle(entry(attempt=1), entry(attempt=2)),
            bundle(entry(), entry(attempt=3), name="m"),
            entry(attempt=3),
        )
        strangers = bundle(entry(), owner="another", name="s")
        assert await self.trimmed(newest, old, mixed, bundle(new, name="n"), strangers) == [("l", "uid-l")]

    async def test_few_attempts_delete_no_logs(self):
        ledger_is_ahead = Bench(make=done(attempt=MAX_ATTEMPTS + 5)).heard(("db/make", MAX_ATTEMPTS))
        ledger_is_ahead.there = [bundle(entry())]
        await ledger_is_ahead.look()
        assert ledger_is_ahead.deleted == []


def test_the_end_of_a_run_forgets_all():
    memory = LogMemory()
    memory.waiting[KEY], memory.handled = entry(), {KEY}
    memory.clear()
    assert (memory.waiting, memory.handled) == ({}, set())
