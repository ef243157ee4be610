"""Generated reference pages equal their generators' output, and name what exists."""

from __future__ import annotations

import re
import runpy
import sys

import pytest
from tests.docs.conftest import ROOT

from dayfly.execute.fork import rights, shape
from dayfly.execute.gateway import render as gateway
from dayfly.execute.pod import names
from dayfly.lib import http_server
from dayfly.operator.forks import baselines
from dayfly.operator.hooks import target_grants
from dayfly.operator.pods import namespaces, plugin_reads, step_slots
from dayfly.server.db import databases
from dayfly.spec import json_patch

REFERENCE = ROOT / "docs" / "reference"
GRANT_KEYS = {
    namespaces.GRANT_LABEL,
    namespaces.SANDBOX_NAMESPACES_ANNOTATION,
    names.KEYS_ANNOTATION,
    step_slots.STEPS_ANNOTATION,
    baselines.SOURCES_ANNOTATION,
    rights.FREE_LABEL,
    plugin_reads.PLUGINS_ANNOTATION,
    gateway.LABELS_ANNOTATION,
    gateway.IGNORE_ANNOTATION,
    target_grants.LABEL,
}


@pytest.fixture(scope="module")
def generators():
    path = list(sys.path)
    try:
        return runpy.run_path(str(ROOT / "scripts" / "reference.py"))["PAGES"]
    finally:
        sys.path[:] = path


@pytest.mark.parametrize("name", ["files.md", "grants.md", "limits.md", "metrics.md"])
def test_generated_page_is_current(name, generators):
    assert (REFERENCE / name).read_text() == generators[name](), "run: scripts/reference.py"


def test_grants_page_lists_every_grant_key():
    keys = re.findall(r"^\| (?:label|annotation) `([^`]+)` \|", (REFERENCE / "grants.md").read_text(), re.MULTILINE)
    assert len(keys) == len(set(keys))
    assert set(keys) == GRANT_KEYS


def test_security_model_explains_every_grant_but_exclusions():
    page = (ROOT / "docs" / "explanation" / "security-model.md").read_text()
    assert {key for key in GRANT_KEYS if f"`{key}" not in page} == {gateway.IGNORE_ANNOTATION}


def test_forks_page_has_the_numbers_and_annotations_of_the_code():
    page = (REFERENCE / "forks.md").read_text()
    kib = json_patch.MAX_PATCH_BYTES // 1024
    assert f"at most {kib} KiB and {json_patch.MAX_OPERATIONS} operations" in page
    assert f"replicas (at most {shape.MOST_REPLICAS})" in page
    [row] = re.findall(r"^\| annotations \| (.*?) \|", page, re.MULTILINE)
    assert set(re.findall(r"`(.+?)`", row)) == set(shape.ANNOTATIONS)


def test_capacity_page_has_the_numbers_of_the_code():
    page = (ROOT / "docs" / "guides" / "plan-capacity.md").read_text()
    limit = step_slots.DEFAULT_LIMIT
    assert f"run {limit} create steps and {limit} cleanup steps" in page
    assert f"If {step_slots.MAX_IMAGE_WAITS} steps wait for images" in page
    assert f"at most {http_server.MAX_CONNECTIONS} connections" in page
    assert f"up to {databases.POSTGRES_POOL_SIZE} connections to PostgreSQL" in page
    create, cleanup = re.findall(r'hard: \{pods: "(\d+)"\}', (ROOT / "deploy" / "base" / "quota.yaml").read_text())
    assert f"allows {create} pods in `dayfly-runners`, and {cleanup} more for cleanup" in page
