"""Random documents: those with an order compile, the others are refused with a real cycle."""

import itertools
import re
from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dayfly.compile
from dayfly.compile import graph
from dayfly.plan import sealed
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import LifecycleEvent, unit_id
from dayfly.spec.plugin import Input, Output, PluginSpec, Step, StepOutput
from dayfly.spec.sandbox import (
    Customizations,
    Env,
    EnvSource,
    Fork,
    Hooks,
    Param,
    Resource,
    Sandbox,
    SandboxSpec,
)
from dayfly.spec.sandbox_rules import check_sandbox
from dayfly.spec.steps.value_from import HookSource, ResourceOutput, ValueFrom, WorkloadRef

RESOURCES = ("a", "b", "c")


def _step(name, inputs):
    outputs = tuple(Output(name=output, value_from_path=f"/tmp/{output}") for output in ("x", "y"))
    return Step(name=name, script="#!/bin/sh", inputs=tuple(inputs), outputs=outputs)


def _output(draw):
    return draw(st.sampled_from(("x", "y")))


class Wish:
    """Units `resource/step` with their reads, as a sandbox with inline plugins."""

    def __init__(self, units, edges, cleanups=()):
        self.units = units  # (resource, step), in document order
        self.edges = edges  # (reader, producer, output)
        self.cleanups = cleanups  # resources with a delete step that reads all create steps of the resource

    def sandbox(self, hooks=None, forks=()):
        resources = []
        for name in RESOURCES:
            params = {}
            create = [_step(unit[1], self._inputs(unit, params)) for unit in self.units if unit[0] == name]
            delete = []
            if name in self.cleanups:
                reads = [StepOutput(name=step.name, output="x") for step in create]
                delete = [_step("gone", [Input(name=f"i{n}", value_from_step=ref) for n, ref in enumerate(reads)])]
            if create:
                spec = PluginSpec(create=tuple(create), delete=tuple(delete))
                resources.append(Resource(name=name, spec=spec, params=params))
        wish = Sandbox(
            name="box", spec=SandboxSpec(cluster="c", resources=tuple(resources), hooks=hooks, forks=tuple(forks))
        )
        check_sandbox(wish)
        return wish

    def _inputs(self, unit, params):
        for number, (reader, producer, output) in enumerate(self.edges):
            if reader != unit:
                continue
            if producer[0] == unit[0]:
                yield Input(name=f"i{number}", value_from_step=StepOutput(name=producer[1], output=output))
            else:
                wanted = ResourceOutput(name=producer[0], output_key=f"{producer[1]}.{output}")
                params[f"i{number}"] = Param(value_from=ValueFrom(resource=wanted))
                yield Input(name=f"i{number}", value_from_sandbox=True)


@st.composite
def orderly(draw, *, by_resource=False):
    """Return units in random order, and edges that follow it; with `by_resource` resources follow an order too."""
    units = draw(st.lists(st.tuples(st.sampled_from(RESOURCES), st.sampled_from("pqrst")), min_size=2, unique=True))
    if by_resource:
        units.sort(key=lambda unit: unit[0])
    edges = []
    for place, reader in enumerate(units[1:], start=1):
        producers = draw(st.lists(st.sampled_from(units[:place]), max_size=3))
        edges += [(reader, producer, _output(draw)) for producer in producers]
    return units, edges


def _compile(wish):
    return dayfly.compile.compile(wish, {}, uid="u", routing_key="k")


@given(orderly(by_resource=True), st.data())
def test_acyclic_sandbox_compiles_and_keeps_its_order(found, data):
    units, edges = found
    cleanups = data.draw(st.sets(st.sampled_from(RESOURCES)))
    wish = Wish(data.draw(st.permutations(units)), edges, cleanups)
    read = data.draw(st.lists(st.sampled_from(units), max_size=3))
    wanted = [ResourceOutput(name=name, output_key=f"{step}.x") for name, step in read]
    inputs = [Input(name=f"h{n}", value_from=HookSource(resource=ref)) for n, ref in enumerate(wanted)]
    event = data.draw(st.sampled_from(Hooks.__struct_fields__))
    env = tuple(Env(name=f"E{n}", value_from=EnvSource(resource=ref)) for n, ref in enumerate(wanted))
    fork = Fork(
        fork_of=WorkloadRef(kind="Deployment", namespace="shop", name="web"), customizations=Customizations(env=env)
    )
    compiled = _compile(wish.sandbox(Hooks(**{event: (_step("hook", inputs),)}), [fork]))
    plan = sealed.seal(compiled.documents, compiled.forks)

    assert plan.steps.keys() == {unit_id(*unit) for unit in units} | {"hook"} | {
        f"{name}/gone" for name in cleanups if name in {unit[0] for unit in units}
    }
    outputs = {(step.id, output.name) for step in plan.steps.values() for output in step.unit.outputs}
    for step in plan.steps.values():
        refs = [(unit_id(ref.resource or step.resource, ref.unit), ref.output) for ref in sealed.references(step.unit)]
        assert set(refs) <= outputs
        if step.event is LifecycleEvent.PRE_START and step.resource:
            said = [(unit_id(*p), output) for reader, p, output in edges if unit_id(*reader) == step.id]
            assert sorted(refs) == sorted(said)
    for kept in plan.kept.values():
        assert set(kept.reads) == {unit_id(*unit) for unit in read}
    TopologicalSorter({step.id: step.needs for step in plan.steps.values()}).prepare()
    _check_preview(dayfly.compile.preview(compiled), plan)


def _check_preview(seen, plan):
    started = set()
    for event in seen.events:
        for wave in event.waves:
            for line in wave:
                assert set(plan.steps[line.id].reads) <= started
            started |= {line.id for line in wave}
    assert started == plan.steps.keys()
    cleaned = set()
    for stage in seen.deletion:
        if stage.what == LifecycleEvent.POST_STOP:
            for name in stage.units:
                readers = plan.readers[plan.steps[name].resource]
                owed = {
                    step.id for reader in readers for step in plan.steps_by_resource[reader][LifecycleEvent.POST_STOP]
                }
                assert owed <= cleaned
            cleaned |= set(stage.units)


@given(orderly(), st.data())
def test_a_back_edge_is_always_reported_as_a_cycle_that_is_there(found, data):
    units, edges = found
    last = data.draw(st.sampled_from(units))
    before, frontier = {last}, [last]
    while frontier:
        reader = frontier.pop()
        frontier += [p for r, p, _ in edges if r == reader and p not in before]
        before |= {p for r, p, _ in edges if r == reader}
    first = data.draw(st.sampled_from(sorted(before)))
    edges = data.draw(st.permutations([*edges, (first, last, _output(data.draw))]))
    wish = Wish(data.draw(st.permutations(units)), edges).sandbox()
    with pytest.raises(SpecError) as caught:
        _compile(wish)
    fault = caught.value
    head, _, cycle = fault.problem.partition(": ")
    assert head == "steps that wait for each other can never start"
    stops = cycle.split(" -> ")
    within = re.fullmatch(r"spec\.resources\[(\d)\]\.spec\.create.*\.valueFromStep", fault.path)
    prefix = wish.spec.resources[int(within[1])].name + "/" if within else ""
    there = {(f"{unit_id(*producer)}.{output}", unit_id(*reader)) for reader, producer, output in edges}
    assert stops[0] == stops[-1]
    assert len(set(stops)) == len(stops) - 1
    for now, following in itertools.pairwise(stops):
        assert (prefix + now, prefix + following.partition(".")[0]) in there


@given(orderly(), st.sets(st.sampled_from(RESOURCES)))
def test_only_cleanups_in_a_cycle_are_refused(found, cleanups):
    units, edges = found
    readers = {name: set() for name in cleanups}
    for (reader, _), (producer, _), _ in edges:
        if reader != producer and {reader, producer} <= cleanups:
            readers[producer].add(reader)
    try:
        TopologicalSorter(readers).prepare()
        stuck = False
    except CycleError:
        stuck = True
    wish = Wish(units, edges, cleanups).sandbox()
    if stuck:
        with pytest.raises(SpecError, match="resources that read each other can never be cleaned up"):
            _compile(wish)
    else:
        compiled = _compile(wish)
        _check_preview(dayfly.compile.preview(compiled), sealed.seal(compiled.documents))


@given(orderly())
def test_edges_that_follow_an_order_have_no_cycle(found):
    _, edges = found
    assert graph.find_cycle(graph.Edge(unit_id(*r), unit_id(*p), output) for r, p, output in edges) == ()


def test_the_cycle_begins_with_the_reference_that_came_first():
    edges = [graph.Edge(*names) for names in (("z", "a", "o"), ("c", "b", "o"), ("a", "c", "o"), ("b", "a", "o"))]
    assert graph.find_cycle(edges) == (edges[1], edges[2], edges[3])
    assert graph.describe(graph.find_cycle(edges)) == "b.o -> c.o -> a.o -> b.o"


def test_waves_keep_the_order_and_take_outsiders_for_done():
    needs = {"a": ["c"], "b": ["elsewhere"], "c": [], "d": ["a", "b"]}
    assert graph.waves(["a", "b", "c", "d"], needs) == (("b", "c"), ("a",), ("d",))
    assert graph.waves([], {}) == ()
