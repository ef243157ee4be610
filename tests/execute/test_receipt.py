"""Facts of receipts, also of forged ones."""

import pytest

from dayfly.execute.receipt import read_receipt, read_records
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, NeverRan
from dayfly.spec.lifecycle import Exec, Unit, UnitOutput, UnitTimeouts

DIGEST = "ab" * 32
UNIT = Unit(
    name="make",
    kind="exec",
    exec=Exec(script="#!/bin/sh"),
    outputs=(UnitOutput(name="o", path="/tmp/o"), UnitOutput(name="key", path="/tmp/key", sensitive=True)),
    timeouts=UnitTimeouts(run_ms=20_000, grace_ms=2_000),
)


def fact_of(*outputs: str, **fields: str) -> Ended | NeverRan:
    records = [(key.replace("_", "-"), value.encode()) for key, value in {"nonce": "n", **fields}.items()]
    return read_records([*records, *(("output", output.encode()) for output in outputs)], nonce="n", unit=UNIT)


def failure(*outputs: str, **fields: str) -> tuple[str, str]:
    end = fact_of(*outputs, **fields)
    assert isinstance(end, Ended)
    assert end.result.outcome == "failed"
    return end.result.reason, end.result.message


def test_output_without_a_receipt_entry_is_missing():
    reason, message = failure(f"o\0present\x003\0{DIGEST}", outcome="exited", code="0")
    assert (reason, message[:29]) == ("OutputMissing", "output key was not written: t")


def test_success_returns_outputs_and_start_time():
    end = fact_of(
        f"o\0present\x003\0{DIGEST}", f"key\0present\x004\0{DIGEST}", outcome="exited", code="0", started_ms="5"
    )
    assert isinstance(end, Ended)
    assert (end.result.outcome, end.result.started_at) == ("succeeded", 5)
    found = end.result.outputs
    assert {name: (record.size, record.sensitive) for name, record in found.items()} == {
        "o": (3, False),
        "key": (4, True),
    }
    assert found["o"].digest == f"sha256:{DIGEST}"


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({"outcome": "exited", "code": "3"}, "ExitCode", "exit code 3"),
        ({"outcome": "signaled", "code": "9"}, "Signal", "killed by signal 9 (SIGKILL)"),
        ({"outcome": "signaled", "code": "99"}, "Signal", "killed by signal 99 (unknown)"),
        ({"outcome": "deadline"}, Reason.RUN_DEADLINE, "ran longer than its limit of 20 s"),
        ({"outcome": "cancelled"}, Reason.CANCELLED, "was cancelled, with a grace period of 2 s"),
        ({"outcome": "lost", "detail": "Nobody saw it."}, Reason.RESULT_LOST, "Nobody saw it"),
        ({"outcome": "new word"}, Reason.RESULT_LOST, "its receipt has the unknown outcome 'new word'"),
    ],
)
def test_each_failure_has_a_reason_and_message(fields: dict[str, str], reason: str, message: str):
    assert failure(**fields) == (reason, message)


@pytest.mark.parametrize(
    ("outcome", "reason"), [("void", "NeverRan"), ("refused", "CannotPrepare"), ("not-executable", "NotExecutable")]
)
def test_outcome_without_a_start_proves_that_nothing_ran(outcome, reason):
    assert fact_of(outcome=outcome, detail="It cannot.") == NeverRan(reason=reason, message="It cannot")


LIMIT = "resources.limits.memory of container main in the plugin's podTemplateOverlay"
RAISE, NONE = f"raise {LIMIT}", f"it has no limit; set one in {LIMIT}"


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        (
            {"outcome": "signaled", "code": "9", "memory_limit": str(24 << 20)},
            Reason.OOM_KILLED,
            f"needed more memory than its limit of 24Mi (killed by signal 9 (SIGKILL)); {RAISE}",
        ),
        (
            {"outcome": "exited", "code": "137", "memory_limit": "100000000"},
            Reason.OOM_KILLED,
            f"needed more memory than its limit of 100000000 (the kernel killed 2 of its processes; exit code 137); {RAISE}",
        ),
        (
            {"outcome": "exited", "code": "1", "memory_limit": str(1 << 30)},
            "ExitCode",
            "exit code 1; it needed more memory than its limit of 1Gi (the kernel killed 2 of its processes); " + RAISE,
        ),
        (
            {"outcome": "signaled", "code": "9", "memory_limit": "0"},
            Reason.OOM_KILLED,
            f"needed more memory than its node had left (killed by signal 9 (SIGKILL)); {NONE}",
        ),
        (
            {"outcome": "signaled", "code": "9"},
            Reason.OOM_KILLED,
            f"needed more memory than its node had left (killed by signal 9 (SIGKILL)); {NONE}",
        ),
        ({"outcome": "cancelled"}, Reason.CANCELLED, "was cancelled, with a grace period of 2 s"),
    ],
)
def test_out_of_memory_message_names_limit_and_field(fields: dict[str, str], reason: str, message: str):
    assert failure(**fields, oom_kills="2") == (reason, message)


def test_success_ignores_killed_child_processes():
    end = fact_of(
        f"o\0present\x003\0{DIGEST}", f"key\0present\x004\0{DIGEST}", outcome="exited", code="0", oom_kills="1"
    )
    assert isinstance(end, Ended)
    assert (end.result.outcome, end.result.message) == ("succeeded", "")


@pytest.mark.parametrize(
    ("state", "reason"),
    [("missing", "OutputMissing"), ("too-large", "OutputTooLarge"), ("refused", "OutputRefused")],
)
def test_successful_script_with_an_invalid_output_fails(state: str, reason: str):
    found, message = failure(f"o\0{state}\x007\0", outcome="exited", code="0")
    assert found == reason
    assert message.startswith("output o ")


def test_outputs_written_before_a_failure_are_kept():
    end = fact_of(f"o\0present\x003\0{DIGEST}", "key\0missing\x000\0", outcome="exited", code="1")
    assert isinstance(end, Ended)
    assert list(end.result.outputs) == ["o"]


def test_attempt_that_never_ran_reports_its_reason():
    assert fact_of(outcome="void", detail="The attempt was voided.") == NeverRan(
        reason="NeverRan", message="The attempt was voided"
    )
    assert fact_of(outcome="void") == NeverRan(reason="NeverRan", message="it was fenced before it started")
    assert fact_of(outcome="refused", detail="No room.") == NeverRan(reason="CannotPrepare", message="No room")


def test_untrusted_receipt_means_a_lost_outcome():
    assert failure(nonce="another", outcome="exited", code="0") == (
        Reason.RESULT_LOST,
        "its receipt belongs to another attempt",
    )
    end = read_receipt(b"rubbish", nonce="n", unit=UNIT)
    assert isinstance(end, Ended)
    assert end.result.reason == Reason.RESULT_LOST
    assert "damaged" in end.result.message


@pytest.mark.parametrize("number", ["x", "-1", "9" * 20, "9" * 5000])
@pytest.mark.parametrize("field", ["code", "started_ms", "ended_ms", "oom_kills", "memory_limit"])
def test_receipt_with_invalid_numbers_is_damaged(field: str, number: str):
    """A step can forge a receipt with a valid nonce and digest."""
    known = {"outcome": "exited", "code": "1", "oom_kills": "1"}
    assert failure(**{**known, field: number}) == (Reason.RESULT_LOST, "its receipt is damaged")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "o",
        f"o\0present\0x\0{DIGEST}",
        f"o\0present\0{'9' * 20}\0{DIGEST}",
        "o\0\0\0\0",
        *(f"{name}\0present\x001\0{DIGEST}" for name in ("", "a b", "../a", "log.tail", "a" * 64)),
    ],
)
def test_receipt_with_invalid_outputs_is_damaged(output: str):
    """An invalid name of an output cannot be a key of a Secret."""
    assert failure(output, outcome="exited", code="0") == (Reason.RESULT_LOST, "its receipt is damaged")
