"""The field reference says every field once, and the page that is kept is the one that the types make."""

from __future__ import annotations

from pathlib import Path

import pytest

from dayfly.spec import json_schema, reference, sandbox
from dayfly.spec.plugin import Retry, Step, Timeouts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def test_the_page_is_current():
    assert PAGE.read_text() == reference.page(), "run: scripts/reference.py"


def test_each_type_has_one_section_and_each_link_leads_to_one():
    titles = [line[4:] for line in PAGE.read_text().splitlines() if line.startswith("### ")]
    assert len(titles) == len(set(titles))
    linked = {part.split(")")[0] for part in PAGE.read_text().split("](#")[1:]}
    assert linked <= {title.lower() for title in titles}


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
def test_a_way_leads_to_its_field(path: str, struct: type | None, field: str | None):
    found, last = reference.find(path)
    assert found is (struct or reference.kind("plugin"))
    assert (last.name if last else None) == field


def test_a_wrong_way_says_what_there_is_instead():
    with pytest.raises(KeyError) as fault:
        reference.find("sandbox.ttl.length")
    assert fault.value.args == ("length", ("duration", "offsetFrom"))
    with pytest.raises(KeyError) as fault:
        reference.find("box")
    assert fault.value.args == ("box", json_schema.words())
    with pytest.raises(KeyError) as fault:
        reference.find("sandbox.ttl.duration.seconds")
    assert fault.value.args == ("seconds", ())


def test_what_is_required_and_what_is_usual_is_said():
    fields = {field.name: field for field in reference.fields(sandbox.Ttl)}
    assert fields["duration"].required
    assert not fields["duration"].default
    assert (fields["offsetFrom"].holds, fields["offsetFrom"].default) == ("createdAt or updatedAt", "createdAt")
    assert {field.name for field in reference.fields(sandbox.SandboxSpec) if field.required} == {"cluster"}
