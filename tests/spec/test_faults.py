"""The errors report all faults at once, each with its place, without faults that only follow from others."""

import pytest
from tests.spec.marked_text import load

from dayfly.spec.errors import Faults, SpecError, parse_path, render_path


def faults(source):
    """Return every fault as `line: path: problem`."""
    with pytest.raises(SpecError) as caught:
        load(source)
    every = (caught.value, *caught.value.others)
    assert all(not each.others for each in caught.value.others)
    return [f"{each.line}: {each.path}: {each.problem}" for each in every]


def starts(source, *wanted):
    found = faults(source)
    assert len(found) == len(wanted), found
    for each, start in zip(found, wanted, strict=True):
        assert each.startswith(start), found


def test_plugin_rule_violations_are_reported_with_lines():
    starts(
        """\
name: p
spec:
  create:
  - name: a_b
    script: echo
    timeouts: {run: 5x, grace: 0s}
    inputs:
    - name: one
    - {name: two, valueFromSandbox: true, value: x}
  - name: c
    script: "#!/bin/sh"
    outputs: [{name: o, valueFromPath: tmp/x}]
  delete:
  - {name: c, script: "#!/bin/sh", retry: {limit: 3}}
""",
        '4: spec.create[0].name: "a_b" is not a step name',
        "5: spec.create[0].script: must begin with #!",
        "6: spec.create[0].timeouts.run: ",
        "6: spec.create[0].timeouts.grace: ",
        "8: spec.create[0].inputs[0]: needs exactly one",
        "9: spec.create[0].inputs[1].value: ",
        "12: spec.create[1].outputs[0].valueFromPath: ",
        "14: spec.delete[0].retry.limit: ",
        "14: spec.delete[0].name: ",
    )


def test_a_bad_name_hides_nothing():
    starts(
        """\
name: a_b@1
spec:
  create:
  - {name: c, script: echo}
  - name: d
    webhook: {method: POST, url: "https://x.test", path: [{$input: {a: b}}]}
""",
        '1: name: "a_b" is not a plugin name',
        "4: spec.create[0].script: must begin with #!",
        '6: spec.create[1].webhook.path[0]["$input"]: this step has no input',
    )


def test_decoding_errors_are_reported_without_consequences():
    """A misspelt field is not reported as missing, and a list of the wrong kind not as empty."""
    starts(
        """\
name: p
spec:
  descripton: x
  create:
  - name: a
    script: [x]
    inptus: []
  - scirpt: x
    name: b
  - name: yes
    script: "#!/bin/sh"
    outputs: {o: x}
  delete: none
""",
        '3: spec.descripton: unknown field "descripton"',
        "6: spec.create[0].script: must be a string, not a list",
        '7: spec.create[0].inptus: unknown field "inptus"',
        '8: spec.create[1].scirpt: unknown field "scirpt"',
        '10: spec.create[2].name: "yes" is a boolean in YAML',
        "12: spec.create[2].outputs: must be a list, not a mapping",
        "13: spec.delete: must be a list, not a string",
    )


def test_sandbox_errors_are_reported_with_lines():
    starts(
        """\
name: 1x
spec:
  cluster: c
  ttl: {duration: 5y}
  resources:
  - {name: a_b, plugin: p}
  - {name: b}
  forks:
  - forkOf: {kind: Pod, namespace: shop, name: m}
  hooks:
    preStart: [{name: s, script: echo}]
""",
        '1: name: "1x"',
        "4: spec.ttl.duration: ",
        "9: spec.forks[0].forkOf.kind: ",
        '6: spec.resources[0].name: "a_b"',
        "7: spec.resources[1]: needs exactly one of plugin and spec",
        "11: spec.hooks.preStart[0].script: must begin",
    )


def test_single_fault_is_reported_once():
    found = Faults()
    with found:
        raise SpecError("x")
    with pytest.raises(SpecError) as caught:
        found.settle()
    assert caught.value.others == ()
    with pytest.raises(ValueError, match="other"), found:
        raise ValueError("other")


@pytest.mark.parametrize("keys", [("spec",), ("spec", "resources", 0, "params", "a-b"), ("labels", "a.b/c", 3, "x y")])
def test_a_way_that_was_written_is_read_again(keys):
    assert parse_path(render_path(keys)) == keys


@pytest.mark.parametrize("text", ["", "no way", "spec.", "spec..a", "the cluster cannot run this", "a[", "a[x]", "a]"])
def test_invalid_path_is_read_as_empty(text):
    assert parse_path(text) == ()


@pytest.mark.parametrize("key", ["input", "as", "/data/a"])
def test_a_key_of_a_users_mapping_may_be_called_as_a_field_is(key):
    starts(
        f"""\
name: p
spec:
  create:
  - name: a
    inputs: [{{name: x, valueFromSandbox: true}}]
    object:
      manifest: {{apiVersion: v1, kind: ConfigMap}}
      set:
        {key}: {{input: x, bogus: 1}}
""",
        f"9: {render_path(('spec', 'create', 0, 'object', 'set', key, 'bogus'))}: "
        'unknown field "bogus"; known here: input, as',
    )


def test_param_value_error_ignores_the_param_name():
    starts(
        """\
name: s
spec:
  cluster: local
  resources:
  - name: db
    plugin: p
    params:
      valueFrom: {resource: {name: a, outputKey: b}, valueFrom: {resource: {name: a, outputKey: b}}}
""",
        '8: spec.resources[0].params.valueFrom.resource: unknown field "resource"; known here: valueFrom',
    )
