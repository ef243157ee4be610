"""The document for an object that is older than its hook: nothing in it refers to preStart."""

from dayfly import compile as compiler
from dayfly.operator.hooks.hook_runs import without_pre_start
from dayfly.plan.sealed import seal
from dayfly.spec import documents
from dayfly.spec.lifecycle import Target, digest

TARGET = Target(api_version="cluster.example.org/v1", kind="Machine", namespace="shop", name="m", uid="u")


def step(name, *reads, **more):
    inputs = [
        {
            "name": each.replace(".", "-"),
            "valueFromStep": dict(zip(("name", "output"), each.split("."), strict=True)),
            "as": {"env": each.replace(".", "_").upper()},
        }
        for each in reads
    ]
    inputs.append({"name": "plain", "value": "1", "as": {"env": "PLAIN"}})
    output = {"name": "out", "valueFromPath": "/outputs/out"}
    return {"name": name, "script": "#!/bin/sh\n", "inputs": inputs, "outputs": [output], **more}


def document(**events):
    selector = {"apiVersion": TARGET.api_version, "kind": TARGET.kind}
    hook = documents.from_wire({"name": "h", "spec": {"selector": selector, **events}}, "LifecycleHook", name="h")
    return compiler.compile_hook(hook, TARGET)


def test_steps_without_pre_start_get_no_inputs_from_it():
    whole = document(
        preStart=[step("before")],
        postStart=[step("warm", "before.out")],
        preStop=[step("drain", "warm.out")],
        postStop=[step("tidy", "before.out", undoes="before"), step("report", "tidy.out", "drain.out")],
    )
    left = without_pre_start(whole)
    assert left.pre_start == ()
    assert [unit.name for unit in left.post_stop] == ["report"]
    assert left.post_start[0].inputs[0].from_ is None
    assert left.pre_stop == whole.pre_stop
    assert [item.from_ is None for item in left.post_stop[0].inputs] == [True, False, True]
    assert left.post_stop[0].inputs[2].value == "1"
    plan = seal((left,))
    assert all(name in plan.steps for each in plan.steps.values() for name in each.needs)


def test_document_without_pre_start_is_unchanged():
    whole = document(preStop=[step("drain")])
    assert digest(without_pre_start(whole)) == digest(whole)
