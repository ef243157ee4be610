"""Host mode: an order goes in, a script runs, a receipt, a log and outputs come out."""

import hashlib
import itertools
import os
import struct
import subprocess
import time
from pathlib import Path

import pytest
from tests.runner import attempts
from tests.runner.attempts import order, patience, wait_until

from dayfly.spec import frames


def test_an_exited_script_leaves_receipt_log_and_marker(attempt, isolation):
    before = time.time() * 1000
    one = attempt()
    receipt = one.run("#!/bin/sh\necho out; echo err >&2; exit 3\n", isolation=isolation)
    assert (receipt.outcome, receipt.code, receipt.detail) == ("exited", 3, "")
    assert (receipt.fields["nonce"], receipt.fields["attempt"]) == ("n-1", "1")
    assert one.log == "out\nerr\n"
    assert (receipt.fields["log-bytes"], receipt.fields["log-truncated"]) == ("8", "0")
    started, ended = int(receipt.fields["started-ms"]), int(receipt.fields["ended-ms"])
    assert before - 1 <= started <= ended <= time.time() * 1000 + 1
    word, launcher, init, boot, since, space, began, rest = one.marker
    assert (word, rest) == ("started", "")
    assert (launcher == init) == (isolation != "none")
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert int(since) == started
    ours = Path("/proc/self/ns/pid").stat().st_ino
    assert (int(space) == ours) == (isolation == "none")
    assert 0 < int(began) <= time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    assert sorted(entry.name for entry in one.dir.iterdir()) == ["lock", "log", "marker", "receipt"]


def test_end_by_signal_is_distinguished_from_an_exit_code(attempt, isolation):
    receipt = attempt().run("#!/bin/sh\nkill -9 $$\n", isolation=isolation)
    assert (receipt.outcome, receipt.code) == ("signaled", 9)


def test_the_environment_is_the_orders_and_nothing_else(attempt, isolation, monkeypatch):
    monkeypatch.setenv("LEAK", "1")
    one = attempt()
    one.run("#!/usr/bin/env -S cat /proc/self/environ\n", isolation=isolation, env=["A=1", "B=x=y\nz"])
    assert one.log.split("\0")[1:3] == ["A=1", "B=x=y\nz"]
    assert "LEAK" not in one.log


def test_the_script_starts_clean(attempt, isolation):
    one = attempt()
    script = (
        "#!/bin/sh\nread line; echo got=$line; pwd; grep -E 'Sig(Blk|Ign)' /proc/self/status; umask; ls /proc/self/fd\n"
    )
    one.run(script, isolation=isolation, cwd="/usr")
    lines = one.log.split("\n")
    assert lines[:2] == ["got=", "/usr"]
    assert [line.split()[1] for line in lines[2:4]] == ["0" * 16, "0" * 16]
    assert lines[4] == "0022"
    # Standard streams, the lock, and the directory that `ls` itself has open.
    assert lines[5:-1] == ["0", "1", "2", "200", "3"]


def test_caller_folder_is_inherited_only_if_requested(attempt, isolation, place):
    """In a container the current folder is the image's; on the machine it may be any folder."""
    (place / "image").mkdir()
    for keys, caller, where in [
        ({"inherit_cwd": 1}, place / "image", place / "image"),
        ({"inherit_cwd": 0}, place / "image", "/usr"),
        ({}, place / "image", "/usr"),
        ({"inherit_cwd": 1}, "/", "/usr"),
    ]:
        one = attempt().write("#!/bin/sh\npwd\n", isolation=isolation, cwd="/usr", **keys)
        assert one.start(cwd=caller).wait(30) == 0
        assert one.log == f"{where}\n"


def test_a_service_runs_from_its_arguments(attempt, isolation):
    one = attempt()
    receipt = one.run(arg=["sh", "-c", 'echo "$1"; exit 4', "sh", "two words"], isolation=isolation)
    assert (receipt.outcome, receipt.code, one.log) == ("exited", 4, "two words\n")


def test_a_service_is_looked_for_in_each_folder_of_its_path(attempt, place, isolation, monkeypatch):
    """The search works like a shell's, also after a closed folder or another kind of file of that name."""
    for folder, mode in (("closed", 0o000), ("other", 0o755)):
        (place / folder).mkdir(mode=0o755)
        (place / folder / "said").write_text("no program")
        (place / folder).chmod(mode)
    (place / "bin").mkdir(mode=0o755)
    (place / "bin" / "said").write_text("#!/bin/sh\necho here\n")
    (place / "bin" / "said").chmod(0o755)
    monkeypatch.setattr(attempts, "PATH", ":".join(f"{place}/{name}" for name in ("none", "closed", "other", "bin")))
    one = attempt()
    receipt = one.run(arg=["said"], isolation=isolation)
    assert (receipt.outcome, one.log) == ("exited", "here\n"), receipt.detail
    monkeypatch.setattr(attempts, "PATH", f"{place}/other:{place}/none")
    receipt = attempt().run(arg=["said"], isolation=isolation)
    assert receipt.outcome == "not-executable"
    assert "Permission denied" in receipt.detail


def test_a_second_call_finds_the_receipt_and_runs_nothing(attempt, place):
    one = attempt()
    script = f"#!/bin/sh\necho x >> {place}/effects\n"
    first = one.run(script)
    assert one.start().wait(10) == 0
    assert one.receipt() == first
    assert (place / "effects").read_text() == "x\n"


def test_two_launchers_on_one_attempt_run_it_once(attempt, place, isolation):
    one = attempt().write(f"#!/bin/sh\necho x >> {place}/effects; sleep 0.2\n", isolation=isolation)
    launchers = [one.start() for _ in range(4)]
    assert sorted(launcher.wait(10) for launcher in launchers) in ([0, 3, 3, 3], [0, 0, 3, 3], [0, 0, 0, 3], [0] * 4)
    assert (place / "effects").read_text() == "x\n"
    assert one.receipt().outcome == "exited"


def test_a_taken_lock_is_left_in_silence(attempt):
    one = attempt().write("#!/bin/sh\nsleep 30\n")
    first = one.start()
    wait_until((one.dir / "marker").exists)
    second = one.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert second.communicate(timeout=60) == (b"", b"")
    assert second.returncode == 3
    first.terminate()
    assert first.wait(10) == 0


def test_a_void_marker_keeps_the_script_from_running(attempt, place, isolation):
    one = attempt().write(f"#!/bin/sh\necho x >> {place}/effects\n", isolation=isolation)
    (one.dir / "marker").write_text("void")
    receipt = one.run()
    assert receipt.outcome == "void"
    assert receipt.fields["started-ms"] == "0"
    assert not (place / "effects").exists()


def test_void_linked_at_any_moment_means_either_or(attempt, place):
    outcomes = set()
    pause = 0.004  # as long as it takes to the start, on this machine and now
    for number in itertools.count():
        if number >= 60 and outcomes == {"void", "exited"}:
            break
        one = attempt().write(f"#!/bin/sh\necho {number} >> {place}/effects\n", isolation="none")
        (one.dir / "mine").write_text("void")
        launcher = one.start()
        time.sleep(number % 20 / 10 * pause)
        try:
            os.link(one.dir / "mine", one.dir / "marker")
            voided = True
        except FileExistsError:
            voided = False
        assert launcher.wait(10) == 0
        outcome = one.receipt().outcome
        assert outcome == ("void" if voided else "exited")
        ran = (place / "effects").exists() and f"{number}\n" in (place / "effects").read_text().splitlines(
            keepends=True
        )
        assert ran is not voided
        outcomes.add(outcome)
        pause *= 1.25 if voided else 0.8


def test_a_start_left_by_another_launcher_is_never_repeated(attempt, place):
    one = attempt().write(f"#!/bin/sh\necho x >> {place}/effects\n")
    (one.dir / "marker").write_text("started\n1\n2\nboot\n3\n4\n")
    assert one.run().outcome == "lost"
    assert not (place / "effects").exists()


def test_too_late_is_void_and_says_so_in_the_marker(attempt):
    one = attempt()
    receipt = one.run("#!/bin/sh\n", start_before_ms=int(time.time() * 1000) - 1)
    assert receipt.outcome == "void"
    assert "too late" in receipt.detail
    assert one.marker == ["void", ""]
    assert attempt().run("#!/bin/sh\n", start_before_ms=int(time.time() * 1000) + 60000).outcome == "exited"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/no/such/interpreter -x\necho\n", "/no/such/interpreter"),
        ("echo no line\n", "#!"),
        ("#!/bin/sh\r\necho\r\n", "carriage return"),
        ("#!/etc/passwd\n", "/etc/passwd"),
        ("#!/etc\n", "/etc"),
        ("", "#!"),
        ("#!/usr/bin/env no-such-shell\n", "no-such-shell"),
        ("#! /usr/bin/env \tno-such-shell \ntrue\n", "no-such-shell"),
        ("#!/usr/bin/env sh -e\n", "sh -e"),  # env searches for all of it as one name
        ("#!/usr/bin/env -S no-such-shell -e\n", "no-such-shell"),
        ("#!/usr/bin/env /no/such/shell\n", "/no/such/shell"),
        ("#!/usr/bin/env sh\r\n", "carriage return"),
        ("#!/no/such/env sh\n", "/no/such/env"),
        ('#!/usr/bin/env -S "no-such-shell" -e\n', "no-such-shell"),
        ("#!/usr/bin/env -vS no-such-shell\n", "no-such-shell"),
        ("#!/usr/bin/env -iS no-such-shell\n", "no-such-shell"),
        ("#!/usr/bin/env -S -i -u A B=c no-such-shell -e\n", "no-such-shell"),
        ("#!/usr/bin/env -S PATH=/no/such sh\n", "sh, for which"),
        ("#!/usr/bin/env --split-string=no-such-shell -e\n", "no-such-shell"),
        ("#!/usr/bin/env\n", "names no program behind env"),
        ("#!/usr/bin/env -i\n", "names no program behind env"),
        ("#!/usr/bin/env A=b\n", "names no program behind env"),
    ],
)
def test_unexecutable_script_names_its_fault(attempt, isolation, script, words):
    one = attempt()
    receipt = one.run(script, isolation=isolation, output=["o\0/tmp/never"])
    assert (receipt.outcome, receipt.code) == ("not-executable", 127)
    assert words in receipt.detail
    assert not receipt.outputs


def test_a_service_that_is_missing_is_not_executable(attempt):
    receipt = attempt().run(arg=["no-such-program"])
    assert receipt.outcome == "not-executable"
    assert "no-such-program" in receipt.detail


@pytest.mark.parametrize(
    "words", [["/usr/bin/env", "no-such"], ["env", "A=b", "no-such", "x"], ["env", "-S", "no-such x"]]
)
def test_program_that_env_does_not_find_is_not_executable(attempt, isolation, words):
    receipt = attempt().run(arg=words, isolation=isolation)
    assert receipt.outcome == "not-executable"
    assert "no-such" in receipt.detail


@pytest.mark.parametrize("words", [["env"], ["env", "true"], ["env", "A=b", "true"], ["env", "-S", "true x"]])
def test_program_that_env_finds_is_executed(attempt, isolation, words):
    assert attempt().run(arg=words, isolation=isolation).code == 0


@pytest.mark.parametrize("kind", ["script", "binary"])
def test_program_behind_env_without_its_loader_is_not_executable(attempt, place, isolation, kind):
    program = elf(place, machine=OWN, loader=b"/no/such/loader\0")
    if kind == "script":
        program.write_text("#!/no/such/interpreter\n")
    receipt = attempt().run(f"#!/usr/bin/env {program}\n", isolation=isolation)
    assert receipt.outcome == "not-executable"
    assert f"{program}, which env starts" in receipt.detail


@pytest.mark.parametrize(
    "line",
    [
        *("env sh", "env  sh ", "env -S sh -e", "env -Ssh", "env -S -i /bin/sh", "env -S A=1 sh", "env /bin/sh"),
        *("env -S -i sh", "env -S -u PATH sh", "env -S PATH=/no/such:/bin sh", 'env -S "sh" -e', "env -S -- sh"),
    ],
)
def test_script_runs_if_env_finds_its_interpreter(attempt, isolation, line):
    one = attempt()
    receipt = one.run(f"#!/usr/bin/{line}\necho here\n", isolation=isolation)
    assert (receipt.outcome, receipt.code, one.log) == ("exited", 0, "here\n"), receipt.detail


def elf(place: Path, *, machine: int, loader: bytes) -> Path:
    """A minimal ELF file of 64 bits; `machine` as in its header."""
    at = 64 + 56
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0x400000, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    program = place / "program"
    program.write_bytes(head + struct.pack("<IIQQQQQQ", 3, 4, at, 0, 0, len(loader), len(loader), 1) + loader)
    program.chmod(0o755)
    return program


OTHER, OWN = 2, {"x86_64": 62, "aarch64": 183}[os.uname().machine]  # SPARC, and this machine's


@pytest.mark.parametrize(
    ("machine", "loader", "words"),
    [(OTHER, b"/lib/ld.so\0", "architecture"), (OWN, b"/no/such/loader\0", "loader or interpreter that it names")],
)
@pytest.mark.parametrize("is_script", [False, True])
def test_binary_the_kernel_refuses_is_not_executable(attempt, place, isolation, machine, loader, words, is_script):
    program = elf(place, machine=machine, loader=loader)
    one = attempt()
    receipt = one.run(f"#!{program}\n", isolation=isolation) if is_script else one.run(arg=[str(program)])
    assert receipt.outcome == "not-executable"
    assert words in receipt.detail, receipt.detail
    assert str(program) in receipt.detail


def test_step_for_which_no_process_is_made_is_refused(attempt):
    """The kernel makes none beyond a limit, which another try may not meet."""
    one = attempt(user="nobody")
    one.user = 2_000_000 + os.getpid()  # who has no process of other tests
    os.chown(one.dir, one.user, one.user)
    one.prefix = ["prlimit", "--nproc=2"]  # the launcher, and its stand-in
    receipt = one.run("#!/bin/sh\necho began\n")
    assert receipt.outcome == "refused"
    assert "process cannot be created" in receipt.detail
    assert one.log == ""


def test_the_log_ends_at_its_limit_and_says_so(attempt):
    one = attempt()
    receipt = one.run("#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' a; echo; echo more\n", log_limit=1000)
    assert one.log == "a" * 1000 + "\n[dayfly: log cut at 1000 bytes]\n"
    assert (receipt.outcome, receipt.fields["log-bytes"], receipt.fields["log-truncated"]) == ("exited", "1000", "1")


def test_a_log_of_exactly_the_limit_is_whole(attempt):
    one = attempt()
    receipt = one.run("#!/bin/sh\nprintf 12345\n", log_limit=5)
    assert (one.log, receipt.fields["log-truncated"]) == ("12345", "0")


def test_the_log_may_lie_elsewhere_and_is_appended_to(attempt, isolation, place):
    elsewhere = place / "elsewhere.log"
    elsewhere.write_text("before\n")
    one = attempt()
    receipt = one.run("#!/bin/sh\necho after\n", isolation=isolation, log=str(elsewhere))
    assert elsewhere.read_text() == "before\nafter\n"
    assert receipt.fields["log-bytes"] == "6"
    assert not (one.dir / "log").exists()
    link = place / "link.log"
    link.symlink_to(elsewhere)
    assert attempt().run("#!/bin/sh\n", isolation=isolation, log=str(link)).outcome == "refused"


def test_a_log_elsewhere_is_made_when_there_is_something_to_say(attempt, isolation, place):
    logs = place / "logs"
    logs.mkdir()
    log = logs / "run" / "a.log"
    assert attempt().run("#!/bin/sh\n", isolation=isolation, log=str(log)).outcome == "exited"
    assert list(logs.iterdir()) == []
    assert attempt().run("#!/bin/sh\necho said\n", isolation=isolation, log=str(log)).fields["log-bytes"] == "5"
    assert log.read_text() == "said\n"
    assert (logs / "run").stat().st_mode & 0o777 == 0o700


def test_log_is_a_host_file_even_in_a_private_folder(attempt, isolated, place):
    log = place / "run" / "a.log"
    one = attempt()
    one.run(f"#!/bin/sh\ntouch {place}/new; echo said\n", isolation=isolated, private=str(place), log=str(log))
    assert log.read_text() == "said\n"
    assert not (place / "new").exists()


def test_a_step_without_a_place_for_its_log_is_not_started(attempt, isolation, place):
    receipt = attempt().run(f"#!/bin/sh\ntouch {place}/ran\n", isolation=isolation, log=f"{place}/no/run/a.log")
    assert (receipt.outcome, receipt.detail) == (
        "refused",
        f"The log cannot be made: {place}/no: No such file or directory.",
    )
    assert not (place / "ran").exists()


def test_step_without_a_log_file_is_not_started(attempt, isolation, place):
    (place / "run").write_text("no folder")
    receipt = attempt().run("#!/bin/sh\necho said\n", isolation=isolation, log=f"{place}/run/a.log")
    assert (receipt.outcome, receipt.detail) == ("refused", "The log cannot be opened: Not a directory.")


def test_bytes_pass_through_the_log_unchanged(attempt):
    one = attempt()
    one.run(b"#!/bin/sh\nprintf '\\000\\377\\033[31m'\n")
    assert (one.dir / "log").read_bytes() == b"\0\xff\x1b[31m"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "byte 0"),
        (b"nonsense", "byte 0"),
        (order("#!/bin/sh\n")[:-1], "cut short"),
        (order("#!/bin/sh\n") + b"x", "follow"),
        (order("#!/bin/sh\n").replace(b"/bin/sh", b"/bin/zz"), "digest"),
        (frames.encode("dayfly-receipt", []), "another kind"),
        (frames.encode("dayfly-order", [("attempt", b"1"), ("script", b"x")]), '"nonce"'),
        (frames.encode("dayfly-order", [("nonce", b"1"), ("script", b"x")]), '"attempt"'),
        (order(), "either"),
        (order("#!/bin/sh\n", arg="x"), "either"),
        (order("#!/bin/sh\n", surprise="1"), '"surprise"'),
        (order("#!/bin/sh\n", cwd=["/", "/tmp"]), "twice"),
        (order("#!/bin/sh\n", cwd="tmp"), '"cwd"'),
        (order("#!/bin/sh\n", cwd="/no/such/place"), "/no/such/place"),
        (order("#!/bin/sh\n", run_ms="1s"), '"run-ms"'),
        (order("#!/bin/sh\n", run_ms="-1"), '"run-ms"'),
        (order("#!/bin/sh\n", isolation="some"), '"isolation"'),
        (order("#!/bin/sh\n", env="NOVALUE"), '"env"'),
        (order("#!/bin/sh\n", env="A=\0"), '"env"'),
        (order("#!/bin/sh\n", file="/tmp/../etc/x\0"), '"file"'),
        (order("#!/bin/sh\n", file="/tmp/x"), '"file"'),
        (order("#!/bin/sh\n", output="../x\0/tmp/x"), '"output"'),
        (order("#!/bin/sh\n", output=["a\0/tmp/x", "a\0/tmp/y"]), '"output"'),
        (order("#!/bin/sh\n", private="tmp"), '"private"'),
    ],
)
def test_a_bad_order_is_refused_in_one_sentence_and_nothing_runs(attempt, data, words):
    one = attempt().write_order(data)
    receipt = one.run()
    assert receipt.outcome == "refused"
    assert words in receipt.detail
    assert receipt.detail.endswith(".")
    assert not (one.dir / "marker").exists()


def test_no_order_is_refused_and_no_directory_is_said(attempt, runner):
    assert "cannot be read" in attempt().run().detail
    said = subprocess.run([str(runner), "host", "/no/such/dir"], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (2, "dayfly-runner: /no/such/dir: No such file or directory\n")
    assert subprocess.run([str(runner), "hots"], capture_output=True).returncode == 64


def test_outputs_are_kept_verbatim_also_when_the_script_failed(attempt, isolation):
    one = attempt()
    receipt = one.run(
        "#!/bin/sh\nprintf '\\000\\001\\377\\n' > $D/binary; : > $D/empty; ln -s binary $D/link; mkfifo $D/pipe; mkdir $D/dir; exit 9\n",
        isolation=isolation,
        env=f"D={one.dir}",
        output=[f"{name}\0{one.dir}/{name}" for name in ["binary", "empty", "missing", "link", "pipe", "dir"]],
    )
    assert (receipt.outcome, receipt.code) == ("exited", 9)
    nothing = hashlib.sha256(b"").hexdigest()
    assert receipt.outputs == {
        "binary": ("present", 4, hashlib.sha256(b"\0\1\xff\n").hexdigest()),
        "empty": ("present", 0, nothing),
        "missing": ("missing", 0, ""),
        "link": ("refused", 0, ""),
        "pipe": ("refused", 0, ""),
        "dir": ("refused", 0, ""),
    }
    assert one.output("binary") == b"\0\1\xff\n"
    assert one.output("empty") == b""
    assert sorted(path.name for path in one.dir.glob("out.*")) == ["out.binary", "out.empty"]


def test_size_limit_covers_all_outputs_without_partial_ones(attempt):
    one = attempt()
    receipt = one.run(
        "#!/bin/sh\nfor n in 1 2 3; do head -c 400 /dev/zero > $D/$n; done; truncate -s 10T $D/4; truncate -s 10M $D/5\n",
        env=f"D={one.dir}",
        output=[f"{n}\0{one.dir}/{n}" for n in range(1, 6)],
        unit_limit=900,
    )
    assert [state for state, _, _ in receipt.outputs.values()] == ["present"] * 2 + ["too-large"] * 3
    assert receipt.outputs["5"] == ("too-large", 10 << 20, "")
    assert sorted(path.name for path in one.dir.glob("out.*")) == ["out.1", "out.2"]


def test_ten_megabytes_pass_when_they_may(attempt):
    one = attempt()
    receipt = one.run(
        f"#!/bin/sh\nhead -c 10485760 /dev/urandom > {one.dir}/big\n", output=f"big\0{one.dir}/big", unit_limit=20 << 20
    )
    assert receipt.outputs["big"] == ("present", 10 << 20, hashlib.sha256(one.output("big")).hexdigest())


def test_outputs_of_the_kernel_and_with_detours_are_refused(attempt, isolation):
    one = attempt()
    paths = ["/proc/self/environ", "/sys/kernel/uevent_seqnum", "/dev/null", "/tmp/../etc/passwd", "/tmp//x", "relative", "/",
             f"{one.dir}/way/environ"]  # fmt: skip
    receipt = one.run(
        f"#!/bin/sh\nln -s /proc/self {one.dir}/way\n",
        isolation=isolation,
        output=[f"o{number}\0{path}" for number, path in enumerate(paths)],
    )
    # The link leads to this process for us, and to no process in a PID namespace that has ended.
    assert [state for state, _, _ in receipt.outputs.values()][:-1] == ["refused"] * 7
    assert receipt.outputs["o7"][0] in {"refused", "missing"}
    assert not list(one.dir.glob("out.*"))


def test_outputs_survive_a_deadline(attempt, isolation):
    for run_ms in patience(200):
        one = attempt()
        receipt = one.run(
            f"#!/bin/sh\necho -n half > {one.dir}/o\necho ready\nexec sleep 60\n",
            isolation=isolation,
            run_ms=run_ms,
            output=f"o\0{one.dir}/o",
        )
        if "ready" in one.log:
            break
    assert receipt.outcome == "deadline"
    assert one.output("o") == b"half"


def test_probe_prints_isolation_and_version(runner):
    said = subprocess.run([str(runner), "probe"], capture_output=True, text=True).stdout.splitlines()
    assert said[0].split("=")[0] == "isolation"
    assert said[0].split("=")[1] in {"root", "user", "none"}
    assert said[1:] == ["version=1"]
