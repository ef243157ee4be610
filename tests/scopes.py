"""Which tests a worker plays one after the other: those of a file, as `--dist loadfile` has it, and a few exceptions."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# Each test of these takes long, and shares nothing with the others.
SPREAD = (
    *("tests/operator/test_matrix.py", "tests/operator/test_schedules.py", "tests/operator/test_takings.py"),
    "tests/embedded/test_crash.py",
)
# Files that need the same server: one worker starts it for all of them.
TOGETHER = (
    ("tests/kube/test_auth.py", "tests/kube/test_strategic.py", "tests/kube/test_against_real.py"),
    (
        "tests/deploy/test_access.py",
        "tests/deploy/test_crds.py",
        "tests/deploy/test_install.py",
        "tests/deploy/test_nesting.py",
    ),
    ("tests/deploy/test_gateway_api.py", "tests/deploy/test_object_access.py", "tests/deploy/test_side_doors.py"),
)
# What took longest in whole runs, more than a minute by the clock each, begins first: who is alone with it at the end would
# keep everybody waiting.
LONGEST = (
    "tests/cluster/test_trial.py",
    "tests/operator/test_matrix.py",
    "tests/model/test_model.py",
    "tests/simulator/test_bugs.py",
    "tests/cluster/test_forks.py",
    "tests/cluster/test_testcluster.py",
    "tests/cluster/test_server.py",
    "tests/operator/test_schedules.py",
    "tests/examples/test_pages.py",
    "tests/operator/test_proxied.py",
    "tests/embedded/test_container_crash.py",
    "tests/deploy/test_install.py",
    "tests/cluster/test_conformance.py",
    "tests/examples/test_lives.py",
    "tests/page/test_browser.py",
)
# Classes of tests that take minutes each, with a cluster that a worker has for all of its own.
CLUSTERS = "tests/cluster/"
MOST_CLUSTERS = 2
# Whoever plays one of these has an API server that is good for all of them.
SERVERS = (
    "tests/deploy/test_access.py",
    "tests/deploy/test_gateway_api.py",
    "tests/deploy/test_istio.py",
    "tests/policy/test_overlays.py",
)


class Need(enum.Enum):
    """What a scope takes most of a minute of processor time to begin with."""

    NOTHING = enum.auto()
    SERVER = enum.auto()
    CLUSTER = enum.auto()


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


def rank(file: str) -> int:
    """When a file begins: the lower, the earlier."""
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)


def need(scope: str) -> Need:
    """What the scope needs."""
    if scope.startswith(CLUSTERS):
        return Need.CLUSTER
    return Need.SERVER if scope in SERVERS else Need.NOTHING


class Scopes(LoadFileScheduling):
    """Gives whole scopes to workers, in the order of the tests. It is asked after each test.

    Those of clusters go to a few workers alone, and those of an API server to one as long as there is other work: each
    worker starts its own. Both begin with them if Kubernetes is built, for they wait while other workers compute.
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._places: dict[str, int] = {}  # in each worker's list of tests: they are the same
        self._built = False

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down or (self.workqueue and self._next(node) is not None):
            super()._reschedule(node)
        else:
            node.shutdown()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forgets the test. xdist would keep and count all of a worker's with each that ends: a quadratic of them."""
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
        if not self._places:
            self._places = {nodeid: index for index, nodeid in enumerate(self.registered_collections[node])}
        node.send_runtest_some([self._places[nodeid] for nodeid in tests])

    def _next(self, node: WorkerController) -> str | None:
        """The scope that this worker is to play now, or None if what is left is for others."""
        at_work = [each for each in self.nodes if not each.shutting_down]
        place = at_work.index(node) if node in at_work else MOST_CLUSTERS
        self._built = self._built or _has_kubernetes()
        return choose(self.workqueue, preferred(place, len(at_work), built=self._built))


def preferred(place: int, workers: int, *, built: bool) -> tuple[Need, ...]:
    """What the worker at a place among all takes first, and what then: what needs Kubernetes last until it is `built`."""
    if place < MOST_CLUSTERS:
        mine = (Need.CLUSTER,)
        others: tuple[Need, ...] = (Need.SERVER,)
    elif place == workers - 1:
        mine, others = (Need.SERVER,), ()
    else:
        mine, others = (), (Need.SERVER,)
    return (*mine, Need.NOTHING, *others) if built else (Need.NOTHING, *mine, *others)


def choose(waiting: Iterable[str], needs: Iterable[Need]) -> str | None:
    """The first of the waiting scopes with the first of these needs that there is; None if there is none."""
    first: dict[Need, str] = {}
    for each in waiting:
        first.setdefault(need(each), each)
    return next((first[each] for each in needs if each in first), None)


def _has_kubernetes() -> bool:
    import tools  # takes its time

    return tools.build.has_kubernetes()
