"""A day on an open page: as much changes as in 24 hours, and neither the browser nor the server grows by it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.page import browser as driven
from tests.selection import SELECTION

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.builds("page"), pytest.mark.timeout(1800)]

DAY_S = 24 * 3600
# A day has 50,000 changes, in parts of 1,000. A commit plays a smaller number.
PARTS, EACH = 50, 1000
FEW, EACH_OF_FEW = 4, 240
# Differences between two measurements that are no growth, absolute and as a factor.
HEAP, RSS, NODES, LISTENERS = 400_000, 3_000_000, 400, 8
GROWTH = 1.05


class Server:
    """The process of `soak_server`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.ready = self._read()

    def on(self, changes: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"changes": changes}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    command = [sys.executable, str(Path(__file__).with_name("soak_server.py")), str(tmp_path / "soak.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


def taken_up(session: Any) -> tuple[float, float, float]:
    """The heap of a page after its garbage is gone, its nodes, and its listeners."""
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return found["JSHeapUsedSize"], found["Nodes"], found["JSEventListeners"]


def test_a_day_of_changes_leaves_browser_and_server_as_they_were(server, browser, played):
    parts, each = (PARTS, EACH) if SELECTION.is_complete else (FEW, EACH_OF_FEW)
    url, (first, second) = server.ready["url"], server.ready["links"]
    with driven.visit(browser, url, first) as listed, driven.visit(browser, url, second) as one:
        sessions = [visit.context.new_cdp_session(visit.page) for visit in (listed, one)]
        for visit, session in zip((listed, one), sessions, strict=True):
            visit.expected = driven.re.compile(visit.expected.pattern + "|ERR_INTERNET_DISCONNECTED|ERR_NETWORK")
            visit.page.clock.install()
            session.send("Performance.enable")
        listed.open("/page/sandboxes?by=age", "text=/12\\d sandboxes/")
        one.open("/page/sandboxes/a-log?unit=mydb%2Fprovision", ".log pre:has-text('a line like any other')")
        came_back: list[str] = []
        listed.page.on("request", lambda asked: came_back.append(asked.url) if asked.url.endswith("/changes") else None)
        browsers: list[list[tuple[float, float, float]]] = [[], []]
        servers = []
        for part in range(parts):
            if part % 3 == 1:
                one.context.set_offline(True)
            found = server.on(each)
            one.context.set_offline(False)
            for visit in (listed, one):
                visit.page.clock.fast_forward(DAY_S * 1000 // parts)
            # By locators: a selector's handle would keep its element, and whatever that holds, for good.
            listed.page.locator(f"tbody tr:has-text('{found['newest']}')").wait_for()
            one.page.locator(f".log pre:has-text('line {found['told']}')").wait_for()
            for session, seen in zip(sessions, browsers, strict=True):
                seen.append(taken_up(session))
            servers.append(found["rss"])
    assert came_back, "so much at once is more than is kept for who looks away"
    tenth = max(2, parts // 10)
    said = []
    for what, seen in (("list", browsers[0]), ("sandbox", browsers[1])):
        for name, values, slack in zip(
            ("heap", "nodes", "listeners"), zip(*seen, strict=True), (HEAP, NODES, LISTENERS), strict=True
        ):
            said.append(flat(f"{what}: {name}", values, tenth, slack))
    said.append(flat("server: rss", servers, tenth, RSS))
    print("\n".join(said))
    played("a day on the page", parts * each, "; ".join(said))


def flat(what: str, values: Any, tenth: int, slack: float) -> str:
    """The last tenth is as the first one, but for that much."""
    begin, end = statistics.median(values[:tenth]), statistics.median(values[-tenth:])
    assert end <= begin * GROWTH + slack, (what, values)
    return f"{what} {begin:,.0f} -> {end:,.0f}"
