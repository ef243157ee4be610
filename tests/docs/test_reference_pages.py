"""Generated reference pages equal their generators' output, and name what exists."""

from __future__ import annotations

import re
import runpy
import sys

import pytest
from tests.docs.conftest import ROOT

from dayfly.execute.fork import rights
from dayfly.execute.gateway import render as gateway
from dayfly.execute.pod import names
from dayfly.operator.forks import baselines
from dayfly.operator.hooks import target_grants
from dayfly.operator.pods import namespaces, plugin_reads, step_slots

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
