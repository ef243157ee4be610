"""Pools in both forms, and their faults."""

import pytest
from tests.spec.marked_text import load, refusal

from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.parsing import text
from dayfly.spec.resource_pool import ResourcePool

SIZE = "  ready: 2\n"
KUBECTL = "apiVersion: dayfly.dev/v1alpha1\nkind: ResourcePool\nmetadata: {name: postgres}\n"


def pool(more="", head="name: postgres\n", size=SIZE):
    return f"{head}spec:\n  plugin: pg@1.2\n{size}{more}"


@pytest.mark.parametrize("head", ["name: postgres\n", "name: postgres\nkind: ResourcePool\n", KUBECTL])
@pytest.mark.parametrize("size", [SIZE, "  auto: {max: 40}\n", "  auto: {hitRatio: 0.9, min: 2, max: 40}\n"])
def test_pool_is_recognised_by_plugin_and_size_or_kind(head, size):
    found = load(pool("  cluster: staging\n", head, size))
    assert isinstance(found, ResourcePool)
    assert (found.name, found.spec.plugin, found.spec.cluster) == ("postgres", "pg@1.2", "staging")
    exported = documents.export(found)
    assert (exported["spec"]["params"], exported["spec"]["schedule"]) == ({}, [])
    assert documents.from_wire(exported, "ResourcePool", name="postgres") == found


def test_document_with_a_plugin_is_a_pool_without_size():
    with pytest.raises(SpecError, match="ready and auto"):
        load(pool(size=""))


def test_null_in_params_is_kept():
    found = load(pool('  params: {version: "16", extra: null}\n'))
    assert found.spec.params == {"version": "16", "extra": None}
    assert documents.export(found)["spec"]["params"] == {"version": "16", "extra": None}


def test_null_in_other_fields_counts_as_absent():
    assert load(pool("  maxAge: null\n  auto: null\n")).spec.auto is None


def test_overlapping_windows_are_allowed():
    windows = '[{cron: "0 7 * * 1-5", duration: 11h, ready: 20}, {cron: "0 8 * * *", duration: 1h, ready: 0}]'
    assert [each.ready for each in load(pool(f"  schedule: {windows}\n")).spec.schedule] == [20, 0]


def window(cron='"0 7 * * *"', duration="1h", ready="3"):
    return f"  schedule:\n  - cron: {cron}\n    duration: {duration}\n    ready: {ready}\n"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (pool(head=f"name: §{'p' * 31}\n".replace("name: §", "§name: ")), "a pool name has at most 30"),
        (pool().replace("plugin: pg@1.2", "§plugin: pg@x"), '"x" is not a version'),
        (pool().replace("plugin: pg@1.2", "§plugin: ''"), "a plugin name cannot be empty"),
        (pool(size="  §ready: -1\n"), "-1 is outside the limits: write a whole number from 0 to 1000"),
        (pool(size="  §ready: 1001\n"), "1001 is outside the limits"),
        (
            pool(size="  auto: {§hitRatio: 0.4, max: 4}\n"),
            "0.4 is outside the limits: write a number from 0.5 to 0.999",
        ),
        (pool(size="  auto: {§hitRatio: 1, max: 4}\n"), "1 is outside the limits"),
        (pool(size="  auto: {§hitRatio: high, max: 4}\n"), "must be a number, not a string"),
        (pool(size="  auto: {§min: 5, max: 4}\n"), "is 5, more than max, which is 4; lower min or raise max"),
        (pool(size="  auto: {§max: 0}\n"), "0 is outside the limits: write a whole number from 1 to 1000"),
        (pool(size="  §auto: {min: 1}\n"), 'missing required field "max"'),
        (pool("  §maxAge: 1d\n"), '"1d" is not a duration'),
        (pool("  §maxAge: 59s\n"), "is 59s, and each unused member would be replaced about as soon as it is ready"),
        (pool("  §maxAge: 1s\n"), "write at least 1m, or leave maxAge out"),
        (pool("  §params: {x: 1}\n").replace("§params: {x", "params: {§x"), "in quotes"),
        (pool("  §readi: 1\n"), 'unknown field "readi"'),
        (pool(f"  §cluster: {'c' * 256}\n"), "a cluster name has at most 255 bytes"),
        (pool(window(duration="9y").replace("duration", "§duration")), '"9y" is not a duration'),
        (pool(window(ready="-1").replace("ready", "§ready")), "-1 is outside the limits"),
        (pool(window(cron='"0 7 *"').replace("cron", "§cron")), "is not 5 cron fields"),
        (
            pool(window(ready="5").replace("ready", "§ready"), size="  auto: {max: 4}\n"),
            "is 5, more than auto.max, which is 4; lower ready or raise auto.max",
        ),
    ],
)
def test_invalid_pool_is_refused_with_its_place(written, said):
    assert said in str(refusal(written))


@pytest.mark.parametrize(
    ("size", "found"), [("  ready: 2\n  auto: {max: 4}\n", "both are"), ("  maxAge: 1h\n", "neither is")]
)
def test_pool_has_exactly_one_size(size, found):
    with pytest.raises(SpecError, match=f"needs exactly one of ready and auto; {found} given"):
        load(pool(size=size, head=KUBECTL))


def test_all_faults_of_a_pool_are_reported_at_once():
    broken = pool("  maxAge: soon\n" + window(cron="hourly", duration="x", ready="-1"), size="  ready: -2\n")
    with pytest.raises(SpecError) as caught:
        load(broken)
    paths = [each.path for each in (caught.value, *caught.value.others)]
    assert paths == [
        "spec.ready",
        "spec.maxAge",
        "spec.schedule[0].cron",
        "spec.schedule[0].duration",
        "spec.schedule[0].ready",
    ]


def test_too_many_windows_and_params_are_refused():
    many = '{cron: "0 7 * * *", duration: 1h, ready: 1}'
    assert len(load(pool(f"  schedule: [{', '.join([many] * 32)}]\n")).spec.schedule) == 32
    with pytest.raises(SpecError, match="has 33 windows; at most 32 are allowed"):
        load(pool(f"  schedule: [{', '.join([many] * 33)}]\n"))
    with pytest.raises(SpecError, match="has 65 params; at most 64 are allowed"):
        load(pool(f"  params: {{{', '.join(f'p{n}: a' for n in range(65))}}}\n"))


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("create: [{name: a, script: '#!/bin/sh', at: later}]", "spec.create[0].at"),
        ("create: [{name: a, script: '#!/bin/sh'}]\n  inventory: [{name: b, script: '#!/bin/sh', at: pool}]",
         "spec.inventory[0].at"),
    ],
)  # fmt: skip
def test_at_of_a_plugin_step_is_checked(written, path):
    with pytest.raises(SpecError) as caught:
        load(f"name: p\nspec:\n  {written}\n")
    assert caught.value.path == path


def test_at_is_refused_for_hooks_and_pool_for_other_words():
    hooks = "  hooks: {preStart: [{name: a, script: '#!/bin/sh', at: pool}]}\n"
    with pytest.raises(SpecError) as caught:
        load(f"name: box\nspec:\n  cluster: c\n{hooks}")
    assert caught.value.path == "spec.hooks.preStart[0].at"
    with pytest.raises(SpecError) as caught:
        load("name: box\nspec:\n  cluster: c\n  resources: [{name: db, plugin: p, pool: always}]\n")
    assert caught.value.path == "spec.resources[0].pool"


def test_at_and_pool_survive_the_wire_form():
    plugin = load("name: p\nspec: {create: [{name: a, script: '#!/bin/sh', at: claim}]}\n")
    assert documents.from_wire(documents.export(plugin), "ResourcePlugin") == plugin
    box = load("name: box\nspec:\n  cluster: c\n  resources: [{name: db, plugin: p, pool: never}]\n")
    assert documents.export(box)["spec"]["resources"][0]["pool"] == "never"


def test_name_in_kubectls_form_is_checked():
    (document,) = text.parse(pool(head=KUBECTL.replace("postgres", "p.g")).encode(), file="p.yaml")
    with pytest.raises(SpecError, match=r"metadata.name: \"p.g\" is not a pool name"):
        documents.load(document)
