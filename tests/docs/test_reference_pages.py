"""Generated reference pages equal their generators' output, and name what exists."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable

import click
import pytest
from tests.docs.conftest import ROOT

import dayfly.client
import dayfly.kube
from dayfly.cli.verbs import root
from dayfly.execute.fork import rights, shape
from dayfly.execute.gateway import render as gateway
from dayfly.execute.pod import names
from dayfly.lib import http_server
from dayfly.operator import shared_pools
from dayfly.operator.forks import baselines
from dayfly.operator.hooks import target_grants
from dayfly.operator.pods import namespaces, plugin_reads, step_slots
from dayfly.plan.reasons import Reason
from dayfly.server.db import databases
from dayfly.server.http import openapi
from dayfly.spec import json_patch
from dayfly.spec.report import STATES
from dayfly.spec.run import Phase

REFERENCE = ROOT / "docs" / "reference"
DOCUMENT = openapi.document("0")
GRANT_KEYS = {
    namespaces.GRANT_LABEL,
    namespaces.SANDBOX_NAMESPACES_ANNOTATION,
    names.KEYS_ANNOTATION,
    step_slots.STEPS_ANNOTATION,
    baselines.SOURCES_ANNOTATION,
    shared_pools.POOLS_FOR_ANNOTATION,
    rights.FREE_LABEL,
    plugin_reads.PLUGINS_ANNOTATION,
    gateway.LABELS_ANNOTATION,
    gateway.IGNORE_ANNOTATION,
    target_grants.LABEL,
}


def generators() -> dict[str, Callable[[], str]]:
    """Return the function that generates each page."""
    path = list(sys.path)
    try:
        return runpy.run_path(str(ROOT / "scripts" / "reference.py"))["PAGES"]
    finally:
        sys.path[:] = path


def page_text(name: str) -> str:
    return (REFERENCE / name).read_text()


@pytest.mark.parametrize(("name", "generate"), generators().items())
def test_generated_page_is_current(name: str, generate: Callable[[], str]):
    assert page_text(name) == generate(), "run: scripts/reference.py"


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
    assert f"replicas (at most {shape.MAX_REPLICAS})" in page
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


def shown_names(page: str) -> set[str]:
    """Return the names in headings, and at the beginning of rows."""
    return set(re.findall(r"^(?:#{2,4} |\| `)(\w+)", page_text(page), re.MULTILINE))


def test_rest_page_lists_every_operation_and_linked_type():
    text = page_text("rest.md")
    headings = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    operations = {
        f"{method.upper()} {path}"
        for path, methods in DOCUMENT["paths"].items()
        for method in methods
        if method != "parameters" and not path.startswith("/agent/")
    }
    assert len(operations) > 60
    assert operations - headings == set()
    types = {heading.lower() for heading in headings - operations}
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= types


def test_openapi_describes_every_type_field_and_parameter():
    undescribed = []
    for name, schema in DOCUMENT["components"]["schemas"].items():
        undescribed += [] if schema.get("description") else [name]
        fields = schema.get("properties", {})
        undescribed += [f"{name}.{field}" for field, each in fields.items() if not each.get("description")]
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            parameters = operation if method == "parameters" else operation.get("parameters", ())
            undescribed += [f"{path} {each['name']}" for each in parameters if not each.get("description")]
    assert undescribed == []


def test_client_page_has_every_public_name_and_method():
    shown = shown_names("python-client.md")
    sandboxes = type(dayfly.client.Client("http://127.0.0.1:1").sandboxes)
    methods = {name for owner in (dayfly.client.Client, sandboxes) for name in vars(owner) if not name.startswith("_")}
    assert (set(dayfly.client.__all__) | methods) - {"AsyncClient"} - shown == set()


def test_kube_page_has_every_public_name():
    assert set(dayfly.kube.__all__) - shown_names("kube-client.md") == set()


def options(command: click.Command, path: str = "dayfly") -> dict[str, set[str]]:
    """Return the options of each command below this one, by heading."""
    found = {} if path == "dayfly" else {path: {option for param in command.params for option in _shown(param)}}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found |= options(command.get_command(context, name), f"{path} {name}")
    return found


def _shown(param: click.Parameter) -> list[str]:
    return param.opts if isinstance(param, click.Option) and not param.hidden else []


@pytest.mark.parametrize(("heading", "names"), options(root).items())
def test_each_command_has_a_section_with_its_options(heading: str, names: set[str]):
    section = page_text("cli.md").partition(f"# {heading}\n")[2].partition("\n#")[0]
    rows = [line.partition(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert section.startswith(f"\n```text\n{heading} ")
    assert {name for name in names if not any(name in row for row in rows)} == set()
    assert len(rows) == len({row for row in rows if any(name in row for name in names)})


def test_reasons_page_lists_each_word():
    states, _, reasons = page_text("reasons.md").partition("## Severities")
    assert [word for word in (*STATES, *Phase) if states.count(f"\n| `{word}` |") != 1] == []
    assert [word for word in Reason if reasons.count(f"\n| `{word}` |") != 1] == []
