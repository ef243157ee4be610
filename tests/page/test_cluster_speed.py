"""The costs of thousands of Sandboxes for the page of a plain cluster, with a fake API server. Only in the proof."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from tests.cli.command import Cli
from tests.cli.frozen_cluster import still
from tests.kube.fake import front
from tests.page import browser as driven
from tests.page.clusters import SHOP
from tests.page.test_speed import cost, processor

from dayfly.kube.transport import KubeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import CDPSession

pytestmark = [pytest.mark.proof, pytest.mark.builds("page"), pytest.mark.timeout(900)]

FIRST_VIEW_MS = {2_000: 1_000, 10_000: 2_000}
READY_S = {2_000: 5, 10_000: 15}
RSS = {2_000: 200e6, 10_000: 250e6}
AT_REST_MS, EACH_CHANGE_MS = 1.0, 5.0
A_SECOND = 10


class Api:
    """A cluster with many Sandboxes, behind a socket."""

    def __init__(self, many: int) -> None:
        self.cluster = still()
        self.many = many
        for n in range(many):
            meta = {"name": f"box-{n:05}", "labels": {"team": f"t{n % 7}"}}
            spec = {"cluster": "c", "ttl": {"duration": "5d"}, "labels": {"team": f"t{n % 7}", "pr": str(n)}}
            body = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Sandbox", "metadata": meta, "spec": spec}
            self._ask("POST", SHOP, body)
            self.change(n, 0)
        self.url, self._end = "", asyncio.Event()
        self._began = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with front.serving(self.cluster) as self.url:
            self._began.set()
            await self._end.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._began.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)

    def _ask(self, method: str, path: str, body: object) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = self.cluster.answer(KubeRequest(method, path, {}, json.dumps(body).encode(), kind))
        assert answer.status < 300, answer.body

    def change(self, number: int, when: int) -> None:
        """Change the status of one sandbox."""
        units = [
            {
                "id": f"db/s{n}",
                "state": "running",
                "event": "preStart",
                "kind": "exec",
                "attempt": when + 1,
                "message": "m" * 60,
            }
            for n in range(3)
        ]
        status = {
            "phase": "open",
            "reason": "ResourcesPending",
            "message": f"change {when}",
            "progress": "1/3",
            "units": units,
        }
        self._ask("PATCH", f"{SHOP}/box-{number % self.many:05}/status", {"status": status})

    def changing(self, seconds: int) -> int:
        """Make ten changes a second for a given time; return their number."""
        made, over = seconds * A_SECOND, threading.Event()

        def begin() -> None:
            for n in range(made):
                self._loop.call_later(n / A_SECOND, self.change, n * 37, n + 1)
            self._loop.call_later(seconds, over.set)

        self._loop.call_soon_threadsafe(begin)
        assert over.wait(10 * seconds)
        return made


@pytest.fixture
def page_of(tmp_path: Path) -> Iterator[Callable[[Api], tuple[str, int]]]:
    cli = Cli(tmp_path / "home", tmp_path, [])

    def start(api: Api) -> tuple[str, int]:
        entry = {"name": "kind", "cluster": {"server": api.url}}
        context = {"name": "kind", "context": {"cluster": "kind", "user": "ada", "namespace": "shop"}}
        config = {
            "current-context": "kind",
            "clusters": [entry],
            "contexts": [context],
            "users": [{"name": "ada", "user": {}}],
        }
        cli.write("kubeconfig", json.dumps(config))
        process = cli.start(
            "page", "--context", "kind", "--no-open", env=cli.environment(KUBECONFIG=str(tmp_path / "kubeconfig"))
        )
        assert process.stdout is not None
        return process.stdout.readline().decode().strip(), process.pid

    yield start
    cli.close()


def rss(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("many", sorted(FIRST_VIEW_MS))
def test_thousands_are_there_soon_and_cost_next_to_nothing(many, browser, page_of, played):
    with Api(many) as api:
        link, pid = page_of(api)
        began = time.monotonic()
        with driven.visit(browser, re.match(r"http://[^/]+", link)[0], link) as visit:
            page = visit.page
            page.set_default_timeout(120_000)
            said = f"text={many + 1:} sandboxes"
            page.wait_for_selector(said)
            ready = time.monotonic() - began
            spent = processor(pid) / 1000
            shown = []
            for _ in range(5):
                page.reload()
                page.wait_for_selector(said)
                shown.append(page.evaluate("performance.now()"))
            at_rest = cost(pid)
            session = visit.context.new_cdp_session(page)
            session.send("Performance.enable")
            before, begin = processor(pid), busy(session)
            made = api.changing(10)
            each, each_browser = (processor(pid) - before) / made, (busy(session) - begin) / made
            page.wait_for_selector(said)
            page.goto("about:blank")
            at_rest -= cost(pid)
            took = sorted(shown)[2]
            figures = (
                f"{many:,} Sandboxes: first list after {ready:.1f} s ({spent:.1f} s of a processor since the start), "
                f"first view {took:.0f} ms, {rss(pid) / 1e6:.0f} MB, at rest {at_rest:.2f} ms/s, a change {each:.2f} ms "
                f"and in the browser {each_browser:.1f} ms"
            )
            print(figures)
            played(f"the page of a cluster with {many:,}", many, figures)
            assert ready < READY_S[many]
            assert took < FIRST_VIEW_MS[many]
            assert rss(pid) < RSS[many]
            assert at_rest <= AT_REST_MS
            assert each <= EACH_CHANGE_MS


def busy(session: CDPSession) -> float:
    """The milliseconds that the page's own thread in the browser has worked."""
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"] * 1000
