"""Properties of the whole package: its imports, and the memory of objects."""

from __future__ import annotations

import ast
import tracemalloc
from pathlib import Path

import msgspec
import pytest

import dayfly.kube
from dayfly.kube.answers import Page
from dayfly.kube.cache import Cache
from dayfly.kube.objects import Key, Pod

FILES = sorted(Path(dayfly.kube.__file__).parent.glob("*.py"))


def imported(file: Path) -> set[str]:
    """Return all modules that a file imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
class TestWalls:
    def test_outer_libraries_have_one_door_each(self, file: Path):
        """Only the transport and the renewal of ID tokens send requests with aiohttp."""
        roots = {name.split(".")[0] for name in imported(file)}
        assert ("aiohttp" in roots) is (file.stem in ("transport", "openid"))


def pod(number: int) -> dict:
    """About 5 KB, as from a real server."""
    conditions = [
        {"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    owner = {"apiVersion": "x/v1", "kind": "Run", "name": f"run-{number}", "uid": f"owner-of-{number:020}"}
    return {
        "metadata": {
            "name": f"pod-{number:06}",
            "namespace": "default",
            "uid": f"{number:036}",
            "resourceVersion": str(number + 1),
            "labels": {"x": f"run-{number}", "app": "step"},
            "annotations": {"script": "x" * 3000},
            "finalizers": ["x/keep"],
            "ownerReferences": [owner],
            "managedFields": [{"fieldsV1": {f"f:{n}": {} for n in range(60)}}],
        },
        "spec": {"nodeName": "node", "containers": [{"name": "main", "env": [{"name": "A", "value": "x" * 500}]}]},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [{"name": "main", "state": state, "ready": True, "imageID": "sha256:" + "a" * 64}],
        },
    }


class TestSize:
    def test_a_cached_pod_is_small(self):
        """Including two indexes, less than 3 KB each; the bytes of the page are not kept."""
        count = 2000
        page = msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": [pod(n) for n in range(count)]})
        assert len(page) > 4000 * count
        tracemalloc.start()
        try:
            cache: Cache[Pod] = Cache(("x",))
            cache.replace(msgspec.json.decode(page, type=Page[Pod]).items)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert cache.owned_by(f"owner-of-{7:020}") == cache.labelled("x", "run-7")
        assert Key.from_object(cache.owned_by(f"owner-of-{7:020}")[0]) == Key("default", "pod-000007")
        assert held / count < 3000
