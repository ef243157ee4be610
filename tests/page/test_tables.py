"""The widths of the page's tables: on each screen all columns that are shown have room, with few rows and with many."""

from __future__ import annotations

import pytest
from tests.server import specs

pytestmark = pytest.mark.builds("page")

WIDTHS = (320, 360, 390, 480, 640, 641, 700, 768, 820, 900, 901, 1024, 1100, 1200, 1280, 1440)
MEASURE = """() => Object.fromEntries([...document.querySelectorAll("thead th")].map((each) => [
    each.textContent, Math.round(each.getBoundingClientRect().width)]).filter(([, width]) => width))"""
VIEWS = ("sandboxes", "routegroups", "pools", "plugins", "hosts", "ended")


def fill(client, host, numbers: range) -> None:
    for n in numbers:
        client.put(
            f"resource-plugins/plugin-with-a-long-name-{n}",
            specs.plugin(f"plugin-with-a-long-name-{n}", description="A database"),
        )
        pool = {"cluster": "local", "plugin": f"plugin-with-a-long-name-{n}", "params": {"size": "small"}, "ready": 1}
        client.put(f"resourcepools/pool-with-a-long-name-{n}", {"spec": pool})
        match = {"label": {"key": "team", "value": "a"}}
        client.put(f"routegroups/group-with-a-long-name-{n}", {"spec": {"cluster": "local", "match": match}})
        client.put(f"sandboxes/old-sandbox-of-long-name-{n}", specs.empty())
        uid = next(uid for uid, offer in host.offers.items() if offer.name == f"old-sandbox-of-long-name-{n}")
        client.delete(f"sandboxes/old-sandbox-of-long-name-{n}")
        host.finish(uid)
        assert client.call("GET", f"sandboxes/old-sandbox-of-long-name-{n}").status == 404
        client.put(f"sandboxes/sandbox-of-long-name-{n}", specs.empty(labels={"team": "a"}, ttl={"duration": "1d"}))


def measured(visit) -> dict[tuple[str, int], dict[str, int]]:
    """The width of each column that is shown, by view and width of the window."""
    found = {}
    for view in VIEWS:
        visit.open(f"/page/{view}", "tbody tr th a")
        for width in WIDTHS:
            visit.page.set_viewport_size({"width": width, "height": 700})
            found[view, width] = visit.page.evaluate(MEASURE)
            wide = visit.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{view} is wider than a window of {width}"
    return found


@pytest.fixture
def host(host):
    host.pools = True
    return host


@pytest.mark.slow
def test_columns_keep_their_width_however_many_rows(client, host, enter):
    fill(client, host, range(2))
    with enter() as visit:
        few = measured(visit)
        fill(client, host, range(2, 45))
        visit.open("/page/sandboxes", "tr.space")
        many = measured(visit)
    assert many == few
    narrow = {
        where: columns
        for where, columns in few.items()
        if next(iter(columns.values())) < 80 or min(columns.values()) < 70
    }
    assert narrow == {}
