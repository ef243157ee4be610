"""Concurrent writes to SQLite share one commit, and each succeeds or fails separately."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dayfly.server.db.store import Store, StoreError, WriteConflictError
from dayfly.server.db.tables import clusters


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "control.db")
    yield opened
    opened.close()


class Held:
    """Blocks the writer, so that further writes wait."""

    def __init__(self, store):
        self.store, self._go = store, threading.Event()

    async def __aenter__(self):
        begun = threading.Event()

        def hold(_connection):
            begun.set()
            self._go.wait(60)

        self._holding = asyncio.ensure_future(self.store.write(hold))
        await asyncio.to_thread(begun.wait, 60)
        return self

    async def __aexit__(self, *_):
        self._go.set()
        await self._holding


def named(name):
    return lambda rows: rows.insert(clusters, {"name": name, "created_at": 1})


async def names(store):
    return await store.for_org("o").read(lambda rows: sorted(rows.execute(rows.select(clusters.c.name)).scalars()))


def half(rows):
    named("half")(rows)
    raise ZeroDivisionError


def twice(rows):
    named("twice")(rows)
    named("twice")(rows)


@pytest.mark.parametrize(
    ("bad", "fault"),
    [(half, ZeroDivisionError), (twice, WriteConflictError)],
    ids=["exception", "constraint"],
)
async def test_failing_write_fails_alone_in_its_group(store, bad, fault):
    """The earlier statements of the failed write are rolled back."""
    works = [named("a"), bad, named("b"), lambda _rows: 7]
    async with Held(store):
        asked = [asyncio.ensure_future(store.for_org("o").write(work)) for work in works]
        await asyncio.sleep(0)
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in found] == [type(None), fault, type(None), int]
    assert await names(store) == ["a", "b"]


async def test_full_disk_fails_only_writes_that_need_room(store):
    await store.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count=1").scalar())
    async with Held(store):
        works = [lambda _rows: "nothing", named("x" * 100_000), named("y" * 100_000)]
        asked = [asyncio.ensure_future(store.for_org("o").write(work)) for work in works]
        await asyncio.sleep(0)
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert found[0] == "nothing"
    assert [isinstance(each, StoreError) and "full" in str(each) for each in found[1:]] == [True, True]
    assert await names(store) == []


async def test_cancelled_waiting_write_stores_nothing(store):
    async with Held(store):
        given_up, kept = (asyncio.ensure_future(store.for_org("o").write(named(name))) for name in ("given up", "kept"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
    await kept
    assert given_up.cancelled()
    assert await names(store) == ["kept"]


async def test_reader_sees_committed_rows_during_a_write(store):
    await store.for_org("o").write(named("before"))
    async with Held(store):
        later = asyncio.ensure_future(store.for_org("o").write(named("later")))
        async with asyncio.timeout(60):
            assert await names(store) == ["before"]
        assert not later.done()
    await later
    assert await names(store) == ["before", "later"]


async def test_read_transaction_cannot_write(store):
    with pytest.raises(StoreError, match="readonly"):
        await store.for_org("o").read(named("c"))
