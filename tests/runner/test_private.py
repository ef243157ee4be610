"""Private directories: new entries belong to the step, and existing entries belong to the host and are unchanged."""

import os
import socket
import stat
from pathlib import Path

import pytest
from tests.runner.attempts import wait_until


@pytest.fixture
def shared(place) -> Path:
    """A directory of the host such as /tmp: open to all, sticky, with all kinds of entries in it."""
    folder = place / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "file").write_text("host")
    (folder / "folder/inner").mkdir(parents=True)
    (folder / "folder/file").write_text("deep")
    (folder / "link").symlink_to("folder/file")
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    return folder


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {
        entry.name: (entry.lstat().st_mode, entry.lstat().st_uid, entry.lstat().st_size) for entry in folder.iterdir()
    }


def test_existing_entries_remain_visible_and_unchanged(attempt, isolated, shared):
    before = listing(shared)
    one = attempt()
    script = f"""#!/bin/sh
cd {shared}
cat file folder/file link; echo
readlink dangling; test -p pipe && echo pipe
stat -c %a .
echo more >> file; echo new > folder/new; echo mine > new; ls
"""
    one.run(script, isolation=isolated, private=str(shared))
    assert one.log.splitlines() == [
        "hostdeepdeep", "nowhere", "pipe", "1777", "dangling", "file", "folder", "link", "new", "pipe",
    ]  # fmt: skip
    after = listing(shared)
    assert after.keys() == before.keys()
    # Existing files and folders belong to the host, so writes of the step into them stay.
    assert (shared / "file").read_text() == "hostmore\n"
    assert (shared / "folder/new").read_text() == "new\n"
    assert {name: row for name, row in after.items() if name != "file"} == {
        name: row for name, row in before.items() if name != "file"
    }


def test_concurrent_steps_do_not_see_each_others_files(attempt, isolated, shared):
    both = [attempt() for _ in range(2)]
    launchers = []
    for number, one in enumerate(both):
        script = f"#!/bin/sh\necho -n {number} > {shared}/out; sleep 0.3; cat {shared}/in; ls {shared} | wc -l\n"
        one.write(
            script,
            isolation=isolated,
            private=str(shared),
            file=f"{shared}/in\0input {number}\n",
            output=f"o\0{shared}/out",
        )
        launchers.append(one.start())
    assert [launcher.wait(10) for launcher in launchers] == [0, 0]
    assert [one.output("o") for one in both] == [b"0", b"1"]
    assert [one.log for one in both] == [f"input {number}\n7\n" for number in range(2)]
    assert sorted(listing(shared)) == ["dangling", "file", "folder", "link", "pipe"]


def test_a_declared_path_hides_the_hosts_entry(attempt, isolated, shared):
    one = attempt()
    receipt = one.run(
        f"#!/bin/sh\ncat {shared}/file; test -e {shared}/folder || echo hidden; echo -n o > {shared}/folder\n",
        isolation=isolated,
        private=str(shared),
        file=f"{shared}/file\0mine\n",
        output=[f"o\0{shared}/folder", f"link\0{shared}/link"],
    )
    assert one.log == "mine\nhidden\n"
    assert one.output("o") == b"o"
    assert receipt.outputs["link"][0] == "missing"
    assert (shared / "file").read_text() == "host"
    assert (shared / "folder").is_dir()


def test_inputs_get_their_parents_and_belong_to_the_step(attempt, isolated, shared):
    one = attempt()
    script = f"#!/bin/sh\nstat -c '%a %u' {shared}/a/b/in {shared}/a/b; cat {shared}/a/b/in\n"
    one.run(script, isolation=isolated, private=str(shared), file=f"{shared}/a/b/in\0secret")
    assert one.log == f"400 {os.geteuid()}\n755 {os.geteuid()}\nsecret"
    assert not (shared / "a").exists()


def test_a_private_directory_may_lie_in_another(attempt, isolated, shared):
    one = attempt()
    script = f"#!/bin/sh\ncd {shared}; echo a > new; echo b > folder/new; cat folder/in new folder/new folder/file\n"
    one.run(script, isolation=isolated, private=[f"{shared}/folder", str(shared)], file=f"{shared}/folder/in\0in\n")
    assert one.log == "in\na\nb\ndeep"
    assert sorted(listing(shared / "folder")) == ["file", "inner"]
    assert "new" not in listing(shared)


def test_a_file_of_the_host_is_covered_never_changed(attempt, isolated, place):
    (place / "config").write_text("host")
    one = attempt()
    one.run(f"#!/bin/sh\ncat {place}/config; ls {one.dir}\n", isolation=isolated, file=f"{place}/config\0covered\n")
    assert one.log == "covered\nlock\nlog\nmarker\norder\nreceipt.tmp\nscript\n"
    assert (place / "config").read_text() == "host"


def test_an_input_that_would_land_on_the_host_is_refused(attempt, isolated, place):
    for path in (f"{place}/new", f"{place}/new/deeper", f"{place}/dayfly-runner/x", "/no-such-top/x"):
        one = attempt()
        receipt = one.run("#!/bin/sh\n", isolation=isolated, file=f"{path}\0x")
        assert receipt.outcome == "refused"
        assert path in receipt.detail
        assert not (one.dir / "marker").exists()
    assert not (place / "new").exists()


def test_an_output_that_is_there_already_is_refused(attempt, isolation, place):
    (place / "stale").write_text("old")
    receipt = attempt().run("#!/bin/sh\n", isolation=isolation, output=f"o\0{place}/stale")
    assert receipt.outcome == "refused"
    assert f"{place}/stale" in receipt.detail
    assert (place / "stale").read_text() == "old"


def test_new_entries_of_the_root_directory(attempt, isolated, shared):
    name = f"dayfly-{os.getpid()}"
    one = attempt()
    script = f"""#!/bin/sh
mkdir -p /{name}/deep && echo -n value > /{name}/deep/x
cat /{name}/in; cd /..; pwd; ls -d /etc /proc/self /{name} {shared}/in /dev/null
"""
    receipt = one.run(
        script,
        isolation=isolated,
        private=["/", str(shared)],
        file=[f"/{name}/in\0top\n", f"{shared}/in\0in"],
        output=f"x\0/{name}/deep/x",
    )
    assert one.log.splitlines() == ["top", "/", f"/{name}", "/dev/null", "/etc", "/proc/self", f"{shared}/in"]
    assert (receipt.outcome, one.output("x")) == ("exited", b"value")
    assert not Path(f"/{name}").exists()


def test_sockets_of_the_host_answer_in_a_private_directory(attempt, isolated, shared):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{shared}/socket")
        server.listen()
        server.settimeout(10)
        one = attempt().write(
            "#!/usr/bin/env python3\nimport socket\ns = socket.socket(socket.AF_UNIX)\n"
            f"s.connect('{shared}/socket')\nprint(s.recv(9).decode())\n",
            isolation=isolated,
            private=str(shared),
        )
        launcher = one.start()
        peer, _ = server.accept()
        with peer:
            peer.send(b"hello")
        assert launcher.wait(10) == 0
    assert one.log == "hello\n"


def test_entries_that_come_and_go_do_not_disturb(attempt, isolated, shared):
    for number in range(20):
        one = attempt().write("#!/bin/sh\n", isolation=isolated, private=str(shared))
        launcher = one.start()
        while launcher.poll() is None:
            (shared / f"passing-{number}").touch()
            (shared / f"passing-{number}").unlink()
        assert one.receipt().outcome == "exited", one.receipt().detail


def test_a_missing_private_directory_is_refused(attempt, isolated):
    receipt = attempt().run("#!/bin/sh\n", isolation=isolated, private="/no/such/folder")
    assert receipt.outcome == "refused"
    assert "/no/such/folder" in receipt.detail


def test_the_hosts_mounts_stay_as_they_are(attempt, isolated, shared):
    before = Path("/proc/self/mountinfo").read_text()
    attempt().run("#!/bin/sh\n", isolation=isolated, private=["/", str(shared)])
    assert Path("/proc/self/mountinfo").read_text() == before


def test_input_without_isolation_never_replaces_a_file(attempt, place):
    (place / "there").write_text("host")
    one = attempt()
    receipt = one.run("#!/bin/sh\n", isolation="none", file=[f"{place}/a/b/in\0x", f"{place}/there\0x"])
    assert receipt.outcome == "refused"
    assert f"{place}/there" in receipt.detail
    assert (place / "there").read_text() == "host"
    assert not (place / "a").exists()


def test_inputs_and_outputs_without_isolation_are_removed(attempt, place):
    one = attempt()
    receipt = one.run(
        f"#!/bin/sh\nstat -c %a {place}/a/b/in; cp {place}/a/b/in {place}/a/out; touch {place}/kept\n",
        isolation="none",
        file=f"{place}/a/b/in\0secret",
        output=f"o\0{place}/a/out",
    )
    assert (receipt.outcome, one.log, one.output("o")) == ("exited", "400\n", b"secret")
    assert not (place / "a").exists()
    assert (place / "kept").exists()


def test_two_steps_without_isolation_do_not_share_a_path(attempt, place):
    one = attempt().write("#!/bin/sh\nsleep 60\n", isolation="none", file=f"{place}/in\0one")
    launcher = one.start()
    wait_until((one.dir / "marker").exists)
    assert attempt().run("#!/bin/sh\n", isolation="none", file=f"{place}/in\0two").outcome == "refused"
    assert (place / "in").read_text() == "one"
    launcher.terminate()
    assert launcher.wait(10) == 0
    assert not (place / "in").exists()


@pytest.mark.root
def test_a_user_without_rights_has_private_directories_too(attempt, granted, shared):
    if granted == "none":
        pytest.skip("this machine grants no user namespaces")
    one = attempt(user="nobody")
    name = f"dayfly-{os.getpid()}"
    script = f"""#!/bin/sh
id -u; cat {shared}/in; stat -c %a {shared}; echo -n o > {shared}/out
mkdir /{name} && echo -n p > /{name}/x; cat {shared}/file
mount -t tmpfs x /mnt 2>/dev/null || echo no rights
"""
    receipt = one.run(
        script,
        isolation="user",
        private=["/", "/tmp", str(shared)],
        file=f"{shared}/in\0in\n",
        output=[f"o\0{shared}/out", f"x\0/{name}/x"],
    )
    assert one.log == "65534\nin\n1777\nhostno rights\n"
    assert (one.output("o"), one.output("x")) == (b"o", b"p")
    assert receipt.outcome == "exited"
    assert stat.S_IMODE((one.dir / "receipt").stat().st_mode) == 0o600


@pytest.mark.root
def test_a_user_without_rights_and_without_isolation(attempt, place):
    folder = place / "open"
    folder.mkdir()
    folder.chmod(0o777)
    one = attempt(user="nobody")
    one.run(f"#!/bin/sh\nid -u; cat {folder}/in\n", isolation="none", file=f"{folder}/in\0in\n")
    assert one.log == "65534\nin\n"
    assert list(folder.iterdir()) == []


@pytest.mark.root
def test_rights_that_are_not_there_are_refused_not_lowered(attempt, place):
    one = attempt(user="nobody")
    receipt = one.run("#!/bin/sh\necho ran\n", isolation="root")
    assert receipt.outcome == "refused"
    assert "namespaces" in receipt.detail
    assert not (one.dir / "marker").exists()
    closed = attempt(user="nobody").run("#!/bin/sh\n", isolation="none", file=f"{place}/in\0x")
    assert closed.outcome == "refused"
    assert f"{place}/in" in closed.detail
