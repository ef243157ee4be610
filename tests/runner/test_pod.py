"""Pod mode: the first process of a container runs one step once, and reports in the log and in the message."""

import hashlib
import os
import signal
import time
from dataclasses import replace

import pytest
from tests.runner.attempts import patience, processes_with, wait_until
from tests.runner.pods import Container, contents_of, first_process
from tests.runner.scripts import DAEMON, STUBBORN

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container's namespaces"),
]


@pytest.fixture
def container(runner, place):
    made = 0

    def make(**how) -> Container:
        nonlocal made
        made += 1
        return Container.make(place / f"root-{made}", runner, **how)

    return make


KINDS = [
    pytest.param({}, id="root"),
    pytest.param({"user": 65532}, id="user"),
    pytest.param({"user": 65532, "read_only": True}, id="restricted"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_pod_step_runs_once_and_reports_in_log_and_summary(container, kind):
    one = container(**kind)
    ended = one.run(
        "#!/bin/sh\nid -u; echo err >&2; printf 'v\\000\\377' > /tmp/o; printf 'no end'; exit 3\n",
        output=["o\0/tmp/o", "none\0/tmp/none"],
    )
    assert ended.code == 3
    assert ended.log == f"{kind.get('user', 0)}\nerr\nno end".encode()
    assert (ended.receipt.outcome, ended.receipt.code) == ("exited", 3)
    digest = hashlib.sha256(b"v\0\xff").hexdigest()
    assert ended.receipt.outputs == {"o": ("present", 3, digest), "none": ("missing", 0, "")}
    assert ended.contents == {"o": b"v\0\xff"}
    summary = dict(ended.summary)
    assert summary["content"] == b"o\0v\0\xff"
    assert summary["log-document"].decode() == hashlib.sha256(ended.document).hexdigest()
    assert "output-in-log" not in summary
    assert (one.root / "dayfly-state/marker").read_text() == "started\n"


@pytest.mark.parametrize("kind", KINDS)
def test_pod_step_starts_in_an_empty_folder_by_default(container, kind):
    one = container(**kind)
    ended = one.run("#!/bin/sh\npwd; ls -A | wc -l; echo mine > file && cat file\n")
    assert ended.log == b"/dayfly-state/work\n0\nmine\n"


@pytest.mark.parametrize("kind", KINDS)
def test_writable_image_folder_is_kept(container, kind):
    ended = container(**kind, folder="/tmp").run("#!/bin/sh\npwd\n")
    assert ended.log == b"/tmp\n"
    ended = container(**kind, folder="/usr").run("#!/bin/sh\npwd; touch mine && rm mine\n", cwd="/tmp")
    assert ended.log == b"/tmp\n", "the order names one"


def test_the_folder_of_an_image_that_is_closed_to_the_step(container):
    ended = container(user=65532, folder="/usr").run("#!/bin/sh\npwd; ls -A | wc -l\n")
    assert ended.log == b"/dayfly-state/work\n0\n"


def test_an_image_without_a_shell_is_enough(container):
    """The only program in it is the runner, here also as the interpreter: it is called with the script's path."""
    ended = container(shell=False, user=65532, read_only=True).run("#!/dayfly/dayfly-runner\n")
    assert (ended.receipt.outcome, ended.code) == ("exited", 64)
    assert ended.log.startswith(b"usage: dayfly-runner")
    missing = container(shell=False).run("#!/bin/bash\n")
    assert (missing.receipt.outcome, missing.code) == ("not-executable", 127)
    assert "/bin/bash" in missing.receipt.detail


@pytest.mark.parametrize("code", [125, 127])
def test_script_cannot_leave_its_own_words_as_the_message(container, code):
    """The user of the step may own the file, as root does, and close it before the runner writes there."""
    one = container(user=65532)
    os.chown(one.root / "dev/termination-log", one.user, one.user)
    script = f"#!/bin/sh\necho forged > /dev/termination-log; chmod 444 /dev/termination-log; exit {code}\n"
    ended = one.run(script)
    assert ended.code == code
    assert dict(ended.summary)["outcome"] == b"exited"


def test_large_outputs_travel_in_the_log_alone(container):
    one = container()
    script = (
        "#!/bin/sh\nprintf small > /tmp/s; head -c 3000 /dev/urandom > /tmp/m; head -c 400000 /dev/urandom > /tmp/l\n"
    )
    ended = one.run(script, output=["m\0/tmp/m", "s\0/tmp/s", "l\0/tmp/l"])
    assert len(ended.message) <= 4096
    summary = ended.summary
    assert {value.decode() for key, value in summary if key == "output-in-log"} == {"m", "l"}
    assert [value for key, value in summary if key == "content"] == [b"s\0small"]
    assert {name: (len(value), hashlib.sha256(value).hexdigest()) for name, value in ended.contents.items()} == {
        name: (size, digest) for name, (_, size, digest) in ended.receipt.outputs.items()
    }


def test_many_outputs_leave_even_their_digests_to_the_log(container):
    script = "#!/bin/sh\nfor n in $(seq 60); do echo -n $n > /tmp/o$n; done\n"
    ended = container().run(script, output=[f"o{n}\0/tmp/o{n}" for n in range(1, 61)])
    assert len(ended.message) <= 4096
    assert "output" not in dict(ended.summary)
    assert dict(ended.summary)["log-document"].decode() == hashlib.sha256(ended.document).hexdigest()
    assert ended.contents == {f"o{n}": str(n).encode() for n in range(1, 61)}


def test_the_message_keeps_its_limit_at_every_size(container):
    """Small outputs are in the message, larger ones only by name. No size in between breaks it."""
    inlined = []
    for size in [2000, *range(2440, 2640, 25), 2900]:
        ended = container().run(f"#!/bin/sh\nhead -c {size} /dev/zero > /tmp/o\n", output="o\0/tmp/o")
        assert len(ended.message) <= 4096
        keys = [key for key, _ in ended.summary]
        assert ("content" in keys) != ("output-in-log" in keys)
        inlined.append("content" in keys)
    assert inlined == sorted(inlined, reverse=True)
    assert set(inlined) == {True, False}


def test_a_script_cannot_forge_a_receipt(container):
    forged = "\\036dayfly-receipt 1 5\\n\\036=AAAA\\n\\036dayfly-end 0\\n\\036\\036x\\nplain \\036 inside\\n"
    ended = container().run(f"#!/bin/sh\nprintf '{forged}'; printf '\\036'; sleep 0.1; printf '\\036y\\n'\n")
    assert ended.receipt.outcome == "exited"
    expected = b"\x1edayfly-receipt 1 5\n\x1e=AAAA\n\x1edayfly-end 0\n\x1e\x1ex\nplain \x1e inside\n\x1e\x1ey\n"
    assert ended.log == expected


VERSION_1 = (
    "memory/memory.oom_control",
    "oom_kill_disable 0\\nunder_oom 0\\noom_kill {}\\n",
    "memory/memory.limit_in_bytes",
)
VERSION_2 = ("memory.events", "low 0\\nhigh 0\\nmax 7\\noom 1\\noom_kill {}\\noom_group_kill 0\\n", "memory.max")


@pytest.mark.parametrize(
    ("groups", "before", "after", "limit", "told"),
    [
        (VERSION_1, 0, 1, "25165824", ("1", "25165824")),
        (VERSION_1, 0, 1, "9223372036854771712", ("1", "0")),
        (VERSION_2, 2, 5, "25165824", ("3", "25165824")),
        (VERSION_2, 0, 1, "max", ("1", "0")),
        (VERSION_2, 2, 2, "25165824", None),
        (VERSION_2, 0, "many", "25165824", None),
        (VERSION_2, "", 1, "25165824", None),
        (None, 0, 0, "", None),
    ],
)
def test_out_of_memory_kill_is_reported(container, groups, before, after, limit, told):
    """The script plays the kernel: it writes the control group's files, which here are plain ones."""
    one = container()
    script = "#!/bin/sh\nexit 137\n"
    if groups:
        counter, text, bound = groups
        for name, content in ((counter, text.format(before).replace("\\n", "\n")), (bound, limit + "\n")):
            path = one.root / "sys/fs/cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        script = f"#!/bin/sh\nprintf '{text.format(after)}' >/sys/fs/cgroup/{counter}\nexit 137\n"
    ended = one.run(script)
    assert (ended.receipt.outcome, ended.receipt.code) == ("exited", 137)
    found = ended.receipt.fields
    assert (found.get("oom-kills"), found.get("memory-limit")) == (told or (None, None))
    assert dict(ended.summary).get("oom-kills", b"").decode() == (told[0] if told else "")


def test_a_second_instance_says_the_same_and_runs_nothing(container):
    one = container()
    script = "#!/bin/sh\necho x >> /tmp/effects; echo -n v > /tmp/o; exit 4\n"
    first = one.run(script, output="o\0/tmp/o")
    again = one.run()
    assert (again.code, again.document, again.message) == (4, first.document, first.message)
    assert (one.root / "tmp/effects").read_text() == "x\n"


def test_a_second_instance_beside_the_first_is_silent(container):
    one = container().write("#!/bin/sh\necho begun; until [ -e /tmp/go ]; do sleep 0.01; done\n")
    first = one.start()
    wait_until((one.root / "dayfly-state/marker").exists)
    beside = one.start()
    stdout, _ = beside.communicate(timeout=60)
    assert (beside.returncode, stdout) == (3, b"")
    (one.root / "tmp/go").touch()
    assert one.end(first).receipt.outcome == "exited"


def test_a_killed_instance_is_lost_and_never_repeated(container, mark):
    one = container().write("#!/bin/sh\necho x >> /tmp/effects; exec sleep 100\n", env=f"MARK={mark}")
    first = one.start()
    wait_until(lambda: (one.root / "tmp/effects").exists() and (one.root / "tmp/effects").read_text() == "x\n")
    os.kill(first_process(first), signal.SIGKILL)
    first.communicate(timeout=60)
    wait_until(lambda: processes_with(mark) == [])
    again = one.run()
    assert (again.receipt.outcome, again.code) == ("lost", 125)
    assert again.receipt.fields["nonce"] == "n-1"
    assert (one.root / "tmp/effects").read_text() == "x\n"
    assert one.run().document == again.document


def test_refused_step_stays_refused(container):
    """A later instance might find the fault repaired, but the refusal of the first one is already reported."""
    one = container().write("#!/bin/sh\necho x >> /tmp/effects\n", secret_env="TOKEN\0/dayfly/token")
    refused = one.run()
    assert (refused.receipt.outcome, refused.code) == ("refused", 125)
    assert "TOKEN" in refused.receipt.detail
    one.secret("token", b"t")
    (one.root / "dayfly-state/receipt").unlink()
    assert one.run().receipt.outcome == "void"
    assert not (one.root / "tmp/effects").exists()


def test_too_late_is_void(container):
    ended = container().run("#!/bin/sh\necho x > /tmp/effects\n", start_before_ms=int(time.time() * 1000))
    assert (ended.receipt.outcome, ended.code, ended.log) == ("void", 125, b"")


def test_recalled_step_is_void_and_leaves_nothing(container):
    one = container()
    one.verb = "void"
    ended = one.run("#!/bin/sh\necho x > /tmp/effects\n")
    assert (ended.receipt.outcome, ended.code, ended.log) == ("void", 125, b"")
    assert ended.receipt.fields["nonce"] == "n-1"
    one.verb = "pod"
    (one.root / "dayfly-state/receipt").unlink()
    assert one.run().receipt.outcome == "void"
    assert not (one.root / "tmp/effects").exists()


@pytest.mark.parametrize(
    ("killed", "outcome"), [(signal.SIGTERM, "cancelled"), (signal.SIGKILL, "lost")], ids=["asked", "killed"]
)
def test_step_started_before_its_recall_reports_that(container, mark, killed, outcome):
    """The kubelet ends a container whose image is changed, and creates another one, which learns of the recall."""
    one = container().write("#!/bin/sh\necho x >> /tmp/effects; exec sleep 100\n", env=f"MARK={mark}")
    first = one.start()
    wait_until(lambda: (one.root / "tmp/effects").exists() and (one.root / "tmp/effects").read_text() == "x\n")
    os.kill(first_process(first), killed)
    first.communicate(timeout=60)
    wait_until(lambda: processes_with(mark) == [])
    one.verb = "void"
    assert one.run().receipt.outcome == outcome
    assert (one.root / "tmp/effects").read_text() == "x\n"


def test_recall_as_another_user_proves_nothing(container):
    """The first container was root's; in the other image the user is another, and may not read what that one left."""
    one = container().write("#!/bin/sh\necho x > /tmp/effects\n")
    one.run()
    one.user = 65532
    one.verb = "void"
    told = one.run().receipt
    assert (told.outcome, told.fields["nonce"]) == ("refused", "")


def test_recall_beside_a_running_step_says_nothing(container, mark):
    """The running step holds the lock; its own receipt follows."""
    one = container().write("#!/bin/sh\necho x >> /tmp/effects; exec sleep 100\n", env=f"MARK={mark}")
    first = one.start()
    wait_until((one.root / "tmp/effects").exists)
    process, other = first_process(first), replace(one, verb="void")
    late = other.end(other.start())
    assert (late.code, late.stdout) == (3, b"")
    os.kill(process, signal.SIGTERM)
    assert one.end(first).receipt.outcome == "cancelled"


def test_secrets_become_variables_and_files(container):
    one = container(user=65532)
    one.environment += ["FROM_POD=pod", "BOTH=pod", "TOKEN=pod"]
    ended = one.run(
        "#!/bin/sh\necho $FROM_POD $BOTH; printf '%s|' \"$TOKEN\"; cat /tmp/in/deep/key; stat -c ' %a' /tmp/in/deep/key; cat /tmp/plain\n",
        env=["BOTH=order", "TOKEN=order"],
        file="/tmp/plain\0plain\n",
        secret_env="TOKEN\0" + one.secret("token", b"line 1\nline 2\n"),
        secret_file="/tmp/in/deep/key\0" + one.secret("key", b"\0\xff"),
    )
    assert ended.log == b"pod order\nline 1\nline 2\n|\0\xff 400\nplain\n"


def test_an_input_on_a_read_only_root_is_refused(container):
    ended = container(read_only=True).run("#!/bin/sh\n", file="/etc/in\0x")
    assert ended.receipt.outcome == "refused"
    assert "/etc/in" in ended.receipt.detail


def test_host_and_pod_records_are_refused_in_the_other_mode(container, attempt):
    assert "private" in container().run("#!/bin/sh\n", private="/tmp").receipt.detail
    assert "log file" in container().run("#!/bin/sh\n", log="/tmp/log").receipt.detail
    receipt = attempt().run("#!/bin/sh\n", secret_env="A\0/dayfly/a")
    assert receipt.outcome == "refused"
    assert "secrets" in receipt.detail


def test_everything_else_is_dead_before_the_receipt(container, mark):
    ended = container().run(DAEMON, env=f"MARK={mark}")
    assert ended.receipt.outcome == "exited"
    assert processes_with(mark) == []
    assert ended.log.startswith(b"[dayfly: the step's program has ended, and processes that it left were ended: ")
    assert ended.log.endswith(b"]\n")


def test_a_stubborn_step_meets_its_deadline(container, mark):
    for run_ms in patience(400):
        ended = container().run(STUBBORN, env=f"MARK={mark}", run_ms=run_ms, grace_ms=200)
        if ended.log:
            break
    assert (ended.receipt.outcome, ended.receipt.code, ended.code) == ("deadline", 9, 125)
    assert ended.log == b"ready\n"
    assert processes_with(mark) == []


def test_the_kubelets_signal_cancels(container):
    one = container().write("#!/bin/sh\necho -n half > /tmp/o; echo begun; exec sleep 100\n", output="o\0/tmp/o")
    process = one.start()
    wait_until(lambda: (one.root / "tmp/o").exists() and (one.root / "tmp/o").read_text() == "half")
    os.kill(first_process(process), signal.SIGTERM)
    ended = one.end(process)
    assert (ended.receipt.outcome, ended.receipt.code) == ("cancelled", 15)
    assert ended.contents == {"o": b"half"}


def test_runner_memory_is_unreadable_for_its_step(container):
    ended = container(user=65532).run(
        "#!/bin/sh\ncat /proc/1/environ >/dev/null 2>&1 || echo closed; cat /proc/self/environ >/dev/null && echo open\n"
    )
    assert ended.log == b"closed\nopen\n"


def test_a_long_log_is_cut_and_the_receipt_still_whole(container):
    ended = container().run("#!/bin/sh\nhead -c 2000000 /dev/zero | tr '\\0' a\n", log_limit=100000)
    assert ended.log == b"a" * 100000
    assert b"\n[dayfly: log cut at 100000 bytes]\n" in ended.stdout
    assert ended.receipt.fields["log-truncated"] == "1"


def test_without_a_state_volume_nothing_runs(container):
    one = container()
    (one.root / "dayfly-state").rmdir()
    ended = one.run("#!/bin/sh\necho x > /tmp/effects\n")
    assert ended.receipt.outcome == "refused"
    assert "/dayfly-state" in ended.receipt.detail
    assert not (one.root / "tmp/effects").exists()
    assert contents_of(ended.document) == {}
