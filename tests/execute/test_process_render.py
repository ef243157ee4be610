"""The work order of a step as a process."""

import os

import msgspec
import pytest

from dayfly.execute.process.render import OrderContext, overlay_entries, overlay_env, service_order, step_order
from dayfly.execute.work_order import Program
from dayfly.spec.frames import decode
from dayfly.spec.identity import nonce, resource_id
from dayfly.spec.lifecycle import As, Exec, Unit, UnitInput, UnitOutput, UnitTimeouts


def step(template=None, **fields):
    return Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n", pod_template=template), **fields)


def main(**fields):
    return {
        "spec": {"containers": [{"name": "side", "env": [{"name": "S", "value": "1"}]}, {"name": "main", **fields}]}
    }


@pytest.mark.parametrize(
    "template",
    [None, {}, {"spec": None}, {"spec": {"containers": None}}, {"spec": {"containers": []}}, main(), main(env=None)],
)
def test_pod_template_without_environment_adds_no_variables(template):
    assert overlay_entries(step(template)) == []
    assert overlay_env(step(template)) == {}


def test_process_gets_template_constants_of_its_own_container():
    entries = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {}}}, {"name": "C"}]
    assert overlay_entries(step(main(env=entries))) == entries
    assert overlay_env(step(main(env=entries))) == {"A": "1", "C": ""}


UNIT = step(
    main(env=[{"name": "A", "value": "template"}, {"name": "DAYFLY_ATTEMPT", "value": "template"}]),
    inputs=(
        UnitInput(name="url", value="1", as_=As(env="A", path="/in/url")),
        UnitInput(name="gone", value="1", as_=As(env="GONE", path="/in/gone")),
    ),
    outputs=(UnitOutput(name="o", path="/o"),),
    timeouts=UnitTimeouts(run_ms=30_000, grace_ms=5_000),
)
ATTEMPT = OrderContext(
    run="u",
    resource="db",
    unit="db/make",
    number=2,
    inputs={"url": b"db://1", "gone": None},
    complete=True,
    isolation="full",
    folder="/begins",
    private=("/tmp", "/var/tmp"),
    sensitive=frozenset({"gone", "url"}),
    start_before=7_000,
    log="/logs/a",
)
HEAD = [
    ("nonce", nonce("u", "db/make", 2).encode()),
    ("attempt", b"2"),
    ("start-before-ms", b"7000"),
    ("isolation", b"full"),
    ("private", b"/tmp"),
    ("private", b"/var/tmp"),
    ("mask", b"db://1"),
    ("inherit-env", b"1"),
    ("log", b"/logs/a"),
]


def test_input_overrides_built_in_and_template_variables():
    assert decode("dayfly-order", step_order(UNIT, ATTEMPT)) == [
        *HEAD,
        ("cwd", b"/begins"),
        ("inherit-cwd", b"1"),
        ("script", b"#!/bin/sh\n"),
        ("run-ms", b"30000"),
        ("grace-ms", b"5000"),
        ("unit-limit", b"524288"),
        ("output", b"o\0/o"),
        ("file", b"/in/url\0db://1"),
        ("file", b"/in/gone\0"),
        ("env", b"A=db://1"),
        ("env", b"DAYFLY_ATTEMPT=2"),
        ("env", b"DAYFLY_RESOURCE_ID=" + resource_id("u", "db").encode()),
        ("env", b"DAYFLY_ATTEMPT_NONCE=" + nonce("u", "db/make", 2).encode()),
        ("env", b"DAYFLY_OUTPUTS_COMPLETE=true"),
        ("env", b"DAYFLY_ABSENT_INPUTS=gone"),
        ("env", b"GONE="),
    ]


def test_kept_process_has_a_command_and_no_deadline():
    order = service_order(ATTEMPT, command=("serve", "-x"), workdir="/srv", env={"A": b"1"}, grace_ms=9)
    tail = [("arg", b"serve"), ("arg", b"-x"), ("cwd", b"/srv"), ("run-ms", b"0"), ("grace-ms", b"9"), ("env", b"A=1")]
    assert decode("dayfly-order", order) == [*HEAD, *tail]
    bare = msgspec.structs.replace(ATTEMPT, log="", private=(), sensitive=frozenset(), start_before=0)
    found = dict(decode("dayfly-order", service_order(bare, command=("x",), workdir="", env={}, grace_ms=9)))
    assert found.keys() == {"nonce", "attempt", "isolation", "inherit-env", "arg", "run-ms", "grace-ms"}


def test_folder_and_log_paths_may_be_any_bytes():
    """The path of a home may not be valid UTF-8."""
    home = os.fsdecode(b"/caf\xe9")
    told = dict(decode("dayfly-order", step_order(UNIT, msgspec.structs.replace(ATTEMPT, folder=home, log=home))))
    assert (told["cwd"], told["log"]) == (b"/caf\xe9", b"/caf\xe9")


def test_user_command_is_expanded_and_our_program_is_not():
    attempt = OrderContext(run="r", resource="", unit="make", number=1, inputs={}, complete=True, isolation="none")
    words = ("/bin/tool", "$(SIZE)", "two words", "")
    unit = Unit(name="make", kind="exec", exec=Exec(command=words))
    told = decode("dayfly-order", step_order(unit, attempt))
    assert [value.decode() for key, value in told if key == "arg"] == list(words)
    assert {key: value for key, value in told if key in ("script", "expand", "make-folders")} == {
        "expand": b"1",
        "make-folders": b"1",
    }
    ours = decode("dayfly-order", step_order(msgspec.structs.replace(unit, exec=Program(command=words)), attempt))
    assert [value.decode() for key, value in ours if key == "arg"] == list(words)
    assert not {"script", "expand", "make-folders"} & {key for key, _ in ours}
