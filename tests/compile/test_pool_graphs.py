"""Random plugins and pools: the two halves are complete, the template knows no sandbox, and the delete order stays."""

import itertools

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

import dayfly.compile
from dayfly.compile import pool_cut
from dayfly.plan import sealed
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import Kind
from dayfly.spec.plugin import Input, Output, Plugin, PluginSpec, Step, StepOutput
from dayfly.spec.resource_pool import ResourcePool, ResourcePoolSpec
from dayfly.spec.sandbox import Resource, Sandbox, SandboxSpec
from dayfly.spec.steps.kube_object import KubeObject

PARAMS = ("size", "owner", "region")
MANIFEST = KubeObject(manifest={"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}})
MENTION = "#!/bin/sh\necho $DAYFLY_SANDBOX_NAME"


@st.composite
def steps(draw, prefix, before):
    """Return steps in a random order, which read params, earlier ones and those of `before`."""
    made = []
    for number in range(draw(st.integers(1, 5))):
        known = [*before, *made]
        reads = draw(st.lists(st.sampled_from(known), max_size=2, unique_by=lambda each: each.name)) if known else []
        params = draw(st.lists(st.sampled_from(PARAMS), max_size=1 if number % 2 else 0))
        inputs = [Input(name=f"i-{each.name}", value_from_step=output(each)) for each in reads]
        inputs += [Input(name=name, value_from_sandbox=True) for name in params]
        made.append(step(draw, f"{prefix}{number}", tuple(inputs), before))
    return draw(st.permutations(made))


def output(producer):
    name = "gone" if producer.object is not None and producer.object.remove else "x"
    return StepOutput(name=producer.name, output=name)


def step(draw, name, inputs, before):
    """Return a script, or an object step; a delete step (those with steps before them) removes one."""
    objects = [each.name for each in before if each.object is not None]
    at = draw(st.sampled_from(("", "", "", "pool", "claim")))
    if before and objects and draw(st.booleans()):
        removed = KubeObject(remove=draw(st.sampled_from(objects)))
        return Step(name=name, inputs=inputs, object=removed)
    if not before and draw(st.integers(0, 3)) == 0:
        field = Output(name="x", value_from_json_path="$.data.a")
        return Step(name=name, inputs=inputs, outputs=(field,), object=MANIFEST)
    script = MENTION if draw(st.integers(0, 5)) == 0 else "#!/bin/sh\n"
    return Step(name=name, inputs=inputs, outputs=(Output(name="x", value_from_path="/tmp/x"),), script=script, at=at)


@st.composite
def plugins(draw):
    """Return a plugin whose delete steps have `at: claim` where they must, so that most pools are possible."""
    create = draw(steps("c", ()))
    delete = draw(steps("d", tuple(create)))
    fixed = draw(st.sets(st.sampled_from(PARAMS), min_size=1))
    spec = PluginSpec(create=tuple(create), delete=tuple(delete))
    for _ in delete:
        found = pool_cut.cut(spec, fixed)
        spec = msgspec.structs.replace(spec, delete=tuple(_repaired(each, found) for each in spec.delete))
    return Plugin(name="p", version="1.0.0", spec=spec), sorted(fixed & spec.params().keys())


def _repaired(each, found):
    if found.delete[each.name] and each.object is None:
        return msgspec.structs.replace(each, at="claim")
    return each


def sandbox(name, params):
    resources = (Resource(name="db", plugin="p", params=params),)
    return Sandbox(name=name, spec=SandboxSpec(cluster="c", resources=resources))


def compiled(plugin, name, fixed, pools=()):
    params = {key: "fixed" if key in fixed else f"of-{name}" for key in plugin.spec.params()}
    known = {(plugin.name, plugin.version): plugin}
    return dayfly.compile.compile(sandbox(name, params), known, uid=name, routing_key="k", pools=pools)


def order(units):
    """Return all pairs of units of which the first must end before the second starts."""
    needs = {unit.name: {item.from_.unit for item in unit.inputs if item.from_} | set(unit.after) for unit in units}
    pairs = {(first, name) for name, firsts in needs.items() for first in firsts if first in needs}
    while longer := {(a, d) for (a, b), (c, d) in itertools.product(pairs, pairs) if b == c} - pairs:
        pairs |= longer
    return pairs


def _pool(plugin, fixed):
    wish = ResourcePool(name="warm", spec=ResourcePoolSpec(plugin="p", params=dict.fromkeys(fixed, "fixed"), ready=1))
    try:
        return dayfly.compile.compile_pool(wish, plugin)
    except SpecError:
        return None


@given(plugins())
def test_pool_of_a_random_plugin_keeps_every_step_and_order(made):
    plugin, fixed = made
    pool = _pool(plugin, fixed)
    assume(pool is not None)
    (template,) = pool.documents
    cold = compiled(plugin, "cold", fixed).documents[0]
    warm = compiled(plugin, "warm", fixed, [pool])
    holder = warm.documents[0]
    assert warm.pools == {"db": "warm"}
    _check_create(plugin, template, holder)
    _check_template(plugin, template, fixed)
    assert compiled(plugin, "other", fixed, [pool]).documents[0].template == holder.template
    _check_references(holder, warm.documents)
    _check_delete(cold, template, holder)


def _check_create(plugin, template, holder):
    early = [unit.name for unit in template.pre_start]
    obtained = [unit.name for unit in holder.pre_start if unit.kind == Kind.ACQUIRE]
    late = [unit.name for unit in holder.pre_start if unit.kind != Kind.ACQUIRE]
    assert early == obtained
    assert sorted(early + late) == sorted(step.name for step in plugin.spec.create)
    assert all(set(unit.after) == set(early) for unit in holder.pre_start if unit.kind != Kind.ACQUIRE)


def _check_template(plugin, template, fixed):
    units = (*template.pre_start, *template.post_stop)
    names = {unit.name for unit in units}
    # Only an author's `at: pool` allows the mention of a variable.
    allowed = {step.name for step in (*plugin.spec.create, *plugin.spec.delete) if step.at == "pool"}
    for unit in units:
        assert all(item.from_.unit in names if item.from_ else item.value == "fixed" for item in unit.inputs)
        assert all(item.name in fixed for item in unit.inputs if not item.from_)
        assert unit.exec is None or unit.exec.env == {}
        assert unit.exec is None or unit.exec.script != MENTION or unit.name in allowed


def _check_references(holder, documents):
    names = {unit.name for unit in (*holder.pre_start, *holder.post_stop)}
    for unit in (*holder.pre_start, *holder.post_stop):
        assert {item.from_.unit for item in unit.inputs if item.from_} <= names
        assert set(unit.after) <= names
    plan = sealed.seal(documents)
    assert all(name in plan.steps for step in plan.steps.values() for name in step.needs)
    assert not any(first == second for units in (holder.pre_start, holder.post_stop) for first, second in order(units))


def _check_delete(cold, template, holder):
    member = {unit.name for unit in template.post_stop}
    mine = {unit.name for unit in holder.post_stop if unit.kind != Kind.ACQUIRE}
    assert member | mine == {unit.name for unit in cold.post_stop}
    (release,) = (unit for unit in holder.post_stop if unit.kind == Kind.ACQUIRE)
    assert set(release.after) == mine
    in_member, in_holder = order(template.post_stop), order(holder.post_stop)
    for first, second in order(cold.post_stop):
        if second in mine:
            assert (first, second) in in_holder, (first, second)
        if second in member:
            # Steps of the sandbox run before all of the member. A step that runs in both halves has had its order then.
            assert (first, second) in in_member or first in mine, (first, second)
    for unit in cold.post_stop:
        read = {item.from_.unit for item in unit.inputs if item.from_} & member
        assert unit.name not in member or {(name, unit.name) for name in read} <= in_member
    for document in (template, holder):
        made = {unit.name for unit in document.pre_start if unit.object is not None}
        removed = {unit.object.remove for unit in document.post_stop if unit.object is not None}
        assert removed == made
