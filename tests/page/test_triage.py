"""From the list to the cause of a problem, in a real browser: order, counts, the opened unit, and buttons."""

from __future__ import annotations

import msgspec
import pytest
from tests.page.server_data import told
from tests.page.test_browser import uid_of
from tests.server import specs

from dayfly.spec.report import UnitReport
from dayfly.spec.run import EndRequest
from dayfly.spec.run_data import Value

pytestmark = pytest.mark.builds("page")

READY = {"ready": True, "reason": "AllDesiredWorkloadsReady", "message": "All desired workloads are available."}


def stick(client, host, name: str) -> str:
    """Let the cleanup of a sandbox be stuck."""
    uid = uid_of(host, name)
    client.call("DELETE", f"sandboxes/{name}")
    told(host, uid, reason="CleanupStuck", message="mydb/drop: exit 1")
    host.reports[uid] = msgspec.structs.replace(host.reports[uid], closed=EndRequest(at=1, reason="Deleted"))
    return uid


@pytest.fixture
def crowd(client, host):
    """Sixty ready sandboxes, a failed one, and as the last by name one with a stuck cleanup."""
    client.put("resource-plugins/db", specs.plugin())
    for n in range(60):
        client.put(f"sandboxes/box-{n:03}", specs.empty(labels={"team": f"t{n % 2}"}))
    for name in ("box-failed", "box-stuck"):
        client.put(f"sandboxes/{name}", specs.sandbox())
    told(host, uid_of(host, "box-failed"))
    stick(client, host, "box-stuck")
    return client


def test_one_click_on_stuck_sandbox_shows_cause_and_log(crowd, enter):
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=62 sandboxes")
        assert page.locator("tbody th a").all_inner_texts()[:2] == ["box-stuck", "box-failed"]
        page.click("tbody th a >> nth=0")
        page.wait_for_selector("aside.unit h2:has-text('mydb/drop')")
        page.wait_for_selector(".log pre:has-text('could not drop')")
        assert "exit 1" in page.inner_text("aside.unit .standing")
        for shown in ("aside.unit .standing", ".log pre"):
            box = page.locator(shown).bounding_box()
            assert box["y"] + box["height"] <= page.viewport_size["height"], f"{shown} is visible without scrolling"
        assert visit.axe() == []


def test_unit_that_opened_by_itself_can_be_closed(crowd, enter):
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/box-stuck", "aside.unit")
        page.click("aside.unit .close")
        page.wait_for_selector("aside.unit", state="detached")
        assert "unit=" not in page.url


def test_ready_sandbox_opens_no_unit(crowd, enter):
    with enter() as visit:
        visit.open("/page/sandboxes/box-001", ".standing .state:has-text('ready')")
        visit.page.wait_for_selector("section.why")
        assert visit.page.locator("aside.unit").count() == 0


def test_sandbox_that_fails_while_it_is_shown_moves_nothing(crowd, host, enter):
    uid = uid_of(host, "box-failed")
    host.say(uid, **READY)
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/box-failed", ".standing .state:has-text('ready')")
        page.wait_for_selector("section.why")
        told(host, uid)
        page.wait_for_selector(".standing .state:has-text('failed')")
        page.wait_for_selector(".why li:has-text('exit 1')")
        assert page.locator("aside.unit").count() == 0


def test_count_filters_by_its_state_and_a_second_click_shows_all(crowd, enter):
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=62 sandboxes")
        assert [each.split() for each in page.locator(".counts a").all_inner_texts()] == [
            ["✕", "stuck", "1"],
            ["✕", "failed", "1"],
            ["✓", "ready", "60"],
        ]
        page.click(".counts a:has-text('failed')")
        page.wait_for_selector("text=1 of 62 sandboxes")
        assert page.locator("tbody th a").all_inner_texts() == ["box-failed"]
        page.fill("#search", "is:failed team=t1")
        page.wait_for_selector(".counts a:has-text('ready'):has-text('30')")
        page.fill("#search", "is:failed")
        page.click(".counts a[aria-current]")
        page.wait_for_selector("text=62 sandboxes")
        assert "q=" not in page.url
        assert visit.axe() == []


def test_list_shows_messages_and_ready_instead_of_reasons(crowd, enter):
    with enter() as visit:
        visit.page.wait_for_selector("text=62 sandboxes")
        cells = visit.page.locator("tbody td.reason").all_inner_texts()
        assert cells[:2] == ["mydb/drop: exit 1", "mydb/provision: exit 1"]
        assert not {"CleanupStuck", "ResourceFailed"} & set(visit.text().split())


def test_advice_has_buttons_for_its_commands(crowd, host, enter):
    uid = uid_of(host, "box-stuck")
    with enter() as visit:
        page = visit.page
        visit.open("/page/attention", ".concerns li:has-text('box-stuck')")
        item = page.locator(".concerns li:has-text('box-stuck')")
        assert "dayfly" not in item.inner_text()
        assert item.locator("button").all_inner_texts() == ["Retry now", "Abandon"]
        item.locator("a:has-text('Show its log')").click()
        page.wait_for_selector(".log pre:has-text('could not drop')")
        page.click("aside.unit .next button:has-text('Retry now')")
        page.click("dialog button:has-text('Retry')")
        page.wait_for_selector("dialog", state="detached")
        assert host.hurried[-1][0] == {"mydb/drop": 2}
        visit.open("/page/attention", ".concerns li:has-text('box-stuck')")
        page.click(".concerns li:has-text('box-stuck') button:has-text('Abandon')")
        page.fill("dialog input", "its server is gone")
        page.click("dialog button.danger")
        page.wait_for_selector("dialog", state="detached")
    assert host.abandoned[uid].message == "its server is gone"


def test_viewer_sees_advice_without_buttons(crowd, enter):
    key = crowd.call("POST", "keys", {"name": "looker", "role": "viewer"}).json["key"]
    with enter(key) as visit:
        visit.open("/page/sandboxes/box-stuck", "aside.unit .next:has-text('Fix the cause')")
        assert visit.page.locator(".next button").count() == 0


def test_ready_sandbox_shows_endpoints_and_outputs_first(client, host, enter):
    client.put("resource-plugins/db", specs.plugin())
    client.put(
        "sandboxes/sb1",
        specs.sandbox(endpoints=[{"name": "shop", "host": "web.shop.svc", "port": 80, "protocol": "http"}]),
    )
    uid = uid_of(host, "sb1")
    unit = UnitReport(
        id="mydb/provision",
        resource="mydb",
        name="provision",
        event="preStart",
        kind="exec",
        state="succeeded",
        attempt=1,
        outputs=("host", "pw"),
    )
    host.outputs[uid] = (
        Value(unit="mydb/provision", output="host", value=b"h1"),
        Value(unit="mydb/provision", output="pw", value=b"canary", sensitive=True),
    )
    host.say(uid, **READY, units=(unit,))
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/sb1", ".values.all li:has-text('h1')")
        top = {each: page.locator(each).bounding_box()["y"] for each in (".endpoint", ".values.all", ".graph")}
        assert sorted(top, key=top.__getitem__) == [".endpoint", ".values.all", ".graph"]
        assert "canary" not in page.content()
        page.click(".values.all button:has-text('Reveal')")
        page.wait_for_selector(".values.all li:has-text('canary')")
        assert "workloads" not in page.inner_text("main")
        assert visit.axe() == []
