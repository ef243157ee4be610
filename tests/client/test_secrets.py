"""Secrets from Python programs: sent only to a server on this machine, and never printed."""

from __future__ import annotations

import inspect
import shutil
import traceback
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_connection import answering
from tests.server.client import KEY, serving
from tests.server.fake_host import FakeHost
from tests.server.test_run_secrets import CANARY, GIVEN, Kept, sandbox_body

from dayfly.client import ConflictError, DayflyError, Exit, InvalidError, RefusedError, UnreachableError
from dayfly.client.connection import ApiRequest
from dayfly.client.servers import Server

WISH = {"name": "sb1", **sandbox_body()}
GIVES = {"mydb": {"key": CANARY}}


@pytest.fixture
def store() -> Kept:
    return Kept()


@pytest.fixture
def dayfly(tmp_path: Path, blank: Path, host: FakeHost, store: Kept, connect: Any) -> Any:
    with serving(Path(shutil.copy(blank, tmp_path)), {"local": host}, secret_stores={"local": store}) as server:
        yield connect(f"http://127.0.0.1:{server.port}", KEY)


def test_secrets_are_sent_beside_the_spec_each_time(dayfly: Any, store: Kept):
    for _ in range(2):
        made = dayfly.sandboxes.apply(WISH, secrets=GIVES, lease=600)
    assert list(store.values()) == [GIVEN]
    assert CANARY not in repr(made)
    assert "secrets" not in WISH, "the argument is unchanged"
    with pytest.raises(ConflictError, match="cannot change while it lives") as other:
        dayfly.sandboxes.apply(WISH, secrets={"mydb": {"key": "canary-other"}})
    assert "canary" not in str(other.value)


def test_missing_secret_is_named_with_how_to_give_it(dayfly: Any, store: Kept):
    with pytest.raises(InvalidError, match=r"key is a secret that was not given; .*, or in Python secrets="):
        dayfly.sandboxes.apply(WISH)
    assert store.ever == 0


def test_invalid_secrets_are_named_without_values(dayfly: Any, store: Kept):
    given = {"mydb": {"key": "xyz", "pin": b"canary", "empty": "", "long": "canary" * 20_000}, "other": "canary"}
    with pytest.raises(InvalidError) as fault:
        dayfly.sandboxes.apply(WISH, secrets=given)
    assert str(fault.value).splitlines() == [
        "secrets.mydb.key: has fewer than 4 bytes, too few to be masked in a log",
        "secrets.mydb.pin: is bytes, and must be a text",
        "secrets.mydb.empty: is empty",
        "secrets.mydb.long: has 120000 bytes; at most 65536 are allowed",
        "secrets.other: must be a mapping of names to texts",
    ]
    with pytest.raises(InvalidError, match="secrets: must be a mapping of resources"):
        dayfly.sandboxes.apply(WISH, secrets=["canary"])
    assert store.ever == 0


def test_secrets_are_not_sent_to_another_machine(connect: Any):
    # The machine does not exist, so no request is sent.
    away = connect("https://dayfly.invalid", KEY)
    with pytest.raises(DayflyError, match="only to a server on this machine") as fault:
        away.sandboxes.apply(WISH, secrets=GIVES)
    assert (fault.value.code, CANARY in str(fault.value)) == (Exit.USAGE, False)


def printed(fault: BaseException) -> str:
    """Pytest prints the arguments of the failing call, which must hide the secrets."""
    frame, _ = list(traceback.walk_tb(fault.__traceback__))[-1]
    names, _, _, values = inspect.getargvalues(frame)
    return "".join(repr(values[name]) for name in names if name != "self")


def test_no_traceback_shows_a_secret_an_output_or_the_key(connect: Any):
    refused = b'HTTP/1.1 500 X\r\ncontent-length: 19\r\n\r\n{"error": "broken"}'
    with answering(refused) as (url, asked), pytest.raises(RefusedError) as fault:
        connect(url, KEY).sandboxes.apply(WISH, secrets=GIVES)
    assert CANARY.encode() in asked[0]
    assert CANARY not in printed(fault.value)
    strange = f'[{{"value": "{CANARY}"}}]'.encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(strange)
    with answering(head + strange) as (url, _), pytest.raises(UnreachableError, match="does not understand") as fault:
        connect(url, KEY).sandboxes.outputs("sb1")
    assert CANARY not in printed(fault.value)
    with pytest.raises(DayflyError, match="is not the address") as fault:
        connect("gopher://a", KEY)
    assert KEY not in printed(fault.value)
    bearer = {"Authorization": f"Bearer {KEY}"}
    assert KEY not in repr((Server("http://a", "local", KEY), ApiRequest("GET", "/x", bearer)))
