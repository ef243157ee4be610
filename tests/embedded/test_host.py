"""The host behind its link: orders, reports, and its stop."""

import asyncio
import contextlib
import fcntl
import sqlite3
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.embedded import engine, host
from dayfly.embedded.attempts import Attempts
from dayfly.embedded.executors import ProcessStepExecutor
from dayfly.embedded.forks import fork_order, ignored_options
from dayfly.embedded.routes.route_executors import EnvoyRouteExecutor
from dayfly.execute.process.render import OrderContext
from dayfly.link.wire import Abandon, Reply, RunStatuses, StatusQuery, Stop, ValuesQuery, Verdict
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Baseline, Route, Unit
from dayfly.spec.run import EndRequest
from dayfly.spec.workload import Workload

RAN = doc.resource("r", [doc.step("a", 'echo ran >> "$JOURNAL"')])
ASKED = EndRequest(at=1, reason="Deleted", message="asked")


async def test_left_over_proxy_is_ended_by_a_server_without_routing(machine):
    """A leaked proxy would keep its ports and route requests to forks that are gone."""
    await machine.down()
    folder = machine.home / "routing"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        left = subprocess.Popen(["sleep", "60"], pass_fds=(lock.fileno(),))  # noqa: ASYNC220 - at once
    try:
        await machine.up()
        await until(lambda: left.poll() is not None, seconds=5)
    finally:
        left.kill()
        left.wait()


async def test_closed_host_leaves_no_task_or_descriptor(machine, monkeypatch):
    """Check that no task is running, and that no file, watch or server is open."""

    async def serve(_app, sockets, *, stop):
        await stop.wait()
        sockets[0].close()

    def opened():
        return sorted(str(each.readlink()) for each in list(Path("/proc/self/fd").iterdir()) if each.is_symlink())

    async def lived():
        await machine.up(serve=serve)
        await machine.host.offer(doc.offer(kept, uid=str(len(before))))
        await machine.reason("ResourceFailed", str(len(before)))  # The host stores no state in memory.
        await machine.finish(str(len(before)))
        await machine.down()
        return opened(), asyncio.all_tasks() - {asyncio.current_task()}

    await machine.down()
    step = doc.step("a")
    kept = doc.resource("r", [msgspec.structs.replace(step, exec=msgspec.structs.replace(step.exec, state=True))])
    before = opened()
    assert await lived() == (before, set())


async def test_close_removes_the_work_folder_unless_a_run_lives(machine):
    work = machine.work.exists
    assert work()
    await machine.down()
    assert not work()
    await machine.up()
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    await machine.down()
    assert work()
    await machine.up()
    await machine.finish()


async def test_report_versions_rise_over_a_restart(machine):
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    before = machine.host.version("u")
    await machine.down()
    await machine.up(start=False)
    assert machine.host.version("u") > before
    machine.host.start()
    await machine.finish()


async def test_each_session_has_a_higher_number(machine, monkeypatch):
    """The versions rise even if the clock was set back."""
    first = machine.host.begin_session()
    monkeypatch.setattr(host, "now_ms", lambda: 5)
    assert [machine.host.begin_session() for _ in range(2)] == [first + 1, first + 2]


async def test_unknown_run_has_no_report_values_or_logs(machine):
    assert machine.host.values("u") == ()
    assert (machine.host.report("u"), machine.host.run_status("u"), machine.host.has_ended("u")) == (None, None, False)
    assert machine.host.history("u") == machine.host.logs("u") == ()
    assert machine.host.read_log("u", "r/a", 1, offset=0, limit=9) is None


async def test_stop_of_an_unknown_run_does_not_prevent_its_start(machine):
    assert await machine.host.stop("u", ASKED) is Verdict.UNKNOWN
    assert await machine.host.offer(doc.offer(RAN)) is Verdict.TAKEN
    await machine.ready()
    await machine.finish()


async def test_first_stop_request_is_kept(machine):
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    for by in ("ann", "bob"):
        await machine.host.stop("u", msgspec.structs.replace(ASKED, by=by))
    await machine.gone()
    assert machine.report().closed.by == "ann"


class Hearer:
    """Notifications for the link."""

    def __init__(self, end) -> None:
        self.changed: list[str] = []
        self.ended: list[str] = []
        end.report_change, end.report_end = self.changed.append, self.ended.append


async def test_each_change_raises_the_version_and_notifies_the_link(machine):
    heard = Hearer(machine.host.end)
    born = machine.host.version("u")
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    made = machine.host.version("u")
    assert made > born
    assert set(heard.changed) == {"u"}
    assert heard.ended == []
    await machine.delete()
    await until(lambda: heard.ended, "the report of its end")
    assert heard.ended == ["u"]
    assert machine.host.version("u") > made + len(heard.changed) - heard.changed.count("u")


async def test_run_that_ended_long_ago_is_forgotten_with_its_logs(machine, monkeypatch):
    told = []
    monkeypatch.setattr(machine.host.end, "reject_older_births", lambda: told.append("reject_older_births"))
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    await machine.finish()
    await machine.host.acknowledge(("u",))
    await machine.host.forget_old()
    assert machine.host.has_ended("u"), "not yet"
    later = host.now_ms() + host.KEEP_ENDED_MS + 60_000
    monkeypatch.setattr(host, "now_ms", lambda: later)
    await machine.host.forget_old()
    assert told == ["reject_older_births"] * 2, "a delayed offer may be of a run that is deleted now"
    assert (machine.host.report("u"), machine.host.logs("u")) == (None, ())


@pytest.mark.parametrize("routes", [True, False])
async def test_report_names_routes_that_lead_nowhere(machine, routes):
    """A route of a baseline without a proxy; with a proxy, a route to a baseline that is not declared."""
    machine.host.routes = routes
    await machine.host.baseline(Workload(name="app", command=("sleep", "60"), routed_port=9090))
    local = Route(baseline=Baseline(kind="Deployment", namespace="default", name="api"), keys=("k",), local_port=7)
    await machine.host.offer(doc.offer(forks=[doc.fork(), Unit(name="mine", kind="route", route=local)]))
    [said] = machine.report().unsupported
    assert said.startswith(
        "local mine (no baseline" if routes else "the route from default/app (this server does not route"
    )
    await machine.finish()


async def test_a_fork_begins_once_its_baseline_is_declared(machine):
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.said("fork:default/app", "BaselineMissing")
    await machine.baseline()
    await machine.ready()
    await machine.finish()


def test_an_input_that_is_absent_is_an_empty_variable():
    fork = doc.fork(inputs=["url=db:make.url"], env=[doc.set_env("URL", input="url"), doc.set_env("MODE", "forked")])
    attempt = OrderContext(
        run="u", resource="", unit="fork:default/app", number=1, inputs={"url": None}, complete=False, isolation="none"
    )
    order = fork_order(fork, Workload(name="app", command=("app",)), attempt, 0, {})
    assert b"URL=" in order
    assert b"MODE=forked" in order


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({}, ""),
        ({"images": [{"image": "web:2"}]}, "images of the fork of default/app"),
        ({"patch": {"type": "merge"}}, "patch of the fork of default/app"),
        ({"images": [{"image": "web:2"}], "patch": {"type": "merge"}}, "images and patch of the fork of default/app"),
    ],
)
def test_unapplied_images_and_patches_of_a_fork_are_named(wish, said):
    assert ignored_options(doc.fork(**wish)).partition(" (")[0] == said


async def test_close_waits_for_folders_that_are_being_removed(machine, monkeypatch):
    cleared, close, done = Attempts.finish_removals, Attempts.close, []

    async def waited(attempts):
        done.append("waited")
        await cleared(attempts)

    monkeypatch.setattr(Attempts, "finish_removals", waited)
    monkeypatch.setattr(Attempts, "close", lambda attempts: (done.append("closed"), close(attempts)))
    await machine.down()
    assert done == ["waited", "closed"]


async def test_unreadable_run_stops_no_other_and_is_logged_once(machine, caplog, monkeypatch):
    """The row is damaged, or was written by a newer Dayfly. The run's turns fail until it is repaired."""
    monkeypatch.setattr("dayfly.embedded.engine.DEFECT_RETRY_S", 0.01)
    real, turns = engine.turn, []

    async def counted(uid, host):
        turns.append(uid)
        return await real(uid, host)

    monkeypatch.setattr(engine, "turn", counted)
    step = 'while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done'
    for uid in ("bad", "good"):
        await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", step)]), uid=uid))
        await machine.state("r/a", "running", uid)
    await machine.down()
    with contextlib.closing(sqlite3.connect(machine.home / "ledger.db")) as db, db:
        (whole,) = db.execute("SELECT ledger FROM run WHERE uid = 'bad'").fetchone()
        db.execute("UPDATE run SET ledger = CAST('{' AS BLOB) WHERE uid = 'bad'")
    before = {folder.name for folder in machine.folders()}
    await machine.up()
    assert before <= {folder.name for folder in machine.folders()}, "its running steps are left running"
    assert "cannot adopt run bad: the record of run bad" in caplog.text
    assert "Traceback" not in caplog.text
    machine.journal.with_name("journal.go").touch()
    await machine.ready("good")
    before_retries = turns.count("bad")
    await until(lambda: turns.count("bad") > before_retries + 1, "two more turns of the damaged run")
    assert sum(text.startswith("the record of run bad") for text in caplog.messages) == 1
    await machine.down()
    with contextlib.closing(sqlite3.connect(machine.home / "ledger.db")) as db, db:
        db.execute("UPDATE run SET ledger = ? WHERE uid = 'bad'", (whole,))
    await machine.up()
    await machine.ready("bad")


@pytest.mark.parametrize(("executor", "taking"), [(ProcessStepExecutor, "adopt"), (EnvoyRouteExecutor, "adopt_all")])
async def test_server_starts_though_a_run_cannot_be_taken_over(machine, monkeypatch, caplog, executor, taking):
    """The disk is full, or too many files are open for a moment."""
    step = 'while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done'
    for uid in ("u", "v"):
        await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", step)]), uid=uid))
        await machine.state("r/a", "running", uid)
    await machine.down()
    real, refused = getattr(executor, taking), []

    def refuse_once(self, live, *more):
        if live.run.uid not in refused:
            refused.append(live.run.uid)
            raise OSError(28, "No space left on device")
        real(self, live, *more)

    monkeypatch.setattr(executor, taking, refuse_once)
    await machine.up()
    assert sorted(refused) == ["u", "v"]
    assert caplog.text.count("yet: [Errno 28]") == 2
    machine.journal.with_name("journal.go").touch()
    for uid in ("u", "v"):
        await machine.ready(uid)


@pytest.mark.parametrize("column", ["ledger", "documents", "intent"])
async def test_requests_about_an_unreadable_run_name_its_row(machine, column, caplog):
    """The run may have created resources, so neither a stop nor an abandon may remove its row."""
    for uid in ("bad", "good"):
        await machine.host.offer(doc.offer(RAN, uid=uid))
        await machine.ready(uid)
    with contextlib.closing(sqlite3.connect(machine.home / "ledger.db")) as db, db:
        db.execute(f"UPDATE run SET {column} = CAST('{{' AS BLOB) WHERE uid = 'bad'")
    heard, end = [], machine.host.end
    end.attach(heard.append)
    session = {"session": heard[-1].session}
    end.send(Stop(number=1, uid="bad", request=ASKED, known=True, **session))
    end.send(Abandon(number=2, uid="bad", request=ASKED, **session))
    end.send(StatusQuery(number=3, uids=("bad", "good"), **session))
    end.send(ValuesQuery(number=4, uid="bad", **session))
    end.send(Stop(number=5, uid="good", request=ASKED, known=True, **session))
    answers = {}

    def answered():
        answers.update((each.number, each) for each in heard if isinstance(each, (Reply, RunStatuses)))
        return len(answers) == 5

    await until(answered, lambda: f"all answers; now {heard}")
    said = {answers[number].message for number in (1, 2, 4)} | {answers[3].runs[0].report.message}
    assert [answers[number].verdict for number in (1, 2, 4, 5)] == [*[Verdict.UNAVAILABLE] * 3, Verdict.TAKEN]
    assert len(said) == 1
    assert f"the record of run bad in {machine.home}/ledger.db cannot be read" in said.pop()
    assert [(run.uid, run.report.reason) for run in answers[3].runs] == [
        ("bad", Reason.BLOCKED),
        ("good", Reason.READY),
    ]
    await machine.gone("good")
    assert "Traceback" not in caplog.text
    assert "bad" in machine.host.living_runs()
