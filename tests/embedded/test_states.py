"""States on this machine: each step gets only its own, others get nothing, and no state is left."""

import asyncio
import base64
import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.embedded import states
from dayfly.execute.state import seal
from dayfly.execute.state.handler import serve
from dayfly.execute.state.service import StateOwner
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Exec
from dayfly.spec.run import EndRequest

SECRET = b'{"serial": 1, "password": "hunter2-hunter2"}'
# Writes its environment, then waits for a file.
WAITS = (
    'env | grep ^TF_ >"$JOURNAL.$DAYFLY_ATTEMPT.new"; mv "$JOURNAL.$DAYFLY_ATTEMPT.new" "$JOURNAL.$DAYFLY_ATTEMPT"\n'
)
WAITS += 'echo "the password is $TF_HTTP_PASSWORD"\nwhile [ ! -e "$JOURNAL.go" ]; do sleep 0.02; done\nrm "$JOURNAL.go"'


def stateful(name, script=WAITS, **more):
    made = doc.step(name, script, **more)
    return msgspec.structs.replace(made, exec=Exec(script=made.exec.script, state=True))


class Told:
    """Return the variables of a step as Terraform would use them."""

    def __init__(self, text: str) -> None:
        self.all = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def ask(self, method="GET", body=None, query="", **changed):
        told = {**self.all, **changed}
        given = f"{told['TF_HTTP_USERNAME']}:{told['TF_HTTP_PASSWORD']}".encode()
        headers = {"Authorization": "Basic " + base64.b64encode(given).decode()}
        request = urllib.request.Request(told["TF_HTTP_ADDRESS"] + query, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


@pytest.fixture
async def keeping(machine):
    """The machine with a server for states."""
    await machine.down()
    machine.options = {"serve": serve}
    await machine.up()
    return machine


async def begun(machine, attempt=1) -> Told:
    return await until(lambda: told_by(Path(f"{machine.journal}.{attempt}")), "the step prints its environment")


def told_by(path: Path) -> Told | None:
    if not path.exists():
        return None
    told = Told(path.read_text())
    path.unlink()
    return told


def go(machine, other=""):
    Path(f"{machine.journal}{other}.go").touch()


async def asked(told, *words, **more):
    return await asyncio.to_thread(told.ask, *words, **more)


async def written(told, state=SECRET, lock="a"):
    assert (await asked(told, "LOCK", json.dumps({"ID": lock}).encode()))[0] == 200
    assert (await asked(told, "POST", state, f"?ID={lock}"))[0] == 200


async def test_state_lives_from_create_to_the_end_of_the_run(keeping):
    await keeping.host.offer(doc.offer(doc.resource("r", [stateful("make")], [stateful("drop")])))
    told = await begun(keeping)
    assert (await asked(told))[0] == 404
    await written(told)
    go(keeping)
    await keeping.ready()
    assert (await asked(told))[0] == 403, "its attempt has ended"
    await keeping.delete()
    second = await begun(keeping)
    assert await asked(second) == (200, SECRET)
    # The create step did not release its lock; its end is in the ledger.
    assert (await asked(second, "LOCK", b'{"ID":"b"}'))[0] == 200
    go(keeping)
    await keeping.gone()
    assert [path.name for path in states.folder(keeping.home).iterdir() if path.is_dir()] == []


async def test_state_is_unreadable_on_disk_and_in_logs(keeping):
    await keeping.host.offer(doc.offer(doc.resource("r", [stateful("make")], [doc.step("drop")])))
    told = await begun(keeping)
    await written(told)
    for path in [states.folder(keeping.home), *states.folder(keeping.home).rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    found = [path for path in keeping.home.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert found == []
    go(keeping)
    await keeping.ready()
    assert b"the password is ***" in keeping.log("r/make")
    assert told.all["TF_HTTP_PASSWORD"].encode() not in keeping.log("r/make")
    await keeping.finish()


@pytest.mark.parametrize("method", ["GET", "POST", "LOCK", "UNLOCK", "DELETE"])
async def test_caller_without_a_token_gets_no_state(keeping, method):
    mine, other = doc.resource("r", [stateful("make")], [doc.step("drop")]), doc.step("drop")
    theirs = doc.resource("other", [stateful("make", WAITS.replace("$JOURNAL", "$JOURNAL.other"))], [other])
    await keeping.host.offer(doc.offer(mine, theirs))
    told = await begun(keeping)
    await written(told)
    stranger = await until(lambda: told_by(Path(f"{keeping.journal}.other.1")), "the other step prints its own")
    await written(stranger)
    head = (states.folder(keeping.home) / "u" / "r" / "head").read_bytes()
    for changed in (
        {"TF_HTTP_PASSWORD": stranger.all["TF_HTTP_PASSWORD"]},
        {"TF_HTTP_PASSWORD": ""},
        {"TF_HTTP_USERNAME": "make.2"},
    ):
        status, body = await asked(told, method, b'{"ID":"a"}', "?ID=a", **changed)
        assert (status, b"hunter2" in body) == (401, False)
    assert (await asked(stranger, TF_HTTP_ADDRESS=told.all["TF_HTTP_ADDRESS"]))[0] == 401
    assert (states.folder(keeping.home) / "u" / "r" / "head").read_bytes() == head
    go(keeping)
    go(keeping, ".other")
    await keeping.ready()
    await keeping.finish()


async def test_restarted_state_server_keeps_its_address(keeping):
    await keeping.host.offer(doc.offer(doc.resource("r", [stateful("make")], [doc.step("drop")])))
    told = await begun(keeping)
    await written(told)
    assert (states.folder(keeping.home) / "port").read_text() in told.all["TF_HTTP_ADDRESS"]
    await keeping.down()
    with pytest.raises(urllib.error.URLError):
        told.ask()
    await keeping.up()
    assert await asked(told) == (200, SECRET)
    assert (await asked(told, "POST", b"{}", "?ID=a"))[0] == 200
    go(keeping)
    await keeping.ready()
    await keeping.finish()


async def test_killed_attempt_cannot_write_and_releases_the_lock(keeping):
    make = stateful("make", idempotent=True, limit=2)
    await keeping.host.offer(doc.offer(doc.resource("r", [make], [doc.step("drop")])))
    late = await begun(keeping)
    await written(late)
    (folder,) = keeping.folders()
    os.kill(int((folder / "marker").read_text().split("\n")[1]), 9)
    told = await begun(keeping, 2)
    for method in ("GET", "POST", "UNLOCK", "DELETE"):
        assert (await asked(late, method, b'{"ID":"a"}', "?ID=a"))[0] == 403
    status, body = await asked(late, "LOCK", b'{"ID":"a"}')
    assert (status, json.loads(body)["Info"][:29]) == (423, "r/make, attempt 1 has ended, ")
    assert (await asked(told, "LOCK", b'{"ID":"b"}'))[0] == 200
    assert await asked(told) == (200, SECRET)
    go(keeping)
    await keeping.ready()
    await keeping.finish()


async def test_unlocked_write_is_read_by_the_delete_step(keeping):
    await keeping.host.offer(doc.offer(doc.resource("r", [stateful("make")], [stateful("drop")])))
    told = await begun(keeping)
    assert (await asked(told, "POST", SECRET))[0] == 200
    go(keeping)
    await keeping.ready()
    await keeping.delete()
    assert await asked(await begun(keeping)) == (200, SECRET)
    go(keeping)
    await keeping.gone()


async def test_refused_state_fails_create_and_holds_up_delete(keeping):
    drop = stateful("drop", backoff_ms=60_000)  # no second attempt replaces the message of the first
    await keeping.host.offer(doc.offer(doc.resource("r", [stateful("make")], [drop])))
    told = await begun(keeping)
    assert (await asked(told, "POST", SECRET, "?ID=other"))[0] == 409
    go(keeping)
    made = await until(lambda: ended(keeping, "r/make"), "the create step to end")
    assert (made.state, made.reason) == ("failed", "StateRefused")
    assert "its state was refused: a write needs the lock of this state, which is free" in made.message
    await keeping.delete()
    await begun(keeping)
    go(keeping)
    dropped = await until(lambda: ended(keeping, "r/drop"), "the delete step to end")
    assert dropped.state == "retrying"
    assert "StateRefused: state was refused" in dropped.message
    assert "(of r/make, attempt 1)" in dropped.message
    await keeping.host.abandon("u", EndRequest(at=1, reason="Abandoned", message="removed by hand", by="me"))
    await keeping.gone()


def ended(machine, name):
    report = machine.report("u")
    return next((unit for unit in report.units if unit.id == name and unit.state in ("failed", "retrying")), None)


async def test_abandoned_run_keeps_its_state(keeping):
    never = stateful("drop", "exit 1")
    await keeping.host.offer(doc.offer(doc.resource("r", [stateful("make")], [never])))
    await written(await begun(keeping))
    go(keeping)
    await keeping.ready()
    await keeping.host.abandon("u", EndRequest(at=1, reason="Abandoned", message="lost", by="me"))
    await keeping.gone()
    place = StateOwner("u", "r")
    head = states.heads(keeping.home)[place]
    assert (head.sandbox, head.resource) == ("box", "r")
    chunks = states.chunks(keeping.home, place, head.newest)
    assert seal.unseal(states.keys(keeping.home), place, head.newest, chunks) == SECRET


async def test_state_body_is_limited_before_and_after_login(keeping, monkeypatch):
    monkeypatch.setattr("dayfly.execute.state.handler.MAX_BODY", 1000)
    await keeping.host.offer(doc.offer(doc.resource("r", [stateful("make")], [doc.step("drop")])))
    told = await begun(keeping)
    await written(told, b"x" * 1000)
    assert (await asked(told, "POST", b"y" * 1001, "?ID=a"))[0] == 413
    assert (await asked(told, "LOCK", b"y" * (1 << 17)))[0] == 413
    assert (await asked(told, "POST", b"y" * 1001, "?ID=a", TF_HTTP_PASSWORD="x"))[0] == 401
    assert await asked(told) == (200, b"x" * 1000)
    go(keeping)
    await keeping.ready()
    await keeping.finish()


async def test_a_host_without_the_server_takes_no_step_with_a_state(machine):
    with pytest.raises(DocumentsRefusedError, match="r/make: this host was started without a server for states"):
        machine.host.admit((doc.resource("r", [stateful("make")], []),), ())


async def test_home_without_states_opens_no_port(keeping):
    await keeping.host.offer(doc.offer(doc.resource("r", [doc.step("make", "true")], [])))
    await keeping.ready()
    assert not states.folder(keeping.home).exists()
    await keeping.finish()
