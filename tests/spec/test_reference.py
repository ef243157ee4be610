"""The field reference has every field once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dayfly.spec import documents, sandbox
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle_hook import HookInput
from dayfly.spec.parsing import template, text
from dayfly.spec.parsing.convert import convert
from dayfly.spec.plugin import Retry, Step, Timeouts
from dayfly.spec.schema import json_schema, reference
from dayfly.spec.schema.reference_examples import EXAMPLES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "files.md"


def test_each_type_has_one_section_and_each_link_has_a_target():
    titles = [line.lstrip("# ") for line in PAGE.read_text().splitlines() if line.startswith(("## ", "### "))]
    assert len(titles) == len(set(titles))
    linked = {part.split(")")[0] for part in PAGE.read_text().split("](#")[1:]}
    assert linked <= {title.lower().replace(": ", "-") for title in titles}


@pytest.mark.parametrize(
    ("path", "struct", "field"),
    [
        ("plugin", None, None),
        ("plugin.create", Step, "create"),
        ("plugin.spec.create[0].retry", Retry, "retry"),
        ("sandbox.hooks.postStop.timeouts", Timeouts, "timeouts"),
        ("sandbox.ttl.duration", sandbox.Ttl, "duration"),
    ],
)
def test_field_path_leads_to_its_type(path: str, struct: type | None, field: str | None):
    found, last = reference.find(path)
    assert found is (struct or reference.root_type("plugin"))
    assert (last.name if last else None) == field


def test_unknown_field_path_lists_the_alternatives():
    with pytest.raises(KeyError) as fault:
        reference.find("sandbox.ttl.length")
    assert fault.value.args == ("length", ("duration", "offsetFrom"))
    with pytest.raises(KeyError) as fault:
        reference.find("box")
    assert fault.value.args == ("box", json_schema.file_kinds())
    with pytest.raises(KeyError) as fault:
        reference.find("sandbox.ttl.duration.seconds")
    assert fault.value.args == ("seconds", ())


def test_reference_states_required_and_default():
    fields = {field.name: field for field in reference.fields(sandbox.Ttl)}
    assert fields["duration"].required
    assert not fields["duration"].default
    assert (fields["offsetFrom"].holds, fields["offsetFrom"].default) == ("createdAt or updatedAt", "createdAt")
    assert {field.name for field in reference.fields(sandbox.SandboxSpec) if field.required} == {"cluster"}


def types() -> dict[str, type]:
    """Return all types on the page by name."""
    seen: set[type] = set()
    waiting = [reference.root_type(word) for word in json_schema.file_kinds()]
    while waiting:
        struct = waiting.pop()
        if struct not in seen:
            seen.add(struct)
            waiting += [field.struct for field in reference.fields(struct) if field.struct is not None]
    return {struct.__name__: struct for struct in seen}


def test_each_type_has_examples_that_have_each_of_its_fields():
    assert set(EXAMPLES) == set(types())
    for name, struct in types().items():
        told: set[str] = set()
        for document in text.parse(EXAMPLES[name], file=name):
            convert(document.data, struct, (), document.spelled)
            told |= set(document.data)
        assert told == {field.name for field in reference.fields(struct)}, name


@pytest.mark.parametrize("word", json_schema.file_kinds())
def test_example_of_each_kind_is_valid(word: str):
    for document in text.parse(EXAMPLES[reference.root_type(word).__name__], file=word):
        wish = {"name": "shop", "spec": document.data}
        if word == json_schema.BASELINE:
            wish = document.data
        elif word in ("routegroup", "hook"):
            wish = {"kind": json_schema.FILES[word][0], **wish}
        whole = text.parse_one(yaml.safe_dump(wish), file=word)
        documents.load(template.expand(whole, {}, lambda _: b"#!/bin/sh\n"))


def test_reference_states_mutability():
    told = {field.name for field in reference.fields(sandbox.SandboxSpec) if field.changes == "yes"}
    assert {"labels", "defaultRouteGroup", "local"} <= told
    assert not {"cluster", "resources", "virtual"} & told
    assert {field.changes for field in reference.fields(Retry)} == {""}


def test_input_fields_without_meaning_in_hooks_are_refused():
    written = {"valueFromSandbox": True, "required": True, "default": "x", "secret": True, "test": "fixed"}
    written["valueFrom"] = {"resource": {"name": "db", "outputKey": "make.url"}}
    written["valueFromParent"] = {"step": "make", "output": "url"}
    assert set(written) == reference.REFUSED[HookInput]
    for field, value in written.items():
        item = {"name": "who", field: value, **({} if field.startswith("valueFrom") else {"value": "x"})}
        step = {"name": "make", "script": "#!/bin/sh\n", "inputs": [item]}
        hook = {"selector": {"apiVersion": "apps/v1", "kind": "Deployment"}, "preStart": [step]}
        wish = text.parse_one(yaml.safe_dump({"name": "shop", "kind": "LifecycleHook", "spec": hook}), file="x")
        with pytest.raises(SpecError, match=r"\S"):
            documents.load(wish)
