"""Views of ended sandboxes and of plugins, the panel of a unit, and the order of a list, in a real browser."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from tests.page.server_data import told
from tests.page.test_browser import JUMP, uid_of
from tests.server import specs

from dayfly.server.db.tables import ended_sandboxes
from dayfly.spec.run_data import HistoryEntry, Value

pytestmark = pytest.mark.builds("page")
# Measures layout shifts from now on, including those after a click.
MOVED = """
window.moved = 0;
new PerformanceObserver((list) => list.getEntries().forEach((each) => (window.moved += each.value))).observe({type: "layout-shift"});
"""


def test_ended_sandboxes_of_one_name_are_shown_separately(client, host, enter):
    uids = []
    for text in ("of the first", "of the second"):
        client.put("sandboxes/again", specs.empty())
        (uid,) = [uid for uid in host.offers if uid not in uids]
        uids.append(uid)
        host.log_data[uid, "db/make", 1] = (text.encode(), True)
        moves = ("Claim", ""), ("Record", "succeeded")
        host.lines[uid] = tuple(
            HistoryEntry(seq=n, at=n * 1000, unit="db/make", attempt=1, move=move, reason=reason, message="")
            for n, (move, reason) in enumerate(moves, 1)
        )
        client.call("DELETE", "sandboxes/again")
        host.finish(uid)
        assert client.call("GET", "sandboxes/again").status == 404
    client.put("sandboxes/again", specs.empty())
    client.put("sandboxes/other", specs.empty())
    with enter() as visit:
        page = visit.page
        for row, text in ((1, "of the first"), (0, "of the second")):
            visit.open("/page/ended", "text=2 in the last week")
            page.click(f"tbody tr >> nth={row} >> a")
            page.wait_for_selector(".standing .state:has-text('ended')")
            page.click(".node:has-text('make')")
            page.wait_for_selector(f".log pre:has-text('{text}')")
            page.click(".attempts button[aria-pressed=true]")
            assert page.locator(".actions").count() == 0, "a living sandbox is not ended by mistake"
        visit.open("/page/ended?q=oth", "text=0 of 2 in the last week")
        visit.open("/page/sandboxes/again", ".standing .state:has-text('ready')")


def test_ended_list_shows_how_each_sandbox_ended_and_by_whom(world, host, enter):
    for name in ("plain", "gone"):
        world.put(f"sandboxes/{name}", specs.sandbox())
    told(host, broken := uid_of(host, "gone"))
    host.lines[broken] = (
        HistoryEntry(seq=1, at=5, unit="mydb/provision", attempt=1, move="Claim", reason="", message=""),
    )
    world.call("POST", "sandboxes/gone/abandon", {"reason": "its machine burnt", "force": True})
    uid = uid_of(host, "plain")
    world.call("DELETE", "sandboxes/plain")
    host.finish(uid)
    assert world.call("GET", "sandboxes/plain").status == 404
    with enter() as visit:
        page = visit.page
        visit.open("/page/ended", "text=2 in the last week")
        gone, plain = (
            page.locator("tr:has-text('gone')").inner_text(),
            page.locator("tr:has-text('plain')").inner_text(),
        )
        assert "abandoned its machine burnt. May have left: mydb/provision" in " ".join(gone.split())
        assert "clean" in plain
        author = world.get("ended-sandboxes")[0]["by"]
        assert author
        assert author in plain
        page.fill("#search", "abandoned")
        page.wait_for_selector("text=1 of 2 in the last week")
        assert visit.axe() == []


def test_label_column_appears_only_with_its_label(client, enter):
    client.put("sandboxes/bare", specs.empty(labels={"team": "a"}))
    with enter() as visit:
        page = visit.page
        heads = lambda: page.locator("thead th").all_inner_texts()  # noqa: E731
        page.wait_for_selector("text=1 sandbox")
        assert not {"Owner", "PR", "Link"} & set(heads())
        labels = {"owner": "ann", "pr": "https://git.example/shop/pull/17", "link": "javascript:alert(1)"}
        client.put("sandboxes/full", specs.empty(labels=labels))
        page.wait_for_selector("text=2 sandboxes")
        assert {"Owner", "PR", "Link"} <= set(heads())
        link = page.locator("td.pr a")
        assert (link.inner_text(), link.get_attribute("href")) == ("#17", labels["pr"])
        assert page.locator("td.owner").all_inner_texts()[1] == "ann"
        assert page.locator("td.link a").count() == 0, "only http and https addresses are links"
        assert visit.axe() == []


def test_new_sandbox_appears_at_once_on_its_open_page(client, host, enter):
    """The sandbox appears within the timeout of a visit, which is shorter than the poll interval for missing ones."""
    with enter() as visit:
        visit.open("/page/sandboxes/later", "text=There is no sandbox of this name")
        client.put("sandboxes/later", specs.empty())
        visit.page.wait_for_selector(".standing .state:has-text('ready')")
        client.call("DELETE", "sandboxes/later")
        host.finish(next(iter(host.offers)))
        visit.page.wait_for_selector(".standing .state:has-text('ended')")
        client.put("sandboxes/later", specs.empty())
        visit.page.wait_for_selector(".standing .state:has-text('ready')")


def test_older_ended_sandboxes_are_shown_on_request(client, enter):
    row = {"routing_key": "k", "cluster": "local", "created_at": 1, "abandoned": False}
    now = time.time_ns() // 1_000_000
    many = [{**row, "uid": str(n), "name": f"b{n:03}", "ended_at": now - n // 3} for n in range(450)]
    write = client.store.for_org("local").write(lambda rows: rows.insert(ended_sandboxes, many))
    with ThreadPoolExecutor(1) as pool:  # in this thread the browser's driver has its loop
        pool.submit(asyncio.run, write).result()
    with enter() as visit:
        visit.open("/page/ended", "text=the last 200")
        visit.page.click("button:has-text('Show older ones')")
        visit.page.wait_for_selector("text=450 in the last week")
        assert visit.page.locator("tbody tr").count() == 450
        newer = [{**row, "uid": f"n{n}", "name": f"n{n}", "ended_at": now + 1 + n} for n in range(5)]
        write = client.store.for_org("local").write(lambda rows: rows.insert(ended_sandboxes, newer))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, write).result()
        client.put("sandboxes/one", specs.empty())  # the page requests the list again after this change
        visit.page.wait_for_selector("text=455 in the last week")
        assert visit.page.locator("tbody tr").count() == 455
        assert visit.page.locator("button:has-text('Show older ones')").count() == 0
        visit.page.fill("#search", "b449")
        visit.page.wait_for_selector("text=1 of 455 in the last week")


def test_plugin_page_shows_a_graph_of_its_steps(world, enter):
    with enter() as visit:
        page = visit.page
        visit.open("/page/plugins/db", ".node >> nth=1")
        assert [lane.split()[0] for lane in page.locator(".lane").all_inner_texts()] == ["Create", "Delete"]
        assert page.locator(".canvas svg text").all_text_contents() == ["host"]
        page.click(".node:has-text('provision')")
        page.wait_for_selector(".step pre:has-text('#!')")
        assert "unit=create%2Fprovision" in page.url
        assert visit.axe() == []


def test_plugin_page_shows_how_its_last_sandboxes_ended(world, host, enter):
    world.put("sandboxes/plain", specs.sandbox())
    uid = uid_of(host, "plain")
    world.call("DELETE", "sandboxes/plain")
    host.finish(uid)
    assert world.call("GET", "sandboxes/plain").status == 404
    with enter() as visit:
        page = visit.page
        visit.open("/page/plugins/db", ".past li")
        assert page.locator("p:has(+ .past)").inner_text() == "1: 1 clean."
        mark = page.locator(".past a")
        assert re.fullmatch(r"plain, db: clean, .*, lived .*", mark.get_attribute("title"))
        assert visit.axe() == []
        mark.click()
        page.wait_for_selector(".standing .state:has-text('ended')")


def test_unit_panel_shows_attempts_and_obstacles(world, enter):
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/sb1?unit=mydb%2Fdrop", ".attempts li >> nth=1")
        tried = page.locator(".attempts li").all_inner_texts()
        assert ["failed" in each for each in tried] == [True, True]
        assert "Refused" not in page.inner_text("aside.unit")
        visit.open("/page/sandboxes/sb1?unit=mydb%2Fprovision", ".attempts li")
        assert page.locator("aside.unit .cause").count() == 0, "it holds nothing up"


def test_a_panel_that_is_loading_moves_nothing(world, enter):
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/sb1", "aside.unit")
        page.keyboard.press("Escape")
        page.wait_for_selector("aside.unit", state="detached")
        held, free = [], threading.Event()
        page.route(
            re.compile(r"/(attempts|history)$"), lambda each: each.continue_() if free.is_set() else held.append(each)
        )
        page.click(".node:has-text('drop')")
        page.wait_for_selector("aside.unit > [role=status]:has-text('Loading')")
        page.evaluate(MOVED)
        free.set()
        for each in held:
            each.continue_()
        page.wait_for_selector(".attempts li >> nth=1")
        page.wait_for_selector("aside.unit .log [role=status]:has-text('Complete')")
        assert page.evaluate("window.moved") < JUMP


def test_columns_sort_both_ways_and_the_address_says_so(world, enter):
    with enter() as visit:
        page = visit.page
        names = lambda: page.locator("tbody th a").all_inner_texts()  # noqa: E731
        visit.open("/page/sandboxes", "text=2 sandboxes")
        assert names() == ["sb1", "sb2"]
        page.click("thead a:has-text('Name')")
        page.wait_for_selector("th[aria-sort=ascending]:has-text('Name')")
        page.click("thead a:has-text('Name')")
        page.wait_for_selector("th[aria-sort=descending]:has-text('Name')")
        assert (names(), page.url.rpartition("?")[2]) == (["sb2", "sb1"], "by=-name")
        page.click("thead a:has-text('Name')")
        page.wait_for_selector("th[aria-sort=ascending]:has-text('Name')")
        assert names() == ["sb1", "sb2"]


def test_an_answer_to_a_question_that_was_closed_closes_no_other(world, enter):
    with enter() as visit:
        page = visit.page
        held = []
        page.route(
            "**/sandboxes/sb1",
            lambda route: held.append(route) if route.request.method == "DELETE" else route.continue_(),
        )
        visit.open("/page/sandboxes/sb1", ".actions button:has-text('Extend')")
        page.click(".actions button:has-text('Delete')")
        page.click("dialog[open] button[type=submit]")
        page.click("dialog[open] button:has-text('Cancel')")
        page.click(".actions button:has-text('Extend')")
        page.wait_for_selector("dialog[open]:has-text('live longer')")
        (asked,) = held
        with page.expect_response("**/sandboxes/sb1"):
            asked.fulfill(json={})
        page.evaluate("new Promise((done) => setTimeout(done, 100))")
        assert page.locator("dialog[open]:has-text('live longer')").count() == 1


# Replaces the browser's class, so that the test sends the events.
STREAMS = """
window.streams = [];
window.EventSource = class extends EventTarget {
  constructor() {
    super();
    this.readyState = 1;
    document.documentElement.dataset.streams = window.streams.push(this);
    setTimeout(() => this.dispatchEvent(new Event("open")));
  }
  close() {}
  says(kind, data) { this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(data) })); }
  ends() { this.readyState = 2; this.dispatchEvent(new Event("error")); }
};
window.EventSource.CLOSED = 2;
"""


def test_error_disappears_when_a_new_stream_begins(client, enter):
    with enter() as visit:
        page = visit.page
        page.add_init_script(STREAMS)
        visit.open("/page/sandboxes", "text=Loading")
        page.wait_for_selector("html[data-streams='1']")
        for kind in ("", "group-"):
            page.evaluate("(kind) => streams[0].says(kind + 'trouble', {error: 'the cluster does not answer'})", kind)
        page.wait_for_selector(".fault:has-text('the cluster does not answer')")
        page.evaluate("streams[0].ends()")
        page.wait_for_selector("html[data-streams='2']")
        page.evaluate("['', 'group-'].forEach((kind) => streams[1].says(kind + 'synced', {}))")
        page.wait_for_selector("text=There are no sandboxes")
        assert page.locator(".fault").count() == 0
        page.click("nav a:has-text('Route groups')")
        page.wait_for_selector("text=There are no route groups")
        assert page.locator(".fault").count() == 0


def test_revealed_value_is_not_shown_for_another_unit(world, host, enter):
    uid = uid_of(host, "sb1")
    provision, _ = host.reports[uid].units
    other = msgspec.structs.replace(provision, id="mydb/other", name="other")
    told_of = {"ready": False, "reason": "StepsRunning", "message": ""}
    host.say(uid, units=(provision, other), **told_of)
    host.outputs[uid] += (Value(unit="mydb/other", output="pw", value=b"another", sensitive=True),)
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/sb1?unit=mydb%2Fprovision", ".values li:has-text('h1')")
        page.click("button:has-text('Reveal')")
        page.wait_for_selector(".values li:has-text('canary')")
        page.click(".node:has-text('other')")
        page.wait_for_selector(".unit h2:has-text('mydb/other')")
        page.wait_for_selector(".values li:has-text('pw')")
        assert "canary" not in page.content()
        page.click("button:has-text('Reveal')")
        page.wait_for_selector(".values li:has-text('another')")
