"""The fields of object steps: the resulting units, removal of the object, and every error with its path."""

import pytest
from tests.compile.builders import plugin_refusal, run
from tests.compile.builders import refusal as refused
from tests.spec.marked_text import load, refusal

from dayfly.compile import preview
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import Object, Ref, SecretKey, UnitOutput

STEP = """\
name: p
spec:
  create:
  - name: make
    inputs:
    - {name: size, valueFromSandbox: true}
    object:
"""
GOOD = """\
      manifest: {apiVersion: v1, kind: ConfigMap, data: {size: "1"}, list: [a]}
"""
HERE = "spec.create[0].object"


def step(more="", made=GOOD):
    """Return a plugin with one object step. `more` has other fields of the step."""
    return STEP + made + more


def field(line):
    return step(made=GOOD + f"      {line}\n")


def manifest(text):
    return step(made=f"      manifest: {text}\n")


def meta(text):
    return manifest(f"{{apiVersion: v1, kind: ConfigMap, metadata: {text}}}")


def placed(pointer):
    return step(made=GOOD + f"      set:\n        §{pointer}: {{input: size}}\n")


REFUSED = {
    "a script too": (
        step("    script: |\n      #!/bin/sh\n").replace("- name: make", "- §name: make"),
        "spec.create[0]",
        "needs exactly one of script, command, webhook and object; script and object are given",
    ),
    "an unknown field": (field("§wait: 1"), f"{HERE}.wait", 'unknown field "wait"; known here: manifest, set'),
    "nothing": (
        step(made="      ready: {}\n").replace("object:", "§object:"),
        HERE,
        "exactly one of manifest and remove",
    ),
    "no kind": (
        manifest("{§apiVersion: v1}").replace("manifest: {§", "§manifest: {"),
        f"{HERE}.manifest",
        "needs kind",
    ),
    "version": (manifest("{§apiVersion: 1.0, kind: A}"), f"{HERE}.manifest.apiVersion", "needs apiVersion, like"),
    "a kind of rights": (
        manifest("{apiVersion: rbac.authorization.k8s.io/v1, §kind: Role}"),
        f"{HERE}.manifest.kind",
        "no step may create a Role: it gives rights",
    ),
    "a token": (
        manifest("{apiVersion: v1, kind: Secret, §type: kubernetes.io/service-account-token}"),
        f"{HERE}.manifest.type",
        "no step may create a Secret of type kubernetes.io/service-account-token",
    ),
    "a status": (
        manifest("{apiVersion: v1, kind: ConfigMap, §status: {}}"),
        f"{HERE}.manifest.status",
        "the object's controller writes its status",
    ),
    "namespace": (
        meta("{§namespace: x}"),
        f"{HERE}.manifest.metadata.namespace",
        "is created in the sandbox's namespace",
    ),
    "generateName": (meta("{§generateName: x}"), f"{HERE}.manifest.metadata.generateName", "Dayfly derives one"),
    "owners": (meta("{§ownerReferences: []}"), f"{HERE}.manifest.metadata.ownerReferences", "its owner"),
    "finalizers": (meta("{§finalizers: [a/b]}"), f"{HERE}.manifest.metadata.finalizers", "after its deletion"),
    "unknown meta": (meta("{§x: 1}"), f"{HERE}.manifest.metadata.x", "is not one of name, labels, annotations"),
    "a name": (meta("{§name: A_b}"), f"{HERE}.manifest.metadata.name", "is not the name of an object"),
    "our label": (
        meta("{labels: {§dayfly.dev/run: x}}"),
        f'{HERE}.manifest.metadata.labels["dayfly.dev/run"]',
        "are Dayfly's own",
    ),
    "our annotation": (
        meta("{annotations: {§lifecycle.dayfly.dev/x: x}}"),
        f'{HERE}.manifest.metadata.annotations["lifecycle.dayfly.dev/x"]',
        "are Dayfly's own",
    ),
    "a label's number": (meta("{labels: {§a: 1}}"), f"{HERE}.manifest.metadata.labels.a", "must be a string"),
    "no pointer": (placed("data.size"), f'{HERE}.set["data.size"]', "is not a JSON Pointer"),
    "a pointer's escape": (placed("/data/~2"), f'{HERE}.set["/data/~2"]', "is not a JSON Pointer"),
    "the kind by input": (placed("/kind"), f'{HERE}.set["/kind"]', "kind cannot come from an input"),
    "the namespace by input": (
        placed("/metadata/namespace"),
        f'{HERE}.set["/metadata/namespace"]',
        "only labels and annotations",
    ),
    "all labels by input": (placed("/metadata/labels"), f'{HERE}.set["/metadata/labels"]', "/metadata/labels/KEY"),
    "our label by input": (
        placed("/metadata/labels/dayfly.dev~1run"),
        f'{HERE}.set["/metadata/labels/dayfly.dev~1run"]',
        "not Dayfly's own",
    ),
    "no parent": (placed("/spec/size"), f'{HERE}.set["/spec/size"]', "no mapping or list at /spec"),
    "no item": (placed("/list/1"), f'{HERE}.set["/list/1"]', "the list has no item 1"),
    "no such input": (
        step(made=GOOD + "      set: {/data/size: {§input: sice}}\n"),
        f'{HERE}.set["/data/size"].input',
        'this step has no input "sice"; it has "size"',
    ),
    "as": (
        step(made=GOOD + "      set: {/data/size: {input: size, §as: int}}\n"),
        f'{HERE}.set["/data/size"].as',
        "integer",
    ),
    "two verdicts": (
        field("§ready: {condition: Ready, contract: true}"),
        f"{HERE}.ready",
        "needs exactly one of condition, when and contract; 2 are given",
    ),
    "status alone": (
        field('ready: {contract: true, §status: "False"}'),
        f"{HERE}.ready.status",
        "belongs to a condition",
    ),
    "no JSONPath": (field("failed: {when: {§path: phase, in: [a]}}"), f"{HERE}.failed.when.path", "not a JSONPath"),
    "a regular expression": (
        field("ready: {when: {§path: \"$[?search(@, 'a')]\", in: [a]}}"),
        f"{HERE}.ready.when.path",
        "match and search can take any time; only webhooks may use them",
    ),
    "one in an output": (
        step().replace(
            "    object:", "    outputs: [{name: o, §valueFromJSONPath: \"$[?search(@, 'a')]\"}]\n    object:"
        ),
        "spec.create[0].outputs[0].valueFromJSONPath",
        "match and search can take any time; only webhooks may use them",
    ),
    "one in a Secret's name": (
        step().replace(
            "    object:",
            "    outputs: [{name: o, valueFromSecret: {key: k, §nameFromJSONPath: \"$[?search(@, 'a')]\"}}]\n    object:",
        ),
        "spec.create[0].outputs[0].valueFromSecret.nameFromJSONPath",
        "match and search can take any time; only webhooks may use them",
    ),
    "no value": (field("failed: {when: {path: $.phase, §in: []}}"), f"{HERE}.failed.when.in", "has no value"),
    "removal that creates": (step(made="      §remove: make\n"), f"{HERE}.remove", "a create step creates an object"),
    "as of an input": (
        step().replace("valueFromSandbox: true}", "valueFromSandbox: true, §as: {env: A}}"),
        "spec.create[0].inputs[0].as",
        "an object places its inputs with set",
    ),
    "again": (step("    retry: {§idempotent: true}\n"), "spec.create[0].retry.idempotent", "an object is created once"),
    "pull": (step("    timeouts: {§pull: 1m}\n"), "spec.create[0].timeouts.pull", "an object has only timeouts.run"),
    "a path": (
        step("    outputs: [{name: a, §valueFromPath: /a}]\n"),
        "spec.create[0].outputs[0].valueFromPath",
        "this step is an object; write valueFromJSONPath or valueFromSecret instead",
    ),
    "no Secret": (
        step("    outputs: [{name: a, §valueFromSecret: {key: a}}]\n"),
        "spec.create[0].outputs[0].valueFromSecret",
        "needs exactly one of name and nameFromJSONPath; neither is given",
    ),
    "a Secret of a webhook": (
        step(
            "    outputs: [{name: a, §valueFromSecret: {key: a, name: b}}]\n",
            "      method: GET\n      url: https://a.example/\n",
        ).replace("object:", "webhook:"),
        "spec.create[0].outputs[0].valueFromSecret",
        "this step is a webhook",
    ),
    "too large": (
        manifest('{apiVersion: v1, kind: ConfigMap, data: {a: "%s"}}' % ("x" * 131_072)).replace(
            "manifest", "§manifest"
        ),
        f"{HERE}.manifest",
        "a manifest has at most 131072",
    ),
}
CHECKED_WITH_OTHERS = {"removal that creates"}


@pytest.mark.parametrize("case", [case for case in REFUSED if case not in CHECKED_WITH_OTHERS])
def test_each_mistake_has_its_place(case):
    source, path, words = REFUSED[case]
    error = refusal(source)
    assert error.path == path
    assert words in str(error)


def test_all_mistakes_of_an_object_step_are_reported_together():
    with pytest.raises(SpecError) as caught:
        load(
            step(
                made="      manifest: {apiVersion: v1, kind: Pod}\n"
                "      set: {/a/b: {input: x}}\n      ready: {}\n      failed: {}\n"
            )
        )
    found = [caught.value, *caught.value.others]
    at = f'{HERE}.set["/a/b"]'
    assert [each.path for each in found] == [
        f"{HERE}.manifest.kind", at, f"{at}.input", f"{HERE}.ready", f"{HERE}.failed"
    ]  # fmt: skip


PLUGIN = """\
name: job
spec:
  create:
  - name: claim
    inputs:
    - {name: size, valueFromSandbox: true}
    outputs:
    - {name: host, valueFromJSONPath: $.status.host}
    - {name: password, valueFromSecret: {nameFromJSONPath: $.spec.secret, key: password}}
    timeouts: {run: 5m}
    object:
      manifest: {apiVersion: db.example.org/v1, kind: Claim, spec: {size: 0, secret: creds}}
      set: {/spec/size: {input: size, as: integer}}
      ready: {condition: Ready}
  - name: schema
    inputs:
    - {name: host, valueFromStep: {name: claim, output: host}}
    script: "#!/bin/sh"
    outputs: [{name: tables, valueFromPath: /tmp/tables}]
  - name: load
    inputs:
    - {name: tables, valueFromStep: {name: schema, output: tables}}
    object: {manifest: {apiVersion: v1, kind: ConfigMap, data: {a: b}}, set: {/data/a: {input: tables}}}
  delete:
  - name: dump
    inputs:
    - {name: host, valueFromStep: {name: claim, output: host}}
    script: "#!/bin/sh"
  - name: tidy
    script: "#!/bin/sh"
"""
BOX = "name: box\nspec:\n  cluster: local\n  resources:\n  - {name: db, plugin: job, params: {size: '3'}}\n"


def test_object_unit_is_removed_after_its_readers():
    document = run(BOX, PLUGIN).documents[0]
    claim, _, load_ = document.pre_start
    assert (claim.kind, claim.timeouts.run_ms, claim.timeouts.grace_ms) == ("object", 300_000, 0)
    assert claim.object.written["set"] == {"/spec/size": {"input": "size", "as": "integer"}}
    assert claim.outputs[1] == UnitOutput(
        name="password", secret=SecretKey(key="password", json_path="$.spec.secret"), sensitive=True
    )
    assert load_.object.written["manifest"]["kind"] == "ConfigMap"
    dump, tidy, last, first = document.post_stop
    assert [dump.name, tidy.name] == ["dump", "tidy"]
    assert (last.name, first.name) == ("remove-claim", "remove-load")
    assert last.object == Object(remove="claim")
    assert [item.from_ for item in last.inputs] == [Ref(unit=name, output="gone") for name in ("dump", "remove-load")]
    assert first.inputs == ()
    assert (last.timeouts.run_ms, last.retry.limit, last.retry.idempotent) == (0, 0, True)


def test_object_param_may_exceed_the_variable_limit():
    plugin = """\
name: job
spec:
  create:
  - name: make
    inputs: [{name: size, valueFromSandbox: true}]
    object: {manifest: {apiVersion: v1, kind: ConfigMap, data: {}}, set: {/data/size: {input: size}}}
"""
    (make,) = run(BOX.replace("'3'", "x" * 70_000), plugin).documents[0].pre_start
    assert len(make.inputs[0].value) == 70_000


def test_explicit_removal_step_decides_its_order():
    own = (
        "  - name: rm\n    inputs: [{name: x, valueFromStep: {name: rm2, output: gone}}]\n    object: {remove: claim}\n"
    )
    own += "  - name: rm2\n    object: {remove: load}\n"
    (_, _, claim, load_) = run(BOX, PLUGIN + own).documents[0].post_stop
    assert [claim.name, load_.name] == ["rm", "rm2"]
    assert claim.inputs[0].from_ == Ref(unit="rm2", output="gone")
    assert [output.name for output in load_.outputs] == ["gone"]


WRONG = {
    "of nobody": ("  - name: rm\n    object: {remove: tidy}\n", 'no step "tidy" creates an object'),
    "twice": (
        "  - name: rm\n    object: {remove: claim}\n  - name: rn\n    object: {remove: claim}\n",
        '"rm" already removes it',
    ),
    "made at the end": (
        "  - name: rm\n    object: {manifest: {apiVersion: v1, kind: ConfigMap}}\n",
        "a delete step cannot create an object, which would never be removed",
    ),
    "a name that is taken": ('  - name: remove-load\n    script: "#!/bin/sh"\n', 'would be named "remove-load"'),
    "no such output": (
        (
            "  - name: rm\n    object: {remove: load}\n"
            '  - name: x\n    inputs: [{name: a, valueFromStep: {name: rm, output: b}}]\n    script: "#!/bin/sh"\n'
        ),
        'the step "rm" has no output "b"; there is "gone"',
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_removal_is_refused_with_its_path(case):
    more, words = WRONG[case]
    with pytest.raises(SpecError) as caught:
        run(BOX, PLUGIN + more)
    assert words in str(caught.value)
    assert caught.value.file == "plugin.yaml"
    assert caught.value.line


def test_delete_step_cannot_create_an_object():
    source, _, words = REFUSED["removal that creates"]
    assert words in plugin_refusal(source)


def test_stop_hook_creates_no_object():
    hooks = "  hooks:\n    preStop:\n    - name: a\n      object: {§manifest: {apiVersion: v1, kind: ConfigMap}}\n"
    assert "a preStop hook cannot create an object" in refused("name: box\nspec:\n  cluster: local\n" + hooks)


def test_removals_count_among_the_units_of_a_run():
    many = "".join(
        f"  - name: s{number}\n    object: {{manifest: {{apiVersion: v1, kind: ConfigMap}}}}\n" for number in range(129)
    )
    with pytest.raises(SpecError, match="258 steps, hooks and forks are too many"):
        run(BOX.replace(", params: {size: '3'}", ""), "name: job\nspec:\n  create:\n" + many)


def test_plan_shows_created_and_removed_objects():
    create, delete = preview(run(BOX, PLUGIN)).events
    line = create.waves[0][0]
    assert (line.request, line.clocks, line.tries) == ("makes a Claim", "is ready within 5 min", "once")
    assert [each.path for each in line.outputs] == ["$.status.host of the object", "password of Secret $.spec.secret"]
    lines = {each.id: each for wave in delete.waves for each in wave}
    assert lines["db/remove-claim"].request == "removes the object of claim"
    assert lines["db/remove-claim"].clocks == "no time limit until it is gone"
    assert [each.id for each in delete.waves[-1]] == ["db/remove-claim"]


def test_a_plugin_comes_back_as_it_was_written():
    wish = load(PLUGIN)
    assert documents.from_wire(documents.export(wish), "ResourcePlugin") == wish
