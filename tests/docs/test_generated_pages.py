"""The generated pages of docs/reference for programs: they are current and complete."""

from __future__ import annotations

import importlib
import re

import pytest
from tests.docs.conftest import ROOT

import dayfly.client
import dayfly.kube
from dayfly.server.http import openapi

PAGES = {"rest_reference": "rest.md", "client_reference": "python-client.md", "kube_reference": "kube-client.md"}
DOCUMENT = openapi.document("0")


def page_text(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text()


def shown_names(page: str) -> set[str]:
    """Return the names in headings, and at the beginning of rows."""
    return set(re.findall(r"^(?:#{2,4} |\| `)(\w+)", page_text(page), re.MULTILINE))


@pytest.mark.parametrize("module", PAGES)
def test_generated_page_is_current(module: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    generated = importlib.import_module(module).page()
    assert page_text(PAGES[module]) == generated, "run: scripts/reference.py"


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
