"""The cut of a plugin's steps for a pool, as a table: which run in the member, which for the sandbox, and why."""

import pytest
from tests.compile.builders import SCRIPT, plugin, step, steps

from dayfly.compile import pool_cut

CONFIG_MAP = "object: {manifest: {apiVersion: v1, kind: ConfigMap, data: {a: b}}}"


def script(text):
    return f"script: '#!/bin/sh\n\n      {text}'"


def cut(body, *fixed):
    return pool_cut.cut(plugin(body).spec, fixed)


def reasons(found):
    return {name: pool_cut.describe(causes) for name, causes in found.items()}


@pytest.mark.parametrize(
    ("create", "fixed", "waiting"),
    [
        ([step("make")], (), {}),
        ([step("make", "size")], ("size",), {}),
        ([step("make", "size")], (), {"make": 'waits for param "size"'}),
        ([step("make", "size", "owner")], ("size",), {"make": 'waits for param "owner"'}),
        ([step("make", "size", "owner")], (), {"make": 'waits for param "size" and param "owner"'}),
        ([step("make"), step("seed", "make.x", "owner")], (), {"seed": 'waits for param "owner"'}),
        (
            [step("make", "owner"), step("seed", "make.x"), step("grant", "seed.x")],
            (),
            {"make": 'waits for param "owner"', "seed": 'waits for step "make"', "grant": 'waits for step "seed"'},
        ),
        ([step("make", at="claim")], (), {"make": "has at: claim"}),
        ([step("make", work=script("echo $DAYFLY_SANDBOX_NAME"))], (), {"make": "mentions DAYFLY_SANDBOX_NAME"}),
        ([step("make", work=script("echo $SIGNADOT_RESOURCE_NAME"))], (), {"make": "mentions SIGNADOT_RESOURCE_NAME"}),
        ([step("make", work=script("echo ${P}_SANDBOX_ID"))], (), {"make": "mentions _SANDBOX_ID"}),
        ([step("make", work=script("echo $DAYFLY_SANDBOX_NAME"), at="pool")], (), {}),
        ([step("make", "owner", at="pool")], (), {"make": 'waits for param "owner"'}),
        ([step("make", work=script("echo $DAYFLY_RESOURCE_ID $MY_SANDBOX_NAME $DB_RESOURCE_NAME"))], (), {}),
        (
            [step("make", work='command: [tool, "$(DAYFLY_SANDBOX_NAME)"]')],
            (),
            {"make": "mentions DAYFLY_SANDBOX_NAME"},
        ),
        (
            [
                step(
                    "make",
                    work="webhook: {method: GET, url: 'https://a.example', path: [{$env: DAYFLY_RESOURCE_NAME}]}",
                ).replace("valueFromPath: /tmp/x", "valueFromStatus: true")
            ],
            (),
            {"make": "mentions DAYFLY_RESOURCE_NAME"},
        ),
        (
            [step("make", work=CONFIG_MAP.replace("a: b", "a: DAYFLY_SANDBOX_ROUTING_KEY"))],
            (),
            {"make": "mentions DAYFLY_SANDBOX_ROUTING_KEY"},
        ),
    ],
)
def test_create_step_waits_for_values_of_a_sandbox(create, fixed, waiting):
    found = cut(steps(create), *fixed)
    assert {name: why for name, why in reasons(found.create).items() if why} == waiting
    assert found.claim_create == tuple(name for name in found.create if name in waiting)


def test_secret_param_is_never_fixed():
    body = steps([step("make", "password").replace("true}", "true, secret: true}")])
    assert reasons(cut(body, "password").create) == {"make": 'waits for the secret param "password"'}


def test_param_with_default_waits_unless_it_is_fixed():
    body = steps([step("make", "size").replace("true}", 'true, default: "2"}')])
    assert reasons(cut(body).create) == {"make": 'waits for param "size"'}
    assert reasons(cut(body, "size").create) == {"make": ""}


def test_pod_template_concerns_programs_and_no_objects():
    overlay = "  runner: {podTemplateOverlay: 'spec: {hostname: $(DAYFLY_SANDBOX_NAME)}'}\n"
    found = cut(steps([step("make"), step("note", work=CONFIG_MAP)], more=overlay))
    assert reasons(found.create) == {"make": "mentions DAYFLY_SANDBOX_NAME", "note": ""}


def test_steps_are_in_a_topological_order():
    found = cut(steps([step("c", "b.x"), step("b", "a.x"), step("a")]))
    assert found.pool_create == ("a", "b", "c")


@pytest.mark.parametrize(
    ("delete", "member", "holder"),
    [
        ([step("drop", "make.x")], ["drop"], []),
        ([step("look"), step("drop", "look.x")], ["look", "drop"], []),
        ([step("drop", "make.x"), step("revoke", "make.x", "owner", at="claim")], ["drop"], ["revoke"]),
        (
            [step("look"), step("revoke", "look.x", at="claim"), step("drop")],
            ["look", "drop"],
            ["look", "revoke"],
        ),
        (
            [step("look"), step("read", "look.x"), step("revoke", "read.x", at="claim")],
            ["look", "read"],
            ["look", "read", "revoke"],
        ),
        ([step("drop", work=script("echo $DAYFLY_SANDBOX_NAME"), at="pool")], ["drop"], []),
    ],
)
def test_delete_step_runs_in_the_member_unless_at_claim(delete, member, holder):
    found = cut(steps([step("make"), step("grant", "owner")], delete))
    assert {name for name, causes in found.delete.items() if causes} == set(holder) - set(member)
    assert list(found.member_delete) == member
    assert sorted(found.holder_delete) == sorted(holder)


def test_object_is_removed_by_the_run_that_made_it():
    create = [step("early", work=CONFIG_MAP), step("late", "owner", work=CONFIG_MAP)]
    found = cut(steps(create, [step("a", work="object: {remove: early}"), step("b", work="object: {remove: late}")]))
    assert (found.member_delete, found.holder_delete) == (("a",), frozenset({"b"}))


@pytest.mark.parametrize(
    ("create", "said"),
    [
        ([step("make")], "1 of 1 steps run before a sandbox needs them"),
        (
            [step("make"), step("grow", "make.x"), step("seed", "grow.x", "owner")],
            '2 of 3 steps run before a sandbox needs them; "seed" waits for param "owner"',
        ),
    ],
)
def test_cut_has_a_sentence(create, said):
    assert cut(steps(create)).sentence == said


def test_roots_of_a_diamond_are_listed_once():
    rows = [step("a", "owner", work=SCRIPT), step("b", "a.x"), step("c", "a.x"), step("d", "b.x", "c.x")]
    found = cut(steps(rows))
    assert [str(each) for each in found.roots(found.create["d"])] == ['waits for param "owner"']


def test_shared_param_delays_only_the_steps_that_get_it():
    body = """\
name: p
spec:
  inputs:
  - {name: owner, valueFromSandbox: true, steps: [grant]}
  - {name: size, valueFromSandbox: true}
  create:
  - {name: make, script: "#!/bin/sh"}
  - {name: grant, script: "#!/bin/sh"}
"""
    assert reasons(cut(body, "size").create) == {"make": "", "grant": 'waits for param "owner"'}
