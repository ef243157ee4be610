"""Create, edit and re-create a sandbox, in a real browser."""

from __future__ import annotations

import pytest
from tests.page.test_browser import uid_of
from tests.server import specs
from tests.server.client import wait_for

pytestmark = pytest.mark.builds("page")

TEXT = "name: {name}\nspec:\n  cluster: local\n  labels: {{team: a}}\n"


def write(page, text: str) -> None:
    page.fill("dialog textarea", text)
    page.click("dialog button[type=submit]")


def test_sandbox_is_created_from_its_file(client, enter):
    with enter() as visit:
        page = visit.page
        page.click("button:has-text('Create')")
        page.wait_for_selector("dialog textarea")
        assert visit.axe() == []
        write(page, TEXT.format(name="made"))
        page.wait_for_url("**/page/sandboxes/made")
        page.wait_for_selector(".standing .state:has-text('ready')")
    assert client.get("sandboxes/made")["spec"]["labels"] == {"team": "a"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [", "line 1"),
        ("name: a\n---\nname: b\n", "2 documents"),
        ("name: a\nspec: {labels: {pr: '@{pr}'}}\n", "@{pr}"),
        ("kind: RouteGroup\nname: a\nspec: {}\n", "kind"),
        ("spec: {cluster: local}\n", "name: is required"),
        ("name: a\nspec: {cluster: local, ttl: {duration: x}}\n", "spec.ttl.duration"),
    ],
)
def test_invalid_file_changes_nothing_and_stays_in_the_dialog(client, enter, text, says):
    with enter() as visit:
        page = visit.page
        page.click("button:has-text('Create')")
        write(page, text)
        page.wait_for_selector(f"dialog .fault:has-text('{says}')")
        assert page.input_value("dialog textarea") == text
    assert client.get("sandboxes") == []


def test_creating_never_changes_an_existing_sandbox(client, enter):
    client.put("sandboxes/made", specs.empty(labels={"team": "b"}))
    with enter() as visit:
        page = visit.page
        page.click("button:has-text('Create')")
        write(page, TEXT.format(name="made"))
        page.wait_for_selector("dialog .fault:has-text('already exists')")
    assert client.get("sandboxes/made")["spec"]["labels"] == {"team": "b"}


def test_edit_applies_unless_another_change_came_first(client, enter):
    client.put("sandboxes/made", specs.empty(labels={"team": "b"}))
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/made", ".actions button:has-text('Edit')")
        page.click(".actions button:has-text('Edit')")
        page.wait_for_selector("dialog textarea:enabled")
        assert "team: b" in page.input_value("dialog textarea")
        write(page, TEXT.format(name="made"))
        page.wait_for_selector("dialog", state="detached")
        assert client.get("sandboxes/made")["spec"]["labels"] == {"team": "a"}
        page.click(".actions button:has-text('Edit')")
        page.wait_for_selector("dialog textarea:enabled")
        client.put("sandboxes/made", specs.empty(labels={"team": "c"}))
        write(page, TEXT.format(name="made"))
        page.wait_for_selector("dialog .fault:has-text('has been changed')")
    assert client.get("sandboxes/made")["spec"]["labels"] == {"team": "c"}


def test_recreated_sandbox_has_the_same_spec_after_the_cleanup(client, host, enter):
    client.put("sandboxes/made", specs.empty(labels={"team": "b"}))
    uid = uid_of(host, "made")
    with enter() as visit:
        page = visit.page
        visit.open("/page/sandboxes/made", ".actions button:has-text('Re-create')")
        page.click(".actions button:has-text('Re-create')")
        page.click("dialog button[type=submit]")
        wait_for(lambda: uid in host.closed)
        page.wait_for_selector("dialog:has-text('delete steps have succeeded')")
        assert visit.axe() == []
        host.finish(uid)
        page.wait_for_selector("dialog", state="detached")
        page.wait_for_selector(".standing .state:has-text('ready')")
    assert client.get("sandboxes/made")["spec"]["labels"] == {"team": "b"}
    assert uid_of(host, "made") != uid


def test_viewer_can_neither_create_nor_edit(client, enter):
    client.put("sandboxes/made", specs.empty())
    key = client.call("POST", "keys", {"name": "looker", "role": "viewer"}).json["key"]
    with enter(key) as visit:
        visit.page.wait_for_selector("text=1 sandbox")
        assert visit.page.locator("button:has-text('Create')").count() == 0
        visit.open("/page/sandboxes/made", ".actions button")
        assert visit.page.locator("button:has-text('Edit'), button:has-text('Re-create')").count() == 0
