"""Patches: their results, the errors of malformed ones, and the limits of CPU time and memory."""

from __future__ import annotations

import contextlib
import copy
import random
import re
import time
import tracemalloc

import pytest
from tests.execute.baselines import WEB, fresh
from tests.execute.rendered_forks import FREE, forked, json
from tests.policy.overlays import Source

from dayfly.execute.fork import patch
from dayfly.execute.work_order import CannotRenderError
from dayfly.spec import json_patch
from dayfly.spec.parsing.text import MAX_DEPTH

MAIN = "/spec/template/spec/containers/0"


def op(name, path=None, **more):
    return {"op": name, **({} if path is None else {"path": path}), **more}


def apply(kind, value):
    return patch.apply(fresh("web"), {"type": kind, "value": value})


def nested(times):
    """Return nested mappings."""
    return {"spec": nested(times - 1)} if times else 1


MALFORMED = {
    "text": ("json", "text", "a list of operations"),
    "mapping": ("json", {"op": "add"}, "a list of operations"),
    "null": ("json", None, "a list of operations"),
    "operation is null": ("json", [None], "operation 1 is null"),
    "operation is a list": ("json", [[]], "operation 1 is a list"),
    "operation is text": ("json", [op("test", "/kind", value="Deployment"), "add"], "operation 2 is a string"),
    "no op": ("json", [{"path": "/spec/paused", "value": 1}], "operation 1: op is missing"),
    "unknown op": ("json", [op("merge", "/spec")], 'operation 1: op is "merge"'),
    "op in capitals": ("json", [op("ADD", "/spec/paused", value=1)], 'op is "ADD"'),
    "op is a number": ("json", [{"op": 1, "path": "/spec"}], "op is a number"),
    "op is a list": ("json", [{"op": ["add"], "path": "/spec"}], "op is a list"),
    "no path": ("json", [op("remove")], "operation 1 (remove): path is missing"),
    "path is null": ("json", [{"op": "remove", "path": None}], "path is null"),
    "path is a number": ("json", [op("remove", 7)], "path is a number"),
    "path is a list": ("json", [op("remove", ["spec"])], "path is a list"),
    "path without slash": ("json", [op("remove", "spec/replicas")], 'path is "spec/replicas"'),
    "path with dots": ("json", [op("remove", ".spec.replicas")], 'path is ".spec.replicas"'),
    "whole document removed": ("json", [op("remove", "")], "the whole workload"),
    "whole document replaced": ("json", [op("replace", "", value={})], "the whole workload"),
    "tilde alone": ("json", [op("remove", "/metadata/labels/a~b")], "~0 for ~"),
    "tilde at the end": ("json", [op("remove", "/metadata/labels/a~")], "~0 for ~"),
    "tilde two": ("json", [op("remove", "/metadata/labels/a~2b")], "~0 for ~"),
    "endless path": ("json", [op("add", "/a" * 65, value=1)], "65 parts"),
    "add without value": ("json", [op("add", "/spec/paused")], "operation 1 (add) needs a value"),
    "replace without value": ("json", [op("replace", "/spec/replicas")], "needs a value"),
    "test without value": ("json", [op("test", "/spec/replicas")], "needs a value"),
    "copy without from": ("json", [op("copy", "/spec/a")], "operation 1 (copy): from is missing"),
    "move without from": ("json", [op("move", "/spec/a")], "from is missing"),
    "from is a mapping": ("json", [op("copy", "/spec/a", **{"from": {}})], "from is a mapping"),
    "from is everything": ("json", [op("copy", "/spec/a", **{"from": ""})], "the whole workload"),
    "move into itself": ("json", [op("move", "/spec/template/spec/x", **{"from": "/spec/template"})], "into itself"),
    "remove what is not there": ("json", [op("remove", "/spec/nothing")], 'there is no "/spec/nothing"'),
    "replace what is not there": ("json", [op("replace", "/spec/nothing", value=1)], "there is no"),
    "test what is not there": ("json", [op("test", "/spec/nothing", value=None)], "there is no"),
    "copy what is not there": ("json", [op("copy", "/spec/a", **{"from": "/spec/nothing"})], "there is no"),
    "move what is not there": ("json", [op("move", "/spec/a", **{"from": "/spec/nothing"})], "there is no"),
    "add below nothing": ("json", [op("add", "/spec/nothing/a", value=1)], 'there is no "/spec/nothing"'),
    "into a string": ("json", [op("add", f"{MAIN}/image/a", value=1)], "neither a mapping nor a list"),
    "through a string": ("json", [op("add", f"{MAIN}/image/a/b", value=1)], "neither a mapping nor a list"),
    "into a number": ("json", [op("remove", "/spec/replicas/0")], "neither a mapping nor a list"),
    "into null": ("json", [op("add", "/spec/template/metadata/creationTimestamp/a", value=1)], "neither a mapping"),
    "index past the end": ("json", [op("remove", "/spec/template/spec/containers/2")], "has no item 2"),
    "insert past the end": ("json", [op("add", "/spec/template/spec/containers/3", value={})], "has no item 3"),
    "negative index": ("json", [op("remove", "/spec/template/spec/containers/-1")], '"-1" is not an index'),
    "index with zeros": ("json", [op("remove", "/spec/template/spec/containers/00")], '"00" is not an index'),
    "index in other digits": ("json", [op("remove", "/spec/template/spec/containers/\u0661")], "is not an index"),
    "index with a power": ("json", [op("remove", "/spec/template/spec/containers/1e0")], "is not an index"),
    "index without end": ("json", [op("remove", "/spec/template/spec/containers/" + "9" * 5000)], "has no item"),
    "empty index": ("json", [op("remove", "/spec/template/spec/containers/")], '"" is not an index'),
    "end of a list removed": ("json", [op("remove", "/spec/template/spec/containers/-")], '"-" is not an index'),
    "end of a list replaced": (
        "json",
        [op("replace", "/spec/template/spec/containers/-", value={})],
        "is not an index",
    ),
    "end of a list tested": ("json", [op("test", "/spec/template/spec/containers/-", value={})], "is not an index"),
    "name as an index": ("json", [op("remove", "/spec/template/spec/containers/main")], "is not an index"),
    "test of another value": ("json", [op("test", "/spec/replicas", value=4)], "does not have the value"),
    "test of another type": ("json", [op("test", "/spec/replicas", value="3")], "does not have the value"),
    "true is not one": (
        "json",
        [op("add", "/spec/paused", value=1), op("test", "/spec/paused", value=True)],
        "operation 2 (test)",
    ),
    "no metadata": ("json", [op("remove", "/metadata")], "not a Deployment: metadata must be a mapping"),
    "no spec": ("json", [op("replace", "/spec", value=[])], "not a Deployment: spec must be a mapping"),
    "no template": ("json", [op("replace", "/spec/template", value="x")], "spec.template must be a mapping"),
    "no pod": ("json", [op("remove", "/spec/template/spec")], "spec.template.spec must be a mapping"),
    "no containers": ("json", [op("remove", f"{MAIN[:-2]}")], "spec.template.spec.containers must be a list"),
    "containers are a mapping": ("merge", {"spec": {"template": {"spec": {"containers": {}}}}}, "must be a list"),
    "labels are a list": ("merge", {"metadata": {"labels": ["a"]}}, "metadata.labels must be a mapping"),
    "annotations are text": ("merge", {"metadata": {"annotations": "a"}}, "metadata.annotations must be a mapping"),
    "labels of pods are a list": (
        "merge",
        {"spec": {"template": {"metadata": {"labels": []}}}},
        "spec.template.metadata.labels must be a mapping",
    ),
    "metadata of pods is text": (
        "merge",
        {"spec": {"template": {"metadata": "x"}}},
        "spec.template.metadata must be a mapping",
    ),
    "merge with a list": ("merge", [], "a merge patch is a mapping"),
    "merge with null": ("merge", None, "a merge patch is a mapping"),
    "strategic with text": ("strategic", "x", "a strategic patch is a mapping"),
    "strategic without a key": (
        "strategic",
        {"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}},
        "needs name",
    ),
    "strategic item is text": ("strategic", {"spec": {"template": {"spec": {"containers": ["x"]}}}}, "a mapping"),
    "strategic key is a list": (
        "strategic",
        {"spec": {"template": {"spec": {"containers": [{"name": ["main"]}]}}}},
        "must be a plain value",
    ),
    "strategic finalizer is a mapping": (
        "strategic",
        {"metadata": {"finalizers": [{}]}},
        None,  # the baseline has no list, so the patch adds one, which is removed with the rest of the metadata
    ),
    "strategic directive": ("strategic", {"spec": {"$patch": "merge"}}, "must be replace or delete"),
    "strategic order": ("strategic", {"spec": {"$setElementOrder/x": []}}, "is not supported; omit it"),
    "strategic takes all": ("strategic", {"$patch": "delete"}, "metadata must be a mapping"),
    "too deep": ("merge", nested(70), "nested at most"),
    "too many values": ("merge", {"spec": {"x": [1] * 10_001}}, "at most 10000 values"),
    "half a character": ("merge", {"spec": {"x": "\ud800"}}, "surrogate"),
    "no such type": ("diff", "", "unknown patch type diff"),
}


@pytest.mark.parametrize(("kind", "value", "words"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_patch_is_refused_with_its_path(kind, value, words):
    """The error names the field and the problem. There is no internal error."""
    if words is None:
        assert "finalizers" not in forked({"type": kind, "value": value})["metadata"]
        return
    with pytest.raises(CannotRenderError) as refused:
        apply(kind, value)
    assert refused.value.reason == "BadPatch"
    assert words in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, []),
        ([], {}),
        ([1], 1),
        (1, [1]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        ([1], [1, 1]),
        (True, 1),
        (0, False),
    ],
)
def test_json_values_of_different_types_are_not_equal(one, other):
    assert not json_patch.equal(one, other)
    assert json_patch.equal(one, one)
    assert json_patch.equal({"a": [one, other]}, {"a": [one, other]})
    assert not json_patch.equal({"a": [one, other]}, {"a": [other, one]})


class TestOperations:
    """Operations have exactly the fields of RFC 6902."""

    @pytest.mark.parametrize(
        ("operation", "wanted"),
        [
            (op("add", "/env/0", value="x"), ["x", "a", "b"]),
            (op("add", "/env/2", value="x"), ["a", "b", "x"]),
            (op("add", "/env/-", value="x"), ["a", "b", "x"]),
            (op("replace", "/env/1", value="x"), ["a", "x"]),
            (op("remove", "/env/0"), ["b"]),
            (op("move", "/env/-", **{"from": "/env/0"}), ["b", "a"]),
            (op("move", "/env/0", **{"from": "/env/0"}), ["a", "b"]),
            (op("copy", "/env/0", **{"from": "/env/1"}), ["b", "a", "b"]),
            (op("test", "/env", value=["a", "b"]), ["a", "b"]),
            (op("add", "/env", value=[1.0]), [1]),
            (op("remove", "/env/1", value="passed over", mine=1), ["a"]),
        ],
        ids=lambda item: f"{item['op']} {item['path']}" if isinstance(item, dict) else "",
    )
    def test_lists(self, operation, wanted):
        document = fresh("web")
        document["env"] = ["a", "b"]
        assert patch.apply(document, json(operation))["env"] == wanted

    def test_keys_with_slashes_and_tildes(self):
        path = "/metadata/annotations/a~1b~0c~01"
        changed = apply("json", [op("add", path, value="x"), op("test", path, value="x")])
        assert changed["metadata"]["annotations"]["a/b~c~1"] == "x"

    def test_copied_value_is_independent_of_its_source(self):
        changed = apply(
            "json",
            [
                op("copy", "/spec/other", **{"from": "/spec/template"}),
                op("replace", "/spec/other/spec/containers/0/image", value="other"),
            ],
        )
        assert changed["spec"]["template"] == WEB["spec"]["template"]

    def test_failed_patch_changes_nothing(self):
        """A patch whose last operation fails does not change its input."""
        document = fresh("web")
        with pytest.raises(CannotRenderError):
            patch.apply(document, json(op("remove", "/spec/replicas"), op("remove", "/spec/replicas")))
        assert document == WEB


def within(depth):
    """Return a value in nested lists."""
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def doubling(times):
    """Return a patch that doubles a document `times` times."""
    return [op("copy", f"/spec/template/x{n}", **{"from": "/spec/template"}) for n in range(times)]


BOMBS = {
    "a document doubled forty times": ("json", doubling(40)),
    "a list doubled in place": (
        "json",
        [op("add", "/spec/l", value=["x"]), *[op("copy", "/spec/l/-", **{"from": "/spec/l"})] * 200],
    ),
    "text doubled": (
        "json",
        [op("add", "/spec/t", value={"0": "x" * 30_000})]
        + [op("copy", f"/spec/t/{n}", **{"from": "/spec/t/0"}) for n in range(1, 200)],
    ),
    "one below the other": ("json", [op("copy", "/spec/template/x", **{"from": "/spec/template"})] * 200),
    "moved deeper and deeper": (
        "json",
        [op("add", "/0", value={"a": {}})]
        + [
            each
            for n in range(1, 128)
            for each in (op("add", f"/{n}", value={"a": {}}), op("move", f"/{n}/a/x", **{"from": f"/{n - 1}"}))
        ],
    ),
    "moved again and again": (
        "json",
        [op("add", "/spec/0", value=[1] * 4_000)]
        + [op("move", f"/spec/{n}", **{"from": f"/spec/{n - 1}"}) for n in range(1, 100)],
    ),
}


@pytest.mark.parametrize(("kind", "value"), BOMBS.values(), ids=BOMBS)
def test_growing_patches_stop_at_the_limit(kind, value):
    """A patch of a few kilobytes once used 532 MiB. Now it is refused before it uses 10 MiB."""
    tracemalloc.start()
    try:
        with pytest.raises(CannotRenderError) as refused:
            apply(kind, value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert re.search("adds more than|handles more than|nested more than", str(refused.value))
    assert peak < 10 << 20


TEXTS = {
    "t": "x" * (json_patch.MAX_ADDED_BYTES - 28),
    "l": [1] * 10,
}  # the mapping, its keys, and two more bytes for each value

FULL = [
    op("add", "/spec/0", value=[1] * (json_patch.MAX_VALUES_READ // 4 - 1)),
    *(op("copy", f"/spec/{n}", **{"from": "/spec/0"}) for n in (1, 2, 3)),
]


@pytest.mark.parametrize(
    ("operations", "said"),
    [
        ([op("add", "/spec/x", value=TEXTS)], ""),
        ([op("add", "/spec/x", value={**TEXTS, "t": TEXTS["t"] + "x"})], "handles more than 131072 bytes"),
        ([op("add", "/spec/x", value=TEXTS), op("add", "/spec/y", value=1)], "adds more than 131072 bytes"),
        ([op("add", "/spec/x", value=TEXTS), op("replace", "/spec/x", value=1)], "adds more than 131072 bytes"),
        ([op("add", "/spec/x", value=TEXTS), op("test", "/spec/x", value=TEXTS)], ""),
        ([op("add", "/spec/x", value=TEXTS), op("move", "/spec/y", **{"from": "/spec/x"})], ""),
        (FULL, ""),
        ([*FULL, op("test", "/kind", value="Deployment")], "or 20000 values in all its operations"),
        ([op("add", f"{MAIN}/x", value=within(MAX_DEPTH - 6))], ""),
        ([op("add", f"{MAIN}/x", value=within(MAX_DEPTH - 5))], f"nested more than {MAX_DEPTH} deep"),
    ],
)
def test_patch_size_limit_is_exact(operations, said):
    end = pytest.raises(CannotRenderError, match=said) if said else contextlib.nullcontext()
    with end:
        patch.apply(fresh("web"), json(*operations))


def test_number_of_operations_is_limited():
    with pytest.raises(CannotRenderError, match="has 257 operations"):
        apply("json", [op("test", "/kind", value="Deployment")] * 257)


@pytest.mark.parametrize(
    "fields",
    [
        {"containers": [{"name": f"c{n}"} for n in range(3_000)]},
        {"containers": [{"name": "main", "env": [{"name": f"C{n}", "value": "x"} for n in range(3_000)]}]},
        {"containers": [{"name": "main", "env": [{"name": f"C{n}", "$patch": "delete"} for n in range(3_000)]}]},
        {"volumes": [{"name": f"v{n}"} for n in range(3_000)]},
        {"containers": [{"name": "main", "volumeMounts": [{"name": "v", "mountPath": f"/{n}"} for n in range(3_000)]}]},
    ],
    ids=["containers", "env", "deleted", "volumes", "mounts"],
)
def test_long_lists_take_linear_time(fields):
    """3,000 items once took 15 s, during which the operator was blocked."""
    began = time.process_time()
    with contextlib.suppress(CannotRenderError):
        forked({"type": "strategic", "value": {"spec": {"template": {"spec": fields}}}})
    assert time.process_time() - began < 5


def _paths(value, here=""):
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, f"{here}/{str(key).replace('~', '~0').replace('/', '~1')}")


class TestAnything:
    """The result of any patch is a Deployment or a `CannotRenderError`."""

    @pytest.mark.parametrize("seed", range(2))
    def test_random_input_yields_a_deployment_or_an_error(self, seed):
        chance, source = random.Random(seed), Source(seed)
        paths = list(_paths(WEB))

        def path():
            some = chance.choice(paths)
            return chance.choice([some, some + "/-", some + "/x", some + "/0", some[1:], some + "~", source.junk(0)])

        def operation():
            names = ["add", "remove", "replace", "move", "copy", "test", "other"]
            made = {"op": chance.choice(names), "path": path(), "from": path(), "value": source.junk()}
            for key in list(made):
                if chance.random() < 0.03:
                    del made[key]
            return made

        said = set()
        for _ in range(500):
            kind = chance.choice(["json", "json", "merge", "strategic"])
            value = [operation() for _ in range(chance.randint(1, 3))] if kind == "json" else source.junk(6)
            if kind != "json" and chance.random() < 0.7:
                value = {"spec": {"template": source.overlay()}, **(value if isinstance(value, dict) else {})}
            try:
                made = forked({"type": kind, "value": copy.deepcopy(value)}, permissions=FREE)
            except CannotRenderError as refused:
                said.add(refused.reason if len(str(refused)) < 4000 else "far too much")
            else:
                said.add("made")
                assert made["metadata"]["namespace"] == "shop"
        assert said == {"BadPatch", "ExceedsBaseline", "made"}
