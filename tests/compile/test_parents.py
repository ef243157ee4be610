"""Plugins with a parent: the documents of their resources, and every refusal with its place."""

import pytest
from tests.compile.builders import box, plugin, pool, read, run, step, steps

import dayfly.compile
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import PARENT_TARGET, AcquireUnit, Ref, Sharing

SERVER = steps([step("start", "size")], [step("stop", "start.x")], name="server@1.0.0")
PARENT = "  parent: {plugin: server@1.0.0, params: {size: {valueFromParam: size}}, linger: 5m, capacity: 9}\n"


def child(parent=PARENT, read="^start.x"):
    create = [step("clone", read), step("grant", "owner", "clone.x")]
    return steps(create, [step("drop", read), step("revoke", "owner", read, at="claim")], more=parent)


def db(params="{size: '2', owner: me}", *plugins, **more):
    body = box(f"resources:\n- {{name: db, plugin: p, params: {params}}}")
    return run(body, *(plugins or (child(), SERVER)), **more)


def test_child_waits_for_the_steps_of_its_parent_and_leaves_it_last():
    (document, _) = db().documents
    start, clone, grant = document.pre_start
    assert (start.name, start.acquire) == ("parent.start", AcquireUnit(step="start", parent=True))
    assert clone.after == grant.after == ("parent.start",)
    assert clone.inputs[0].from_ == Ref(unit="parent.start", output="x")
    assert [unit.name for unit in document.post_stop] == ["drop", "revoke", "release"]
    assert document.post_stop[-1].after == ("drop", "revoke")


def test_template_has_the_steps_of_the_parent_without_the_sandbox():
    (document, _) = db().documents
    (template,) = document.template_documents()
    assert template.target == PARENT_TARGET
    assert template.sharing == Sharing(linger_ms=300_000, capacity=9, max_parents=1)
    assert [unit.name for unit in (*template.pre_start, *template.post_stop)] == ["start", "stop"]
    assert template.pre_start[0].inputs[0].value == "2"
    assert template.pre_start[0].exec.env == {}


def test_resources_share_a_parent_if_its_params_are_equal():
    def template(params):
        return db(params).documents[0].template

    assert template("{size: '2', owner: me}") == template("{size: '2', owner: you}")
    assert template("{size: '2', owner: me}") != template("{size: '3', owner: me}")


def test_parent_of_a_parent_is_in_the_template_of_the_parent():
    host = steps([step("boot")], name="host@1.0.0")
    server = SERVER.replace("spec:\n", "spec:\n  parent: {plugin: host@1.0.0}\n", 1)
    (document, _) = db("{size: '2', owner: me}", child(), server, host).documents
    assert [unit.name for unit in document.pre_start] == ["parent.parent.boot", "parent.start", "clone", "grant"]
    (template,) = document.template_documents()
    assert [unit.name for unit in template.pre_start] == ["parent.boot", "start"]
    assert [each.resource for each in template.template_documents()] == ["host"]


def warm(fixed):
    parents = {("server", "1.0.0"): plugin(SERVER)}
    wish, _ = read(pool(fixed))
    return dayfly.compile.compile_pool(wish, plugin(child()), parents=parents)


def test_member_holds_the_parent_and_the_sandbox_reads_it_through_the_member():
    (member,) = warm("{size: '2'}").documents
    assert [unit.name for unit in member.pre_start] == ["parent.start", "clone"]
    assert [unit.name for unit in member.post_stop] == ["drop", "release"]
    assert [each.resource for each in member.template_documents()] == ["server"]
    (holder, _) = db(pools=[warm("{size: '2'}")]).documents
    assert [unit.name for unit in holder.pre_start] == ["parent.start", "clone", "grant"]
    assert holder.pre_start[0].acquire == AcquireUnit(step="parent.start", parent=True)
    assert holder.post_stop[0].inputs[1].from_ == Ref(unit="parent.start", output="x")
    assert holder.template_documents() == (member,)


def test_pool_that_does_not_fix_a_param_of_the_parent_is_refused():
    with pytest.raises(SpecError, match="size"):
        warm("{}")


GRAND = "  parent: {plugin: server@1.0.0}\n"
REFUSED = {
    "missing parent": ((child(),), "server@1.0.0"),
    "unknown step": ((child(read="^begin.x"), SERVER), "begin"),
    "unknown output": ((child(read="^start.url"), SERVER), '"url"'),
    "unknown param": ((child(PARENT.replace("{size:", "{sise:")), SERVER), "did you mean"),
    "own cycle": ((child(), SERVER.replace("spec:\n", f"spec:\n{GRAND}", 1)), "cycle"),
    "sandbox variable": ((child(), SERVER.replace("/sh", "/sh $DAYFLY_SANDBOX_NAME", 1)), "DAYFLY_SANDBOX_NAME"),
    "claim step": ((child(), SERVER.replace("name: start,", "name: start, at: claim,", 1)), "at: claim"),
}


@pytest.mark.parametrize(("plugins", "word"), REFUSED.values(), ids=REFUSED)
def test_invalid_parent_is_refused_at_the_resource(plugins, word):
    with pytest.raises(SpecError) as found:
        db("{size: '2', owner: me}", *plugins)
    assert found.value.path == "spec.resources[0].plugin"
    assert word in str(found.value)


def test_host_without_parents_is_refused_at_the_resource():
    with pytest.raises(SpecError) as found:
        db(parents=False)
    assert found.value.path == "spec.resources[0]"


def test_output_of_another_resource_as_param_of_the_parent_is_refused():
    net = steps([step("make")], name="net@1.0.0")
    value = "{valueFrom: {resource: {name: net, outputKey: make.x}}}"
    yaml = box(
        "resources:\n- {name: net, plugin: net}\n- {name: db, plugin: p, params: {owner: me, size: " + value + "}}"
    )
    with pytest.raises(SpecError) as found:
        run(yaml, child(), SERVER, net)
    assert found.value.path == "spec.resources[1].params.size"
