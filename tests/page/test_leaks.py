"""Leak checks on the page: the list, one check with its findings, deletion by plan, rights, and hostile names."""

from __future__ import annotations

import msgspec
import pytest
from tests.page.test_browser import SCHEMES
from tests.server.agents import delete
from tests.server.client import Client, wait_for
from tests.server.test_leak_checks import CHECK, FakeChecks, check, publish

from dayfly.lib.clock import now_ms
from dayfly.server.leaks import leak_sync
from dayfly.spec.identity import resource_id
from dayfly.spec.leak_report import LeakFinding

pytestmark = pytest.mark.builds("page", "runner")

SMALL = {"width": 320, "height": 640}
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(leak_sync, "ROUND_INTERVAL_S", 0.1)


@pytest.fixture
def host(host):
    host.leak_checks = FakeChecks()
    return host


@pytest.fixture
def checked(client, host):
    """A check with an orphan of a deleted sandbox, and a foreign item."""
    publish(client)
    alice = Client(
        client.port, client.store, client.call("POST", "keys", {"name": "alice", "role": "member"}).json["key"]
    )
    resource = {"name": "r", "plugin": "bucket@1.0.0", "params": {"region": "west"}}
    alice.put("sandboxes/box", {"spec": {"cluster": "local", "resources": [resource]}})
    (uid,) = host.offers
    delete(alice, host, "box")
    client.put(CHECK, check(pricePerHour="0.50 EUR"))
    orphan = LeakFinding(
        verdict="orphan",
        id=resource_id(uid, "r"),
        name="bucket-left",
        reason="its run has ended",
        plugin="bucket@1.0.0",
        created=now_ms() - 10 * HOUR_MS,
        deletable=True,
    )
    report(host, orphan, LeakFinding(verdict="foreign", name="theirs", reason="it has no resource id"))
    return client


def report(host, *findings, plan="p1", **changes):
    kept = host.leak_checks.kept
    found = kept["items"]
    counts = {verdict: sum(each.verdict == verdict for each in findings) for verdict in ("orphan", "foreign")}
    kept["items"] = msgspec.structs.replace(
        found,
        number=found.number + 1,
        findings=findings,
        counts=counts,
        plan=plan,
        **{"listed_at": now_ms(), **changes},
    )


@pytest.mark.parametrize(("scheme", "size"), [*SCHEMES, ("light", SMALL)])
def test_views_of_leaks_are_accessible_and_fit(checked, enter, scheme, size):
    with enter(color_scheme=scheme, viewport=size) as visit:
        for path, wait in (
            ("/page/leaks", "tbody tr th a"),
            ("/page/leaks/items", "text=bucket-left"),
            ("/page/attention", ".concerns a"),
            ("/page/leaks/nobody", ".fault"),
        ):
            visit.open(path, wait)
            assert visit.axe() == [], path
            wide = visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is wider than the window"
        visit.open("/page/leaks/items", ".actions")
        visit.page.click(".actions button:has-text('Delete orphans')")
        visit.page.wait_for_selector("dialog[open]")
        assert visit.axe() == []


def test_leaks_need_attention_and_lead_to_their_creator_and_cost(checked, enter):
    wait_for(lambda: checked.get("attention"))
    with enter() as visit:
        visit.open("/page/attention", ".concerns a")
        assert "it has found 1 orphan" in visit.text()
        visit.page.click(".concerns a:has-text('leak check items')")
        visit.page.wait_for_url("**/page/leaks/items")
        visit.page.wait_for_selector("tbody tr")
        row = visit.page.locator("tbody tr:has-text('bucket-left')").inner_text()
        for part in ("orphan", "alice", "box", "10 h", " EUR", "its run has ended"):
            assert part in row
        assert "Orphans have cost about 5.0" in visit.text()


def test_confirmation_lists_items_and_sends_their_plan(checked, host, enter):
    with enter() as visit:
        page = visit.page
        visit.open("/page/leaks/items", ".actions")
        page.click(".actions button:has-text('Delete orphans')")
        assert page.locator("dialog li").all_inner_texts()[0].startswith("bucket-left")
        assert page.locator("dialog li").count() == 1
        assert "Delete 1 item?" in page.locator("dialog").inner_text()
        report(host, plan="p2")  # a later list must not change what is confirmed
        page.click("dialog button:has-text('Delete')")
        wait_for(lambda: [getattr(order, "plan", None) for order in host.leak_checks.orders][-1] == "p1")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "Every item in the list belongs to a living sandbox."),
        ({"listed_at": 0}, "None are known without a complete list."),
        ({"error": "it is incomplete"}, "None are known without a complete list."),
    ],
    ids=["list without leaks", "no list yet", "failed list"],
)
def test_check_without_leaks_and_check_without_list_differ(checked, host, enter, changes, text):
    report(host, **changes)
    with enter() as visit:
        visit.open("/page/leaks/items", "section[aria-labelledby=findings] p")
        assert visit.page.locator("section[aria-labelledby=findings] p").inner_text() == text


def test_sweep_button_lets_the_check_list(checked, host, enter):
    with enter() as visit:
        visit.open("/page/leaks/items", ".actions")
        visit.page.click(".actions button:has-text('Sweep now')")
        wait_for(lambda: getattr(host.leak_checks.orders[-1], "plan", None) == "")


def test_viewer_sees_leaks_without_buttons(checked, enter):
    key = checked.call("POST", "keys", {"name": "looker", "role": "viewer"}).json["key"]
    with enter(key) as visit:
        visit.open("/page/leaks/items", "text=bucket-left")
        assert visit.page.locator(".actions").count() == 0


def test_key_with_a_scope_has_no_view_of_leaks(checked, enter):
    rights = {"name": "looker", "role": "member", "scope": ["name:*"]}
    key = checked.call("POST", "keys", rights).json["key"]
    with enter(key) as visit:
        visit.open("/page/leaks/items", "text=Not found")
        assert visit.page.locator("nav a:has-text('Leaks')").count() == 0


def test_hostile_names_of_items_are_text(checked, host, enter):
    bad = "<img src=x onerror=alert(1)> \u202eevil"
    report(host, LeakFinding(verdict="orphan", id=bad, name=bad, reason=bad, plugin=bad, deletable=True), error=bad)
    with enter() as visit:
        visit.open("/page/leaks/items", "text=onerror")
        visit.page.click(".actions button:has-text('Delete orphans')")
        visit.page.wait_for_selector("dialog[open]")
        assert visit.page.locator("main img, dialog img").count() == 0
        assert "⟨202E⟩" in visit.text()
