"""Logs: which ones, with which prefix, while they are written and after the end."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, refused, until

from dayfly.cli.backends import hosts
from dayfly.cli.backends.protocol import LogPart
from dayfly.cli.verbs import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ready(served: Cli, journal: Path) -> Cli:
    served.write("p.yaml", sample_specs.plugin(journal, extra="printf 'no end'"))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".").code == 0
    return served


def test_several_logs_have_prefixes_and_one_is_as_it_was_written(ready: Cli):
    assert ready("logs", "demo").out == (
        "db/provision | provision for me\ndb/seed | seed /data/demo\ndb/seed | no end\n"
    )
    assert ready("logs", "demo", "db").out == ready("logs", "demo").out
    assert ready("logs", "demo", "db", "seed").out == "seed /data/demo\nno end"
    assert ready("logs", "demo", "db", "seed", "--attempt", "1").out == "seed /data/demo\nno end"
    assert ready("logs", "demo", "db", "seed", "-f").out == "seed /data/demo\nno end"


STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.mark.slow
def test_lines_with_their_times_and_since_a_time(served: Cli, journal: Path):
    """Times are the same while a step runs and afterwards. Logs of older releases have no times."""
    gate = served.folder / "gate"
    served.write("p.yaml", sample_specs.plugin(journal, create=sample_specs.waiting(gate), extra="printf 'no end'"))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".", "--wait=false").code == 0
    until(lambda: "provision for me" in served("logs", "demo", "db", "provision").out)
    begun = served("logs", "demo", "db", "provision", "--timestamps").out
    assert re.fullmatch(f"db/provision \\| {STAMP} provision for me\n|{STAMP} provision for me\n", begun), begun
    follower = served.start("logs", "demo", "-f", "--timestamps", "--since", "1h")
    gate.touch()
    followed = follower.communicate(timeout=120)[0].decode()
    done = served("logs", "demo", "--timestamps")
    assert followed == done.out
    lines = re.findall(rf"(db/\w+) \| ({STAMP}) (.*)\n", done.out)
    assert [(unit, line) for unit, _, line in lines] == [
        ("db/provision", "provision for me"),
        ("db/seed", "seed /data/demo"),
        ("db/seed", "no end"),
    ]
    times = [time for _, time, _ in lines]
    assert times == sorted(times)
    assert served("logs", "demo", "--since-time", times[1]).out == "db/seed | seed /data/demo\ndb/seed | no end\n"
    assert served("logs", "demo", "db", "seed", "--since-time", times[1]).out == "seed /data/demo\nno end"
    assert served("logs", "demo", "db", "seed", "--since", "1h30m").out == "seed /data/demo\nno end"
    late = served("logs", "demo", "--since-time", "2999-01-01T00:00:00+01:00", "-f")
    assert (late.code, late.out, late.err) == (0, "", "")
    assert served("sandbox", "delete", "demo").code == 0
    assert (
        served("logs", "demo", "db", "seed", "--timestamps").out == f"{times[1]} seed /data/demo\n{times[2]} no end\n"
    )
    for noted in served.home.glob("logs/*/db.seed.1.times"):
        noted.unlink()
    older = served("logs", "demo", "db", "seed", "--timestamps")
    assert older.out == "- seed /data/demo\n- no end\n"
    assert older.err == "db/seed: the first lines of attempt 1 have no known time and have - instead of a time\n"
    older = served("logs", "demo", "db", "seed", "--since", "1s")
    assert (older.out, "are all shown" in older.err) == ("seed /data/demo\nno end", True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "soon"), "'soon' is not a duration; write e.g. --since 10m or --since 1h30m"),
        (("--since", "0s"), "'0s' is not a duration"),
        (("--since", "-5m"), "'-5m' is not a duration"),
        (("--since", ""), "'' is not a duration"),
        (("--since-time", "noon"), "'noon' is not a time with its zone"),
        (("--since-time", "9999-12-31T23:59:59-12:00"), "'9999-12-31T23:59:59-12:00' is not a time with its zone"),
        (("--since-time", "2026-01-02T03:04:05"), "is not a time with its zone; write e.g. --since-time 2026-01-02"),
        (("--since-time", "1960-01-02T03:04:05Z"), "is not a time with its zone"),
        (("--since", "5m", "--since-time", "2026-01-02T03:04:05Z"), "cannot be combined; use one of them"),
    ],
)
def test_logs_refuses_malformed_since_without_a_request(cli: Cli, arguments: tuple[str, ...], said: str):
    refused(cli("logs", "demo", *arguments), 2, said)


@pytest.mark.slow
def test_logs_of_unknown_step_names_known_steps(ready: Cli):
    refused(ready("logs", "demo", "dbx"), 3, "has no dbx; it has db/provision, db/seed, db/drop")
    refused(ready("logs", "demo", "db", "sed"), 3, "has no db sed")
    refused(ready("logs", "demo", "db", "seed", "--attempt", "4"), 3, "no attempt 4; stored: 1")
    refused(ready("logs", "demo", "db", "drop", "--attempt", "1"), 3, "it has not started")
    done = ready("logs", "demo", "db", "drop")
    assert (done.code, done.out) == (0, "")
    assert done.err == "db/drop: not started yet; see: dayfly why demo\n"
    refused(ready("logs", "nobody"), 3, 'no sandbox "nobody"; see: dayfly sandbox list')
    refused(ready("why", "nobody"), 3, 'no sandbox "nobody"; see: dayfly sandbox list')


def test_a_sandbox_of_nothing_has_no_logs(served: Cli):
    served.write("s.yaml", "name: bare\nspec: {cluster: local}\n")
    assert served("apply", "-f", "s.yaml").code == 0
    refused(served("logs", "bare"), 3, '"bare" has no step, hook or fork; so it has no logs')


def test_they_are_there_after_the_end(ready: Cli):
    assert ready("sandbox", "delete", "demo").code == 0
    assert ready("logs", "demo", "db", "seed").out == "seed /data/demo\nno end"
    assert "db/provision | provision for me\n" in ready("logs", "demo", "-f").out


def test_following_goes_on_to_later_steps_and_ends_by_itself(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal, create="sleep 1; echo later", extra="sleep 0.7; echo last"))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".", "--wait=false").code == 0
    until(journal.exists)
    done = served("logs", "demo", "-f")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "db/provision | provision for me",
        "db/provision | later",
        "db/seed | seed /data/demo",
        "db/seed | last",
    ]


def test_logs_follow_prints_at_once_and_ends_on_ctrl_c(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal, create="sleep 60"))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".", "--wait=false").code == 0
    until(journal.exists)
    process = served.start("logs", "demo", "db", "provision", "-f")
    assert process.stdout.readline() == b"provision for me\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err == b"dayfly: interrupted; the server continues with the requests it received, see: dayfly status\n"


def test_a_reader_that_has_seen_enough_ends_it_in_silence(served: Cli, journal: Path):
    served.write("p.yaml", sample_specs.plugin(journal, create="seq 200000"))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".").code == 0
    process = served.start("logs", "demo", "db", "provision")
    head = subprocess.run(["head", "-n", "2"], stdin=process.stdout, capture_output=True, text=True)
    process.stdout.close()
    assert head.stdout == "provision for me\n1\n"
    assert process.wait(20) == 141
    assert process.stderr.read() == b""


class Forgetful:
    """A host that keeps the logs of two attempts of a fork."""

    flags = ""

    def report(self, _name):
        return {"units": [{"id": "fork:demo/app", "attempt": 8}]}

    def attempts(self, _name, *, follow):
        return [{"unit": "fork:demo/app", "attempt": number} for number in (7, 8)]


@pytest.mark.parametrize(
    ("attempt", "message"),
    [(3, "no log of attempt 3 of fork:demo/app is stored"), (9, "fork:demo/app has no attempt 9")],
)
def test_logs_distinguish_dropped_and_unknown_attempts(monkeypatch, capsys, attempt: int, message: str):
    monkeypatch.setattr(hosts, "find", lambda *_: Forgetful())
    assert run(["logs", "box", "app", "--attempt", str(attempt)]) == 3
    assert f"{message}; stored: 7, 8\n" in capsys.readouterr().err


class Talkers:
    """A host on which two steps print a line before each answer; they end once there are four of each."""

    flags = ""
    size = 0

    def report(self, _name):
        units = [{"id": unit, "state": "succeeded", "event": "preStart"} for unit in ("a", "b")]
        return {"phase": "open", "reason": "Ready", "units": units}

    def attempts(self, _name, *, follow):
        self.size += 5
        info = {"attempt": 1, "size": self.size, "sealed": self.size >= 20, "cut": 0}
        return [{"unit": unit, **info} for unit in ("a", "b")]

    def read(self, _name, _unit, _attempt, offset, _when):
        assert offset < self.size, "it was printed since"
        return LogPart(offset, b"line\n")

    def pause(self, _seconds):
        """Do not wait."""


@pytest.mark.parametrize(("follow", "told"), [(False, ["a", "b"]), (True, ["a"] * 3 + ["b"] * 3 + ["a", "b"])])
def test_logs_end_although_a_step_prints_faster(monkeypatch, capsys, follow: bool, told: list[str]):
    """Without --follow, only existing output is printed; --follow also prints the log of the other step."""
    monkeypatch.setattr(hosts, "find", lambda *_: Talkers())
    assert run(["logs", "box", *(["-f"] if follow else [])]) == 0
    assert capsys.readouterr().out == "".join(f"{unit} | line\n" for unit in told)
