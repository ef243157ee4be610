"""Webhooks on this machine: a separate process sends each to a test server."""

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.processes import processes
from tests.webhook.server import Server, answer
from tests.webhook.webhook_sender import unit

from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import UnitRetry


def hook(name, url, method="POST", *, reads=None, **request):
    """A webhook that reads `unit.output` for each input."""
    made = unit(url, method, name=name, **request)
    reads = tuple(doc.given(f"{key}={source}") for key, source in (reads or {}).items())
    return msgspec.structs.replace(made, inputs=made.inputs + reads)


async def up(machine, server, **options):
    await machine.down()
    return await machine.up(webhooks=[server.name], **options)


async def test_webhooks_create_and_delete_with_values_from_scripts(machine):
    def reply(request, _):
        return answer(201, {"id": "r/1", "password": "hunter2-hunter2"}) if request.method == "POST" else answer(204)

    with Server(reply) as server:
        await up(machine, server)
        outputs = {"id": {"json_path": "$.id"}, "password": {"json_path": "$.password", "sensitive": True}}
        make = hook("make", server.url, inputs={"name": "x"}, body={"name": {"$input": "name"}}, outputs=outputs)
        seed = doc.step("seed", 'echo "$ID $PASSWORD" >> "$JOURNAL"', inputs=["id=make.id", "password=make.password"])
        drop = hook("drop", server.url, "DELETE", reads={"id": "make.id"}, path=[{"$input": "id"}], idempotent=True)
        await machine.host.offer(doc.offer(doc.resource("db", (make, seed), (drop,))))
        await machine.ready()
        log = machine.host.read_log("u", "db/make", 1, offset=0, limit=65_536).decode()
        assert "response 201" in log
        assert "hunter2-hunter2" not in log
        await machine.delete()
        await machine.gone()
    assert machine.lines() == ["r/1 hunter2-hunter2"]
    assert [(seen.method, seen.target) for seen in server.seen] == [("POST", "/"), ("DELETE", "/r%2F1")]


async def test_lost_request_is_resent_with_its_key_until_refused(machine):
    answers = [None, answer(500), answer(422), answer(201)]

    def reply(*_):
        return answers.pop(0)

    with Server(reply) as server:
        await up(machine, server)
        make = msgspec.structs.replace(
            hook("make", server.url, idempotent=True), retry=UnitRetry(idempotent=True, limit=9, backoff_ms=50)
        )
        await machine.host.offer(doc.offer(doc.resource("db", (make,))))
        await machine.ready()
        await machine.delete()
        await machine.gone()
    first, second, third, fourth = (seen.key for seen in server.seen)
    assert first == second == third != fourth


async def test_failed_webhook_reports_the_status_of_the_server(machine):
    with Server(lambda *_: answer(409)) as server:
        await up(machine, server)
        await machine.host.offer(doc.offer(doc.resource("db", (hook("make", server.url),))))
        await machine.reason("ResourceFailed")
        unit = machine.unit("db/make")
        assert (unit.reason, unit.message) == ("UnexpectedStatus", "the server responded 409")
        assert (unit.outputs, machine.host.values("u")) == ((), ()), "an internal output is not reported"
        await machine.delete()
        await machine.gone()


async def test_webhook_to_a_private_server_is_refused(machine):
    with Server(lambda *_: answer(201)) as server:
        await machine.host.offer(doc.offer(doc.resource("db", (hook("make", server.url),))))
        await machine.reason("ResourceFailed")
        assert machine.unit("db/make").reason == "AddressRefused"
        await machine.delete()
        await machine.gone()
    assert server.connections == 0


async def test_webhook_secret_comes_from_the_server_environment(machine, monkeypatch):
    monkeypatch.setenv("DNS_TOKEN", "t0ken-of-dns")
    headers = {"Authorization": {"$secret": {"name": "dns", "key": "token"}, "prefix": "Bearer "}}
    with Server(lambda *_: answer(201)) as server:
        made = doc.resource("db", (hook("make", server.url, headers=headers),))
        await up(machine, server)
        await machine.host.offer(doc.offer(made))
        await machine.ready()
        assert server.seen[0].headers["authorization"] == "Bearer t0ken-of-dns"
        assert b"t0ken-of-dns" not in machine.host.read_log("u", "db/make", 1, offset=0, limit=65_536)
        await machine.delete()
        await machine.gone()
        monkeypatch.delenv("DNS_TOKEN")
        await up(machine, server)
        with pytest.raises(DocumentsRefusedError, match="set DNS_TOKEN in the environment of `dayfly up`"):
            machine.host.admit((made,), ())


async def test_replaced_server_waits_for_the_answer_without_resending(machine):
    """The host ends during the request; the next one adopts the sender."""
    held = []

    def reply(_request, stream):
        held.append(stream.dup() if hasattr(stream, "dup") else stream)
        return

    with Server(reply) as server:
        await up(machine, server)
        make = hook("make", server.url, outputs={"id": {"json_path": "$.id"}})
        await machine.host.offer(doc.offer(doc.resource("db", (make,))))
        await until(lambda: held, "the request")
        await up(machine, server)
        held[0].sendall(answer(201, {"id": "r-1"}))
        held[0].close()
        await machine.ready()
        assert {(value.output, value.value) for value in machine.host.values("u")} == {("id", b"r-1")}
        await machine.delete()
        await machine.gone()
    assert len(server.seen) == 1


async def test_request_of_a_killed_sender_is_cleaned_up_after_its_time(machine):
    held = []

    def reply(request, stream):
        if request.method == "DELETE":
            return answer(404)
        held.append(stream.dup())
        return None

    with Server(reply) as server:
        await up(machine, server)
        drop = hook("drop", server.url, "DELETE", idempotent=True, expect={"status": [204, 404]})
        make = hook("make", server.url, run_ms=3_000)
        await machine.host.offer(doc.offer(doc.resource("db", (make,), (drop,))))
        await until(lambda: held, "the request")
        for sender in _senders(machine):
            os.kill(sender, signal.SIGKILL)
        await machine.reason("ResourceFailed")
        assert time.time() * 1000 - machine.unit("db/make").started_at >= 3_000
        await machine.delete()
        await machine.gone()
        held[0].close()
    assert [seen.method for seen in server.seen] == ["POST", "DELETE"]


async def test_webhook_deleted_while_sending_waits_for_its_answer(machine):
    held = []

    def reply(request, stream):
        if request.method == "DELETE":
            return answer(204)
        held.append(stream.dup())
        return None

    with Server(reply) as server:
        await up(machine, server)
        make = hook("make", server.url, outputs={"id": {"json_path": "$.id"}})
        drop = hook("drop", server.url, "DELETE", reads={"id": "make.id"}, path=[{"$input": "id"}], idempotent=True)
        await machine.host.offer(doc.offer(doc.resource("db", (make,), (drop,))))
        await until(lambda: held, "the request")
        await machine.delete()
        await machine.said("db/make", "Stopping")
        held[0].sendall(answer(201, {"id": "r-1"}))
        held[0].close()
        await machine.gone()
    assert [seen.target for seen in server.seen] == ["/", "/r-1"]


def _senders(machine):
    """Return the running sender processes."""
    found = processes(str(machine.journal))
    return [each for each in found if b"sender.py" in _command_line(each)]


def _command_line(process):
    """Return the command of a process; empty if it has just ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
