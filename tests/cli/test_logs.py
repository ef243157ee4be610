"""Logs: which ones, with which prefix, while they are written and after the end."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from cli import wishes
from cli.command import Cli, refused, until
from dayfly.cli import logs
from dayfly.cli.exits import CliError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ready(served: Cli, journal: Path) -> Cli:
    served.write("p.yaml", wishes.plugin(journal, extra="printf 'no end'"))
    served.write("s.yaml", wishes.sandbox())
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


def test_what_is_not_there_is_said_with_what_is(ready: Cli):
    refused(ready("logs", "demo", "dbx"), 3, "has no dbx; it has db/provision, db/seed, db/drop")
    refused(ready("logs", "demo", "db", "sed"), 3, "has no db sed")
    refused(ready("logs", "demo", "db", "seed", "--attempt", "4"), 3, "no attempt 4; kept: 1")
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
    served.write("p.yaml", wishes.plugin(journal, create="sleep 1; echo later", extra="sleep 0.7; echo last"))
    served.write("s.yaml", wishes.sandbox())
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


def test_what_is_written_is_shown_at_once_and_ctrl_c_ends_the_following(served: Cli, journal: Path):
    served.write("p.yaml", wishes.plugin(journal, create="sleep 60"))
    served.write("s.yaml", wishes.sandbox())
    assert served("apply", "-f", ".", "--wait=false").code == 0
    until(journal.exists)
    process = served.start("logs", "demo", "db", "provision", "-f")
    assert process.stdout.readline() == b"provision for me\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err == b"dayfly: interrupted; the server goes on with what it was asked to do, see: dayfly status\n"


def test_a_reader_that_has_seen_enough_ends_it_in_silence(served: Cli, journal: Path):
    served.write("p.yaml", wishes.plugin(journal, create="seq 200000"))
    served.write("s.yaml", wishes.sandbox())
    assert served("apply", "-f", ".").code == 0
    process = served.start("logs", "demo", "db", "provision")
    head = subprocess.run(["head", "-n", "2"], stdin=process.stdout, capture_output=True, text=True)
    process.stdout.close()
    assert head.stdout == "provision for me\n1\n"
    assert process.wait(20) == 141
    assert process.stderr.read() == b""


def test_an_attempt_whose_log_is_gone_is_not_said_never_to_have_been():
    class Host:
        def attempts(self, name: str, *, follow: bool) -> list[dict[str, object]]:
            return [{"unit": "fork:demo/app", "attempt": number} for number in (7, 8)]

    chosen = logs.Chosen("app", "")
    report = {"units": [{"id": "fork:demo/app", "attempt": 8}]}
    for attempt, said in ((3, "no log of attempt 3 of fork:demo/app is kept"), (9, "fork:demo/app has no attempt 9")):
        with pytest.raises(CliError) as caught:
            logs._say_why_nothing(Host(), "box", chosen, report, attempt)
        assert str(caught.value) == f"{said}; kept: 7, 8"
