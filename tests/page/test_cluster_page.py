"""The API of the page of a plain cluster: the data of the verbs, with the permissions of the user who started it."""

from __future__ import annotations

import http.client
import re

import msgspec
import pytest
from tests.cli.frozen_cluster import (
    FAILING,
    FLAGS,
    LIFE,
    LINE,
    NEVER_GOES,
    SLOW,
    changed,
    failing,
    running,
    still,
    stuck,
    up,
)
from tests.page.clusters import SHOP, apart, serving, stage
from tests.server.client import wait_for

from dayfly.cli.cluster_page import sessions
from dayfly.server import attention
from dayfly.server.http import forms
from dayfly.spec import api

from tests.operator.rig.scenes import wish  # isort: skip
from tests.operator.rig.world import World  # isort: skip

__all__ = ["stage"]

BOX = f"{SHOP}/box"
MASKED = "sandboxes/box/outputs?masked=true"


def until(events, wanted):
    """Return all events up to the first of that kind."""
    found = []
    for event in events:
        found.append(event)
        if event[0] == wanted:
            return found
    raise AssertionError(found)


class TestWhoIsLetIn:
    def test_link_works_once_and_cookie_is_hidden_from_scripts(self, stage, monkeypatch):
        with serving(still()) as served:
            assert served.call("GET", "/page/session").status == 401
            assert served.call("GET", "sandboxes/box").status == 401
            code = served.link().partition("#")[2]
            said = served.call("POST", "/page/enter", {"code": code})
            cookie = said.headers["set-cookie"]
            assert re.fullmatch(
                rf"dayfly-{served.port}=[\w-]{{43}}; HttpOnly; Max-Age=43200; Path=/; SameSite=strict", cookie
            )
            for wrong in (code, "", "é", "\ud800", cookie.partition("=")[2].partition(";")[0], 5):
                assert served.call("POST", "/page/enter", {"code": wrong}).status in (400, 401)
            served.cookie = cookie.partition(";")[0]
            assert served.get("/page/session")["place"] == {"context": "kind", "namespace": "shop"}
            monkeypatch.setattr(sessions, "LINK_S", -1)
            old = served.link().partition("#")[2]
            assert served.call("POST", "/page/enter", {"code": old}).json["error"] == sessions.USED
            assert served.call("DELETE", "/page/session").status == 200
            assert served.call("GET", "/page/session").status == 401

    @pytest.mark.parametrize(
        "wrong",
        [{"Origin": ""}, {"Origin": "http://127.0.0.1:1"}, {"Dayfly_Page": ""}, {"Sec_Fetch_Site": "same-site"}],
        ids=str,
    )
    def test_another_page_in_the_browser_changes_nothing(self, wrong):
        with serving(still()) as served:
            served.sign_in()
            assert served.call("DELETE", "sandboxes/box", **wrong).status == 403
            assert served.call("POST", "/page/enter", {"code": served.link().partition("#")[2]}, **wrong).status == 403
            assert "deletionTimestamp" not in served.ada.cluster.objects("sandboxes")[0]["metadata"]

    def test_cross_site_and_foreign_host_requests_are_refused(self):
        with serving(still()) as served:
            served.sign_in()
            for wrong in ({"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Host": "evil.example"}):
                assert served.call("GET", "sandboxes/box", **wrong).status == 403
            assert served.call("GET", "sandboxes/box", Sec_Fetch_Site="same-origin").status == 200
            assert served.call("GET", "sandboxes/box").headers.get("access-control-allow-origin") is None

    def test_page_serves_only_the_api_it_needs(self):
        with serving(still()) as served:
            served.sign_in()
            assert served.call("PUT", "sandboxes/box", {}).status == 405
            assert served.call("GET", "keys").status == 404
            assert served.call("GET", "/orgs/local/sandboxes/box").status == 404


class TestWhatItSays:
    def test_the_list_comes_by_the_watch_and_so_does_each_change(self):
        with serving(still()) as served:
            served.sign_in()
            with served.changes() as events:
                assert [kind for kind, _ in until(events, "synced")] == ["changed", "group-synced", "synced"]
                served.ask("PATCH", BOX, {"spec": {"labels": {"team": "a"}}})
                assert next(events)[1]["spec"] == {"labels": {"team": "a"}}
                served.ask("POST", SHOP, _box("other"))
                assert (found := next(events))[0] == "changed"
                assert (found[1]["name"], found[1]["namespace"]) == ("other", "shop")
                served.ask("DELETE", f"{SHOP}/other")
                assert next(events) == ("deleted", {"name": "other"})
            assert [each["name"] for each in served.get("ended-sandboxes")] == ["other"]
            assert served.get("sandboxes/other/report")["phase"] == "cleaned"
            lists = [
                each
                for each in served.ada.cluster.calls
                if each.client == "ada" and each.request.path == SHOP and "watch" not in each.request.query
            ]
            assert len(lists) == 1, "nothing is polled"

    @pytest.mark.parametrize(
        ("scene", "story"),
        [(LIFE, up), (FAILING, failing), (NEVER_GOES, stuck), (SLOW, running)],
        ids=["ready", "failed", "retrying", "running"],
    )
    def test_the_same_as_the_verbs_in_the_forms_of_the_api(self, stage, scene, story):
        asked = stage(scene, story)
        verbs, why = apart(_as_verbs_say, asked)
        with serving(asked.cluster) as served:
            served.sign_in()
            report = served.get("sandboxes/box/report")
            assert {key: report[key] for key in verbs} == verbs
            assert served.get("sandboxes/box/why") == why
            for path, form in (
                ("/page/session", forms.PageSession),
                ("sandboxes/box", api.Sandbox),
                ("sandboxes/box/report", api.Report),
                ("sandboxes/box/why", api.Blocker),
                ("sandboxes/box/plan", forms.Plan),
                ("sandboxes/box/history", list[api.Move]),
                ("sandboxes/box/attempts", list[api.Attempt]),
                ("sandboxes/box/outputs?masked=true", list[api.Output]),
                ("attention", list[attention.Concern]),
                ("resource-plugins?version=all", list[api.Plugin]),
                ("ended-sandboxes", list[forms.EndedRun]),
            ):
                assert msgspec.convert(served.get(path), form) is not None, path

    def test_plan_is_the_sealed_one_or_a_preview_before_that(self, stage):
        asked = stage(LIFE, up)
        with serving(asked.cluster) as served:
            served.sign_in()
            sealed = served.get("sandboxes/box/plan")
            [[make], [seed]] = sealed["events"][0]["waves"]
            assert (make["id"], seed["inputs"][0]["source"]) == ("db/make", "db/make.url")
            served.ask("POST", SHOP, _box("new", wish()))
            wait_for(lambda: served.call("GET", "sandboxes/new").status == 200)
            assert served.get("sandboxes/new/plan") == sealed
            served.ask("POST", SHOP, _box("odd", {"resources": [{"name": "db", "plugin": "nosuch"}]}))
            wait_for(lambda: served.call("GET", "sandboxes/odd").status == 200)
            said = served.call("GET", "sandboxes/odd/plan")
            assert (said.status, said.json["error"]) == (404, "no resource plugin nosuch@latest")

    def test_attention_names_commands_for_this_cluster(self, stage):
        asked = stage(NEVER_GOES, stuck)
        with serving(asked.cluster) as served:
            served.sign_in()
            assert served.get("attention") == []
        asked = stage(FAILING, failing)
        with serving(asked.cluster) as served:
            served.sign_in()
            [concern] = served.get("attention")
            assert (concern["kind"], concern["sandbox"], concern["units"]) == ("failed", "box", ["db/seed"])
            assert f"`dayfly logs box db seed{FLAGS}`" in concern["next"]
        asked = stage(changed(FAILING, db_seed={"fails": 9, "prints": b""}), failing)
        with serving(asked.cluster) as served:
            served.sign_in()
            [concern] = served.get("attention")
            assert concern["next"].startswith("see its message (it printed nothing), fix the plugin")
            assert concern["next"] in served.get("sandboxes/box/why")["because"][0]["next"]

    def test_refused_hooks_are_shown_only_with_the_right(self):
        def hook(name, reason, troubled=0):
            condition = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            status = {"ready": reason == "HookActive", "reason": reason, "message": f"m-{name}", "troubled": troubled}
            return {"metadata": {"name": name}, "spec": {}, "status": status | {"conditions": [condition]}}

        hooks = "/apis/dayfly.dev/v1alpha1/lifecyclehooks"
        with serving(still()) as served:
            served.sign_in()
            served.ask("POST", hooks, {"metadata": {"name": "silent"}, "spec": {}})
            for name, *how in (("fine", "HookActive"), ("odd", "Refused"), ("held", "HookActive", 2)):
                made = hook(name, *how)
                served.ask("POST", hooks, {"metadata": made["metadata"], "spec": {}})
                served.ask("PATCH", f"{hooks}/{name}/status", {"status": made["status"]})
            held, odd = sorted(served.get("attention"), key=lambda each: each["subject"])
            assert (odd["kind"], odd["subject"], odd["message"]) == ("held", "lifecycle hook odd", "m-odd")
            assert (odd["since"], odd["next"]) == (1_767_225_600_000, "fix its file and apply it again")
            assert (held["subject"], held["next"]) == (
                "lifecycle hook held",
                "see `kubectl describe lifecyclehook held`",
            )
            served.ada.denied = ("lifecyclehooks",)
            assert served.get("attention") == []

    def test_expiring_sandbox_is_listed_without_a_change(self, monkeypatch):
        with serving(still(status={"expiresAt": "2026-01-01T01:00:00Z"})) as served:
            served.sign_in()
            wait_for(lambda: served.get("sandboxes/box")["status"].get("scheduledDeleteTime"))
            monkeypatch.setattr("time.time_ns", lambda: (1_767_225_600 + 3_300) * 10**9)
            [concern] = [each for each in served.get("attention") if each["kind"] == "expiring"]
            assert f"`dayfly sandbox extend box --for 2h{FLAGS}`" in concern["next"]

    def test_head_of_a_stream_is_answered_and_connection_kept(self):
        with serving(still()) as served:
            served.sign_in()
            connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=5)
            for method, path in (("HEAD", "changes"), ("GET", "sandboxes/box")):
                connection.request(method, f"/api/v2/orgs/cluster/{path}", headers={"Cookie": served.cookie})
                answer = connection.getresponse()
                assert (answer.status, answer.read() == b"") == (200, method == "HEAD")
            connection.close()

    def test_all_namespaces_tell_boxes_of_one_name_apart(self, stage):
        asked = stage(FAILING, failing)
        with serving(asked.cluster, namespace="") as served:
            served.sign_in()
            served.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "den"}})
            served.ask("POST", SHOP.replace("shop", "den"), _box("box", namespace="den"))
            with served.changes() as events:
                names = {data["name"] for kind, data in until(events, "synced") if kind == "changed"}
                while names != {"den:box", "shop:box"}:
                    names.add(next(events)[1]["name"])
            assert served.get("sandboxes/shop:box/report")["reason"] == "ResourceFailed"
            assert served.get("sandboxes/den:box")["namespace"] == "den"
            concerns = served.get("attention")
            assert {each["sandbox"] for each in concerns} == {"shop:box"}
            assert f"`dayfly logs box db seed{FLAGS}`" in concerns[0]["next"]
            assert served.call("GET", "sandboxes/box").status == 404

    def test_unreadable_sandbox_hides_no_other(self, stage):
        """Users who may write Sandboxes may nest fields that Dayfly stores unchanged."""

        async def another(world: World) -> None:
            await up(world)
            world.sandbox({"middleware": [{"name": "DEEP"}]}, name="deep")

        asked = stage(LIFE, another)
        with serving(asked.cluster) as served:
            served.sign_in()
            with served.changes() as events:
                found = {data["name"]: data for kind, data in until(events, "synced") if kind == "changed"}
                assert found.keys() == {"box", "deep"}
                assert found["box"]["status"]["ready"]
                served.ask("PATCH", BOX, {"spec": {"labels": {"team": "a"}}})
                assert next(events)[1]["spec"] == {"labels": {"team": "a"}}


class TestLogs:
    def log(self, served, unit, offset=0, **more):
        query = "&".join(f"{key}={value}" for key, value in more.items())
        return served.call("GET", f"sandboxes/box/log?unit={unit}&attempt=1&offset={offset}&{query}")

    def test_log_is_shown_kept_and_live(self, stage):
        pods = []

        async def talking(world: World) -> None:
            await running(world)
            [pod] = world.pods("db/make")
            pods.append(pod)
            world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners").write(b"one\ntw")

        asked = stage(LIFE, up)
        with serving(asked.cluster) as served:
            served.sign_in()
            said = self.log(served, "db/seed").json
            assert (said["data"], said["sealed"], said["next"]) == (LINE, True, len(LINE))
            assert self.log(served, "db/nosuch").status == 400
        asked = stage(SLOW, talking)
        [pod] = pods
        with serving(asked.cluster) as served:
            served.sign_in()
            assert served.get("sandboxes/box/attempts") == [
                {"unit": "db/make", "attempt": 1, "size": 0, "sealed": False}
            ]
            said = self.log(served, "db/make", wait=20).json
            assert (said["data"], said["sealed"]) == ("one\n", False)
            log = asked.cluster.log_of(pod["metadata"]["name"], "dayfly-runners")
            served.on_loop(lambda: log.write(b"o\n"))
            assert self.log(served, "db/make", said["next"], wait=20).json["data"] == "two\n"

    def test_denied_live_log_says_where_to_read_it_later(self, stage):
        asked = stage(SLOW, running)
        with serving(asked.cluster, denied=("/log",)) as served:
            served.sign_in()
            said = self.log(served, "db/make", wait=20)
            assert said.status == 403
            assert 'its log cannot be shown while it runs: User "ada" cannot get' in said.json["error"]
            assert "its log is available seconds after it has ended" in said.json["error"]


class TestRights:
    def test_viewer_is_given_the_reason_for_missing_buttons(self, stage):
        asked = stage(LIFE, up)
        mine = ("delete sandboxes", "patch sandboxes", "get secrets")
        with serving(asked.cluster, may_not=mine) as served:
            served.sign_in()
            denied = served.get("sandboxes/box/report")["denied"]
            assert set(denied) == {"delete", "extend", "retry", "abandon", "outputs"}
            assert denied["delete"].startswith('you may not delete sandboxes in namespace "shop"; ask')
        with serving(asked.cluster) as served:
            served.sign_in()
            assert served.get("sandboxes/box/report")["denied"] == {}

    @pytest.mark.parametrize(
        ("part", "path"),
        [
            ("/secrets", MASKED),
            ("/runs", "sandboxes/box/history"),
            ("/objectlifecyclemethods", "sandboxes/box/plan"),
            ("/resourceplugins", "resource-plugins?version=all"),
            ("/steplogs", "sandboxes/box/attempts"),
        ],
    )
    def test_forbidden_part_is_reported_and_the_rest_is_shown(self, stage, part, path):
        asked = stage(LIFE, up)
        with serving(asked.cluster, denied=(part,)) as served:
            served.sign_in()
            said = served.call("GET", path)
            assert said.status == 403
            assert said.json["error"].startswith('User "ada" cannot get')
            assert served.get("sandboxes/box/report")["ready"]
            assert served.get("sandboxes/box/why") == {}

    def test_a_list_that_is_forbidden_is_no_empty_list(self):
        with serving(still(), denied=(SHOP,)) as served:
            served.sign_in()
            with served.changes() as events:
                kind, data = next(events)
                assert (kind, data["error"][:20]) == ("trouble", 'User "ada" cannot ge')
                served.ada.denied = ()
                found = until(events, "synced")
                assert [each for each in found if each[0] == "trouble"] in ([], [("trouble", {"error": ""})])
                assert "changed" in [each[0] for each in found]

    def test_a_cluster_that_is_away_is_said_until_it_is_back(self):
        with serving(still(), away=True) as served:
            served.sign_in()
            with served.changes() as events:
                kind, data = next(events)
                assert (kind, data["error"][:31]) == ("trouble", "the cluster cannot be reached: ")
                said = served.call("GET", "sandboxes/box/report")
                assert (said.status, said.json["error"]) == (503, data["error"])
                served.ada.away = False
                assert "changed" in [kind for kind, _ in until(events, "synced")]

    def test_sensitive_value_needs_a_click_and_the_secret_right(self, stage):
        asked = stage(LIFE, up)
        with serving(asked.cluster, denied=("/runs",)) as served:
            served.sign_in()
            found = served.get(MASKED)
            assert [(each["output"], each["value"], each["sensitive"]) for each in found] == [
                ("url", "", True),
                ("user", "", True),
            ], "without the ledger they may be sensitive"
            said = served.call("POST", "sandboxes/box/reveal", {"unit": "db/make", "output": "url"})
            assert (said.status, said.json["value"]) == (200, "db://1")
            assert served.call("POST", "sandboxes/box/reveal", {"unit": "db/make", "output": "no"}).status == 404
            assert served.call("POST", "sandboxes/box/reveal", {"unit": 5}).status == 400
        with serving(asked.cluster, denied=("/secrets",)) as served:
            served.sign_in()
            said = served.call("POST", "sandboxes/box/reveal", {"unit": "db/make", "output": "url"})
            assert (said.status, "/secrets/" in said.json["error"]) == (403, True)


class TestChanges:
    def test_delete_retry_and_abandon_do_as_the_verbs_do(self, stage):
        asked = stage(NEVER_GOES, stuck)
        with serving(asked.cluster) as served:
            served.sign_in()
            [unit] = [each for each in served.get("sandboxes/box/report")["units"] if each["state"] == "retrying"]
            assert served.call("POST", "sandboxes/box/retry", {"unit": "db/nosuch"}).status == 404
            said = served.call("POST", "sandboxes/box/retry", {})
            assert said.json == {"retried": [{"unit": unit["id"], "attempt": unit["attempt"]}]}
            assert served.call("POST", "sandboxes/box/abandon", {"reason": " "}).status == 400
            assert served.call("POST", "sandboxes/box/abandon", {"reason": "x", "force": 1}).status == 400
            assert served.call("POST", "sandboxes/box/abandon", {"reason": "gone with its machine"}).status == 200
            notes = asked.cluster.objects("sandboxes")[0]["metadata"]["annotations"]
            assert notes == {
                "dayfly.dev/retry": f"{unit['id']}={unit['attempt']}",
                "dayfly.dev/abandon": "gone with its machine",
            }
            wait_for(lambda: served.get("sandboxes/box/report").get("abandon"))
            served.ask("PATCH", BOX, {"metadata": {"finalizers": None}})
            wait_for(lambda: served.get("sandboxes/box/report")["phase"] == "abandoned")
            assert "gone with its machine" in served.get("sandboxes/box/report")["message"]
            why = served.get("sandboxes/box/why")
            assert (why["reason"], [each["reason"] for each in why["because"]]) == ("Abandoned", ["LeftoversPossible"])
        asked = stage(LIFE, up)
        with serving(asked.cluster) as served:
            served.sign_in()
            early = served.call("POST", "sandboxes/box/abandon", {"reason": "not needed"})
            assert (early.status, "is not being deleted" in early.json["error"]) == (409, True)
            assert "annotations" not in asked.cluster.objects("sandboxes")[0]["metadata"]
            assert served.call("POST", "sandboxes/box/retry", {}).status == 409
            assert served.call("DELETE", "sandboxes/box").status == 200
            assert "deletionTimestamp" in asked.cluster.objects("sandboxes")[0]["metadata"]
            assert served.call("DELETE", "sandboxes/bix").status == 404

    def test_extend_lengthens_the_wish(self, monkeypatch):
        cluster = still()
        with serving(cluster) as served:
            served.sign_in()
            assert served.call("POST", "sandboxes/box/extend", {"seconds": 60}).status == 409
            served.ask("PATCH", BOX, {"spec": {"ttl": {"duration": "1h"}}})
            monkeypatch.setattr("time.time_ns", lambda: 1_767_225_600 * 10**9)
            for wrong in ({"seconds": "1"}, {"until": 5}, {"hours": 1}, []):
                assert served.call("POST", "sandboxes/box/extend", wrong).status == 400
            said = served.call("POST", "sandboxes/box/extend", {"seconds": 7200})
            assert said.json["status"]["scheduledDeleteTime"].startswith("2026-01-01T02:00:00")
            assert cluster.objects("sandboxes")[0]["spec"]["ttl"] == {"duration": "120m"}

    def test_refusal_of_the_cluster_is_passed_on(self, stage):
        asked = stage(LIFE, up)
        asked.cluster.denied = {("delete", "sandboxes.dayfly.dev")}
        with serving(asked.cluster) as served:
            served.sign_in()
            said = served.call("DELETE", "sandboxes/box")
            assert said.status == 403
            assert "cannot delete resource" in said.json["error"]

    def test_served_sandbox_must_be_changed_at_its_server(self):
        with serving(still(status={"servedFor": "acme/sb1"})) as served:
            served.sign_in()
            wait_for(lambda: "delete" in served.get("sandboxes/box/report")["denied"])
            assert "a server manages it as acme/sb1" in served.call("DELETE", "sandboxes/box").json["error"]


def _as_verbs_say(asked):
    host = asked.host()
    found = msgspec.json.encode((host.report("box"), host.why("box")))
    host.close()
    return msgspec.json.decode(found)


def _box(name, spec=None, namespace="shop"):
    about = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Sandbox"}
    return about | {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"cluster": "c", "resources": [], **(spec or {})},
    }
