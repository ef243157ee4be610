"""Inputs, retries, time limits, environment and runner of units."""

import msgspec
import pytest
from tests.compile.builders import PG, QUEUE, box, plugin, run, sandbox

import dayfly.compile
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import (
    As,
    Baseline,
    ForkValue,
    LifecycleEvent,
    Ref,
    UnitInput,
    UnitOutput,
    UnitRetry,
    UnitTimeouts,
)
from dayfly.spec.scalars.semver import canonical
from dayfly.spec.unsupported_fields import LocalRouting


def units(compiled, resource, event=LifecycleEvent.PRE_START):
    [document] = [document for document in compiled.documents if document.resource == resource]
    return {unit.name: unit for unit in document.units(event)}


DB = box("resources:\n- {name: Db, plugin: pg, params: {size: small}}\n")


def test_inputs_come_from_params_from_steps_or_from_nowhere():
    found = units(run(DB, PG), "Db")
    assert found["provision"].inputs == (
        UnitInput(name="size", value="small", as_=As(env="SIZE")),
        UnitInput(name="db-owner", as_=As(path="/tmp/owner")),
    )
    assert found["seed"].inputs == (
        UnitInput(
            name="host",
            from_=Ref(unit="provision", output="host"),
            as_=As(env="PGHOST", path="/tmp/in/host"),
        ),
        UnitInput(name="password", from_=Ref(unit="provision", output="password"), as_=As(env="PASSWORD")),
    )


def test_an_input_without_a_place_is_named_after_itself():
    owner = PG.replace(", as: {path: /tmp/owner}", "")
    assert units(run(DB, owner), "Db")["provision"].inputs[1] == UnitInput(name="db-owner", as_=As(env="DB_OWNER"))


def test_an_empty_param_is_a_value():
    empty = box('resources:\n- {name: db, plugin: pg, params: {size: ""}}\n')
    assert units(run(empty, PG), "db")["provision"].inputs[0].value == ""


def test_missing_param_has_its_default_in_every_step():
    one = PG.replace("name: size, ", "name: size, default: '3', ")
    both = one.replace(
        "name: drop\n    inputs:\n", "name: drop\n    inputs:\n    - {name: size, valueFromSandbox: true}\n"
    )
    for params, value in (("{}", "3"), ("{size: ''}", ""), ("{size: '5'}", "5")):
        compiled = run(box(f"resources:\n- {{name: db, plugin: pg, params: {params}}}\n"), both)
        assert units(compiled, "db")["provision"].inputs[0].value == value
        assert units(compiled, "db", LifecycleEvent.POST_STOP)["drop"].inputs[0].value == value
    own = run(
        box(
            "resources:\n- {name: db, plugin: pg, params: {size: {valueFrom: {resource: "
            "{name: q, outputKey: make.url}}}}}\n- {name: q, plugin: queue}\n"
        ),
        both,
        QUEUE,
    )
    assert units(own, "db")["provision"].inputs[0].from_ == Ref(resource="q", unit="make", output="url")


def test_outputs_keep_their_path_and_their_secrecy():
    assert units(run(DB, PG), "Db")["provision"].outputs == (
        UnitOutput(name="host", path="/tmp/host"),
        UnitOutput(name="password", path="/tmp/password", sensitive=True),
    )


def test_the_environment_of_a_step():
    assert units(run(DB, PG), "Db")["seed"].exec.env == {
        "SIGNADOT_SANDBOX_NAME": "box",
        "SIGNADOT_SANDBOX_ROUTING_KEY": "k3v9",
        "SIGNADOT_SANDBOX_ID": "k3v9",
        "SIGNADOT_RESOURCE_NAME": "Db",
        "DAYFLY_SANDBOX_NAME": "box",
        "DAYFLY_SANDBOX_ROUTING_KEY": "k3v9",
        "DAYFLY_SANDBOX_NAMESPACE": "",
        "DAYFLY_RESOURCE_NAME": "Db",
    }


def test_a_step_knows_its_sandboxes_namespace():
    known, hook = plugin(PG), "hooks:\n  preStart:\n  - {name: h, script: '#!/bin/sh'}\n"
    for wish, resource, unit in ((DB, "Db", "seed"), (box(hook), "", "h")):
        compiled = dayfly.compile.compile(
            sandbox(wish), {("pg", known.version): known}, uid="u1", routing_key="k3v9", namespace="shop"
        )
        assert units(compiled, resource)[unit].exec.env["DAYFLY_SANDBOX_NAMESPACE"] == "shop"


def test_each_script_of_a_plugin_with_a_state_has_it():
    wished = box("resources:\n- {name: q, plugin: queue}\n")
    for asked, told in ((QUEUE, False), (QUEUE.replace("spec:\n", "spec:\n  state: true\n"), True)):
        compiled = run(wished, asked)
        made, unmade = units(compiled, "q")["make"], units(compiled, "q", LifecycleEvent.POST_STOP)["unmake"]
        assert (made.exec.state, unmade.exec.state) == (told, told)


def test_a_hook_has_no_resource():
    hook = box("hooks:\n  preStart:\n  - {name: h, script: '#!/bin/sh'}\n")
    env = units(run(hook), "")["h"].exec.env
    assert "SIGNADOT_SANDBOX_ID" in env
    assert not [name for name in env if "RESOURCE" in name]


def test_the_runner_and_its_pod_template():
    work = units(run(DB, PG), "Db")["seed"].exec
    assert (work.script, work.image, work.namespace) == ("#!/bin/sh\ntrue\n", "postgres:16", "signadot")
    assert work.pod_template == {"spec": {"serviceAccountName": "pg"}}
    bare = units(run(box("resources:\n- {name: q, plugin: queue}\n"), QUEUE), "q")["make"].exec
    assert (bare.image, bare.namespace, bare.pod_template) == ("", "", None)


def test_a_command_instead_of_a_script():
    body = """\
name: tool
spec:
  create:
  - {name: make, command: [/bin/make, $(SIZE), "two words", ""]}
"""
    work = units(run(box("resources:\n- {name: t, plugin: tool}\n"), body), "t")["make"].exec
    assert (work.script, work.command) == ("", ("/bin/make", "$(SIZE)", "two words", ""))


BY_NAME = """\
resources:
- {name: db, plugin: pg, params: {size: small}}
- {name: q, plugin: queue, params: {seed: {valueFrom: {resource: {name: db, outputKey: §}}}}}
forks:
- forkOf: {kind: Deployment, namespace: shop, name: web}
  customizations: {env: [{name: HOST, valueFrom: {resource: {name: db, outputKey: §}}}]}
hooks:
  preStart:
  - {name: h, script: "#!/bin/sh", inputs: [{name: i, valueFrom: {resource: {name: db, outputKey: §}}}]}
"""


def test_output_name_alone_means_the_only_step_with_it():
    """As in sandboxes of the first framework."""
    assert run(box(BY_NAME.replace("§", "host")), PG, QUEUE) == run(
        box(BY_NAME.replace("§", "provision.host")), PG, QUEUE
    )


def test_hooks_have_the_sandboxs_runner():
    hook = box("runner: {image: alpine, namespace: ci}\nhooks:\n  postStop:\n  - {name: h, script: '#!/bin/sh'}\n")
    work = units(run(hook), "", LifecycleEvent.POST_STOP)["h"].exec
    assert (work.image, work.namespace) == ("alpine", "ci")


RETRIES = [
    ("create", "", UnitRetry(idempotent=False, limit=1, backoff_ms=5_000)),
    ("create", "retry: {idempotent: true}", UnitRetry(idempotent=True, limit=3, backoff_ms=5_000)),
    (
        "create",
        "retry: {idempotent: true, limit: 7, backoff: 1m}",
        UnitRetry(idempotent=True, limit=7, backoff_ms=60_000),
    ),
    ("create", "retry: {backoff: 2s}", UnitRetry(idempotent=False, limit=1, backoff_ms=2_000)),
    ("delete", "", UnitRetry(idempotent=True, limit=0, backoff_ms=5_000)),
    ("delete", "retry: {idempotent: true, backoff: 1h}", UnitRetry(idempotent=True, limit=0, backoff_ms=3_600_000)),
    ("preStart", "retry: {idempotent: true}", UnitRetry(idempotent=True, limit=3, backoff_ms=5_000)),
    ("postStart", "", UnitRetry(idempotent=False, limit=1, backoff_ms=5_000)),
    ("preStop", "", UnitRetry(idempotent=True, limit=5, backoff_ms=5_000)),
    ("postStop", "", UnitRetry(idempotent=True, limit=0, backoff_ms=5_000)),
]


@pytest.mark.parametrize(("where", "given", "expected"), RETRIES)
def test_retries(where, given, expected):
    event = {"create": LifecycleEvent.PRE_START, "delete": LifecycleEvent.POST_STOP}.get(where) or LifecycleEvent(where)
    assert _one(where, given, event).retry == expected


def _one(where, given, event):
    step = f"  - name: s\n    script: '#!/bin/sh'\n    {given}\n"
    if where in ("create", "delete"):
        compiled = run(box("resources:\n- {name: r, plugin: p}\n"), f"name: p\nspec:\n  {where}:\n{step}")
        return units(compiled, "r", event)["s"]
    return units(run(box(f"hooks:\n  {where}:\n{step}")), "", event)["s"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", UnitTimeouts(schedule_ms=600_000, pull_ms=600_000, run_ms=3_600_000, grace_ms=10_000)),
        ("timeouts: {schedule: 1s, pull: 2m, run: 3h, grace: 4s}", UnitTimeouts(schedule_ms=1_000, pull_ms=120_000, run_ms=10_800_000, grace_ms=4_000)),
        ("timeouts: {run: 5m}", UnitTimeouts(run_ms=300_000)),
    ],
)  # fmt: skip
def test_timeouts(given, expected):
    assert _one("create", given, LifecycleEvent.PRE_START).timeouts == expected


def test_documents_keep_sandbox_order_with_its_own_last():
    compiled = run(box("resources:\n- {name: q, plugin: queue}\n- {name: db, plugin: pg}\n"), PG, QUEUE)
    assert [document.resource for document in compiled.documents] == ["q", "db", ""]
    assert not any(compiled.documents[-1].units(event) for event in LifecycleEvent)
    target = compiled.documents[0].target
    assert (target.api_version, target.kind, target.name, target.uid) == ("dayfly.dev/v1alpha1", "Sandbox", "box", "u1")
    assert all(document.target == target for document in compiled.documents)


def test_the_namespace_of_the_sandbox_object():
    compiled = dayfly.compile.compile(sandbox(box("")), {}, uid="u", routing_key="k", namespace="team")
    assert compiled.documents[0].target.namespace == "team"


def test_hooks_compile_to_their_events_and_read_others():
    compiled = run(
        box(
            "resources:\n- {name: db, plugin: pg}\n"
            "hooks:\n"
            "  preStart:\n  - {name: a, script: '#!/bin/sh', inputs: [{name: i, value: v}], outputs: [{name: o, valueFromPath: /tmp/o}]}\n"
            "  postStart:\n  - {name: b, script: '#!/bin/sh', inputs: [{name: i, valueFromStep: {name: a, output: o}}]}\n"
            "  preStop:\n  - {name: c, script: '#!/bin/sh'}\n"
            "  postStop:\n  - {name: d, script: '#!/bin/sh', inputs: [{name: i, valueFrom: {resource: {name: db, outputKey: provision.host}}}]}\n"
        ),
        PG,
    )
    own = compiled.documents[-1]
    assert [[unit.name for unit in own.units(event)] for event in LifecycleEvent] == [["a"], ["b"], ["c"], ["d"]]
    assert own.pre_start[0].inputs == (UnitInput(name="i", value="v", as_=As(env="I")),)
    assert own.post_start[0].inputs[0].from_ == Ref(unit="a", output="o")
    assert own.post_stop[0].inputs[0].from_ == Ref(resource="db", unit="provision", output="host")


def test_hooks_read_fork_expressions():
    source = (
        "{name: i, valueFrom: {fork: {forkOf: {kind: ArgoRollout, namespace: s, name: w}, expression: '{{.Name}}'}}}"
    )
    compiled = run(
        box(
            "forks:\n- forkOf: {kind: Rollout, namespace: s, name: w}\n"
            f"hooks:\n  postStart:\n  - {{name: b, script: '#!/bin/sh', inputs: [{source}]}}\n"
        )
    )
    of = Baseline(kind="Rollout", namespace="s", name="w")
    told = UnitInput(name="i", fork=ForkValue(fork_of=of, expression="{{.Name}}"), as_=As(env="I"))
    assert compiled.documents[-1].post_start[0].inputs == (told,)
    [line] = dayfly.compile.preview(compiled).events[0].waves[0][0].inputs
    assert line.source == "fork s/w: {{.Name}}"


CHAIN = box(
    "resources:\n"
    "- name: q\n  plugin: queue\n"
    "  params: {seed: {valueFrom: {resource: {name: db, outputKey: provision.host}}}}\n"
    "- {name: db, plugin: pg}\n"
)


def test_a_param_that_another_resource_makes():
    assert units(run(CHAIN, PG, QUEUE), "q")["make"].inputs == (
        UnitInput(name="seed", from_=Ref(resource="db", unit="provision", output="host"), as_=As(env="SEED")),
    )


def test_a_param_of_ones_own_making_stays_in_the_document():
    loop = box(
        "resources:\n- name: db\n  plugin: pg\n"
        "  params: {late: {valueFrom: {resource: {name: db, outputKey: provision.host}}}}\n"
    )
    late = PG.replace(
        "  - name: seed\n    inputs:\n", "  - name: seed\n    inputs:\n    - {name: late, valueFromSandbox: true}\n"
    )
    assert units(run(loop, late), "db")["seed"].inputs[0].from_ == Ref(unit="provision", output="host")


def test_a_plugin_in_place_needs_no_published_one():
    place = box("resources:\n- name: r\n  spec:\n    create:\n    - {name: s, script: '#!/bin/sh'}\n")
    assert list(units(run(place), "r")) == ["s"]
    assert dayfly.compile.required_plugins(sandbox(place)) == {}


def test_missing_plugins_are_listed_by_name_and_version():
    names = ["pg", "pg@1.2", "pg@v1.2.0", "queue@latest", "queue", "other@2.0.0-rc.1", "pg@0.0.0"]
    lines = "".join(f"- {{name: r{n}, plugin: {name}}}\n" for n, name in enumerate(names))
    assert list(dayfly.compile.required_plugins(sandbox(box("resources:\n" + lines))).items()) == [
        (("pg", ""), 0),
        (("pg", "1.2.0"), 1),
        (("queue", ""), 3),
        (("other", "2.0.0-rc.1"), 5),
        (("pg", "0.0.0"), 6),
    ]


@pytest.mark.parametrize(
    ("wanted", "version"),
    [("pg", "1.10.0"), ("pg@latest", "1.10.0"), ("pg@1.9", "1.9.0"), ("pg@0.0.0", "0.0.0"), ("pg@v1.10.0-rc.1", "1.10.0-rc.1")],
)  # fmt: skip
def test_the_latest_is_the_highest_version(wanted, version):
    known = plugin(PG)
    versions = ["1.9", "1.10.0-rc.1", "1.10.0", "0.0.0"]
    plugins = {
        ("pg", canonical(text)): msgspec.structs.replace(
            known,
            version=canonical(text),
            spec=msgspec.structs.replace(known.spec, runner=type(known.spec.runner)(image=canonical(text))),
        )
        for text in versions
    }
    wish = sandbox(box(f"resources:\n- {{name: db, plugin: {wanted}}}\n"))
    compiled = dayfly.compile.compile(wish, plugins, uid="u", routing_key="k")
    assert units(compiled, "db")["seed"].exec.image == version


@pytest.mark.parametrize("versions", [("1.0.0+a", "1.0.0+b"), ("1.0.0+b", "1.0.0+a")])
def test_latest_version_among_build_metadata_ignores_order(versions):
    known = plugin(PG)
    plugins = {
        ("pg", version): msgspec.structs.replace(
            known,
            version=version,
            spec=msgspec.structs.replace(known.spec, runner=type(known.spec.runner)(image=version)),
        )
        for version in versions
    }
    wish = sandbox(box("resources:\n- {name: db, plugin: pg}\n"))
    compiled = dayfly.compile.compile(wish, plugins, uid="u", routing_key="k")
    assert units(compiled, "db")["seed"].exec.image == "1.0.0+b"


def test_param_that_no_step_reads_is_refused():
    text = box("resources:\n- {name: db, plugin: pg, params: {size: s, sise: m}}\n")
    place = r"box\.yaml:5:46: spec\.resources\[0\]\.params\.sise"
    with pytest.raises(SpecError, match=place + r': no step of the plugin pg@1\.2\.0 reads it; did you mean "size"\?'):
        run(text, PG)
    place = (
        "resources:\n- name: r\n  params: {extra: value}\n  spec:\n    create:\n    - {name: s, script: '#!/bin/sh'}\n"
    )
    with pytest.raises(SpecError, match=r"params\.extra: no step of this resource reads it; there is none"):
        run(box(place))


def test_fields_without_effect_are_warned_about():
    wish = box("virtual: [{name: v}]\nmiddleware: [{name: override}]\nrouting: {forwards: []}\nlocal: []\n")
    assert run(wish).warnings == (
        "box.yaml:4:3: spec.virtual: has no effect here: there are no virtual workloads",
        "box.yaml:5:3: spec.middleware: has no effect here: requests are not intercepted",
        "box.yaml:6:3: spec.routing: has no effect here: there is no connection to a developer's machine",
    )


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (LocalRouting.UNKNOWN, "it needs a host that routes on your machine: dayfly up --routing"),
        (
            LocalRouting.UNROUTED,
            "has no effect here: it needs a host that routes: restart this server with dayfly up --routing",
        ),
        (LocalRouting.YES, ""),
    ],
)
def test_local_workload_warns_of_missing_host_support(host, said):
    wish = sandbox(box("local: [{name: x}]\n"))
    found = dayfly.compile.compile(wish, {}, uid="u", routing_key="k", local=host).warnings
    assert found == ((f"spec.local: {said}",) if said else ())


def test_a_pre_stop_hook_without_forks_is_a_warning():
    hook = "hooks:\n  preStop:\n  - {name: h, script: '#!/bin/sh'}\n"
    assert run(box(hook)).warnings == (
        (
            "box.yaml:5:5: spec.hooks.preStop: runs only after a fork has been started, but this sandbox has no forks; "
            "write it under postStop"
        ),
    )
    assert run(box(hook + "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n")).warnings == ()


def test_a_large_value_may_come_as_a_file():
    large = box(f"resources:\n- {{name: db, plugin: pg, params: {{db-owner: {'x' * 70_000}}}}}\n")
    assert len(units(run(large, PG), "db")["provision"].inputs[1].value) == 70_000


def test_compiling_twice_gives_the_same_bytes():
    assert msgspec.json.encode(run(CHAIN, PG, QUEUE)) == msgspec.json.encode(run(CHAIN, QUEUE, PG))
