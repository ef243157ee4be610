"""The previous release's operator with the current server, which docs/guides/connect-a-cluster.md guarantees to work.

Until there is a release, it is the operator of the first commit of the current protocol, with its manifests.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.cluster.place import install
from testcluster import images
from tests.cluster.installed import ROOT
from tests.cluster.journal import Journal
from tests.cluster.member_cluster import ORG, Member, member
from tests.cluster.server_changes import PLUGIN, plugin, wish
from tests.cluster.waiting import eventually
from tests.link import wire_forms
from tests.server import databases
from tests.server.replicas import Replicas, RetryingClient

OLD = "old"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of the commit that wrote down the forms of today's protocol."""
    added = ["git", "log", "--diff-filter=A", "--no-renames", "--format=%H", "--", str(wire_forms.FORMS)]
    try:
        *_, previous = subprocess.run(added, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()
        command = ["git", "archive", previous, "src", "runner", "deploy", "requirements"]
        packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, ValueError, subprocess.CalledProcessError) as problem:
        pytest.skip(f"NOT TESTED: the history of this checkout does not reach back to that commit: {problem}")
    folder = tmp_path / "previous"
    with tarfile.open(fileobj=io.BytesIO(packed)) as found:
        found.extractall(folder, filter="data")
    return folder


@pytest.fixture
def replicas(machine, tmp_path: Path) -> Iterator[Replicas]:
    with databases.postgres() as postgres:
        found = Replicas(postgres.fresh(), tmp_path)
        try:
            yield found
        finally:
            found.close()


@pytest.fixture
def asking(replicas: Replicas) -> RetryingClient:
    found = RetryingClient(replicas.balancer.add_address(), ORG, replicas.init(ORG))
    replicas.start()
    found.must("PUT", f"clusters/{OLD}", {})
    return found


@pytest.fixture
def old(replicas: Replicas, checkout: Path) -> Iterator[Member]:
    with member(OLD, replicas.balancer.add_address(), kubelet=True, checkout=checkout) as found:
        yield found


@pytest.fixture
def journal(old: Member) -> Iterator[Journal]:
    found = Journal(old.where.cluster.network.host)
    yield found
    found.check()
    found.close()


def group(journal: Journal) -> dict[str, Any]:
    """Return a route group with one step."""
    hook = {"name": "say", "script": f"#!/bin/sh\n{journal.tell('create group')}\n"}
    match = {"label": {"key": "n", "value": "*"}}
    return {"spec": {"cluster": OLD, "match": match, "runner": {"image": images.SHELL}, "hooks": {"preStart": [hook]}}}


@pytest.mark.proof
@pytest.mark.timeout(600, func_only=True)
def test_previous_operator_runs_documents_of_this_server(asking, old, journal, checkout):
    asking.must("PUT", f"resource-plugins/{PLUGIN}", plugin(journal))
    token = asking.must("POST", f"clusters/{OLD}/tokens", {})["token"]
    with old.dialling(token, source=checkout / "src"):
        asking.must("PUT", "sandboxes/shop", wish(OLD))
        eventually(lambda: asking.must("GET", "sandboxes/shop")["status"]["ready"], "it is ready")
        told = {each["output"]: each["value"] for each in asking.must("GET", "sandboxes/shop/outputs")}
        assert told == {"o": "x\n"}
        asking.must("PUT", "sandboxes/shop", wish(OLD, 1))
        # It knows of no route groups: the steps of one are a sandbox's to it, and are carried out all the same.
        asking.must("PUT", "routegroups/all", group(journal))
        eventually(lambda: asking.must("GET", "routegroups/all")["status"]["ready"], "the group is ready")
    # The same runs go on with today's operator: so clusters are brought up to date when it suits them.
    install(old.where.cluster, ROOT)
    with old.dialling(token):
        eventually(lambda: asking.must("GET", "sandboxes/shop")["status"]["ready"], "it is ready still")
        asking.must("DELETE", "routegroups/all")
        asking.must("DELETE", "sandboxes/shop")
        eventually(lambda: asking.ask("GET", "sandboxes/shop")[0] == 404, "it is gone")
        eventually(lambda: asking.ask("GET", "routegroups/all")[0] == 404, "the group is gone, too")
        old.check_nothing_left()
    assert [entry.said for entry in journal.entries] == ["create make", "create group", "delete drop"]
    old.check_once()
