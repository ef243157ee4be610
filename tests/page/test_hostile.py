"""Hostile text (names, labels, outputs, logs, errors) is displayed: it runs no script and sends no request."""

from __future__ import annotations

import pytest
from tests.page import browser as driven
from tests.server import specs

from dayfly.spec.report import UnitReport
from dayfly.spec.run_data import HistoryEntry, Value

pytestmark = pytest.mark.builds("page")

SCRIPT = "<script>window.owned = 1</script>"
IMAGE = '"><img src=x onerror="window.owned = 1"><a href="javascript:window.owned=1">'
# Right-to-left override, an isolate, a zero-width space, a bell, a terminal's colours and its title.
SLY = "safe\u202etxt.exe\u2066\u200b\x07\x1b[31mred\x1b]0;title\x07"
EVIL = f"{SCRIPT}{IMAGE}{SLY}http://evil.example/"
SAYS = f"{SCRIPT} {IMAGE}"


def visible(page) -> None:
    """Check that no text has become an element, and that deceptive characters are written out."""
    assert page.evaluate("window.owned") is None
    assert page.locator("img:not([src='/page/dayfly.svg'])").count() == 0
    assert page.locator("a[href^='javascript']").count() == 0
    assert page.locator("script:not([src])").count() == 0
    text = page.inner_text("body")
    assert not set(text) & set("\u202e\u2066\u200b\x07\x1b"), "nothing that turns or hides text"


@pytest.mark.slow
def test_hostile_text_is_text_on_every_view(client, host, enter):
    plugin = specs.plugin(description=EVIL)
    plugin["spec"]["create"][0]["script"] = f"#!/bin/sh\n{EVIL}"
    client.put("resource-plugins/db", plugin)
    client.put("sandboxes/sb1", specs.sandbox(labels={"team": EVIL}, description=EVIL, ttl={"duration": "9m"}))
    (uid,) = host.offers
    unit = UnitReport(
        id="mydb/provision",
        resource="mydb",
        name=f"provision{SCRIPT}",
        event="preStart",
        kind=f"exec{SCRIPT}",
        state="unknown",
        attempt=1,
        reason=f"Reason{SCRIPT}",
        message=EVIL,
        since=1,
        started_at=1,
        outputs=("host", SCRIPT),
    )
    host.outputs[uid] = (
        Value(unit="mydb/provision", output="host", value=EVIL.encode()),
        Value(unit="mydb/provision", output=SCRIPT, value=EVIL.encode(), sensitive=True),
    )
    host.lines[uid] = (HistoryEntry(seq=1, at=1, unit=unit.id, attempt=1, move=SCRIPT, reason=IMAGE, message=EVIL),)
    host.log_data[uid, "mydb/provision", 1] = (EVIL.encode(), True)
    host.say(uid, ready=False, reason=f"ResourceFailed{SCRIPT}", message=EVIL, units=(unit,))
    with enter() as visit:
        page = visit.page
        for path, wait in (
            ("/page/sandboxes", "tbody tr th a"),
            ("/page/sandboxes?q=%3Cscript%3E", "input"),
            ("/page/sandboxes/sb1?unit=mydb%2Fprovision", ".log pre:has-text('evil.example')"),
            ("/page/attention", ".concerns li"),
            ("/page/hosts", "tbody tr th a"),
            ("/page/ended?q=%3Cscript%3E", "h1"),
            ("/page/plugins", "tbody tr th a"),
            ("/page/plugins/db?unit=create%2Fprovision", ".step pre"),
            (f"/page/sandboxes/{'%3Cscript%3Ealert(1)%3C%2Fscript%3E'}", "h1"),
            ("/page/plugins/%22%3E%3Cimg%20src%3Dx%3E", "h1"),
            ("/page/%3Cscript%3E", "h1"),
            ("/page/sandboxes/%E0%A4%A", "h1"),
        ):
            visit.open(path, wait)
            visible(page)
        visit.open("/page/sandboxes/sb1?unit=mydb%2Fprovision", "button:has-text('Reveal')")
        page.click("button:has-text('Reveal')")
        page.wait_for_selector("button:has-text('Hide')")
        page.click("summary >> nth=0")
        page.wait_for_selector(".moves li")
        visible(page)
        assert "⟨202E⟩" in " ".join(page.locator(".values").all_inner_texts())
        log = page.inner_text(".log pre")
        assert SCRIPT in log
        assert "⟨202E⟩" in log
        assert "[31m" not in log


README = f"""# A database

#### For {SLY}

{SCRIPT}

{IMAGE} <img src=x onerror="window.owned = 1">

![a picture](http://evil.example/p.png "t") [![badge](https://evil.example/b.svg)](https://docs.example/db)

[one](javascript:window.owned=1) [two](data:text/html,<script>window.owned=1</script>) [three](//evil.example)
[four](https://bank.example@evil.example/) [five](/api/v2/page/session) [](https://docs.example/empty)
<javascript:window.owned=1> <https://docs.example/auto>

[ref]: javascript:window.owned=1
[ref] [seven][ref]

- a list
  1. in `code {SLY}`

| a | |
|---|---|
| 1 | 2 |

```html
{SCRIPT}
```

"""


def test_a_plugins_readme_is_read_and_runs_nothing(client, enter):
    deep = "> " * 8000 + "\n\n" + "- " * 8000 + "x\n\n" + "*_" * 8000
    client.put("resource-plugins/db", specs.plugin("db@1.2.0") | {"readme": README + "the end\n"})
    client.put("resource-plugins/deep", specs.plugin("deep") | {"readme": README + deep})
    client.put("resource-plugins/quiet", specs.plugin("quiet"))
    with enter() as visit:
        page = visit.page
        visit.open("/page/plugins/db%401.2.0", ".readme :text('the end')")
        visible(page)
        found = page.locator(".readme")
        assert [page.inner_text(f".readme {h}") for h in ("h3", "h4")] == [
            "A database",
            found.locator("h4").inner_text(),
        ]
        links = found.locator("a").evaluate_all("each => each.map((e) => [e.href, e.rel, e.target])")
        assert {each[0] for each in links} == {"https://docs.example/db", "https://docs.example/auto"}
        assert {tuple(each[1:]) for each in links} == {("noopener noreferrer nofollow", "_blank")}
        assert found.locator("img, script, iframe, style, svg, form, input, object").count() == 0
        assert "[picture: a picture]" in found.inner_text()
        assert found.locator("pre").inner_text().strip() == SCRIPT
        assert visit.axe() == []
        page.set_viewport_size(driven.PHONE)
        assert page.evaluate("document.documentElement.scrollWidth") <= driven.PHONE["width"]
        assert visit.axe() == []
        visit.open("/page/plugins/deep", ".readme li")
        visible(page)
        visit.open("/page/plugins/quiet", "text=Not in use")
        assert page.locator(".readme").count() == 0


@pytest.mark.slow
def test_a_log_of_a_megabyte_does_no_harm(client, host, enter):
    client.put("resource-plugins/db", specs.plugin())
    client.put("sandboxes/sb1", specs.sandbox())
    (uid,) = host.offers
    line = f"{SAYS} \u202e\x1b[1m" + "x" * 60 + "\n"
    data = (line * (1 + (1 << 20) // len(line.encode()))).encode() + b"the end\n"
    host.log_data[uid, "mydb/provision", 1] = (data, True)
    unit = UnitReport(
        id="mydb/provision",
        resource="mydb",
        name="provision",
        event="preStart",
        kind="exec",
        state="running",
        attempt=1,
    )
    host.say(uid, ready=False, reason="ResourcesPending", message="m", units=(unit,))
    with enter() as visit:
        visit.open("/page/sandboxes/sb1?unit=mydb%2Fprovision", ".log pre:has-text('the end')")
        visit.page.wait_for_selector("text=only the last part is shown")
        assert len(visit.page.inner_text(".log pre")) < 410_000
        visible(visit.page)
        assert visit.page.evaluate("document.querySelector('.log pre').children.length") == 0
