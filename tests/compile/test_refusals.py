"""Every message of the compiler, with its place."""

import re

import msgspec
import pytest
from tests.compile import builders
from tests.compile.builders import PG, QUEUE, box, plugin_refusal, refusal

import dayfly.compile
from dayfly.spec.errors import SpecError

STEPS = """\
name: p
spec:
  create:
  - name: first
    inputs:
    - name: in
      {first}
    outputs:
    - {{name: host, valueFromPath: /tmp/host}}
    - {{name: port, valueFromPath: /tmp/port}}
    script: "#!/bin/sh"
  - name: second
    inputs:
    - name: in
      {second}
    outputs:
    - {{name: key, valueFromPath: /tmp/key}}
    script: "#!/bin/sh"
  delete:
  - name: drop
    inputs:
    - name: in
      {drop}
    outputs:
    - {{name: log, valueFromPath: /tmp/log}}
    script: "#!/bin/sh"
"""
FREE = "valueFromSandbox: true"


def steps(first=FREE, second=FREE, drop=FREE):
    return STEPS.format(first=first, second=second, drop=drop)


def step(name, output):
    return f"valueFromStep: {{name: {name}, output: {output}}}"


def at(name, output):
    return "§" + step(name, output)


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        (
            steps(second=at("frist", "host")),
            'spec.create[1].inputs[0].valueFromStep: no step "frist"; did you mean "first"?',
        ),
        (
            steps(second=at("zzz", "host")),
            ('spec.create[1].inputs[0].valueFromStep: no step "zzz"; there are "first", "second", "drop"'),
        ),
        (
            steps(second=at("first", "HOST")),
            ('spec.create[1].inputs[0].valueFromStep: the step "first" has no output "HOST"; did you mean "host"?'),
        ),
        (
            steps(first=at("second", "qqq")),
            ('spec.create[0].inputs[0].valueFromStep: the step "second" has no output "qqq"; there is "key"'),
        ),
        (
            steps(first=at("drop", "log")),
            ('spec.create[0].inputs[0].valueFromStep: a create step cannot read "drop": a delete step runs later'),
        ),
        (
            steps(first=at("second", "key"), second=step("first", "port")),
            (
                "spec.create[0].inputs[0].valueFromStep: "
                "steps that wait for each other can never start: second.key -> first.port -> second.key"
            ),
        ),
        (
            steps(first=at("first", "port")),
            (
                "spec.create[0].inputs[0].valueFromStep: "
                "steps that wait for each other can never start: first.port -> first.port"
            ),
        ),
        (
            steps(drop=at("drop", "log")),
            (
                "spec.delete[0].inputs[0].valueFromStep: "
                "steps that wait for each other can never start: drop.log -> drop.log"
            ),
        ),
        (
            QUEUE.replace("  - name: unmake\n", "  - name: unmake\n    retry: {§idempotent: false}\n"),
            (
                "spec.delete[0].retry.idempotent: "
                "a delete step may be retried; make its script safe to run twice and leave this out"
            ),
        ),
    ],
)
def test_a_plugin_alone(yaml, said):
    assert plugin_refusal(yaml) == said


def test_plugin_is_checked_by_the_rules_of_spec():
    sound = builders.plugin(QUEUE)
    broken = msgspec.structs.replace(sound, spec=msgspec.structs.replace(sound.spec, create=(), delete=()))
    with pytest.raises(SpecError, match="has neither create nor delete steps"):
        dayfly.compile.check_plugin(broken)


def test_a_sound_plugin_may_be_published():
    for yaml in (PG, QUEUE, steps(second=step("first", "host"), drop=step("second", "key"))):
        dayfly.compile.check_plugin(builders.plugin(yaml))


ONE = "resources:\n- {name: db, plugin: pg}\n"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "resources:\n- {name: db, §plugin: gp}\n",
            'spec.resources[0].plugin: no plugin "gp" is published; did you mean "pg"?',
        ),
        (
            (
                "resources:\n- §name: q\n  spec:\n    create:\n"
                "    - {name: a, script: '#!/bin/sh', inputs: [{name: size, valueFromSandbox: true, required: true}]}\n"
            ),
            'spec.resources[0]: this resource needs the param "size" (its step "a"); give it a value',
        ),
        (
            "resources:\n- {name: db, §plugin: pg@2.0}\n",
            'spec.resources[0].plugin: "pg" has no version 2.0.0; did you mean "pg@1.2.0"?',
        ),
        (
            ONE + "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n  customizations:\n    env:\n"
            "    - {name: H, valueFrom: {resource: {§name: bd, outputKey: provision.host}}}\n",
            ('spec.forks[0].customizations.env[0].valueFrom.resource.name: no resource "bd"; did you mean "db"?'),
        ),
        (
            ONE + "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n  customizations:\n    env:\n"
            "    - {name: H, valueFrom: {resource: {name: db, §outputKey: provision.hots}}}\n",
            (
                "spec.forks[0].customizations.env[0].valueFrom.resource.outputKey: "
                'the step "provision" has no output "hots"; did you mean "host"?'
            ),
        ),
        (
            ONE + "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n  customizations:\n    env:\n"
            "    - {name: H, valueFrom: {resource: {name: db, §outputKey: drop.log}}}\n",
            (
                "spec.forks[0].customizations.env[0].valueFrom.resource.outputKey: "
                '"drop" is a delete step of "db"; only outputs of create steps can be read'
            ),
        ),
        (
            ONE + "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n  customizations:\n    env:\n"
            "    - {name: H, valueFrom: {resource: {name: db, §outputKey: provison.host}}}\n",
            (
                "spec.forks[0].customizations.env[0].valueFrom.resource.outputKey: "
                '"db" has no create step "provison"; did you mean "provision"?'
            ),
        ),
        (
            (
                "resources:\n- name: db\n  plugin: pg\n"
                "  params: {size: {valueFrom: {resource: {§name: other, outputKey: make.url}}}}\n"
            ),
            'spec.resources[0].params.size.valueFrom.resource.name: no resource "other"; there is "db"',
        ),
        (
            ONE + "hooks:\n  postStart:\n  - name: warm\n    script: '#!/bin/sh'\n    inputs:\n"
            "    - {name: h, valueFrom: {resource: {name: db, §outputKey: seed.x}}}\n",
            (
                "spec.hooks.postStart[0].inputs[0].valueFrom.resource.outputKey: "
                'the step "seed" has no output "x"; there is none'
            ),
        ),
        (
            (
                "hooks:\n  postStart:\n  - name: warm\n    script: '#!/bin/sh'\n    inputs:\n    - name: h\n      valueFrom:\n"
                "        fork: {§forkOf: {kind: Deployment, namespace: shop, name: api}, expression: x}\n"
            ),
            (
                "spec.hooks.postStart[0].inputs[0].valueFrom.fork.forkOf: "
                'this sandbox has no fork of Deployment "shop/api"; add it under spec.forks'
            ),
        ),
        (
            (
                "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n"
                "hooks:\n  preStop:\n  - name: drain\n    script: '#!/bin/sh'\n    inputs:\n    - name: h\n      valueFrom:\n"
                "        fork: {forkOf: {kind: Deployment, namespace: shop, name: web}, §expression: '{{.Pod.IP}}'}\n"
            ),
            (
                "spec.hooks.preStop[0].inputs[0].valueFrom.fork.expression: "
                '"{{.Pod.IP}}" may contain only text, {{.Service.Host}}, {{.Service.Port}}, {{.Name}} and {{.Ready}}'
            ),
        ),
        (
            (
                "hooks:\n  preStart:\n  - name: a\n    script: '#!/bin/sh'\n    inputs:\n"
                "    - {name: x, §valueFromStep: {name: b, output: o}}\n"
                "  postStart:\n  - {name: b, script: '#!/bin/sh', outputs: [{name: o, valueFromPath: /tmp/o}]}\n"
            ),
            (
                "spec.hooks.preStart[0].inputs[0].valueFromStep: "
                'a preStart hook cannot read "b": a postStart hook runs later'
            ),
        ),
        (
            "hooks:\n  preStop:\n  - {name: a, script: '#!/bin/sh', retry: {idempotent: true, §limit: 2}}\n",
            "spec.hooks.preStop[0].retry.limit: a preStop hook has 5 attempts; leave the limit out",
        ),
        (
            (
                "hooks:\n  preStop:\n"
                "  - {name: a, webhook: {method: POST, url: 'https://a.example/', §find: {path: [b]}}}\n"
            ),
            ("spec.hooks.preStop[0].webhook.find: a preStop hook is sent again with the same key; leave find out"),
        ),
        (
            (
                "resources:\n- name: a\n  plugin: queue\n"
                "  params: {seed: {valueFrom: {§resource: {name: b, outputKey: make.url}}}}\n"
                "- name: b\n  plugin: queue\n"
                "  params: {seed: {valueFrom: {resource: {name: a, outputKey: make.url}}}}\n"
            ),
            (
                "spec.resources[0].params.seed.valueFrom.resource: "
                "steps that wait for each other can never start: b/make.url -> a/make.url -> b/make.url"
            ),
        ),
        (
            (
                "resources:\n- name: a\n  plugin: queue\n"
                "  params: {seed: {valueFrom: {§resource: {name: a, outputKey: make.url}}}}\n"
            ),
            (
                "spec.resources[0].params.seed.valueFrom.resource: "
                "steps that wait for each other can never start: a/make.url -> a/make.url"
            ),
        ),
        (
            (
                "resources:\n- name: x\n  spec:\n    create:\n    - name: s\n      script: '#!/bin/sh'\n      inputs:\n"
                "      - {name: i, §valueFromStep: {name: t, output: o}}\n"
            ),
            'spec.resources[0].spec.create[0].inputs[0].valueFromStep: no step "t"; there is "s"',
        ),
        (
            f"resources:\n- name: db\n  plugin: pg\n  params:\n    db-owner: {'o' * 70000}\n    §size: {'s' * 70000}\n",
            ("spec.resources[0].params.size: has 70000 bytes; an environment variable holds at most 65536: use a file"),
        ),
        (
            f"hooks:\n  preStop:\n  - {{name: a, script: '#!/bin/sh', inputs: [{{name: i, §value: {'s' * 65537}}}]}}\n",
            (
                "spec.hooks.preStop[0].inputs[0].value: "
                "has 65537 bytes; an environment variable holds at most 65536: use a file"
            ),
        ),
        (
            "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n- §forkOf: {kind: Rollout, namespace: shop, name: web}\n",
            'spec.forks[1].forkOf: another fork is already derived from "shop/web", whatever its kind',
        ),
        (
            (
                "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n  customizations:\n"
                "    patch: {§type: signadot/env, value: '{}'}\n"
            ),
            (
                "spec.forks[0].customizations.patch.type: "
                "patches of type signadot/env are not supported; write the change under env or images"
            ),
        ),
        (
            (
                "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n  customizations:\n    env:\n"
                "    - name: A\n      valueFrom:\n        fork:\n"
                "          §forkOf: {kind: Deployment, namespace: shop, name: api}\n          expression: x\n"
            ),
            (
                "spec.forks[0].customizations.env[0].valueFrom.fork.forkOf: "
                'this sandbox has no fork of Deployment "shop/api"; add it under spec.forks'
            ),
        ),
        (
            (
                "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n  customizations:\n    env:\n"
                "    - name: A\n      valueFrom:\n        fork:\n"
                "          forkOf: {kind: Deployment, namespace: shop, name: web}\n"
                "          §expression: '{{.Service.Host}}{{.Name}}'\n"
            ),
            (
                "spec.forks[0].customizations.env[0].valueFrom.fork.expression: "
                '"{{.Service.Host}}{{.Name}}" may contain only text, {{.Service.Host}} and {{.Service.Port}}'
            ),
        ),
    ],
)
def test_a_sandbox(spec, said):
    assert refusal(box(spec), PG, QUEUE) == said


# Each plugin's second step reads a param and its first has an output, so no step waits for itself.
PAIR = QUEUE.replace("    inputs:\n    - {name: seed, valueFromSandbox: true}\n    outputs:", "    outputs:").replace(
    "  delete:",
    '  - name: use\n    inputs:\n    - {name: seed, valueFromSandbox: true}\n    script: "#!/bin/sh"\n  delete:',
)
TWICE = """\
name: twice
spec:
  create:
  - {name: one, command: [x], outputs: [{name: host, valueFromPath: /tmp/host}]}
  - {name: two, command: [x], outputs: [{name: host, valueFromPath: /tmp/host}]}
"""


@pytest.mark.parametrize(
    ("key", "plugin", "said"),
    [
        ("host", TWICE, 'several steps of "db" have an output "host": write "one.host" or "two.host"'),
        ("hots", TWICE, 'no create step of "db" has an output "hots"; did you mean "host"?'),
        ("log", PG.replace("name: pg@1.2.0", "name: twice"), 'no create step of "db" has an output "log"; there'),
    ],
)
def test_an_output_without_its_step_that_is_none_or_several(key, plugin, said):
    hook = f"- {{name: h, script: '#!/bin/sh', inputs: [{{name: i, valueFrom: {{resource: {{name: db, §outputKey: {key}}}}}}}]}}"
    found = refusal(box(f"resources:\n- {{name: db, plugin: twice}}\nhooks:\n  preStart:\n  {hook}\n"), plugin)
    assert found.startswith("spec.hooks.preStart[0].inputs[0].valueFrom.resource.outputKey: " + said)


MUTUAL = box(
    "resources:\n- name: a\n  plugin: queue\n"
    "  params: {seed: {valueFrom: {§resource: {name: b, outputKey: make.url}}}}\n"
    "- name: b\n  plugin: queue\n"
    "  params: {seed: {valueFrom: {resource: {name: a, outputKey: make.url}}}}\n"
)


def test_resources_that_read_each_other_are_refused():
    assert refusal(MUTUAL, PAIR) == (
        "spec.resources[0].params.seed.valueFrom.resource: resources that read each other can never be "
        "cleaned up, each waits for the other: b.make.url -> a.make.url -> b.make.url"
    )


def test_without_a_cleanup_they_may_read_each_other():
    without = PAIR[: PAIR.index("  delete:")]
    assert [document.resource for document in builders.run(MUTUAL.replace("§", ""), without).documents] == [
        "a",
        "b",
        "",
    ]


BROKEN = steps(second=step("first", "nothing"))
SIGNED = steps(second=at("first", "nothing"))
OF_BROKEN = box("resources:\n- {name: db, plugin: p}\n")


def test_fault_in_a_plugin_names_the_line_in_its_file():
    assert refusal(OF_BROKEN, SIGNED) == (
        'spec.create[1].inputs[0].valueFromStep: the step "first" has no output "nothing"; there are "host", "port"'
    )


def test_plugin_fault_without_source_is_at_its_resource():
    sandbox, source = builders.read(OF_BROKEN, "box.yaml")
    plugins = {("p", "0.0.0"): builders.plugin(BROKEN)}
    with pytest.raises(SpecError) as caught:
        dayfly.compile.compile(sandbox, plugins, uid="u", routing_key="k", source=source)
    assert str(caught.value) == (
        "box.yaml:5:16: spec.resources[0].plugin: the plugin p is invalid: spec.create[1].inputs[0].valueFromStep: "
        'the step "first" has no output "nothing"; there are "host", "port"'
    )


def test_without_files_the_way_to_the_fault_is_still_there():
    with pytest.raises(SpecError) as caught:
        dayfly.compile.compile(builders.sandbox(OF_BROKEN), {}, uid="u", routing_key="k")
    assert str(caught.value) == 'spec.resources[0].plugin: no plugin "p" is published; there is none'
    assert caught.value.keys == ("spec", "resources", 0, "plugin")


def _hooks(count):
    return [f"  - {{name: h{n}, script: '#!/bin/sh'}}" for n in range(count)]


def test_256_units_are_the_most_and_forks_count():
    fork = "forks:\n- forkOf: {kind: Deployment, namespace: shop, name: web}\n"
    full = box("\n".join(["hooks:", "  postStart:", *_hooks(255)]) + "\n" + fork)
    compiled = builders.run(full)
    assert len(compiled.documents[0].post_start) + len(compiled.forks) == 256
    said = "spec: 257 steps, hooks and forks are too many; one sandbox has at most 256"
    over = box("\n".join(["hooks:", "  postStart:", *_hooks(256)]) + "\n" + fork)
    assert refusal(over.replace("spec:", "§spec:")) == said
    assert plugin_refusal("name: p\n§spec:\n  create:\n" + "\n".join(_hooks(257)) + "\n") == said


def test_a_document_has_at_most_a_mebibyte():
    script = "#!/bin/sh " + "x" * 120_000
    one_each = [f"  - {{name: s{n}, script: '{script}'}}" for n in range(9)]
    plugin = "name: p\nspec:\n  create:\n" + "\n".join(one_each) + "\n"
    words = r": has 10\d+ bytes when compiled; at most 1048576 are allowed: put long texts into the image"
    assert re.fullmatch("spec" + words, plugin_refusal(plugin.replace("spec:", "§spec:")))
    assert re.fullmatch(r"spec\.resources\[0\]" + words, refusal(OF_BROKEN.replace("{name: db", "§{name: db"), plugin))
    assert re.fullmatch(r"spec\.hooks" + words, refusal(box("\n".join(["§hooks:", "  preStart:", *one_each]))))
    eight = "name: p\nspec:\n  create:\n" + "\n".join(one_each[:8]) + "\n"
    assert len(builders.run(OF_BROKEN, eight).documents[0].pre_start) == 8


def test_forks_together_have_at_most_a_mebibyte():
    fork = (
        "- forkOf: {{kind: Deployment, namespace: shop, name: w{}}}\n"
        "  customizations: {{env: [{{name: A, value: {}}}]}}\n"
    )
    forks = "§forks:\n" + "".join(fork.format(n, "x" * 100_000) for n in range(11))
    assert refusal(box(forks)).startswith("spec.forks: has 11")


NEEDY = PG.replace("name: db-owner, ", "name: db-owner, required: true, ").replace(
    "name: size, ", "name: size, default: '3', "
)


def test_missing_required_param_is_refused_with_its_line():
    said = 'the plugin pg@1.2.0 needs the param "db-owner" (its step "provision"); give it a value'
    assert (
        refusal(box("resources:\n- {§name: db, plugin: pg}\n").replace("{§", "§{"), NEEDY)
        == f"spec.resources[0]: {said}"
    )
    given = box("resources:\n- {name: db, plugin: pg, §params: {size: '1'}}\n")
    assert refusal(given, NEEDY) == f"spec.resources[0].params: {said}"
    # Null equals absent; an empty string is a value.
    null = box("resources:\n- {name: db, plugin: pg, §params: {size: '1', db-owner: null}}\n")
    assert refusal(null, NEEDY) == f"spec.resources[0].params: {said}"
    builders.run(box("resources:\n- {name: db, plugin: pg, params: {db-owner: ''}}\n"), NEEDY)
