"""Lifecycle hooks: every rule with the place of its fault, selectors, and kinds without hooks."""

import pytest
from tests.spec.marked_text import load, refusal

from dayfly.spec import documents, lifecycle_hook
from dayfly.spec.errors import SpecError, with_article
from dayfly.spec.lifecycle import LifecycleEvent
from dayfly.spec.lifecycle_hook import Hold, LifecycleHook, Selector
from dayfly.spec.parsing import text
from dayfly.spec.steps import object_kinds

HEAD = "kind: LifecycleHook\nmetadata: {name: backup}\nspec:\n"
SELECTOR = "  selector: {apiVersion: cluster.example.org/v1, kind: Machine}\n"
STEP = "  preStop:\n  - name: a\n    script: '#!/bin/sh'\n"
AFTER = STEP.replace("preStop", "postStop")
HOOK = HEAD + SELECTOR + STEP
INPUT = HOOK + "    inputs:\n    - "


def selecting(selector: str) -> str:
    return HEAD + f"  selector: {selector}\n" + STEP


def kind(version: str, name: str) -> str:
    return selecting(f"{{apiVersion: {version}, §kind: {name}}}")


REFUSED = {
    "no name": ("§kind: LifecycleHook\nspec: {}", "", "has no name"),
    "name": (HOOK.replace("name: backup", "§name: Backup"), "metadata.name", "lower-case"),
    "name with a dot": (HOOK.replace("name: backup", "§name: a.b"), "metadata.name", "63 lower-case letters"),
    "long name": (HOOK.replace("name: backup", f"§name: {'a' * 64}"), "metadata.name", "at most 63"),
    "name at the top": (f"§name: a_b\nkind: LifecycleHook\nspec:\n{SELECTOR}{STEP}", "name", "not the name of a hook"),
    "version of Dayfly": (f"§apiVersion: v1\n{HOOK}", "apiVersion", "write dayfly.dev/v1alpha1"),
    "unknown field": (HOOK + "  §bogus: 1", "spec.bogus", 'unknown field "bogus"; known here: selector, started'),
    "unknown field of a step": (HOOK + "    §after: b", "spec.preStop[0].after", "known here"),
    "no selector": (HEAD.replace("spec", "§spec") + STEP, "spec", '"selector"'),
    "no steps": (HEAD.replace("spec", "§spec") + SELECTOR, "spec", "at least one under preStart, postStart, preStop"),
    "empty steps": (HEAD.replace("spec", "§spec") + SELECTOR + "  preStop: []", "spec", "has no steps"),
    "selector without kind": (selecting("{apiVersion: v1}").replace("sel", "§sel"), "spec.selector", '"kind"'),
    "form of the kind": (kind("v1", "machine"), "spec.selector.kind", "like Job"),
    "form of the version": (
        selecting("{§apiVersion: batch, kind: Job}"),
        "spec.selector.apiVersion",
        "needs apiVersion, like batch/v1",
    ),
    "secrets": (kind("v1", "Secret"), "spec.selector.kind", "hooks are not allowed for a Secret: its content would be"),
    "pods": (kind("v1", "Pod"), "spec.selector.kind", "each step is a pod itself"),
    "namespaces": (kind("v1", "Namespace"), "spec.selector.kind", "belongs to no namespace"),
    "rights": (kind("rbac.authorization.k8s.io/v1", "RoleBinding"), "spec.selector.kind", "it gives rights"),
    "leases": (kind("coordination.k8s.io/v1", "Lease"), "spec.selector.kind", "would stop the cluster's own work"),
    "Dayfly's kinds": (kind("dayfly.dev/v1alpha1", "Sandbox"), "spec.selector.kind", "one of Dayfly's own kinds"),
    "of another version": (kind("dayfly.dev/v9", "New"), "spec.selector.kind", "one of Dayfly's own kinds"),
    "namespace": (
        selecting("{apiVersion: a.b/v1, kind: M, namespaces: [shop, §Shop]}"),
        "spec.selector.namespaces[1]",
        "not a namespace name",
    ),
    "Dayfly's namespace": (
        selecting("{apiVersion: a.b/v1, kind: M, namespaces: [§dayfly-runners]}"),
        "spec.selector.namespaces[0]",
        "is Dayfly's own",
    ),
    "namespace twice": (
        selecting("{apiVersion: a.b/v1, kind: M, namespaces: [shop, §shop]}"),
        "spec.selector.namespaces[1]",
        "twice",
    ),
    "too many namespaces": (
        selecting(f"{{apiVersion: a.b/v1, kind: M, §namespaces: [{', '.join(f'n{n}' for n in range(257))}]}}"),
        "spec.selector.namespaces",
        "at most 256",
    ),
    "label that is no string": (
        selecting("{apiVersion: a.b/v1, kind: M, labels: {§backup: yes}}"),
        "spec.selector.labels.backup",
        'write "yes" in quotes',
    ),
    "key of a label": (
        selecting("{apiVersion: a.b/v1, kind: M, labels: {§a/b/c: x}}"),
        'spec.selector.labels["a/b/c"]',
        "not a valid label key",
    ),
    "value of a label": (
        selecting("{apiVersion: a.b/v1, kind: M, labels: {§a: b c}}"),
        "spec.selector.labels.a",
        "not a valid label value",
    ),
    "too many labels": (
        selecting(f"{{apiVersion: a.b/v1, kind: M, §labels: {{{', '.join(f'a{n}: b' for n in range(33))}}}}}"),
        "spec.selector.labels",
        "at most 32",
    ),
    "started by nothing": (HOOK + "  §started: {}", "spec.started", "exactly one of condition, when and contract"),
    "started by two": (HOOK + "  §started: {condition: A, contract: true}", "spec.started", "2 are given"),
    "stopped by a bad path": (
        HOOK + "  stopped: {when: {§path: status, in: [a]}}",
        "spec.stopped.when.path",
        'begin it with "$"',
    ),
    "stopped by contract": (HOOK + "  stopped: {§contract: true}", "spec.stopped.contract", "write condition or when"),
    "hold without place": (HOOK + "  §hold: {value: a}", "spec.hold", "exactly one of annotation and path; neither"),
    "hold with two": (HOOK + "  §hold: {annotation: a, path: /spec/a}", "spec.hold", "both"),
    "annotation": (HOOK + "  hold: {§annotation: a b}", "spec.hold.annotation", "not a valid annotation key"),
    "Dayfly's annotation": (
        HOOK + "  hold: {§annotation: lifecycle.dayfly.dev/x}",
        "spec.hold.annotation",
        "Dayfly's own",
    ),
    "value of an annotation": (HOOK + "  hold: {annotation: a, §value: 1}", "spec.hold.value", "in quotes"),
    "value that is a list": (HOOK + "  hold: {path: /spec/a, §value: [1]}", "spec.hold.value", "must be"),
    "long value": (HOOK + f"  hold: {{annotation: a, §value: {'a' * 1025}}}", "spec.hold.value", "at most 1024"),
    "field without value": (HOOK + "  §hold: {path: /spec/a}", "spec.hold", "needs the value"),
    "no pointer": (HOOK + "  hold: {§path: spec.a, value: 1}", "spec.hold.path", "not a JSON Pointer like /spec/hold"),
    "pointer to all": (HOOK + "  hold: {§path: '/', value: 1}", "spec.hold.path", "not a JSON Pointer"),
    "pointer to finalizers": (
        HOOK + "  hold: {§path: /metadata/finalizers, value: a}",
        "spec.hold.path",
        "write annotation",
    ),
    "pointer to status": (HOOK + "  hold: {§path: /status/a, value: a}", "spec.hold.path", "status is not allowed"),
    "pointer into a list": (HOOK + "  hold: {§path: /spec/a/0/b, value: a}", "spec.hold.path", "outside lists"),
    "pointer to a list's end": (HOOK + "  hold: {§path: /spec/a/-, value: a}", "spec.hold.path", "outside lists"),
    "hold without preStop": (
        HEAD + SELECTOR + AFTER + "  §hold: {annotation: a}",
        "spec.hold",
        "there are no preStop steps",
    ),
    "runner": (
        HOOK + "  runner: {image: a, §podTemplateOverlay: 'spec: {restartPolicy: Always}'}",
        "spec.runner.podTemplateOverlay",
        "must be Never",
    ),
    "step": (
        HOOK.replace("- name", "- §name") + "    webhook: {method: GET, url: 'http://a'}",
        "spec.preStop[0]",
        "exactly one of script, command, webhook and object",
    ),
    "a sandbox's variable": (
        HEAD
        + SELECTOR
        + "  postStop:\n  - name: a\n    webhook:\n      method: DELETE\n      url: https://a.example.com\n"
        + "      query: {x: {§$env: DAYFLY_SANDBOX_NAME}}",
        'spec.postStop[0].webhook.query.x["$env"]',
        "is not one of DAYFLY_HOOK_NAME, DAYFLY_TARGET_API_VERSION",
    ),
    "step name": (HOOK.replace("name: a\n", "§name: a.b\n"), "spec.preStop[0].name", "not a step name"),
    "name twice": (
        HOOK + AFTER.replace("name: a", "§name: a"),
        "spec.postStop[0].name",
        "the first is spec.preStop[0].name",
    ),
    "input without source": (INPUT + "§name: x", "spec.preStop[0].inputs[0]", "0 are given"),
    "input with two sources": (
        INPUT + "§name: x\n      value: a\n      valueFromTarget: $.a",
        "spec.preStop[0].inputs[0]",
        "value, valueFromStep and valueFromTarget; 2 are given",
    ),
    "no JSONPath": (
        INPUT + "name: x\n      §valueFromTarget: spec.volume",
        "spec.preStop[0].inputs[0].valueFromTarget",
        'begin it with "$"',
    ),
    "half a JSONPath": (
        INPUT + "name: x\n      §valueFromTarget: $.a[",
        "spec.preStop[0].inputs[0].valueFromTarget",
        "is not a JSONPath query",
    ),
    "a regular expression": (
        INPUT + "name: x\n      §valueFromTarget: \"$[?search(@, 'a')]\"",
        "spec.preStop[0].inputs[0].valueFromTarget",
        "match and search can take any time",
    ),
    "empty JSONPath": (
        INPUT + "name: x\n      §valueFromTarget: ''",
        "spec.preStop[0].inputs[0].valueFromTarget",
        "is not a JSONPath query",
    ),
    "from a sandbox": (
        INPUT + "name: x\n      §valueFromSandbox: true",
        "spec.preStop[0].inputs[0].valueFromSandbox",
        "has no params; write value, valueFromStep or valueFromTarget",
    ),
    "from a resource": (
        INPUT + "name: x\n      §valueFrom: {resource: {name: a, outputKey: b.c}}",
        "spec.preStop[0].inputs[0].valueFrom",
        "has no resources",
    ),
    "required": (
        INPUT + "name: x\n      value: a\n      §required: true",
        "spec.preStop[0].inputs[0].required",
        "leave it out",
    ),
    "from a step that has no name": (
        INPUT + "name: x\n      valueFromStep: {§name: '', output: a}",
        "spec.preStop[0].inputs[0].valueFromStep.name",
        "cannot be empty",
    ),
    "undoes before the stop": (HOOK + "    §undoes: b", "spec.preStop[0].undoes", "belongs to a postStop step"),
    "undoes at the start": (
        HEAD + SELECTOR + STEP.replace("preStop", "preStart") + "    §undoes: b",
        "spec.preStart[0].undoes",
        "belongs to a postStop step",
    ),
    "undoes what has no name": (HEAD + SELECTOR + AFTER + "    §undoes: b.c", "spec.postStop[0].undoes", "a step name"),
    "removal that undoes": (
        HEAD + SELECTOR + "  postStop:\n  - name: a\n    object: {remove: b}\n    §undoes: b",
        "spec.postStop[0].undoes",
        "undoes the step that creates it",
    ),
    "object before the stop": (
        HEAD + SELECTOR + "  preStop:\n  - name: a\n    §object: {remove: b}",
        "spec.preStop[0].object",
        "does not run when the hook is removed",
    ),
    "endless step with a limit": (
        HEAD + SELECTOR + AFTER + "    retry: {§limit: 2}",
        "spec.postStop[0].retry.limit",
        "tried until it succeeds",
    ),
}


@pytest.mark.parametrize(("source", "path", "word"), REFUSED.values(), ids=REFUSED)
def test_refused(source: str, path: str, word: str):
    error = refusal(source)
    assert error.path == path
    assert word in error.problem


def test_all_hook_errors_are_reported_together():
    body = HOOK.replace("backup", "Backup") + "  hold: {path: /status/a, value: 1}\n  stopped: {contract: true}\n"
    with pytest.raises(SpecError) as caught:
        load(body.replace("kind: Machine", "kind: Machine, namespaces: [Shop]"))
    paths = [fault.path for fault in (caught.value, *caught.value.others)]
    assert paths == ["metadata.name", "spec.selector.namespaces[0]", "spec.stopped.contract", "spec.hold.path"]


WHOLE = """\
apiVersion: dayfly.dev/v1alpha1
kind: LifecycleHook
metadata:
  name: volume-backup
  labels: {kept: by-kubectl}
spec:
  selector:
    apiVersion: cluster.example.org/v1
    kind: Machine
    namespaces: [shop]
    labels: {backup: "yes"}
  started: {condition: Ready}
  stopped: {when: {path: $.status.phase, in: [Stopped, null]}}
  hold: {path: /spec/hold, value: true}
  runner: {image: busybox}
  preStart:
  - name: register
    inputs: [{name: uid, valueFromTarget: $.metadata.uid}]
    outputs: [{name: id, valueFromPath: /tmp/id}]
    script: "#!/bin/sh"
  postStart:
  - name: note
    object: {manifest: {apiVersion: v1, kind: ConfigMap}}
  preStop:
  - name: backup
    inputs: [{name: volume, valueFromTarget: "$.spec['volume']", as: {path: /tmp/volume}}]
    script: "#!/bin/sh"
  postStop:
  - name: unregister
    undoes: register
    inputs: [{name: id, valueFromStep: {name: register, output: id}}]
    webhook: {method: DELETE, url: "https://a.example.com", path: [{$input: id}]}
"""


def test_a_whole_one_comes_and_goes_again():
    hook = load(WHOLE)
    assert isinstance(hook, LifecycleHook)
    assert hook.name == "volume-backup"
    assert hook.finalizer == "lifecycle.dayfly.dev/volume-backup"
    assert hook.spec.hold == Hold(path="/spec/hold", value=True)
    assert [[step.name for step in hook.spec.steps(event)] for event in LifecycleEvent] == [
        ["register"],
        ["note"],
        ["backup"],
        ["unregister"],
    ]
    wire = documents.export(hook)
    assert wire["spec"]["postStop"][0]["undoes"] == "register"
    assert wire["spec"]["preStop"][0]["outputs"] == []
    assert documents.from_wire(wire, "LifecycleHook") == hook
    assert documents.load(text.parse_one(text.dump(wire), file="kept")) == hook  # recognised by its form


@pytest.mark.parametrize(
    "hold", ["annotation: example.org/hold", "annotation: a, value: ''", "path: /spec/a~1b, value: 0"]
)
def test_holds_that_may_be(hold: str):
    load(HOOK + f"  hold: {{{hold}}}")


@pytest.mark.parametrize("name", [*lifecycle_hook.TARGET_VARIABLES, "DAYFLY_RESOURCE_ID"])
def test_variables_that_a_webhook_may_send(name: str):
    load(
        HEAD
        + SELECTOR
        + f"  postStop: [{{name: a, webhook: {{method: DELETE, url: 'https://a', path: [{{$env: {name}}}]}}}}]"
    )
    body = f"name: p\nspec: {{create: [{{name: a, webhook: {{method: PUT, url: 'https://a', body: {{a: {{§$env: {name}}}}}}}}}]}}"
    if name in lifecycle_hook.TARGET_VARIABLES:
        assert "is not one of DAYFLY_SANDBOX_NAME" in refusal(body).problem


@pytest.mark.parametrize("name", ["a", "0", "a" * 63, "volume-backup-2"])
def test_names_that_may_be(name: str):
    assert load(HOOK.replace("backup", f"'{name}'")).name == name


def selector(**more) -> Selector:
    return Selector(api_version="v1", kind="ConfigMap", **more)


@pytest.mark.parametrize(
    ("meant", "namespace", "labels", "takes"),
    [
        (selector(), "shop", {}, True),
        (selector(), "kubernetes", {}, True),
        (selector(), "kube-system", {}, False),
        (selector(namespaces=("kube-system",)), "kube-system", {}, True),
        (selector(namespaces=("shop", "bank")), "bank", {}, True),
        (selector(namespaces=("shop",)), "bank", {}, False),
        (selector(namespaces=("shop",)), "shopping", {}, False),
        (selector(), "", {}, False),
        (selector(namespaces=("",)), "", {}, False),
        (selector(labels={"a": "b"}), "shop", {"a": "b", "c": "d"}, True),
        (selector(labels={"a": "b"}), "shop", {"a": "c"}, False),
        (selector(labels={"a": "b", "c": "d"}), "shop", {"a": "b"}, False),
        (selector(labels={"a": ""}), "shop", {}, False),
        *((selector(namespaces=(own,)), own, {}, False) for own in lifecycle_hook.OWN_NAMESPACES),
        *((selector(), own, {}, False) for own in lifecycle_hook.OWN_NAMESPACES),
    ],
)
def test_selector_matches_namespace_and_labels(meant: Selector, namespace: str, labels: dict[str, str], takes: bool):
    assert meant.matches(namespace, labels) is takes


@pytest.mark.parametrize(("group", "name"), object_kinds.no_targets())
def test_every_refused_kind_is_refused_in_every_version(group: str, name: str):
    spelled = "Anything" if name == object_kinds.ANY else name
    for version in ("v1", "v7beta2"):
        body = kind(f"{group}/{version}" if group else version, spelled)
        error = refusal(body)
        assert error.problem.startswith(f"hooks are not allowed for {with_article(spelled)}: ")


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("v1", "ConfigMap"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "ResourceQuota"),
        ("argoproj.io/v1alpha1", "Application"),
        ("argoproj.io/v1alpha1", "Rollout"),
        ("kubernetes.crossplane.io/v1alpha2", "Object"),
        ("secret.example.org/v1", "Secret"),
    ],
)
def test_kinds_that_hooks_may_go_with(version: str, name: str):
    assert load(kind(version, name).replace("§", "")).spec.selector.kind == name


def test_refused_object_kind_is_no_hook_target():
    """No kind that issues rights or credentials, changes admission or is Dayfly's is among the exceptions."""
    never = {"it gives rights", "it issues a token or a certificate", "it changes the cluster's admission"}
    for group, name in object_kinds.refused():
        version = f"{group}/v1" if group else "v1"
        spelled = "Anything" if name == object_kinds.ANY else name
        if object_kinds.why_refused(version, spelled) in never or group == "dayfly.dev":
            assert object_kinds.why_no_target(version, spelled)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (
            "name: p\nspec:\n  create:\n  - name: a\n    script: '#!/bin/sh'\n    §undoes: b",
            "spec.create[0].undoes",
        ),
        (
            "name: s\nspec:\n  cluster: c\n  hooks:\n    preStop:\n    - {name: a, inputs: [{name: x, §valueFromTarget: $.a}]}",
            "spec.hooks.preStop[0].inputs[0].valueFromTarget",
        ),
    ],
)
def test_hook_only_fields_are_refused_elsewhere(body: str, path: str):
    error = refusal(body)
    assert error.path == path
    assert "unknown field" in error.problem
