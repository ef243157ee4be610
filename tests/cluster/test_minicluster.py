"""Example minicluster: one, four and eight ranks that send each other real messages, and a complete removal."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcluster import dns, images
from tests.cluster import minicluster
from tests.cluster.installed import API, Installed
from tests.cluster.ledger_moves import moves, of_units
from tests.cluster.minicluster import Ranks
from tests.cluster.rights import granted
from tests.cluster.test_examples import TEAM, outputs, wishes_of
from tests.cluster.waiting import eventually

NAME = "batch-demo"
LISTS = (
    f"/apis/batch/v1/namespaces/{TEAM}/jobs",
    f"/api/v1/namespaces/{TEAM}/pods",
    f"/api/v1/namespaces/{TEAM}/services",
    f"/api/v1/namespaces/{TEAM}/secrets",
    f"/api/v1/namespaces/{TEAM}/configmaps",
    f"/apis/discovery.k8s.io/v1/namespaces/{TEAM}/endpointslices",
)


def inventory(operator: Installed) -> set[str]:
    """Return all objects that a batch cluster could leave behind."""
    return {f"{path} {each['metadata']['name']}" for path in LISTS for each in operator.items(path)}


@pytest.fixture
def ready(operator: Installed):
    """A cluster with names, and the rights that the example needs; afterwards all is as it was."""
    operator.own.load(minicluster.archive())
    before = inventory(operator)
    rights = granted(operator, TEAM, "jobs.batch", "secrets", "services")
    with restricted(operator), dns.names(operator.own), rights, operator.ending(NAME, TEAM):
        yield
    operator.check_nothing_left()
    eventually(lambda: inventory(operator) <= before, "nothing left")  # pods and slices go a moment after


@contextlib.contextmanager
def restricted(operator: Installed) -> Iterator[None]:
    """Refuse pods in the namespace that exceed the strictest level of Pod Security."""
    level = "pod-security.kubernetes.io/enforce"
    operator.own.kubectl("label", "namespace", TEAM, f"{level}=restricted")
    try:
        yield
    finally:
        operator.own.kubectl("label", "namespace", TEAM, f"{level}-")


def begin(operator: Installed, size: int) -> dict[str, bytes]:
    operator.apply(*wishes_of("minicluster", machinery=minicluster.IMAGE, image=images.SHELL, size=str(size)))
    operator.wait_ready(NAME, TEAM)
    return outputs(operator, NAME)


def said(size: int) -> str:
    """Each rank's number is its own and one more."""
    total = size * (size + 1) // 2
    return f"{size} ranks have sent each other {size * (size - 1)} messages; the sum of their numbers is {total}\n"


def test_a_batch_cluster_works_and_is_scaled_and_goes(operator: Installed, ready: None, tmp_path: Path):
    """One rank from the sandbox, then four, eight and two by hand, and a request without the key."""
    assert begin(operator, 1)["sum.sum"] == b"1"
    ranks = Ranks(operator, tmp_path)
    for size in (4, 8):
        ranks.scale(size)
        assert ranks.sum(size) == said(size)
    assert "the key is not this cluster's" in ranks.sum(8, key="0" * 64)
    ranks.scale(2)
    assert ranks.sum(2) == said(2)
    check_who_knows_the_key(operator, ranks)
    operator.delete(NAME, TEAM)
    gone = of_units(moves(operator, NAME, TEAM), "recorded")[-3:]
    assert gone[0] == "batch/remove-ranks"
    assert set(gone[1:]) == {"batch/remove-secret", "batch/remove-address"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("--size=9", "the param size is 9: write a number from 1 to 8"),
        ("--most=0", "the param most is 0: write a number from 1 to 256"),
        ("--command=echo 1", 'the param command is "echo 1": write a JSON list like'),
    ],
)
def test_wrong_param_is_refused_before_anything_is_made(machine: None, tmp_path: Path, wrong: str, said: str):
    right = [minicluster.program(), "new", "--size=1", "--most=8", '--command=["true"]', f"--into={tmp_path}"]
    ended = subprocess.run([*right, wrong], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert list(tmp_path.iterdir()) == []
    assert subprocess.run(right, check=False).returncode == 0
    assert (tmp_path / "hosts").read_text().split(",")[7] == "$(JOB)-7"


def check_who_knows_the_key(operator: Installed, ranks: Ranks) -> None:
    """Only Secrets contain the key: no status, ledger, document or log. No pod has an account's token."""
    lists = [f"/apis/{API}/{kind}" for kind in ("runs", "resources", "objectlifecyclemethods", "sandboxes", "steplogs")]
    for path in (*lists, *LISTS[:3], "/api/v1/events"):
        assert ranks.key not in json.dumps(operator.items(path)), path
    for pod in ranks.pods().values():
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert {each["image"] for each in pod["spec"]["containers"]} == {images.SHELL}
        assert ranks.key not in operator.own.kubectl("logs", pod["metadata"]["name"], "-n", TEAM)


@pytest.mark.proof
@pytest.mark.parametrize("size", [4, 8])
def test_a_batch_cluster_begins_with_all_its_ranks(operator: Installed, ready: None, tmp_path: Path, size: int):
    """And has them all again when one was lost."""
    found = begin(operator, size)
    assert (found["sum.sum"], found["sum.messages"]) == (b"%d" % (size * (size + 1) // 2), b"%d" % (size * (size - 1)))
    ranks = Ranks(operator, tmp_path)
    # All ranks have worked already. The kubelet reports them as running a little later.
    eventually(lambda: set(ranks.pods()) == set(range(size)), f"{size} ranks")
    lost = ranks.pods()[1]["metadata"]
    operator.own.kubectl("delete", "pod", lost["name"], "-n", TEAM, "--wait=false")
    eventually(lambda: ranks.pods().get(1, {"metadata": lost})["metadata"]["uid"] != lost["uid"], "another rank 1")
    assert ranks.sum(size) == said(size)
    operator.delete(NAME, TEAM)
