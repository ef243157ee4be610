"""Waits for a run are bound to its UID."""

from __future__ import annotations

import pytest
from tests.cli.fake_server import Fake, serving

from dayfly.cli import watch
from dayfly.cli.backends.target_server import ServerClient
from dayfly.client import Client as Dayfly
from dayfly.client import FailedError, RetryPolicy
from dayfly.client.address import Address
from dayfly.client.errors import DayflyError
from dayfly.server.api.reports import describe_chunk


def _report(uid: str, version: int, *, ready: bool) -> dict[str, object]:
    said = {
        "name": "demo",
        "cluster": "local",
        "routingKey": "k",
        "endpoints": [],
        "ready": ready,
        "reason": "X",
        "message": "",
        "phase": "open",
        "units": [],
        "done": 0,
        "total": 0,
    }
    return {"uid": uid, "version": version, **said}


def test_wait_rejects_another_sandbox_of_the_same_name():
    fake = Fake()
    ours, another = _report("u-1", 1, ready=False), _report("u-2", 2, ready=True)
    fake.say("GET", "sandboxes/demo/report", ours, another)
    with serving(fake) as url:
        client = ServerClient(Address(url, "key"))
        with pytest.raises(
            DayflyError, match="demo was deleted, and the sandbox of that name that exists now is another one"
        ):
            watch.until_ready(client, "demo", 10)
        fake.say("GET", "sandboxes/demo/report", ours, _report("u-1", 2, ready=True))
        watch.until_ready(client, "demo", 10)
        client.close()


@pytest.mark.parametrize("size", [0, 1, 2, 3])
@pytest.mark.parametrize(("what", "shown"), [(b"", ["€" * 10, "it failed"]), (b"\xff", [])])
def test_log_tail_is_shown_wherever_it_splits_a_character(capsys, size: int, what: bytes, shown):
    log = b"x" * size + ("€" * 2_000 + "\n" + "€" * 10 + "\nit failed\n").encode() + what
    unit = {"id": "db/make", "state": "failed", "attempt": 1, "event": "preStart", "kind": "exec", "name": "make"}
    report = {**_report("u", 1, ready=False), "reason": "ResourceFailed", "units": [unit]}
    offset = len(log) - 4096
    fake = Fake()
    fake.say("GET", "sandboxes/demo/report", report)
    fake.say("GET", "sandboxes/demo/attempts", [{"unit": "db/make", "attempt": 1, "size": len(log), "sealed": True}])
    fake.say("GET", "sandboxes/demo/log", describe_chunk("db/make", 1, offset, log[offset:], sealed=True))
    with serving(fake) as url:
        client = ServerClient(Address(url, "key"))
        with pytest.raises(DayflyError, match="ResourceFailed"):
            watch.until_ready(client, "demo", 10)
        client.close()
    said = [line.partition(" | ")[2] for line in capsys.readouterr().err.splitlines() if line.startswith("db/make | ")]
    assert said[-2:] == shown


@pytest.mark.parametrize("without", ["attempts", "log"])
def test_failure_is_reported_without_its_log(without: str):
    """A host or log that is no longer available does not hide the failure."""
    unit = {"id": "db/make", "state": "failed", "attempt": 1, "event": "preStart", "kind": "exec", "name": "make"}
    fake = Fake()
    failed = {"reason": "ResourceFailed", "units": [{**unit, "resource": "db"}]}
    fake.say("GET", "sandboxes/demo/report", {**_report("u", 1, ready=False), **failed})
    fake.say("GET", "sandboxes/demo/attempts", [{"unit": "db/make", "attempt": 1, "size": 5, "sealed": True}])
    fake.say("GET", f"sandboxes/demo/{without}", {"error": "the cluster cannot be reached now"}, status=503)
    with serving(fake) as url:
        client = ServerClient(Address(url, "key"))
        with pytest.raises(DayflyError, match="demo: ResourceFailed: ; read: dayfly logs demo db make"):
            watch.until_ready(client, "demo", 10)
        client.close()
        fake.say("GET", "sandboxes/demo/log", {"error": "the cluster cannot be reached now"}, status=503)
        with (
            Dayfly(url, "key", retries=RetryPolicy(patience=0)) as dayfly,
            pytest.raises(FailedError, match="demo: ResourceFailed: ; read: dayfly logs demo db make") as raised,
        ):
            dayfly.sandboxes.wait_ready("demo", timeout=10)
        assert raised.value.log == ""
