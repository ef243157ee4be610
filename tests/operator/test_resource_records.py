"""Tokens of resources in step pods, and the records of resources whose runs have ended."""

from __future__ import annotations

import asyncio
import base64
import uuid
import zlib
from collections.abc import Callable

import msgspec
import pytest
from tests.kube.fake import WRITE_HARMS, FakeCluster, Fault, Harm, run
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, Scene, chain, gone, ready, wish
from tests.operator.rig.world import HOME, KINDS, World, live

from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES, SECRETS
from dayfly.operator.records.record_store import MAX_RECORDS, EndedResource, RecordStore
from dayfly.operator.records.registry import ResourceRegistry
from dayfly.operator.records.resource_key import NAME, TYPE, BrokenKeyError, load_identity
from dayfly.plan.leaks.records import KEEP_RECORDS_MS
from dayfly.spec.identity import resource_id
from dayfly.spec.resource_token import verified_host

NOW = 1_767_225_600_000
PLUGIN = "pg"


def chain_world(seed: int = 0) -> World:
    world = Scene(CHAIN, CHAIN_UNITS, chain).world(seed)
    world.keep_records()
    return world


def recorded(world: World) -> dict[str, EndedResource]:
    """Return the stored records of all resources in the story."""
    reader = client(world.cluster, "reader")
    ids = [resource_id(each, "db") for each in {line.run for line in world.cloud.log}]
    return run(RecordStore(reader, HOME, lambda: NOW).find(ids))


class TestTokens:
    def test_token_verifies_only_for_its_resource(self):
        boxes: list[str] = []

        async def story(world: World) -> None:
            world.start(2)
            boxes.extend(world.sandbox(wish(), name) for name in ("box", "other"))
            await world.until(lambda: ready(world) and ready(world, "other"), "ready")

        world = live(chain_world, story)
        [secret] = [each for each in world.cluster.objects("secrets") if each["type"] == TYPE]
        assert secret["immutable"] is True
        data = msgspec.convert(secret["data"], dict[str, bytes])
        host, key = data["host"].decode(), data["key"]
        ids = {resource_id(box, "db") for box in boxes}
        tokens = {}
        for given in world.cloud.given.values():
            own, token = given["DAYFLY_RESOURCE_ID"].decode(), given["DAYFLY_RESOURCE_TOKEN"].decode()
            assert {each: verified_host(key, token, each) for each in ids} == {
                each: host if each == own else "" for each in ids
            }
            tokens[own] = token
        assert tokens.keys() == ids

    def test_step_has_no_key_in_its_pod(self):
        async def story(world: World) -> None:
            world.start()
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")

        world = live(chain_world, story)
        [secret] = [each for each in world.cluster.objects("secrets") if each["type"] == TYPE]
        written = [each.new for each in world.cluster.store.after(world.cluster.kind("pods"), 0) if each.new]
        assert written
        assert secret["data"]["key"] not in str(written)
        assert NAME not in str(written)

    def test_foreign_key_secret_blocks_steps_with_its_name(self):
        async def story(world: World) -> None:
            body = {"metadata": {"name": NAME}, "type": "Opaque", "data": {"key": "eA=="}}
            world.ask("POST", f"/api/v1/namespaces/{HOME}/secrets", body)
            world.start()
            world.sandbox(wish())
            await world.until(lambda: NAME in world.status().get("message", ""), "the report")
            assert not world.cloud.log
            world.delete()
            world.ask("DELETE", f"/api/v1/namespaces/{HOME}/secrets/{NAME}")
            await gone(world)

        live(chain_world, story)


def test_two_replicas_get_the_same_key():
    async def main() -> None:
        server = await cluster()
        found = await asyncio.gather(*(load_identity(client(server, f"o{each}"), HOME) for each in range(4)))
        assert len(set(found)) == 1

    run(main())


@pytest.mark.parametrize("harm", WRITE_HARMS, ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("number", range(2))
def test_ended_resource_is_recorded_whatever_write_of_it_fails(harm: Harm, number: int):
    """The key and the first record are the only writes in the operator's namespace, in this order."""
    seen = 0

    def hook(count: int, call) -> Fault | None:
        nonlocal seen
        if not count or f"/namespaces/{HOME}/secrets" not in call.request.path:
            return None
        seen += 1
        return Fault(harm) if seen == number + 1 else None

    async def story(world: World) -> None:
        world.hook = hook
        world.start()
        await chain(world)

    world = live(chain_world, story)
    assert seen > number
    [record] = recorded(world).values()
    assert (record.publisher, record.plugin.partition("@")[0]) == ("cluster", PLUGIN)
    assert NOW < record.ended_at < NOW + 86_400_000
    assert {record.run} == {each.old["metadata"]["name"] for each in _ends(world)}


@pytest.mark.parametrize("part", range(4))
def test_no_ledger_goes_before_its_record(part: int):
    """Each crash of the story: at every moment, a resource has its Run or its record."""
    total = len(_writes(lambda _count: None))
    for number in range(1 + part, total + 1, 4):
        world = _writes_of(lambda count, number=number: Fault(Harm.CRASH_AFTER) if count == number else None)
        assert set(recorded(world)) == {resource_id(each, "db") for each in {line.run for line in world.cloud.log}}, (
            number
        )
        versions = [each.version for each in _ends(world)]
        firsts = [each.version for each in _record_writes(world)]
        assert min(firsts) < min(versions), number


def _writes(fault: Callable[[int], Fault | None]) -> list[str]:
    return _writes_of(fault).writes


def _writes_of(fault: Callable[[int], Fault | None]) -> World:
    async def story(world: World) -> None:
        world.hook = lambda count, _call: fault(count) if count else None
        world.start()
        await chain(world)

    return live(chain_world, story)


def _ends(world: World) -> list:
    return [each for each in world.cluster.store.after(world.cluster.kind("runs"), 0) if each.new is None]


def _record_writes(world: World) -> list:
    written = world.cluster.store.after(world.cluster.kind("secrets"), 0)
    return [each for each in written if each.new and each.new.get("type") == "dayfly.dev/resource-records"]


# --- the store --------------------------------------------------------------------------------------------------------


async def cluster() -> FakeCluster:
    made = FakeCluster(seed=1, extra=KINDS)
    await client(made, "admin").create(NAMESPACES, {"metadata": {"name": HOME}})
    return made


def client(server: FakeCluster, name: str = "operator") -> KubeClient:
    return KubeClient(server.transport(name), seed=1)


def ended(number: int, at: int = NOW) -> EndedResource:
    name = names.run_name("box", str(number))
    return EndedResource(f"{number:026x}", "cluster", f"pg@1.0.{number % 3}", at, name)


def segments(server: FakeCluster) -> list[dict]:
    return [each for each in server.objects("secrets") if each["type"] == "dayfly.dev/resource-records"]


class TestStore:
    async def test_records_are_found_by_id(self):
        store = RecordStore(client(await cluster()), HOME, lambda: NOW)
        await store.add([ended(1), ended(2)])
        assert await store.find([ended(2).id, ended(3).id]) == {ended(2).id: ended(2)}
        assert await store.find([]) == {}

    async def test_record_keeps_the_sandbox_of_its_server(self):
        store = RecordStore(client(await cluster()), HOME, lambda: NOW)
        of_server = ended(2)._replace(sandbox_uid=str(uuid.uuid4()))
        for each in (ended(1), of_server, ended(3)):
            await store.add([each])
        wanted = {each.id: each for each in (ended(1), of_server, ended(3))}
        assert await store.find(wanted) == wanted

    async def test_records_of_an_earlier_operator_have_no_sandbox(self):
        """Its segments are the same without the last part."""
        server = await cluster()
        store = RecordStore(client(server), HOME, lambda: NOW)
        await store.add([ended(1)._replace(sandbox_uid=str(uuid.uuid4()))])
        [secret] = segments(server)
        plugins, rows, _ = msgspec.msgpack.decode(zlib.decompress(base64.b64decode(secret["data"]["records"])))
        earlier = zlib.compress(msgspec.msgpack.encode((plugins, rows)))
        secret["data"]["records"] = base64.b64encode(earlier).decode()
        await client(server, "earlier").update(SECRETS.read_as(dict), secret, secret["metadata"]["name"], HOME)
        assert await store.find([ended(1).id]) == {ended(1).id: ended(1)}

    async def test_simultaneous_ends_share_a_write(self):
        server = await cluster()
        store = RecordStore(client(server), HOME, lambda: NOW)
        await store.add([ended(0)])
        before = len(server.store.after(server.kind("secrets"), 0))
        await asyncio.gather(*(store.add([ended(each)]) for each in range(1, 100)))
        assert len(server.store.after(server.kind("secrets"), 0)) - before <= 2
        assert len(await store.find([ended(each).id for each in range(100)])) == 100

    async def test_two_replicas_lose_no_record(self):
        server = await cluster()
        stores = [RecordStore(client(server, f"o{each}"), HOME, lambda: NOW) for each in range(3)]
        for number in range(60):
            await asyncio.gather(*(store.add([ended(3 * number + at)]) for at, store in enumerate(stores)))
        assert len(await stores[0].find([ended(each).id for each in range(180)])) == 180

    async def test_repeated_record_is_stored_once(self):
        server = await cluster()
        for each in range(3):
            await RecordStore(client(server, f"o{each}"), HOME, lambda: NOW).add([ended(1)])
        assert len(segments(server)) == 1

    async def test_full_secret_is_followed_by_another(self):
        server = await cluster()
        store = RecordStore(client(server), HOME, lambda: NOW)
        await store.add(ended(each) for each in range(MAX_RECORDS))
        await store.add([ended(MAX_RECORDS)])
        await RecordStore(client(server, "other"), HOME, lambda: NOW).add([ended(MAX_RECORDS + 1)])
        assert len(segments(server)) == 2
        assert len(await store.find([ended(each).id for each in range(MAX_RECORDS + 2)])) == MAX_RECORDS + 2
        assert max(len(each["data"]["records"]) for each in segments(server)) < 64 * MAX_RECORDS

    async def test_records_are_kept_for_400_days(self):
        server, now = await cluster(), NOW
        await RecordStore(client(server), HOME, lambda: now).add([ended(1)])
        now += KEEP_RECORDS_MS
        store = RecordStore(client(server, "next"), HOME, lambda: now)
        await store.add([ended(2, now)])
        assert set(await store.find([ended(1).id, ended(2).id])) == {ended(1).id, ended(2).id}
        now += 1
        await store.add([ended(3, now)])
        assert set(await store.find([ended(1).id, ended(2).id])) == {ended(2).id}
        now += KEEP_RECORDS_MS + 1
        await RecordStore(client(server, "last"), HOME, lambda: now).add([ended(4, now)])
        assert len(segments(server)) == 1

    async def test_secret_of_another_program_is_left_alone(self):
        server = await cluster()
        meta = {"name": "dayfly-resources-x", "namespace": HOME, "labels": {"dayfly.dev/resource-records": "true"}}
        for name, kind in (("a", "Opaque"), ("b", "dayfly.dev/resource-records")):
            body = {"metadata": meta | {"name": name}, "type": kind, "data": {"records": "eA=="}}
            await client(server, "tenant").create(SECRETS, body, HOME)
        store = RecordStore(client(server), HOME, lambda: NOW)
        await store.add([ended(1)])
        assert set(await store.find([ended(1).id])) == {ended(1).id}
        assert {each["metadata"]["name"]: each["data"]["records"] for each in server.objects("secrets")}["b"] == "eA=="

    async def test_unreadable_records_are_an_error_and_not_an_empty_answer(self):
        server = await cluster()
        server.faults = lambda _call: Fault(Harm.UNREACHABLE)
        with pytest.raises(errors.ApiError):
            await RecordStore(client(server), HOME, lambda: NOW).find([ended(1).id])

    async def test_failed_record_is_written_with_the_next(self):
        server = await cluster()
        store = RecordStore(client(server), HOME, lambda: NOW)
        server.refuses = lambda _request: _forbidden()
        with pytest.raises(errors.Refused):
            await store.add([ended(1)])
        server.refuses = lambda _request: None
        await store.add([ended(2)])
        assert set(await store.find([ended(1).id, ended(2).id])) == {ended(1).id, ended(2).id}


def _forbidden():
    from tests.kube.fake import Refusal

    return Refusal(403, "no")


async def test_broken_key_is_an_error_with_advice():
    server = await cluster()
    await client(server).create(SECRETS, {"metadata": {"name": NAME}, "type": TYPE, "data": {}}, HOME)
    with pytest.raises(BrokenKeyError, match="restore it from a backup"):
        await ResourceRegistry(client(server), HOME, lambda: NOW).token("a" * 26)
