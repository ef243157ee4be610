"""Route groups on the page: live, what they match and whose forks answer, their hooks, and what can be done to them."""

from __future__ import annotations

import re
import threading

import pytest
import yaml
from tests.page import browser as driven
from tests.page.test_browser import JUMP, SCHEMES, home, uid_of, url_of
from tests.server import specs
from tests.server.client import wait_for

from dayfly.server.api import group_changes
from dayfly.server.runs import group_sweep
from dayfly.server.sync import host_sync
from dayfly.spec.report import UnitReport
from dayfly.spec.run_data import HistoryEntry, RunEndpoint

__all__ = ["home"]

pytestmark = pytest.mark.builds("page", "runner")

MATCH = {"any": [{"label": {"key": "team", "value": "pay*"}}, {"all": [{"label": {"key": "draft", "value": "no"}}]}]}
GATED = """\
name: checkout
spec:
  cluster: local
  match: {label: {key: team, value: "pay*"}}
  hooks:
    preStart: [{name: announce, script: "#!/bin/sh\\necho hello; while [ ! -e @{folder}/go-on ]; do sleep 0.05; done"}]
    postStop: [{name: withdraw, script: "#!/bin/sh\\nwhile [ ! -e @{folder}/go-off ]; do sleep 0.05; done; echo gone"}]
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    for each in (group_sweep, host_sync):
        monkeypatch.setattr(each, "ROUND_INTERVAL_S", 0.1)
    monkeypatch.setattr(group_changes, "PAUSE_PER_WORK", 0)


def group(match=MATCH, **more):
    return {"spec": {"cluster": "local", "match": match, **more}}


def forks(baseline, **labels):
    return specs.empty(labels=labels, forks=[specs.fork(baseline)])


def say(client, host, name="pay", **more):
    """Report a run of the group with one successful hook and a failing one."""

    def unit(name, event, state, **of):
        return UnitReport(id=name, resource="", name=name, event=event, kind="exec", state=state, attempt=1, **of)

    uid = client.get(f"routegroups/{name}/report")["uid"]
    units = (
        unit("announce", "preStart", "succeeded", started_at=1000, ended_at=2500),
        unit("bye", "postStop", "retrying", reason="WaitingToRetry", message="exit 1", started_at=3000, since=3500),
    )
    host.log_data[uid, "bye", 1] = (b"could not say it\n", True)
    host.lines[uid] = (
        HistoryEntry(seq=1, at=1, unit="bye", attempt=1, move="Record", reason="failed", message="exit 1"),
    )
    host.say(uid, **{"ready": True, "reason": "Ready", "message": "fine", "units": units, **more})
    return uid


@pytest.fixture
def world(client, host):
    """Two sandboxes that fork the same baseline, a group with both, and one without sandboxes."""
    client.put("workloads/default/web", specs.baseline("web"))
    client.put("sandboxes/pay-api", forks("web", team="pay-a"))
    client.put("sandboxes/pay-web", forks("web", team="pay-b"))
    client.put(
        "routegroups/pay",
        group(endpoints=[{"name": "shop", "target": "http://web.shop.svc:80"}], ttl={"duration": "9m"}),
    )
    client.put("routegroups/none", group({"label": {"key": "team", "value": "nobody"}}, labels={"of": "x"}))
    say(client, host)
    return client


def test_a_group_lives_before_ones_eyes_without_a_reload(browser, home, tmp_path):
    (tmp_path / "group.yaml").write_text(GATED.replace("@{folder}", str(tmp_path)))
    (tmp_path / "box.yaml").write_text("name: pay-api\nspec: {cluster: local, labels: {team: payments}}\n")
    link = home("page", "--no-open")
    with driven.visit(browser, url_of(link), link) as visit:
        page = visit.page
        page.click("nav a:has-text('Route groups')")
        page.wait_for_selector("text=There are no route groups")
        page.evaluate("window.same = true")
        applying = threading.Thread(target=home, args=("apply", "-f", "group.yaml"))
        applying.start()
        page.click("a:has-text('checkout')")
        page.wait_for_selector(".node.running:has-text('announce')")
        # From here on there is no input: every shift comes from the page.
        page.evaluate("window.notes.shift = 0; window.notes.moved = []")
        (tmp_path / "go-on").touch()
        page.wait_for_selector(".node.succeeded:has-text('announce')")
        applying.join()
        home("apply", "-f", "box.yaml")
        page.wait_for_selector(".members a:has-text('pay-api')")
        page.wait_for_selector(".members li:has-text('ready')")
        home("sandbox", "delete", "pay-api")
        page.wait_for_selector("text=No sandbox matches")
        shift, moved = visit.shift()
        assert shift < JUMP, moved
        page.click("button:has-text('Delete')")
        page.click("dialog button.danger")
        page.wait_for_selector(".node.running:has-text('withdraw')")
        (tmp_path / "go-off").touch()
        page.wait_for_selector(".standing .state:has-text('ended')")
        page.click(".node:has-text('withdraw')")
        page.wait_for_selector(".log pre:has-text('gone')")
        page.click("nav a:has-text('Route groups')")
        page.wait_for_selector("text=There are no route groups")
        assert page.evaluate("window.same"), "it was never loaded again"


def test_group_page_shows_members_and_answering_forks(world, host, enter):
    uid = uid_of(host, "pay")
    host.ports[uid] = (RunEndpoint(unit="preview:shop", host="127.0.0.1", port=8123),)
    say(world, host)
    with enter() as visit:
        page = visit.page
        visit.open("/page/routegroups", "text=2 route groups")
        page.wait_for_selector("td.members:has-text('2 pay-api, pay-web')")
        page.click("tbody a:has-text('pay')")
        page.wait_for_selector(".members li:has-text('pay-api'):has-text('answers for default/web')")
        page.wait_for_selector(
            ".members li:has-text('pay-web'):has-text('does not answer for default/web: pay-api is older')"
        )
        page.wait_for_selector("text=one baseline is forked by several sandboxes")
        assert page.locator(".match-tree").inner_text().split() == [
            "at",
            "least",
            "one",
            "of",
            "team",
            "matches",
            "pay*",
            "all",
            "of",
            "draft",
            "is",
            "no",
        ]
        page.wait_for_selector("a[href='http://127.0.0.1:8123/']")
        page.wait_for_selector(".why li:has-text('Not supported here')")
        # The page shows new, ended and changed sandboxes without a reload.
        page.evaluate("window.same = true")
        world.put("sandboxes/late", specs.empty(labels={"draft": "no"}))
        page.wait_for_selector(".members a:has-text('late')")
        host.say(uid_of(host, "late"), ready=False, reason="ResourceFailed", message="m")
        page.wait_for_selector(".members li:has-text('late') .state.failed")
        world.put("sandboxes/pay-api", forks("web", team="x"))
        page.wait_for_selector(".members a:has-text('pay-api')", state="detached")
        page.click(".members a:has-text('pay-web')")
        page.wait_for_selector("h1:has-text('pay-web')")
        page.click("dd a.chip:has-text('pay')")
        page.wait_for_selector("h1:has-text('pay')")
        assert page.evaluate("window.same")


def test_sandbox_knows_its_group_beyond_the_listed_members(world, enter, monkeypatch):
    monkeypatch.setattr("dayfly.server.runs.group_forms.MAX_LISTED", 1)
    with enter() as visit:
        visit.open("/page/routegroups/pay", "text=and 1 more")
        visit.open("/page/sandboxes/pay-web", "dd a.chip:has-text('pay')")


VIEWS = [
    ("/page/routegroups", "tbody tr th a"),
    ("/page/routegroups?q=nothing-like-it", "text=No route group matches"),
    ("/page/routegroups/pay?unit=bye", ".log pre:has-text('could not say it')"),
    ("/page/routegroups/none", "text=No sandbox matches"),
    ("/page/routegroups/nobody", ".nothing"),
    ("/page/sandboxes/pay-api", "dd a.chip:has-text('pay')"),
    ("/page/attention", ".concerns li:has-text('route group pay')"),
]


@pytest.mark.parametrize(("scheme", "size"), SCHEMES)
def test_every_view_can_be_read_by_everybody(world, enter, scheme, size):
    with enter(color_scheme=scheme, viewport=size) as visit:
        for path, wait in VIEWS:
            visit.open(path, wait)
            assert visit.axe() == [], path
            wide = visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is wider than the window"


def test_filters_and_keys_are_those_of_the_sandboxes(world, enter):
    with enter() as visit:
        page = visit.page
        names = lambda: page.locator("tbody th a").all_inner_texts()  # noqa: E731
        visit.open("/page/routegroups", "text=2 route groups")
        page.keyboard.press("/")
        page.keyboard.type("has:pay-web")
        page.wait_for_selector("text=1 of 2 route groups")
        assert names() == ["pay"]
        assert page.url.endswith("/page/routegroups?q=has%3Apay-web")
        for query, found in (
            ("of=x", ["none"]),
            ("is:warning", ["none", "pay"]),
            ("team=nobody", []),
            ("nobody", ["none"]),
        ):
            visit.open(
                f"/page/routegroups?q={query.replace(':', '%3A').replace('=', '%3D')}",
                ".count:has-text(' of 2'), .count:has-text('2 route')",
            )
            assert names() == found, query
        visit.open("/page/routegroups", "tbody tr >> nth=1")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.wait_for_function("document.activeElement.dataset.row === '1'")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('pay')")


def test_group_can_be_copied_extended_retried_and_abandoned(world, host, enter):
    uid = uid_of(host, "pay")
    with enter(permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.page
        visit.expected = re.compile(f"{visit.expected.pattern}|status of 409")
        visit.open("/page/routegroups/pay", ".actions button")
        page.click("button:has-text('Copy as command')")
        page.wait_for_selector("button:has-text('Copy as command'):has-text('Copied')")
        typed = page.evaluate("navigator.clipboard.readText()")
        assert typed.startswith("dayfly apply -f - <<'YAML'\n")
        found = yaml.safe_load(typed.partition("\n")[2].removesuffix("YAML\n"))
        assert (found["name"], found["spec"]) == ("pay", world.get("routegroups/pay")["spec"])
        page.click("button:has-text('Extend')")
        page.click("dialog button.main")
        page.wait_for_selector("dialog .fault:has-text('it has sandboxes')")
        page.keyboard.press("Escape")
        visit.open("/page/routegroups/none", ".actions button")
        assert page.locator("button:has-text('Extend')").count() == 0, "it has no time to live"
        visit.open("/page/routegroups/pay", ".actions button")
        page.click("button:has-text('Delete')")
        assert "Its sandboxes stay" in page.inner_text("dialog")
        page.click("dialog button.danger")
        wait_for(lambda: uid in host.closed)
        say(world, host, ready=False, reason="CleanupStuck", message="bye: exit 1")
        page.click("button:has-text('Retry')")
        page.click("dialog button.main")
        page.wait_for_selector("dialog", state="detached")
        assert host.hurried[-1][0] == {"bye": 1}
        visit.open("/page/attention", ".concerns li:has-text('bye: exit 1')")
        page.click(".concerns a:has-text('route group pay')")
        page.click("button:has-text('Abandon')")
        page.fill("dialog input", "nobody listens")
        page.click("dialog button.danger")
        page.wait_for_selector("dialog", state="detached")
    assert host.abandoned[uid].message == "nobody listens"


def test_viewer_of_a_group_sees_no_buttons(world, enter):
    key = world.call("POST", "keys", {"name": "looker", "role": "viewer"}).json["key"]
    with enter(key) as visit:
        visit.open("/page/routegroups/pay", ".members li")
        shown = visit.page.locator(".actions button").all_inner_texts()
        assert [each.strip() for each in shown] == ["Copy as YAML", "Copy as command"]


def test_long_group_list_contains_only_visible_rows(client, host, enter):
    for n in range(120):
        client.call("PUT", f"routegroups/group-{n:03}", group())
    with enter() as visit:
        page = visit.page
        visit.open("/page/routegroups", "text=120 route groups")
        assert page.locator("tbody tr").count() < 60
        # Not by the wheel: it scrolls the displayed frame, which may be one from before the rows existed.
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_selector("a:has-text('group-119')")
