"""Pools on the page: the list, one pool with its members, the cause of a pause, and the actions by the rights of a key."""

from __future__ import annotations

import pytest
from tests.page.test_browser import SCHEMES, uid_of
from tests.server import specs
from tests.server.client import wait_for
from tests.server.test_pools import NEWEST, POOL, member, pool

from dayfly.link.wire import PoolAction
from dayfly.server.sync import host_sync
from dayfly.spec.report import PoolReport, UnitReport

pytestmark = pytest.mark.builds("page", "runner")

SMALL = {"width": 320, "height": 640}
NUMBERS = {"wanted": 2, "ready": 1, "held": 1, "hits": 7, "misses": 1, "rate": 3600.0, "refill_ms": 1500}
MEMBERS = (
    member("small-1", "succeeded", holder="sb1/mydb", started_at=1),
    member("small-2", "succeeded", started_at=2),
)
FAILED = member("small-3", "failed", reason="ResourceFailed", message="db/provision: exit code 3", started_at=3)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(host_sync, "ROUND_INTERVAL_S", 0.1)


@pytest.fixture
def host(host):
    host.pools = True
    return host


@pytest.fixture
def pooled(client, host):
    """A pool with a held and a ready member, and a sandbox with a hit and a miss."""
    client.put("resource-plugins/db", specs.plugin())
    client.put(POOL, pool())
    client.put("sandboxes/sb1", specs.sandbox())
    say(host, units=MEMBERS)
    units = tuple(
        UnitReport(id=f"{name}/provision", resource=name, name="provision", event="preStart", kind="acquire",
                   state="succeeded", attempt=1, member=of, pool=of.rpartition("-1")[0], hit=hit)
        for name, of, hit in (("mydb", "small-1", True), ("other", "sb1-other", False))
    )  # fmt: skip
    host.say(uid_of(host, "sb1"), ready=True, reason="Ready", message="fine", units=units)
    return client


def say(host, *, units, is_ready=True, reason="PoolFull", message="2 of 2 members are ready", **numbers):
    found = PoolReport(**{**NUMBERS, "generation": NEWEST, **numbers})
    host.say(uid_of(host, "small"), ready=is_ready, reason=reason, message=message, units=units, pool=found)


def fail(host):
    host.log_data[uid_of(host, "small"), "small-3/provision", 1] = (b"no route to the database\n", True)
    text = "3 members failed in a row"
    say(host, units=(*MEMBERS, FAILED), is_ready=False, reason="Failing", message=text, paused=text)


@pytest.mark.parametrize(("scheme", "size"), [*SCHEMES, ("light", SMALL)])
def test_views_of_pools_are_accessible_and_fit(pooled, host, enter, scheme, size):
    fail(host)
    with enter(color_scheme=scheme, viewport=size) as visit:
        for path, wait in (
            ("/page/pools", "tbody tr th a"),
            ("/page/pools/small", ".log pre:has-text('no route')"),
            ("/page/sandboxes/sb1", "text=(hit)"),
            ("/page/attention", ".concerns a"),
            ("/page/pools/nobody", ".nothing"),
        ):
            visit.open(path, wait)
            assert visit.axe() == [], path
            wide = visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is wider than the window"
        visit.open("/page/pools/small", ".actions")
        visit.page.click(".actions button:has-text('Delete')")
        visit.page.wait_for_selector("dialog[open]")
        assert visit.axe() == []


def test_list_shows_the_numbers_of_a_pool_and_changes(pooled, host, enter):
    with enter() as visit:
        visit.open("/page/pools", "text=1 pool")
        cells = visit.page.locator("tbody tr").inner_text().split()
        assert cells[:2] == ["small", "✓"]
        assert {"1/2", "87.5", "1.5"} < set(cells)
        say(host, units=MEMBERS, wanted=2, ready=2)
        visit.page.wait_for_selector("tbody td:has-text('2/2')")


def test_member_links_to_its_holder(pooled, enter):
    with enter() as visit:
        visit.open("/page/pools/small", "text=small-2")
        visit.page.click("a:has-text('sb1/mydb')")
        visit.page.wait_for_url("**/page/sandboxes/sb1")


def test_sandbox_shows_which_resources_were_hits(pooled, enter):
    with enter() as visit:
        visit.open("/page/sandboxes/sb1", "text=(hit)")
        shown = visit.page.locator("dd .chip").all_inner_texts()
        assert shown == ["mydb: small-1 (hit)", "other: sb1-other (miss)"]
        visit.page.click("dd a:has-text('small-1')")
        visit.page.wait_for_url("**/page/pools/small")


def test_failing_pool_needs_attention_and_shows_its_log(pooled, host, enter):
    fail(host)
    with enter() as visit:
        visit.open("/page/attention", ".concerns a")
        visit.page.click(".concerns a:has-text('pool small')")
        visit.page.wait_for_selector(".log pre:has-text('no route to the database')")
        assert "exit code 3" in visit.text()
        assert visit.page.locator(".why").inner_text().count("3 members failed in a row") == 1


def test_pool_is_paused_and_deleted_by_its_buttons(pooled, host, enter):
    with enter() as visit:
        page = visit.page
        visit.open("/page/pools/small", ".actions")
        page.click(".actions button:has-text('Pause')")
        page.click("dialog button:has-text('Pause')")
        wait_for(lambda: [action for _, action, _ in host.actions] == [PoolAction.PAUSE])
        say(host, units=MEMBERS, is_ready=False, reason="Paused", message="by ann", paused="by ann")
        page.click(".actions button:has-text('Resume')")
        page.click("dialog button:has-text('Resume')")
        wait_for(lambda: [action for _, action, _ in host.actions][1:] == [PoolAction.RESUME])
        page.click(".actions button:has-text('Delete')")
        page.click("dialog button:has-text('Delete')")
        wait_for(lambda: uid_of(host, "small") in host.closed)
        page.wait_for_selector(".actions", state="detached")


@pytest.mark.parametrize(
    "rights", [{"role": "viewer"}, {"role": "member", "scope": ["name:*"]}], ids=["viewer", "scope"]
)
def test_key_that_may_not_change_pools_sees_no_buttons(pooled, enter, rights):
    key = pooled.call("POST", "keys", {"name": "looker", **rights}).json["key"]
    with enter(key) as visit:
        visit.open("/page/pools/small", "text=small-2")
        assert visit.page.locator(".actions").count() == 0
        ask = """() => fetch("/api/v2/orgs/local/resourcepools/small/pause", {method: "POST", body: "{}",
            headers: {"Dayfly-Page": "1", "Content-Type": "application/json"}}).then((r) => r.status)"""
        assert visit.page.evaluate(ask) == 403


def test_pool_of_hostile_text_shows_text_only(pooled, host, enter):
    bad = "<img src=x onerror=alert(1)> \u202eevil"
    say(host, units=(member("small-4", "failed", message=bad),), is_ready=False, reason="Failing", message=bad)
    with enter() as visit:
        visit.open("/page/pools/small", "text=onerror")
        assert visit.page.locator("main img").count() == 0
        assert "⟨202E⟩" in visit.text()
