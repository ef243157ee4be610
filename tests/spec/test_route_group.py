"""Route groups in both forms, and their faults."""

import pytest

from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.parsing import text
from dayfly.spec.route_group import RouteGroup

MATCH = "  match: {label: {key: team, value: pay*}}\n"
FROM = "{resource: {name: db, outputKey: a.b}}"
HEAD = "name: pay\nspec:\n" + MATCH


def load(written):
    (document,) = text.parse(written.encode(), file="g.yaml")
    return documents.load(document)


@pytest.mark.parametrize(
    "head", ["name: pay\n", "kind: RouteGroup\napiVersion: dayfly.dev/v1alpha1\nmetadata: {name: pay}\n"]
)
def test_route_group_is_recognised_by_match_or_kind(head):
    group = load(head + "spec:\n" + MATCH + "  cluster: c\n  ttl: {duration: 1h, offsetFrom: ''}\n")
    assert isinstance(group, RouteGroup)
    assert (group.name, group.spec.cluster, group.spec.ttl.offset_from) == ("pay", "c", "noMatchedSandboxes")
    exported = documents.export(group)
    assert documents.from_wire(exported, "RouteGroup", name="pay") == group
    assert exported["spec"]["endpoints"] == []


@pytest.mark.parametrize(
    ("more", "path", "sentence"),
    [
        ("  bogus: 1\n", "spec.bogus", 'unknown field "bogus"'),
        ("  ttl: {duration: 1y}\n", "spec.ttl.duration", "is not a time to live"),
        ("  ttl: {duration: 1h, offsetFrom: now}\n", "spec.ttl.offsetFrom", "noMatchedSandboxes, createdAt, updatedAt"),
        ("  endpoints: [{name: a, target: web}]\n", "spec.endpoints[0].target", "is not a target"),
        (
            "  endpoints: [{name: a, target: 'http://w:80'}, {name: a, target: 'http://w:80'}]\n",
            "spec.endpoints[1].name",
            "appears twice",
        ),
        (
            "  cluster: c\n  endpoints: [{name: a, target: 'http://w:80', cluster: d}]\n",
            "spec.endpoints[0].cluster",
            'the group is only in cluster "c"',
        ),
        (
            f"  hooks: {{preStart: [{{name: a, script: '#!/bin/sh', inputs: [{{name: x, valueFrom: {FROM}}}]}}]}}\n",
            "spec.hooks.preStart[0].inputs[0].valueFrom",
            "a route group has neither resources nor forks",
        ),
        ("  hooks: {preStop: [{name: a}]}\n", "spec.hooks.preStop[0]", "script"),
    ],
)
def test_invalid_route_group_is_refused(more, path, sentence):
    with pytest.raises(SpecError) as caught:
        load(HEAD + more)
    assert caught.value.path == path
    assert sentence in str(caught.value)


def test_bad_pattern_is_reported_with_its_line():
    with pytest.raises(SpecError, match=r"g.yaml:3:\d+: spec.match.label.value: .* is not a pattern"):
        load(HEAD.replace("pay*", "'[pay'"))


def test_unquoted_yaml_boolean_is_refused():
    with pytest.raises(SpecError, match='"yes" is a boolean in YAML; write "yes" in quotes'):
        load(HEAD.replace("pay*", "yes"))


def test_a_name_longer_than_a_sandboxs_is_refused():
    with pytest.raises(SpecError, match="a route group name has at most 30"):
        load(HEAD.replace("pay\n", "p" * 31 + "\n", 1))
