"""Which sandboxes the server checks again if a client requests what needs attention."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from tests.server import specs

from dayfly.lib.clock import now_ms
from dayfly.link.server_end import Links
from dayfly.server.api.attention_candidates import MAX_AGE_MS, AttentionCandidates

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE_MS = 60_000
FAILED = {"ready": False, "reason": "ResourceFailed", "message": "mydb/provision: exit 1"}


@contextlib.contextmanager
def sandbox_queries() -> Iterator[list[str]]:
    """Collect the statements that read specs of sandboxes."""
    found: list[str] = []

    def collect(_connection, _cursor, statement, *_rest):
        if "FROM sandboxes" in statement and "spec" in statement.partition("FROM")[0]:
            found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", collect)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", collect)


def attention(client) -> list[tuple[str, str]]:
    return [(each["kind"], each["sandbox"]) for each in client.get("attention")]


def test_attention_without_a_change_reads_no_sandbox(db, host):
    for name in ("sb1", "sb2"):
        db.put(f"sandboxes/{name}", specs.sandbox())
    host.say(next(iter(host.offers)), **FAILED)
    with sandbox_queries() as found:
        assert attention(db) == [("failed", "sb1")]
        assert found
        found.clear()
        assert attention(db) == [("failed", "sb1")]
        assert found == []


def test_report_of_a_healthy_sandbox_changes_attention(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    assert attention(db) == attention(db) == []
    (uid,) = host.offers
    host.say(uid, **FAILED)
    db.get(f"sandboxes/sb1/report?after={host.version(uid) - 1}&wait=20")
    assert attention(db) == [("failed", "sb1")]


def test_key_with_a_scope_hides_no_sandbox_from_others(db, host):
    for name in ("sb1", "sb2"):
        db.put(f"sandboxes/{name}", specs.sandbox())
    for uid in host.offers:
        host.say(uid, **FAILED)
        db.get(f"sandboxes/{host.offers[uid].name}/report?after={host.version(uid) - 1}&wait=20")
    made = db.call("POST", "keys", {"name": "narrow", "role": "viewer", "scope": ["name:sb1"]})
    assert made.status == 200, made.body
    narrow = db.call("GET", "attention", headers={"signadot-api-key": made.json["key"]})
    assert [each["sandbox"] for each in narrow.json] == ["sb1"]
    assert attention(db) == [("failed", "sb1"), ("failed", "sb2")]


class Checked:
    """Candidates whose sandboxes were checked once and needed no attention."""

    def __init__(self, client, problems: dict[str, str]) -> None:
        self._candidates = AttentionCandidates(
            client.store.for_org("local"), Links(), lambda uid: problems.get(uid, "")
        )

    async def names(self, now: int, *, dismiss: bool = True) -> list[str]:
        """Return the names of the sandboxes to check at a time, after which they need no attention."""
        marker, found = await self._candidates.read(now)
        if dismiss:
            self._candidates.dismiss(marker, found, ())
        return [each.name for each in found]


@pytest.fixture
def crowd(client):
    client.put("sandboxes/forever", specs.empty())
    client.put("sandboxes/mortal", specs.empty(ttl={"duration": "5h"}))
    return client


async def test_healthy_sandbox_is_checked_again_near_its_end(crowd):
    now = now_ms()
    checked = Checked(crowd, {})
    assert await checked.names(now) == ["forever", "mortal"]
    soon = MAX_AGE_MS - 1
    assert await checked.names(now + soon) == []
    warned = Checked(crowd, {})
    late = now + 5 * 60 * MINUTE_MS - 10 * MINUTE_MS
    assert await warned.names(late - 2000) == ["forever", "mortal"]
    assert await warned.names(late + 2000) == ["mortal"]


async def test_all_sandboxes_are_checked_again_after_a_change(crowd):
    now = now_ms()
    checked = Checked(crowd, {})
    await checked.names(now)
    crowd.put("sandboxes/third", specs.empty())
    assert await checked.names(now) == ["forever", "mortal", "third"]


async def test_all_sandboxes_are_checked_again_after_a_clock_jump(crowd):
    now = now_ms()
    for jump in (MAX_AGE_MS, -1):
        checked = Checked(crowd, {})
        await checked.names(now)
        assert await checked.names(now + jump) == ["forever", "mortal"]


async def test_sandbox_with_a_failed_order_is_checked_again(crowd):
    now, problems = now_ms(), {}
    checked = Checked(crowd, problems)
    await checked.names(now)
    problems[crowd.get("sandboxes/mortal/report")["uid"]] = "the cluster does not answer"
    assert await checked.names(now) == ["mortal"]


async def test_check_that_a_change_has_overtaken_dismisses_nothing(crowd):
    now = now_ms()
    candidates = AttentionCandidates(crowd.store.for_org("local"), Links(), lambda _uid: "")
    marker, found = await candidates.read(now)
    crowd.put("sandboxes/third", specs.empty())
    assert len((await candidates.read(now))[1]) == 3
    candidates.dismiss(marker, found, ())
    assert len((await candidates.read(now))[1]) == 3
