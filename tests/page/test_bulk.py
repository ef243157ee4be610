"""Actions on many sandboxes of the list, in a real browser."""

from __future__ import annotations

import pytest
from tests.page.server_data import told
from tests.page.test_browser import uid_of
from tests.server import specs

pytestmark = pytest.mark.builds("page")


@pytest.fixture
def boxes(client):
    for n in range(8):
        client.put(f"sandboxes/box-{n}", specs.empty(ttl={"duration": "9m"} if n < 6 else None))
    return client


def select(page, *names: str) -> None:
    for name in names:
        page.check(f"input[aria-label='Select {name}']")


def confirm(page, button: str) -> None:
    page.click(f".bulk button:has-text('{button}')")
    page.click(f"dialog button[type=submit]:has-text('{button}')")


def test_selected_sandboxes_are_deleted_and_no_others(boxes, host, enter):
    chosen = {uid_of(host, name) for name in ("box-1", "box-4")}
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=8 sandboxes")
        select(page, "box-1", "box-4")
        page.wait_for_selector(".bulk:has-text('2 selected')")
        assert visit.axe() == []
        page.click(".bulk button:has-text('Delete')")
        page.wait_for_selector("dialog:has-text('box-1, box-4')")
        assert visit.axe() == []
        page.click("dialog button[type=submit]")
        page.wait_for_selector("dialog", state="detached")
    assert set(host.closed) == chosen


def test_select_all_selects_the_filtered_sandboxes(boxes, host, enter):
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=8 sandboxes")
        select(page, "box-7")
        page.fill("#search", "box-1")
        page.wait_for_selector("text=1 of 8 sandboxes")
        assert page.locator(".bulk").count() == 0, "a hidden sandbox takes no action"
        page.check("input[aria-label='Select all']")
        page.wait_for_selector(".bulk:has-text('1 selected')")
        confirm(page, "Delete")
        page.wait_for_selector("dialog", state="detached")
    assert set(host.closed) == {uid_of(host, "box-1")}


def test_shift_click_selects_all_rows_between(boxes, enter):
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=8 sandboxes")
        page.click("input[aria-label='Select box-2']")
        page.click("input[aria-label='Select box-5']", modifiers=["Shift"])
        page.wait_for_selector(".bulk:has-text('4 selected')")
        page.click(".bulk button:has-text('Clear')")
        page.wait_for_selector(".bulk", state="detached")


def test_refused_sandboxes_are_listed_with_the_cause(boxes, host, enter):
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=8 sandboxes")
        select(page, "box-5", "box-6")
        confirm(page, "Extend")
        page.wait_for_selector("dialog:has-text('2 of 2 sent, 1 refused')")
        assert page.locator(".refused li").all_inner_texts()[0].startswith("box-6: ")
        assert visit.axe() == []
        page.click("dialog button:has-text('Close')")
    assert boxes.get("sandboxes/box-6")["spec"].get("ttl") is None
    assert boxes.get("sandboxes/box-5")["spec"]["ttl"]["duration"] != "9m"


def test_selected_sandboxes_are_retried(client, host, enter):
    client.put("resource-plugins/db", specs.plugin())
    for name in ("one", "two"):
        client.put(f"sandboxes/{name}", specs.sandbox())
        told(host, uid_of(host, name))
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=2 sandboxes")
        page.check("input[aria-label='Select all']")
        confirm(page, "Retry")
        page.wait_for_selector("dialog", state="detached")
    assert [units for units, _ in host.hurried] == [{"mydb/drop": 2}] * 2


def test_selection_ignores_new_sandbox_of_the_same_name(boxes, host, enter):
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=8 sandboxes")
        select(page, "box-1", "box-2")
        uid = uid_of(host, "box-1")
        boxes.call("DELETE", "sandboxes/box-1")
        host.finish(uid)
        page.wait_for_selector(".bulk:has-text('1 selected')")
        boxes.put("sandboxes/box-1", specs.empty())
        page.wait_for_selector("text=8 sandboxes")
        assert not page.is_checked("input[aria-label='Select box-1']")


def test_viewer_has_no_checkboxes(boxes, enter):
    key = boxes.call("POST", "keys", {"name": "looker", "role": "viewer"}).json["key"]
    with enter(key) as visit:
        visit.page.wait_for_selector("text=8 sandboxes")
        assert visit.page.locator("input[type=checkbox]").count() == 0
