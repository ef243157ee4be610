"""The requests of an open page while nothing changes. `test_speed.py` measures their cost."""

from __future__ import annotations

import pytest
from tests.server import specs

pytestmark = pytest.mark.builds("page")

POLL_INTERVAL_MS = 10_000
VIEWS = {
    "sandboxes": "text=2 sandboxes",
    "sandboxes/box-1": ".standing .state",
    "pools": "text=There are no pools",
    "attention": "text=Nothing needs attention",
}


def test_views_at_rest_only_poll_attention(client, enter):
    for name in ("box-1", "box-2"):
        client.put(f"sandboxes/{name}", specs.empty())
    for view, shown in VIEWS.items():
        with enter() as visit:
            page, sent = visit.page, []
            page.clock.install()
            # The next poll is due some time after this response.
            with page.expect_response("**/attention"):
                visit.open(f"/page/{view}", shown)
            page.on("request", lambda request, sent=sent: sent.append(request.url.rpartition("/")[2]))
            for _ in range(3):
                with page.expect_response("**/attention"):
                    page.clock.run_for(POLL_INTERVAL_MS)
            assert sent == ["attention"] * 3, view
