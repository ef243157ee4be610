"""The host as its link finds it: what it promises whoever asks, whatever its runs are at."""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from dayfly.embedded import clock, host
from dayfly.embedded.attempts import Key
from dayfly.embedded.executors import ForkExecutor, StepExecutor
from dayfly.embedded.forks import fork_order, unapplied
from dayfly.embedded.ledger import Stored
from dayfly.embedded.runs import Live
from dayfly.execute.process.render import Attempt
from dayfly.execute.state import access
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Baseline, Route, Unit
from dayfly.spec.run import Request, Run, State, UnitRecord
from dayfly.spec.wire import Abandon, AskStanding, AskValues, Hello, Reply, Standings, Stop, Verdict
from dayfly.spec.workload import Workload
from embedded import documents as doc
from embedded.machine import until

RAN = doc.resource("r", [doc.step("a", 'echo ran >> "$JOURNAL"')])
ASKED = Request(at=1, reason="Deleted", message="asked")


def test_its_clocks_tell_milliseconds():
    for told, nanoseconds in ((clock.now_ms, time.time_ns), (clock._monotonic_ms, time.monotonic_ns)):
        before = nanoseconds() // 1_000_000
        assert before <= told() <= nanoseconds() // 1_000_000


async def test_places_are_sixteen_unless_somebody_says(machine):
    assert machine.host._engine.scenes.free() == 16


async def test_its_files_are_closed_with_it(machine):
    closed = machine.host
    await machine.down()
    for ledger in (closed._ledger, closed._engine.reader):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            ledger.uids()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(closed._lock)


async def test_a_proxy_that_the_last_server_left_ends_where_this_one_routes_nothing(machine):
    """It would hold its ports for ever, and lead requests to where forks were."""
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


async def test_nothing_of_it_is_left_in_its_process(machine, monkeypatch):
    """No task goes on, and no descriptor is open: not of its files, its watches or its doors."""

    async def serve(_app, sockets, *, stop):
        await stop.wait()
        sockets[0].close()

    def opened():
        return sorted(str(each.readlink()) for each in list(Path("/proc/self/fd").iterdir()) if each.is_symlink())

    async def lived():
        await machine.up(serve=serve)
        machine.host._states.variables(access.caller("u", "r", "r/a", 1))
        await machine.host.offer(doc.offer(RAN, uid=str(len(before))))
        await machine.ready(str(len(before)))
        await machine.finish(str(len(before)))
        await machine.down()
        return opened(), asyncio.all_tasks() - {asyncio.current_task()}

    await machine.down()
    before = opened()
    assert await lived() == (before, set())


async def test_what_is_old_is_looked_for_at_once_and_then_each_hour(monkeypatch):
    looks, pauses = [], []

    async def look():
        looks.append(len(pauses))

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    bare = host.EmbeddedHost.__new__(host.EmbeddedHost)
    bare.forget_old = look
    monkeypatch.setattr(host, "asyncio", SimpleNamespace(sleep=pause))
    with pytest.raises(asyncio.CancelledError):
        await bare._sweep()
    assert (looks, pauses) == ([0, 1, 2], [3600] * 3)


async def test_its_work_folder_goes_with_it_unless_a_run_lives(machine):
    work = Path(machine.host._place.work).exists
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


async def test_a_new_form_of_a_baseline_is_led_to(machine, monkeypatch):
    touched = []
    monkeypatch.setattr(machine.host._routing, "touch", lambda: touched.append("routing"))
    machine.host._engine._blocked.add("rests, and waits for one")
    await machine.host.baseline(Workload(name="app", command=("/bin/app",)))
    assert touched == ["routing"]
    assert not machine.host._engine._blocked, "it looks again"


async def test_the_version_of_a_report_is_higher_than_any_of_the_server_before(machine):
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    before = machine.host.version("u")
    await machine.down()
    await machine.up(start=False)
    assert machine.host.version("u") > before
    machine.host.start()
    await machine.finish()


async def test_each_session_has_a_higher_number(machine, monkeypatch):
    """Also where the clock was set back."""
    first = machine.host.begin_session()
    assert first >= machine.host._session
    monkeypatch.setattr(host, "now_ms", lambda: 5)
    assert [machine.host.begin_session() for _ in range(2)] == [first + 1, first + 2]


async def test_of_a_run_that_was_never_heard_of_nothing_is_told(machine):
    assert machine.host.values("u") == ()
    assert machine.host.endpoints("u") == ()
    assert (machine.host.report("u"), machine.host.standing("u"), machine.host.has_ended("u")) == (None, None, False)
    assert machine.host.history("u") == machine.host.logs("u") == ()
    assert machine.host.read_log("u", "r/a", 1, offset=0, limit=9) is None


async def test_an_end_of_which_nothing_else_is_said_is_of_a_run_that_began(machine):
    assert await machine.host.stop("u", ASKED) is Verdict.UNKNOWN
    assert await machine.host.offer(doc.offer(RAN)) is Verdict.TAKEN
    await machine.ready()
    await machine.finish()


async def test_its_first_end_is_the_one_that_is_recorded(machine):
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    for by in ("ann", "bob"):
        await machine.host.stop("u", msgspec.structs.replace(ASKED, by=by))
    await machine.gone()
    assert machine.report().closed.by == "ann"


class Hearer:
    """What the link is told of runs."""

    def __init__(self, end) -> None:
        self.changed: list[str] = []
        self.ended: list[str] = []
        end.changed, end.ended = self.changed.append, self.ended.append


async def test_with_each_change_its_version_rises_and_the_link_hears_of_it(machine):
    heard = Hearer(machine.host.end)
    born = machine.host.version("u")
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    made = machine.host.version("u")
    assert made > born
    assert set(heard.changed) == {"u"}
    assert heard.ended == []
    await machine.delete()
    await until(lambda: heard.ended, "its end to be told")
    assert heard.ended == ["u"]
    assert machine.host.version("u") > made + len(heard.changed) - heard.changed.count("u")


def test_the_version_rises_with_the_end_too():
    """Whoever waits for a newer report than the last hears of it."""

    class Ends:
        changed = ended = staticmethod(lambda _uid: None)

    bare = host.EmbeddedHost.__new__(host.EmbeddedHost)
    bare._versions, bare._first, bare.end = {}, 10, Ends()
    bare._changed("u")
    assert bare.version("u") > 10
    before = bare.version("u")
    bare._ended("u")
    assert bare.version("u") > before


async def test_what_ended_long_ago_is_forgotten_whole(machine, monkeypatch):
    told = []
    monkeypatch.setattr(machine.host.end, "forgets", lambda: told.append("forgets"))
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    await machine.finish()
    await machine.host.acknowledge(("u",))
    await machine.host.forget_old()
    assert machine.host.has_ended("u"), "not so soon"
    later = host.now_ms() + host.KEEP_ENDED_MS + 60_000
    monkeypatch.setattr(host, "now_ms", lambda: later)
    await machine.host.forget_old()
    assert told == ["forgets"] * 2, "an offer that is under way may be of what is forgotten now"
    assert machine.host._versions == {}
    assert (machine.host.report("u"), machine.host.logs("u")) == (None, ())


async def test_the_disks_trouble_is_no_matter_of_what_is_ready(machine):
    await machine.host.offer(doc.offer(RAN))
    await machine.ready()
    said = machine.report().message
    machine.host._writer.trouble = "the disk is full"
    assert machine.report().message == said
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("a", "exit 1")]), uid="other"))
    await machine.reason("ResourceFailed", "other")
    machine.host._writer.trouble = "the disk is full"
    assert machine.report("other").message.endswith("; the disk is full")
    machine.host._writer.trouble = ""
    assert not machine.report("other").message.endswith("full")


@pytest.mark.parametrize("routes", [True, False])
async def test_what_is_wished_for_in_vain_is_said(machine, routes):
    """A route before a baseline where nothing routes; and where something does, one to what nobody has declared."""
    machine.host.routes = routes
    await machine.host.baseline(Workload(name="app", command=("sleep", "60"), routed_port=9090))
    local = Route(baseline=Baseline(kind="Deployment", namespace="default", name="api"), keys=("k",), local_port=7)
    await machine.host.offer(doc.offer(forks=[doc.fork(), Unit(name="mine", kind="route", route=local)]))
    [said] = machine.report().unserved
    assert said.startswith("local mine (no baseline" if routes else "the route from default/app (this server routes")
    await machine.finish()


async def test_a_fork_begins_once_its_baseline_is_declared(machine):
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.said("fork:default/app", "BaselineMissing")
    await until(lambda: machine.host._engine.runs.kept("u") is None, "the run to rest")
    await machine.baseline()
    await machine.ready()
    await machine.finish()


def test_an_input_that_is_absent_is_an_empty_variable():
    fork = doc.fork(inputs=["url=db:make.url"], env=[doc.set_env("URL", input="url"), doc.set_env("MODE", "forked")])
    attempt = Attempt(
        run="u", resource="", unit="fork:default/app", number=1, inputs={"url": None}, complete=False, isolation="none"
    )
    order = fork_order(fork, Workload(name="app", command=("app",)), attempt, 0, {})
    assert b"URL=" in order
    assert b"MODE=forked" in order


async def test_each_kind_adopts_its_own(machine):
    """Of a run that a server before this one has begun, whatever is not found by its folder."""
    engine, adopted = machine.host._engine, []

    class Noting(StepExecutor):
        def adopt(self, _live, name):
            adopted.append(name)

    executor = Noting(
        engine.reader, engine.attempts, engine.attempts._starter, runs=engine.runs, environment={}, has_images=False
    )
    alive = UnitRecord(attempt=1, state=State.CLAIMED)
    units = {"r/a": alive, "fork:default/app": msgspec.structs.replace(alive, kind="fork"), "r/b": UnitRecord()}
    steps = (doc.step("a"), doc.step("b"))
    stored = Stored(
        run=Run(uid="u", target=doc.TARGET, plan="", units=units),
        name="box",
        documents=(doc.resource("r", steps),),
        forks=(doc.fork(),),
        wish=host.Wish(),
    )
    await executor.observe(Live(stored, stored.plan()))
    assert adopted == ["r/a"]


@pytest.mark.parametrize(("before", "told"), [(0, []), (7, []), (8, ["u", "u"])])
def test_whoever_was_told_another_port_hears_of_the_new_one(before, told):
    heard = []
    ports = SimpleNamespace(known=lambda *_: before, renew=lambda *_: 7)
    runs, attempts = SimpleNamespace(refresh=heard.append), SimpleNamespace(news=heard.append)
    executor = ForkExecutor(None, attempts, None, runs=runs, baselines=None, ports=ports)
    assert executor._port(Key("u", "fork:default/app", 1)) == 7
    assert heard == told


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({}, ""),
        ({"images": [{"image": "web:2"}]}, "images of the fork of default/app"),
        ({"patch": {"type": "merge"}}, "patch of the fork of default/app"),
        ({"images": [{"image": "web:2"}], "patch": {"type": "merge"}}, "images and patch of the fork of default/app"),
    ],
)
def test_what_of_a_forks_wish_no_process_has_is_said(wish, said):
    assert unapplied(doc.fork(**wish)).partition(" (")[0] == said


async def test_at_the_end_what_is_being_removed_is_waited_for(machine, monkeypatch):
    attempts, done = machine.host._engine.attempts, []
    cleared, close = attempts.cleared, attempts.close

    async def waited():
        done.append("waited")
        await cleared()

    monkeypatch.setattr(attempts, "cleared", waited)
    monkeypatch.setattr(attempts, "close", lambda: (done.append("closed"), close()))
    await machine.down()
    assert done == ["waited", "closed"]


async def test_a_run_that_cannot_be_read_stops_no_other_and_is_said(machine, caplog):
    """Its row was damaged, or a newer Dayfly has written it."""
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
    assert before <= {folder.name for folder in machine.folders()}, "what it had at work is left as it is"
    assert "run bad cannot be taken over: the record of run bad" in caplog.text
    assert "Traceback" not in caplog.text
    machine.journal.with_name("journal.go").touch()
    await machine.ready("good")
    await machine.down()
    with contextlib.closing(sqlite3.connect(machine.home / "ledger.db")) as db, db:
        db.execute("UPDATE run SET ledger = ? WHERE uid = 'bad'", (whole,))
    await machine.up()
    await machine.ready("bad")


@pytest.mark.parametrize("column", ["ledger", "documents", "wish"])
async def test_whoever_asks_for_a_run_that_cannot_be_read_is_told_which_it_is_and_what_to_do(machine, column, caplog):
    """It may have made something that nobody would take away: neither its end nor its being given up makes it vanish."""
    for uid in ("bad", "good"):
        await machine.host.offer(doc.offer(RAN, uid=uid))
        await machine.ready(uid)
    with contextlib.closing(sqlite3.connect(machine.home / "ledger.db")) as db, db:
        db.execute(f"UPDATE run SET {column} = CAST('{{' AS BLOB) WHERE uid = 'bad'")
    machine.host._engine.reload("bad")
    heard, end = [], machine.host.end
    end.attach(heard.append)
    end.send(Hello(process="p"))
    session = {"session": heard[-1].session}
    end.send(Stop(number=1, uid="bad", request=ASKED, known=True, **session))
    end.send(Abandon(number=2, uid="bad", request=ASKED, **session))
    end.send(AskStanding(number=3, uids=("bad", "good"), **session))
    end.send(AskValues(number=4, uid="bad", **session))
    end.send(Stop(number=5, uid="good", request=ASKED, known=True, **session))
    answers = {}

    def answered():
        answers.update((each.number, each) for each in heard if isinstance(each, (Reply, Standings)))
        return len(answers) == 5

    await until(answered, lambda: f"all answers; now {heard}")
    said = {answers[number].message for number in (1, 2, 4)} | {answers[3].runs[0].report.message}
    assert [answers[number].verdict for number in (1, 2, 4, 5)] == [*[Verdict.UNAVAILABLE] * 3, Verdict.TAKEN]
    assert len(said) == 1
    assert f"the record of run bad in {machine.home}/ledger.db cannot be read" in said.pop()
    assert [(run.uid, run.report.reason) for run in answers[3].runs] == [
        ("bad", Reason.HINDERED),
        ("good", Reason.READY),
    ]
    await machine.gone("good")
    assert "Traceback" not in caplog.text
    assert "bad" in machine.host.living()
