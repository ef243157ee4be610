"""Attention, ended sandboxes, plans, and outputs whose access is recorded."""

from __future__ import annotations

import functools

import msgspec
import pytest
from tests.server import specs
from tests.server.client import Client, wait_for

from dayfly.link.host_state import HostState
from dayfly.link.server_end import HostFailedError, Link, Links
from dayfly.server import attention
from dayfly.server.api.silent_units import MuteUnits
from dayfly.server.attention import AttentionSubject, ReportedCheck, SilentCluster
from dayfly.server.db.tables import agents, clusters, ended_sandboxes
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.leak_report import LeakReport
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.run_data import HistoryEntry, LogInfo, Value

NOW = 1_000_000_000


def report(**changes):
    usual = RunReport(uid="u", phase=Phase.OPEN, ready=True, reason="Ready", message="fine", done=1, total=1, units=())
    return msgspec.structs.replace(usual, **changes)


def unit(id_, event, state, **more):
    resource, _, name = id_.rpartition("/")
    return UnitReport(id=id_, resource=resource, name=name, event=event, kind="exec", state=state, **more)


def box(name, told, begins_at=0, expires_at=0):
    return AttentionSubject(name, told, begins_at, expires_at)


def check(name, **state):
    return LeakReport(name=name, spec=LeakCheckSpec(plugin="bucket"), plugin="bucket@1.0.0", **state)


def test_healthy_sandboxes_need_no_attention():
    well = report(units=(unit("db/make", "preStart", "succeeded"),))
    pending = report(ready=False, reason="ResourcesPending", message="db/make: running")
    assert attention.find_concerns([box("a", well), box("b", pending), box("c", well, NOW, NOW + 10**9)], NOW) == []


REFUSED = unit("warm", "preStart", "waiting", reason="PodRefused", message="it would be privileged", since=8)
ALIKE = unit("db/make", "preStart", "waiting", reason="PodRefused", message="as well", since=5)
BUSY = unit("db/seed", "preStart", "waiting", reason="WaitingForSlot", message="all places are taken", since=5)


def test_attention_is_sorted_by_severity_with_advice():
    stop = EndRequest(at=NOW - 50, reason="Deleted", message="deleted", by="a key")
    drop = unit("db/drop", "postStop", "retrying", reason="WaitingToRetry", message="exit 1", attempt=6, started_at=5)
    doubt = unit(
        "db/make", "preStart", "unknown", reason="NotReported", message="nobody knows", since=7, until=NOW + 99
    )
    found = attention.find_concerns(
        [
            box("late", report(), NOW - 3_600_000, NOW + 1000),
            box("unsure", report(ready=False, reason="Unknown", message="db/make may have run", units=(doubt,))),
            box("half", report(unsupported=("Routing: nothing routes here",))),
            box("held", report(ready=False, reason="HooksPending", message="m", units=(REFUSED, ALIKE, BUSY))),
            box("bad", report(ready=False, reason="ResourceFailed", message="exit 1", about="db/make", born_at=9)),
            box(
                "stuck",
                report(
                    phase=Phase.CLOSED,
                    ready=False,
                    reason="CleanupStuck",
                    message="db/drop: exit 1",
                    about="db/drop",
                    closed=stop,
                    units=(drop,),
                ),
            ),
            box(
                "gone",
                report(
                    phase=Phase.ABANDONED,
                    abandon=EndRequest(at=3, reason="Abandoned", message="cluster is gone", by="ann"),
                    units=(
                        unit("db/make", "preStart", "succeeded", started_at=1),
                        unit("db/drop", "postStop", "failed", started_at=2),
                        unit("q/make", "preStart", "succeeded", started_at=1),
                        unit("q/drop", "postStop", "succeeded", started_at=2),
                        unit("z/make", "preStart", "skipped"),
                    ),
                ),
            ),
        ],
        NOW,
        [SilentCluster("far", NOW - 100_000, "")],
        [
            ReportedCheck(check("items", error="exit code 1", counts={"orphan": 1, "missing": 2}), NOW - 60),
            ReportedCheck(check("fine", counts={"held": 3, "unknown": 1}), 0),
        ],
    )
    assert [each.kind for each in found] == list(attention.ORDER)
    said = {each.kind: each for each in found}
    assert (said["stuck"].sandbox, said["stuck"].since, said["stuck"].units) == ("stuck", NOW - 50, ("db/drop",))
    assert "dayfly" in said["stuck"].next
    assert (said["leak"].check, said["leak"].since) == ("items", NOW - 60)
    assert said["leak"].message.startswith("it has found 1 orphan and 2 missing resources; its last sweep has no")
    assert (said["unknown"].until, said["unknown"].units) == (NOW + 99, ("db/make",))
    assert said["expiring"].until == NOW + 1000
    assert said["abandoned"].message == "cluster is gone (ann)"
    assert said["abandoned"].units == ("db/make",), "only the unit whose delete step has not succeeded"
    assert said["silent"].subject == "cluster far"
    assert said["ignored"].reason == "Unsupported"
    held = said["held"]
    assert (held.reason, held.message) == ("PodRefused", "warm: it would be privileged (and 1 more)")
    assert (held.units, held.since) == (("warm", "db/make"), 5), "a unit that waits for its turn needs no attention"


def test_missing_plugin_or_image_needs_attention_with_advice():
    missing = report(ready=False, reason="PluginMissing", message="no plugin db", born_at=4)
    image = unit("db/make", "preStart", "waiting", reason="ErrImagePull", message="not found", since=6)
    pulling = report(ready=False, reason="ResourcesPending", message="m", units=(image,))
    plugin, pull = attention.find_concerns([box("a", missing), box("b", pulling)], NOW)
    assert (plugin.kind, plugin.since, "apply the plugin" in plugin.next) == ("held", 4, True)
    assert (pull.kind, pull.since, "available to the cluster's nodes" in pull.next) == ("held", 6, True)


def test_server_gathers_attention(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    (uid,) = host.offers
    host.say(uid, ready=False, reason="ResourceFailed", message="mydb/provision: exit 1")
    (found,) = db.get("attention")
    assert (found["kind"], found["sandbox"], found["reason"]) == ("failed", "sb1", "ResourceFailed")


def test_attention_does_not_refer_to_an_empty_log():
    bad = unit("db/make", "preStart", "failed", message="exit code 1", started_at=5)
    failed = report(ready=False, reason="ResourceFailed", message="db/make: exit code 1", about="db/make", units=(bad,))
    (told,) = attention.find_concerns([box("a", failed)], NOW)
    assert told.next.startswith("read its log with `dayfly logs a db make`")
    (told,) = attention.find_concerns([box("a", failed)._replace(mute={"db/make"})], NOW)
    assert told.next.startswith("see its message (it printed nothing), fix the plugin")


def test_log_is_checked_once_its_attempt_has_ended(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    (uid,) = host.offers
    asked = []
    logs = host.logs
    host.logs = lambda of: asked.append(of) or logs(of)

    def advice() -> str:
        (found,) = db.get("attention")
        return found["next"]

    def fails(attempt: int) -> None:
        bad = unit("mydb/provision", "preStart", "failed", message="exit 1", started_at=5, attempt=attempt)
        host.say(uid, ready=False, reason="ResourceFailed", message="mydb/provision: exit 1", units=(bad,))
        db.get(f"sandboxes/sb1/report?after={host.version(uid) - 1}&wait=20")

    fails(1)
    host.log_data[uid, "mydb/provision", 1] = (b"", False)
    assert "dayfly logs sb1" in advice(), "the log may grow"
    host.log_data[uid, "mydb/provision", 1] = (b"", True)
    assert "it printed nothing" in advice()
    host.log_data[uid, "mydb/provision", 2] = (b"no such host", True)
    assert ("it printed nothing" in advice(), len(asked)) == (True, 2), "a log that has ended is not queried again"
    fails(2)
    assert ("dayfly logs sb1" in advice(), len(asked)) == (True, 3)


async def test_empty_log_check_is_cached_per_run():
    bad = unit("db/make", "preStart", "failed", started_at=5, attempt=1)
    runs = {uid: report(uid=uid, ready=False, units=(bad,)) for uid in "ab"}
    asked = []

    async def logs(uid):
        asked.append(uid)
        return [LogInfo(unit="db/make", attempt=1, size=0, sealed=True)]

    mute = MuteUnits()

    async def look(uids):
        return await mute.find("org", [(runs[uid], functools.partial(logs, uid)) for uid in uids])

    assert await look("ab") == {"a": {"db/make"}, "b": {"db/make"}}
    assert await look("a") == {"a": {"db/make"}}, "no unit of an invisible run"
    assert await look("ab") == {"a": {"db/make"}, "b": {"db/make"}}
    assert sorted(asked) == ["a", "b"]


def test_plan_lists_references_between_units(db):
    db.put("sandboxes/sb1", specs.sandbox())
    plan = db.get("sandboxes/sb1/plan")
    steps = {step["id"]: step for event in plan["events"] for wave in event["waves"] for step in wave}
    assert [each["source"] for each in steps["mydb/drop"]["inputs"]] == ["mydb/provision.host"]
    assert [each["name"] for each in steps["mydb/provision"]["outputs"]] == ["host"]
    assert db.call("GET", "sandboxes/nobody/plan").status == 404


def test_sensitive_outputs_are_masked_and_reveals_recorded(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    (uid,) = host.offers
    host.outputs[uid] = (
        Value(unit="mydb/provision", output="host", value=b"h1"),
        Value(unit="mydb/provision", output="password", value=b"canary", sensitive=True),
    )
    masked = db.get("sandboxes/sb1/outputs?masked=true")
    assert [(each["output"], each["value"], each["sensitive"]) for each in masked] == [
        ("host", "h1", False),
        ("password", "", True),
    ]
    assert "canary" in db.call("GET", "sandboxes/sb1/outputs").body.decode(), "as in the API"
    ask = {"unit": "mydb/provision", "output": "password"}
    assert db.call("POST", "sandboxes/sb1/reveal", ask).json["value"] == "canary"
    last = db.get("audit")["entries"][-1]
    assert (last["action"], last["object"]) == ("reveal", "sandboxes/sb1/outputs/mydb/provision.password")
    before = db.get("audit")["head"]["number"]
    assert db.call("POST", "sandboxes/sb1/reveal", {**ask, "output": "nothing"}).status == 404
    assert db.call("POST", "sandboxes/sb1/reveal", {"unit": 5}).status == 400
    assert db.get("audit")["head"]["number"] == before, "no value was shown"


def test_withheld_output_is_marked_and_not_revealed(db, host, monkeypatch):
    """An agent sends no values of sensitive outputs."""
    db.put("sandboxes/sb1", specs.sandbox())
    (uid,) = host.offers
    host.outputs[uid] = (
        Value(unit="mydb/provision", output="host", value=b"h1"),
        Value(unit="mydb/provision", output="password", value=b"", sensitive=True),
    )
    ask = {"unit": "mydb/provision", "output": "password"}
    assert db.call("POST", "sandboxes/sb1/reveal", ask).json["value"] == "", "a local host sends all values"
    get = Links.get

    def dialled(self, *where):
        monkeypatch.setattr(found := get(self, *where), "shared", True)
        return found

    monkeypatch.setattr(Links, "get", dialled)
    before = db.get("audit")["head"]["number"]
    answer = db.call("POST", "sandboxes/sb1/reveal", ask)
    assert answer.status == 409
    assert "sensitive and never leaves its cluster" in answer.json["error"]
    assert db.get("audit")["head"]["number"] == before, "no value was shown"
    assert db.call("POST", "sandboxes/sb1/reveal", {**ask, "output": "host"}).json["value"] == "h1"
    for found in (db.get("sandboxes/sb1/outputs"), db.get("sandboxes/sb1/outputs?masked=true")):
        assert [(each["output"], each["value"], each.get("withheld")) for each in found] == [
            ("host", "h1", None),
            ("password", "", True),
        ]


def test_ended_sandboxes_are_listed_newest_first(client, host):
    for name in ("one", "two"):
        client.put(f"sandboxes/{name}", specs.empty())
        uid = next(uid for uid, offer in host.offers.items() if offer.name == name)
        client.call("DELETE", f"sandboxes/{name}")
        host.finish(uid)
        assert client.call("GET", f"sandboxes/{name}").status == 404
    found = client.get("ended-sandboxes")
    assert [each["name"] for each in found] == ["two", "one"]
    assert [each["name"] for each in client.get("ended-sandboxes?limit=1")] == ["two"]
    assert client.call("GET", "ended-sandboxes?before=1").json == []


def test_ended_sandboxes_of_a_plugin_are_selected_in_any_version(client, host):
    for version in ("1.0.0", "2.0.0"):
        client.put("resource-plugins/db", specs.plugin(f"db@{version}"))
    client.put("resource-plugins/other", specs.plugin("other@1.0.0"))
    for name, plugin in {"one": "db@1.0.0", "two": "db@2.0.0", "three": "other@1.0.0"}.items():
        resource = {"name": "mydb", "plugin": plugin, "params": {"size": "small"}}
        ended(client, host, name, spec=specs.sandbox(resources=[resource]))
    ended(client, host, "empty")
    found = {each["name"]: each["plugins"] for each in client.get("ended-sandboxes")}
    assert found == {"one": ["db@1.0.0"], "two": ["db@2.0.0"], "three": ["other@1.0.0"], "empty": []}
    assert [each["name"] for each in client.get("ended-sandboxes?plugin=db")] == ["two", "one"]
    assert [each["name"] for each in client.get("ended-sandboxes?plugin=db&limit=1")] == ["two"]
    assert client.get("ended-sandboxes?plugin=db@1.0.0") == []
    made = client.call("POST", "keys", {"name": "ci", "role": "viewer", "scope": ["name:one"]}).json
    scoped = Client(client.port, client.store, made["key"])
    assert [each["name"] for each in scoped.get("ended-sandboxes?plugin=db")] == ["one"]


def ended_row(client, host, name: str, report=None):
    """Delete a sandbox after its host has sent a report, and return its entry in the list of ended ones."""
    client.put(f"sandboxes/{name}", specs.sandbox())
    uid = next(uid for uid, offer in host.offers.items() if offer.name == name)
    if report is not None:
        host.say(uid, ready=False, reason="ResourceFailed", message="mydb/provision: exit 1", units=report)
        assert client.get(f"sandboxes/{name}")["status"]["reason"] == "ResourceFailed"
    client.call("DELETE", f"sandboxes/{name}")
    host.finish(uid)
    assert client.call("GET", f"sandboxes/{name}").status == 404
    return client.get("ended-sandboxes")[0]


def test_ended_sandbox_has_author_and_reason(client, host):
    client.put("resource-plugins/db", specs.plugin())
    found = ended_row(client, host, "one")
    assert (found["reason"], found["failed"], found["abandoned"], found["units"]) == ("Deleted", False, False, [])
    assert found["by"], "the name of the key"


def test_ended_sandbox_is_failed_if_a_create_step_had_failed(client, host):
    client.put("resource-plugins/db", specs.plugin())
    unit = UnitReport(
        id="mydb/provision", resource="mydb", name="provision", event="preStart", kind="exec", state="failed"
    )
    assert ended_row(client, host, "one", (unit,))["failed"]
    retried = msgspec.structs.replace(unit, id="mydb/drop", name="drop", event="postStop")
    assert not ended_row(client, host, "two", (retried,))["failed"]


def test_ended_sandbox_names_units_that_may_have_left_something(client, host):
    client.put("resource-plugins/db", specs.plugin())
    client.put("sandboxes/one", specs.sandbox())
    (uid,) = host.offers
    host.lines[uid] = tuple(
        HistoryEntry(seq=n, at=5, unit=unit, attempt=1, move=move, reason="", message="")
        for n, (move, unit) in enumerate((("Claim", "mydb/provision"), ("Close", "")))
    )
    client.call("POST", "sandboxes/one/abandon", {"reason": "its machine burnt", "force": True})
    (found,) = client.get("ended-sandboxes")
    assert (found["abandoned"], found["reason"], found["message"]) == (True, "Abandoned", "its machine burnt")
    assert found["units"] == ["mydb/provision"]


def grouped(**more):
    return {"spec": {"cluster": "local", "match": {"label": {"key": "team", "value": "a"}}, **more}}


HOOK = {"name": "announce", "script": "#!/bin/sh\necho hi", "outputs": [{"name": "at", "valueFromPath": "/tmp/at"}]}


def test_attention_covers_route_groups_with_their_commands():
    stop = EndRequest(at=NOW - 50, reason="Deleted", message="deleted", by="a key")
    told = report(phase=Phase.CLOSED, ready=False, reason="CleanupStuck", message="m", about="bye", closed=stop)
    bye = unit("bye", "postStop", "retrying", reason="WaitingToRetry", message="exit 1", attempt=6, started_at=5)
    boxes = [
        box("routegroup/late", report(), NOW - 3_600_000, NOW + 1000),
        box("routegroup/stuck", msgspec.structs.replace(told, units=(bye,))),
    ]
    stuck, late = attention.find_concerns(boxes, NOW)
    assert (stuck.kind, stuck.group, stuck.sandbox, stuck.subject) == ("stuck", "stuck", "", "route group stuck")
    assert "`dayfly retry routegroup/stuck`" in stuck.next
    assert (late.kind, late.group, late.sandbox, late.until) == ("expiring", "late", "", NOW + 1000)
    assert "`dayfly routegroup extend late --for 2h`" in late.next


def test_server_gathers_attention_for_route_groups(db, host):
    db.put("routegroups/pay", grouped(hooks={"preStart": [HOOK]}, ttl={"duration": "1m"}))
    uid = db.get("routegroups/pay/report")["uid"]
    host.say(uid, ready=False, reason="HookFailed", message="announce: exit 1")
    found = db.get("attention")
    assert {(each["kind"], each["group"], each["reason"]) for each in found} == {
        ("failed", "pay", "HookFailed"),
        ("ignored", "pay", "Unsupported"),
    }
    asked = EndRequest(at=NOW, reason="Abandoned", message="it is gone", by="ann")
    host.over[uid] = msgspec.structs.replace(host.reports[uid], phase=Phase.ABANDONED, abandon=asked)
    db.call("POST", "routegroups/pay/abandon", {"reason": "it is gone"})
    assert db.call("GET", "routegroups/pay").status == 404
    (found,) = db.get("attention")
    assert (found["kind"], found["group"], found["sandbox"]) == ("abandoned", "pay", "")
    assert found["message"] == "it is gone (ann)"


def test_route_group_plan_and_outputs_work_like_a_sandbox(db, host):
    db.put("routegroups/pay", grouped(hooks={"preStart": [HOOK]}))
    plan = db.get("routegroups/pay/plan")
    assert [step["id"] for event in plan["events"] for wave in event["waves"] for step in wave] == ["announce"]
    assert db.call("GET", "routegroups/none/plan").status == 404
    uid = db.get("routegroups/pay/report")["uid"]
    host.outputs[uid] = (Value(unit="announce", output="at", value=b"here", sensitive=True),)
    assert db.call("POST", "routegroups/pay/reveal", {"unit": "announce", "output": "at"}).json["value"] == "here"
    assert db.get("audit")["entries"][-1]["object"] == "routegroups/pay/outputs/announce.at"
    assert db.call("POST", "routegroups/none/reveal", {"unit": "announce", "output": "at"}).status == 404


def ended(client, host, name, plural="sandboxes", *, spec=None, abandoned=""):
    """Create a run that has ended; return its UID."""
    if plural == "sandboxes":
        client.put(f"sandboxes/{name}", spec or specs.empty())
    else:
        client.put(f"routegroups/{name}", grouped())
    uid = next(uid for uid, offer in host.offers.items() if offer.name == name)
    if abandoned:
        assert client.call("POST", f"{plural}/{name}/abandon", {"reason": abandoned, "force": True}).status == 200
    else:
        client.call("DELETE", f"{plural}/{name}")
        host.finish(uid)
    assert client.call("GET", f"{plural}/{name}").status == 404
    return uid


def test_ended_runs_of_one_name_are_read_by_uid(client, host):
    first, second = ended(client, host, "one"), ended(client, host, "one")
    for uid, move in ((first, "First"), (second, "Second")):
        host.lines[uid] = (HistoryEntry(seq=1, at=1, unit="mydb/make", attempt=1, move=move, reason="", message=""),)
        host.log_data[uid, "mydb/make", 1] = (f"of the {move}".encode(), True)
    client.put("sandboxes/one", specs.empty())
    (living,) = host.offers
    assert client.get("sandboxes/one/report")["uid"] == living
    for uid, move in ((first, "First"), (second, "Second")):
        assert client.get(f"sandboxes/one/report?uid={uid}")["uid"] == uid
        assert client.get(f"sandboxes/one/history?uid={uid}")[0]["move"] == move
        assert client.get(f"sandboxes/one/log?uid={uid}&unit=mydb%2Fmake")["data"] == f"of the {move}"
    assert client.get(f"sandboxes/one/report?uid={living}")["uid"] == living
    assert client.call("GET", f"sandboxes/two/report?uid={first}").status == 404
    assert client.call("GET", "sandboxes/one/report?uid=nobody").status == 404


def test_member_of_an_abandoned_sandbox_is_watched_until_its_end(client, host):
    uid = ended(client, host, "lost", abandoned="its machine burnt")
    wait_for(lambda: uid in host.acknowledged)

    def say(message, total):
        asked = EndRequest(at=1, reason="Abandoned", message="its machine burnt", by="ann")
        last = msgspec.structs.replace(host.over[uid], phase=Phase.ABANDONED, abandon=asked)
        host.over[uid] = msgspec.structs.replace(last, message=message, done=0, total=total)
        (found,) = client.get("attention")
        return found["message"]

    assert say("a pool member is still being cleaned up: attempt 1 failed", 1).endswith("attempt 1 failed (ann)")
    assert say("a pool member is still being cleaned up: attempt 2 failed", 1).endswith("attempt 2 failed (ann)")
    assert say("its cleanup was abandoned", 0) == "its machine burnt (ann)"
    assert say("not queried again", 1) == "its machine burnt (ann)"


async def test_abandoned_runs_stay_in_attention_after_many_others(client, host):
    gone = ended(client, host, "lost", abandoned="its machine burnt")
    group = ended(client, host, "party", "routegroups", abandoned="so did the party")
    client.put("sandboxes/lost", specs.empty())
    row = {"routing_key": "k", "cluster": "local", "created_at": 1, "ended_at": 1 << 50, "abandoned": False}
    many = [{**row, "uid": str(number), "name": f"b{number}"} for number in range(1000)]
    await client.store.for_org("local").write(lambda rows: rows.insert(ended_sandboxes, many))
    asked, history = [], host.history
    host.history = lambda uid: asked.append(uid) or history(uid)
    for _ in range(2):
        said = {each.get("sandbox") or each.get("group"): each for each in client.get("attention")}
        assert {name: each["kind"] for name, each in said.items()} == {"lost": "abandoned", "party": "abandoned"}
        assert (said["lost"]["uid"], said["party"]["uid"]) == (gone, group), "the UID identifies the run"
        assert sorted(asked) == sorted([gone, group]), "the host is queried once"


async def test_abandoned_runs_stay_in_attention_without_their_host(client, host, monkeypatch):
    """An agent's cluster forgets each ended run once this server has archived it."""
    lost = ended(client, host, "lost", abandoned="its machine burnt")
    party = ended(client, host, "party", "routegroups", abandoned="so did the party")
    for uid in (lost, party, ended(client, host, "well")):
        del host.over[uid]
    monkeypatch.setattr(HostState, "last_report", lambda _self, _uid: None)

    async def away(_self, _uids):
        return {}, "it does not answer"

    with monkeypatch.context() as gone:
        gone.setattr(Link, "query_statuses", away)
        assert client.get("attention") == [], "the host may know more"
    said = {each["subject"]: each for each in client.get("attention")}
    assert {subject: (each["kind"], each["uid"]) for subject, each in said.items()} == {
        "sandbox lost": ("abandoned", lost),
        "route group party": ("abandoned", party),
    }
    assert said["sandbox lost"]["since"]
    assert "no longer has a record of it" in said["sandbox lost"]["message"]
    assert said["sandbox lost"]["next"].startswith("check whether these still exist")


async def test_abandoned_runs_stay_in_attention_after_cluster_removal(client, host, monkeypatch):
    """If a host serves the cluster again, it is queried."""
    lost = ended(client, host, "lost", abandoned="its machine burnt")
    party = ended(client, host, "party", "routegroups", abandoned="so did the party")
    ended(client, host, "well")
    with monkeypatch.context() as gone:
        gone.setattr(Links, "get", lambda *_: None)
        said = {each["subject"]: each for each in client.get("attention")}
        assert {subject: (each["kind"], each["uid"]) for subject, each in said.items()} == {
            "sandbox lost": ("abandoned", lost),
            "route group party": ("abandoned", party),
        }
        assert "no host serves its cluster" in said["sandbox lost"]["message"]
        assert said["sandbox lost"]["since"]
    assert sorted(each["message"].partition(" (")[0] for each in client.get("attention")) == [
        "its machine burnt",
        "so did the party",
    ]


@pytest.mark.parametrize(
    "fault",
    [HostUnavailableError("it does not answer"), HostFailedError("disk"), DocumentsRefusedError("no such question")],
)
def test_attention_answers_while_a_host_is_unavailable(client, host, monkeypatch, fault):
    """Concerns that only that host knows appear later."""
    ended(client, host, "lost", abandoned="its machine burnt")
    client.put("sandboxes/sb1", specs.empty())
    (uid,) = host.offers
    bad = unit("db", "preStart", "failed", message="exit 1", started_at=5)
    host.say(uid, ready=False, reason="ResourceFailed", message="db: exit 1", units=(bad,))

    async def away(_self, _uid):
        raise fault

    with monkeypatch.context() as gone:
        gone.setattr(Link, "history", away)
        gone.setattr(Link, "logs", away)
        assert [each["kind"] for each in client.get("attention")] == ["failed"]
        assert client.get("sandboxes/sb1/why")["because"][0]["subject"] == "db"
    assert [each["kind"] for each in client.get("attention")] == ["failed", "abandoned"]


async def test_end_without_recorded_reason_is_read_from_history(client, host):
    """As an older server stores it."""
    uids = [ended(client, host, "lost", abandoned="its machine burnt"), ended(client, host, "well")]
    table = ended_sandboxes
    await client.store.for_org("local").write(lambda rows: rows.execute(rows.delete(table)))
    row = {"routing_key": "k", "cluster": "local", "created_at": 1, "ended_at": 1 << 50}
    old = [{**row, "uid": uid, "name": name} for uid, name in zip(uids, ("lost", "well"), strict=True)]
    await client.store.for_org("local").write(lambda rows: rows.insert(table, old))
    assert [(each["kind"], each["uid"]) for each in client.get("attention")] == [("abandoned", uids[0])]


async def test_thaw_command_quotes_the_cluster_name(client):
    name = "east; echo $(id)"
    org_store = client.store.for_org("local")
    await org_store.write(lambda rows: rows.insert(clusters, {"name": name, "created_at": 1, "agent": True}))
    why = msgspec.json.encode({"why": "w", "at": 1}).decode()
    row = {"cluster": name, "created_at": 1, "seen_at": 1, "frozen": why}
    await org_store.write(lambda rows: rows.insert(agents, row))
    (quiet,) = client.get("attention")
    assert quiet["message"] == "it is frozen: dayfly cluster thaw 'east; echo $(id)'"


def test_sandbox_refused_by_its_host_needs_attention(client, host):

    async def refuse(offer):
        raise DocumentsRefusedError("no units of the kind webhook")

    host.offer = refuse
    client.put("sandboxes/sb1", specs.empty())
    found = client.get("sandboxes/sb1")
    assert (found["status"]["reason"], found["progress"]["severity"]) == ("Refused", "failed")
    assert "the cluster cannot run this: no units of the kind webhook" in found["status"]["message"]
    (concern,) = client.get("attention")
    assert (concern["kind"], concern["next"]) == ("failed", "fix its file and apply it again")
