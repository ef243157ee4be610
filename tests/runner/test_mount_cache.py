"""A step that has left its private folders unchanged passes its mounts on to the next step, which cannot notice it.
Other steps do not.
"""

import errno
import functools
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.runner.attempts import NOBODY, Attempt, wait_until
from tests.runner.conftest import QUIET
from tests.runner.resident_runner import ResidentRunner, is_receiving, order

# If there are several, one covers the other.
PROCESS_LISTS = "grep -c ' /proc proc ' /proc/mounts"
LISTED = "ls -la --time-style=+"  # but not the times
AS_NOBODY = [*QUIET, "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

AS_ROOT = pytest.mark.parametrize("isolated", ["root"], indirect=True)


@pytest.fixture
def under(isolated: str) -> Sequence[str]:
    """Without root permissions, the step has a user namespace."""
    return AS_NOBODY if isolated == "user" and os.geteuid() == 0 else QUIET


@pytest.fixture
def attempt(attempt, isolated: str) -> Callable[[], Attempt]:
    """An attempt of the same user as the resident runner."""
    return functools.partial(attempt, "nobody" if isolated == "user" and os.geteuid() == 0 else None)


@pytest.fixture
def step(attempt, resident: ResidentRunner) -> Callable[..., Attempt]:
    """Run a step to its end. It first prints the creation time of its private folders, in nanoseconds."""
    birth = "stat -c %w " + " ".join(str(each) for each in resident.folders)
    resident.prepare()  # from this on the folders are known
    assert resident.request(b"release") == 0

    def run(script: str = "", **keys: object) -> Attempt:
        one = order(attempt, resident, f"{birth}\n{script}", **keys)
        resident.launch(one)
        assert one.receipt().outcome == "exited", one.receipt().detail
        return one

    return run


def born(one: Attempt) -> list[str]:
    """Return the creation times of its private folders, which identify their file systems."""
    return one.log.splitlines()[:2]


def said(one: Attempt) -> list[str]:
    return one.log.splitlines()[2:]


def given(first: Callable[[], Attempt], second: Callable[[], Attempt]) -> tuple[Attempt, Attempt]:
    """Return two steps, the second with the mounts of the first. An unmount by another process, or the removal of a
    folder that is a mount point elsewhere, gives it new mounts; then two more steps are run.
    """
    for _ in range(50):
        both = first(), second()
        if born(both[0]) == born(both[1]):
            return both
    raise AssertionError("each had its own")


def test_cached_mounts_look_like_new_ones_to_the_next_step(step, resident: ResidentRunner):
    one, two = resident.folders
    look = f"{LISTED} {one} {two} | grep -v total; cat {one}/old; set -- /proc/[0-9]*; echo $#; echo $$ $PPID; pwd"
    script = f"{look}\n{PROCESS_LISTS}\necho x >{one}/it"
    fresh = step(script, output=f"it\0{one}/it")
    first, second = given(*2 * [lambda: step(script, output=f"it\0{one}/it")])
    assert said(fresh) == said(first) == said(second)
    assert [each.output("it") for each in (fresh, first, second)] == [b"x\n"] * 3
    assert not (one / "it").exists()


def test_inputs_do_not_stay(step, resident: ResidentRunner):
    path = resident.folders[1] / "secret"
    first, second = given(lambda: step(f"cat {path}", file=f"{path}\0of the first"), lambda: step(f"ls {path.parent}"))
    assert (said(first), said(second)) == (["of the first"], ["old"])


def test_host_file_is_written_through_in_cached_mounts(step, resident: ResidentRunner):
    path = resident.folders[0] / "old"
    path.chmod(0o666)
    for word in ("one", "two"):
        step(f"echo {word} >{path}")
        assert path.read_text() == f"{word}\n"


LEFT = {
    "a file": "touch {one}/new",
    "a hidden file": "touch {two}/.new",
    "a folder": "mkdir {one}/new",
    "a link": "ln -s old {one}/new",
    "other rights": "chmod 700 {two}",
}
LEFT_BY_ROOT = {
    "another owner": "chown 1 {one}",
    "an attribute": 'python3 -c \'import os; os.setxattr("{one}", "trusted.it", b"x")\'',
    "a mount": "mount -t tmpfs none {two}",
    "a mount elsewhere": "mount -t tmpfs none /mnt",
    "a mount that came and went": "mount -t tmpfs none /mnt && umount /mnt",
    "one entry in place of another": "umount {one}/old && rm {one}/old && touch {one}/old",
    "a folder that cannot be written": "mount -o remount,bind,ro {one}",
    "no folder at all": "umount {one}/old && umount {one}",
    "another process list": "mount -t tmpfs none /proc",
    "a folder that nobody may change": "chattr +i {one}",
    "a folder without room": "unshare -m mount -o remount,size=4k {one}",
    "a folder that is written nowhere": "unshare -m mount -o remount,ro {one}",
    "an entry under the name of another": "unshare -m sh -ec '{swap}'",
}
SWAP = "cd {two}; umount old older; mv old it; mv older old; mv it older"


def leave(step, resident: ResidentRunner, leaving: str) -> None:
    one, two = resident.folders
    look = f"{LISTED} {one} {two} | grep -v total; touch {one}/mine; rm {one}/mine; {PROCESS_LISTS}; ls /mnt"
    (two / "older").write_text("older")
    resident.prepare()  # once a further change of the folder could be distinguished from this one
    assert resident.request(b"release") == 0
    leaving = f"set -e; {leaving.format(one=one, two=two, swap=SWAP.format(two=two))}; echo done"
    plain, _ = given(lambda: step(look), lambda: step(leaving))
    later = step(look)
    assert born(later)[0] != born(plain)[0]
    assert said(later) == said(plain)


@pytest.mark.parametrize("left", LEFT)
def test_whatever_a_step_leaves_is_its_own(step, resident: ResidentRunner, left: str):
    leave(step, resident, LEFT[left])


@AS_ROOT
@pytest.mark.parametrize("left", LEFT_BY_ROOT)
def test_whatever_root_leaves_is_its_own(step, resident: ResidentRunner, isolated, left: str):
    leave(step, resident, LEFT_BY_ROOT[left])


@AS_ROOT
def test_mounts_that_a_step_has_shared_are_shared_no_more(step, isolated):
    """No mount has changed, so the mounts are passed on. Later mounts of a copy must not propagate into them."""
    step("mount --make-rshared / && mount --make-unbindable /proc")
    assert said(step("grep -cE ' (shared:|unbindable)' /proc/self/mountinfo")) == ["0"]


def test_an_output_in_a_folder_of_the_hosts_stays_there(step, resident: ResidentRunner):
    """Existing entries of a private folder are the host's, and so is what is written into them."""
    folder = resident.folders[0] / "theirs"
    folder.mkdir()
    folder.chmod(0o777)
    step()
    one = step(f"echo x >{folder}/it", output=f"it\0{folder}/it")
    assert one.output("it") == b"x\n"
    assert (folder / "it").read_text() == "x\n"


def test_an_output_that_a_link_leads_to_stays_where_it_is(step, resident: ResidentRunner, here: Path):
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    link = resident.folders[0] / "link"
    one = step(f"ln -s {elsewhere} {link}; echo x >{link}/it", output=f"it\0{link}/it")
    assert one.output("it") == b"x\n"
    assert (elsewhere / "it").read_text() == "x\n"


@AS_ROOT
def test_output_on_a_mount_made_by_the_step_stays_there(step, resident: ResidentRunner, here: Path, isolated):
    elsewhere, folder = here / "elsewhere", resident.folders[0]
    elsewhere.mkdir()
    one = step(f"mount --bind {elsewhere} {folder}; echo x >{folder}/it", output=f"it\0{folder}/it")
    assert one.output("it") == b"x\n"
    assert (elsewhere / "it").read_text() == "x\n"


def test_change_undone_by_a_step_is_harmless(step, resident: ResidentRunner):
    script = f"cd {resident.folders[0]}; mkdir a; touch a/b .c; rm -r a .c; chmod 700 .; chmod 777 ."
    given(lambda: step(script), step)


CHANGES = {
    "comes": lambda path: path.with_name("another").touch(),
    "goes": lambda path: path.unlink(),
    "is replaced": lambda path: (path.unlink(), path.write_text("new")),
    "is closed to writers": lambda path: path.parent.chmod(0o755),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_on_the_host_is_seen(step, resident: ResidentRunner, change: str):
    folder = resident.folders[1]
    first = step()
    CHANGES[change](folder / "old")
    script = f"ls {folder}; cat {folder}/old 2>&1; stat -c %a {folder}"
    second = step(script)
    assert born(second)[1] != born(first)[1]
    assert resident.request(b"release") == 0
    assert said(step(script)) == said(second)


def test_later_mount_is_seen_by_the_next_step(step, resident: ResidentRunner, here: Path):
    place = here / "mounted"
    place.mkdir()
    first = step()
    there = ["nsenter", f"--mount=/proc/{resident.process.pid}/ns/mnt"]
    subprocess.run([*there, "mount", "-t", "tmpfs", "none", place], check=True)
    subprocess.run([*there, "touch", place / "inside"], check=True)
    second = step(f"ls {place}")
    assert said(second) == ["inside"]
    assert born(second) != born(first)


def test_later_mount_is_seen_with_all_cached_mounts(step, attempt, resident: ResidentRunner, here: Path):
    """At that time one entry of the cache is in use, and another is not."""
    place = here / "mounted"
    place.mkdir()
    both = [order(attempt, resident, "sleep 0.05") for _ in range(2)]
    launchers = [resident.request(f"{resident.isolation} {each.dir}".encode()) for each in both]
    for each in launchers:
        os.waitpid(each, 0)
    step()
    there = ["nsenter", f"--mount=/proc/{resident.process.pid}/ns/mnt"]
    subprocess.run([*there, "mount", "-t", "tmpfs", "none", place], check=True)
    subprocess.run([*there, "touch", place / "inside"], check=True)
    assert [said(step(f"ls {place}")) for _ in range(2)] == [["inside"]] * 2


def test_a_folder_with_a_link_serves_once(step, resident: ResidentRunner):
    """A link is no mount point, so a step could replace it."""
    (resident.folders[0] / "it").symlink_to("old")
    first = step(f"rm {resident.folders[0]}/it")
    second = step(f"ls {resident.folders[0]}")
    assert (said(second), born(second) != born(first)) == (["it", "old"], True)


@pytest.mark.parametrize("used", [False, True])
def test_mounts_without_an_existing_output_are_not_cached(step, resident: ResidentRunner, used: bool):
    path = resident.folders[0] / "it"
    path.touch()
    if used:
        step()
    first = step(f"touch {path.parent}/another", output=f"it\0{path}")
    second = step(f"ls {path.parent}")
    assert (said(second), born(second) != born(first)) == (["it", "old"], True)


def test_input_mounted_over_a_host_file_is_removed(step, resident: ResidentRunner, here: Path):
    path = here / "file"
    path.write_text("the host's")
    assert said(step(f"cat {path}", file=f"{path}\0the step's")) == ["the step's"]
    assert said(step(f"cat {path}")) == ["the host's"]


def test_newly_requested_private_folders_replace_the_others(step, attempt, resident: ResidentRunner):
    one, two = resident.folders
    step()
    waiting = resident.prepare(one)
    last = order(attempt, resident, f"touch {one}/it {two}/it", private=[one])
    assert resident.launch(last) == waiting
    assert ((one / "it").exists(), (two / "it").exists()) == (False, True)


def test_an_order_that_wants_one_more_folder_has_it(step, resident: ResidentRunner, here: Path):
    other = here / "other"
    other.mkdir()
    private = [*resident.folders, other]
    _, second = given(step, lambda: step(f"touch {other}/it; ls {other}", private=private))
    assert said(second) == ["it"]
    assert list(other.iterdir()) == []
    assert born(step()) != born(second), "a folder more is no usual one"


def test_an_order_that_wants_one_less_has_the_hosts(step, resident: ResidentRunner):
    one, two = resident.folders
    step()
    step(f"touch {two}/it", private=[one])
    assert (two / "it").exists()


def test_a_long_step_keeps_nothing(step):
    """After that time the resident runner no longer waits for the mounts of the step."""
    assert born(step("sleep 0.6")) != born(step())


def test_prepared_launcher_uses_cached_mounts(step, resident: ResidentRunner):
    def waited() -> Attempt:
        waiting = resident.prepare()
        one = step()
        if waiting in resident.waiting:
            os.waitpid(waiting, 0)  # another process has unmounted something, so the launcher was released
            resident.waiting.remove(waiting)
        return one

    given(step, waited)


@pytest.mark.parametrize("let_go", ["asked to", "by itself"])
def test_nothing_is_kept_for_long(step, resident: ResidentRunner, let_go: str):
    first = step()
    if let_go == "asked to":
        assert resident.request(b"release") == 0
    else:
        wait_until(lambda: is_receiving(resident.process.pid), 30)
    assert born(step()) != born(first)


def test_step_inherits_no_extra_descriptors(step):
    """The step has the three standard descriptors, and the lock that proves that it is alive."""
    for _ in range(3):
        assert said(step("ls /proc/self/fd | tr '\\n' ' '")) == ["0 1 2 200 3 "]


@AS_ROOT
class TestInAPartOfTheMachine:
    """A process that enters mounts is at their root, which differs from the caller's root here."""

    @pytest.fixture
    def under(self, here: Path, isolated) -> list[str]:
        root = here / "root"
        root.mkdir()
        lay = f"mount --rbind / {root} && mount -t tmpfs none {root}/mnt && touch {root}/mnt/only"
        return ["unshare", "--mount", "sh", "-c", f'{lay} && exec chroot {root} "$0" "$@"']

    def test_nothing_is_kept(self, step, isolated):
        first, second = step("ls /mnt"), step("ls /mnt")
        assert said(first) == said(second) == ["only"]
        assert born(first) != born(second)


@pytest.mark.parametrize("isolated", ["user"], indirect=True)
class TestUserNamespace:
    def test_steps_of_one_resident_runner_have_one(self, step, isolated):
        first, second = (step("readlink /proc/self/ns/user; id -u") for _ in range(2))
        assert said(first) == said(second)
        assert said(first)[0] != str(Path("/proc/self/ns/user").readlink())

    def test_launcher_with_a_different_isolation_is_not_forked(self, attempt, resident: ResidentRunner, isolated):
        one = attempt().write("#!/bin/sh\n", isolation="none")
        for packet in (f"{one.dir}", f"root {one.dir}", f"prepare root {resident.folders[0]}"):
            assert resident.request(packet.encode()) == -errno.EINVAL
