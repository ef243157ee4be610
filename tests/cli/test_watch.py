"""Waiting for a run: of the very sandbox that was wished for."""

from __future__ import annotations

import pytest

from cli.fake import Fake, serving
from dayfly.cli import watch
from dayfly.cli.client import Address, Client
from dayfly.cli.exits import CliError


def _report(uid: str, version: int, *, ready: bool) -> dict[str, object]:
    said = {"ready": ready, "reason": "X", "message": "", "phase": "open", "units": [], "done": 0, "total": 0}
    return {"uid": uid, "version": version, **said}


def test_another_sandbox_of_the_same_name_is_not_ours_that_became_ready():
    fake = Fake()
    ours, another = _report("u-1", 1, ready=False), _report("u-2", 2, ready=True)
    fake.say("GET", "sandboxes/demo/report", ours, another)
    with serving(fake) as url:
        client = Client(Address(url, "key"))
        with pytest.raises(
            CliError, match="demo was deleted, and the sandbox of that name that exists now is another one"
        ):
            watch.until_ready(client, "demo", 10)
        fake.say("GET", "sandboxes/demo/report", ours, _report("u-1", 2, ready=True))
        assert watch.until_ready(client, "demo", 10)["ready"]
        client.close()
