"""Resources that a pool has: which sandboxes match, and the documents of such a resource."""

import msgspec
import pytest
from tests.compile.builders import box, compiled_pool, pool, run, step, steps

from dayfly.plan import sealed
from dayfly.spec.lifecycle import AcquireUnit, Kind, LifecycleEvent, Ref, digest

BODY = steps(
    [
        step("make", "size").replace("true}", 'true, default: "2"}'),
        step("grow", "make.x"),
        step("grant", "owner"),
    ],
    [step("revoke", "owner", at="claim"), step("drop", "make.x")],
)
CONFIG_MAP = "object: {manifest: {apiVersion: v1, kind: ConfigMap, data: {a: b}}}"


def db(params="{}", more="", plugin="p"):
    return box(f"resources:\n- {{name: db, plugin: {plugin}, params: {params}{more}}}")


def used(yaml, *pools, body=BODY, **more):
    return run(yaml, body, pools=pools, **more).pools.get("db")


@pytest.mark.parametrize(
    ("fixed", "params", "matches"),
    [
        ("{size: '2'}", "{size: '2'}", True),
        ("{size: '2'}", "{}", True),
        ("{size: null}", "{}", True),
        ("{size: null}", "{size: '2'}", True),
        ("{size: null}", "{size: '3'}", False),
        ("{size: '3'}", "{}", False),
        ("{size: '3'}", "{size: '3', owner: me}", True),
        ("{size: '2', owner: null}", "{}", True),
        ("{size: '2', owner: null}", "{owner: ''}", False),
        ("{size: '2', owner: ''}", "{}", False),
        ("{size: '2', owner: ''}", "{owner: ''}", True),
    ],
)
def test_resource_matches_by_the_values_of_fixed_params(fixed, params, matches):
    assert used(db(params), compiled_pool(pool(fixed), BODY)) == ("warm" if matches else None)


def test_output_of_another_resource_never_equals_a_fixed_value():
    body = steps([step("make", "size")])
    resources = "resources:\n- {name: net, plugin: p}\n- {name: db, plugin: p, params: {size: {valueFrom: {resource: "
    yaml = box(resources + "{name: net, outputKey: make.x}}}}}")
    assert run(yaml, body, pools=[compiled_pool(pool("{size: null}"), body)]).pools == {"net": "warm"}


def test_pool_with_more_fixed_params_wins_then_the_name():
    def made(name, fixed):
        return compiled_pool(pool(fixed, name=name), BODY)

    few, many = made("a", "{size: '2'}"), made("z", "{size: '2', owner: me}")
    assert used(db("{owner: me}"), few, many) == "z"
    assert used(db("{owner: you}"), few, many) == "a"
    assert used(db(), made("c", "{size: '2'}"), made("b", "{size: null}")) == "b"


def test_resource_opts_out_with_pool_never():
    assert used(db(more=", pool: never"), compiled_pool(pool("{size: '2'}"), BODY)) is None


def test_inline_plugin_matches_a_pool_of_the_same_content():
    warm = compiled_pool(pool(), steps([step("make")]))
    for name, pools in (("make", {"db": "warm"}), ("other", {})):
        inline = "resources:\n- {name: db, spec: {create: [" + step(name) + "]}}"
        assert run(box(inline), pools=[warm]).pools == pools
        assert run(box(inline), pools=[warm], publisher="ORG:acme").pools == {}


def test_resource_needs_the_same_plugin_version_and_content():
    warm = compiled_pool(pool("{size: '2'}"), BODY)
    newer = BODY.replace("p@1.0.0", "p@1.1.0")
    changed = BODY.replace("/tmp/x", "/tmp/y")
    assert run(db(), BODY, newer, pools=[warm]).pools == {}
    assert run(db(plugin="p@1.0.0"), BODY, newer, pools=[warm]).pools == {"db": "warm"}
    assert used(db(), warm, body=changed) is None


def test_resource_needs_the_same_publisher_and_cluster():
    warm = compiled_pool(pool("{size: '2'}"), BODY, publisher="ORG:acme")
    assert used(db(), warm) is None
    assert used(db(), warm, publisher="ORG:acme") == "warm"
    there = pool("{size: '2'}", more=", cluster: CLUSTER")
    assert used(db(), compiled_pool(there.replace("CLUSTER", "c"), BODY)) == "warm"
    assert used(db(), compiled_pool(there.replace("CLUSTER", "d"), BODY)) is None


def document(params="{owner: me}", body=BODY, fixed="{size: '2'}"):
    warm = compiled_pool(pool(fixed), body)
    return run(db(params), body, pools=[warm]).documents[0], warm


def test_pooled_resource_has_the_template_of_its_pool():
    made, warm = document()
    assert made.template_documents() == warm.documents
    assert digest(made.template_documents()) == warm.digest
    other, _ = document("{owner: you}")
    assert other.template == made.template


def test_each_step_of_the_member_has_a_unit_of_its_name():
    made, _ = document()
    make, grow, grant = made.pre_start
    assert [make.name, grow.name, grant.name] == ["make", "grow", "grant"]
    assert (make.kind, make.acquire, make.inputs) == (Kind.ACQUIRE, AcquireUnit(step="make"), ())
    assert [item.from_ for item in grow.inputs] == [Ref(unit="make", output="x")]
    assert [output.name for output in make.outputs] == ["x"]
    assert (make.timeouts.run_ms, make.timeouts.grace_ms) == (0, 0)


def test_claim_time_step_waits_for_all_steps_of_the_member():
    made, _ = document()
    grant = made.pre_start[-1]
    assert (grant.kind, grant.after) == (Kind.EXEC, ("make", "grow"))
    assert [item.value for item in grant.inputs] == ["me"]
    assert grant.exec.env["DAYFLY_SANDBOX_NAME"] == "box"
    assert grant.exec.env["DAYFLY_RESOURCE_NAME"] == "db"


def test_release_comes_after_all_delete_steps_of_the_sandbox():
    made, _ = document()
    revoke, release = made.post_stop
    assert (revoke.name, revoke.kind) == ("revoke", Kind.EXEC)
    assert (release.name, release.kind, release.acquire) == ("release", Kind.ACQUIRE, AcquireUnit())
    assert release.after == ("revoke",)
    assert (release.retry.idempotent, release.retry.limit, release.timeouts.run_ms) == (True, 0, 0)


def test_release_has_a_free_name():
    body = steps([step("make"), step("release-2", "owner")], [step("release")])
    made, _ = document(body=body, fixed="{}")
    assert [unit.name for unit in made.post_stop] == ["release-3"]


def test_object_of_a_claim_time_step_is_removed_by_the_sandbox():
    body = steps([step("make"), step("note", "make.x", "owner", work=CONFIG_MAP)])
    made, _ = document(body=body, fixed="{}")
    assert [unit.name for unit in made.post_stop] == ["remove-note", "release"]
    assert made.post_stop[-1].after == ("remove-note",)


def test_references_to_a_pooled_resource_stay_as_they_are():
    hook = "hooks:\n  preStart:\n  - {name: show, inputs: [{name: url, valueFrom: {resource: {name: db, outputKey: "
    yaml = db("{owner: me}") + "".join(
        f"  {line}\n" for line in (hook + "make.x}}}], " + "script: '#!/bin/sh'}").split("\n")
    )
    warm = compiled_pool(pool("{size: '2'}"), BODY)
    cold, pooled = run(yaml, BODY), run(yaml, BODY, pools=[warm])
    assert pooled.documents[-1] == cold.documents[-1]
    names = [set(sealed.seal(each.documents).steps) for each in (cold, pooled)]
    assert names[1] - names[0] == {"db/release"}
    assert names[0] - names[1] == {"db/drop"}


def test_sandbox_beyond_the_limit_of_units_uses_no_pool():
    body = steps([step(f"s{n}") for n in range(32)])
    resources = "".join(f"- {{name: r{n}, plugin: p}}\n" for n in range(8))
    warm = compiled_pool(pool(), body)
    made = run(box("resources:\n" + resources), body, pools=[warm])
    assert made.pools == {}
    assert sum(len(each.pre_start) for each in made.documents) == 256
    fewer = run(box("resources:\n" + resources[: resources.index("- {name: r7")]), body, pools=[warm])
    assert len(fewer.pools) == 7


def test_resources_that_read_each_other_use_no_pool():
    # Without a pool neither has a delete step. The releases of two members would wait for each other.
    body = steps([step("make"), step("join", "peer")])
    param = "{{peer: {{valueFrom: {{resource: {{name: {}, outputKey: make.x}}}}}}}}"
    rows = "".join(
        f"- {{name: {name}, plugin: p, params: {param.format(other)}}}\n" for name, other in (("a", "b"), ("b", "a"))
    )
    made = run(box("resources:\n" + rows), body, pools=[compiled_pool(pool(), body)])
    assert made.pools == {}
    assert all(unit.kind is Kind.EXEC for each in made.documents for unit in each.units(LifecycleEvent.PRE_START))


def shared(name, fixed="{}", refusal=""):
    """Return a pool of the namespace `platform` that serves the sandbox, or does not."""
    made = compiled_pool(pool(fixed, name=name), BODY)
    return msgspec.structs.replace(made, namespace="platform", refusal=refusal)


def test_pool_of_the_own_namespace_is_preferred():
    own = compiled_pool(pool("{size: '2'}", name="z"), BODY)
    assert used(db("{owner: me}"), shared("a", "{size: '2', owner: me}"), own) == "z"
    assert used(db("{owner: me}"), shared("b", "{size: '2'}"), shared("a", "{size: '2'}")) == "platform/a"


def test_refusal_of_a_pool_is_a_warning():
    made = run(db("{owner: me}"), BODY, pools=[shared("a", "{size: '2'}", refusal="its step makes an object")])
    assert (made.pools, [unit.kind for unit in made.documents[0].pre_start][:1]) == ({}, ["exec"])
    [said] = [each for each in made.warnings if "platform/a" in each]
    assert said.startswith("box.yaml:5:5: spec.resources[0]: ")
    assert '"platform/a" does not serve this namespace: its step makes an object' in said


def test_serving_pool_is_preferred_to_a_refusing_one():
    refusing = shared("a", "{size: '2', owner: me}", refusal="its step makes an object")
    made = run(db("{owner: me}"), BODY, pools=[refusing, shared("b", "{size: '2'}")])
    assert made.pools == {"db": "platform/b"}
    assert not [each for each in made.warnings if "does not serve" in each]
