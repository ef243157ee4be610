"""Tools for the log of a unit, in a real browser: search, copy and download."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.page.test_browser import uid_of

pytestmark = pytest.mark.builds("page")

LOG = b"".join(b"line %d%s\n" % (n, b" ERROR" if n % 50 == 7 else b"") for n in range(200)) + b"\xff the end\n"
OPEN = "/page/sandboxes/sb1?unit=mydb%2Fdrop"


@pytest.fixture
def logged(world, host):
    host.log_data[uid_of(host, "sb1"), "mydb/drop", 2] = (LOG, True)
    return world


def test_search_marks_hits_and_enter_goes_to_the_next(logged, enter):
    with enter() as visit:
        page = visit.page
        visit.open(OPEN, ".log pre:has-text('the end')")
        page.fill(".log input", "error")
        page.wait_for_selector(".hits:has-text('1 of 4')")
        assert page.locator(".log mark").all_inner_texts() == ["ERROR"] * 4
        assert visit.axe() == []
        page.press(".log input", "Enter")
        page.wait_for_selector(".hits:has-text('2 of 4')")
        inside = "() => { const m = document.querySelector('mark.current').getBoundingClientRect(), p = document.querySelector('.log pre').getBoundingClientRect(); return m.top >= p.top && m.bottom <= p.bottom }"
        assert page.evaluate(inside)
        page.press(".log input", "Shift+Enter")
        page.wait_for_selector(".hits:has-text('1 of 4')")
        page.fill(".log input", "nothing like it")
        page.wait_for_selector(".hits:has-text('none')")
        assert page.locator(".log mark").count() == 0


def test_copy_has_the_text_and_download_the_bytes(logged, enter, tmp_path):
    with enter(permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.page
        visit.open(OPEN, ".log pre:has-text('the end')")
        page.click(".log button:has-text('Copy')")
        page.wait_for_selector(".log button:has-text('Copied')")
        assert page.evaluate("navigator.clipboard.readText()") == LOG.decode(errors="replace")
        with page.expect_download() as saved:
            page.click(".log button:has-text('Download')")
        assert saved.value.suggested_filename == "sb1-mydb-drop-2.log"
        saved.value.save_as(tmp_path / "log")
    assert Path(tmp_path / "log").read_bytes() == LOG


def test_timeline_has_an_axis_and_the_time_of_each_unit(world, enter):
    with enter() as visit:
        visit.open("/page/sandboxes/sb1", ".timeline li")
        rows = dict(
            each.split("\n")[:: len(each.split("\n")) - 1]
            for each in visit.page.locator(".timeline li").all_inner_texts()
        )
        assert rows["mydb/provision"] == "1.5 s"
        assert rows["mydb/drop"].startswith("2 tries, ")
        assert len(visit.page.locator(".axis .track span").all()) == 5
