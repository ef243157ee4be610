"""Rendered objects: values of inputs, Dayfly's metadata, and rest."""

import copy
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dayfly.execute.object.render import (
    FINALIZER,
    ObjectIdentity,
    object_name,
    release_patch,
    render_object,
    suspend_field,
)
from dayfly.execute.work_order import CannotRenderError
from dayfly.spec.steps.kube_object import InputPlacement, KubeObject

WHO = ObjectIdentity("run-1", "db/make", 1, "shop", {"kind": "Run", "uid": "u"})
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "", "b/~c": "old"}, "list": [1, {"x": 2}]}


def rendered(manifest, values=None, sensitive=(), **placed):
    item = KubeObject(
        manifest=manifest, set={at: InputPlacement(input=name, as_=form) for at, (name, form) in placed.items()}
    )
    return render_object(item, values or {}, sensitive, WHO)


def test_inputs_are_set_at_their_paths():
    values = {"text": b'{"not": "parsed"}', "count": b"3", "share": b"0.5", "flag": b"true", "none": None}
    found = rendered(
        CONFIG,
        values,
        **{
            "/data/a": ("text", "string"),
            "/data/b~1~0c": ("none", "string"),
            "/list/0": ("count", "integer"),
            "/list/1/x": ("share", "number"),
            "/list/1/y": ("flag", "boolean"),
        },
    )
    assert found["data"] == {"a": '{"not": "parsed"}', "b/~c": "old"}
    assert found["list"] == [3, {"x": 0.5, "y": True}]


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b"3.5", "integer"), (b"true", "integer"), (b"", "integer"), (b"1e3", "integer"), (b"9223372036854775808", "integer"),
        (b"NaN", "number"), (b"Infinity", "number"), (b"x", "number"), (b"1", "boolean"), (b"yes", "boolean"),
        (b"\xff", "string"), (b"[1]", "integer"), (b"9" * 400, "integer"), (b"9" * 400, "number"), (b"[" * 99_999, "number"),
    ],
    ids=lambda each: each[:20],
)  # fmt: skip
def test_value_of_another_type_is_refused(value, form):
    with pytest.raises(CannotRenderError, match=f"input v is not a valid {form}") as caught:
        rendered(CONFIG, {"v": value}, **{"/data/a": ("v", form)})
    assert caught.value.reason == "InputInvalid"


def test_sensitive_input_is_allowed_only_in_a_secret():
    secret = {"apiVersion": "v1", "kind": "Secret", "stringData": {"a": ""}, "metadata": {"labels": {}}}
    assert rendered(secret, {"v": b"x"}, {"v"}, **{"/stringData/a": ("v", "string")})["stringData"] == {"a": "x"}
    for manifest, at in ((secret, "/metadata/labels/a"), (CONFIG, "/data/a")):
        with pytest.raises(CannotRenderError, match="input v is sensitive"):
            rendered(manifest, {"v": b"x"}, {"v"}, **{at: ("v", "string")})


def test_refused_kind_is_refused_by_render_too():
    """A document that was not compiled may violate the rules for plugins."""
    with pytest.raises(CannotRenderError) as caught:
        rendered({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"})
    assert caught.value.reason == "KindRefused"


def test_object_has_owner_namespace_and_finalizer():
    before = copy.deepcopy(CONFIG)
    meta = rendered(CONFIG)["metadata"]
    assert before == CONFIG
    assert (meta["namespace"], meta["ownerReferences"]) == ("shop", [{"kind": "Run", "uid": "u"}])
    assert meta["finalizers"] == [FINALIZER]
    assert meta["annotations"]["dayfly.dev/nonce"] == WHO.token


def test_name_is_derived_or_from_the_author():
    assert object_name(WHO, CONFIG) == object_name(WHO, CONFIG)
    others = (WHO._replace(run="run-2"), WHO._replace(unit="db/other"), WHO._replace(attempt=2))
    assert len({object_name(each, CONFIG) for each in (WHO, *others)}) == 4
    assert object_name(WHO, {**CONFIG, "metadata": {"name": "mine"}}) == "mine"


KINDS = [("batch/v1", "Job"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("apps/v1", "ReplicaSet")]


@pytest.mark.parametrize(("version", "kind"), KINDS)
@pytest.mark.parametrize("spec", [{}, None, {"replicas": 3, "suspend": False}])
def test_object_is_created_suspended_and_released_to_its_spec(version, kind, spec):
    manifest = {"apiVersion": version, "kind": kind} | ({} if spec is None else {"spec": dict(spec)})
    found = rendered(manifest)
    field, inert = ("suspend", True) if kind == "Job" else ("replicas", 0)
    assert found["spec"][field] == inert
    assert "finalizers" not in found["metadata"], "a late create does nothing until the garbage collector deletes it"
    stored = {**found, "metadata": {**found["metadata"], "uid": "uid-1"}}
    patch = release_patch(manifest, stored)
    meant = False if kind == "Job" else (spec or {}).get("replicas", 1)
    assert patch["spec"] == {field: meant}
    assert patch["metadata"]["uid"] == "uid-1"
    let_go = {**stored, "metadata": {**stored["metadata"], "annotations": {}}}
    assert release_patch(manifest, let_go) is None


@pytest.mark.parametrize(
    ("version", "kind", "spec"), [("batch/v1", "Job", {"suspend": True}), ("apps/v1", "Deployment", {"replicas": 0})]
)
def test_object_specified_as_suspended_is_never_released(version, kind, spec):
    manifest = {"apiVersion": version, "kind": kind, "spec": spec}
    assert suspend_field(manifest) is None
    found = rendered(manifest)
    assert found["spec"] == spec
    assert release_patch(manifest, {**found, "metadata": {**found["metadata"], "uid": "u"}}) is None


@pytest.mark.slow
@example(note="[" * 99_999)
@example(note='{"replicas": 2147483648}')
@given(
    note=st.one_of(
        st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps)
    )
)
def test_edited_release_annotation_uses_the_default(note):
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment"}
    patch = release_patch(manifest, {"metadata": {"uid": "u", "annotations": {"dayfly.dev/release": note}}})
    assert patch["spec"].keys() == {"replicas"}
    assert type(patch["spec"]["replicas"]) is int
    assert 0 <= patch["spec"]["replicas"] < 2**31
