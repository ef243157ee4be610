"""States of objects: conditions, comparisons and the contract, each for the current generation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.execute.object import read
from dayfly.execute.object.read import ObjectState
from dayfly.spec.lifecycle import SecretKey, UnitOutput
from dayfly.spec.steps.kube_object import KubeObject, ReadyRule
from dayfly.spec.steps.webhook import Comparison

META = {"name": "x", "namespace": "shop", "uid": "u", "generation": 2}


def thing(**status):
    return {"kind": "Thing", "metadata": META, "status": status}


def conditions(*pairs, **more):
    return thing(conditions=[{"type": kind, "status": status, **more} for kind, status in pairs])


def judged(found, ready=None, failed=None):
    return read.judge(found, KubeObject(manifest={}, ready=ready, failed=failed))


COMPLETE = ReadyRule(condition="Complete")
CONTRACT = ReadyRule(contract=True)
BOUND = ReadyRule(when=Comparison(path="$.status.phase", in_=("Bound", 1)))
W, R, F = ObjectState.WAITING, ObjectState.READY, ObjectState.FAILED

ROWS = [
    ("without ready it is ready once it is there", thing(), None, None, R, ""),
    ("no condition yet", thing(), COMPLETE, None, W, "waits for Thing shop/x: it has no condition Complete yet"),
    ("the condition", conditions(("Complete", "True")), COMPLETE, None, R, ""),
    (
        "another status",
        conditions(("Complete", "False"), reason="Busy", message="one\n of two"),
        COMPLETE,
        None,
        W,
        "waits for Thing shop/x: its condition Complete must be True and is False (Busy: one of two)",
    ),
    (
        "a status that is asked for",
        conditions(("Stuck", "False")),
        ReadyRule(condition="Stuck", status="False"),
        None,
        R,
        "",
    ),
    (
        "of an earlier generation",
        conditions(("Complete", "True"), observedGeneration=1),
        COMPLETE,
        None,
        W,
        "must be True",
    ),
    (
        "all of an earlier generation",
        thing(observedGeneration=1, conditions=[{"type": "Complete", "status": "True"}]),
        COMPLETE,
        None,
        W,
        "its controller has observed generation 1, and the object has generation 2",
    ),
    (
        "a failure of an earlier generation",
        thing(observedGeneration=1, failureReason="Old"),
        CONTRACT,
        None,
        W,
        "generation 1",
    ),
    ("of an earlier one where nothing is asked of it", thing(observedGeneration=1), None, None, R, ""),
    ("of an earlier one where it may have failed", thing(observedGeneration=1), None, COMPLETE, W, "generation 1"),
    ("a comparison", thing(phase="Bound"), BOUND, None, R, ""),
    ("a comparison of numbers", thing(phase=1), BOUND, None, R, ""),
    ("a boolean is no number", thing(phase=True), BOUND, None, W, '$.status.phase must be "Bound" or 1 and is true'),
    ("nothing to compare", thing(), BOUND, None, W, "is missing"),
    ("the contract", thing(ready=True), CONTRACT, None, R, ""),
    ("the contract's no", thing(ready=False), CONTRACT, None, W, "status.ready must be true and is false"),
    (
        "a condition that is asked for by name, whatever else says ready",
        thing(ready=False, conditions=[{"type": "Complete", "status": "True"}]),
        COMPLETE,
        None,
        R,
        "",
    ),
    ("ready is no condition", thing(ready=True), COMPLETE, None, W, "it has no condition Complete yet"),
    ("the contract by its condition", conditions(("Ready", "True")), CONTRACT, None, R, ""),
    (
        "the contract's failure",
        thing(ready=True, failureReason="NoRoom", failureMessage="full"),
        CONTRACT,
        None,
        F,
        "Thing shop/x has failed: NoRoom: full",
    ),
    (
        "failed wins",
        conditions(("Complete", "True"), ("Failed", "True"), reason="Backoff"),
        COMPLETE,
        ReadyRule(condition="Failed"),
        F,
        "its condition Failed is True (Backoff)",
    ),
    ("not failed", conditions(("Failed", "False")), None, ReadyRule(condition="Failed"), R, ""),
    ("failed by comparison", thing(phase="Bound"), COMPLETE, BOUND, F, '$.status.phase is "Bound"'),
]


@pytest.mark.parametrize(
    ("found", "ready", "failed", "standing", "words"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_state_follows_from_conditions_and_comparisons(found, ready, failed, standing, words):
    said = judged(found, ready, failed)
    assert said.state is standing
    assert words in said.message
    assert bool(said.message) is (standing is not R)


def test_first_three_of_many_values_are_shown():
    every = ReadyRule(when=Comparison(path="$.status.all[*]", in_=("Bound",)))
    said = judged(thing(all=["a", "b", "c", "d"]), every)
    assert said.message.endswith('must be "Bound" and is "a", "b", "c"')


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "status", "conditions", "ready", "phase"]), inner)
    ),
)


@pytest.mark.slow
@given(status=ANY, verdict=st.sampled_from([COMPLETE, CONTRACT, BOUND]))
def test_status_message_is_one_short_line(status, verdict):
    said = judged({"kind": "Thing", "metadata": META, "status": status}, verdict, verdict)
    assert len(said.message) <= 300
    assert "\n" not in said.message


def test_too_deep_status_counts_as_absent():
    deep = {"phase": "Bound"}
    for _ in range(200):
        deep = {"a": deep}
    bound = ReadyRule(when=Comparison(path="$..phase", in_=("Bound",)))
    said = judged(thing(deep=deep), bound, bound)
    assert said == read.ObjectJudgement(W, 'waits for Thing shop/x: $..phase must be "Bound" and is missing')
    assert read.output_value(thing(deep=deep), UnitOutput(name="o", json_path="$..phase")) is None


@pytest.mark.parametrize(("observed", "standing"), [(0, R), (1, R), (None, R), ("1", R), (True, R)])
def test_kind_without_generations_is_judged_by_status(observed, standing):
    found = {"kind": "Thing", "metadata": {"name": "x"}, "status": {"observedGeneration": observed, "ready": True}}
    assert judged(found, CONTRACT).state is standing
    found["status"] = {"conditions": [{"type": "Complete", "status": "True", "observedGeneration": observed}]}
    assert judged(found, COMPLETE).state is standing


def test_ownership_is_decided_by_uid_then_nonce():
    mine = {"metadata": {"uid": "u", "annotations": {"dayfly.dev/nonce": "t"}}}
    assert read.is_ours(mine, ref="", token="t")
    assert not read.is_ours(mine, ref="", token="other")
    assert read.is_ours({"metadata": {"uid": "u"}}, ref="u", token="t")
    assert not read.is_ours(mine, ref="another", token="t"), (
        "once the UID is known, a copy with the token does not belong to the attempt"
    )
    assert not read.is_ours({"metadata": {"uid": "u", "annotations": None}}, ref="", token="t")


def test_foreign_finalizers_hold_a_deleted_object():
    held = {"metadata": {"finalizers": ["dayfly.dev/object", "a/b"], "deletionTimestamp": "now"}}
    assert (read.is_ending(held), read.foreign_finalizers(held)) == (True, ["a/b"])
    assert read.foreign_finalizers({"metadata": {}}) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.status.a", b"text"), ("$.status.b", b"[1, 2]"), ("$.status.c", b"true"), ("$.status.d", None),
        ("$.status.b[*]", None), ("$.status.e", b"\xc3\xa9"),
    ],
)  # fmt: skip
def test_output_needs_exactly_one_value(path, value):
    found = thing(a="text", b=[1, 2], c=True, e="é")
    assert read.output_value(found, UnitOutput(name="o", json_path=path)) == value


def test_secret_of_an_output_is_constant_or_from_the_object():
    constant = UnitOutput(name="o", secret=SecretKey(key="k", name="s"))
    told = UnitOutput(name="o", secret=SecretKey(key="k", json_path="$.status.secret"))
    assert read.secret_name(thing(), constant) == "s"
    assert read.secret_name(thing(secret="t"), told) == "t"
    assert read.secret_name(thing(secret=1), told) == read.secret_name(thing(), told) == ""


@pytest.mark.parametrize("name", ["../configmaps/x", "a?watch=true", "a\nb", "$(id)", "a b", "A", "a" * 254, ""])
def test_invalid_secret_name_is_ignored(name):
    """The name becomes a part of a URL and of a command for administrators."""
    told = UnitOutput(name="o", secret=SecretKey(json_path="$.status.secret", key="k"))
    assert read.secret_name(thing(secret=name), told) == ""


@pytest.mark.parametrize(
    ("value", "told"), [("ä", "ä"), ({"a": "ä"}, '{"a": "ä"}'), ([1, True, None], "[1, true, null]"), (7, "7")]
)
def test_value_is_text_or_json(value, told):
    assert read.as_bytes(value).decode() == told
