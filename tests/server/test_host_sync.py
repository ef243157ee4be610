"""Changes of sandboxes without a request: they end or expire, and offline hosts receive orders later."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest
from tests.server import specs, stored_records
from tests.server.client import KEY, ORG, parsed, wait_for
from tests.server.databases import sql
from tests.server.fake_host import uid_of
from tests.server.lossy_link import call

from dayfly.link.server_end import Links
from dayfly.link.wire import RunStatus
from dayfly.plan.reasons import Reason
from dayfly.server.access import callers
from dayfly.server.app import create_app
from dayfly.server.db.store import Store, StoreError
from dayfly.server.db.tables import sandboxes
from dayfly.server.records import confirmations, run_records, tombstones
from dayfly.server.sync import host_sync
from dayfly.spec.host_errors import HostUnavailableError
from dayfly.spec.run import EndRequest
from dayfly.spec.run_data import RunEndpoint


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Make rounds follow each other quickly."""
    monkeypatch.setattr(host_sync, "ROUND_INTERVAL_S", 0.02)


def test_sandbox_that_ends_by_itself_leaves_the_store(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    host.finish(uid_of(host))
    assert db.call("GET", "sandboxes/sb1").status == 404
    db.put("sandboxes/sb2", specs.sandbox())
    host.finish(uid_of(host))
    wait_for(lambda: not db.get("resource-plugins/db")["status"]["resources"])


def test_end_is_acknowledged_after_archiving(client, host, monkeypatch):
    """An end is not acknowledged in a failed round, or while the record exists, because it would be forgotten."""
    asked, rounds = host_sync.HostSync.is_over, []

    async def fails(self, record):
        rounds.append(record)
        if len(rounds) % 2:
            raise StoreError("the disk is full")
        return False

    monkeypatch.setattr(host_sync, "PAUSE_PER_WORK", 0)
    client.put("sandboxes/sb1", specs.empty())
    uid = uid_of(host)
    monkeypatch.setattr(host_sync.HostSync, "is_over", fails)
    host.finish(uid)
    wait_for(lambda: len(rounds) > 2)
    assert host.acknowledged == set()
    monkeypatch.setattr(host_sync.HostSync, "is_over", asked)
    wait_for(lambda: host.acknowledged == {uid})
    assert client.get("sandboxes") == []


async def test_pending_offers_are_sent_concurrently(host, blank, tmp_path):
    """A distant host must not delay the orders for all sandboxes one after the other."""
    take, begun, together = host.offer, [], asyncio.Event()

    async def slow(offer):
        begun.append(offer.uid)
        if len(begun) > 1:
            together.set()
        async with asyncio.timeout(60):
            await together.wait()  # would wait forever if the second offer waited for the first
        return await take(offer)

    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
        host.down = True
        for name in ("aa", "bb", "cc"):
            assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/{name}", specs.empty()))[0] == 200
        host.down, host.offer = False, slow
        await app.state.sync.sweep()
    finally:
        store.close()
    assert len(host.offers) == len(begun) == 3


async def test_rounds_are_frequent_only_while_orders_succeed(host, blank, tmp_path, monkeypatch):
    """After a long outage one round does not send all orders. If none can be sent, rounds over many runs stay rare."""
    monkeypatch.setattr(host_sync, "PAUSE_PER_WORK", 10**9)
    monkeypatch.setattr(host_sync, "PROGRESS_FACTOR", 10**12)
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
    app = create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
    monkeypatch.setattr(asyncio, "sleep", noted)
    rounds = asyncio.create_task(app.state.sync.run())
    try:
        while not pauses:  # the first round has read the store, however long that takes
            await sleep(0.001)
        host.down = True
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/aa", specs.empty()))[0] == 200
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
    assert pauses[-3:] == [host_sync.MAX_PAUSE_S, host_sync.ROUND_INTERVAL_S, host_sync.MAX_PAUSE_S]


async def test_stale_record_is_not_offered_as_a_birth(host, blank, tmp_path):
    """A request may hold a record while a round marks it. Its lease does not start again either."""
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
        wish = specs.empty() | {"lease": {"seconds": 30}}
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/sb1", wish))[0] == 200
        before = await stored_records.read(store, "local", "sb1")
        await app.state.sync.sweep()
        after = await stored_records.read(store, "local", "sb1")
        assert (before.sealed, after.sealed) == (False, True)
        lease = host.offers[before.uid].lease_until
        await asyncio.sleep(0.002)  # so that a lease from now would differ
        await app.state.sync.send_order(before)
    finally:
        store.close()
    assert host.calls == [("offer", before.uid)] * 2
    assert (host.offers[before.uid].birth, host.offers[before.uid].lease_until) == (False, lease)


async def test_reports_of_unknown_runs_are_dropped(host, blank, tmp_path):
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/sb1", specs.empty()))[0] == 200
        record = await stored_records.read(store, "local", "sb1")
        link = app.state.sync.link(record)
        for number in range(100):
            link.state.record_status(RunStatus(uid=f"nobodys-{number}", seq=1))
        await app.state.sync.sweep()
        assert link.state.known_uids == set(host.offers) != set()
    finally:
        store.close()


async def test_problem_ends_when_another_server_archives(host, blank, tmp_path, monkeypatch):
    """Two servers share the store. The problem of a sandbox that is stored during the round remains."""
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
        offer = host.offer

        async def put_while_down(name):
            host.down = True
            assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/{name}", specs.empty()))[0] == 200
            host.down = False
            record = await stored_records.read(store, "local", name)
            assert "cannot receive the order now" in app.state.sync.problem(record.uid)
            return record

        async def interrupted(order):
            monkeypatch.undo()
            during.append(await put_while_down("sb3"))
            return await offer(order)

        archived, owed, during = await put_while_down("sb1"), await put_while_down("sb2"), []
        await store.for_org("local").write(lambda rows: tombstones.archive(rows, archived, 1, abandoned=False))
        monkeypatch.setattr(host, "offer", interrupted)
        await app.state.sync.sweep()
        assert [app.state.sync.problem(each.uid) for each in (archived, owed)] == ["", ""]
        assert app.state.sync.problem(during[0].uid)
    finally:
        store.close()


async def test_problem_ends_when_another_server_sends_the_offer(host, blank, tmp_path, monkeypatch):
    """Otherwise this server would never report it as ready."""
    store = Store.open(shutil.copy(blank, tmp_path))
    try:
        app = create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
        sync = app.state.sync
        host.down = True
        assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/sb1", specs.empty()))[0] == 200
        host.down = False
        record = await stored_records.read(store, "local", "sb1")
        uid = record.uid
        assert sync.problem(uid)
        session, place = await sync.link(record).wait_for_session()
        theirs = {
            uid: confirmations.Confirmation(session, 1, confirmations.compute_fingerprint(record.revision, place, {}))
        }
        monkeypatch.setattr(confirmations, "read", lambda *_: theirs)
        sync.order_sent.clear()
        await sync.sweep()
        assert (sync.problem(uid), sync.order_sent.is_set(), host.offers) == ("", True, {})
    finally:
        store.close()


async def test_new_sandboxes_are_offered_before_repeats(blank, tmp_path, monkeypatch):
    """If a server crashes before it has sent all orders, the next one must not start with the same ones."""
    monkeypatch.setattr(host_sync, "MAX_CONCURRENT_ORDERS", 1)
    store = Store.open(shutil.copy(blank, tmp_path))
    app = create_app(store, {}, keys=callers.single_key(KEY), version="1")
    await call(app, KEY, "PUT", f"{ORG}/clusters/far")
    for number in range(40):
        await call(app, KEY, "PUT", f"{ORG}/sandboxes/a{number}", specs.empty(cluster="far"))
    await store.all_orgs().write(lambda rows: rows.execute(rows.update(sandboxes).values(sealed=True)))
    await call(app, KEY, "PUT", f"{ORG}/sandboxes/z-new", specs.empty(cluster="far"))
    orders: list[list[str]] = []

    class Mortal(host_sync.HostSync):
        async def send_order(self, record, _compiled=None):
            orders[-1].append(record.name)

    for _ in range(2):
        orders.append([])
        await Mortal(store, Links()).sweep()
    assert [order[0] for order in orders] == ["z-new", "z-new"]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    store.close()


async def test_unreadable_sandbox_blocks_no_others_in_sync(host, blank, tmp_path, caplog):
    """The unreadable sandbox blocks neither pending orders nor ended runs of other organisations."""
    store = Store.open(shutil.copy(blank, tmp_path))
    app = create_app(store, {"local": host.end}, keys=callers.single_key(KEY), version="1")
    try:
        uids = []
        for name in ("sb1", "sb2", "sb3"):
            assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/{name}", specs.empty()))[0] == 200
            uids += [uid for uid in host.offers if uid not in uids]
        unread = sandboxes.c.name.in_(["sb1"])
        newer = '{"cluster": "local", "ofANewerServer": 7}'  # logged once in a process: no other test uses this field
        change = lambda rows: rows.execute(rows.update(sandboxes).where(unread).values(spec=newer, revision=9))  # noqa: E731
        await store.all_orgs().write(change)
        host.finish(uids[1])
        await asyncio.sleep(0.01)
        for _ in range(3):
            await app.state.sync.sweep()
            await asyncio.sleep(0.01)
        assert host.acknowledged == {uids[1]}
        found = sql(store, "SELECT name, sealed FROM sandboxes ORDER BY name")
        assert [(name, bool(taken)) for name, taken in found] == [("sb1", True), ("sb3", True)]
        assert caplog.text.count("sandbox sb1") == 1
    finally:
        store.close()


def test_new_host_session_receives_all_orders_again(client, host, monkeypatch):
    """The host may have been restored from a backup."""
    monkeypatch.setattr(host_sync, "PAUSE_PER_WORK", 0)
    client.put("sandboxes/sb1", specs.empty())
    offered = ("offer", uid_of(host))
    assert host.calls == [offered]
    host.restart()
    wait_for(lambda: host.calls == [offered] * 2)
    assert client.get("sandboxes/sb1")["status"]["ready"] is True


def test_ttl_counts_from_its_offset(client, host):
    made = client.put("sandboxes/sb1", specs.empty(ttl={"duration": "30m", "offsetFrom": "updatedAt"}))
    time.sleep(0.01)
    changed = client.put(
        "sandboxes/sb1", specs.empty(labels={"a": "b"}, ttl={"duration": "30m", "offsetFrom": "updatedAt"})
    )
    assert changed["updatedAt"] > made["updatedAt"]
    assert parsed(changed["status"]["scheduledDeleteTime"]) == pytest.approx(parsed(changed["updatedAt"]) + 1800)
    far = client.put("sandboxes/sb2", specs.empty(ttl={"duration": "4294967295w"}))
    assert far["status"]["scheduledDeleteTime"] == "9999-12-31T23:59:59.000Z"


def test_lease_is_created_and_renewed(client, host):
    client.put("sandboxes/sb1", specs.empty() | {"lease": {"seconds": 30}})
    uid = uid_of(host)
    now = time.time() * 1000
    assert host.offers[uid].lease_until == pytest.approx(now + 30_000, abs=5_000)
    renewed = client.put("sandboxes/sb1/lease", {"seconds": 600})
    assert renewed["seconds"] == 600
    assert host.leases[uid] == pytest.approx(now + 600_000, abs=10_000)
    assert parsed(renewed["until"]) * 1000 == pytest.approx(host.leases[uid], abs=1)
    client.put("sandboxes/sb1", specs.empty(labels={"a": "b"}))
    assert host.offers[uid].lease_until == host.leases[uid], "a change of the spec does not change the lease"
    assert client.call("PUT", "sandboxes/sb1/lease", {"seconds": -1}).status == 400
    client.delete("sandboxes/sb1")
    assert client.call("PUT", "sandboxes/sb1/lease", {"seconds": 5}).status == 409


def test_lease_of_deleted_sandbox_is_not_renewed(client, host):
    client.put("sandboxes/sb1", specs.empty() | {"lease": {"seconds": 30}})
    host.down = True
    client.delete("sandboxes/sb1")
    answer = client.call("PUT", "sandboxes/sb1/lease", {"seconds": 600})
    assert answer.status == 409
    assert "is being deleted" in answer.error


def test_refused_renewal_leaves_the_spec_unchanged(client, host):
    """The host closes the run while the request is checked."""
    made = client.put("sandboxes/sb1", specs.empty() | {"lease": {"seconds": 30}})
    expired = EndRequest(at=1, reason=Reason.EXPIRED, message="its lease has expired")
    host.on_admit = lambda: host.closed.setdefault(uid_of(host), expired)
    calls = list(host.calls)
    answer = client.call("PUT", "sandboxes/sb1", specs.empty(labels={"a": "b"}) | {"lease": {"seconds": 600}})
    assert answer.status == 409
    assert client.get("sandboxes/sb1")["updatedAt"] == made["updatedAt"]
    assert host.calls == [*calls, ("lease", uid_of(host))]


def test_offline_host_renewal_leaves_the_spec_unchanged(client, host):
    made = client.put("sandboxes/sb1", specs.empty() | {"lease": {"seconds": 30}})
    host.down = True
    answer = client.call("PUT", "sandboxes/sb1", specs.empty(labels={"a": "b"}) | {"lease": {"seconds": 600}})
    assert (answer.status, "nothing was changed" in answer.error) == (503, True)
    assert client.get("sandboxes/sb1")["updatedAt"] == made["updatedAt"]


def test_unsaved_renewal_is_not_reported_as_unchanged(client, host, monkeypatch):
    client.put("sandboxes/sb1", specs.empty() | {"lease": {"seconds": 30}})

    def fail(*_, **_more):
        raise StoreError("disk full")

    monkeypatch.setattr(run_records, "save", fail)
    for path, body in (("", specs.empty(labels={"a": "b"}) | {"lease": {"seconds": 600}}), ("/lease", {"seconds": 60})):
        answer = client.call("PUT", f"sandboxes/sb1{path}", body)
        assert (answer.status, "nothing was changed" in answer.error) == (503, False)
        assert [call for call, _ in host.calls][-1] == "lease"


def test_lease_can_change_before_its_run_exists(client, host, monkeypatch):
    """Until then there is no lease to renew, and the corrected spec must reach the host."""
    take = host.offer

    async def refuse(_):
        raise HostUnavailableError("too many runs")

    monkeypatch.setattr(host, "offer", refuse)
    client.put("sandboxes/sb1", specs.empty() | {"lease": {"seconds": 30}})
    client.put("sandboxes/sb1", specs.empty(labels={"a": "b"}) | {"lease": {"seconds": 600}})
    began = time.time() * 1000
    monkeypatch.setattr(host, "offer", take)
    wait_for(lambda: host.offers)
    assert host.offers[uid_of(host)].lease_until == pytest.approx(began + 600_000, abs=10_000)


def test_lease_starts_with_its_run(client, host, monkeypatch):
    """The lease cannot be renewed while the host is offline, so otherwise the run would start expired."""
    host.down = True
    client.put("sandboxes/sb1", specs.empty() | {"lease": {"seconds": 30}})
    began = time.time_ns() // 1_000_000
    monkeypatch.setattr(time, "time_ns", lambda: (began + 60_000) * 1_000_000)
    host.down = False
    wait_for(lambda: host.offers)
    assert host.offers[uid_of(host)].lease_until == began + 90_000


def test_endpoints_come_from_spec_and_host(client, host):
    for name in ("shop", "cart"):
        client.put(f"workloads/default/{name}", specs.baseline(name))
    forks = [specs.fork(endpoints=[{"name": "api", "port": 80, "protocol": "grpc"}]), specs.fork("cart")]
    group = {"endpoints": [{"name": "web", "target": "https://shop.default.svc:443"}]}
    wish = specs.empty(forks=forks, defaultRouteGroup=group)
    assert [endpoint["url"] for endpoint in client.put("sandboxes/sb1", wish)["endpoints"]] == ["", ""]
    host.ports[uid_of(host)] = (
        RunEndpoint(unit="fork:default/shop", host="127.0.0.1", port=4001),
        RunEndpoint(unit="fork:default/cart", host="127.0.0.1", port=4002),
    )
    found = {endpoint["name"]: endpoint for endpoint in client.get("sandboxes/sb1")["endpoints"]}
    assert {name: endpoint["url"] for name, endpoint in found.items()} == {
        "api": "grpc://127.0.0.1:4001",
        "web": "https://127.0.0.1:4001",
        "cart": "http://127.0.0.1:4002",
    }
    assert found["web"]["target"] == "https://shop.default.svc:443"
    assert {endpoint["routeType"] for endpoint in found.values()} == {"host"}


def test_absent_host_receives_orders_later(db, host):
    host.down = True
    made = db.put("sandboxes/sb1", specs.sandbox())
    assert made["status"]["ready"] is False
    assert "No space left on device" in made["status"]["message"]
    host.down = False
    wait_for(lambda: db.get("sandboxes/sb1")["status"]["ready"])
    uid = uid_of(host)
    host.down = True
    assert db.delete("sandboxes/sb1") == {}
    assert "No space left" in db.get("sandboxes/sb1")["status"]["message"]
    host.down = False
    wait_for(lambda: uid in host.closed)


def test_status_reports_change_unknown_to_host(db, host):
    db.put("sandboxes/sb1", specs.sandbox())
    host.down = True
    status = db.put("sandboxes/sb1", specs.sandbox(labels={"a": "b"}))["status"]
    assert status["ready"] is False
    assert status["message"].startswith(
        "All desired workloads are available. (the cluster cannot receive the order now"
    )
    answer = db.call("PUT", "sandboxes/sb1/lease", {"seconds": 5})
    assert answer.status == 503
    assert "nothing was changed" in answer.error
    host.down = False
    wait_for(lambda: db.get("sandboxes/sb1")["status"]["ready"])


def test_same_reason_of_host_and_server_appears_once(db, host):
    """If the record of a run is damaged, both the order and the report fail with the same reason."""
    db.put("sandboxes/sb1", specs.sandbox())
    host.say(uid_of(host), ready=False, reason=Reason.BLOCKED, message="No space left on device")
    host.down = True
    message = db.put("sandboxes/sb1", specs.sandbox(labels={"a": "b"}))["status"]["message"]
    assert message.startswith("the cluster cannot receive the order now")
    assert message.count("No space left on device") == 1


def test_concurrently_deleted_plugin_is_refused(db, host):
    host.on_admit = lambda: sql(db.store, "DELETE FROM plugins")
    answer = db.call("PUT", "sandboxes/sb1", specs.sandbox())
    assert answer.status == 400
    assert 'no plugin "db" is published here' in answer.error
    assert (db.get("sandboxes"), host.calls) == ([], [])


def test_sandbox_that_expires_before_its_offer_never_starts(client, host):
    host.down = True
    client.put("sandboxes/sb1", specs.empty(ttl={"duration": "1m"}))
    sql(client.store, "UPDATE sandboxes SET created_at = 1")
    wait_for(lambda: "stop" in [call for call, _ in host.missed])
    host.down = False
    wait_for(lambda: client.call("GET", "sandboxes/sb1").status == 404)
    assert [call for call, _ in host.calls] == ["stop"]
    assert host.offers == {}


def test_rounds_continue_after_a_failure(client, host, caplog):
    sql(client.store, "ALTER TABLE sandboxes RENAME TO hidden")
    wait_for(lambda: "cannot use the store" in caplog.text)
    sql(client.store, "ALTER TABLE hidden RENAME TO sandboxes")
    client.put("sandboxes/sb1", specs.empty())
    host.finish(uid_of(host))
    wait_for(lambda: not sql(client.store, "SELECT name FROM sandboxes"))


def test_defect_of_one_sandbox_blocks_no_others(client, host, monkeypatch, caplog):
    offer = host.offer

    async def fails(wish):
        if wish.name == "aa":
            raise ZeroDivisionError("unforeseen")
        return await offer(wish)

    monkeypatch.setattr(host, "offer", fails)
    made = client.put("sandboxes/aa", specs.empty())
    assert made["status"]["ready"] is False
    assert "internal error of Dayfly" in made["status"]["message"]
    host.down = True
    client.put("sandboxes/bb", specs.empty())
    host.down = False
    wait_for(lambda: client.get("sandboxes/bb")["status"]["ready"])
    assert caplog.text.count("ZeroDivisionError: unforeseen") == 1, "logged once, not for each attempt"
    monkeypatch.undo()
    wait_for(lambda: client.get("sandboxes/aa")["status"]["ready"])
