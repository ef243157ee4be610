"""Which tests a worker plays one after the other: those of a file, as `--dist loadfile` has it, and three exceptions."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

# Each test of these takes long, and shares nothing with the others.
SPREAD = ("tests/operator/test_matrix.py", "tests/operator/test_schedules.py", "tests/embedded/test_crash.py")
# Files that need the same server: one worker starts it for all of them.
TOGETHER = {
    "tests/kube": ("test_auth.py", "test_strategic.py", "test_against_real.py"),
    "tests/deploy": ("test_access.py", "test_crds.py", "test_install.py"),
}
# Classes of tests that take minutes each, with a cluster that each worker has for all of its own.
CLUSTERS = "tests/cluster/"


def scope(nodeid: str) -> str:
    """What the test belongs to."""
    file, _, name = nodeid.partition("::")
    if file in SPREAD:
        return nodeid
    folder, _, base = file.rpartition("/")
    if base in TOGETHER.get(folder, ()):
        return folder
    if file.startswith(CLUSTERS):
        return f"{file}::{name.partition('::')[0]}" if "::" in name else file
    return file


class Scopes(LoadFileScheduling):
    """Gives whole scopes to workers, in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)
