"""The page in a real browser: updates without a reload, permissions, keyboard only, accessibility."""

from __future__ import annotations

import re
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.page import browser as driven
from tests.page.server_data import told
from tests.server import specs
from tests.server.client import Client

from dayfly.client.home import Home
from dayfly.spec.run import EndRequest
from dayfly.spec.run_data import HistoryEntry

pytestmark = pytest.mark.builds("page", "runner")

SCHEMES = [("light", driven.DESKTOP), ("dark", driven.DESKTOP), ("light", driven.PHONE), ("dark", driven.PHONE)]
GATED = """\
name: gated
spec:
  runner: {image: none}
  create:
  - name: make
    outputs: [{name: token, valueFromPath: /tmp/token, sensitive: true}]
    script: "#!/bin/sh\\necho making; printf s3cret >/tmp/token; while [ ! -e @{folder}/go-make ]; do sleep 0.05; done"
  - name: fill
    inputs: [{name: token, valueFromStep: {name: make, output: token}, as: {env: TOKEN}}]
    outputs: [{name: rows, valueFromPath: /tmp/rows}]
    script: "#!/bin/sh\\nprintf 3 >/tmp/rows; while [ ! -e @{folder}/go-fill ]; do sleep 0.05; done"
  delete:
  - name: drop
    script: "#!/bin/sh\\nwhile [ ! -e @{folder}/go-drop ]; do sleep 0.05; done; echo gone"
---
name: demo
spec: {cluster: local, labels: {team: a}, ttl: {duration: 1d}, resources: [{name: db, plugin: gated}]}
"""


@pytest.fixture
def home(tmp_path):
    """A real server on this machine, and a way to type commands to it."""
    place = tmp_path / "home"

    def type_(*arguments):
        return driven.dayfly(*arguments, home=place, folder=tmp_path)

    type_("up", "--detach", "--port", "0")
    try:
        yield type_
    finally:
        type_("down")
        assert Home(place).server_process() is None


def url_of(link: str) -> str:
    return re.match(r"http://[^/]+", link)[0]


# As browsers count it. A word that pushes its neighbour in a line stays far below; a block that moves by a line is 0.015.
JUMP = 0.005


def test_sandbox_lives_and_ends_on_the_page_without_reload(browser, home, tmp_path):
    (tmp_path / "all.yaml").write_text(GATED.replace("@{folder}", str(tmp_path)))
    link = home("page", "--no-open")
    with driven.visit(browser, url_of(link), link) as visit:
        page = visit.page
        page.wait_for_selector("text=There are no sandboxes")
        page.evaluate("window.same = true")
        applying = threading.Thread(target=home, args=("apply", "-f", "all.yaml"))
        applying.start()
        page.click("a:has-text('demo')")
        page.wait_for_selector(".node.running:has-text('make')")
        # From here on there is no input: every shift comes from the page.
        page.evaluate("window.notes.shift = 0; window.notes.moved = []")
        before = page.evaluate("[...document.querySelectorAll('.canvas li')].map((e) => e.style.cssText)")
        assert page.locator(".node.waiting").count() == 2
        (tmp_path / "go-make").touch()
        page.wait_for_selector(".node.succeeded:has-text('make')")
        page.wait_for_selector(".node.running:has-text('fill')")
        (tmp_path / "go-fill").touch()
        page.wait_for_selector(".standing .state.ready")
        applying.join()
        assert page.locator(".node.succeeded").count() == 2
        assert page.text_content(".canvas svg text") == "token", "the edge between the steps has its output's name"
        assert "s3cret" not in page.content()
        page.click("button:has-text('Delete')")
        page.click("dialog button.danger")
        page.wait_for_selector(".node.running:has-text('drop')")
        (tmp_path / "go-drop").touch()
        page.wait_for_selector(".standing .state:has-text('ended')")
        assert before == page.evaluate("[...document.querySelectorAll('.canvas li')].map((e) => e.style.cssText)")
        shift, moved = visit.shift()
        assert shift < JUMP, moved
        page.click(".node:has-text('drop')")
        page.wait_for_selector(".log pre:has-text('gone')")
        page.click("nav a:has-text('Ended')")
        page.wait_for_selector("th a:has-text('demo')")
        page.click("nav a:has-text('Sandboxes')")
        page.wait_for_selector("text=There are no sandboxes")
        assert page.evaluate("window.same"), "it was never loaded again"
        shift, moved = visit.shift()
        assert shift < JUMP, moved


def test_a_link_works_once_and_only_by_its_own_script(browser, client):
    """A program that requests the address first (a preview, a proxy) does not use up the code, which is after the #."""
    url, link = f"http://127.0.0.1:{client.port}", driven.link_of(client)
    for _ in range(3):
        urllib.request.urlopen(f"{url}/page/enter", timeout=20).close()
    with driven.visit(browser, url, link) as visit:
        assert visit.page.url == f"{url}/page/sandboxes", "no code is left in the address"
        (cookie,) = visit.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert visit.page.evaluate("document.cookie") == ""
        visit.page.click("text=Sign out")
        visit.page.wait_for_selector("h1:has-text('Sign in')")
        assert visit.context.cookies() == []
    with driven.visit(browser, url) as visit:
        visit.page.goto(link)
        visit.page.wait_for_selector("text=this link was used before")
    with driven.visit(browser, url) as visit:
        visit.open("/", "text=dayfly page")
        assert visit.page.url.startswith(f"{url}/page")


def test_another_site_in_the_same_browser_can_do_nothing(browser, client, enter):
    """A page of another origin sends what a browser lets it: with the cookie, for `localhost` is the same site."""
    client.put("sandboxes/sb1", specs.empty())
    with enter() as visit:
        evil = visit.context.new_page()
        evil.goto(f"http://127.0.0.1:{client.port}/api/v2/meta/health")
        forge = f"""async () => {{
            const at = "http://127.0.0.1:{client.port}/api/v2/orgs/local/sandboxes/sb1";
            const plain = await fetch(at, {{method: "DELETE", credentials: "include"}});
            return plain.status;
        }}"""
        assert evil.evaluate(forge) == 403, "not even from our own origin without the header"
        evil.close()
        visit.elsewhere.clear()
    assert client.get("sandboxes/sb1")["name"] == "sb1"


def uid_of(host, name: str) -> str:
    return next(uid for uid, offer in host.offers.items() if offer.name == name)


VIEWS = [
    ("/page/sandboxes", "tbody tr th a"),
    ("/page/sandboxes/sb1?unit=mydb%2Fprovision", ".values li"),
    ("/page/sandboxes/sb1?unit=mydb%2Fdrop", ".log pre:has-text('could not drop')"),
    ("/page/attention", ".concerns li"),
    ("/page/plugins", "tbody tr th a"),
    ("/page/plugins/db?unit=create%2Fprovision", ".step pre"),
    ("/page/hosts", "tbody tr th a"),
    ("/page/ended", "tbody tr th a"),
    ("/page/sandboxes/nobody", ".nothing"),
]


@pytest.mark.parametrize(("scheme", "size"), SCHEMES)
def test_every_view_can_be_read_by_everybody(world, host, enter, scheme, size):
    world.put("sandboxes/old", specs.empty())
    uid = uid_of(host, "old")
    world.call("DELETE", "sandboxes/old")
    host.finish(uid)
    assert world.call("GET", "sandboxes/old").status == 404
    with enter(color_scheme=scheme, viewport=size) as visit:
        for path, wait in VIEWS:
            visit.open(path, wait)
            assert visit.axe() == [], path
            wide = visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is wider than the window"
        visit.open("/page/sandboxes/sb2", ".actions")
        for button in ("Delete",):
            visit.page.click(f".actions button:has-text('{button}')")
            visit.page.wait_for_selector("dialog[open]")
            assert visit.axe() == [], button
            visit.page.keyboard.press("Escape")
        visit.page.keyboard.press("?")
        visit.page.wait_for_selector("dialog[open]")
        assert visit.axe() == []


def test_sensitive_output_appears_on_click_and_is_recorded(world, enter):
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/sb1?unit=mydb%2Fprovision", ".values li:has-text('h1')")
        assert "canary" not in page.content()
        assert not [each for each in world.get("audit")["entries"] if each["action"] == "reveal"]
        page.click("button:has-text('Reveal')")
        page.wait_for_selector(".values li:has-text('canary')")
        entry = world.get("audit")["entries"][-1]
        assert (entry["action"], entry["program"]) == ("reveal", "page")
        page.click("button:has-text('Hide')")
        assert "canary" not in page.content()


def test_attention_item_links_to_its_sandbox(world, host, enter):
    with enter() as visit:
        visit.open("/page/attention", ".concerns li")
        text = visit.page.inner_text(".concerns")
        assert "sandbox sb1" in text
        assert "What to do: Fix the plugin or the parameters" in text
        visit.page.click(".concerns a >> nth=0")
        visit.page.wait_for_selector(".why li:has-text('mydb/provision: exit 1')")


def test_badge_equals_the_number_of_listed_concerns(world, host, enter):
    """Failures, stuck cleanups and abandoned ones."""
    asked = EndRequest(at=time.time_ns() // 1_000_000, reason="Abandoned", message="no way", by="ann")
    world.put("sandboxes/sb3", specs.empty())
    for name, reason, field in (("sb2", "CleanupStuck", "closed"), ("sb3", "Abandoned", "abandon")):
        told(host, uid := uid_of(host, name), reason=reason)
        host.reports[uid] = msgspec.structs.replace(host.reports[uid], **{field: asked})
    assert {each["kind"] for each in world.get("attention")} == {"failed", "stuck", "abandoned"}
    with enter() as visit:
        for path, wait in (("/page/attention", ".concerns li"), ("/page/sandboxes", "tbody tr th a")):
            visit.open(path, wait)
            visit.page.wait_for_selector(f"nav .badge:text-is('{len(world.get('attention'))}')")
        visit.open("/page/attention", ".concerns li")
        assert visit.page.locator(".concerns > li").count() == len(world.get("attention"))
        world.put("sandboxes/sb4", specs.empty())
        told(host, uid_of(host, "sb4"), reason="ResourceFailed")
        visit.page.wait_for_selector(f"nav .badge:text-is('{len(world.get('attention'))}')")


def test_code_in_sentences_is_shown_as_code_and_never_as_markup(world, host, enter):
    evil = "<img src=x onerror=alert(1)>"
    said = f"db/make: use `dayfly logs {evil}` and one ` alone"
    told(host, uid_of(host, "sb1"), reason="ResourceFailed", message=said)
    with enter() as visit:
        visit.open("/page/sandboxes/sb1", ".standing .message code")
        assert visit.page.inner_text(".standing .message code") == f"dayfly logs {evil}"
        assert visit.page.inner_text(".standing .message").endswith(" and one ` alone")
        assert visit.page.locator("img[src=x]").count() == 0
        for path, wait in (("/page/attention", ".concerns code"), ("/page/sandboxes/sb1", ".why code")):
            visit.open(path, wait)
            assert "`dayfly" not in visit.page.inner_text("main")


def test_abandoned_and_ended_sandbox_lists_possible_leftovers(world, host, enter):
    uid = uid_of(host, "sb1")
    moves = (("Claim", "mydb/provision", ""), ("Close", "", ""))
    host.lines[uid] = tuple(
        HistoryEntry(seq=n, at=5, unit=unit, attempt=1, move=move, reason=reason, message="")
        for n, (move, unit, reason) in enumerate(moves)
    )
    body = {"reason": "its machine burnt", "force": True}
    assert world.call("POST", "sandboxes/sb1/abandon", body).status == 200
    with enter() as visit:
        visit.open(f"/page/sandboxes/sb1?uid={uid}", ".why li")
        text = visit.page.inner_text(".why")
        assert "its machine burnt" in text
        assert "created by mydb/provision" in text
        assert "Nothing is blocked" not in text


def test_viewer_sees_no_buttons_and_is_refused_by_the_server(world, enter):
    key = world.call("POST", "keys", {"name": "looker", "role": "viewer"}).json["key"]
    with enter(key) as visit:
        page = visit.page
        visit.open("/page/sandboxes/sb1?unit=mydb%2Fprovision", ".values li")
        page.wait_for_selector("text=looker (viewer)")
        shown = page.locator(".actions button").all_inner_texts()
        assert [each.strip() for each in shown] == ["Copy as YAML", "Copy as command"]
        assert page.locator("button:has-text('Reveal')").count() == 0
        for method, path, body in (
            ("DELETE", "sandboxes/sb1", None),
            ("POST", "sandboxes/sb1/abandon", {"reason": "r"}),
            ("POST", "sandboxes/sb1/reveal", {"unit": "mydb/provision", "output": "pw"}),
            ("GET", "sandboxes/sb1/outputs", None),
        ):
            ask = """([method, path, body]) => fetch("/api/v2/orgs/local/" + path, {method, body: body && JSON.stringify(body),
                headers: {"Dayfly-Page": "1"}}).then((r) => r.status)"""
            assert page.evaluate(ask, [method, path, body]) == 403, path


def test_filter_is_in_the_url_and_matches_names_and_labels(world, enter):
    with enter() as visit:
        page = visit.page
        names = lambda: page.locator("tbody th a").all_inner_texts()  # noqa: E731
        visit.open("/page/sandboxes", "text=2 sandboxes")
        page.keyboard.press("/")
        page.keyboard.type("team=b")
        page.wait_for_selector("text=1 of 2 sandboxes")
        assert names() == ["sb2"]
        assert page.url.endswith("?q=team%3Db")
        visit.open("/page/sandboxes?q=is%3Afailed", "text=1 of 2 sandboxes")
        assert names() == ["sb1"]
        visit.open("/page/sandboxes?q=nothing-like-it", "text=No sandbox matches")
        world.call("PUT", "sandboxes/nothing-like-it", specs.empty())
        page.wait_for_selector("text=1 of 3 sandboxes")


def test_by_keyboard_alone_to_a_sandbox_its_units_and_its_end(world, host, enter):
    uid = uid_of(host, "sb1")
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("tbody tr >> nth=1")
        focused = lambda: page.evaluate("document.activeElement.innerText || document.activeElement.ariaLabel")  # noqa: E731
        page.keyboard.press("j")
        page.wait_for_function("document.activeElement.dataset.row === '0'")
        page.keyboard.press("j")
        page.wait_for_function("document.activeElement.dataset.row === '1'")
        page.keyboard.press("k")
        page.wait_for_function("document.activeElement.dataset.row === '0'")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('sb1')")
        page.wait_for_selector(".node")
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('.node')"):
                break
        assert "provision" in focused()
        page.keyboard.press("Enter")
        page.wait_for_selector("aside.unit")
        page.keyboard.press("Escape")
        page.wait_for_selector("aside.unit", state="detached")
        for _ in range(60):
            page.keyboard.press("Shift+Tab")
            if focused() == "Delete":
                break
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        assert focused() == "Delete", "where one was"
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open]")
        while focused() != "Delete" or not page.evaluate("document.activeElement.closest('dialog') !== null"):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog", state="detached")
    assert host.closed[uid].reason == "Deleted"


def test_sandbox_can_be_copied_as_file_and_as_command(world, enter):
    with enter(permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.page
        visit.open("/page/sandboxes/sb1", ".actions button")

        def copied(button: str) -> str:
            page.click(f"button:has-text('{button}')")
            page.wait_for_selector(f"button:has-text('{button}'):has-text('Copied')")
            return page.evaluate("navigator.clipboard.readText()")

        written = copied("Copy as YAML")
        found = yaml.safe_load(written)
        assert (found["name"], found["spec"]) == ("sb1", world.get("sandboxes/sb1")["spec"])
        assert copied("Copy as command") == f"dayfly apply -f - <<'YAML'\n{written}YAML\n"


def test_abandoning_asks_for_a_reason_and_extending_for_how_long(world, host, enter):
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/sb1", ".node")
        page.click("button:has-text('Extend')")
        page.select_option("dialog select", "24")
        page.click("dialog button.main")
        page.wait_for_selector("text=/1 d left|23 h 5. min left/")
        uid = uid_of(host, "sb1")
        world.call("DELETE", "sandboxes/sb1")
        told(host, uid, reason="CleanupStuck", message="mydb/drop: exit 1")
        page.click("button:has-text('Retry')")
        page.click("dialog button.main")
        page.wait_for_selector("dialog", state="detached")
        assert host.hurried[-1][0] == {"mydb/drop": 2}
        page.click("button:has-text('Abandon')")
        assert page.is_disabled("dialog button.danger")
        page.fill("dialog input", "the cluster is gone")
        page.click("dialog button.danger")
        page.wait_for_selector("dialog", state="detached")
    assert host.abandoned[uid].message == "the cluster is gone"


def test_long_list_contains_only_visible_rows(client, host, enter):
    for n in range(150):
        client.call("PUT", f"sandboxes/box-{n:03}", specs.empty())
    with enter() as visit:
        page = visit.page
        page.wait_for_selector("text=150 sandboxes")
        assert page.locator("tbody tr").count() < 60
        assert page.get_attribute("table", "aria-rowcount") == "151"
        # Not by the wheel: it scrolls the displayed frame, which may be one from before the rows existed.
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_selector("a:has-text('box-149')")
        assert page.locator("a:has-text('box-000')").count() == 0
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_selector("a:has-text('box-000')")
        assert page.locator("a:has-text('box-149')").count() == 0


def test_a_revoked_key_shows_the_way_in_again(world: Client, enter):
    made = world.call("POST", "keys", {"name": "short", "role": "member"}).json
    with enter(made["key"]) as visit:
        visit.page.wait_for_selector("text=2 sandboxes")
        assert world.call("DELETE", f"keys/{made['id']}").status == 200
        visit.page.wait_for_selector("h1:has-text('Sign in')")


def test_abandoned_sandbox_lists_possible_leftovers(world, host, enter):
    uid = uid_of(host, "sb1")
    asked = EndRequest(at=time.time_ns() // 1_000_000, reason="Abandoned", message="no way", by="ann")
    told(host, uid, reason="Abandoned")
    host.reports[uid] = msgspec.structs.replace(host.reports[uid], abandon=asked)
    with enter() as visit:
        visit.open("/page/attention", ".concerns li:has-text('Abandoned')")
        assert "mydb/provision" in visit.page.inner_text(".concerns")


def test_the_types_of_the_api_are_todays(tmp_path: Path):
    """`scripts/page.sh types` was run after the last change of the API."""
    made = tmp_path / "openapi.d.ts"
    subprocess.run([driven.ROOT / "scripts" / "page.sh", "types", made], check=True, capture_output=True)
    assert made.read_text() == (driven.ROOT / "page/src/openapi.d.ts").read_text()


def test_its_pure_parts_do_as_they_say():
    """Vitest tests the layout of graphs, the filter, and the display of foreign text."""
    done = subprocess.run([driven.ROOT / "scripts" / "page.sh", "test"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
