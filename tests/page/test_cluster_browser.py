"""The page of a plain cluster in a real browser: for a viewer, for an editor, and with hostile text."""

from __future__ import annotations

import contextlib
import re

import pytest
from tests.cli.frozen_cluster import FAILING, LIFE, SLOW, failing, running, still, up
from tests.cli.test_cluster_pools import pool_cluster
from tests.page import browser as driven
from tests.page.clusters import SHOP, apart, serving, stage
from tests.page.test_hostile import EVIL, SCRIPT, visible

from dayfly.operator.cluster.objects import POOL_REQUEST_ANNOTATION

__all__ = ["stage"]

pytestmark = pytest.mark.builds("page", "runner")

LOOKS = ("delete sandboxes", "patch sandboxes", "get secrets")


def test_editor_sees_changes_reveals_and_deletes(browser, stage):
    asked = stage(LIFE, up)
    with serving(asked.cluster) as served, driven.visit(browser, served.url, served.link()) as visit:
        page = visit.page
        page.wait_for_selector("text=1 sandbox")
        assert "ada (kind, shop)" in page.inner_text("header")
        assert "Hosts" not in page.inner_text("header")
        assert page.locator("thead").inner_text().rstrip().endswith("Namespace")
        box = {
            "apiVersion": "dayfly.dev/v1alpha1",
            "kind": "Sandbox",
            "metadata": {"name": "new"},
            "spec": {"cluster": "c"},
        }
        served.ask("POST", SHOP, box)
        page.wait_for_selector("text=2 sandboxes")
        page.click("tbody a:has-text('box')")
        page.wait_for_selector(".node >> nth=2")
        page.wait_for_selector("svg text:has-text('url')")
        page.click(".node:has-text('seed')")
        page.wait_for_selector(".log pre:has-text('a line of its own')")
        page.wait_for_selector(".values li:has-text('user')")
        assert page.locator(".denied").count() == 0
        assert visit.axe() == []
        page.click("text=Delete")
        page.click("dialog button.danger")
        page.wait_for_selector("dialog", state="detached")
        assert any("deletionTimestamp" in each["metadata"] for each in asked.cluster.objects("sandboxes"))


def test_viewer_has_no_buttons_and_reads_the_reason(browser, stage):
    asked = stage(SLOW, running)
    hidden = ("/log", "/objectlifecyclemethods", "/runs", "/resourceplugins")
    with (
        serving(asked.cluster, denied=hidden, may_not=LOOKS) as served,
        driven.visit(browser, served.url, served.link()) as visit,
    ):
        page = visit.page
        visit.open("/page/sandboxes/box?unit=db%2Fmake", ".denied")
        said = page.inner_text(".denied")
        assert 'you may not delete sandboxes in namespace "shop"' in said
        assert "retry, extend, abandon: you may not patch sandboxes" in said
        assert page.locator(".actions button.danger").count() == 0
        page.wait_for_selector(".unit :text('its log cannot be shown while it runs')")
        page.wait_for_selector("text=The receipt and history cannot be shown")
        page.wait_for_selector("text=The outputs between its units and their configuration cannot be shown")
        assert page.locator(".node").count() == 3, "and the graph is there all the same"
        assert visit.axe() == []
        visit.open("/page/plugins", ".fault:has-text('cannot get')")
        visit.open("/page/ended", "text=A cluster keeps neither logs nor history")
        assert visit.axe() == []


def test_a_list_that_is_forbidden_says_so(browser):
    with serving(still(), denied=(SHOP,)) as served, driven.visit(browser, served.url, served.link()) as visit:
        visit.page.wait_for_selector(".fault:has-text('User \"ada\" cannot get')")
        assert "There are no sandboxes" not in visit.text()
        assert "Not known" in visit.text()
        served.ada.denied = ()
        visit.page.wait_for_selector("text=1 sandbox")
        visit.page.wait_for_selector(".fault", state="detached")


def test_hostile_text_is_shown_as_text(browser, stage):
    asked = stage(FAILING, failing)
    with serving(asked.cluster) as served, driven.visit(browser, served.url, served.link()) as visit:
        evil = {"labels": {"team": EVIL}, "description": EVIL}
        served.ask(
            "PATCH",
            f"{SHOP}/box",
            {"spec": evil, "metadata": {"annotations": {"dayfly.dev/abandon": f"force: {EVIL}"}}},
        )
        status = {
            "status": {
                "message": EVIL,
                "about": "",
                "reason": f"Failed{SCRIPT}",
                "endpoints": [{"name": EVIL, "url": EVIL}],
            }
        }
        served.ask("PATCH", f"{SHOP}/box/status", status)
        note = {
            "metadata": {
                "annotations": {"dayfly.dev/readme": EVIL + "\n\n[a](javascript:x) ![b](http://evil/)\n\nthe end"}
            }
        }
        plugin = served.ask("GET", "/apis/dayfly.dev/v1alpha1/resourceplugins")["items"][0]
        served.ask("PATCH", f"/apis/dayfly.dev/v1alpha1/resourceplugins/{plugin['metadata']['name']}", note)
        for path, wait in (
            (f"/page/plugins/{plugin['spec']['name']}%400.0.0", ".readme :text('the end')"),
            ("/page/sandboxes", "tbody tr :text('evil.example')"),
            ("/page/sandboxes/box?unit=db%2Fseed", ".unit"),
            ("/page/attention", ".concerns li"),
            ("/page/plugins", "tbody tr th a"),
        ):
            visit.open(path, wait)
            visible(visit.page)


def test_a_link_signs_in_once_and_the_end_of_the_process_is_said(browser):
    with contextlib.ExitStack() as stack:
        with serving(still()) as served:
            link = served.link()
            visit = stack.enter_context(driven.visit(browser, served.url, link))
            visit.expected = re.compile(f"{visit.expected.pattern}|ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE")
            assert "#" not in visit.page.url
            with driven.visit(browser, served.url) as other:
                other.page.goto(link)
                other.page.wait_for_selector("text=this link was used before")
                assert "press Enter in the terminal of dayfly page" in other.text()
            visit.page.wait_for_selector("text=1 sandbox")
        visit.page.wait_for_selector("text=dayfly page is no longer running")


def test_pools_of_a_cluster_show_members_and_can_be_paused(browser):
    cluster = apart(pool_cluster)
    with serving(cluster) as served, driven.visit(browser, served.url, served.link()) as visit:
        page = visit.page
        visit.open("/page/pools", "text=1 pool")
        assert {"small", "1/2", "75.0"} <= set(page.locator("tbody tr").inner_text().split())
        page.click("tbody a:has-text('small')")
        page.wait_for_selector("text=Failed member")
        assert visit.axe() == []
        assert page.locator("dt", has_text="Namespace").count() == 1
        page.click("a:has-text('box/db')")
        page.wait_for_url("**/page/sandboxes/box")
        visit.open("/page/pools/small", ".actions")
        page.click(".actions button:has-text('Pause')")
        page.click("dialog button:has-text('Pause')")
        page.wait_for_selector("dialog", state="detached")
        (pool,) = cluster.objects("resourcepools")
        assert pool["metadata"]["annotations"][POOL_REQUEST_ANNOTATION].startswith("pause ")
