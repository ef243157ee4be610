"""Each refusal of a pool, with the step that prevents it, and the template of its members."""

import msgspec
import pytest
from tests.compile.builders import PG, compiled_pool, plugin, pool, pool_refusals, read, step, steps
from tests.spec.marked_text import marked

import dayfly.compile
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import MEMBER_TARGET, StepOrigin, digest

CONFIG_MAP = "object: {manifest: {apiVersion: v1, kind: ConfigMap, data: {a: b}}}"
NAMED = "script: '#!/bin/sh\n\n      echo $DAYFLY_SANDBOX_NAME'"
USE_ID = "use DAYFLY_RESOURCE_ID in the plugin instead, or write at: pool if the step needs no sandbox"


def removes(name, of, *reads, at=""):
    return step(name, *reads, work=f"object: {{remove: {of}}}", at=at)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            steps([step("make", "owner"), step("seed", "make.x")]),
            [
                (
                    'spec.plugin: no create step can run before a sandbox needs it: "make" waits for param "owner"; '
                    '"seed" waits for step "make"; give "owner" a value in the pool\'s params'
                )
            ],
        ),
        (
            steps([step("make", work=NAMED)]),
            [
                'spec.plugin: no create step can run before a sandbox needs it: "make" mentions DAYFLY_SANDBOX_NAME; '
                + USE_ID
            ],
        ),
        (
            steps([step("make", at="claim")]),
            [
                (
                    'spec.plugin: no create step can run before a sandbox needs it: "make" has at: claim; '
                    "publish a version of the plugin whose first steps need nothing of a sandbox"
                )
            ],
        ),
        (
            steps([], [step("drop")]),
            ["spec.plugin: has no create steps, so there is nothing to create before a sandbox needs it"],
        ),
        (
            steps([step("make"), step("seed", "owner", at="pool")]),
            [
                (
                    'spec.plugin: the create step "seed" has at: pool but waits for param "owner": '
                    'give "owner" a value in the pool\'s params, or remove at: pool'
                )
            ],
        ),
        (
            steps([step("make"), step("grant", "owner")], [step("revoke", "grant.x"), step("drop", "make.x", "owner")]),
            [
                (
                    'spec.plugin: the delete step "revoke" waits for step "grant": give "owner" a value in the pool\'s params, '
                    "or write at: claim in it if it undoes only steps that run for the sandbox"
                ),
                (
                    'spec.plugin: the delete step "drop" waits for param "owner": give "owner" a value in the pool\'s params, '
                    "or write at: claim in it if it undoes only steps that run for the sandbox"
                ),
            ],
        ),
        (
            steps([step("make")], [step("drop", work=NAMED)]),
            [
                (
                    'spec.plugin: the delete step "drop" mentions DAYFLY_SANDBOX_NAME: '
                    f"{USE_ID}, or write at: claim in it if it undoes only steps that run for the sandbox"
                )
            ],
        ),
        (
            steps([step("make")], [step("look", at="claim"), step("drop", "look.x")]),
            [
                (
                    'spec.plugin: the delete step "drop" waits for step "look": '
                    "write at: claim in it if it undoes only steps that run for the sandbox"
                )
            ],
        ),
        (
            steps([step("make")], [step("drop", "owner", at="pool")]),
            [
                (
                    'spec.plugin: the delete step "drop" has at: pool but waits for param "owner": '
                    'give "owner" a value in the pool\'s params, or remove at: pool'
                )
            ],
        ),
        (
            steps([step("make"), step("grow")], [step("drop", at="claim")]),
            [
                (
                    'spec.plugin: all delete steps have at: claim, so no step undoes "make" and "grow" in the pool; '
                    "remove at: claim from one of them"
                )
            ],
        ),
        (
            steps([step("web", work=CONFIG_MAP)], [removes("withdraw", "web", "owner")]),
            [
                (
                    'spec.plugin: the delete step "withdraw" removes the object of "web", so it runs in the pool\'s '
                    'member, but it waits for param "owner"; leave that out: the member\'s delete steps run after all '
                    "delete steps of the sandbox"
                )
            ],
        ),
        (
            steps([step("web", work=CONFIG_MAP)], [removes("withdraw", "web", at="claim"), step("drop")]),
            [
                (
                    'spec.plugin: the delete step "withdraw" removes the object of "web", so it runs in the pool\'s '
                    "member, but it has at: claim; leave that out: the member's delete steps run after all delete steps "
                    "of the sandbox"
                )
            ],
        ),
        (
            steps([step("make"), step("web", "owner", work=CONFIG_MAP)], [removes("withdraw", "web", at="pool")]),
            [
                (
                    'spec.plugin: the delete step "withdraw" has at: pool but removes an object of the sandbox\'s run; '
                    "remove at: pool"
                )
            ],
        ),
        (
            steps(
                [step("web", work=CONFIG_MAP), step("make")],
                [removes("withdraw", "web"), step("settle", "withdraw.gone", "server", at="claim"), step("drop")],
            ),
            [
                (
                    'spec.plugin: the delete step "settle" runs for the sandbox and waits for "withdraw", which removes '
                    'the object of "web" later, in the pool\'s member; leave the input "withdraw-gone" out'
                )
            ],
        ),
        (
            steps(
                [step("apply"), step("grant", "owner")],
                [step("destroy"), step("revoke", "owner", at="claim")],
                more="  state: true\n",
            ),
            [
                (
                    "spec.plugin: the programs of a plugin with state: true share one Terraform state, but they are in "
                    'both halves: "apply" and "destroy" in the pool, "grant" and "revoke" for the sandbox. "grant" waits '
                    'for param "owner"; "revoke" has at: claim and waits for param "owner": '
                    'give "owner" a value in the pool\'s params, or use one half for all of them'
                )
            ],
        ),
        (
            steps([step("apply"), step("destroy2", "owner", at="pool")], [step("destroy", "owner")]),
            [
                (
                    'spec.plugin: the create step "destroy2" has at: pool but waits for param "owner": '
                    'give "owner" a value in the pool\'s params, or remove at: pool'
                ),
                (
                    'spec.plugin: the delete step "destroy" waits for param "owner": give "owner" a value in the pool\'s params, '
                    "or write at: claim in it if it undoes only steps that run for the sandbox"
                ),
            ],
        ),
    ],
)
def test_pool_is_refused_with_its_steps(body, said):
    assert pool_refusals(pool(), body) == said


READABLE = CONFIG_MAP + ", outputs: [{name: x, valueFromJSONPath: $.data.a}]"
HOOK = "webhook: {method: POST, url: 'https://a.example'}"


def webhook(name, *reads):
    return step(name, *reads, work=HOOK).replace("valueFromPath: /tmp/x", "valueFromStatus: true")


@pytest.mark.parametrize(
    ("body", "member", "holder"),
    [
        (
            steps([step("web", work=READABLE)], [step("revoke", "web.x", "owner", at="claim")]),
            ["remove-web"],
            ["revoke"],
        ),
        (
            steps(
                [step("make"), step("web", "owner", work=CONFIG_MAP)],
                [removes("withdraw", "web"), step("settle", "withdraw.gone", at="claim"), step("drop")],
            ),
            ["drop"],
            ["settle", "withdraw"],
        ),
        (
            steps(
                [webhook("order"), step("apply", "order.x", "owner")],
                [step("destroy", at="claim"), webhook("cancel")],
                more="  state: true\n",
            ),
            ["cancel"],
            ["destroy"],
        ),
        (
            steps([step("make"), step("web", "owner", work=CONFIG_MAP)], [removes("withdraw", "web")]),
            [],
            ["withdraw"],
        ),
    ],
)
def test_pool_with_work_in_both_halves_is_possible(body, member, holder):
    made = compiled_pool(pool(), body)
    assert [unit.name for unit in made.documents[0].post_stop] == member
    assert sorted(made.cut.holder_delete) == holder


PARAMS = steps(
    [
        step("make", "size", "owner").replace(
            "owner, valueFromSandbox: true", "owner, valueFromSandbox: true, required: true"
        ),
        step("grant", "password").replace("true}", "true, secret: true}"),
    ]
)


def test_param_that_cannot_be_fixed_is_refused():
    assert pool_refusals(pool("{sise: '1', password: x, owner: null}"), PARAMS) == [
        'spec.params.sise: no step of the plugin p@1.0.0 reads it; did you mean "size"?',
        "spec.params.password: is a secret param, which a pool cannot fix; leave it out: its steps run for each sandbox",
        (
            "spec.params.owner: the plugin p@1.0.0 requires this param, so null is not possible; give it a value, or leave "
            "it out: its steps run for each sandbox"
        ),
        (
            'spec.plugin: no create step can run before a sandbox needs it: "make" waits for param "size"; "grant" waits '
            'for the secret param "password"; give "size" a value in the pool\'s params'
        ),
    ]


def test_refusal_of_a_pool_has_its_line():
    written, line, column = marked("kind: ResourcePool\nmetadata: {name: a}\nspec:\n  ready: 1\n  §plugin: p\n")
    with pytest.raises(SpecError) as caught:
        compiled_pool(written, steps([step("make", "owner")]))
    assert (caught.value.line, caught.value.column) == (line, column)


def test_fault_of_the_plugin_is_reported_at_the_pool():
    [said] = pool_refusals(pool(), steps([step("make", "none.x")]))
    assert said.startswith("spec.plugin: the plugin p@1.0.0 is invalid: spec.create[0]")


def test_fixed_value_that_is_too_long_is_refused():
    [said] = pool_refusals(pool(f"{{size: {'x' * 70_000}}}"), steps([step("make", "size")]))
    assert said.startswith("spec.params.size: has 70000 bytes")


def test_plugin_that_fills_a_document_is_refused():
    text = "#" * 130_000
    body = steps([step(f"s{n}", work=f"script: '#!/bin/sh\n\n      {text}'") for n in range(9)])
    [said] = pool_refusals(pool(), body)
    assert "when compiled" in said


def test_param_without_effect_on_members_is_a_warning():
    body = steps([step("make"), step("grant", "owner", "size")])
    made = compiled_pool(pool("{size: '1'}"), body)
    assert len(made.warnings) == 1
    assert "spec.params.size: no step of a member reads it" in made.warnings[0]


def test_template_has_the_fixed_params_and_no_sandbox():
    body = steps(
        [step("grant", "make.x", "owner"), step("grow", "make.x"), step("make", "size", "extra")],
        [step("revoke", "owner", at="claim"), step("drop", "make.x")],
    )
    made = compiled_pool(pool("{size: '1', extra: null}"), body, publisher="ORG:acme")
    (template,) = made.documents
    assert (template.target, template.resource) == (MEMBER_TARGET, "p")
    assert template.origin == StepOrigin(publisher="ORG:acme", plugin="p", version="1.0.0")
    assert [unit.name for unit in template.pre_start] == ["make", "grow"]
    assert [unit.name for unit in template.post_stop] == ["drop"]
    assert [(item.name, item.value) for item in template.pre_start[0].inputs] == [("size", "1"), ("extra", None)]
    assert template.pre_start[0].exec.env == {}
    assert "SANDBOX" not in str(msgspec.to_builtins(template))
    assert made.digest == digest(made.documents)


def test_param_fixed_as_absent_has_the_default():
    body = steps([step("make", "size").replace("true}", 'true, default: "2"}')])
    made = compiled_pool(pool("{size: null}"), body)
    assert made.fixed == {"size": "2"}
    assert made.documents[0].pre_start[0].inputs[0].value == "2"
    assert made.digest == compiled_pool(pool("{size: '2'}", name="other"), body).digest


def test_template_removes_the_objects_of_the_pool_only():
    create = [
        step("early", work=CONFIG_MAP),
        step("make"),
        step("late", "owner", work=CONFIG_MAP),
    ]
    (template,) = compiled_pool(pool(), steps(create)).documents
    assert [unit.name for unit in template.post_stop] == ["remove-early"]


def test_template_keeps_state_and_place_of_the_plugin():
    body = steps([step("make")], [step("drop")], more="  state: true\n  runner: {image: i, namespace: jobs}\n")
    (template,) = compiled_pool(pool(), body).documents
    assert all((u.exec.state, u.exec.image, u.exec.namespace) == (True, "i", "jobs") for u in template.pre_start)


def test_pool_names_the_plugin_that_it_needs():
    def wanted(reference):
        wish, _ = read(pool(plugin=reference))
        return dayfly.compile.pool_plugin(wish)

    assert [wanted("p"), wanted("p@1.0"), wanted("p@latest")] == [("p", ""), ("p", "1.0.0"), ("p", "")]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("{size: '1', db-owner: a}", "{db-owner: a, size: '1'}", True),
        ("{size: '1', db-owner: a}", "{size: '2', db-owner: a}", False),
        ("{size: '1', db-owner: a}", "{size: '1', db-owner: null}", False),
    ],
)
def test_second_pool_with_the_same_params_is_a_duplicate(first, second, same):
    one = compiled_pool(pool(first, "pg", name="one"), PG)
    other = compiled_pool(pool(second, "pg@1.2.0", name="other"), PG)
    assert (one.identity == other.identity) is same
    dayfly.compile.check_duplicate(one, [one])
    if same:
        with pytest.raises(SpecError, match=r'the pool "one" already has pg@1\.2\.0 with these params'):
            dayfly.compile.check_duplicate(other, [one])


def test_pool_of_another_publisher_or_cluster_is_no_duplicate():
    text = pool("{size: '1', db-owner: a}", "pg")
    one = compiled_pool(text, PG)
    assert one.identity != compiled_pool(text, PG, publisher="ORG:acme").identity
    assert one.identity != compiled_pool(text.replace("ready:", "cluster: c, ready:"), PG).identity


def test_changed_plugin_changes_the_template():
    text = pool("{size: '1', db-owner: a}", "pg")
    assert plugin(PG) != plugin(PG.replace("true\n", "false\n"))
    assert compiled_pool(text, PG).digest != compiled_pool(text, PG.replace("true\n", "false\n")).digest
