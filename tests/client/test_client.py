"""Tests of all methods of both clients with the real API."""

from __future__ import annotations

import datetime as dt

import pytest
from tests.server import specs
from tests.server.fake_host import uid_of

from dayfly.client import (
    ConflictError,
    DayflyError,
    DeniedError,
    Exit,
    FailedError,
    InvalidError,
    NotFoundError,
    Output,
    Outputs,
    RefusedError,
    UnreachableError,
    WaitTimeoutError,
    waiting,
)
from dayfly.client.connection import run
from dayfly.client.types import Report
from dayfly.plan.reasons import Reason
from dayfly.spec.report import UnitReport
from dayfly.spec.run_data import HistoryEntry, Value

MAKE = UnitReport(
    id="mydb/provision", resource="mydb", name="provision", event="preStart", kind="exec", state="failed", attempt=1
)


def test_sandbox_from_apply_to_deletion(dayfly, host):
    assert dayfly.version() == "1.2.3"
    assert dayfly.plugins.apply(specs.plugin("db@1.0.0")).version == "1.0.0"
    made = dayfly.sandboxes.apply({"name": "sb1", **specs.sandbox(labels={"team": "pay"})})
    assert (made.name, made.spec["resources"][0]["name"], made.created_at.tzinfo) == ("sb1", "mydb", dt.UTC)
    uid = uid_of(host)
    host.say(uid, ready=True, reason=Reason.READY, message="fine")
    ready = dayfly.sandboxes.wait_ready("sb1", timeout=30)
    assert (ready.status.ready, ready.status.message) == (True, "fine")
    assert [each.name for each in dayfly.sandboxes.list(label="team=pay")] == ["sb1"]
    assert dayfly.sandboxes.list(label="team=other") == ()
    assert dayfly.sandboxes.why("sb1") is None
    dayfly.sandboxes.delete("sb1")
    with pytest.raises(WaitTimeoutError, match=r"sb1 is still being deleted after 0.1 s: Deleting: db/drop") as late:
        dayfly.sandboxes.wait_gone("sb1", timeout=0.1)
    assert (late.value.code, late.value.reason) == (Exit.TIMED_OUT, "Deleting")
    host.finish(uid)
    assert dayfly.sandboxes.wait_gone("sb1", timeout=30) == "cleaned"
    assert dayfly.sandboxes.wait_gone("never-was", timeout=30) == "cleaned"
    with pytest.raises(NotFoundError):
        dayfly.sandboxes.get("sb1")
    assert dayfly.sandboxes.report("sb1").is_over


def test_outputs_are_decoded_by_name_and_not_printed(dayfly, host):
    dayfly.sandboxes.apply({"name": "sb1", **specs.empty()})
    values = (("mydb/provision", "url", b"db://h"), ("mydb/seed", "rows", b"2"), ("mydb/seed", "raw", b"\xff"))
    host.outputs[uid_of(host)] = tuple(
        Value(unit=unit, output=name, value=value, sensitive=name == "url") for unit, name, value in values
    )
    found = dayfly.sandboxes.outputs("sb1")
    assert found["mydb/provision.url"] == found["provision.url"] == found["url"] == "db://h"
    assert dict(found) == {"mydb/provision.url": "db://h", "mydb/seed.rows": "2", "mydb/seed.raw": "/w=="}
    assert found.get_output("raw").content == b"\xff"
    assert found.variables() == {"MYDB_PROVISION_URL": "db://h", "MYDB_SEED_ROWS": "2"}
    assert "db://h" not in repr(found) + repr(found.get_output("url")) + str(found.all), "tracebacks print values"
    with pytest.raises(KeyError, match=r"no output port; there are mydb/provision.url"):
        found["port"]


def test_withheld_output_raises_instead_of_being_empty():
    place = {"resource": "mydb", "step": "make"}
    found = Outputs(
        (
            Output(**place, output="url", value="db://h", encoding="utf-8", sensitive=False),
            Output(**place, output="password", value="", encoding="utf-8", sensitive=True, withheld=True),
        )
    )
    assert (dict(found), found.variables()) == ({"mydb/make.url": "db://h"}, {"MYDB_MAKE_URL": "db://h"})
    for name in ("mydb/make.password", "make.password", "password"):
        with pytest.raises(KeyError, match=f"output {name} is sensitive and never leaves its cluster"):
            found[name]
    with pytest.raises(KeyError, match="no output word"):
        found["word"]
    assert [each.output for each in found.all] == ["url", "password"]


def test_logs_and_history(dayfly, host):
    dayfly.sandboxes.apply({"name": "sb1", **specs.empty()})
    uid = uid_of(host)
    host.log_data[uid, "mydb/provision", 1] = (b"first\n", True)
    host.log_data[uid, "mydb/provision", 2] = (b"x" * 300_000 + "ende\u00e9\n".encode(), True)
    host.log_data[uid, "other/go", 1] = (b"\xff\n", True)
    host.lines[uid] = (HistoryEntry(seq=0, at=1, unit="", attempt=0, move="Born", reason="", message=""),)
    assert dayfly.sandboxes.log("sb1", "mydb/provision", attempt=1) == "first\n"
    assert dayfly.sandboxes.log("sb1", "mydb/provision").endswith("xende\u00e9\n")
    assert b"".join(piece.data for piece in dayfly.sandboxes.logs("sb1", "mydb")).endswith("ende\u00e9\n".encode())
    assert {piece.unit for piece in dayfly.sandboxes.logs("sb1", follow=True)} == {"mydb/provision", "other/go"}
    assert [each.attempt for each in dayfly.sandboxes.attempts("sb1")] == [1, 2, 1]
    assert [each.move for each in dayfly.sandboxes.history("sb1")] == ["Born"]
    with pytest.raises(RefusedError, match="there are logs of mydb/provision, other/go"):
        dayfly.sandboxes.log("sb1", "mydb/nothing")


def test_log_that_grows_while_read_returns_a_bounded_part(dayfly, host, monkeypatch):
    dayfly.sandboxes.apply({"name": "sb1", **specs.empty()})
    key = uid_of(host), "mydb/provision", 1
    host.log_data[key] = (b"x" * 300_000, False)
    read, asked = host.read_log, []

    def growing(*where, offset, limit):
        asked.append(offset)
        assert len(asked) < 9, "the read never ends"
        host.log_data[key] = (host.log_data[key][0] + b"x" * 300_000, False)
        return read(*where, offset=offset, limit=limit)

    monkeypatch.setattr(host, "read_log", growing)
    assert 600_000 <= len(dayfly.sandboxes.log("sb1", "mydb/provision")) < 900_000


def test_a_log_is_followed_to_its_end(dayfly, host):
    dayfly.sandboxes.apply({"name": "sb1", **specs.empty()})
    uid = uid_of(host)
    host.log_data[uid, "mydb/provision", 1] = (b"one\n", False)
    heard = b""
    for piece in dayfly.sandboxes.logs("sb1", follow=True):
        heard += piece.data
        host.log_data[uid, "mydb/provision", 1] = (b"one\ntwo\n", heard.endswith(b"two\n"))
    assert heard == b"one\ntwo\n"


def test_lines_of_a_log_come_with_their_times_and_since_a_time(dayfly, host):
    dayfly.sandboxes.apply({"name": "sb1", **specs.empty()})
    key = (uid_of(host), "mydb/provision", 1)
    began = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    at = int(began.timestamp() * 1000)
    host.log_data[key] = (b"one\ntwo\n", True)
    assert [each.times for each in dayfly.sandboxes.logs("sb1", timestamps=True)] == [()], "a log of an older host"
    host.times[key] = ((0, at), (4, at + 61_000))
    [piece] = dayfly.sandboxes.logs("sb1", timestamps=True)
    assert [(each.offset, each.time) for each in piece.times] == [(0, began), (4, began + dt.timedelta(seconds=61))]
    assert [each.times for each in dayfly.sandboxes.logs("sb1")] == [()]
    [piece] = dayfly.sandboxes.logs("sb1", since=began + dt.timedelta(seconds=1), follow=True)
    assert (piece.offset, piece.data) == (4, b"two\n")
    assert list(dayfly.sandboxes.logs("sb1", since=dt.timedelta(minutes=10))) == []
    for all_of_it in (dt.timedelta.max, dt.timedelta(days=40_000)):
        assert [each.data for each in dayfly.sandboxes.logs("sb1", since=all_of_it)] == [b"one\ntwo\n"]
    with pytest.raises(InvalidError, match="the year of `since` is not between 1 and 9999"):
        list(dayfly.sandboxes.logs("sb1", since=dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))))
    with pytest.raises(InvalidError, match="the year of `until` is not between 1 and 9999"):
        dayfly.sandboxes.extend("sb1", until=dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-1))))
    with pytest.raises(InvalidError, match="`since` has no time zone"):
        list(dayfly.sandboxes.logs("sb1", since=dt.datetime(2026, 1, 1)))  # noqa: DTZ001 # that is what is wrong with it


def test_a_failure_comes_with_the_end_of_the_log(dayfly, host):
    dayfly.plugins.apply(specs.plugin())
    dayfly.sandboxes.apply({"name": "sb1", **specs.sandbox()})
    uid = uid_of(host)
    host.log_data[uid, "mydb/provision", 1] = (b"connecting\nno such host\n", True)
    host.say(uid, ready=False, reason=Reason.RESOURCE_FAILED, message="mydb/provision failed", units=(MAKE,))
    with pytest.raises(FailedError) as failed:
        dayfly.sandboxes.wait_ready("sb1", timeout=30)
    fault = failed.value
    assert (fault.reason, fault.unit, fault.code) == ("ResourceFailed", "mydb/provision", Exit.FAILED)
    assert fault.log == "connecting\nno such host"
    assert str(fault) == (
        "sb1: ResourceFailed: mydb/provision failed; read: dayfly logs sb1 mydb provision\n"
        "mydb/provision | connecting\nmydb/provision | no such host"
    )
    blocker = dayfly.sandboxes.why("sb1")
    assert [root.subject for root in blocker.roots] == ["mydb/provision"]
    dayfly.sandboxes.delete("sb1")
    host.say(uid, ready=False, reason=Reason.DELETING, message="it goes", units=())
    with pytest.raises(FailedError, match="sb1 is being deleted"):
        dayfly.sandboxes.wait_ready("sb1", timeout=30)


def test_invalid_spec_reports_its_field(dayfly, tmp_path, server):
    with pytest.raises(InvalidError) as wrong:
        dayfly.sandboxes.apply({"name": "sb1", "spec": {"cluster": "local", "nonsense": 1, "ttl": {"duration": "x"}}})
    (first, *_) = wrong.value.problems
    assert (wrong.value.code, first.file, first.path[:5]) == (Exit.USAGE, "", "spec.")
    file = tmp_path / "sandbox.yaml"
    file.write_text(
        "name: sb1\nspec:\n  cluster: local\n  resources:\n  - name: a\n    plugin: nowhere\n    params: {size: '@{size}'}\n"
    )
    with pytest.raises(InvalidError, match="unexpanded variable: size") as wrong:
        dayfly.sandboxes.apply(file)
    with pytest.raises(InvalidError, match="nowhere") as wrong:
        dayfly.sandboxes.apply(file, variables={"size": 3})
    (problem,) = wrong.value.problems
    assert (problem.file, problem.line, problem.path) == (str(file), 6, "spec.resources[0].plugin")
    with pytest.raises(InvalidError, match="is a sandbox, not a plugin"):
        dayfly.plugins.apply(str(file), variables={"size": 3})
    with pytest.raises(InvalidError, match="name: the name is missing"):
        dayfly.sandboxes.apply(specs.empty())
    with pytest.raises(DayflyError, match=r"nothing.yaml: no such file"):
        dayfly.sandboxes.apply(tmp_path / "nothing.yaml")
    assert server.get("sandboxes") == []


def test_a_folder_that_cannot_be_read_is_said_as_a_file_is(dayfly, tmp_path, monkeypatch):
    def refuse(_self):
        raise PermissionError(13, "Permission denied")

    for method in ("iterdir", "is_dir"):
        with monkeypatch.context() as closed:
            closed.setattr(type(tmp_path), method, refuse)
            with pytest.raises(DayflyError, match="permission denied; give -f") as wrong:
                dayfly.apply(tmp_path)
        assert wrong.value.code is Exit.USAGE
    for name, why in (("a" * 300, "file name too long"), ("a\0b", "cannot be read")):
        with pytest.raises(DayflyError, match=why):
            dayfly.apply(name)


def test_files_without_a_document_are_named(dayfly, tmp_path):
    empty = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in empty:
        file.write_text("# nothing yet\n")
    with pytest.raises(DayflyError) as wrong:
        dayfly.apply(*empty)
    assert wrong.value.message == f"{empty[0]}, {empty[1]}: the file contains no document"


def test_files_are_applied_in_the_order_in_which_they_can_be_had(dayfly, tmp_path):
    (tmp_path / "b.yaml").write_text(
        "name: db@1.0.0\nspec: {create: [{name: make, script: '#!/bin/sh'}]}\n---\n"
        "kind: Deployment\nname: shop\ncommand: [sleep, '1']\n"
    )
    (tmp_path / "a.yaml").write_text(
        "name: sb1\nspec: {cluster: local, resources: [{name: d, plugin: 'db@@{v}'}]}\n---\n"
        "name: all\nspec: {cluster: local, match: {label: {key: a, value: b}}}\n---\n"
        "name: some\nspec: {cluster: local, plugin: db@1.0.0, ready: 0}\n"
    )
    found = dayfly.apply(tmp_path, variables={"v": "1.0.0"})
    names = [[each.name for each in kind] for kind in found]
    assert names == [["db@1.0.0"], ["shop"], ["sb1"], ["all"], ["some"]]
    assert dayfly.baselines.get("shop").command == ("sleep", "1")
    assert [each.name for each in dayfly.baselines.list()] == ["shop"]
    assert dayfly.route_groups.get("all").status.matched_sandboxes == ()
    (tmp_path / "a.yaml").write_text("name: sb2\nspec: {cluster: local, resources: [{name: d, plugin: gone}]}\n")
    with pytest.raises(InvalidError) as wrong:
        dayfly.apply(tmp_path / "a.yaml")
    assert wrong.value.problems[0].line == 2
    dayfly.baselines.delete("shop")


def test_plugins_and_their_versions(dayfly, server):
    for version in ("1.0.0", "1.1.0"):
        dayfly.plugins.apply(specs.plugin(f"db@{version}"))
    assert dayfly.plugins.apply(specs.plugin("db@1.0.0")).name == "db@1.0.0", "an unchanged version is accepted"
    with pytest.raises(ConflictError, match=r"1.0.0 already exists") as other:
        dayfly.plugins.apply(specs.plugin("db@1.0.0", description="another"))
    assert "another version than 1.0.0" in other.value.advice
    assert dayfly.plugins.apply(specs.plugin("db@1.0.0") | {"readme": "# DB"}).readme == "# DB"
    assert dayfly.plugins.apply(specs.plugin("db@1.0.0")).readme == "# DB", (
        "a plugin without a README keeps the published one"
    )
    assert dayfly.plugins.get("db").version == "1.1.0"
    assert [each.version for each in dayfly.plugins.versions("db")] == ["1.1.0", "1.0.0"]
    assert len(dayfly.plugins.list(all_versions=True)) == 2
    dayfly.sandboxes.apply({"name": "sb1", **specs.sandbox()})
    with pytest.raises(RefusedError, match="in use by sandbox"):
        dayfly.plugins.delete("db")
    dayfly.plugins.delete("db@1.0.0")
    assert [each.name for each in dayfly.plugins.list(all_versions=True)] == ["db@1.1.0"]


def test_actions_on_a_live_sandbox_succeed_or_conflict(dayfly, host):
    dayfly.sandboxes.apply({"name": "sb1", **specs.empty(ttl={"duration": "1h"})}, lease=60)
    dayfly.sandboxes.lease("sb1", 3600)
    with pytest.raises(ConflictError, match="nothing in it is waiting"):
        dayfly.sandboxes.retry("sb1")
    until = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(days=2)
    longer = dayfly.sandboxes.extend("sb1", until=until)
    assert longer.status.scheduled_delete_time >= until
    with pytest.raises(InvalidError, match="no time zone; write"):
        dayfly.sandboxes.extend("sb1", until=dt.datetime(2030, 1, 1))  # noqa: DTZ001 # what is refused
    with pytest.raises(ConflictError, match="is not being deleted"):
        dayfly.sandboxes.abandon("sb1", "it is over")
    dayfly.sandboxes.abandon("sb1", "it is over", force=True)
    assert dayfly.sandboxes.wait_gone("sb1", timeout=30) == "abandoned"


def test_viewer_or_unknown_key_is_denied(dayfly, server, connect):
    made = server.call("POST", "keys", {"name": "ci", "role": "viewer"}).json
    viewer = connect(dayfly.url, made["key"])
    assert viewer.sandboxes.list() == ()
    with pytest.raises(DeniedError, match="needs the role member") as refused:
        viewer.sandboxes.apply({"name": "sb1", **specs.empty()})
    assert (refused.value.status, refused.value.code, refused.value.reason) == (403, Exit.DENIED, "Denied")
    assert len(refused.value.request_id) == 16
    with pytest.raises(DeniedError, match="no valid key"):
        connect(dayfly.url, "wrong").sandboxes.list()


def test_server_address_is_taken_from_home_login_or_argument(dayfly, server, connect, tmp_path, monkeypatch):
    for name in ("DAYFLY_URL", "DAYFLY_API_KEY", "DAYFLY_ORG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAYFLY_HOME", str(tmp_path / "home"))
    with pytest.raises(UnreachableError, match=r"no server runs in .*home; start one with: dayfly up"):
        connect()
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "url").write_text(dayfly.url)
    (tmp_path / "home" / "key").write_text(server.key)
    (tmp_path / "home" / "key").chmod(0o600)
    assert connect().sandboxes.list() == ()
    assert connect(home=tmp_path / "home").url == dayfly.url
    monkeypatch.setenv("DAYFLY_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("DAYFLY_URL", dayfly.url)
    monkeypatch.setenv("DAYFLY_API_KEY", server.key)
    assert connect().sandboxes.list() == ()
    assert connect(home=tmp_path / "home").sandboxes.list() == ()
    with pytest.raises(DayflyError, match='no server "work" is known here; see: dayfly login'):
        connect(server="work")
    with pytest.raises(ValueError, match="give either"):
        connect("http://x", server="work")
    with pytest.raises(DayflyError, match="is not the address of a server; write http://host:port"):
        connect("ftp://x")


def test_response_of_another_program_is_an_error(connect):
    from tests.cli.fake_server import Fake, serving

    fake = Fake()
    fake.say("GET", "sandboxes", b"<html>")
    with serving(fake) as url:
        with pytest.raises(UnreachableError, match="does not understand"):
            connect(url, "k").sandboxes.list()
        fake.say("GET", "sandboxes", {"unexpected": 1}, status=500)
        with pytest.raises(RefusedError, match="answered 500 without giving a reason"):
            connect(url, "k").sandboxes.list()


class Retold:
    """A run with scripted reports; its clock advances a second with each."""

    subject, flags = "sb1", ""

    def __init__(self, *reports):
        self.reports, self.seconds = list(reports), 0
        self.io = self

    async def report(self, after, wait, patience):
        self.seconds += 1
        uid, ready = self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]
        return Report(
            uid=uid, name="sb1", cluster="local", routing_key="k", version=3, endpoints=(), phase="open", ready=ready
        )

    async def pause(self, seconds):
        self.seconds += seconds

    def now(self):
        return self.seconds


def test_wait_detects_a_new_object_with_the_same_name():
    """Report versions are counted per object, so a new object with the same name can reach the same version."""
    assert run(waiting.until_gone(Retold(("u-1", False), ("u-2", True)), 30, None)) == "cleaned"
    with pytest.raises(FailedError, match="that exists now is another one"):
        run(waiting.until_ready(Retold(("u-1", False), ("u-2", True)), 30, None))


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_name_that_a_proxy_would_resolve_is_never_sent(dayfly, name):
    """`..` as a name would be another path."""
    for ask in (dayfly.sandboxes.get, dayfly.sandboxes.delete, dayfly.plugins.get):
        with pytest.raises(NotFoundError, match="nothing called"):
            ask(name)


@pytest.mark.parametrize("name", ["a/b", "a?watch=1", "a#b", "a%2fb", "../a", "a b"])
def test_name_is_one_encoded_part_of_an_address(dayfly, name):
    with pytest.raises((NotFoundError, RefusedError)) as caught:
        dayfly.sandboxes.get(name)
    assert caught.value.status in (400, 404)
