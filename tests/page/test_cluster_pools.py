"""The pools of a plain cluster on its page: the same data as on the page of a server."""

from __future__ import annotations

from tests.cli.test_cluster_pools import BASE, pool_cluster
from tests.page.clusters import serving
from tests.server.client import wait_for

from dayfly.operator.cluster.objects import POOL_REQUEST_ANNOTATION


def pool_events(events, count: int) -> list:
    """Return the first events about pools."""
    found = []
    for event in events:
        if event[0].startswith("pool-"):
            found.append(event)
        if len(found) == count:
            break
    return found


class TestPools:
    def test_list_and_stream_have_the_same_pool(self):
        with serving(pool_cluster()) as served:
            served.sign_in()
            wait_for(lambda: served.get("resourcepools"))
            (listed,) = served.get("resourcepools")
            assert served.get("resourcepools/small") == listed
            assert [each["state"] for each in listed["status"]["members"]] == [
                "ending",
                "failed",
                "held",
                "ready",
                "creating",
            ]
            with served.changes() as events:
                assert pool_events(events, 1) == [("pool-changed", listed)]
                served.ask(
                    "PATCH", f"{BASE}/poolmembers/small-9/status", {"status": {"state": "held", "holder": "x/db"}}
                )
                ((_, newer),) = pool_events(events, 1)
                assert newer["status"]["members"][3]["state"] == "held"
                served.ask("DELETE", f"{BASE}/resourcepools/small", {})
                assert pool_events(events, 1) == [("pool-deleted", {"name": "small"})]

    def test_actions_change_the_object(self):
        with serving(pool_cluster()) as served:
            served.sign_in()
            wait_for(lambda: served.get("resourcepools"))
            assert served.call("POST", "resourcepools/small/pause", {}).status == 200
            (pool,) = served.ada.cluster.objects("resourcepools")
            assert pool["metadata"]["annotations"][POOL_REQUEST_ANNOTATION].startswith("pause ")
            assert served.call("DELETE", "resourcepools/small").status == 200
            assert served.ada.cluster.objects("resourcepools") == []

    def test_questions_about_a_pool_have_answers(self):
        with serving(pool_cluster()) as served:
            served.sign_in()
            wait_for(lambda: served.get("resourcepools"))
            assert served.get("resourcepools/small/explain")["wanted"] == 2
            assert served.get("resourcepools/small/why")["message"] == "1 of 2 members are ready"
            assert served.get("resourcepools/small/attempts") == []

    def test_unknown_pool_is_not_found(self):
        with serving(pool_cluster()) as served:
            served.sign_in()
            for path in ("", "/why", "/explain", "/attempts"):
                assert served.call("GET", f"resourcepools/other{path}").status == 404
            assert served.call("POST", "resourcepools/other/pause", {}).status == 404

    def test_pool_that_is_paused_by_failures_needs_attention(self):
        cluster = pool_cluster()
        with serving(cluster) as served:
            served.sign_in()
            wait_for(lambda: served.get("resourcepools"))
            assert served.get("attention") == []
            status = {"ready": False, "reason": "Failing", "message": "3 members failed in a row", "paused": True}
            served.ask("PATCH", f"{BASE}/resourcepools/small/status", {"status": status})
            wait_for(lambda: served.get("attention"))
            (concern,) = served.get("attention")
            assert (concern["pool"], concern["reason"]) == ("small", "Failing")
