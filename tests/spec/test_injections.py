"""Variables that inputs must not use."""

import pytest

from dayfly.spec import documents
from dayfly.spec.errors import SpecError

SCRIPT = "#!/bin/sh\n"
OURS = ("dayfly-resource-id", "DAYFLY-ATTEMPT", "dayfly-x", "signadot-sandbox-name")
STEERING = (
    "path",
    "Path",
    "home",
    "ifs",
    "tmpdir",
    "ld-preload",
    "LD-LIBRARY-PATH",
    "bash-env",
    "shellopts",
    "pythonpath",
    "node-options",
    "shell",
    "ps4",
    "traceparent",
    "lua-init",
    "java-tool-options",
)
SET_BY_SHELLS = ("lineno", "optind", "ppid", "pwd", "random")


def step(name, **more):
    return {"name": "a", "script": SCRIPT, "inputs": [{"name": name, "valueFromSandbox": True, **more}]}


def as_plugin(wanted):
    spec = {"create": [], "delete": [wanted]}
    return documents.from_wire({"name": "p", "spec": spec}, "ResourcePlugin")


def as_object(wanted):
    """Return a plugin as the operator reads it."""
    body = {
        "apiVersion": "dayfly.dev/v1alpha1",
        "kind": "ResourcePlugin",
        "metadata": {"name": "p.0.0.0"},
        "spec": {"name": "p", "create": [wanted]},
    }
    return documents.from_wire(body, "ResourcePlugin")


def in_place(wanted):
    resources = [{"name": "r", "spec": {"create": [wanted]}}]
    return documents.from_wire({"name": "box", "spec": {"cluster": "c", "resources": resources}}, "Sandbox")


def as_hook(wanted):
    inputs = [{key: value for key, value in wanted["inputs"][0].items() if key != "valueFromSandbox"} | {"value": "x"}]
    hooks = {"preStart": [wanted | {"inputs": inputs}]}
    return documents.from_wire({"name": "box", "spec": {"cluster": "c", "hooks": hooks}}, "Sandbox")


def as_lifecycle_hook(wanted):
    inputs = [{key: value for key, value in wanted["inputs"][0].items() if key != "valueFromSandbox"} | {"value": "x"}]
    spec = {"selector": {"apiVersion": "v1", "kind": "ConfigMap"}, "preStart": [wanted | {"inputs": inputs}]}
    return documents.from_wire({"name": "h", "spec": spec}, "LifecycleHook")


FORMS = (as_plugin, as_object, in_place, as_hook, as_lifecycle_hook)


def refusal(form, wanted):
    with pytest.raises(SpecError) as fault:
        form(wanted)
    return fault.value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*OURS, *STEERING, *SET_BY_SHELLS])
def test_input_named_after_a_reserved_variable_is_refused(form, name):
    fault = refusal(form, step(name))
    variable = name.upper().replace("-", "_")
    assert fault.keys[-3:] == ("inputs", 0, "name")
    assert fault.problem.startswith(f'the input "{name}" would be ${variable}, ')
    assert fault.problem.endswith("; choose another variable: as: {env: ...}")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variable", ["DAYFLY_RESOURCE_ID", "DAYFLY_", "SIGNADOT_SANDBOX_NAME"])
def test_chosen_variable_of_dayfly_is_refused(form, variable):
    fault = refusal(form, step("id", **{"as": {"env": variable}}))
    assert fault.keys[-2:] == ("as", "env")
    assert "Dayfly sets variables of that name" in fault.problem


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("path", {"as": {"env": "FOLDER"}}),
        ("path", {"as": {"env": "PATH"}}),
        ("path", {"as": {"path": "/tmp/path"}}),
        ("paths", {}),
        ("dayfly", {}),
        ("ld", {}),
        ("user", {}),
        ("env", {}),
        ("seconds", {}),
        ("pwd", {"as": {"env": "PWD"}}),
    ],
)
def test_other_variables_are_accepted(form, name, more):
    form(step(name, **more))


def test_webhook_input_may_have_any_name():
    webhook = {"method": "PUT", "url": "https://x.example/a", "body": {"p": {"$input": "path"}}}
    as_plugin({"name": "a", "webhook": webhook, "inputs": [{"name": "path", "valueFromSandbox": True}]})


@pytest.mark.parametrize("variable", ["TF_HTTP_ADDRESS", "TF_HTTP_PASSWORD", "TF_WORKSPACE", "TF_DATA_DIR"])
@pytest.mark.parametrize("state", [True, False])
def test_input_that_moves_the_state_is_refused(variable, state):
    wanted = step("x", **{"as": {"env": variable}})
    body = {"name": "p", "spec": {"state": state, "create": [wanted], "delete": [{"name": "b", "script": SCRIPT}]}}
    if not state:
        documents.from_wire(body, "ResourcePlugin")
        return
    with pytest.raises(SpecError) as fault:
        documents.from_wire(body, "ResourcePlugin")
    assert fault.value.keys == ("spec", "create", 0, "inputs", 0)
    assert fault.value.problem == f"{variable} configures the state, and Dayfly sets it; remove the input"
