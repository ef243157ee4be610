"""Dayfly's additions to the public API for a sandbox, before and after its end."""

from __future__ import annotations

import re
import threading
import time

import msgspec
import pytest
from tests.server import specs
from tests.server.client import wait_for
from tests.server.fake_host import uid_of

from dayfly.link.host_state import HostState
from dayfly.plan.reasons import Reason
from dayfly.server.http.request_data import rfc3339
from dayfly.spec.identity import resource_id
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run_data import HistoryEntry, Value

UNIT = UnitReport(
    id="mydb/provision",
    resource="mydb",
    name="provision",
    event="preStart",
    kind="exec",
    state="failed",
    attempt=1,
    reason="Exited",
    message="ended with code 3",
    started_at=1,
)


@pytest.fixture
def sb1(client, host):
    client.put("resource-plugins/db", specs.plugin())
    client.put("sandboxes/sb1", specs.sandbox())
    return uid_of(host)


def test_report_comes_from_host_with_names(client, host, sb1):
    host.say(sb1, ready=False, reason=Reason.RESOURCE_FAILED, message="it failed", units=(UNIT,))
    told = client.get("sandboxes/sb1/report")
    assert (told["name"], told["cluster"], told["version"]) == ("sb1", "local", 2)
    assert told["routingKey"] == client.get("sandboxes/sb1")["routingKey"]
    fields = {field.encode_name for field in msgspec.structs.fields(RunReport)}
    report = msgspec.convert({key: value for key, value in told.items() if key in fields}, RunReport)
    assert report == host.report(sb1)


def test_list_with_reports_has_the_report_of_each_run(client, host, sb1):
    host.say(sb1, ready=False, reason=Reason.RESOURCE_FAILED, message="it failed", units=(UNIT,))
    client.put("sandboxes/sb2", specs.sandbox())
    client.put("routegroups/g", {"spec": {"cluster": "local", "match": {"label": {"key": "team", "value": "pay*"}}}})
    for kind in ("sandboxes", "routegroups"):
        listed = client.get(f"{kind}?reports=true")
        assert [each.pop("report") for each in listed] == [client.get(f"{kind}/{one['name']}/report") for one in listed]
        assert listed == client.get(kind)


def test_report_can_be_awaited(client, host, sb1):
    began = time.monotonic()
    threading.Timer(0.3, lambda: host.say(sb1, ready=True, reason=Reason.READY, message="now")).start()
    told = client.get("sandboxes/sb1/report?after=1&wait=20")
    assert 0.2 < time.monotonic() - began < 15, "the request waited until the end"
    assert (told["message"], told["version"]) == ("now", 2)
    began = time.monotonic()
    assert client.get("sandboxes/sb1/report?after=2&wait=1")["version"] == 2
    assert 0.9 < time.monotonic() - began < 15
    assert client.get("sandboxes/sb1/report?after=0&wait=20")["version"] == 2


def test_wait_ends_with_the_sandbox(client, host, sb1):
    client.delete("sandboxes/sb1")
    threading.Timer(0.3, lambda: host.finish(sb1)).start()
    told = client.get("sandboxes/sb1/report?after=1&wait=20")
    assert (told["phase"], told["name"], told["endpoints"]) == ("cleaned", "sb1", [])
    began = time.monotonic()
    assert client.get("sandboxes/sb1/report?after=99&wait=20")["phase"] == "cleaned"
    assert time.monotonic() - began < 15, "no newer report will come"


@pytest.mark.parametrize("query", ["after=x", "wait=-1", "wait=1.5", "after=1234567890123456789"])
def test_numbers_in_a_query_are_whole(client, host, sb1, query):
    answer = client.call("GET", f"sandboxes/sb1/report?{query}")
    assert answer.status == 400
    assert "whole number" in answer.error


def test_why_reaches_the_root_cause(client, host, sb1):
    assert client.get("sandboxes/sb1/why") == {}
    host.say(sb1, ready=False, reason=Reason.RESOURCE_FAILED, message="mydb/provision: it failed", units=(UNIT,))
    told = client.get("sandboxes/sb1/why")
    assert (told["subject"], told["reason"]) == ("sandbox sb1", "ResourceFailed")
    (cause,) = told["because"]
    assert (cause["subject"], cause["message"]) == ("mydb/provision", "ended with code 3")
    assert "dayfly logs" in cause["next"]


def test_outputs_are_reported_byte_for_byte(client, host, sb1):
    host.outputs[sb1] = (
        Value(unit="mydb/provision", output="host", value=b"h\n"),
        Value(unit="mydb/provision", output="key", value=b"\xff\x00", sensitive=True),
        Value(unit="warm-up", output="at", value="ü".encode()),
    )
    assert client.get("sandboxes/sb1/outputs") == [
        {
            "resource": "mydb",
            "step": "provision",
            "output": "host",
            "value": "h\n",
            "encoding": "utf-8",
            "sensitive": False,
        },
        {
            "resource": "mydb",
            "step": "provision",
            "output": "key",
            "value": "/wA=",
            "encoding": "base64",
            "sensitive": True,
        },
        {"resource": "", "step": "warm-up", "output": "at", "value": "ü", "encoding": "utf-8", "sensitive": False},
    ]


def test_log_is_read_in_parts(client, host, sb1):
    key = (sb1, "mydb/provision", 1)
    host.log_data[key] = (b"one\n\xc3", False)
    log = "sandboxes/sb1/log?unit=mydb/provision"
    first = client.get(log)
    assert first == {
        "unit": "mydb/provision",
        "attempt": 1,
        "offset": 0,
        "next": 4,
        "sealed": False,
        "data": "one\n",
        "encoding": "utf-8",
    }
    threading.Timer(0.3, lambda: host.log_data.update({key: (b"one\n\xc3\xbc\n", False)})).start()
    second = client.get(f"{log}&offset=4&wait=20")
    assert (second["data"], second["next"], second["sealed"]) == ("ü\n", 7, False)
    threading.Timer(0.3, lambda: host.log_data.update({key: (b"one\n\xc3\xbc\n", True)})).start()
    third = client.get(f"{log}&offset=7&wait=20")
    assert (third["data"], third["next"], third["sealed"]) == ("", 7, True)
    assert client.get(f"{log}&offset=99")["data"] == ""


def test_binary_log_is_reported_as_base64(client, host, sb1):
    host.log_data[sb1, "mydb/provision", 1] = (b"\xff\xfe", True)
    told = client.get("sandboxes/sb1/log?unit=mydb/provision&attempt=1")
    assert (told["data"], told["encoding"], told["next"], told["sealed"]) == ("//4=", "base64", 2, True)


@pytest.mark.parametrize("tail", ["a", "ü", "€", "😀"])
def test_long_log_is_cut_between_characters(client, host, sb1, tail):
    text = "x" * (256 * 1024 - 1) + tail * 5
    host.log_data[sb1, "mydb/provision", 2] = (text.encode(), True)
    host.log_data[sb1, "mydb/provision", 1] = (b"old", True)
    read, offset, sealed = "", 0, False
    while not sealed:
        piece = client.get(f"sandboxes/sb1/log?unit=mydb/provision&offset={offset}")
        assert (piece["encoding"], piece["attempt"]) == ("utf-8", 2)
        read, offset, sealed = read + piece["data"], piece["next"], piece["sealed"]
    assert read == text


def test_missing_log_lists_available_logs(client, host, sb1):
    assert "there are no logs yet" in client.call("GET", "sandboxes/sb1/log?unit=x").error
    host.log_data[sb1, "mydb/provision", 1] = (b"", True)
    for query in ("", "unit=x", "unit=mydb/provision&attempt=2", "unit=x&attempt=1"):
        answer = client.call("GET", f"sandboxes/sb1/log?{query}")
        assert answer.status == 400
        there = "its attempts 1" if "&attempt=2" in query else "mydb/provision"
        assert f"there are logs of {there}" in answer.error
    assert client.get("sandboxes/sb1/attempts") == [{"unit": "mydb/provision", "attempt": 1, "size": 0, "sealed": True}]


def test_logs_of_the_public_api(client, host, sb1):
    host.log_data[sb1, "mydb/provision", 1] = (b"old", True)
    host.log_data[sb1, "mydb/provision", 2] = (b"one\ntwo\xff", True)
    host.log_data[sb1, "mydb/drop", 1] = (b"gone", True)
    host.log_data[sb1, "fork:default/shop", 1] = (b"serving", False)
    logs = "sandboxes/sb1/logs?timestamps=false"
    lines = {"container": "main", "logs": [{"message": "one"}, {"message": "two\ufffd"}]}
    assert client.get(f"{logs}&resource=mydb&step=provision") == [lines]
    assert client.get(f"{logs}&resource=mydb&container=main") == [
        {"container": "main", "logs": [{"message": "gone"}]},
        lines,
    ]
    assert client.get(f"{logs}&workload=shop") == [{"container": "main", "logs": [{"message": "serving"}]}]
    for query in ("resource=mydb&container=side", "resource=mydb&sinceTime=noon", "resource=mydb&timestamps=7"):
        assert client.call("GET", f"sandboxes/sb1/logs?{query}").status == 400


@pytest.mark.parametrize(
    "query",
    ["", "resource=x", "resource=mydb&step=x", "workload=x", "workload=mydb", "resource=mydb&workload=shop", "step=x"],
)
def test_logs_suggest_parameters_that_logs_take(client, host, sb1, query):
    for unit in ("mydb/provision", "fork:default/shop", "hook"):
        host.log_data[sb1, unit, 1] = (b"line", True)
    answer = client.call("GET", f"sandboxes/sb1/logs?{query}")
    assert answer.status == 400
    named = answer.error.partition("there are logs of ")[2].split(", ")
    assert named == ["resource=mydb&step=provision", "step=hook", "workload=shop"]
    for suggested in named:
        assert client.get(f"sandboxes/sb1/logs?{suggested}")[0]["logs"][0]["message"] == "line"


AT = 1_767_225_600_000


def test_line_times_are_reported_on_request(client, host, sb1):
    key = (sb1, "mydb/provision", 1)
    host.log_data[key] = (b"old\none\ntwo\n", True)
    host.times[key] = ((4, AT + 123), (8, AT + 5_000))
    log = "sandboxes/sb1/log?unit=mydb/provision"
    assert "times" not in client.get(log)
    assert client.get(f"{log}&timestamps=true")["times"] == [
        {"offset": 4, "time": "2026-01-01T00:00:00.123Z"},
        {"offset": 8, "time": "2026-01-01T00:00:05.000Z"},
    ]
    piece = client.get(f"{log}&timestamps=true&offset=5")
    assert [each["offset"] for each in piece["times"]] == [4, 8], "the time of its first line is known, too"
    since = client.get(f"{log}&sinceTime=2026-01-01T01:00:01%2B01:00")
    assert (since["offset"], since["data"], since["next"], since["sealed"]) == (8, "two\n", 12, True)
    assert client.get(f"{log}&sinceTime=2026-01-01T00:00:01Z&offset=9")["data"] == "wo\n"
    assert client.get(f"{log}&sinceTime=2027-01-01T00:00:00Z")["sealed"]
    for word in ("noon", "2026-01-01T00:00:00", "1", "9999999-01-01T00:00:00Z"):
        assert "sinceTime" in client.call("GET", f"{log}&sinceTime={word}").error
    of = "sandboxes/sb1/logs?resource=mydb"
    assert client.get(of) == client.get(f"{of}&timestamps=true")
    assert client.get(of)[0]["logs"] == [
        {"message": "old", "time": ""},
        {"message": "one", "time": "2026-01-01T00:00:00.123Z"},
        {"message": "two", "time": "2026-01-01T00:00:05.000Z"},
    ]
    since = client.get(f"{of}&sinceTime=2026-01-01T00:00:01Z&timestamps=false")
    assert since[0]["logs"] == [{"message": "two"}]


def test_invalid_time_is_reported_as_the_nearest_valid_one():
    assert [rfc3339(at) for at in (-(10**15), -1, 0, 10**17)] == 3 * ["1970-01-01T00:00:00.000Z"] + [
        "9999-12-31T23:59:59.000Z"
    ]


def test_log_without_times_is_reported_whole(client, host, sb1):
    host.log_data[sb1, "mydb/provision", 1] = (b"one\n", True)
    told = client.get("sandboxes/sb1/log?unit=mydb/provision&timestamps=true&sinceTime=2027-01-01T00:00:00Z")
    assert (told["data"], told["times"]) == ("one\n", [])


def test_invalid_times_from_a_host_are_dropped(client, host, sb1):
    """A step can write to the file with the times."""
    key = (sb1, "mydb/provision", 1)
    host.log_data[key] = (b"one\ntwo\n", True)
    host.times[key] = ((0, AT), (1, 1 << 62), (2, -5), (3, AT - 1), (4, AT))
    told = client.get("sandboxes/sb1/log?unit=mydb/provision&timestamps=true")
    assert [each["offset"] for each in told["times"]] == [0, 4]


def test_waiting_reader_gets_new_lines_from_their_start(client, host, sb1):
    key = (sb1, "mydb/provision", 1)
    host.log_data[key], host.times[key] = (b"old", False), ((0, AT),)

    def more() -> None:
        host.times[key] = ((0, AT), (3, AT + 5_000), (9, AT + 9_000))
        host.log_data[key] = (b"old line\nnew line\n", False)

    threading.Timer(0.3, more).start()
    told = client.get("sandboxes/sb1/log?unit=mydb/provision&wait=20&sinceTime=2026-01-01T00:00:01Z")
    assert (told["offset"], told["data"]) == (9, "new line\n")


def test_ended_sandbox_keeps_history_and_logs_but_no_outputs(client, host, sb1):
    entry = HistoryEntry(seq=1, at=5, unit="mydb/provision", attempt=1, move="claim", reason="", message="")
    host.lines[sb1] = (entry,)
    host.log_data[sb1, "mydb/provision", 1] = (b"made\n", True)
    host.finish(sb1)
    assert client.call("GET", "sandboxes/sb1").status == 404
    assert client.get("sandboxes/sb1/report")["phase"] == "cleaned"
    told = client.get("sandboxes/sb1/why")
    assert (told["subject"], told["reason"]) == ("sandbox sb1", "Cleaned")
    assert told["message"].startswith("it has ended")
    assert [line["move"] for line in client.get("sandboxes/sb1/history")] == ["claim"]
    assert client.get("sandboxes/sb1/log?unit=mydb/provision&wait=20")["data"] == "made\n"
    assert len(client.get("sandboxes/sb1/attempts")) == 1
    assert client.call("GET", "sandboxes/sb1/outputs").status == 404
    client.put("sandboxes/sb1", specs.sandbox())
    assert client.get("sandboxes/sb1/attempts") == [], "another sandbox has the name"


def test_why_of_abandoned_sandbox_names_author_and_leftovers(client, host, sb1):
    moves = (("Claim", "mydb/provision", ""), ("Close", "", ""), ("Claim", "mydb/deprovision", ""))
    host.lines[sb1] = tuple(
        HistoryEntry(seq=seq, at=5, unit=unit, attempt=1, move=move, reason=reason, message="")
        for seq, (move, unit, reason) in enumerate(moves)
    )
    body = {"reason": "its machine burnt", "force": True}
    assert client.call("POST", "sandboxes/sb1/abandon", body, headers={"User-Agent": "ann:1"}).status == 200
    told = client.get("sandboxes/sb1/why")
    assert (told["reason"], told["since"] > 0) == ("Abandoned", True)
    words = r"its cleanup was abandoned by ann:1, key [0-9a-f]{8}: its machine burnt"
    assert re.fullmatch(words, told["message"]), told["message"]
    (left,) = told["because"]
    assert (left["subject"], left["reason"]) == ("mydb", "LeftoversPossible")
    assert left["message"] == f"created by mydb/provision (DAYFLY_RESOURCE_ID={resource_id(sb1, 'mydb')})"


@pytest.mark.parametrize("abandoned", [True, False])
def test_why_of_sandbox_its_host_forgot_is_not_empty(client, host, sb1, abandoned, monkeypatch):
    if abandoned:
        client.call("POST", "sandboxes/sb1/abandon", {"reason": "burnt", "force": True})
    else:
        host.finish(sb1)
    wait_for(lambda: client.call("GET", "sandboxes/sb1").status == 404)
    del host.over[sb1]
    monkeypatch.setattr(HostState, "last_report", lambda _self, _uid: None)
    told = client.get("sandboxes/sb1/why")
    assert told["reason"] == ("Abandoned" if abandoned else "Cleaned")
    assert "has dropped" in told["message"]


def test_explain_endpoint_is_declared_but_unsupported(client, host, sb1):
    answer = client.call("GET", "sandboxes/sb1/status/explain?mode=explain")
    assert answer.status == 501
    assert "/why" in answer.error
