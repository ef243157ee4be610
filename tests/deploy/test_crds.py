"""Our kinds on a real API server: accepted, explained, shown, and bad input refused with the place and the reason."""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.policy.apiserver import ROOT

from dayfly.compile.compiler import compile as compiled
from dayfly.operator.cluster import objects
from dayfly.spec import documents, kinds, run
from dayfly.spec.lifecycle import Target, digest
from dayfly.spec.parsing import template, text
from dayfly.spec.plugin import Plugin
from dayfly.spec.schema import crd

CLUSTER = [pytest.mark.cluster, pytest.mark.timeout(120, func_only=True)]
BASE = "/apis/dayfly.dev/v1alpha1"
SCRIPT = "#!/bin/sh\n"
SELECTOR = {"apiVersion": "cluster.example.org/v1", "kind": "Machine"}
VARIABLES = {
    "folder": "/tmp/x",
    "region": "eu",
    "state-folder": "/tmp/state",
    "server": "https://dns.example.com",
    "image": "busybox",
    "storage-class": "standard",
    "machinery": "minicluster",
    "size": "4",
    "server-image": "redis:7",
}


def wish(path: Path):
    """One file of an example, as its author would have it."""
    document = text.parse_one(path.read_text(), file=str(path))
    variables = {name: value for name, value in VARIABLES.items() if f"@{{{name}}}" in path.read_text()}
    return documents.load(template.expand(document, variables, lambda name: (path.parent / name).read_bytes()))


def manifest(made):
    """Return a document in the format for kubectl."""
    data = documents.export(made)
    head = {"apiVersion": "dayfly.dev/v1alpha1", "kind": type(made).__name__}
    if isinstance(made, Plugin):
        head["kind"] = "ResourcePlugin"
        return {
            **head,
            "metadata": {"name": documents.object_name(made)},
            "spec": {"name": data["name"], **data["spec"]},
        }
    return {**head, "metadata": {"name": made.name}, "spec": data["spec"]}


EXAMPLES = sorted(ROOT.glob("examples/*/*.yaml"))
WISHES = [path for path in EXAMPLES if path.name in ("plugin.yaml", "sandbox.yaml", "hook.yaml")]
NAMESPACED = {"Sandbox": "sandboxes", "RouteGroup": "routegroups", "ResourcePool": "resourcepools"}
PLURALS = {
    "ResourcePlugin": "resourceplugins",
    "LifecycleHook": "lifecyclehooks",
    "LeakCheck": "leakchecks",
    "Run": "runs",
    "ObjectLifecycleMethods": "objectlifecyclemethods",
}


def place(body):
    if body["kind"] in NAMESPACED:
        return f"{BASE}/namespaces/default/{NAMESPACED[body['kind']]}?fieldValidation=Strict"
    return f"{BASE}/{PLURALS[body['kind']]}?fieldValidation=Strict"


LABEL = {"key": "team", "value": "pay*"}


def group(name="pay", **spec):
    """Return a route group with changed fields; None removes a field."""
    body = {"match": {"label": LABEL}, **spec}
    wish = {key: value for key, value in body.items() if value is not None}
    head = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "RouteGroup", "metadata": {"name": name}}
    return {**head, "spec": wish}


def pool(name="warm", **spec):
    """Return a pool with changed fields; None removes a field, except in params."""
    spec = {"plugin": "p@1.0.0", "ready": 2, **spec}
    wish = {key: value for key, value in spec.items() if value is not None}
    head = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "ResourcePool", "metadata": {"name": name}}
    return {**head, "spec": wish}


WINDOW = {"cron": "0 7 * * *", "duration": "1h", "ready": 5}


def without_value(message):
    """The server's sentence but for the value at fault, which may be a whole script."""
    return re.sub(r'Invalid value: "[^"]*": ', "Invalid value: ", message)


def plugin(spec=None, *, name="p@1.0.0", meta="p.1.0.0"):
    """Return a plugin with one step and changed fields."""
    body = {"name": name, "runner": {"image": "x"}, "create": [{"name": "a", "script": SCRIPT}]}
    body |= spec or {}
    return {"apiVersion": "dayfly.dev/v1alpha1", "kind": "ResourcePlugin", "metadata": {"name": meta}, "spec": body}


def step(**more):
    return plugin({"create": [{"name": "a", "script": SCRIPT, **more}]})


def sandbox(name="s", **spec):
    spec = {"cluster": "c", **spec}
    return {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": spec}


def hook(name="h", **spec):
    """Return a hook with one step and changed fields."""
    body = {"selector": SELECTOR, "preStop": [{"name": "a", "script": SCRIPT}], **spec}
    return {"apiVersion": "dayfly.dev/v1alpha1", "kind": "LifecycleHook", "metadata": {"name": name}, "spec": body}


def hooked(event="preStop", **more):
    """Return a hook with one step of one event; `more` are fields of the step."""
    return hook(**({"preStop": []} | {event: [{"name": "a", "script": SCRIPT, **more}]}))


def fork(**customizations):
    of = {"kind": "Deployment", "namespace": "default", "name": "web"}
    return {"forkOf": of, "customizations": customizations}


TOLD = {"forkOf": fork()["forkOf"], "expression": "{{.Service.Host}}"}


def of_fork(source):
    """A hook with an input from there."""
    return {"name": "a", "script": SCRIPT, "inputs": [{"name": "x", "valueFrom": source}]}


def baseline(**of):
    """Return a sandbox with a fork of one baseline with changed fields."""
    return sandbox(forks=[{"forkOf": {**fork()["forkOf"], **of}}])


REFUSED = [
    (baseline(namespace="sec b"), "spec.forks[0].forkOf.namespace in body should match"),
    (baseline(namespace="../sec-b"), "spec.forks[0].forkOf.namespace in body should match"),
    (baseline(namespace="a/secrets/bait"), "spec.forks[0].forkOf.namespace in body should match"),
    (baseline(name="a%2fb"), "spec.forks[0].forkOf.name in body should match"),
    (sandbox(runner={"namespace": "kube-system/pods?watch=1"}), "spec.runner.namespace in body should match"),
    (sandbox(local=[{"from": {"namespace": ".."}}]), "spec.local[0].from.namespace in body should match"),
    (
        sandbox(defaultRouteGroup={"endpoints": [{"name": "a", "target": "http://a.b%2fc.svc:80"}]}),
        "spec.defaultRouteGroup.endpoints[0].target in body should match",
    ),
    (hook(selector={**SELECTOR, "apiVersion": "../v1"}), "spec.selector.apiVersion in body should match"),
    (plugin({"runner": {"namespace": "a/b"}}), "spec.runner.namespace in body should match"),
    (plugin(meta="p.2"), 'metadata.name must be "p.1.0.0", which is spec.name in lower case with . for @'),
    (plugin(name="p@1"), "spec.name in body should match"),
    (plugin({"create": []}), "spec: Invalid value: has neither create nor delete steps: write at least one"),
    (
        plugin({"delete": [{"name": "a", "script": SCRIPT}]}),
        "spec: Invalid value: a create and a delete step have the same name",
    ),
    (plugin({"create": [{"name": "a", "script": SCRIPT}] * 2}), 'spec.create[1]: Duplicate value: {"name":"a"}'),
    (
        plugin({"create": [{"name": "a"}]}),
        "spec.create[0]: Invalid value: needs exactly one of script, command, webhook and object",
    ),
    (
        step(script=None, object={"manifest": {}, "remove": "b"}),
        "spec.create[0].object: Invalid value: needs exactly one of manifest and remove",
    ),
    (
        step(script=None, object={"remove": "b"}),
        "spec.create[0].object: Invalid value: a create step creates an object",
    ),
    (
        plugin({"delete": [{"name": "a", "object": {"manifest": {"kind": "Job"}}}]}),
        "spec.delete[0].object: Invalid value: a delete step removes the object of a create step: write remove",
    ),
    (
        step(script=None, object={"manifest": {}, "ready": {"condition": "A", "contract": True}}),
        "spec.create[0].object.ready: Invalid value: needs exactly one of condition, when and contract",
    ),
    (
        step(script=None, object={"manifest": {}}, outputs=[{"name": "a", "valueFromPath": "/a"}]),
        "spec.create[0].outputs: Invalid value: an output of an object has valueFromJSONPath or valueFromSecret",
    ),
    (
        step(script=None, command=["$(TOOL)", "x"]),
        "spec.create[0].command: Invalid value: has no program, or a program with variables",
    ),
    (step(script=None, command=[]), "spec.create[0].command: Invalid value: 0: spec.create[0].command in body should"),
    (
        step(script=None, command=["x"], outputs=[{"name": "a", "valueFromStatus": True}]),
        "spec.create[0].outputs: Invalid value: an output of a script or command has valueFromPath",
    ),
    (step(script="echo"), "spec.create[0].script: Invalid value: must begin with #!"),
    (step(name="1a"), "spec.create[0].name in body should match"),
    (step(name="a" * 31), "spec.create[0].name: Too long: may not be more than 30"),
    (step(colour="red"), 'unknown field "spec.create[0].colour"'),
    (step(inputs=[{"name": "x"}]), "spec.create[0].inputs[0]: Invalid value: a plugin's input needs exactly one of"),
    (
        step(inputs=[{"name": "x", "value": "1"}]),
        "spec.create[0].inputs[0]: Invalid value: a plugin's input needs exactly one of",
    ),
    (
        step(inputs=[{"name": "x", "valueFromSandbox": True, "as": {"path": "tmp"}}]),
        'spec.create[0].inputs[0].as.path: Invalid value: is not an absolute path: begin it with "/"',
    ),
    (
        step(inputs=[{"name": "x", "valueFromSandbox": True, "as": {"env": "A-B"}}]),
        "spec.create[0].inputs[0].as.env in body should match",
    ),
    (
        step(outputs=[{"name": "x", "valueFromPath": "/proc/1"}]),
        "spec.create[0].outputs[0].valueFromPath: Invalid value: is in a folder where no step may write",
    ),
    (
        step(outputs=[{"name": "x", "valueFromPath": "/a/../b"}]),
        "spec.create[0].outputs[0].valueFromPath in body should",
    ),
    (
        step(outputs=[{"name": "x", "valueFromPath": "/a"}, {"name": "x", "valueFromPath": "/b"}]),
        'spec.create[0].outputs[1]: Duplicate value: {"name":"x"}',
    ),
    (step(retry={"limit": 3}), "spec.create[0].retry.limit: Invalid value: only an idempotent step can be"),
    (step(timeouts={"run": "1 hour"}), "spec.create[0].timeouts.run in body should match"),
    (
        plugin({"delete": [{"name": "d", "script": SCRIPT, "retry": {"limit": 1}}]}),
        "spec.delete[0].retry.limit: Invalid value: a cleanup is retried until it succeeds; leave the limit out",
    ),
    (sandbox("UPPER"), "metadata.name: Invalid value"),
    (sandbox("a" * 31), "metadata.name: a sandbox name has at most 30 letters"),
    (sandbox("a.b"), "metadata.name: a sandbox name has at most 30 letters"),
    (sandbox(cluster=""), "spec.cluster in body should be at least 1 chars long"),
    (sandbox(cluster=None), "spec.cluster: "),
    (sandbox(ttl={"duration": "1y"}), "spec.ttl.duration in body should match"),
    (sandbox(ttl={"duration": "1h", "offsetFrom": "now"}), 'spec.ttl.offsetFrom: Unsupported value: "now"'),
    (sandbox(resources=[{"name": "r"}]), "spec.resources[0]: Invalid value: needs exactly one of plugin and spec"),
    (sandbox(resources=[{"name": "r", "plugin": "p@x"}]), "spec.resources[0].plugin in body should match"),
    (sandbox(resources=[{"name": "r", "plugin": "p"}] * 2), 'spec.resources[1]: Duplicate value: {"name":"r"}'),
    (
        sandbox(resources=[{"name": "r", "spec": {"create": [{"name": "a", "script": "x"}]}}]),
        "spec.resources[0].spec.create[0].script: Invalid value: must begin with #!",
    ),
    (sandbox(forks=[fork(), fork()]), "spec.forks: Invalid value: a baseline is forked once in a sandbox"),
    (sandbox(forks=[{"forkOf": {"kind": "Pod", "namespace": "a", "name": "b"}}]), 'Unsupported value: "Pod"'),
    (
        sandbox(forks=[fork(env=[{"name": "A", "value": "1", "valueFrom": {"secret": {"name": "a", "key": "b"}}}])]),
        "spec.forks[0].customizations.env[0]: Invalid value: has both value and valueFrom; leave one out",
    ),
    (
        sandbox(forks=[fork(env=[{"name": "A", "valueFrom": {}}])]),
        "spec.forks[0].customizations.env[0].valueFrom: Invalid value: needs exactly one of resource, fork, configMap",
    ),
    (
        sandbox(
            hooks={"preStart": [{"name": "a", "script": SCRIPT, "inputs": [{"name": "x", "valueFromSandbox": True}]}]}
        ),
        "spec.hooks.preStart[0].inputs[0]: Invalid value: a hook's input needs exactly one of value, valueFromStep",
    ),
    *(
        (
            sandbox(forks=[fork()], hooks={event: [of_fork({"fork": TOLD})]}),
            f"spec.hooks.{event}[0].inputs[0]: Invalid value: a hook's input needs exactly one of",
        )
        for event in ("preStart", "postStop")
    ),
    *(
        (
            sandbox(forks=[fork()], hooks={"postStart": [of_fork(source)]}),
            "spec.hooks.postStart[0].inputs[0].valueFrom: Invalid value: needs exactly one of resource and fork",
        )
        for source in ({}, {"fork": TOLD, "resource": {"name": "db", "outputKey": "a.b"}})
    ),
    (
        sandbox(defaultRouteGroup={"endpoints": [{"name": "a", "target": "ftp://x:1"}]}),
        "spec.defaultRouteGroup.endpoints[0].target in body should match",
    ),
    (sandbox(endpoints=[{"name": "a", "port": 70000}]), "spec.endpoints[0].port in body should be less than or equal"),
    (group("UPPER"), "metadata.name: Invalid value"),
    (group("a" * 31), "metadata.name: a route group name has at most 30 letters"),
    (group(match=None), "spec.match: "),
    (group(match={}), "spec.match: Invalid value: needs exactly one of label, any and all"),
    (group(match={"any": [], "label": LABEL}), "spec.match: Invalid value: needs exactly one of label, any and all"),
    (group(match={"label": {"key": "a"}}), "spec.match.label.value: Required value"),
    (group(match={"label": {"key": "", "value": "a"}}), "spec.match.label.key in body should be at least 1"),
    (group(match={"not": {}}), 'unknown field "spec.match.not"'),
    (group(ttl={"duration": "1h", "offsetFrom": "now"}), 'spec.ttl.offsetFrom: Unsupported value: "now"'),
    (group(endpoints=[{"name": "a", "target": "web"}]), "spec.endpoints[0].target in body should match"),
    (pool("a" * 31), "metadata.name: a pool name has at most 30 letters"),
    (pool(plugin=None), "spec.plugin: Required value"),
    (pool(plugin="-"), "spec.plugin in body should match"),
    (pool(auto={"max": 4}), "spec: Invalid value: needs exactly one of ready and auto"),
    (pool(ready=None), "spec: Invalid value: needs exactly one of ready and auto"),
    (pool(ready=-1), "spec.ready in body should be greater than or equal to 0"),
    (pool(ready=None, auto={"min": 5, "max": 4}), "spec.auto.min: Invalid value: min is more than max"),
    (pool(ready=None, auto={"max": 4, "hitRatio": 1.0}), "spec.auto.hitRatio in body should be less than or equal to"),
    (pool(ready=None, auto={"max": 4}, schedule=[WINDOW]), "spec.schedule: Invalid value: a window has more ready"),
    (pool(maxAge="1d"), "spec.maxAge in body should match"),
    (step(at="later"), 'spec.create[0].at: Unsupported value: "later"'),
    (sandbox(hooks={"preStart": [{"name": "a", "script": SCRIPT, "at": "pool"}]}), "spec.hooks.preStart[0].at: "),
    (sandbox(resources=[{"name": "r", "plugin": "p", "pool": "always"}]), "spec.resources[0].pool: Unsupported value"),
    (hook("a.b"), "metadata.name: a hook's name has at most 63 lower-case letters, digits and -"),
    (hook("a" * 64), "metadata.name: a hook's name has at most 63 lower-case letters, digits and -"),
    (hook(selector={"kind": "Machine"}), "spec.selector.apiVersion: Required value"),
    (hook(selector=SELECTOR | {"kind": "machine"}), "spec.selector.kind in body should match"),
    (hook(selector=SELECTOR | {"namespaces": ["a", "a"]}), 'spec.selector.namespaces[1]: Duplicate value: "a"'),
    (hook(selector=SELECTOR | {"namespaces": ["A"]}), "spec.selector.namespaces[0] in body should match"),
    (hook(preStop=[]), "spec: Invalid value: has no steps: write at least one under preStart, postStart, preStop"),
    (hook(started={}), "spec.started: Invalid value: needs exactly one of condition, when and contract"),
    (hook(stopped={"contract": True}), "spec.stopped: Invalid value: the contract states when an object is ready, not"),
    (hook(hold={"value": "x"}), "spec.hold: Invalid value: needs exactly one of annotation and path"),
    (
        hook(preStop=[], postStop=[{"name": "a", "script": SCRIPT}], hold={"annotation": "x"}),
        "spec.hold: Invalid value: makes the controller wait until preStop is done, but there are no preStop steps",
    ),
    (hook(preStop=[{"name": "a", "script": SCRIPT}] * 2), 'spec.preStop[1]: Duplicate value: {"name":"a"}'),
    (hooked(script="echo"), "spec.preStop[0].script: Invalid value: must begin with #!"),
    (hooked(undoes="b"), "spec.preStop[0].undoes: Invalid value: belongs to a postStop step; leave it out"),
    (hooked("preStart", undoes="b"), "spec.preStart[0].undoes: Invalid value: belongs to a postStop step"),
    (
        hooked(script=None, object={"remove": "b"}),
        "spec.preStop[0].object: Invalid value: a preStop step neither creates nor removes an object",
    ),
    (hooked("postStop", retry={"limit": 1}), "spec.postStop[0].retry.limit: Invalid value: a cleanup is retried until"),
    (
        hooked(inputs=[{"name": "x", "value": "1", "valueFromTarget": "$.a"}]),
        "spec.preStop[0].inputs[0]: Invalid value: a lifecycle hook's input needs exactly one of value, valueFromStep",
    ),
    (
        hooked(inputs=[{"name": "x", "valueFromSandbox": True}]),
        "spec.preStop[0].inputs[0]: Invalid value: a lifecycle hook's input needs exactly one of value, valueFromStep",
    ),
    (
        hooked(inputs=[{"name": "x", "valueFromTarget": "spec.a"}]),
        "spec.preStop[0].inputs[0].valueFromTarget in body should match",
    ),
]


def test_files_are_current():
    """deploy/crds is what the types say."""
    assert subprocess.run([sys.executable, ROOT / "scripts" / "crds.py", "--check"], check=False).returncode == 0


def test_operator_types_have_the_fields_of_the_crds():
    """The operator's own types have the fields of the generated ones."""
    # Only the fields of a status that a new process needs are stored, so that ten thousand of them are small.
    for ours, theirs, absent in (
        (objects.StoredStatus, kinds.SandboxStatus, set()),
        (objects.StoredStatus, kinds.ResourceStatus, {"endpoints"}),  # only a sandbox has any
        (objects.WrittenUnit, kinds.UnitStatus, set()),
        (objects.WrittenCondition, kinds.StatusCondition, set()),
    ):
        known, written = set(ours.__struct_encode_fields__), set(theirs.__struct_encode_fields__)
        assert known - written == absent
        assert known < written | absent
    served = {each["spec"]["names"]["kind"]: each["spec"] for each in crd.definitions()}
    for resource in (objects.RUNS, objects.DOCUMENTS, objects.SANDBOXES, objects.PLUGINS):
        assert served[resource.kind]["names"]["plural"] == resource.plural
        assert (served[resource.kind]["scope"] == "Namespaced") is resource.namespaced


def test_every_field_is_described():
    def walk(schema, path):
        if path:
            assert schema.get("description"), path
        for name, inner in schema.get("properties", {}).items():
            if name != "metadata" or path:
                walk(inner, f"{path}.{name}")
        if schema.get("items", {}).get("properties"):
            walk(schema["items"], f"{path}[]")

    for definition in crd.definitions():
        walk(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "")


class TestServer:
    pytestmark = CLUSTER

    @pytest.mark.parametrize("path", WISHES, ids=lambda path: f"{path.parent.name}-{path.stem}")
    def test_takes_every_example(self, served, path):
        """An example in kubectl's form is accepted, and what the server keeps means the same."""
        made = wish(path)
        body = manifest(made)
        answer = served.ask("POST", place(body), body)
        assert answer.status == 201, answer.message
        kept = {key: answer.body[key] for key in ("apiVersion", "kind", "metadata", "spec")}
        assert documents.load(text.parse_one(text.dump(kept), file="kept")) == made
        served.ask("DELETE", place(body).replace("?", f"/{body['metadata']['name']}?"))

    def test_server_splits_a_path_after_decoding_it(self, api):
        """So the client refuses a name with a slash: encoding it does not help."""
        found = api.ask("GET", "/api/v1/namespaces/default%2Fserviceaccounts").body
        assert found["kind"] == "ServiceAccountList"
        assert api.ask("GET", "/api/v1/namespaces/default%2Fx").status == 404

    @pytest.mark.parametrize(("body", "message"), REFUSED, ids=range(len(REFUSED)))
    def test_refuses(self, served, body, message):
        answer = served.ask("POST", place(body) + "&dryRun=All", body)
        assert answer.status in (400, 422), answer
        assert message in without_value(answer.message)

    def test_keeps_a_document_byte_for_byte(self, served):
        """The digest of a compiled document is the same after a way through the server."""
        made = wish(ROOT / "examples" / "s3-bucket" / "sandbox.yaml")
        bucket = wish(ROOT / "examples" / "s3-bucket" / "plugin.yaml")
        result = compiled(made, {("s3-bucket", "1.0.0"): bucket}, uid="u", routing_key="k", namespace="default")
        for number, document in enumerate(result.documents):
            sent = objects.DocumentObject(metadata=objects.AnnotatedMeta(name=f"d{number}"), spec=document)
            body = json.loads(msgspec.json.encode(sent)) | {
                "apiVersion": "dayfly.dev/v1alpha1",
                "kind": "ObjectLifecycleMethods",
            }
            answer = served.ask("POST", place(body), body)
            assert answer.status == 201, answer.message
            assert digest(msgspec.convert(answer.body, objects.DocumentObject).spec) == digest(document)
            answer.body["spec"]["resource"] = "other"
            changed = served.ask("PUT", f"{BASE}/objectlifecyclemethods/d{number}", answer.body)
            assert (changed.status, "a compiled document never changes" in changed.message) == (422, True)
        body["metadata"] = {"name": "newer"}
        body["spec"]["preStart"] = [{"name": "go", "kind": "of-a-newer-compiler"}]
        assert served.ask("POST", place(body), body).status == 201  # the operator reports that it cannot run it

    def test_keeps_a_ledger_as_it_is(self, served):
        """Every field of a run, with the newest forks, is there again after a way through the server."""
        made = wish(ROOT / "examples" / "s3-bucket" / "sandbox.yaml")
        bucket = wish(ROOT / "examples" / "s3-bucket" / "plugin.yaml")
        forks = compiled(made, {("s3-bucket", "1.0.0"): bucket}, uid="u", routing_key="k", namespace="default").forks
        output = run.OutputRecord(digest="sha256:" + "0" * 64, size=3, sensitive=True)
        records = {
            f"db/{state}": run.UnitRecord(
                attempt=2,
                state=state,
                outcome="failed" if state is run.State.DONE else "",
                reason="ResultLost",
                message="x" * 40_000,
                ref="uid",
                generation="g",
                claimed_at=1_800_000_000_000,
                started_at=1,
                ended_at=2,
                failures=1,
                voids=1,
                outputs={"bucket": output},
            )
            for state in run.State
        }
        request = run.EndRequest(at=1, reason="Deleted", message="deleted", by="ada")
        target = Target(api_version="dayfly.dev/v1alpha1", kind="Sandbox", namespace="default", name="s", uid="u")
        ledger = run.Run(
            uid="u",
            target=target,
            plan="sha256:0",
            seq=7,
            phase=run.Phase.CLOSED,
            born_at=1,
            units=records,
            closed=request,
            abandon=request,
            ended_at=3,
        )
        pin = kinds.Pin(name="d", uid="u", digest="sha256:" + "0" * 64)
        sent = objects.RunObject(
            metadata=objects.AnnotatedMeta(name="whole"),
            ledger=ledger,
            spec=kinds.RunSpec(documents=(pin,), forks=forks, plural="sandboxes"),
        )
        body = json.loads(msgspec.json.encode(sent)) | {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run"}
        answer = served.ask("POST", place(body), body)
        assert answer.status == 201, answer.message
        kept = msgspec.convert(answer.body, objects.RunObject)
        assert (kept.ledger, kept.spec) == (sent.ledger, sent.spec)
        columns = served.cluster.kubectl("get", "dfrun", "whole").splitlines()
        assert [line.split()[:4] for line in columns] == [
            ["NAME", "TARGET", "PHASE", "SEQ"],
            ["whole", "s", "closed", "7"],
        ]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"cluster": "other"}, "spec.cluster: Invalid value: cluster cannot change while the sandbox lives"),
            (
                {"resources": []},
                "resources cannot change while the sandbox lives; delete the sandbox and create it again",
            ),
            ({"resources": [{"name": "r", "plugin": "p@2.0.0", "params": {"a": "1"}}]}, "resources cannot change"),
            ({"resources": [{"name": "r", "plugin": "p@1.0.0", "params": {"a": "2"}}]}, "resources cannot change"),
            ({"hooks": None}, "hooks cannot change while the sandbox lives"),
            ({"hooks": {"preStop": []}}, "hooks cannot change while the sandbox lives"),
            ({"runner": {"image": "y"}}, "runner cannot change while the sandbox lives"),
        ],
    )
    def test_immutable_fields_of_a_live_sandbox_are_refused(self, served, change, message):
        self.make(served)
        answer = self.patch(served, change)
        assert answer.status == 422
        assert message in without_value(answer.message)

    @pytest.mark.parametrize(
        "change",
        [
            {"ttl": {"duration": "2h", "offsetFrom": "updatedAt"}},
            {"labels": {"a": "c"}},
            {"forks": [fork(images=[{"image": "x"}])]},
            {"description": "another"},
        ],
    )
    def test_mutable_fields_of_a_live_sandbox_are_accepted(self, served, change):
        self.make(served)
        answer = self.patch(served, change)
        assert answer.status == 200, answer.message

    def make(self, served):
        body = sandbox(
            "live",
            labels={"a": "b"},
            resources=[{"name": "r", "plugin": "p@1.0.0", "params": {"a": "1"}}],
            hooks={"preStart": [{"name": "a", "script": SCRIPT}]},
            runner={"image": "x"},
        )
        assert served.ask("POST", place(body), body).status in (201, 409)

    def patch(self, served, spec):
        path = f"{BASE}/namespaces/default/sandboxes/live?dryRun=All"
        return served.ask("PATCH", path, {"spec": spec}, kind="application/merge-patch+json")

    @pytest.mark.parametrize("event", ["postStart", "preStop"])
    def test_hook_reading_a_fork_is_accepted_after_start(self, served, event):
        body = sandbox("told", forks=[fork()], hooks={event: [of_fork({"fork": TOLD})]})
        answer = served.ask("POST", f"{place(body)}&dryRun=All", body)
        assert answer.status == 201, answer.message

    def test_a_published_plugin_never_changes(self, served):
        body = plugin()
        assert served.ask("POST", place(body), body).status in (201, 409)
        path = f"{BASE}/resourceplugins/p.1.0.0"
        for change in ({"description": "x"}, {"runner": {"image": "y"}}):
            answer = served.ask("PATCH", path, {"spec": change}, kind="application/merge-patch+json")
            assert answer.status == 422
            assert "a published plugin never changes; publish another version beside it" in answer.message
        kept = served.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, kind="application/merge-patch+json")
        assert kept.status == 200

    def test_the_kind_of_a_hooks_objects_never_changes(self, served):
        body = hook("kept", hold={"path": "/spec/hold", "value": True})
        assert served.ask("POST", place(body), body).status in (201, 409)
        path = f"{BASE}/lifecyclehooks/kept"
        for change in ({"kind": "Other"}, {"apiVersion": "cluster.example.org/v2"}):
            answer = served.ask("PATCH", path, {"spec": {"selector": change}}, kind="application/merge-patch+json")
            assert answer.status == 422
            assert "apiVersion and kind of a hook's objects never change; write another hook" in answer.message
        more = {"selector": {"namespaces": ["shop"]}, "hold": {"path": None, "annotation": "a", "value": "b"}}
        answer = served.ask("PATCH", path, {"spec": more}, kind="application/merge-patch+json")
        assert answer.status == 200, answer.message

    def test_pool_keeps_params_that_are_fixed_as_absent(self, served):
        body = pool("kept", params={"size": "1", "extra": None}, ready=None, auto={"max": 9, "hitRatio": 0.9})
        answer = served.ask("POST", place(body), body)
        assert answer.status == 201, answer.message
        assert answer.body["spec"]["params"] == {"size": "1", "extra": None}
        assert answer.body["spec"]["auto"] == {"max": 9, "hitRatio": 0.9}

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ({"ready": 9}, 200),
            ({"maxAge": "1h", "schedule": [WINDOW]}, 200),
            ({"plugin": "p@2.0.0"}, 422),
            ({"params": {"size": "2"}}, 422),
            ({"cluster": "c"}, 422),
        ],
    )
    def test_only_the_size_and_age_of_a_pool_change(self, served, change, status):
        body = pool("sized", params={"size": "1"})
        assert served.ask("POST", place(body), body).status in (201, 409)
        path = f"{BASE}/namespaces/default/resourcepools/sized?dryRun=All"
        answer = served.ask("PATCH", path, {"spec": change}, kind="application/merge-patch+json")
        assert answer.status == status, answer.message

    def test_a_ledger_never_goes_back(self, served):
        ledger = {"uid": "u", "target": {"kind": "Sandbox", "name": "s", "uid": "u"}, "plan": "p", "seq": 4}
        body = {
            "apiVersion": "dayfly.dev/v1alpha1",
            "kind": "Run",
            "metadata": {"name": "r"},
            "ledger": ledger,
            "spec": {},
        }
        assert served.ask("POST", place(body), body).status == 201
        for change, status in (({"seq": 5}, 200), ({"seq": 3}, 422), ({"uid": "v"}, 422), ({"phase": "gone"}, 422)):
            answer = served.ask(
                "PATCH", f"{BASE}/runs/r?dryRun=All", {"ledger": change}, kind="application/merge-patch+json"
            )
            assert answer.status == status, answer.message

    def test_kubectl_shows_waits_and_explains(self, served):
        """Columns, short names, the category, conditions and descriptions as people use them."""
        kubectl = served.cluster.kubectl
        body = sandbox("seen")
        created = served.ask("POST", place(body), body)
        assert (created.status, created.body["status"]) == (201, {"observedGeneration": -1}), "not seen by an operator"
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "All is well.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"phase": "Ready", "ready": True, "reason": "Ready", "progress": "2/5", "conditions": [condition]}
        status["observedGeneration"] = created.body["metadata"]["generation"]
        path = f"{BASE}/namespaces/default/sandboxes/seen/status"
        assert served.ask("PATCH", path, {"status": status}, kind="application/merge-patch+json").status == 200
        lines = kubectl("get", "dfs", "seen").splitlines()
        assert lines[0].split() == ["NAME", "PHASE", "READY", "REASON", "PROGRESS", "AGE"]
        assert lines[1].split()[:5] == ["seen", "Ready", "true", "Ready", "2/5"]
        assert "condition met" in kubectl("wait", "--for=condition=Ready", "sandbox/seen", "--timeout=5s")
        assert "sandbox.dayfly.dev/seen" in kubectl("get", "dayfly", "-o", "name")
        said = kubectl("explain", "sandbox.spec.resources.spec.create.script")
        assert "Program text that begins with #!" in said
        for short in ("dfp", "dfr", "dfh", "dfpool", "dfm", "olm", "dfrun"):
            kubectl("get", short)
