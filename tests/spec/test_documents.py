"""Documents: kinds, request bodies, wire forms, and the imports of the package."""

import ast
import copy
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spec.marked_text import load, refusal

from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.parsing import text
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Sandbox

SCRIPT = "#!/bin/sh\n"
PLUGIN = {"name": "p", "spec": {"create": [{"name": "a", "script": SCRIPT}]}}
SANDBOX = {"name": "s", "spec": {"cluster": "c"}}


class TestKinds:
    @pytest.mark.parametrize(
        ("source", "kind"),
        [
            ("{name: a, spec: {runner: {}}}", "ResourcePlugin"),
            ("{name: a, spec: {create: []}}", "ResourcePlugin"),
            ("{name: a, spec: {delete: null}}", "ResourcePlugin"),
            ("{name: a, spec: {cluster: c}}", "Sandbox"),
            ("{name: a, spec: {cluster: c, runner: {}}}", "Sandbox"),
            ("{kind: Sandbox}", "Sandbox"),
            ("{kind: ResourcePlugin, spec: {cluster: c}}", "ResourcePlugin"),
            ("{kind: Deployment}", "Deployment"),
            ("{apiVersion: signadot.com/v1, kind: SignadotSandbox, name: a, spec: {cluster: c}}", "Sandbox"),
            ("{apiVersion: signadot.com/v1, kind: Sandbox, name: a, spec: {cluster: c}}", "Sandbox"),
            ("{apiVersion: signadot.com/v1, name: a, spec: {create: []}}", "ResourcePlugin"),
        ],
    )
    def test_kind_is_recognised_by_field_or_shape(self, source, kind):
        assert documents.classify(text.parse_one(source, file="x")) == kind

    @pytest.mark.parametrize(
        ("source", "path", "word"),
        [
            ("§- a", "", "must be a mapping with name and spec, not a list"),
            ("§hello", "", "not a string"),
            ("§kind: Pod", "kind", "ResourcePlugin, Sandbox, Deployment"),
            ("§kind: on", "kind", "not known"),
            ("§kind: Sandbx\nname: a\nspec: {cluster: c}", "kind", "not known"),
            ("apiVersion: signadot.com/v1\n§kind: Pod\nmetadata: {name: a}\nspec: {cluster: c}", "kind", "not known"),
            ("§name: a", "", "has no spec; write both, name and spec"),
            ("§spec: {cluster: c}", "", "has no name; write both, name and spec"),
            ("§name: a\nspec: x", "", "its spec must be a mapping"),
            ("name: a\n§spec: {forks: []}", "spec", "its kind is not clear"),
            ("§name: n\nspec: {cluster: c}", "name", 'write "n" in quotes'),
            ("§name: ''\nspec: {cluster: c}", "name", "cannot be empty"),
            ("kind: Sandbox\n§name: 1\nspec: {cluster: c}", "name", 'write "1" in quotes'),
            ("kind: Sandbox\nmetadata: {§name: 1}\nspec: {cluster: c}", "metadata.name", 'write "1" in quotes'),
            ("§kind: Sandbox\nname: a", "", "has no spec;"),
            ("§kind: ResourcePlugin\nname: a\nspec:", "", "has no spec;"),
            ("§kind: Sandbox\nspec: {cluster: c}", "", "has no name;"),
            ("kind: Sandbox\nname: a\n§spec: [x]", "spec", "must be a mapping, not a list"),
        ],
    )
    def test_unrecognisable_document_is_refused(self, source, path, word):
        error = refusal(source)
        assert error.path == path
        assert word in error.problem

    def test_the_name_may_stand_in_metadata(self):
        assert load("{kind: Sandbox, metadata: {name: s}, spec: {cluster: c}}") == load("{name: s, spec: {cluster: c}}")

    def test_fields_the_original_client_ignores_are_ignored(self):
        extras = {
            "apiVersion": "signadot.com/v1",
            "kind": "X",
            "metadata": {"labels": {"a": "b"}},
            "status": {},
            "x": 1,
        }
        assert load(json.dumps({**extras, **SANDBOX})) == load(json.dumps(SANDBOX))
        assert load(json.dumps({**extras, **PLUGIN})) == load(json.dumps(PLUGIN))
        assert documents.from_wire({**extras, **SANDBOX}, "Sandbox") == load(json.dumps(SANDBOX))

    def test_api_answer_can_be_applied_again(self):
        answer = SANDBOX | {"routingKey": "k", "status": {"ready": True}, "createdAt": "2026-01-02T03:04:05Z"}
        assert load(text.dump(answer)) == load(text.dump(SANDBOX))


class TestRequests:
    def test_the_name_in_the_address_wins_for_a_sandbox(self):
        for body in (SANDBOX, {"spec": SANDBOX["spec"]}):
            assert documents.from_wire(body, "Sandbox", name="other").name == "other"

    def test_a_plugin_agrees_with_its_address(self):
        versioned = PLUGIN | {"name": "p@v1"}
        assert documents.from_wire(versioned, "ResourcePlugin", name="p").wire_name == "p@1.0.0"
        with pytest.raises(SpecError) as caught:
            documents.from_wire(versioned, "ResourcePlugin", name="q")
        assert caught.value.path == "name"

    @pytest.mark.parametrize("body", [None, [], "x", 1, True, {}, {"name": "s"}, {"name": "s", "spec": None}])
    @pytest.mark.parametrize("kind", documents.KINDS)
    def test_no_body_to_speak_of(self, body, kind):
        with pytest.raises(SpecError):
            documents.from_wire(body, kind)

    def test_errors_have_a_way_and_no_line(self):
        with pytest.raises(SpecError) as caught:
            documents.from_wire({"spec": {"cluster": "c", "labels": {"a": "b", "c": 1}}}, "Sandbox", name="s")
        assert str(caught.value) == "spec.labels.c: must be a string, not a number"

    @pytest.mark.parametrize(
        "field",
        ["", "\n", "`", "a - at `$.b`", " - at `$.spec", "x` - at `$.spec", "x` - at `$.a[...]", "a`b", "$", "é.[0]"],
    )
    def test_an_unknown_field_may_be_called_anything(self, field):
        plugin = {"spec": {"create": [{"name": "a", "script": SCRIPT, field: 1}]}, "name": "p"}
        with pytest.raises(SpecError) as caught:
            documents.from_wire(plugin, "ResourcePlugin")
        assert caught.value.keys == ("spec", "create", 0, field)
        with pytest.raises(SpecError) as caught:
            documents.from_wire({"name": "s", "spec": {"cluster": "c", field: 1}}, "Sandbox")
        assert caught.value.keys == ("spec", field)

    def test_bodies_past_the_bounds_are_refused(self):
        deep = json.loads("[" * 500 + "]" * 500)
        for extra in (deep, ["x"] * 20_000):
            with pytest.raises(SpecError):
                documents.from_wire(SANDBOX | {"spec": {"cluster": "c", "routing": {"a": extra}}}, "Sandbox")

    def test_the_body_stays_as_it_was(self):
        body = copy.deepcopy(SANDBOX) | {
            "spec": {"cluster": "c", "forks": None, "ttl": {"duration": "1h", "offsetFrom": ""}}
        }
        before = copy.deepcopy(body)
        documents.from_wire(body, "Sandbox", name="other")
        assert body == before


def test_a_fault_among_thousands_of_entries_is_found_soon():
    labels = {f"key-{number}": "x" for number in range(text.MAX_NODES - 10)}
    keys = list(labels)
    for culprit in (keys[0], keys[5_000], keys[-1]):
        started = time.process_time()
        with pytest.raises(SpecError) as caught:
            documents.from_wire({"spec": {"cluster": "c", "labels": labels | {culprit: 1}}}, "Sandbox", name="s")
        assert caught.value.path == f"spec.labels.{culprit}"
        assert time.process_time() - started < 1


def test_deleting_by_file_needs_only_the_name():
    document = text.parse_one("name: 's-@{x}'\nkind: Sandbox\nspec: {cluster: '@{y}'}", file="x")
    assert documents.only_name(document).data == {"name": "s-@{x}", "kind": "Sandbox"}
    document = text.parse_one("metadata: {name: s, labels: {a: '@{y}'}}\nspec: {}", file="x")
    assert documents.only_name(document).data == {"metadata": {"name": "s"}}
    assert documents.name_of(documents.only_name(document)) == "s"
    with pytest.raises(SpecError) as caught:
        documents.name_of(documents.only_name(text.parse_one("\n[a]", file="x")))
    assert str(caught.value) == "x:2:1: has no name and no spec; write both, name and spec"


NAMES = st.from_regex(r"[a-zA-Z]([a-zA-Z0-9-]{0,10}[a-zA-Z0-9])?", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
DURATIONS = st.sampled_from(["1s", "5m", "2h"])
OUTPUT_KEYS = st.builds("{}.{}".format, NAMES, NAMES)
FROM_RESOURCE = st.fixed_dictionaries({"resource": st.fixed_dictionaries({"name": NAMES, "outputKey": OUTPUT_KEYS})})


def steps(source, *, cleanup):
    """Return lists of steps whose inputs have `source`, without names, which `numbered` adds."""
    retry = {"idempotent": st.booleans(), "backoff": DURATIONS}
    inputs = st.lists(source, max_size=3).map(
        lambda all_: [i | {"name": f"i{n}", "as": {"env": f"E{n}", "path": f"/tmp/{n}"}} for n, i in enumerate(all_)]
    )
    outputs = st.lists(st.fixed_dictionaries({"sensitive": st.booleans(), "description": TEXT}), max_size=3)
    step = st.fixed_dictionaries(
        {"script": TEXT.map(lambda t: SCRIPT + t.replace("\r", ""))},
        optional={
            "inputs": st.none() | inputs,
            "outputs": outputs.map(
                lambda all_: [o | {"name": f"o{n}", "valueFromPath": "/tmp/o"} for n, o in enumerate(all_)]
            ),
            "retry": st.fixed_dictionaries({}, optional=retry)
            if cleanup
            else st.fixed_dictionaries({"limit": st.just(1)}, optional=retry),
            "timeouts": st.fixed_dictionaries({}, optional={"run": DURATIONS, "grace": DURATIONS}),
        },
    )
    return st.lists(step, max_size=3)


def numbered(workflows):
    count = 0
    for found in workflows.values():
        for step in found:
            count += 1
            step["name"] = f"s{count}"
    return workflows


STEP_SOURCE = st.fixed_dictionaries({"valueFromStep": st.fixed_dictionaries({"name": NAMES, "output": NAMES})})
PLUGIN_SOURCE = st.just({"valueFromSandbox": True}) | STEP_SOURCE
HOOK_SOURCE = (
    TEXT.map(lambda value: {"value": value}) | STEP_SOURCE | FROM_RESOURCE.map(lambda value: {"valueFrom": value})
)
SPECS = (
    st.fixed_dictionaries({"create": steps(PLUGIN_SOURCE, cleanup=False), "delete": steps(PLUGIN_SOURCE, cleanup=True)})
    .filter(lambda spec: spec["create"] or spec["delete"])
    .map(numbered)
)
FREE = st.dictionaries(NAMES, TEXT | st.integers(-9, 9) | st.booleans() | st.lists(TEXT, max_size=2), max_size=2)
HOOKS = st.fixed_dictionaries(
    {},
    optional={
        event: steps(HOOK_SOURCE, cleanup=event == "postStop")
        for event in ("preStart", "postStart", "preStop", "postStop")
    },
).map(numbered)
PARAMS = st.dictionaries(NAMES, TEXT | FROM_RESOURCE.map(lambda value: {"valueFrom": value}), max_size=3)
SANDBOX_SPECS = st.fixed_dictionaries(
    {"cluster": NAMES},
    optional={
        "description": TEXT,
        "labels": st.dictionaries(TEXT, TEXT, max_size=3),
        "ttl": st.fixed_dictionaries(
            {"duration": st.just("8h")}, optional={"offsetFrom": st.sampled_from(["", "createdAt", "updatedAt"])}
        ),
        "resources": st.lists(
            st.fixed_dictionaries({"plugin": NAMES}, optional={"params": PARAMS})
            | st.fixed_dictionaries({"spec": SPECS}, optional={"params": PARAMS}),
            max_size=2,
        ).map(lambda all_: [r | {"name": f"r{n}"} for n, r in enumerate(all_)]),
        "hooks": HOOKS,
        "forks": st.lists(FREE, max_size=0) | st.none(),
        "local": st.lists(FREE, max_size=2),
        "routing": FREE,
    },
)


@settings(deadline=None)
@given(NAMES, SPECS, st.sampled_from(["", "@1", "@v2.3.4-rc.1", "@0.0.0"]))
def test_plugins_round_trip(name, spec, version):
    found = documents.from_wire({"name": name + version, "spec": spec}, "ResourcePlugin")
    assert isinstance(found, Plugin)
    wire = documents.export(found)
    assert documents.from_wire(wire, "ResourcePlugin", name=found.name) == found
    assert load_text(json.dumps(wire)) == found
    assert load_text(text.dump(wire)) == found


@pytest.mark.slow
@settings(deadline=None)
@given(NAMES, SANDBOX_SPECS)
def test_sandboxes_round_trip(name, spec):
    found = documents.from_wire({"name": name, "spec": spec}, "Sandbox")
    assert isinstance(found, Sandbox)
    wire = documents.export(found)
    assert wire["spec"]["forks"] == []
    assert documents.from_wire(wire, "Sandbox") == found
    assert load_text(json.dumps(wire)) == found
    assert load_text(text.dump(wire)) == found


def load_text(source):
    return documents.load(text.parse_one(source, file="x"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "spec",
                    "create",
                    "inputs",
                    "cluster",
                    "forks",
                    "ttl",
                    "resources",
                    "params",
                    "command",
                    "as",
                    "containers",
                    "template",
                ]
            )
            | TEXT,
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(JSON, st.sampled_from(documents.KINDS))
def test_whatever_comes_is_taken_or_refused(body, kind):
    """Only `SpecError` is raised, with a message of one line."""
    for wrapped in (body, {"name": "a", "spec": body}, {"name": "a", "spec": {"cluster": "c", "resources": body}}):
        try:
            json.dumps(documents.export(documents.from_wire(wrapped, kind)))
        except SpecError as error:
            said = str(error)
            assert said.isprintable(), said


ROOM = Path(documents.__file__).parent
FORBIDDEN = {"open", "print", "input", "eval", "exec", "breakpoint", "__import__"}


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.name)
def test_the_room_is_pure(path):
    """The import rules do not cover builtins, so this test reads the syntax tree."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not FORBIDDEN & {call.id for call in calls if isinstance(call, ast.Name)}


class TestInACluster:
    """kubectl's form: `apiVersion`, `kind`, `metadata`, `spec`."""

    PLUGIN = "apiVersion: dayfly.dev/v1alpha1\nkind: ResourcePlugin\nmetadata: {name: %s}\nspec:\n  name: %s\n"
    STEPS = "  create: [{name: a, script: '#!/bin/sh'}]\n"

    @pytest.mark.parametrize(
        ("metadata", "name", "bare", "version"),
        [
            ("p.1.2.3", "p@1.2.3", "p", "1.2.3"),
            ("p.0.0.0", "p", "p", "0.0.0"),
            ("my-p.1.0.0-rc.1-build.5", "My-P@1.0.0-RC.1+Build.5", "My-P", "1.0.0-RC.1+Build.5"),
        ],
    )
    def test_a_plugin_is_named_by_its_spec(self, metadata, name, bare, version):
        wish = load(self.PLUGIN % (metadata, name) + self.STEPS)
        assert (wish.name, wish.version) == (bare, version)
        assert documents.object_name(wish) == metadata

    def test_a_plugins_readme_is_an_annotation(self):
        noted = "p.1.2.3, annotations: {dayfly.dev/readme: '# P'}"
        wish = load(self.PLUGIN % (noted, "p@1.2.3") + self.STEPS)
        assert wish.readme == "# P"
        assert documents.export(wish)["readme"] == "# P"
        assert load(self.PLUGIN % ("p.1.2.3", "p@1.2.3") + self.STEPS).readme is None

    @pytest.mark.parametrize(
        ("metadata", "name", "path", "word"),
        [
            ("§p.1.0.0", "p@1.2.3", "metadata.name", 'must be "p.1.2.3"'),
            ("p.1.2.3", "§p@one", "spec.name", "is not a version"),
            ("p.1.2.3", "§12", "spec.name", 'write "12" in quotes'),
        ],
    )
    def test_names_that_disagree(self, metadata, name, path, word):
        source = self.PLUGIN % (metadata, name) + self.STEPS
        source = source.replace("{name: §", "{§name: ").replace("  name: §", "  §name: ")
        error = refusal(source)
        assert error.path == path
        assert word in error.problem

    def test_a_sandbox_is_named_by_its_metadata(self):
        source = (
            "{apiVersion: dayfly.dev/v1alpha1, kind: Sandbox, metadata: {name: s, namespace: team}, spec: {cluster: c}}"
        )
        assert load(source) == load("{name: s, spec: {cluster: c}}")

    def test_another_api_version(self):
        error = refusal("§apiVersion: dayfly.dev/v2\nkind: Sandbox\nmetadata: {name: s}\nspec: {cluster: c}")
        assert error.path == "apiVersion"
        assert "write dayfly.dev/v1alpha1" in error.problem

    def test_deleting_by_file_finds_the_plugins_name(self):
        document = text.parse_one(self.PLUGIN % ("p.1.2.3", "p@1.2.3") + "  create: '@{unset}'\n", file="x")
        assert documents.name_of(documents.only_name(document)) == "p@1.2.3"
