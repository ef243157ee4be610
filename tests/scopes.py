"""Which tests a worker plays one after the other: those of a file, as `--dist loadfile` has it, and a few exceptions."""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Each test of these takes long, and shares nothing with the others.
SPREAD = ("tests/operator/test_matrix.py", "tests/operator/test_schedules.py", "tests/embedded/test_crash.py")
# Files that need the same server: one worker starts it for all of them.
TOGETHER = (
    ("tests/kube/test_auth.py", "tests/kube/test_strategic.py", "tests/kube/test_against_real.py"),
    (
        "tests/deploy/test_access.py",
        "tests/deploy/test_crds.py",
        "tests/deploy/test_install.py",
        "tests/deploy/test_nesting.py",
    ),
    ("tests/deploy/test_gateway_api.py", "tests/deploy/test_object_access.py"),
)
# Classes of tests that take minutes each, with a cluster that a worker has for all of its own.
CLUSTERS = "tests/cluster/"
MOST_CLUSTERS = 2


def scope(nodeid: str) -> str:
    """What the test belongs to."""
    file, _, name = nodeid.partition("::")
    if file in SPREAD:
        return nodeid
    for files in TOGETHER:
        if file in files:
            return files[0]
    if file.startswith(CLUSTERS):
        return f"{file}::{name.partition('::')[0]}" if "::" in name else file
    return file


class Scopes(LoadFileScheduling):
    """Gives whole scopes to workers, in the order of the tests.

    Those of clusters go to a few workers alone, which begin with them if Kubernetes is built: a cluster takes most of
    a minute of processor time before its first test, and its tests wait while the other workers compute.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down or (self.workqueue and self._next(node) is not None):
            super()._reschedule(node)
        else:
            node.shutdown()

    def _assign_work_unit(self, node: WorkerController) -> None:
        wanted = self._next(node) if self.workqueue else None
        if wanted is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)

    def _next(self, node: WorkerController) -> str | None:
        """The scope that this worker is to play now, or None if what is left is for others."""
        at_work = [each for each in self.nodes if not each.shutting_down]
        has_cluster = node in at_work[:MOST_CLUSTERS]
        return choose(self.workqueue, has_cluster=has_cluster, built=has_cluster and _has_kubernetes())


def choose(waiting: Iterable[str], *, has_cluster: bool, built: bool) -> str | None:
    """The first of the waiting scopes that suits a worker; None if there is none for it.

    A worker that may have a cluster takes scopes of clusters first once Kubernetes is `built`, and last before that.
    """
    kinds: dict[bool, str] = {}
    for each in waiting:
        kinds.setdefault(each.startswith(CLUSTERS), each)
    preferred = (built, not built) if has_cluster else (False,)
    return next((kinds[kind] for kind in preferred if kind in kinds), None)


def _has_kubernetes() -> bool:
    import tools  # takes its time

    return tools.build.has_kubernetes()
