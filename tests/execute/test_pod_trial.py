"""Early check of steps whose pod would be refused in every namespace."""

import pytest

from dayfly.execute.pod import pod_precheck
from dayfly.spec.lifecycle import As, Exec, Lifecycle, StepOrigin, Target, Unit, UnitInput, WebhookUnit

SECRET = {"spec": {"containers": [{"name": "main", "envFrom": [{"secretRef": {"name": "team"}}]}]}}
ROOT = {"spec": {"securityContext": {"runAsUser": 0}}}
KEYED = {"metadata": {"labels": {"team.example/cost": "a"}}}


def step(name="make", *, inputs=(), **fields):
    return Unit(name=name, kind="exec", inputs=inputs, exec=Exec(**{"script": "#!/bin/sh", "image": "x:1", **fields}))


def objections_of(*units, plugin="db", **events):
    document = Lifecycle(
        target=Target(kind="Sandbox", name="box", uid="u"),
        resource="db",
        origin=StepOrigin(publisher="team" if plugin else "", plugin=plugin),
        **{"pre_start": units, **events},
    )
    return pod_precheck.objections(document)


@pytest.mark.parametrize(
    "unit",
    [
        step(),
        step(namespace="jobs"),
        step(pod_template=SECRET),
        step(pod_template=ROOT),  # a namespace may be granted `baseline`, and any key
        step(pod_template=KEYED),
        step(inputs=(UnitInput(name="url", value="x" * 200_000, as_=As(env="URL")),)),  # values of one sandbox
        step(env={"DAYFLY_SANDBOX_NAME": "x" * 200_000}),
        Unit(name="make", kind="webhook", webhook=WebhookUnit(request={"method": "POST", "url": "https://a.example/"})),
    ],
)
def test_admissible_pod_has_no_objections(unit):
    assert objections_of(unit) == []


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (step(pod_template={"spec": {"hostNetwork": True}}), "spec.hostNetwork must be false"),
        (step(image=""), "spec.containers[0].image is missing: set an image in the plugin's runner"),
        (step(script="x" * 300_000), "script and constant inputs have"),
        (
            Unit(name="make", kind="webhook", webhook=WebhookUnit(request={"method": "POST", "url": "https://a\\b/"})),
            "is not a plain http or https URL",
        ),
    ],
)
def test_inadmissible_pod_names_its_step_and_reason(unit, said):
    [found] = objections_of(unit)
    assert found.startswith("the pod of step make is refused: ")
    assert said in found


def test_inline_step_may_not_read_its_namespace():
    [found] = objections_of(step(pod_template=SECRET), plugin="")
    assert "only a published plugin can be granted that" in found


def test_steps_of_all_events_are_checked():
    bad = {"pod_template": {"spec": {"nodeName": "n"}}}
    found = objections_of(step("a", **bad), step("b"), pre_stop=(step("c", **bad),), post_stop=(step("d", **bad),))
    assert [each.split()[4] for each in found] == ["a", "c", "d"]


def test_grant_is_checked_in_the_namespace_of_the_step():
    account = {"spec": {"serviceAccountName": "admin"}}
    [said] = objections_of(step(namespace="jobs", pod_template=account))
    assert "admin is not granted to plugins in jobs" in said
