"""The synchronisation of leak checks: stored reports, audit entries of deletions, and hostile hosts."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.client import KEY, ORG
from tests.server.fake_host import FakeHost
from tests.server.lossy_link import call
from tests.server.test_cloud_event_publisher import TAKEN, Joined
from tests.server.test_leak_checks import CHECK, FakeChecks, bucket, check

from dayfly.lib.clock import now_ms
from dayfly.link import server_end
from dayfly.server.access import callers
from dayfly.server.app import create_app
from dayfly.server.db.store import Store
from dayfly.server.db.tables import audit as audit_table
from dayfly.server.db.tables import cloud_events, clusters
from dayfly.server.events import event_rows
from dayfly.server.events.cloud_event_publisher import EventReceiver
from dayfly.server.leaks import leak_check_api, leak_sync
from dayfly.server.leaks.leak_metrics import METRICS
from dayfly.server.leaks.leak_sync import LeakSync
from dayfly.server.records import leak_records
from dayfly.server.records.leak_records import Author, LeakRecord
from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.leak_report import LeakDeletion, LeakFinding, LeakReport


class World:
    """A server with a host that has a leak check, and the synchronisation of leak checks with a clock."""

    def __init__(self, store: Store) -> None:
        self.store, self.clock, self.host = store, [10**12], FakeHost()
        self.host.leak_checks = FakeChecks()
        agents = Joined(store)
        self.app = create_app(store, {"local": self.host.end}, keys=callers.single_key(KEY), version="1", agents=agents)
        self.links = agents.links
        self.sync = LeakSync(store, self.links, now=lambda: self.clock[0])

    async def call(self, method: str, path: str, body: object = None, key: str = KEY) -> object:
        status, answer = await call(self.app, key, method, f"{ORG}/{path}", body)
        assert status == 200, answer
        return answer

    async def make(self) -> None:
        """Publish a plugin and create a check."""
        await self.call("PUT", "resource-plugins/bucket", bucket())
        await self.call("PUT", CHECK, check())

    def report(self, name: str = "items", **changes: object) -> None:
        kept = self.host.leak_checks.kept
        kept[name] = msgspec.structs.replace(kept[name], number=kept[name].number + 1, **changes)

    async def audited(self) -> list[tuple[str, str, str]]:
        """Return name, program and object of the deletions in the audit log."""
        rows = await self.store.for_org("local").read(lambda found: list(found.execute(found.select(audit_table))))
        found = sorted(rows, key=lambda row: row.number)
        return [(row.name, row.program, row.object) for row in found if row.action == "delete-leak"]

    async def records(self) -> list[LeakRecord]:
        return await self.store.all_orgs().read(leak_records.read_all)

    async def attention(self, key: str = KEY) -> list[dict[str, object]]:
        found = await self.call("GET", "attention", key=key)
        assert isinstance(found, list)
        return found


@pytest.fixture
async def world(tmp_path, blank):
    store = Store.open(shutil.copy(blank, tmp_path))
    yield World(store)
    store.close()


@pytest.fixture
async def world_of_each_database(place):
    store = Store.open(place)
    yield World(store)
    store.close()


def deletion(sequence: int, id_: str = "a1", **changes: object) -> LeakDeletion:
    return LeakDeletion(sequence=sequence, id=id_, plugin="bucket@1.0.0", **changes)


RECEIVER = EventReceiver(post=lambda _body: asyncio.sleep(0, TAKEN), name="receiver")
ORPHAN = LeakFinding(verdict="orphan", id="a1", name="x")


async def test_reported_leaks_need_attention_until_they_are_gone(world):
    await world.make()
    await world.sync.run_round()
    assert await world.attention() == []
    world.report(counts={"orphan": 1, "held": 4}, findings=(ORPHAN,))
    await world.sync.run_round()
    (found,) = await world.attention()
    assert (found["kind"], found["check"], found["since"]) == ("leak", "items", 10**12)
    assert found["message"] == "it has found 1 orphan"
    world.clock[0] += 1000
    world.report(counts={"orphan": 2}, findings=(ORPHAN, msgspec.structs.replace(ORPHAN, name="y")))
    await world.sync.run_round()
    (found,) = await world.attention()
    assert (found["message"], found["since"]) == ("it has found 2 orphans", 10**12)
    world.report(counts={}, findings=())
    await world.sync.run_round()
    assert await world.attention() == []


async def test_silent_host_keeps_its_last_report(world, monkeypatch):
    await world.make()
    world.report(error="exit code 1")
    await world.sync.run_round()
    monkeypatch.setattr(leak_sync, "ANSWER_TIMEOUT_S", 0)
    world.host.end.receive = lambda _message: None
    world.host.end.answer = lambda _query: None
    await world.sync.run_round()
    (found,) = await world.attention()
    assert "its last sweep has no complete list: exit code 1" in found["message"]


async def test_each_deletion_has_one_audit_entry_with_its_author(world):
    await world.make()
    other = (await world.call("POST", "keys", {"name": "ann", "role": "member"}))["key"]
    await world.call("POST", f"{CHECK}/sweep", {"plan": "p1"}, other)
    world.report(deletions=(deletion(4), deletion(7, "b2", plan="p1"), deletion(8, "c3", plan="older")))
    for _ in range(2):
        await world.sync.run_round()
    assert await world.audited() == [
        ("this home", "leak check items", "leakchecks/items/a1/bucket@1.0.0"),
        ("ann", "leak check items (by plan)", "leakchecks/items/b2/bucket@1.0.0"),
        ("", "leak check items (by plan)", "leakchecks/items/c3/bucket@1.0.0"),
    ]
    (record,) = await world.records()
    assert (record.deletions, record.last_deletion) == (3, 8)


async def test_deletions_before_a_change_have_the_former_author(world):
    await world.make()
    other = (await world.call("POST", "keys", {"name": "bob", "role": "member"}))["key"]
    await world.call("POST", f"{CHECK}/sweep", {"plan": "p1"})
    world.report(deletions=(deletion(1), deletion(2, "b2", plan="p1")))
    await world.call("POST", f"{CHECK}/sweep", {"plan": "p2"}, other)
    await world.call("PUT", CHECK, check(grace="3h"), other)
    assert [name for name, _, _ in await world.audited()] == ["this home", "this home"]


async def test_check_of_a_silent_host_cannot_be_applied(world, monkeypatch):
    await world.make()
    before = await world.records()
    monkeypatch.setattr(server_end, "ANSWER_TIMEOUT_S", 0)
    world.host.end.answer = lambda _query: None
    answer = await call(world.app, KEY, "PUT", f"{ORG}/{CHECK}", check())
    assert (answer[0], await world.records()) == (503, before)
    assert "the cluster local cannot be reached: it does not answer; nothing was changed" in str(answer[1])


async def test_check_that_is_applied_again_has_no_old_deletions(world):
    await world.make()
    world.report(deletions=(deletion(5),))
    await world.sync.run_round()
    (before,) = await world.records()
    who = Author("k", "bob")
    await world.store.for_org("local").write(
        lambda rows: leak_records.apply(rows, "local", "items", who, 7, is_new=True)
    )
    (after,) = await world.records()
    assert after == LeakRecord("local", "local", "items", 7, last_deletion=5, applied_key="k", applied_name="bob")
    await world.sync.run_round()
    assert len(await world.audited()) == before.deletions == 1


async def test_check_with_a_damaged_record_is_listed_and_applied_again(world):
    await world.make()
    world.report(deletions=(deletion(5),))
    await world.sync.run_round()
    world.report(spec=LeakCheckSpec(plugin=""), plugin="", error="its record cannot be read")
    (found,) = await world.call("GET", "leakchecks")
    assert (found["spec"]["cluster"], found["status"]["error"]) == ("local", "its record cannot be read")
    await world.sync.run_round()
    await world.call("PUT", CHECK, check())
    (record,) = await world.records()
    assert (record.deletions, record.last_deletion) == (1, 5)


async def test_deletions_that_begin_between_two_queries_are_audited(world, monkeypatch):
    await world.make()
    await world.call("PUT", "leakchecks/others", check())
    checks, answered = world.host.leak_checks, []

    def reports() -> tuple[LeakReport, ...]:
        answered.append(tuple(checks.kept.values()))
        if len(answered) == 1:
            world.report("others", deletions=(deletion(11),))
            world.report(counts={"orphan": 1}, findings=(ORPHAN,), deletions=(deletion(12, "b2"),))
        return answered[-1]

    world.report(counts={"orphan": 1}, findings=(ORPHAN,))
    monkeypatch.setattr(checks, "reports", reports)
    for _ in range(3):
        await world.sync.run_round()
    found = [object_ for _, _, object_ in await world.audited()]
    assert found == ["leakchecks/items/b2/bucket@1.0.0", "leakchecks/others/a1/bucket@1.0.0"]
    assert {each.last_deletion for each in await world.records()} == {12}, "no check needs old deletions again"


async def test_two_servers_write_each_deletion_once(world_of_each_database):
    world = world_of_each_database
    await world.make()
    world.report(deletions=(deletion(1), deletion(2)))
    second = LeakSync(world.store, world.links)
    link = world.links.get("local", "local")
    await asyncio.gather(*(each.sync(link) for each in (world.sync, second, world.sync, second)))
    assert len(await world.audited()) == 2


async def test_unchanged_reports_are_not_written(world, monkeypatch):
    await world.make()
    world.report(counts={"orphan": 1}, findings=(ORPHAN,), deletions=(deletion(1),))
    await world.sync.run_round()
    writes: list[object] = []
    monkeypatch.setattr(leak_records, "save", lambda *change: writes.append(change))
    await world.sync.run_round()
    assert writes == []
    world.report()
    await world.sync.run_round()
    assert len(writes) == 1


async def test_deletions_of_a_deleted_check_are_audited(world):
    await world.make()
    many = leak_sync.MAX_DELETIONS + 1
    world.report(deletions=tuple(deletion(number) for number in range(1, many + 1)))
    await world.call("DELETE", CHECK)
    assert len(await world.audited()) == many
    assert await world.records() == []


async def test_deletion_during_the_deletion_of_a_check_is_audited(world):
    await world.make()
    begun = iter([deletion(1), deletion(2, "b2")])
    world.host.leak_checks.on_order = lambda: [world.report(deletions=(each,)) for each in itertools.islice(begun, 1)]
    await world.call("DELETE", CHECK)
    assert [object_ for _, _, object_ in await world.audited()] == [
        "leakchecks/items/a1/bucket@1.0.0",
        "leakchecks/items/b2/bucket@1.0.0",
    ]
    assert (world.host.leak_checks.kept, await world.records()) == ({}, [])


async def test_host_with_endless_deletions_cannot_hold_up_a_request(world, monkeypatch):
    monkeypatch.setattr(leak_sync, "MAX_DELETIONS", 2)
    monkeypatch.setattr(leak_sync, "MAX_QUERIES", 3)
    await world.make()
    checks, begun = world.host.leak_checks, itertools.count(1)

    def reports() -> tuple[LeakReport, ...]:
        if checks.kept:
            world.report(deletions=tuple(deletion(next(begun)) for _ in range(5)))
        return tuple(checks.kept.values())

    monkeypatch.setattr(checks, "reports", reports)
    status, answer = await call(world.app, KEY, "DELETE", f"{ORG}/{CHECK}")
    assert (status, "deletions that are not in the audit log yet" in str(answer)) == (503, True)
    assert len(await world.audited()) == 6 * leak_check_api.MAX_DROPS


async def test_check_that_its_host_lacks_is_forgotten_later(world):
    await world.make()
    (record,) = await world.records()
    del world.host.leak_checks.kept["items"]
    world.clock[0] = record.created_at + leak_sync.SETTLE_MS
    await world.sync.run_round()
    assert await world.records() == [record], "its host may receive the order later"
    world.clock[0] += 1
    await world.sync.run_round()
    assert await world.records() == []


async def test_host_in_another_process_is_queried_less_often(world):
    world.links.get("local", "local").shared = True
    await world.sync.run_round()
    await world.make()
    for wait_ms, errors in ((leak_sync.REMOTE_INTERVAL_MS - 1, []), (1, ["first"]), (1, ["first"])):
        world.report(error=errors[-1] if errors else "first")
        world.clock[0] += wait_ms
        await world.sync.run_round()
        found = [each.decoded_report for each in await world.records()]
        assert [each.error for each in found if each is not None] == errors
        world.report(error="second")


async def test_check_of_a_removed_cluster_is_forgotten(world):
    await world.make()
    world.report(error="x")
    await world.sync.run_round()
    world.links.remove("local", "local")
    await world.sync.run_round()
    assert await world.records() == []


async def test_hostile_host_changes_only_its_own_checks(world):
    other = FakeHost()
    world.links.add("local", {"far": other.end})
    await world.make()
    other.leak_checks = FakeChecks()
    spec = world.host.leak_checks.kept["items"].spec
    far = msgspec.structs.replace(spec, cluster="far")
    evil = tuple(deletion(number, "\x00\u202e" * 900, plan="p") for number in range(1, 500))
    for name, of in (("items", spec), ("x" * 900, far), ("evil", far)):
        other.leak_checks.kept[name] = LeakReport(name=name, spec=of, plugin="b", error="\x00", deletions=evil)
    await world.sync.run_round()
    assert [(each.cluster, each.name) for each in await world.records()] == [("far", "evil"), ("local", "items")]
    found = await world.audited()
    assert len(found) == leak_sync.MAX_DELETIONS
    assert all(text.isprintable() and len(text) < 768 for _, _, text in found)


async def test_host_cannot_take_over_the_name_of_a_known_check(world):
    await world.make()
    spec = msgspec.structs.replace(world.host.leak_checks.kept["items"].spec, cluster="afar")
    other = FakeHost()
    other.leak_checks = FakeChecks()
    other.leak_checks.kept["items"] = LeakReport(name="items", spec=spec, plugin="evil")
    world.links.add("local", {"afar": other.end})
    found = await world.call("GET", CHECK)
    assert isinstance(found, dict)
    assert found["spec"]["cluster"] == "local"
    await world.call("DELETE", CHECK)
    assert (world.host.leak_checks.kept, len(other.leak_checks.kept)) == ({}, 1)


async def test_check_of_a_cluster_without_a_link_is_kept(world):
    """A replica that starts may not have read the mailboxes of its clusters yet."""
    await world.make()
    await world.sync.run_round()
    agent = {"name": "east", "created_at": 1, "agent": True}
    record = LeakRecord("local", "east", "far", 1, last_deletion=7)
    await world.store.for_org("local").write(
        lambda rows: (rows.insert(clusters, agent), leak_records.save(rows, record))
    )
    await world.sync.run_round()
    assert record in await world.records()
    await world.store.for_org("local").write(
        lambda rows: rows.execute(rows.delete(clusters).where(clusters.c.name == "east"))
    )
    await world.sync.run_round()
    assert record not in await world.records()


async def test_silent_host_is_listed_with_its_last_report(world, monkeypatch):
    await world.make()
    world.report(counts={"orphan": 1}, findings=(ORPHAN,), plan="p", listed_at=10**12)
    await world.sync.run_round()
    monkeypatch.setattr(server_end, "ANSWER_TIMEOUT_S", 0)
    world.host.end.answer = lambda _query: None
    for found in (await world.call("GET", "leakchecks"), [await world.call("GET", CHECK)]):
        [each] = found
        state = each["status"]
        assert (state["counts"], state["plan"], state["findings"]) == ({"orphan": 1}, "", [])
        assert state["listedAt"] == "2001-09-09T01:46:40.000Z"
        assert "this is the last report of the cluster, which cannot be reached: it does not answer" in state["error"]
    status, answer = await call(world.app, KEY, "POST", f"{ORG}/{CHECK}/sweep", {})
    assert (status, "has this leak check, and cannot be reached" in str(answer)) == (503, True)


async def test_metrics_have_findings_age_and_deletions(world):
    await world.make()
    world.report(counts={"orphan": 2, "held": 3}, listed_at=now_ms() - 5_000, deletions=(deletion(1),))
    await world.sync.run_round()
    families = {each.name: each for each in text_string_to_metric_families(await world.call("GET", "metrics"))}
    assert {each.documentation for each in families.values()} >= {metric.help for metric in METRICS}
    found = {each.labels["verdict"]: each.value for each in families["dayfly_leak_findings"].samples}
    assert found == {"orphan": 2, "held": 3, "ending": 0, "missing": 0, "foreign": 0, "unknown": 0}
    (age,) = families["dayfly_leak_list_age_seconds"].samples
    assert age.labels == {"cluster": "local", "check": "items"}
    assert age.value >= 5
    assert families["dayfly_leak_interval_seconds"].samples[0].value == 3600
    assert families["dayfly_leak_deletions"].samples[0].value == 1
    scoped = (await world.call("POST", "keys", {"name": "ci", "role": "viewer", "scope": ["name:ci-*"]}))["key"]
    assert 'check="' not in await world.call("GET", "metrics", key=scoped)


async def pending(world):
    """Return the stored events, the oldest first."""
    rows = await world.store.for_org("local").read(lambda found: list(found.execute(found.select(cloud_events))))
    return [json.loads(row.body) for row in sorted(rows, key=lambda row: (row.at, row.id))]


async def test_new_leaks_and_deletions_are_events(world):
    world.sync = LeakSync(world.store, world.links, RECEIVER, now=lambda: world.clock[0])
    await world.make()
    world.report(counts={"orphan": 1}, findings=(ORPHAN,))
    await world.sync.run_round()
    world.report(counts={"orphan": 1}, findings=(ORPHAN,))
    await world.sync.run_round()
    world.clock[0] += 10
    other = msgspec.structs.replace(ORPHAN, name="y")
    world.report(counts={"orphan": 1, "missing": 1}, findings=(other,), deleted=("a1",))
    await world.sync.run_round()
    first, found, deleted = await pending(world)
    assert [each["name"] for each in first["data"]["items"]] == ["x"]
    assert [each["name"] for each in found["data"]["items"]] == ["y"]
    assert (found["type"], found["subject"], found["data"]["count"]) == ("dev.dayfly.leak.found", "items", 1)
    assert (deleted["type"], deleted["data"]["items"]) == ("dev.dayfly.leak.deleted", [{"id": "a1"}])
    assert len({first["id"], found["id"], deleted["id"]}) == 3
    assert found["source"] == "urn:dayfly:organisation:local:cluster:local"


async def test_deletions_of_two_sweeps_within_a_round_are_one_event(world):
    world.sync = LeakSync(world.store, world.links, RECEIVER, now=lambda: world.clock[0])
    await world.make()
    await world.sync.run_round()
    first, failed, last = deletion(1, "a1", done=True), deletion(2, "b2"), deletion(3, "c3", done=True)
    world.report(deletions=(first,), deleted=("a1",))
    world.report(deletions=(first, failed, last), deleted=("c3",))
    for _ in range(2):
        await world.sync.run_round()
    (event,) = await pending(world)
    assert event["data"]["items"] == [{"id": "a1"}, {"id": "c3"}]


async def test_leaks_have_their_event_once_there_is_room(world, monkeypatch):
    world.sync = LeakSync(world.store, world.links, RECEIVER, now=lambda: world.clock[0])
    await world.make()
    monkeypatch.setattr(event_rows, "MAX_PENDING", 0)
    world.report(counts={"orphan": 1}, findings=(ORPHAN,))
    await world.sync.run_round()
    assert await pending(world) == []
    monkeypatch.undo()
    world.report(counts={"orphan": 1}, findings=(ORPHAN,))
    await world.sync.run_round()
    assert [each["type"] for each in await pending(world)] == ["dev.dayfly.leak.found"]


async def test_event_of_many_leaks_lists_a_limited_number(world):
    world.sync = LeakSync(world.store, world.links, RECEIVER, now=lambda: world.clock[0])
    await world.make()
    many = tuple(msgspec.structs.replace(ORPHAN, name=str(number)) for number in range(500))
    world.report(counts={"orphan": 500}, findings=many)
    await world.sync.run_round()
    (event,) = await pending(world)
    assert (event["data"]["count"], len(event["data"]["items"])) == (500, 20)


async def test_leaks_are_hidden_from_scoped_keys_and_other_orgs(world):
    await world.make()
    world.report(error="x")
    await world.sync.run_round()
    scoped = (await world.call("POST", "keys", {"name": "ci", "role": "viewer", "scope": ["name:ci-*"]}))["key"]
    assert await world.attention(scoped) == []
    assert await world.store.for_org("other").read(leak_records.read_all) == []
