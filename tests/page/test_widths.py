"""Screenshots of the list and of a stuck sandbox at each width, with 100 and 10,000 sandboxes.

`DAYFLY_SCREENSHOTS=FOLDER` keeps the pictures.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.page.server_data import told
from tests.page.test_browser import uid_of
from tests.server import specs

pytestmark = pytest.mark.builds("page")

WIDTHS = (320, 390, 768, 1024, 1280, 1920, 2560)
# Replaces the stream of changes by a list of this length. The sandboxes are the server's own, with other names.
CROWD = """
(([count, found]) => {
  const Stream = window.EventSource;
  window.EventSource = class extends EventTarget {
    constructor() {
      super();
      this.readyState = 1;
      setTimeout(() => {
        this.dispatchEvent(new Event("open"));
        const says = (kind, data) => this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(data) }));
        for (let n = 0; n < count; n++) says("changed", n ? { ...found[0], name: `checkout-pr-${n}` } : found[1]);
        for (const kind of ["synced", "group-synced"]) says(kind, {});
      });
    }
    close() {}
  };
  window.EventSource.CLOSED = Stream.CLOSED;
})(%s);
"""
# Everything that is cut off or overlaps the next: wider than the window, or with less room than its text in a heading or button.
FLAWS = """() => {
  const flaws = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) flaws.push(`the page is ${root.scrollWidth} wide`);
  for (const each of document.querySelectorAll("button, h1, h2, .state, thead th, .counts a")) {
    const box = each.getBoundingClientRect();
    if (box.width && each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== "inline") flaws.push(`${each.outerHTML.slice(0, 80)} is cut off`);
  }
  const lines = new Set([...document.querySelectorAll("nav a")].map((each) => Math.round(each.getBoundingClientRect().top)));
  if (lines.size !== 1) flaws.push(`the navigation has ${lines.size} lines`);
  return flaws;
}"""


@pytest.mark.parametrize("count", [100, 10_000])
def test_page_is_readable_at_each_width(client, host, enter, count):
    client.put("resource-plugins/db", specs.plugin())
    labels = {
        "owner": "ann",
        "pr": "https://git.example/shop/pull/17",
        "link": "https://shop.example/",
        "team": "checkout",
    }
    client.put("sandboxes/good", specs.empty(labels=labels, ttl={"duration": "2d"}))
    client.put("sandboxes/stuck-one", specs.sandbox())
    uid = uid_of(host, "stuck-one")
    client.call("DELETE", "sandboxes/stuck-one")
    told(
        host,
        uid,
        reason="CleanupStuck",
        message="mydb/drop: exit 1: the server at db-17.shop.internal refused the connection",
    )
    found = [client.get(f"sandboxes/{name}") for name in ("good", "stuck-one")]
    folder = os.environ.get("DAYFLY_SCREENSHOTS")
    with enter() as visit:
        page = visit.page
        page.add_init_script(CROWD % json.dumps([count, found]))
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for view, path, wait in (
                ("list", "/page/sandboxes", f"text={count} sandboxes"),
                ("stuck", "/page/sandboxes/stuck-one", ".log pre:has-text('could not drop')"),
            ):
                visit.open(path, wait)
                picture = page.screenshot(path=folder and Path(folder) / f"{view}-{count}-{width}.png")
                assert page.evaluate(FLAWS) == [], f"{view} at {width}"
                assert len(picture) > 10_000, "a picture with content"
            visit.open("/page/sandboxes", f"text={count} sandboxes")
            first = page.locator("tbody th a").first
            assert first.inner_text() == "stuck-one"
            assert first.bounding_box()["width"] >= 70
            first.click()
            page.wait_for_selector(".log pre:has-text('could not drop')")
