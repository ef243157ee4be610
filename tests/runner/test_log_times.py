"""The times of log lines, in a file next to the log: exact, limited in size, without effect on the log."""

import struct
import subprocess
import time
from itertools import pairwise

import pytest
from tests.runner.attempts import wait_until

from dayfly.execute.process.log_times import LogTimes
from dayfly.spec.log_times import entries_between, time_at

STEP_MS, FREE, SHARE = 10, 4096, 64


@pytest.fixture
def noted(attempt, isolation):
    """Runs a script; its log and its entries."""
    one = attempt()

    def run(script: str, before: bytes = b"", **keys: object) -> tuple[bytes, list[tuple[int, int]]]:
        folder = one.dir / "logs"
        if before:
            folder.mkdir()
            (folder / "a.1.log").write_bytes(before)
        keys.setdefault("env", ["PATH=/usr/bin:/bin", f"LOG={folder}/a.1.log"])
        one.run(script, log=folder / "a.1.log", isolation=isolation, **keys)
        return (folder / "a.1.log").read_bytes(), list(LogTimes((folder / "a.1.times").read_bytes()))

    return run


def test_each_line_has_its_time_and_the_log_has_only_lines(noted):
    began = time.time_ns() // 1_000_000
    # It goes on when its words were noted: a busy machine would note those of half a second at once. A log that is not
    # made yet must not be complained of: that would be noted, too.
    heard = 'heard() { until [ "$(stat -c %s $LOG 2>&1)" = $1 ]; do sleep 0.01; done; }; heard'
    script = "#!/bin/sh\necho one\n{0} 4; sleep 0.3\nprintf 'two\\nthree\\n'\n{0} 14; sleep 0.2\necho four\n"
    log, entries = noted(script.format(heard))
    assert log == b"one\ntwo\nthree\nfour\n"
    assert [at for at, _ in entries] == [0, 4, 14], "lines printed at once have one entry"
    first, second, third = (ms for _, ms in entries)
    assert began <= first <= second - 300
    assert second <= third - 200
    assert third <= time.time_ns() // 1_000_000


def test_earlier_log_content_has_no_time(noted):
    log, entries = noted("#!/bin/sh\necho one\n", before=b"[dayfly: said]\n")
    assert log == b"[dayfly: said]\none\n"
    assert [at for at, _ in entries] == [15]
    assert (time_at(entries, 0), time_at(entries, 15)) == (0, entries[0][1])


def test_masked_text_shifts_the_recorded_offsets(noted):
    log, entries = noted("#!/bin/sh\necho s3cr3t-value\nsleep 0.2\necho two\n", mask="s3cr3t-value")
    assert log == b"***\ntwo\n"
    assert [at for at, _ in entries] == [0, 4]


def test_text_masked_at_the_end_shifts_no_offsets(noted, tmp_path):
    script = "#!/bin/sh\necho s3cr3t-value\nsleep 0.2\nprintf s3cr3t-value >$OUT\necho two\n"
    keys = {"sensitive_output": f"key\0{tmp_path}/key", "env": ["PATH=/usr/bin:/bin", f"OUT={tmp_path}/key"]}
    log, entries = noted(script, **keys)
    assert log == b"*" * 12 + b"\ntwo\n"
    assert [at for at, _ in entries] == [0, 13]


def test_a_chatty_step_has_no_more_entries_than_its_log_pays_for(noted):
    """Each line arrives separately, so only the clock limits the number of entries."""
    log, entries = noted("#!/bin/sh\ni=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done\n")
    assert len(log) == sum(len(str(number)) + 1 for number in range(3000))
    steps = [later - earlier for (_, earlier), (_, later) in pairwise(entries)]
    assert all(step >= STEP_MS for step in steps)
    assert len(entries) <= FREE + len(log) // SHARE


def test_a_log_in_the_folder_of_its_attempt_has_none(attempt):
    one = attempt()
    one.run("#!/bin/sh\necho one\n")
    assert one.log == "one\n"
    assert [path.name for path in one.dir.iterdir() if path.name.endswith("times")] == []


def test_step_runs_if_times_cannot_be_written(attempt, isolation):
    one = attempt()
    (one.dir / "logs/a.1.times").mkdir(parents=True)
    receipt = one.run("#!/bin/sh\necho one\n", log=one.dir / "logs/a.1.log", isolation=isolation)
    assert receipt.outcome == "exited"
    assert (one.dir / "logs/a.1.log").read_bytes() == b"one\n"


def test_times_survive_a_killed_runner(attempt, mark):
    one = attempt()
    env = ["PATH=/usr/bin:/bin", f"MARK={mark}"]
    process = one.write("#!/bin/sh\necho one\nexec sleep 600\n", log=one.dir / "logs/a.1.log", env=env).start()
    log = one.dir / "logs/a.1.log"
    wait_until(lambda: log.exists() and log.read_bytes() == b"one\n")
    process.kill()
    process.wait()
    [(at, ms)] = LogTimes((one.dir / "logs/a.1.times").read_bytes())
    assert (at, ms > 0) == (0, True)


def test_half_an_entry_at_the_end_is_none():
    whole = struct.pack(">qqqq", 0, 5, 7, 9)
    assert list(LogTimes(whole[:-1])) == [(0, 5)]
    assert LogTimes(whole)[-1] == LogTimes(whole)[1] == (7, 9)
    assert entries_between(LogTimes(whole), 0, 99) == ((0, 5), (7, 9))
    with pytest.raises(IndexError):
        LogTimes(whole)[2]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """The writer of times with the clock of the test. It prints the entries that it made of lines "PLACE TIME"."""
    folder = tmp_path_factory.mktemp("times")
    (folder / "bench.c").write_text(BENCH)
    root = __file__.rpartition("/tests/")[0] + "/runner"
    sources = [f"{root}/{name}.c" for name in ("log_times", "log_file", "base")]
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{root}", "-o", str(folder / "bench"), str(folder / "bench.c")]
    subprocess.run([*command, *sources], check=True)

    def note(*moments: tuple[int, int]) -> list[tuple[int, int]]:
        for old in (folder / "b").glob("*"):
            old.unlink()
        said = "".join(f"{place} {ms}\n" for place, ms in moments)
        subprocess.run([str(folder / "bench"), str(folder / "b/x.log")], input=said.encode(), check=True)
        found = folder / "b/x.times"
        return list(LogTimes(found.read_bytes())) if found.exists() else []

    return note


BENCH = """
#include "log_times.h"
#include <fcntl.h>
#include <stdio.h>
int main(int count, char **arguments) {
    struct log_times times;
    long long place, ms;
    log_times_open(&times, AT_FDCWD, arguments[count - 1], 100);
    while (scanf("%lld %lld", &place, &ms) == 2) log_times_record(&times, place, ms);
    return 0;
}
"""


def test_times_pause_until_a_clock_set_back_catches_up(bench):
    assert bench((0, 50_000), (8, 20_000), (16, 20_500), (24, 50_005), (32, 50_010)) == [(100, 50_000), (132, 50_010)]


def test_they_stay_in_proportion_to_the_log(bench):
    short = bench(*((number, 1_000 + number * 20) for number in range(FREE + 900)))
    assert FREE <= len(short) <= FREE + (FREE + 900) // SHARE + 1
    assert short[-1][0] > 100 + FREE + 800, "beyond the free entries, one for each SHARE bytes"
