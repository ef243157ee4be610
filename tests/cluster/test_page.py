"""The page of a plain cluster, on a real one, as a viewer and as an editor."""

import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import TEAM
from tests.cluster.installed import Installed
from tests.cluster.people import Person, developer
from tests.cluster.test_cli import talkative
from tests.cluster.waiting import eventually
from tests.page import browser as driven

pytestmark = pytest.mark.builds("page")
HERE = ("--context", "here", "-n", TEAM)


@contextlib.contextmanager
def page_of(person: Person) -> Iterator[tuple[str, str]]:
    """Run `dayfly page`; yield its link and output. Ctrl-C ends it."""
    serving = person.start("page", "--no-open", *HERE)
    try:
        link = serving.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/page/enter#[\w-]{43}", link), serving.stderr.read()
        yield link.partition("/page/")[0], link
    finally:
        serving.send_signal(signal.SIGINT)
        said = serving.communicate(timeout=60)[1]
    assert serving.returncode == 0, said
    assert f"The page of here, namespace {TEAM}, as system:serviceaccount:{TEAM}:ada" in said


def test_viewer_sees_and_editor_ends_a_sandbox(operator: Installed, wishes, journal, tmp_path: Path):
    journal.hold("create make")
    operator.apply(talkative(wishes.name, journal), wishes.sandbox())
    journal.wait_for("create make")
    viewer = developer(operator, tmp_path / "bob", TEAM, "view")
    editor = developer(operator, tmp_path / "ada", TEAM, "edit")
    at = f"/page/sandboxes/{wishes.name}?unit=pair%2Fmake"
    try:
        with driven.chromium() as browser:
            with page_of(viewer) as (url, link), driven.visit(browser, url, link) as visit:
                page = visit.page
                page.wait_for_selector(f"tbody a:has-text('{wishes.name}')")
                visit.open(at, ".unit")
                # A Role in one namespace grants nothing in others.
                page.wait_for_selector(".log:has-text('its log cannot be shown while it runs')")
                assert 'cannot get resource "pods/log"' in page.inner_text(".log")
                page.wait_for_selector("text=The receipt and history cannot be shown")
                assert f'you may not delete sandboxes in namespace "{TEAM}"' in page.inner_text(".denied")
                assert page.locator(".actions button:not(.quiet)").count() == 0
                journal.let_go()
                page.wait_for_selector(".standing:has-text('ready')", timeout=120_000)
                page.wait_for_selector(".log pre:has-text('made')", timeout=60_000)
                assert "you may not get secrets" in page.inner_text(".unit")
                visit.open("/page/plugins", '.fault:has-text("cannot list resource")')
            with page_of(editor) as (url, link), driven.visit(browser, url, link) as visit:
                page = visit.page
                visit.open(at, ".values button")
                page.click(".values button")  # without the ledger, the output may be sensitive
                page.wait_for_selector(".values :text('hello')")
                assert page.locator(".denied").count() == 0
                page.click(".actions button:has-text('Delete')")
                page.click("dialog button.danger")
                page.wait_for_selector(".standing:has-text('ended')", timeout=120_000)
                visit.open("/page/ended", f"text={wishes.name}")
        eventually(lambda: operator.sandbox(wishes.name, TEAM) is None, "its end")
    finally:
        for account in ("ada-view", "ada-edit"):
            operator.own.kubectl("delete", "rolebinding,serviceaccount", account, "-n", TEAM, "--ignore-not-found")
