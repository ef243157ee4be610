"""Secret params: inputs without a value, masked for every source."""

import pytest
from tests.compile.builders import box, refusal, run

import dayfly.compile
from dayfly.plan.sealed import seal, sensitive_inputs
from dayfly.spec.lifecycle import As, LifecycleEvent, Ref, UnitInput

DB = """\
name: db
spec:
  create:
  - name: make
    inputs: [{name: key, valueFromSandbox: true}, {name: size, valueFromSandbox: true}]
    outputs: [{name: url, valueFromPath: /tmp/url}]
    script: "#!/bin/sh"
  delete:
  - name: drop
    inputs: [{name: key, valueFromSandbox: true, secret: true}]
    script: "#!/bin/sh"
"""
OTHER = DB.replace("name: db", "name: other")
BOX = box("resources:\n- {name: db, plugin: db, params: {size: '3'}}\n")
WIRED = box(
    "resources:\n- {name: db, plugin: db, params: {size: '3'}}\n"
    "- {name: o, plugin: other, params: {key: {valueFrom: {resource: {name: db, outputKey: make.url}}}}}\n"
)


def inputs(compiled, resource, event=LifecycleEvent.PRE_START):
    (document,) = (each for each in compiled.documents if each.resource == resource)
    return document.units(event)[0].inputs


def test_param_secret_in_one_step_is_secret_without_value_in_all():
    compiled = run(BOX, DB)
    key = UnitInput(name="key", secret=True, as_=As(env="KEY"))
    assert inputs(compiled, "db") == (key, UnitInput(name="size", value="3", as_=As(env="SIZE")))
    assert inputs(compiled, "db", LifecycleEvent.POST_STOP) == (key,)
    assert [document.secrets() for document in compiled.documents] == [("key",), ()]


def test_secret_from_another_resource_is_masked_and_not_given():
    compiled = run(WIRED, DB, OTHER)
    made = UnitInput(name="key", from_=Ref(resource="db", unit="make", output="url"), secret=True, as_=As(env="KEY"))
    assert inputs(compiled, "o")[0] == made
    assert [document.secrets() for document in compiled.documents] == [("key",), (), ()]
    plan = seal(compiled.documents)
    assert sensitive_inputs(plan, plan.steps["o/make"].unit, "o") == {"key"}
    assert sensitive_inputs(plan, plan.steps["db/make"].unit, "db") == {"key"}


def test_a_value_in_the_document_is_refused():
    said = refusal(box("resources:\n- {name: db, plugin: db, params: {§key: 'x'}}\n"), DB)
    assert said.startswith(
        'spec.resources[0].params.key: "key" is a secret, which must not be in a document: leave it out'
    )


@pytest.mark.parametrize(("resource", "source"), [("db", "the secrets file"), ("o", "db/make.url")])
def test_the_preview_says_whence_it_comes(resource, source):
    preview = dayfly.compile.preview(run(WIRED, DB, OTHER))
    steps = {step.id: step for event in preview.events for wave in event.waves for step in wave}
    line = steps[f"{resource}/make"].inputs[0]
    assert (line.value, line.source, line.sensitive) == (None, source, True)
