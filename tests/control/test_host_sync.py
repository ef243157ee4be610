"""What happens to sandboxes without a request: they end, expire, and hosts that were away hear of them later."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest

from control import wishes
from control.client import KEY, ORG, parsed
from control.databases import sql
from control.fake_host import uid_of
from control.lossy import call
from dayfly.control import auth, confirmed, host_sync, records, shelves
from dayfly.control.app import create_app
from dayfly.control.link import Links
from dayfly.control.store import Store, StoreError
from dayfly.control.tables import sandboxes
from dayfly.plan.reasons import Reason
from dayfly.spec.wire import Endpoint, Hello, Standing


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Rounds follow each other as fast as their own work lets them."""
    monkeypatch.setattr(host_sync, "SWEEP_S", 0.02)


def test_a_sandbox_that_ends_by_itself_leaves_the_store(db, host):
    db.put("sandboxes/sb1", wishes.sandbox())
    host.finish(uid_of(host))
    assert db.call("GET", "sandboxes/sb1").status == 404
    db.put("sandboxes/sb2", wishes.sandbox())
    host.finish(uid_of(host))
    deadline = time.monotonic() + 60
    while db.get("resource-plugins/db")["status"]["resources"]:
        assert time.monotonic() < deadline, "nobody asked for it, so the sweep must find it"
        time.sleep(0.1)


def test_an_end_is_acknowledged_once_the_sandbox_has_left_the_store(client, host, monkeypatch):
    """Not in a round that could not be finished, nor while it is there: what a round misses must not be forgotten."""
    asked, rounds = host_sync.HostSync.is_over, []

    async def fails(self, record):
        rounds.append(record)
        if len(rounds) % 2:
            raise StoreError("the disk is full")
        return False

    monkeypatch.setattr(host_sync, "PAUSE_PER_WORK", 0)
    client.put("sandboxes/sb1", wishes.empty())
    uid = uid_of(host)
    monkeypatch.setattr(host_sync.HostSync, "is_over", fails)
    host.finish(uid)
    _wait(lambda: len(rounds) > 2, "rounds that fail, and one that does not see it")
    assert host.acknowledged == set()
    monkeypatch.setattr(host_sync.HostSync, "is_over", asked)
    _wait(lambda: host.acknowledged == {uid}, "a round that does not")
    assert client.get("sandboxes") == []


async def test_what_is_owed_is_paid_several_at_once(host, blank, tmp_path):
    """A host may be far away: the time of one answer is not to be waited for once for each sandbox."""
    take, begun, together = host.offer, [], asyncio.Event()

    async def slow(offer):
        begun.append(offer.uid)
        if len(begun) > 1:
            together.set()
        async with asyncio.timeout(60):
            await together.wait()  # as long as the first one is to be answered before the second is asked, for ever
        return await take(offer)

    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=auth.single(KEY), version="1")
        host.down = True
        for name in ("aa", "bb", "cc"):
            assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/{name}", wishes.empty()))[0] == 200
        host.down, host.offer = False, slow
        await app.state.sync.sweep()
    finally:
        store.close()
    assert len(host.offers) == len(begun) == 3


async def test_the_next_round_comes_soon_while_a_host_takes_what_it_is_owed(host, blank, tmp_path, monkeypatch):
    """After a day away one round does not pay all; where nothing can be paid, very many are not gone through again soon."""
    monkeypatch.setattr(host_sync, "PAUSE_PER_WORK", 10**9)
    monkeypatch.setattr(host_sync, "HASTE", 10**12)
    pauses: list[float] = []
    sleep = asyncio.sleep
    moved = asyncio.Event()

    async def noted(seconds):
        if seconds:
            pauses.append(seconds)
            await moved.wait()
            moved.clear()
        await sleep(0)

    store = Store.open(shutil.copy(blank, tmp_path))
    app = create_app(store, {"local": host.end}, keys=auth.single(KEY), version="1")
    monkeypatch.setattr(asyncio, "sleep", noted)
    rounds = asyncio.create_task(app.state.sync._rounds())
    try:
        while not pauses:  # the first round has read the store, however long that takes
            await sleep(0.001)
        host.down = True
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/aa", wishes.empty()))[0] == 200
        for down in (True, False, False):
            host.down = down
            before = len(pauses)
            moved.set()
            while len(pauses) == before:
                await sleep(0.001)
    finally:
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        store.close()
    assert pauses[-3:] == [host_sync.LONGEST_PAUSE_S, host_sync.SWEEP_S, host_sync.LONGEST_PAUSE_S]


async def test_one_that_was_read_before_its_host_had_it_is_not_born_again(host, blank, tmp_path):
    """A request may hold a record while a round marks it; its lease does not begin anew either."""
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=auth.single(KEY), version="1")
        wish = wishes.empty() | {"lease": {"seconds": 30}}
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/sb1", wish))[0] == 200
        before = await store.of("local").read(lambda rows: records.find(rows, "sb1"))
        await app.state.sync.sweep()
        after = await store.of("local").read(lambda rows: records.find(rows, "sb1"))
        assert (before.taken_over, after.taken_over) == (False, True)
        lease = host.offers[before.uid].lease_until
        await asyncio.sleep(0.002)  # a lease of now is another one
        await app.state.sync.tell(before)
    finally:
        store.close()
    assert host.calls == [("offer", before.uid)] * 2
    assert (host.offers[before.uid].birth, host.offers[before.uid].lease_until) == (False, lease)


async def test_what_a_host_tells_of_runs_that_are_nobodys_is_not_kept(host, blank, tmp_path):
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=auth.single(KEY), version="1")
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/sb1", wishes.empty()))[0] == 200
        (link,) = app.state.sync._links.each()
        for number in range(100):
            link.picture.stands(Standing(uid=f"nobodys-{number}", seq=1))
        await app.state.sync.sweep()
        assert link.picture.known == set(host.offers) != set()
    finally:
        store.close()


async def test_what_another_server_has_archived_is_remembered_no_more(host, blank, tmp_path, monkeypatch):
    """Two serve one store, and what has ended is noted by one of them. Nor is one forgotten that has just come."""
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=auth.single(KEY), version="1")
        sync = app.state.sync

        async def apply(name: str) -> str:
            before = set(host.offers)
            wish = wishes.empty() | {"lease": {"seconds": 30}}
            assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/{name}", wish))[0] == 200
            (uid,) = set(host.offers) - before
            return uid

        def known() -> list[set[str]]:
            return [sync._marks._taken, set(sync._marks._confirmed), set(sync._leases), set(sync._troubles)]

        uid = await apply("sb1")
        host.down = True
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/sb2", wishes.empty()))[0] == 200
        (late,) = sync._troubles
        assert known() == [{uid}, {uid}, {uid}, {late}]
        host.down = False
        for name in ("sb1", "sb2"):
            gone = await store.of("local").read(lambda rows, name=name: records.find(rows, name))
            await store.of("local").write(lambda rows, gone=gone: shelves.archive(rows, gone, 1, given_up=False))
        owed, come = sync._owed, []

        async def just_come(*roll):
            come.append(await apply("sb3"))
            return await owed(*roll)

        monkeypatch.setattr(sync, "_owed", just_come)
        await sync.sweep()
        assert known() == [set(come), set(come), set(come), set()]
    finally:
        store.close()


async def test_what_another_server_has_told_the_host_is_no_trouble_any_more(host, blank, tmp_path, monkeypatch):
    """As where that one had heard of its cluster sooner: here it would never be ready."""
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=auth.single(KEY), version="1")
        sync = app.state.sync
        host.down = True
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/sb1", wishes.empty()))[0] == 200
        (uid,) = sync._troubles
        host.down = False
        record = await store.of("local").read(lambda rows: records.find(rows, "sb1"))
        session, place = await sync.link(record).meet()
        theirs = {uid: confirmed.Confirmation(session, 1, confirmed.form(record.revision, place, {}))}
        monkeypatch.setattr(confirmed, "known", lambda *_: theirs)
        sync.told.clear()
        await sync.sweep()
        assert (sync.trouble(uid), sync.told.is_set(), host.offers) == ("", True, {})
    finally:
        store.close()


async def test_one_that_no_host_has_heard_of_does_not_wait_for_those_that_are_only_told_again(
    blank, tmp_path, monkeypatch
):
    """A server that dies before it has told all must not leave the same ones to the next, which dies as well."""
    monkeypatch.setattr(host_sync, "MOST_AT_ONCE", 1)
    store = Store.open(shutil.copy(blank, tmp_path))
    app = create_app(store, {}, keys=auth.single(KEY), version="1")
    await call(app, KEY, "PUT", f"{ORG}/clusters/far")
    for number in range(40):
        await call(app, KEY, "PUT", f"{ORG}/sandboxes/a{number}", wishes.empty(cluster="far"))
    await store.everywhere().write(lambda rows: rows.execute(rows.update(sandboxes).values(taken_over=True)))
    await call(app, KEY, "PUT", f"{ORG}/sandboxes/z-new", wishes.empty(cluster="far"))
    orders: list[list[str]] = []

    class Mortal(host_sync.HostSync):
        async def tell(self, record, _meant=None):
            orders[-1].append(record.name)

    for _ in range(2):
        orders.append([])
        await Mortal(store, Links()).sweep()
    assert [order[0] for order in orders] == ["z-new", "z-new"]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    store.close()


async def test_one_that_cannot_be_read_keeps_nobody_else_from_being_seen_to(host, blank, tmp_path, caplog):
    """Stored by a newer Dayfly, perhaps. What others owe and have ended is not its organisation's alone."""
    store = Store.open(shutil.copy(blank, tmp_path))
    app = create_app(store, {"local": host.end}, keys=auth.single(KEY), version="1")
    try:
        uids = []
        for name in ("sb1", "sb2", "sb3"):
            assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/{name}", wishes.empty()))[0] == 200
            uids += [uid for uid in host.offers if uid not in uids]
        unread = sandboxes.c.name.in_(["sb1"])
        newer = '{"cluster": "local", "ofANewerOne": 7}'
        change = lambda rows: rows.execute(rows.update(sandboxes).where(unread).values(spec=newer, revision=9))  # noqa: E731
        await store.everywhere().write(change)
        host.finish(uids[1])
        await asyncio.sleep(0.01)
        for _ in range(3):
            await app.state.sync.sweep()
            await asyncio.sleep(0.01)
        assert host.acknowledged == {uids[1]}
        found = sql(store, "SELECT name, taken_over FROM sandboxes ORDER BY name")
        assert [(name, bool(taken)) for name, taken in found] == [("sb1", True), ("sb3", True)]
        assert caplog.text.count("sandbox sb1") == 1
    finally:
        store.close()


def test_a_host_that_has_begun_anew_is_told_everything_again(client, host, monkeypatch):
    """It may have been put back to where it knew less."""
    monkeypatch.setattr(host_sync, "PAUSE_PER_WORK", 0)
    client.put("workloads/default/shop", wishes.baseline())
    client.put("sandboxes/sb1", wishes.empty())
    told = [("baseline", "default/shop"), ("offer", uid_of(host))]
    assert host.calls == told
    host._loop.call_soon_threadsafe(host.end.send, Hello(process="another"))
    _wait(lambda: set(host.calls[2:]) == set(told), "that everything is told again")
    assert client.get("sandboxes/sb1")["status"]["ready"] is True


def _wait(true, what):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_a_keeper_that_is_cancelled_in_its_round_ends_it(monkeypatch):
    ended = []

    async def cancelled(self):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(self)
            raise

    async def begin():
        keeping = asyncio.create_task(host_sync.HostSync(None, Links()).run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping

    monkeypatch.setattr(host_sync.HostSync, "sweep", cancelled)
    asyncio.run(begin())
    assert len(ended) == 1


def test_a_ttl_counts_from_where_it_says(client, host):
    made = client.put("sandboxes/sb1", wishes.empty(ttl={"duration": "30m", "offsetFrom": "updatedAt"}))
    time.sleep(0.01)
    changed = client.put(
        "sandboxes/sb1", wishes.empty(labels={"a": "b"}, ttl={"duration": "30m", "offsetFrom": "updatedAt"})
    )
    assert changed["updatedAt"] > made["updatedAt"]
    assert parsed(changed["status"]["scheduledDeleteTime"]) == pytest.approx(parsed(changed["updatedAt"]) + 1800)
    far = client.put("sandboxes/sb2", wishes.empty(ttl={"duration": "4294967295w"}))
    assert far["status"]["scheduledDeleteTime"] == "9999-12-31T23:59:59.000Z"


def test_a_lease_is_given_and_renewed(client, host):
    client.put("sandboxes/sb1", wishes.empty() | {"lease": {"seconds": 30}})
    uid = uid_of(host)
    now = time.time() * 1000
    assert host.offers[uid].lease_until == pytest.approx(now + 30_000, abs=5_000)
    renewed = client.put("sandboxes/sb1/lease", {"seconds": 600})
    assert renewed["seconds"] == 600
    assert host.leases[uid] == pytest.approx(now + 600_000, abs=10_000)
    assert parsed(renewed["until"]) * 1000 == pytest.approx(host.leases[uid], abs=1)
    client.put("sandboxes/sb1", wishes.empty(labels={"a": "b"}))
    assert host.offers[uid].lease_until == host.leases[uid], "a change of the wish leaves the lease alone"
    assert client.call("PUT", "sandboxes/sb1/lease", {"seconds": -1}).status == 400
    client.delete("sandboxes/sb1")
    assert client.call("PUT", "sandboxes/sb1/lease", {"seconds": 5}).status == 409


def test_the_lease_of_one_that_ends_is_not_renewed_before_its_host_knows(client, host):
    client.put("sandboxes/sb1", wishes.empty() | {"lease": {"seconds": 30}})
    host.down = True
    client.delete("sandboxes/sb1")
    answer = client.call("PUT", "sandboxes/sb1/lease", {"seconds": 600})
    assert answer.status == 409
    assert "is being deleted" in answer.error


def test_a_lease_begins_with_its_run(client, host, monkeypatch):
    """While its host is away nobody can renew it; it would be born with its lease run out, and end at once."""
    host.down = True
    client.put("sandboxes/sb1", wishes.empty() | {"lease": {"seconds": 30}})
    began = time.time_ns() // 1_000_000
    monkeypatch.setattr(host_sync, "_now", lambda: began + 60_000)
    host.down = False
    deadline = time.monotonic() + 60
    while not host.offers:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert host.offers[uid_of(host)].lease_until == began + 90_000


def test_endpoints_come_from_the_wish_and_the_host(client, host):
    for name in ("shop", "cart"):
        client.put(f"workloads/default/{name}", wishes.baseline(name))
    forks = [wishes.fork(endpoints=[{"name": "api", "port": 80, "protocol": "grpc"}]), wishes.fork("cart")]
    group = {"endpoints": [{"name": "web", "target": "https://shop.default.svc:443"}]}
    wish = wishes.empty(forks=forks, defaultRouteGroup=group)
    assert [endpoint["url"] for endpoint in client.put("sandboxes/sb1", wish)["endpoints"]] == ["", ""]
    host.ports[uid_of(host)] = (
        Endpoint(unit="fork:default/shop", host="127.0.0.1", port=4001),
        Endpoint(unit="fork:default/cart", host="127.0.0.1", port=4002),
    )
    found = {endpoint["name"]: endpoint for endpoint in client.get("sandboxes/sb1")["endpoints"]}
    assert {name: endpoint["url"] for name, endpoint in found.items()} == {
        "api": "grpc://127.0.0.1:4001",
        "web": "https://127.0.0.1:4001",
        "cart": "http://127.0.0.1:4002",
    }
    assert found["web"]["target"] == "https://shop.default.svc:443"
    assert {endpoint["routeType"] for endpoint in found.values()} == {"host"}


def test_a_host_that_is_away_is_told_later(db, host):
    host.down = True
    made = db.put("sandboxes/sb1", wishes.sandbox())
    assert made["status"]["ready"] is False
    assert "No space left on device" in made["status"]["message"]
    host.down = False
    deadline = time.monotonic() + 60
    while not db.get("sandboxes/sb1")["status"]["ready"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    uid = uid_of(host)
    host.down = True
    assert db.delete("sandboxes/sb1") == {}
    assert "No space left" in db.get("sandboxes/sb1")["status"]["message"]
    host.down = False
    while uid not in host.closed:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_change_that_the_host_has_not_heard_of_is_said(db, host):
    db.put("sandboxes/sb1", wishes.sandbox())
    host.down = True
    status = db.put("sandboxes/sb1", wishes.sandbox(labels={"a": "b"}))["status"]
    assert status["ready"] is False
    assert status["message"].startswith(
        "All desired workloads are available. (the cluster cannot be told at the moment"
    )
    answer = db.call("PUT", "sandboxes/sb1/lease", {"seconds": 5})
    assert answer.status == 503
    assert "nothing was changed" in answer.error
    host.down = False
    deadline = time.monotonic() + 60
    while not db.get("sandboxes/sb1")["status"]["ready"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_host_and_trouble_say_alike_is_said_once(db, host):
    """As of a run whose record is damaged: it cannot be told, nor can it be said how it stands."""
    db.put("sandboxes/sb1", wishes.sandbox())
    host.say(uid_of(host), ready=False, reason=Reason.HINDERED, message="No space left on device")
    host.down = True
    message = db.put("sandboxes/sb1", wishes.sandbox(labels={"a": "b"}))["status"]["message"]
    assert message.startswith("the cluster cannot be told at the moment")
    assert message.count("No space left on device") == 1


def test_a_plugin_that_goes_at_the_same_moment_is_missed(db, host):
    host.on_admit = lambda: sql(db.store, "DELETE FROM plugins")
    answer = db.call("PUT", "sandboxes/sb1", wishes.sandbox())
    assert answer.status == 400
    assert 'no plugin "db" is published here' in answer.error
    assert (db.get("sandboxes"), host.calls) == ([], [])


def test_what_expires_before_its_host_heard_of_it_is_never_begun(client, host):
    host.down = True
    client.put("sandboxes/sb1", wishes.empty(ttl={"duration": "1m"}))
    sql(client.store, "UPDATE sandboxes SET created_at = 1")
    deadline = time.monotonic() + 60
    while "stop" not in [call for call, _ in host.missed]:
        assert time.monotonic() < deadline, "a round that had read of it before would offer it"
        time.sleep(0.01)
    host.down = False
    while client.call("GET", "sandboxes/sb1").status != 404:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [call for call, _ in host.calls] == ["stop"]
    assert host.offers == {}


def test_a_round_that_fails_is_not_the_last(client, host, caplog):
    sql(client.store, "ALTER TABLE sandboxes RENAME TO hidden")
    deadline = time.monotonic() + 60
    while "the store cannot be used now" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    sql(client.store, "ALTER TABLE hidden RENAME TO sandboxes")
    client.put("sandboxes/sb1", wishes.empty())
    host.finish(uid_of(host))
    while sql(client.store, "SELECT name FROM sandboxes"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_sandbox_that_fails_unforeseen_keeps_no_other_waiting(client, host, monkeypatch, caplog):
    offer = host.offer

    async def fails(wish):
        if wish.name == "aa":
            raise ZeroDivisionError("unforeseen")
        return await offer(wish)

    monkeypatch.setattr(host, "offer", fails)
    made = client.put("sandboxes/aa", wishes.empty())
    assert made["status"]["ready"] is False
    assert "internal error of Dayfly" in made["status"]["message"]
    host.down = True
    client.put("sandboxes/bb", wishes.empty())
    host.down = False
    deadline = time.monotonic() + 60
    while not client.get("sandboxes/bb")["status"]["ready"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert caplog.text.count("ZeroDivisionError: unforeseen") == 1, "said once, not at each try"
    monkeypatch.undo()
    while not client.get("sandboxes/aa")["status"]["ready"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
