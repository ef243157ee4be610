"""Caches are complete after any fault of the watch, and report their age."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator

import pytest
from tests.kube.fake import FakeCluster, Fault, Harm, at_random, run

from dayfly.kube import errors
from dayfly.kube.cache import Cache
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS, Key, ObjectMeta, Secret
from dayfly.kube.reflector import Reflector
from dayfly.kube.transport import Stream
from dayfly.kube.watch import Bookmark, WatchTimeouts, watch

OWNER = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "owner-uid"}


def secret(name: str, **metadata) -> dict:
    return {"metadata": {"name": name, **metadata}}


@contextlib.asynccontextmanager
async def reflecting(cluster: FakeCluster, *, transport=None, **options) -> AsyncIterator[Reflector]:
    """A running reflector of all Secrets after its first list."""
    client = KubeClient(transport or cluster.transport("reflector"), seed=1)
    reflector = Reflector(client, SECRETS, Cache(("x",)), seed=1, **options)
    task = asyncio.create_task(reflector.run())
    await reflector.wait_synced()
    try:
        yield reflector
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def change(client: KubeClient, dice: random.Random, name: str) -> None:
    """Create, label or delete."""
    labels = {"labels": {"x": dice.choice("12")}}
    match dice.choice(["create", "label", "delete"]):
        case "create":
            await client.create(SECRETS, secret(name, **labels), "default")
        case "label":
            await client.patch(SECRETS, {"metadata": labels}, name, "default")
        case "delete":
            await client.delete(SECRETS, name, "default")


class TestReflector:
    def test_follows_changes(self):
        """Listeners get listed, added, changed and deleted objects with their former state."""

        async def main():
            cluster = FakeCluster()
            client = KubeClient(cluster.transport())
            await client.create(SECRETS, secret("a"), "default")
            changes = []
            async with reflecting(cluster, page=1) as reflector:
                reflector.cache.listen(
                    lambda change: changes.append((str(change.key), bool(change.old), bool(change.new)))
                )
                await client.create(SECRETS, secret("b"), "default")
                await client.patch(SECRETS, {"metadata": {"labels": {"x": "1"}}}, "a", "default")
                await client.delete(SECRETS, "b", "default")
                await asyncio.sleep(1)
                expected = [
                    ("default/a", False, True),
                    ("default/b", False, True),
                    ("default/a", True, True),
                    ("default/b", True, False),
                ]
                assert expected == changes
                assert reflector.cache.get("a", "default").metadata.labels["x"] == "1"
                assert reflector.cache.get("b", "default") is None
                assert len(reflector.cache) == 1

        run(main())

    def test_a_deletion_in_a_gap_is_reported(self):
        """After an expired version, the list is compared with the cache; a new object with the same name is another
        one.
        """

        async def main():
            cluster = FakeCluster()
            client = KubeClient(cluster.transport())
            for name in ("stays", "goes", "returns"):
                await client.create(SECRETS, secret(name), "default")
            changes = []
            async with reflecting(cluster) as reflector:
                reflector.cache.listen(
                    lambda change: changes.append((change.key.name, bool(change.old), bool(change.new)))
                )
                changes.clear()
                cluster.faults = lambda call: Fault(Harm.UNREACHABLE) if call.client == "reflector" else None
                cluster.store.compact()
                await asyncio.sleep(700)  # the watch ends, and a new one is refused
                await client.delete(SECRETS, "goes", "default")
                await client.delete(SECRETS, "returns", "default")
                await client.create(SECRETS, secret("returns"), "default")
                cluster.store.compact()
                assert isinstance(reflector.error, errors.ServerError)
                assert reflector.age > 90
                cluster.faults = lambda call: None
                await asyncio.sleep(100)
                assert reflector.error is None
            expected = [("goes", True, False), ("returns", True, False), ("returns", False, True)]
            assert sorted(expected) == sorted(changes)
            assert changes.index(expected[1]) < changes.index(expected[2])

        run(main())

    @pytest.mark.parametrize("seed", range(20))
    def test_ends_true_whatever_happens_to_the_watch(self, seed):
        """Random writes, breaks, 410s, stale pages, compactions and delays: the cache ends complete, with all
        deletions.
        """

        async def main():
            dice = random.Random(seed)
            cluster = FakeCluster(seed)
            writer = KubeClient(cluster.transport("writer"))
            transport = cluster.transport("reflector")
            transport.view.delay = dice.choice([0.0, 0.3])
            breaks = at_random(seed, 0.5, (Harm.BREAK, Harm.GONE, Harm.UNREACHABLE))
            cluster.faults = lambda call: breaks(call) if call.client == "reflector" else None
            alive: set[Key] = set()

            def follow(change):
                (alive.add if change.new else alive.discard)(change.key)

            async with reflecting(cluster, transport=transport, page=2) as reflector:
                reflector.cache.listen(follow)
                for _ in range(100):
                    name = dice.choice("abcdef")
                    with contextlib.suppress(errors.Refused):
                        await change(writer, dice, name)
                    if dice.random() < 0.1:
                        cluster.store.compact()
                    await asyncio.sleep(dice.choice([0, 0, 0.2, 5]))
                cluster.faults = lambda call: None
                await asyncio.sleep(1000)
                truth = {item["metadata"]["name"]: item["metadata"] for item in cluster.objects("secrets")}
                held = {item.metadata.name: item.metadata for item in reflector.cache}
                assert {name: meta["resourceVersion"] for name, meta in truth.items()} == {
                    name: meta.resource_version for name, meta in held.items()
                }
                assert {key.name for key in alive} == truth.keys()
                for value in "12":
                    wanted = {name for name, meta in truth.items() if meta.get("labels", {}).get("x") == value}
                    assert wanted == {item.metadata.name for item in reflector.cache.labelled("x", value)}

        run(main())

    def test_cache_lists_again_after_a_server_restore(self):
        """The restored server's versions are behind the known one: after some tries the cache lists again."""

        async def main():
            cluster, backup = FakeCluster(), FakeCluster()
            transport = cluster.transport("reflector")
            async with reflecting(cluster, transport=transport) as reflector:
                await KubeClient(cluster.transport()).create(SECRETS, secret("lost"), "default")
                await asyncio.sleep(1)
                assert len(reflector.cache) == 1
                transport.cluster = backup
                await asyncio.sleep(700)  # the watch has ended, and others are refused
                assert len(reflector.cache) == 0
                assert reflector.error is None

        run(main())

    @pytest.mark.parametrize("line", [b"<html>", b'{"type": "ADDED", "object": {"metadata": {"name": "\xe9"}}}'])
    def test_unreadable_watch_line_is_survived(self, line):
        """An extension API server may not be written in Go."""

        async def main():
            cluster = FakeCluster()
            transport = cluster.transport("reflector")
            async with reflecting(cluster, transport=transport) as reflector:
                watching = transport.stream

                @contextlib.asynccontextmanager
                async def garbled(_request):
                    async def chunks():
                        yield line + b"\n"

                    transport.stream = watching
                    yield Stream(200, chunks())

                transport.stream = garbled
                await asyncio.sleep(700)  # the watch has ended, and another one has begun
                assert transport.stream == watching
                await KubeClient(cluster.transport()).create(SECRETS, secret("s"), "default")
                await asyncio.sleep(60)
                assert len(reflector.cache) == 1

        run(main())

    def test_silence_is_not_believed(self):
        """A stream without bookmarks is reopened; until then the age grows."""

        async def main():
            cluster = FakeCluster()
            transport = cluster.transport("reflector")
            async with reflecting(cluster, transport=transport, timeouts=WatchTimeouts(silence=30.0)) as reflector:
                await asyncio.sleep(29)
                assert reflector.age == pytest.approx(29)
                watches = len(cluster.calls)
                await asyncio.sleep(5)
                assert len(cluster.calls) > watches
                assert "silent" in str(reflector.error)

        run(main())

    def test_only_a_lasting_connection_loss_is_logged_as_warning(self, monkeypatch, caplog):
        said: list[int] = []

        async def main():
            twice, again = asyncio.Event(), asyncio.Event()

            class Heard(logging.Handler):
                def emit(self, record):
                    said.append(record.levelno)
                    if len(said) == 2:
                        twice.set()

            log = logging.getLogger("dayfly.kube.reflector")
            monkeypatch.setattr(log, "handlers", [Heard()])
            caplog.set_level(logging.INFO, log.name)
            cluster = FakeCluster()
            async with reflecting(cluster) as reflector:
                reflector.cache.listen(lambda _change: again.set())
                cluster.faults = lambda call: Fault(Harm.UNREACHABLE) if call.client == "reflector" else None
                await twice.wait()
                assert said == [logging.INFO, logging.WARNING]
                cluster.faults = lambda call: None
                await KubeClient(cluster.transport()).create(SECRETS, secret("a"), "default")
                await again.wait()
                assert reflector.error is None
                assert said == [logging.INFO, logging.WARNING]

        run(main())

    def test_bookmarks_keep_it_young_and_cheap(self):
        """An hour without events: confirmed every minute, one list, no writes, a few watches."""

        async def main():
            cluster = FakeCluster()
            async with reflecting(cluster) as reflector:
                for _ in range(60):
                    await asyncio.sleep(60)
                    assert reflector.age <= 61
                lists = [call for call in cluster.calls if "watch" not in call.request.query]
                assert len(lists) == 1
                assert len(cluster.calls) < 15
                assert cluster.writes == 0

        run(main())


class TestCache:
    def test_indexes_follow_their_objects(self):
        """By owner and label; a change moves the object in either index."""

        async def main():
            cluster = FakeCluster(settles=False)
            client = KubeClient(cluster.transport())
            async with reflecting(cluster) as reflector:
                cache = reflector.cache
                await client.create(SECRETS, secret("a", ownerReferences=[OWNER], labels={"x": "1"}), "default")
                await client.create(SECRETS, secret("b", ownerReferences=[OWNER]), "default")
                await asyncio.sleep(0.1)
                assert [item.metadata.name for item in cache.owned_by("owner-uid")] == ["a", "b"]
                assert [item.metadata.name for item in cache.labelled("x", "1")] == ["a"]
                await client.patch(
                    SECRETS, {"metadata": {"ownerReferences": None, "labels": {"x": "2"}}}, "a", "default"
                )
                await asyncio.sleep(0.1)
                assert [item.metadata.name for item in cache.owned_by("owner-uid")] == ["b"]
                assert cache.labelled("x", "1") == []
                assert [item.metadata.name for item in cache.labelled("x", "2")] == ["a"]
                assert cache.owned_by("nobody") == []
                with pytest.raises(KeyError):
                    cache.labelled("y", "1")

        run(main())


class TestWatch:
    def test_a_selection_is_left_and_entered(self):
        """Leaving the selection is reported as a deletion, bookmarks have versions, and an old version is Gone."""

        async def main():
            cluster = FakeCluster()
            client = KubeClient(cluster.transport())

            async def follow():
                events = watch(client, SECRETS, "1", labels="x=1", timeouts=WatchTimeouts(lifetime=100))
                return ["BOOKMARK" if isinstance(event, Bookmark) else event.type async for event in events]

            task = asyncio.create_task(follow())
            await client.create(SECRETS, secret("a", labels={"x": "1"}), "default")
            await client.create(SECRETS, secret("b"), "default")
            await client.patch(SECRETS, {"metadata": {"labels": {"x": "2"}}}, "a", "default")
            await client.patch(SECRETS, {"metadata": {"labels": {"x": "1"}}}, "b", "default")
            assert await task == ["ADDED", "DELETED", "ADDED", "BOOKMARK", "BOOKMARK"]
            cluster.store.compact()
            with pytest.raises(errors.Gone):
                await anext(watch(client, SECRETS, "1"))

        run(main())

    @pytest.mark.parametrize(
        ("line", "fault"),
        [
            (b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"old"}}', errors.Gone),
            (b'{"type":"ERROR","object":{"code":500,"message":"m"}}', errors.ServerError),
            (b'{"type":"MODIFIED","object":{"metadata":7}}', errors.ServerError),
            (b'{"type":"MOVED","object":{"metadata":{}}}', errors.ServerError),
            (b'{"type":"ADDED"}', errors.ServerError),
            (b'{"type":"ADDED","object":{', errors.ServerError),
        ],
    )
    def test_invalid_watch_line_ends_the_watch_with_an_error(self, line, fault):
        """`replay` returns known objects, in any order of their fields."""

        class Told:
            @contextlib.asynccontextmanager
            async def stream(self, _request):
                async def chunks():
                    yield b'{"object":{"metadata":{"name":"a"}},"type":"ADDED"}\n'
                    yield line + b"\n"

                yield Stream(200, chunks())

        async def main():
            events = watch(Told(), SECRETS, "1")
            first = await anext(events)
            assert (first.type, first.object.metadata.name) == ("ADDED", "a")
            with pytest.raises(fault):
                await anext(events)

        run(main())


class TestAdvance:
    """The response to our own change is stored before the watch delivers it."""

    @staticmethod
    def kept(version: int, uid: str = "u", mark: str = "1") -> Secret:
        meta = ObjectMeta(name="a", namespace="default", uid=uid, resource_version=str(version), labels={"x": mark})
        return Secret(metadata=meta)

    def begin(self, version: int) -> tuple[Cache[Secret], list[tuple[int, int]]]:
        """A cache with one object, and its later changes as versions before and after."""
        cache: Cache[Secret] = Cache(("x",))
        told: list[tuple[int, int]] = []
        cache.put(self.kept(version))
        cache.listen(lambda change: told.append(tuple(self.version(each) for each in (change.old, change.new))))
        told.clear()
        return cache, told

    @staticmethod
    def version(seen: Secret | None) -> int:
        return int(seen.metadata.resource_version) if seen else 0

    def test_own_change_is_reported_to_subscribers_only_once(self):
        cache, told = self.begin(3)
        cache.advance(self.kept(5, mark="2"))
        assert self.version(cache.get("a", "default")) == 5
        assert [len(cache.labelled("x", mark)) for mark in "12"] == [0, 1]
        cache.put(self.kept(5, mark="2"))
        assert told == []
        cache.put(self.kept(6))
        assert told == [(5, 6)]

    def test_change_before_our_own_is_reported_and_not_stored(self):
        """A change by another client before ours: our response includes it, but listeners have not seen it."""
        cache, told = self.begin(3)
        cache.advance(self.kept(5))
        cache.put(self.kept(4, mark="2"))
        assert told == [(5, 5)]
        assert self.version(cache.get("a", "default")) == 5
        cache.put(self.kept(5))
        cache.put(self.kept(4))  # a server from a backup: the watch has caught up, so it counts again
        assert told == [(5, 5), (5, 4)]

    def test_an_answer_that_comes_late_brings_nothing_back(self):
        cache, told = self.begin(3)
        cache.put(self.kept(6))
        cache.advance(self.kept(5))
        assert self.version(cache.get("a", "default")) == 6
        cache.drop(Key("default", "a"))
        cache.advance(self.kept(7))
        assert cache.get("a", "default") is None
        cache.put(self.kept(8, uid="another"))
        cache.advance(self.kept(9))
        assert self.version(cache.get("a", "default")) == 8
        assert told == [(3, 6), (6, 0), (0, 8)]

    def test_the_last_change_of_all_has_the_version_before_it(self):
        """The response to the removal of the last finalizer is the object without it, in its old version."""
        cache, told = self.begin(3)
        cache.advance(self.kept(3, mark="2"))
        assert cache.labelled("x", "2")
        cache.drop(Key("default", "a"))
        assert told == [(3, 0)]

    def test_a_list_is_believed_even_if_it_is_older(self):
        cache, _ = self.begin(3)
        cache.advance(self.kept(5))
        cache.replace([self.kept(4)])
        assert self.version(cache.get("a", "default")) == 4
