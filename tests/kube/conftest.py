"""A real API server for comparisons with the fake: a configured server or a new one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcluster import build
from testcluster import cluster as clusters


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """A client of a disposable cluster without nodes."""
    if named := os.environ.get("DAYFLY_TEST_KUBECONFIG"):
        yield Path(named)
        return
    ours = os.pidfd_open(os.getpid())  # a killed session leaves no cluster behind
    try:
        # The collector of pods without a node would change objects between requests.
        own = clusters.up(kubelet=False, owner=ours, without=["pod-garbage-collector-controller"])
    except build.UnavailableError as problem:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(problem))
    finally:
        os.close(ours)
    try:
        yield own.kubeconfig
    finally:
        clusters.down(own)
