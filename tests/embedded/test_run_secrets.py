"""The secrets of a run: stored before its birth, read by its steps, and removed at its end."""

import pytest
from tests.embedded.documents import offer, resource, step
from tests.embedded.machine import until
from tests.embedded.test_values import CANARY, holding

from dayfly.execute.executor import Registry
from dayfly.link.wire import Verdict
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import As, UnitInput
from dayfly.spec.run import EndRequest

SECRET = UnitInput(name="key", secret=True, as_=As(env="KEY"))
GIVEN = {("db", "key"): CANARY}
MAKE = step("make", 'echo "with $KEY"; printf %s "$KEY" | base64; echo "${#KEY}" >>"$JOURNAL"', inputs=(SECRET,))
DROP = step("drop", 'echo "without $KEY"; echo "drop ${#KEY}" >>"$JOURNAL"', inputs=(SECRET,))
DB = resource("db", [MAKE], [DROP])
STOP = EndRequest(at=1, reason="Deleted", message="asked")


async def test_steps_read_them_and_nothing_has_them_after_the_end(machine):
    secrets = machine.host.secrets
    await secrets.keep("u", GIVEN)
    machine.host.admit((DB,), ())
    assert await machine.host.offer(offer(DB)) is Verdict.TAKEN
    await machine.ready()
    assert [name for name in holding(machine) if not name.startswith("ledger.db")] == []
    assert any(name.startswith("ledger.db") for name in holding(machine))
    assert machine.log("db/make").splitlines()[0] == b"with ***"
    await machine.finish()
    assert machine.lines() == [str(len(CANARY)), f"drop {len(CANARY)}"]
    assert machine.log("db/drop") == b"without ***\n"
    await until(lambda: not holding(machine), lambda: f"nothing of it in {holding(machine)}", 20)


async def test_run_is_refused_without_its_secrets(machine):
    other = step("other", inputs=(UnitInput(name="more", secret=True), SECRET))
    documents = (DB, resource("queue", [other]))
    for given, missing in (({}, r"db/key, queue/key, queue/more"), (GIVEN, r"queue/key, queue/more")):
        await machine.host.secrets.keep("u", given)
        with pytest.raises(
            DocumentsRefusedError,
            match=rf"its secrets \({missing}\) are not on this host; pass them with: --secrets-file",
        ):
            machine.host.admit(documents, ())


async def test_ended_run_does_not_miss_its_secrets(machine):
    """A late offer is answered with the end of the run, which its sandbox waits for."""
    await machine.host.secrets.keep("u", GIVEN)
    await machine.host.offer(offer(DB))
    await machine.finish()
    machine.host.admit((DB,), ())
    assert await machine.host.offer(offer(DB)) is Verdict.OVER


async def test_secrets_of_a_run_that_never_begins_are_removed(machine):
    await machine.host.secrets.keep("u", GIVEN)
    assert await machine.host.stop("u", STOP, known=False) is Verdict.OVER
    await until(lambda: not holding(machine), lambda: f"nothing of it in {holding(machine)}", 20)
    await machine.host.secrets.keep("v", GIVEN)
    await machine.host.secrets.drop("v")
    await until(lambda: not holding(machine), lambda: f"nothing of it in {holding(machine)}", 20)


async def test_secrets_without_a_sandbox_or_run_are_dropped(machine):
    secrets = machine.host.secrets
    for uid in ("u", "wished", "orphan"):
        await secrets.keep(uid, GIVEN)
    await machine.host.offer(offer(DB))
    await secrets.drop_all_but({"wished"})
    assert [secrets.match(uid, GIVEN) for uid in ("u", "wished", "orphan")] == [True, True, False]
    await machine.finish()


async def test_secrets_are_compared_as_a_whole(machine):
    secrets = machine.host.secrets
    await secrets.keep("u", GIVEN)
    others = ({}, {("db", "key"): b"other"}, {("db", "kez"): CANARY}, {**GIVEN, ("db", "more"): b"more"})
    assert [secrets.match("u", each) for each in others] == [False] * 4
    await secrets.drop("u")


async def test_secrets_survive_a_restart_of_the_server(machine):
    await machine.host.secrets.keep("u", GIVEN)
    await machine.host.offer(offer(DB))
    await machine.ready()
    await machine.down()
    await machine.up()
    await machine.finish()
    assert machine.lines()[-1] == f"drop {len(CANARY)}"


def test_remote_host_refuses_secrets():
    with pytest.raises(DocumentsRefusedError, match="db: key is a secret, and --secrets-file can set it only on a dev"):
        Registry().admit((resource("db", [MAKE]),), ())
