"""Steps: values between them, limits of inputs and outputs, and isolation."""

import asyncio
import base64
import contextlib
import sqlite3

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.selection import in_time

from dayfly.link.wire import Verdict
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import As, EnvChange, Object, Ref, UnitInput, UnitOutput
from dayfly.spec.run import EndRequest


def log_line(word):
    return f'echo "{word}" >> "$JOURNAL"'


async def test_values_go_from_step_to_step_and_to_the_delete_step(machine):
    db = doc.resource(
        "db",
        create=[
            doc.step("make", "printf secret > /tmp/url", outputs=[("url", "/tmp/url")]),
            doc.step("seed", 'printf "$URL!" > /tmp/url', inputs=["url=make.url"], outputs=[("done", "/tmp/url")]),
        ],
        delete=[
            doc.step("drop", 'echo "drop $DONE $DAYFLY_OUTPUTS_COMPLETE" >> "$JOURNAL"', inputs=["done=seed.done"])
        ],
    )
    await machine.host.offer(doc.offer(db))
    await machine.ready()
    assert machine.values() == {"db/make.url": b"secret", "db/seed.done": b"secret!"}
    await machine.finish()
    assert machine.lines() == ["drop secret! true"]
    moves = [move for move, *_ in machine.history()]
    assert moves == ["Born", "Claim", "Record", "Claim", "Record", "Close", "Claim", "Record", "Finish"]
    await until(lambda: not machine.folders(), machine.folders)


async def test_outputs_are_bytes(machine):
    raw = bytes(range(256))
    script = f"echo {base64.b64encode(raw).decode()} | base64 -d > /tmp/raw"
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", script, outputs=[("raw", "/tmp/raw")])])))
    await machine.ready()
    assert machine.values() == {"r/a.raw": raw}


async def test_a_value_with_a_zero_byte_is_no_variable(machine):
    steps = [
        doc.step("a", r"printf 'a\000b' > /tmp/raw", outputs=[("raw", "/tmp/raw")]),
        doc.step("b", log_line("ran"), inputs=["raw=a.raw"]),
    ]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    assert "zero byte" in (await machine.reason("ResourceFailed")).message
    assert machine.unit("r/b").reason == "InputNotText"
    assert [line for line in machine.history() if line[1] == "r/b"] == [
        ("Claim", "r/b", 1, ""),
        ("Void", "r/b", 1, "InputNotText"),
    ]
    assert machine.lines() == []


async def test_step_without_its_input_needs_no_cleanup(machine):
    create = [doc.step("b", log_line("ran"), inputs=["raw=other:a.raw"])]
    delete = [doc.step("z", log_line("cleaned"))]
    other = [doc.step("a", r"printf 'a\000b' > /tmp/raw", outputs=[("raw", "/tmp/raw")])]
    await machine.host.offer(doc.offer(doc.resource("other", other), doc.resource("r", create, delete)))
    await machine.reason("ResourceFailed")
    await machine.finish()
    assert machine.lines() == []


async def test_delete_step_runs_with_any_input(machine):
    """A value that a variable cannot hold counts as absent, because otherwise a cleanup would never be possible."""
    create = [doc.step("a", r"printf 'a\000b' > /tmp/raw", outputs=[("raw", "/tmp/raw")])]
    script = log_line("absent=$DAYFLY_ABSENT_INPUTS raw=<$RAW>") + '\nwhile [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done'
    delete = [doc.step("z", script, inputs=["raw=a.raw"])]
    await machine.host.offer(doc.offer(doc.resource("r", create, delete)))
    await machine.ready()
    await machine.delete()
    await machine.wrote("absent=raw raw=<>")
    assert "zero byte" in machine.unit("r/z").message
    assert "it is passed as absent" in machine.unit("r/z").message
    machine.journal.with_name("journal.go").touch()
    await machine.gone()
    assert machine.lines() == ["absent=raw raw=<>"]
    assert b"input raw contains a zero byte" in machine.log("r/z")


async def test_value_too_large_for_a_variable_fails_with_advice(machine):
    steps = [
        doc.step("a", "head -c 65537 /dev/zero | tr '\\0' x > /tmp/big", outputs=[("big", "/tmp/big")]),
        doc.step("b", log_line("ran"), inputs=["big=a.big"]),
    ]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    message = (await machine.reason("ResourceFailed")).message
    assert "65537" in message
    assert "read it as a file" in message
    assert machine.lines() == []


async def test_outputs_of_a_step_have_a_limit(machine):
    script = "head -c 524289 /dev/zero > /tmp/big"
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", script, outputs=[("big", "/tmp/big")])])))
    assert "524288" in (await machine.reason("ResourceFailed")).message
    assert machine.unit("r/a").reason == "OutputTooLarge"
    assert machine.values() == {}


async def test_all_outputs_of_a_run_have_a_limit(machine):
    script = "head -c 524288 /dev/zero > /tmp/big"
    steps = [doc.step(f"s{n}", script, outputs=[("big", "/tmp/big")]) for n in range(3)]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    report = await machine.reason("ResourceFailed")
    await asyncio.sleep(0.2)
    states = sorted(machine.unit(f"r/s{n}").state for n in range(3))
    assert states == ["failed", "succeeded", "succeeded"]
    assert "524288 bytes of outputs the run would have 1572864; at most 1048576 are allowed" in report.message
    assert len(machine.values()) == 2


async def test_delete_step_succeeds_though_its_outputs_do_not_fit(machine):
    """The reader gets it as absent, and the run ends."""
    script = "head -c 524288 /dev/zero > /tmp/big"
    steps = [doc.step(f"s{n}", script, outputs=[("big", "/tmp/big")]) for n in range(2)]
    drop = doc.step("drop", f"echo yes > /tmp/gone; {log_line('dropped')}", outputs=[("gone", "/tmp/gone")])
    last = doc.step("last", log_line("gone=$GONE absent=$DAYFLY_ABSENT_INPUTS"), inputs=["gone=drop.gone"])
    await machine.host.offer(doc.offer(doc.resource("r", steps, [drop, last])))
    await machine.ready()
    await machine.delete()
    await machine.gone(seconds=20)
    assert machine.lines() == ["dropped", "gone= absent=gone"]
    [message] = [each.message for each in machine.host.history("u") if (each.unit, each.move) == ("r/drop", "Record")]
    assert "with its 4 bytes of outputs the run would have 1048580" in message


async def test_retried_output_counts_once_against_the_limit(machine):
    script = 'head -c 400000 /dev/zero > /tmp/big; [ "$DAYFLY_ATTEMPT" = 3 ]'
    steps = [
        doc.step("a", "head -c 400000 /dev/zero > /tmp/big", outputs=[("big", "/tmp/big")]),
        doc.step("b", script, outputs=[("big", "/tmp/big")], idempotent=True, limit=3, backoff_ms=1),
    ]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    await machine.ready()
    assert {name: len(value) for name, value in machine.values().items()} == {"r/a.big": 400_000, "r/b.big": 400_000}
    assert ("Record", "r/b", 2, "ExitCode") in machine.history()


async def test_sensitive_value_is_absent_from_history_and_report(machine, caplog):
    caplog.set_level("DEBUG")
    outputs = [UnitOutput(name="key", path="/tmp/key", sensitive=True)]
    steps = [
        doc.step("a", "printf TOPSECRET > /tmp/key", outputs=outputs),
        doc.step("b", "exit 3", inputs=["key=a.key"]),
    ]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    await machine.reason("ResourceFailed")
    assert machine.host.values("u")[0].sensitive
    assert "TOPSECRET" not in repr(machine.report()) + repr(machine.host.history("u"))
    await machine.finish()
    assert "TOPSECRET" not in repr(machine.host.history("u")) + repr(machine.report())
    with contextlib.closing(sqlite3.connect(machine.home / "ledger.db")) as ledger:
        assert b"TOPSECRET" not in ledger.serialize(), "it is kept longer than the run"
    assert "TOPSECRET" not in caplog.text


async def test_sensitive_value_is_masked_in_all_logs(machine, caplog):
    """A canary in all places: its step, a reader, a fork, and the delete steps."""
    caplog.set_level("DEBUG")
    canary = "canary/4711+x"
    say = 'echo "$KEY"; printf "%s" "$KEY" | base64; cat /tmp/key-file 2>/dev/null; env'
    makes = f'echo "first {canary}"; printf "{canary}" > /tmp/key; sleep 0.05; echo "then {canary}"'
    reads = UnitInput(name="key", from_=Ref(unit="make", output="key"), as_=As(env="KEY", path="/tmp/key-file"))
    create = [
        doc.step("make", makes, outputs=[UnitOutput(name="key", path="/tmp/key", sensitive=True)]),
        doc.step("read", say, inputs=[reads]),
    ]
    delete = [doc.step("drop", f"{say}; [ $DAYFLY_ATTEMPT = 2 ]", inputs=[reads])]
    await machine.baseline(command=("/bin/sh", "-c", f'{say}; exec python3 -m http.server --bind 127.0.0.1 "$PORT"'))
    given = doc.fork(inputs=["KEY=db:make.key"], env=[EnvChange(name="KEY", input="KEY")])
    await machine.host.offer(doc.offer(doc.resource("db", create, delete), forks=[given]))
    await machine.ready()
    lives = machine.log("db/make")
    assert lives.startswith(b"first ***")
    assert lives.endswith(b"then ***\n")
    assert b"KEY=***" in machine.log("db/read")
    assert machine.log("fork:default/app").startswith(b"***\n***")
    await machine.finish()
    assert machine.log("db/drop", 2).startswith(b"***\n***")
    # The ledger has the scripts, which contain the canary.
    found = [path for path in machine.home.rglob("*") if path.is_file() and not path.name.startswith("ledger.")]
    assert len([path for path in found if path.suffix == ".log"]) == 5
    for form in (canary.encode(), base64.b64encode(canary.encode()).rstrip(b"=")):
        assert [path for path in found if form in path.read_bytes()] == []
        assert form.decode() not in caplog.text + repr(machine.host.history("u")) + repr(machine.report())


async def test_failed_step_blocks_its_dependants_and_is_cleaned_up(machine):
    db = doc.resource(
        "db",
        create=[
            doc.step("a", "echo no >&2; exit 7", outputs=[("x", "/tmp/x")]),
            doc.step("b", log_line("b"), inputs=["x=a.x"]),
        ],
        delete=[
            doc.step("z", 'echo "z [$X] $DAYFLY_OUTPUTS_COMPLETE $DAYFLY_ABSENT_INPUTS" >> $JOURNAL', inputs=["x=a.x"])
        ],
    )
    await machine.host.offer(doc.offer(db))
    report = await machine.reason("ResourceFailed")
    assert report.message == "db/a: exit code 7"
    assert machine.log("db/a") == b"no\n"
    await machine.finish()
    assert machine.lines() == ["z [] false x"]


async def test_an_idempotent_step_is_tried_again_after_its_back_off(machine):
    script = 'echo "try $DAYFLY_ATTEMPT" >> "$JOURNAL"; [ "$DAYFLY_ATTEMPT" = 3 ]'
    again = doc.step("a", script, idempotent=True, limit=3, backoff_ms=100)
    await machine.host.offer(doc.offer(doc.resource("r", [again])))
    await machine.ready()
    assert machine.lines() == ["try 1", "try 2", "try 3"]
    claims = {entry.attempt: entry.at for entry in machine.host.history("u") if entry.move == "Claim"}
    assert claims[2] - claims[1] >= 100
    assert claims[3] - claims[2] >= 200
    assert [machine.log("r/a", n) for n in (1, 2, 3)] == [b"", b"", b""]


async def test_a_step_that_ignores_its_end_is_killed_after_its_grace(machine):
    script = 'trap "echo asked >> $JOURNAL" TERM; echo up >> "$JOURNAL"; while :; do sleep 0.05; done'
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", script, grace_ms=300)])))
    await machine.wrote("up")
    began = asyncio.get_running_loop().time()
    await machine.finish()
    took = asyncio.get_running_loop().time() - began
    assert took >= 0.3
    assert in_time(took, 5)
    assert machine.lines()[:2] == ["up", "asked"]


async def test_a_step_has_a_deadline(machine):
    steps = [doc.step("a", "sleep 60", run_ms=200, grace_ms=100)]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    await machine.reason("ResourceFailed")
    assert machine.unit("r/a").reason == "RunDeadlineExceeded"


async def test_concurrent_steps_are_limited_by_slots(machine):
    await machine.down()
    await machine.up(parallel=3)
    script = 'echo + >> "$JOURNAL"; sleep 0.05; echo - >> "$JOURNAL"'
    steps = [doc.step(f"s{n}", script) for n in range(12)]
    for n in range(2):
        await machine.host.offer(doc.offer(doc.resource("r", steps), uid=f"u{n}"))
    for n in range(2):
        await machine.ready(f"u{n}")
    running = most = 0
    for line in machine.lines():
        running += 1 if line == "+" else -1
        most = max(most, running)
    assert len(machine.lines()) == 48
    assert most == 3


async def test_deletes_go_before_creates_when_places_are_few(machine):
    await machine.down()
    await machine.up(parallel=1)
    box = doc.resource("r", [doc.step("a", "true")], [doc.step("z", log_line("deleted"))])
    await machine.host.offer(doc.offer(box, uid="old"))
    await machine.ready("old")
    gate = doc.step("g", log_line("gate") + '; while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done')
    await machine.host.offer(doc.offer(doc.resource("g", [gate]), uid="gate"))
    await machine.wrote("gate")
    created = doc.resource("r", [doc.step("a", log_line("created"))])
    for n in range(10):
        await machine.host.offer(doc.offer(created, uid=f"new{n}"))
    await machine.delete("old")
    await until(lambda: any(move == "Close" for move, *_ in machine.history("old")), "the delete to begin")
    for n in range(10, 20):
        await machine.host.offer(doc.offer(created, uid=f"new{n}"))
    await machine.said("r/z", "WaitingForSlot", "old")
    for n in range(20):
        await machine.said("r/a", "WaitingForSlot", f"new{n}")
    machine.journal.with_name("journal.go").touch()
    for n in range(20):
        await machine.ready(f"new{n}")
    assert machine.lines()[:2] == ["gate", "deleted"]


@pytest.mark.slow
async def test_two_hundred_runs_at_once(machine):
    for n in range(200):
        script = f'echo "make {n}" >> "$JOURNAL"; printf {n} > /tmp/n'
        made = doc.resource(
            "r",
            [doc.step("a", script, outputs=[("n", "/tmp/n")])],
            [doc.step("z", 'echo "drop $N" >> "$JOURNAL"', inputs=["n=a.n"])],
        )
        await machine.host.offer(doc.offer(made, uid=f"u{n}"))
    for n in range(200):
        await machine.ready(f"u{n}")
        assert machine.values(f"u{n}") == {"r/a.n": str(n).encode()}
    for n in range(200):
        await machine.delete(f"u{n}")
    for n in range(200):
        await machine.gone(f"u{n}")
    assert sorted(machine.lines()) == sorted(f"{verb} {n}" for verb in ("make", "drop") for n in range(200))
    await until(lambda: not machine.folders(), machine.folders)


@pytest.mark.parametrize("same_run", [True, False])
async def test_without_isolation_steps_that_share_a_path_take_turns(machine, tmp_path, same_run):
    await machine.down()
    await machine.up(isolation="none")
    shared = tmp_path / "shared"
    wait = 'while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done'
    script = f'echo + >> "$JOURNAL"; echo x > {shared}; {wait}; echo - >> "$JOURNAL"'
    steps = [doc.step(f"s{n}", script, outputs=[("x", str(shared))]) for n in range(2)]
    if same_run:
        await machine.host.offer(doc.offer(doc.resource("r", steps)))
        uids = ["u"]
    else:
        uids = ["u0", "u1"]
        for uid, one in zip(uids, steps, strict=True):
            await machine.host.offer(doc.offer(doc.resource("r", [one]), uid=uid))
    await machine.wrote("+")

    def sentences():
        return [unit.message for uid in uids for unit in machine.report(uid).units if unit.reason == "PathInUse"]

    [sentence] = await until(sentences, "one to wait for the other")
    machine.journal.with_name("journal.go").touch()
    assert f"uses {shared}, as does the running r/s" in sentence
    assert "they run one after the other" in sentence
    for uid in uids:
        await machine.ready(uid)
    assert machine.lines() == ["+", "-", "+", "-"]
    assert not shared.exists()


async def test_a_run_ends_with_its_time_to_live(machine):
    box = doc.resource("r", [doc.step("a", "true")], [doc.step("z", log_line("gone"))])
    await machine.host.offer(doc.offer(box))
    await machine.ready()
    await machine.host.offer(doc.offer(box, expires_at=_in(300)))
    await machine.gone()
    assert machine.lines() == ["gone"]
    assert ("Close", "", 0, "Expired") in machine.history()


async def test_a_run_ends_when_its_lease_is_not_renewed(machine):
    box = doc.resource("r", [doc.step("a", "true")], [doc.step("z", log_line("gone"))])
    await machine.down()
    await machine.up(start=False)
    await machine.host.offer(doc.offer(box, lease_until=_in(500)))
    assert await machine.host.lease("u", _in(60_000)) is Verdict.TAKEN
    await asyncio.sleep(0.7)
    machine.host.start()
    await machine.ready()
    assert machine.report().closed is None
    assert await machine.host.lease("u", _in(300)) is Verdict.TAKEN
    await machine.gone()
    assert ("Close", "", 0, "LeaseExpired") in machine.history()


async def test_lease_of_a_closed_run_is_not_renewed(machine):
    """The client learns that its renewal was too late, during and after the run."""
    box = doc.resource("r", [doc.step("a", "true")], [doc.step("z", "exit 1", backoff_ms=60_000)])
    await machine.host.offer(doc.offer(box, lease_until=_in(60_000)))
    await machine.ready()
    assert await machine.host.lease("u", _in(60_000)) is Verdict.TAKEN
    await machine.delete()
    await machine.said("r/z", "WaitingToRetry")
    assert await machine.host.lease("u", _in(1000)) is Verdict.CLOSED
    assert (
        await machine.host.abandon("u", EndRequest(at=2, reason="Abandoned", message="over", by="me")) is Verdict.TAKEN
    )
    await machine.gone()
    assert await machine.host.lease("u", _in(1000)) is Verdict.OVER


async def test_abandoned_cleanup_is_recorded_and_stops(machine):
    box = doc.resource("r", [doc.step("a", "true")], [doc.step("z", "exit 1", backoff_ms=60_000)])
    await machine.host.offer(doc.offer(box))
    await machine.ready()
    await machine.delete()
    await machine.said("r/z", "WaitingToRetry")
    assert (
        await machine.host.abandon("u", EndRequest(at=2, reason="Abandoned", message="bucket is gone", by="me"))
        is Verdict.TAKEN
    )
    await machine.gone()
    assert "bucket is gone" in machine.report().message
    assert ("GiveUp", "", 0, "Abandoned") in machine.history()
    assert any("by me" in entry.message for entry in machine.host.history("u"))


async def test_first_request_to_abandon_is_recorded(machine):
    """A second request before the first one is executed changes neither its author nor its reason."""
    box = doc.resource("r", [doc.step("a", "true")], [doc.step("z", "exit 1", backoff_ms=60_000)])
    await machine.host.offer(doc.offer(box))
    await machine.ready()
    await machine.delete()
    await machine.said("r/z", "WaitingToRetry")
    words = [EndRequest(at=2, reason="Abandoned", message=f"{who} says so", by=who) for who in ("ann", "bob")]
    assert await asyncio.gather(*(machine.host.abandon("u", each) for each in words)) == [Verdict.TAKEN] * 2
    await machine.gone()
    assert [each.message for each in machine.host.history("u") if each.move == "GiveUp"] == ["ann says so (by ann)"]


async def test_a_cleanup_that_fails_again_and_again_is_called_stuck(machine):
    script = 'echo x >> "$JOURNAL"; [ "$(wc -l < "$JOURNAL")" -ge 7 ]'
    box = doc.resource("r", [doc.step("a", "true")], [doc.step("z", script, backoff_ms=20)])
    await machine.host.offer(doc.offer(box))
    await machine.ready()
    await machine.delete()
    await machine.reason("CleanupStuck")
    await machine.gone()
    assert len(machine.lines()) == 7


async def test_unsupported_units_are_refused(machine):
    document = doc.hooks(pre_start=[doc.Unit(name="thing", kind="object", object=Object(remove="a"))])
    with pytest.raises(
        DocumentsRefusedError,
        match="thing: this host runs units of kind acquire, exec, fork, preview, route and webhook, not object",
    ):
        machine.host.admit((document,), ())
    entry = {"name": "TOKEN_X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    template = {"spec": {"containers": [{"name": "main", "env": [entry]}]}}
    document = doc.resource("r", [doc.step("a", template=template)])
    with pytest.raises(
        DocumentsRefusedError, match=r"r/a: .* takes TOKEN_X from a cluster.*: TOKEN_X=\.\.\. dayfly up$"
    ):
        machine.host.admit((document,), ())


def _in(milliseconds):
    from dayfly.lib.clock import now_ms

    return now_ms() + milliseconds


async def test_a_lease_is_not_held_against_the_time_without_a_server(machine):
    """No client can renew a lease without a server, so the next server extends it."""
    box = doc.resource("r", [doc.step("a", "true")], [])
    await machine.host.offer(doc.offer(box, lease_until=_in(300)))
    await machine.down()
    await asyncio.sleep(0.4)
    await machine.up()
    await asyncio.sleep(0.3)
    report = machine.host.report("u")
    assert report.closed is None
    assert await machine.host.lease("u", _in(60_000)) is Verdict.TAKEN
    await machine.ready()


async def test_versions_of_reports_rise_over_a_restart(machine, monkeypatch):
    """A client that waits for a newer report than that of the former server gets one at once."""
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "true")], [])))
    await machine.ready()
    before = machine.host.version("u")
    await machine.down()
    monkeypatch.setattr("dayfly.embedded.host.now_ms", lambda: 1_000_000_000_000)  # as if its clock had been set back
    await machine.up()
    assert machine.host.version("u") > before
