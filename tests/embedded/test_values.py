"""Output values after the end of their run: none is left."""

from tests.embedded.documents import offer, resource, step
from tests.embedded.machine import until

from dayfly.embedded.ledger import SqliteLedger
from dayfly.spec.lifecycle import UnitOutput

CANARY = b"canary-4711-of-the-mine"


def holding(machine):
    """Return all files of the home and the work folder with the canary, except the script that makes it."""
    files = [path for folder in (machine.home, machine.work) for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if CANARY in path.read_bytes()]


async def test_no_file_contains_values_after_the_end(machine):
    """Neither the ledger nor its write-ahead log has it, while the server runs."""
    make = step(
        "make",
        "printf 'canary-4711-%s' of-the-mine >/tmp/word",
        outputs=(UnitOutput(name="word", path="/tmp/word", sensitive=True),),
    )
    drop = step("drop", 'echo "dropped" >>"$JOURNAL"', inputs=("word=make.word",))
    await machine.host.offer(offer(resource("db", [make], [drop])))
    await machine.ready()
    assert machine.values() == {"db/make.word": CANARY}
    assert any(name.startswith("ledger.db") for name in holding(machine))
    await machine.finish()
    await until(lambda: not holding(machine), lambda: f"nothing of it in {holding(machine)}", 20)
    assert machine.lines() == ["dropped"]


async def test_values_in_files_of_a_killed_server_are_wiped(machine, monkeypatch):
    """A server could not truncate the write-ahead log; the next one does."""
    make = step(
        "make", "printf 'canary-4711-%s' of-the-mine >/tmp/word", outputs=(UnitOutput(name="word", path="/tmp/word"),)
    )
    with monkeypatch.context() as patch:
        patch.setattr(SqliteLedger, "wipe", lambda ledger: setattr(ledger, "needs_truncation", False))
        await machine.host.offer(offer(resource("db", [make])))
        await machine.ready()
        await machine.finish()
        files = {machine.home / name: (machine.home / name).read_bytes() for name in ("ledger.db", "ledger.db-wal")}
        await machine.down()
    for path, data in files.items():
        path.write_bytes(data)
    assert holding(machine) == ["ledger.db-wal"]
    await machine.up()
    await until(lambda: not holding(machine), lambda: f"nothing of it in {holding(machine)}", 20)
    assert machine.host.has_ended("u")
