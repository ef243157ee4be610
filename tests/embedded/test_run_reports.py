"""Reports of a run from its ledger, facts and folders: logs, outputs and endpoints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.embedded import documents as doc

from dayfly.embedded.forks import BaselineProcesses
from dayfly.embedded.run_reports import live_endpoints, recorded_values
from dayfly.embedded.step_logs import StepLogFiles
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.run import KEPT_LOGS, AttemptFolder
from dayfly.plan.sealed import seal
from dayfly.plan.world import Prepared, Running
from dayfly.spec.run import OutputRecord, Run, State, UnitRecord
from dayfly.spec.run_data import HistoryEntry

FORK = "fork:default/app"


class Bench:
    """A run with a scripted ledger and folders."""

    def __init__(self, tmp_path: Path) -> None:
        self.place = AttemptStorage(
            str(tmp_path / "work"), str(tmp_path / "logs"), "boot", "boot 1", str(tmp_path / "steps")
        )
        self.entries: list[HistoryEntry] = []
        self.running: set[tuple[str, int]] = set()
        self.stored: SimpleNamespace | None = None
        self.told: dict[tuple[str, str], bytes] = {}
        self.reader = SimpleNamespace(
            history=lambda _uid: self.entries, load=lambda _uid: self.stored, values=lambda _uid: self.told
        )
        self.step_logs = StepLogFiles(self.place, self.reader)

    def wrote(self, *moves: tuple[str, str, int]) -> None:
        """Set the run's history: move, unit, attempt."""
        self.entries += [
            HistoryEntry(seq=1, at=1, unit=unit, attempt=attempt, move=move, reason="", message="")
            for move, unit, attempt in moves
        ]

    def printed(self, unit: str, attempt: int, text: str) -> None:
        path = Path(AttemptFolder(self.place, "u", unit, attempt).log)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def logs(self) -> list[tuple[str, int, int, bool]]:
        return [
            (each.unit, each.attempt, each.size, each.sealed) for each in self.step_logs.list_logs("u", self.running)
        ]

    def read(self, unit: str, attempt: int) -> bytes | None:
        return self.step_logs.read("u", unit, attempt, offset=1, limit=2)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


class TestLogs:
    def test_every_attempt_that_ran_or_runs_has_a_log(self, bench):
        """An attempt without output has no file."""
        bench.wrote(("Claim", "r/b", 1), ("Record", "r/b", 1), ("Claim", "r/a", 1), ("Void", "r/c", 1))
        bench.printed("r/d", 2, "abc")
        bench.printed("r/a", 1, "abcd")
        bench.running = {("r/a", 1), ("r/e", 1)}
        assert bench.logs() == [
            ("r/a", 1, 4, False),
            ("r/b", 1, 0, True),
            ("r/d", 2, 3, True),
            ("r/e", 1, 0, False),
        ]

    def test_silent_attempt_has_an_empty_log(self, bench):
        bench.wrote(("Record", "r/b", 1))
        bench.printed("r/d", 2, "abcd")
        assert (bench.read("r/d", 2), bench.read("r/b", 1), bench.read("r/x", 1)) == (b"bc", b"", None)

    def test_oldest_logs_are_not_listed(self, bench):
        bench.wrote(*(("Record", "r/a", number) for number in (1, 2)), ("Claim", "r/a", KEPT_LOGS + 1))
        assert bench.logs() == [("r/a", 2, 0, True)]
        assert (bench.read("r/a", 1), bench.read("r/a", 2)) == (None, b"")


class TestValues:
    def test_values_are_the_recorded_outputs(self, bench):
        outputs = {
            "url": OutputRecord(digest="sha256:0", size=1),
            "key": OutputRecord(digest="", size=1, sensitive=True),
        }
        units = {"r/a": UnitRecord(attempt=2, state=State.DONE, outputs=outputs)}
        bench.stored = SimpleNamespace(run=Run(uid="u", target=doc.TARGET, plan="", units=units))
        bench.told = {("r/a", "url"): b"1", ("r/a", "key"): b"2", ("r/a", "former"): b"3"}
        assert [
            (each.unit, each.output, each.value, each.sensitive) for each in recorded_values(bench.reader, "u")
        ] == [
            ("r/a", "url", b"1", False),
            ("r/a", "key", b"2", True),
        ]

    def test_ended_run_has_no_values(self, bench):
        assert recorded_values(bench.reader, "u") == ()


class TestEndpoints:
    def told(self, *, state=State.CLAIMED, fact=Running(since=1), port=7):  # noqa: B008 - a value
        plan = seal((), (doc.fork(),))
        record = UnitRecord(attempt=2, state=state, generation="g", kind="fork")
        run = Run(uid="u", target=doc.TARGET, plan="", units={FORK: record})
        scene = SimpleNamespace(plan=plan, world=SimpleNamespace(run=run, facts={(FORK, 2): fact}))
        found = live_endpoints(scene, BaselineProcesses(), lambda _name: port)
        return [(each.unit, each.host, each.port) for each in found]

    def test_a_fork_that_runs_answers_at_its_port(self):
        assert self.told() == [(FORK, "127.0.0.1", 7)]

    @pytest.mark.parametrize(
        "how",
        [{"fact": Prepared(ref="")}, {"fact": None}, {"port": 0}, {"state": State.UNKNOWN}, {"state": State.DONE}],
    )
    def test_any_other_nowhere(self, how):
        assert self.told(**how) == []
