"""The xdist scheduler: a worker runs the tests of a file in sequence, as with `--dist loadfile`, with a few exceptions."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import pytest
from tests.selection import LONGEST
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Each test of these files is slow and shares no fixture, so each is a scope.
SPREAD = (
    *("tests/operator/test_matrix.py", "tests/operator/test_schedules.py", "tests/operator/test_outages.py"),
    "tests/embedded/test_crash.py",
)
# Files that use the same server: one worker starts it for all of them.
TOGETHER = (
    ("tests/kube/test_auth.py", "tests/kube/test_strategic.py", "tests/kube/test_against_real.py"),
    (
        "tests/deploy/test_access.py",
        "tests/deploy/test_crds.py",
        "tests/deploy/test_install.py",
        "tests/deploy/test_leak_access.py",
        "tests/deploy/test_nesting.py",
    ),
    ("tests/deploy/test_gateway_api.py", "tests/deploy/test_object_access.py", "tests/deploy/test_side_doors.py"),
)
# Each class of these tests is a scope and takes minutes. A worker has one cluster for all of them.
CLUSTERS = "tests/cluster/"
MAX_CLUSTERS = 2
# These files share one API server of a worker.
SERVERS = (
    "tests/deploy/test_access.py",
    "tests/deploy/test_gateway_api.py",
    "tests/deploy/test_istio.py",
    "tests/policy/test_overlays.py",
)


class Need(enum.Enum):
    """A fixture that takes most of a minute of CPU time to set up."""

    NOTHING = enum.auto()
    SERVER = enum.auto()
    CLUSTER = enum.auto()


def scope(nodeid: str) -> str:
    """Return the scope of a test."""
    file, _, name = nodeid.partition("::")
    if file in SPREAD:
        return nodeid
    for files in TOGETHER:
        if file in files:
            return files[0]
    if file.startswith(CLUSTERS):
        return f"{file}::{name.partition('::')[0]}" if "::" in name else file
    return file


def rank(file: str) -> int:
    """Return the rank of a file; lower ranks start earlier."""
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)


def need(scope: str) -> Need:
    """Return the expensive fixture that a scope uses."""
    if scope.startswith(CLUSTERS):
        return Need.CLUSTER
    return Need.SERVER if scope in SERVERS else Need.NOTHING


class Scopes(LoadFileScheduling):
    """Assigns whole scopes to workers, in the order of the tests; xdist calls it after each test.

    At most `MAX_CLUSTERS` workers run scopes with clusters, and one worker runs those with an API server while there is
    other work, because each worker starts its own. If Kubernetes is built, these workers run them first: such tests mostly
    wait while the other workers compute.
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._indexes: dict[str, int] = {}  # in a worker's list of tests, which is the same in all workers
        self._built = False

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down or (self.workqueue and self._next(node) is not None):
            super()._reschedule(node)
        else:
            node.shutdown()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Remove the test. xdist keeps all tests of a worker and counts them after each, which is quadratic."""
        nodeid = self.registered_collections[node][item_index]
        scopes = self.assigned_work[node]
        left = scopes[scope(nodeid)]
        del left[nodeid]
        if not left:
            del scopes[scope(nodeid)]
        self._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        wanted = self._next(node) if self.workqueue else None
        if wanted is None:
            node.shutdown()
            return
        tests = self.workqueue.pop(wanted)
        self.assigned_work[node][wanted] = tests
        if not self._indexes:
            self._indexes = {nodeid: index for index, nodeid in enumerate(self.registered_collections[node])}
        node.send_runtest_some([self._indexes[nodeid] for nodeid in tests])

    def _next(self, node: WorkerController) -> str | None:
        """Return the next scope of this worker; None if the remaining scopes are for other workers."""
        active = [each for each in self.nodes if not each.shutting_down]
        index = active.index(node) if node in active else MAX_CLUSTERS
        self._built = self._built or _has_kubernetes()
        return choose(self.workqueue, preferred(index, len(active), built=self._built))


def preferred(index: int, workers: int, *, built: bool) -> tuple[Need, ...]:
    """Return the needs that a worker accepts, in its order. Until Kubernetes is `built`, scopes that use it come last."""
    if index < MAX_CLUSTERS:
        mine = (Need.CLUSTER,)
        others: tuple[Need, ...] = (Need.SERVER,)
    elif index == workers - 1:
        mine, others = (Need.SERVER,), ()
    else:
        mine, others = (), (Need.SERVER,)
    return (*mine, Need.NOTHING, *others) if built else (Need.NOTHING, *mine, *others)


def choose(waiting: Iterable[str], needs: Iterable[Need]) -> str | None:
    """Return the first waiting scope with the first of these needs that any scope has; None if there is none."""
    first: dict[Need, str] = {}
    for each in waiting:
        first.setdefault(need(each), each)
    return next((first[each] for each in needs if each in first), None)


def _has_kubernetes() -> bool:
    from tests import tools  # slow to import

    return tools.build.has_kubernetes()
