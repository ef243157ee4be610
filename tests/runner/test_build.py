"""The build: cached, small where it must be, and the small program is the same program."""

import os
import shutil
import subprocess

import pytest
from tests.runner.attempts import Attempt, patience, wait_until
from tests.runner.conftest import ROOT, build
from tests.runner.pods import Container

SMALL = 128 << 10


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def portable(request, tmp_path_factory):
    """The program as it goes into clusters, how to run it here, and the isolation to run it with."""
    out = build(tmp_path_factory.mktemp(request.param) / "dayfly-runner", request.param)
    if os.uname().machine == request.param:
        return out, [], "none"
    emulator = shutil.which(f"qemu-{request.param}-static")
    if emulator is None:
        pytest.skip(f"no qemu-{request.param}-static to run another architecture's program")
    # The emulator does not know PR_SET_CHILD_SUBREAPER, which isolation `none` cannot do without.
    said = subprocess.run([emulator, str(out), "probe"], capture_output=True, check=True, text=True).stdout
    isolation = said.splitlines()[0].removeprefix("isolation=")
    if isolation == "none":
        pytest.skip("the emulator grants no namespaces here")
    return out, [emulator], isolation


def test_a_second_build_starts_nothing(runner, tmp_path):
    """Not a compiler, not even a program that makes a folder or a digest."""
    before = runner.stat()
    (tmp_path / "dirname").symlink_to(shutil.which("dirname"))
    subprocess.run(["/bin/sh", ROOT / "runner" / "build.sh", runner], env={"PATH": str(tmp_path)}, check=True)
    assert (runner.stat().st_ino, runner.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no compiler of its own")
def test_the_machines_own_compiler_builds_it_without_a_warning(tmp_path):
    """As in a newcomer's empty home, where no other compiler is there yet."""
    built = subprocess.run(
        ["/bin/sh", ROOT / "runner" / "build.sh", tmp_path / "out"],
        env={**os.environ, "DAYFLY_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stderr) == (0, "")


def test_an_unknown_architecture_is_refused(tmp_path):
    said = subprocess.run([str(ROOT / "runner/build.sh"), str(tmp_path / "x"), "vax"], capture_output=True, text=True)
    assert said.returncode == 1
    assert "vax" in said.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_portable_program_is_small_and_works(portable, place):
    program, emulator, isolation = portable
    assert program.stat().st_size < SMALL
    with program.open("rb") as file:
        assert file.read(4) == b"\x7fELF"
    said = subprocess.run([*emulator, str(program), "probe"], capture_output=True, check=True, text=True).stdout
    assert said.endswith("version=1\n")
    one = Attempt(program, place, prefix=emulator)
    receipt = one.run(
        f"#!/bin/sh\ncat {place}/in; echo -n v > {place}/o; exit 3\n",
        isolation=isolation,
        file=f"{place}/in\0in\n",
        private=[str(place)] if isolation != "none" else [],
        output=f"o\0{place}/o",
    )
    assert (receipt.outcome, receipt.code, one.log, one.output("o")) == ("exited", 3, "in\n", b"v")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_portable_program_ends_a_stubborn_step(portable, place):
    program, emulator, isolation = portable
    script = "#!/bin/sh\ntrap '' TERM\necho ready\nsleep 100 & sleep 100\nsleep 100\n"
    for run_ms in patience(300):
        folder = place / str(run_ms)
        folder.mkdir(mode=0o700)
        one = Attempt(program, folder, prefix=emulator).write(script, isolation=isolation, run_ms=run_ms, grace_ms=100)
        launcher = one.start()
        wait_until(lambda one=one: one.has_receipt, 60)
        assert launcher.wait(10) == 0
        if "ready" in one.log:
            break
    assert (one.receipt().outcome, one.receipt().code) == ("deadline", 9)


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container's namespaces")
def test_the_portable_program_is_a_pods_first_process(portable, place):
    program, emulator, _ = portable
    if emulator:
        pytest.skip("inside the container there is no emulator")
    ended = Container.make(place / "root", program, user=65532, read_only=True).run(
        "#!/bin/sh\necho -n v > /tmp/o\n", output="o\0/tmp/o"
    )
    assert (ended.receipt.outcome, ended.code, ended.contents) == ("exited", 0, {"o": b"v"})
