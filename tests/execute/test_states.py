"""Terraform states: locks, reads and writes, with lost responses and concurrent attempts."""

import asyncio
import contextlib
import random
import threading

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.execute.states import KEYS, PLACE, Client, Memory, Schedule, running

from dayfly.execute.state import access, head, seal, service
from dayfly.execute.state.head import Head, LockHolder, Version
from dayfly.spec.run import State

ALIVE = running(apply=(1, State.CLAIMED))


@pytest.fixture
def store():
    return Memory(ALIVE)


class TestOneAttempt:
    async def test_state_lives_from_lock_to_unlock_for_the_next_step(self, store):
        mine = Client(store)
        assert (await mine.ask("GET"))[0] == 404
        assert (await mine.lock("a"))[0] == 200
        assert await mine.write(b'{"serial":1}', "a") == 200
        assert (await mine.unlock("a"))[0] == 200
        store.run = running(apply=(1, State.DONE), destroy=(1, State.UNKNOWN))
        assert await Client(store, "destroy").read() == b'{"serial":1}'

    async def test_first_read_of_each_unit_is_recorded(self, store):
        first, second = Client(store), Client(store, "destroy")
        assert await first.read() is None
        assert store.heads[PLACE].head.readers == ("stack/apply",)
        recorded = store.heads[PLACE]
        await first.read()
        assert store.heads[PLACE] == recorded, "only the first refusal"
        store.run = running(destroy=(1, State.CLAIMED))
        await second.read()
        assert store.heads[PLACE].head.readers == ("stack/apply", "stack/destroy")

    async def test_write_with_another_lock_is_refused(self, store):
        mine = Client(store)
        assert await mine.write(b"{}", "a") == 409
        await mine.lock("a")
        assert [await mine.write(b"{}", name) for name in ("", "b")] == [409, 409]
        assert await mine.read() is None
        assert (await mine.ask("DELETE", lock="b"))[0] == 409

    async def test_repeated_request_after_a_lost_answer_changes_nothing(self, store):
        mine = Client(store)
        assert [(await mine.lock("a"))[0] for _ in range(2)] == [200, 200]
        assert [await mine.write(b"{}", "a") for _ in range(2)] == [200, 200]
        assert len(store.heads[PLACE].head.versions) == 1
        assert [(await mine.unlock("a"))[0] for _ in range(2)] == [200, 200]

    async def test_a_second_lock_of_the_same_attempt_waits_too(self, store):
        mine = Client(store)
        await mine.lock("a")
        status, body = await mine.lock("b")
        shown = "a (held by stack/apply, attempt 1, which has not ended)"
        assert (status, msgspec.json.decode(body)["ID"]) == (423, shown)
        assert (await mine.ask("UNLOCK"))[0] == 200, "force-unlock of its own lock"
        assert (await mine.lock("b"))[0] == 200

    async def test_altered_state_is_an_error_naming_its_version(self, store):
        mine = Client(store)
        await mine.lock("a")
        await mine.write(b"{}", "a")
        for blob in store.blobs:
            store.blobs[blob] = [bytes(len(chunk)) for chunk in store.blobs[blob]]
        status, said = await mine.ask("GET")
        assert (status, said[-1:]) == (500, b"\n")
        assert b"version 1" in said

    async def test_damaged_head_is_an_error_and_never_overwritten(self, store, monkeypatch):
        async def find(_place):
            return service.StoredHead(head.decode(b"{", "there"))

        mine = Client(store)
        monkeypatch.setattr(store, "find", find)
        for status, said in (await mine.lock("a"), await mine.ask("GET")):
            assert status == 500
            assert b"the head of a state is damaged (there)" in said

    async def test_deleted_state_reads_as_missing(self, store):
        mine = Client(store)
        await mine.lock("a")
        await mine.write(b"{}", "a")
        assert (await mine.ask("DELETE", lock="a"))[0] == 200
        assert (await mine.ask("GET"))[0] == 404
        assert [version.size for version in store.heads[PLACE].head.versions] == [2, 0]

    @pytest.mark.parametrize(
        "body",
        [b"", b"[]", b"{}", b"{", b"\xff", b'{"ID":1}', b'{"ID":"' + b"x" * 201 + b'"}', b'{"ID":' + b"[" * 60_000],
        ids=lambda body: body[:8],
    )
    async def test_invalid_lock_body_is_refused(self, store, body):
        assert (await Client(store).ask("LOCK", body))[0] == 400
        assert PLACE not in store.heads

    async def test_number_of_versions_is_limited(self, store):
        mine = Client(store)
        await mine.lock("a")
        for number in range(head.MAX_VERSIONS + 5):
            await mine.write(b"%d" % number, "a")
        versions = store.heads[PLACE].head.versions
        assert [version.number for version in versions] == list(range(6, head.MAX_VERSIONS + 6))
        assert store.blobs.keys() == {version.blob for version in versions}

    async def test_state_too_large_when_compressed_is_refused(self, store, monkeypatch):
        monkeypatch.setattr(seal, "MAX_STORED", seal.CHUNK_BYTES)
        mine = Client(store)
        await mine.lock("a")
        assert await mine.write(random.Random(0).randbytes(seal.CHUNK_BYTES), "a") == 413
        assert await mine.write(b"x" * 2 * seal.CHUNK_BYTES, "a") == 200
        assert len(store.blobs) == 1

    @pytest.mark.parametrize("drops", [True, False])
    async def test_partially_stored_chunks_are_dropped_after_an_error(self, store, monkeypatch, drops):
        """A retry writes other chunks. Chunks that cannot be deleted now are deleted with the run."""
        mine, keep = Client(store), store.write_chunks

        async def halfway(*of):
            await keep(*of)
            raise OSError("the disk is full")

        async def refused(*_):
            raise OSError("nor can anything be removed")

        await mine.lock("a")
        monkeypatch.setattr(store, "write_chunks", halfway)
        if not drops:
            monkeypatch.setattr(store, "delete_chunks", refused)
        with pytest.raises(OSError, match="the disk is full"):
            await mine.write(b"1", "a")
        assert len(store.blobs) == (not drops)
        assert store.heads[PLACE].head.versions == ()

    async def test_chunks_are_dropped_if_the_request_times_out(self, store, monkeypatch):
        """For example a slow API server. Each retry would leave chunks, which no quota counts."""
        mine, keep, kept = Client(store), store.write_chunks, asyncio.Event()

        async def slow(*of):
            await keep(*of)
            kept.set()
            await asyncio.Event().wait()

        await mine.lock("a")
        monkeypatch.setattr(store, "write_chunks", slow)
        asked = asyncio.create_task(mine.write(b"1", "a"))
        await kept.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert store.blobs == {}
        assert store.heads[PLACE].head.versions == ()

    @pytest.mark.parametrize(("step", "stays"), [("find", False), ("read_ledger", False), ("swap", True)])
    async def test_chunks_stay_only_if_their_head_may_still_be_written(self, store, monkeypatch, step, stays):
        mine, keep, waits = Client(store), store.write_chunks, asyncio.Event()

        async def slow(*_):
            waits.set()
            await asyncio.Event().wait()

        async def then(*of):
            await keep(*of)
            monkeypatch.setattr(store, step, slow)

        await mine.lock("a")
        monkeypatch.setattr(store, "write_chunks", then)
        asked = asyncio.create_task(mine.write(b"1", "a"))
        await waits.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert len(store.blobs) == stays


def written(serial, lineage="one", resources=0, **more):
    """Return a state as Terraform writes it."""
    entry = {"mode": "managed", "type": "t", "name": "n", "instances": [{}]}
    return msgspec.json.encode(
        {"version": 4, "serial": serial, "lineage": lineage, "resources": [entry] * resources} | more
    )


class TestWithoutLock:
    """Terraform with -lock=false sends writes without an ID."""

    async def test_write_without_lock_is_stored_and_locks(self, store):
        mine = Client(store)
        assert await mine.write(written(1), "") == 200
        assert await mine.write(written(2), "") == 200
        store.run = running(apply=(1, State.CLAIMED), other=(1, State.CLAIMED))
        assert (await Client(store, "other").lock("b"))[0] == 423
        store.run = running(apply=(1, State.DONE), destroy=(1, State.CLAIMED))
        later = Client(store, "destroy")
        assert await later.read() == written(2)
        assert await later.write(written(3), "") == 200

    async def test_own_lock_replaces_lock_of_unlocked_write(self, store):
        mine = Client(store)
        await mine.write(written(1), "")
        assert (await mine.lock("a"))[0] == 200
        assert await mine.write(written(2), "a") == 200
        assert (await mine.unlock("a"))[0] == 200
        assert await mine.write(written(3), "") == 200
        assert store.heads[PLACE].head.refused == ()

    async def test_unlocked_write_over_a_held_lock_is_recorded(self, store):
        mine = Client(store)
        await mine.lock("a")
        await mine.write(written(1), "a")
        assert await mine.write(written(9), "") == 409
        await mine.write(written(2), "a")
        (refusal,) = store.heads[PLACE].head.refused
        assert refusal.message == "held by stack/apply, attempt 1, which has not ended"

    @pytest.mark.parametrize("second", [written(1, "two"), written(1, x=1), written(7, "two")])
    async def test_second_of_two_unlocked_writers_is_refused(self, store, second):
        mine = Client(store)
        assert await mine.write(written(1), "") == 200
        assert await mine.write(second, "") == 409
        # The next write has a higher serial. Both writers look the same, so neither may write again.
        assert await mine.write(written(8, "two"), "") == 409
        assert await mine.write(written(8), "") == 409
        assert await mine.read() == written(1)
        assert len(store.heads[PLACE].head.refused) == 1

    async def test_unlocked_write_repeated_is_stored_once(self, store):
        mine = Client(store)
        assert [await mine.write(written(1), "") for _ in range(2)] == [200, 200]
        assert len(store.heads[PLACE].head.versions) == 1

    async def test_unlocked_write_of_unknown_content_is_stored(self, store):
        mine = Client(store)
        assert [await mine.write(body, "") for body in (b"1", b"2", b'{"serial":"x"}')] == [200] * 3

    async def test_unlocked_delete_is_refused(self, store):
        mine = Client(store)
        await mine.write(written(1), "")
        assert (await mine.ask("DELETE"))[0] == 409, "the attempt holds the lock without an ID"
        store.run = running(apply=(1, State.DONE), destroy=(1, State.CLAIMED))
        assert (await Client(store, "destroy").ask("DELETE"))[0] == 409

    async def test_lock_sent_as_a_state_is_refused(self, store):
        """For example a module with `lock_method = "POST"` and its own lock address."""
        mine = Client(store)
        info = b'{"ID":"a","Operation":"OperationTypeApply","Who":"me"}'
        assert (await mine.ask("POST", info))[0] == 400
        assert PLACE not in store.heads

    async def test_lock_address_takes_other_methods(self, store):
        mine = Client(store)
        told = access.variables(access.StateEndpoint("http://x"), mine.who)
        path = told["TF_HTTP_LOCK_ADDRESS"].removeprefix("http://x")
        assert mine.service.identify(path, mine.authorization) == mine.who
        asked = [access.method_of(path, method) for method in ("LOCK", "POST", "PUT", "UNLOCK", "DELETE", "GET")]
        assert asked == ["LOCK", "LOCK", "LOCK", "UNLOCK", "UNLOCK", "GET"]
        assert [access.method_of(mine.path, method) for method in ("POST", "DELETE")] == ["POST", "DELETE"]


class TestRefusals:
    async def test_too_large_state_is_recorded_until_stored(self, store, monkeypatch):
        monkeypatch.setattr(seal, "MAX_STORED", seal.CHUNK_BYTES)
        mine = Client(store)
        await mine.lock("a")
        assert await mine.write(random.Random(0).randbytes(seal.CHUNK_BYTES), "a") == 413
        (refusal,) = store.heads[PLACE].head.refused
        assert "at most" in refusal.message
        assert await mine.write(b"{}", "a") == 200
        assert store.heads[PLACE].head.refused == ()

    async def test_empty_body_is_refused_and_recorded(self, store):
        mine = Client(store)
        await mine.lock("a")
        await mine.write(b"{}", "a")
        assert await mine.write(b"", "a") == 400
        assert await mine.read() == b"{}"
        assert [each.message for each in store.heads[PLACE].head.refused] == ["the body is empty, so it is not a state"]

    async def test_late_write_is_recorded_once(self, store):
        late = Client(store)
        store.run = running(apply=(1, State.DONE))
        assert [await late.write(b"{}", "a") for _ in range(2)] == [403, 403]
        (refusal,) = store.heads[PLACE].head.refused
        assert refusal.message.startswith("stack/apply, attempt 1 has ended")

    @pytest.mark.parametrize("error", [OSError("no disk"), service.UncertainError()])
    async def test_write_that_was_never_stored_is_recorded_later(self, store, monkeypatch, error):
        mine = Client(store)
        await mine.lock("a")

        async def refused(*_):
            raise error

        with monkeypatch.context() as broken:
            broken.setattr(store, "swap", refused)
            with contextlib.suppress(OSError):
                assert await mine.write(b"{}", "a") == 503
        assert (await mine.unlock("a"))[0] == 200
        assert [each.message for each in store.heads[PLACE].head.refused] == ["it could not be stored"]
        await mine.lock("a")
        assert await mine.write(b"{}", "a") == 200
        await mine.service.record_unsaved()
        assert store.heads[PLACE].head.refused == ()

    @pytest.mark.parametrize("step", ["write_chunks", "swap"])
    @pytest.mark.parametrize("failed_before", [False, True])
    @pytest.mark.parametrize("ends_first", [False, True])
    async def test_write_under_way_is_not_recorded(self, store, monkeypatch, step, failed_before, ends_first):
        """Other requests record unsaved writes at any time: before the state is stored, and before the response."""
        mine = Client(store)
        await mine.lock("a")
        if failed_before:

            async def full(*_):
                raise OSError("no disk")

            with monkeypatch.context() as broken, contextlib.suppress(OSError):
                broken.setattr(store, "write_chunks", full)
                await mine.write(b"{}", "a")
        usual = getattr(store, step)
        recording = []

        async def meanwhile(*given):
            if recording:
                return await usual(*given)
            recording.append(asyncio.create_task(mine.service.record_unsaved()))
            if ends_first:
                await asyncio.gather(*recording)
            done = await usual(*given)
            await asyncio.gather(*recording)
            return done

        monkeypatch.setattr(store, step, meanwhile)
        assert await mine.write(b"{}", "a") == 200
        await mine.service.record_unsaved()
        assert recording
        assert store.heads[PLACE].head.refused == ()

    async def test_write_sent_while_its_failure_is_recorded_counts(self, store, monkeypatch):
        mine = Client(store)
        await mine.lock("a")
        usual, writing = store.swap, []

        async def full(*_):
            raise OSError("no disk")

        async def late(*given):
            if writing:
                return await usual(*given)
            writing.append(asyncio.create_task(mine.write(b"{}", "a")))
            assert await asyncio.gather(*writing) == [200]
            return await usual(*given)

        with monkeypatch.context() as broken, contextlib.suppress(OSError):
            broken.setattr(store, "write_chunks", full)
            await mine.write(b"{}", "a")
        with monkeypatch.context() as broken:
            broken.setattr(store, "swap", late)
            await mine.service.record_unsaved()
        await mine.service.record_unsaved()
        assert store.heads[PLACE].head.refused == ()

    async def test_number_of_recorded_refusals_is_bounded(self, store):
        for number in range(1, 40):
            store.run = running(apply=(number, State.CLAIMED))
            assert await Client(store, attempt=number).write(b"{}", "a") == 409
        attempts = [each.holder.attempt for each in store.heads[PLACE].head.refused]
        assert attempts == [*range(1, 11), *range(30, 40)]


class TestStrangers:
    @pytest.mark.parametrize(
        "changed",
        [
            {"password": ""},
            {"password": "0" * 64},
            {"name": "apply.2"},
            {"name": "destroy.1"},
            {"name": "apply"},
            {"name": "apply.1x"},
            {"name": f"apply.{'1' * 5000}"},
            {"path": "/state/u/other"},
            {"path": "/state/v/stack"},
            {"path": "/state/u/stack/more"},
            {"path": "/state/u"},
            {"path": "/other/u/stack"},
            {"path": "x/state/u/stack"},
            {"path": "/"},
        ],
    )
    @pytest.mark.parametrize("method", ["GET", "POST", "LOCK", "UNLOCK", "DELETE"])
    async def test_password_is_invalid_for_another_attempt(self, store, changed, method):
        store.run = running(apply=(1, State.CLAIMED), destroy=(1, State.CLAIMED))
        mine = Client(store)
        await mine.lock("a")
        await mine.write(b"secret", "a")
        before = store.heads[PLACE]
        status, body = await mine.ask(method, b'{"ID":"a"}', "a", **changed)
        assert status == 401
        assert b"secret" not in body
        assert store.heads == {PLACE: before}

    async def test_password_of_another_key_is_invalid(self, store):
        foreign = Client(store, keys=access.StateKeys.derive(b"x" * 32))
        assert (await Client(store).ask("GET", password=foreign.password))[0] == 401

    @pytest.mark.parametrize("given", ["", "Basic", "Basic !", "Basic AAAA", "Bearer x", "Basic /w==", "Basic \xe9"])
    def test_missing_or_malformed_credentials_identify_no_attempt(self, store, given):
        assert Client(store).service.identify("/state/u/stack", given) is None

    async def test_other_methods_are_refused(self, store):
        assert (await Client(store).ask("PATCH"))[0] == 405


class TestTwoAttempts:
    @pytest.mark.parametrize("state", [State.CLAIMED, State.UNKNOWN])
    async def test_lock_is_not_broken_while_its_holder_may_run(self, store, state):
        await Client(store).lock("a")
        store.run = running(apply=(1, state), destroy=(1, State.CLAIMED))
        status, body = await Client(store, "destroy").lock("b")
        assert status == 423
        assert msgspec.json.decode(body)["Info"] == "held by stack/apply, attempt 1, which has not ended"

    @pytest.mark.parametrize(
        "ledger",
        [
            running(apply=(1, State.DONE), destroy=(1, State.CLAIMED)),
            running(apply=(1, State.VOID), destroy=(1, State.CLAIMED)),
            running(apply=(2, State.CLAIMED), destroy=(1, State.CLAIMED)),
        ],
    )
    async def test_lock_of_an_ended_attempt_is_broken(self, store, ledger):
        await Client(store).lock("a")
        store.run = ledger
        assert (await Client(store, "destroy").lock("b"))[0] == 200
        assert store.heads[PLACE].head.lock.holder == LockHolder(unit="stack/destroy", attempt=1)

    async def test_ended_attempt_is_refused_with_the_reason(self, store):
        late = Client(store)
        await late.lock("a")
        store.run = running(apply=(2, State.CLAIMED))
        assert [(await late.ask(each, b"{}", "a"))[0] for each in ("GET", "POST", "UNLOCK", "DELETE")] == [403] * 4
        status, body = await late.lock("a")
        assert (status, "none (stack/apply, attempt 1 has ended" in msgspec.json.decode(body)["ID"]) == (423, True)

    async def test_lock_id_of_another_attempt_gives_no_access(self, store):
        await Client(store).lock("a")
        store.run = running(apply=(1, State.CLAIMED), destroy=(1, State.CLAIMED))
        other = Client(store, "destroy")
        assert await other.write(b"{}", "a") == 409
        assert [(await other.ask("UNLOCK", body))[0] for body in (b"", b'{"ID":"a"}')] == [409, 409]
        assert (await other.lock("a"))[0] == 423

    @pytest.mark.parametrize("then", [running(apply=(1, State.DONE)), None], ids=["ended", "its run is gone"])
    @pytest.mark.parametrize("method", ["POST", "DELETE", "LOCK", "UNLOCK"])
    async def test_attempt_that_ends_during_its_request_is_refused(self, store, method, then):
        mine = Client(store)
        await mine.lock("a")
        await mine.write(b"{}", "a")
        before = dict(store.heads)
        assert await mine.service.admit(mine.who, method) is None
        store.run = then
        body = b'{"serial":2}' if method == "POST" else b'{"ID":"b"}'
        assert (await mine.service.handle(mine.who, method, "a", body)).status in (403, 423)
        after, found = store.heads[PLACE].head, before[PLACE].head
        assert (after.lock, after.versions) == (found.lock, found.versions)
        assert len(after.refused) == (method == "POST" and then is not None)

    async def test_chunks_of_a_refused_version_are_dropped(self, store):
        mine, kept = Client(store), store.write_chunks
        await mine.lock("a")

        async def breaking(*place):
            await kept(*place)
            store.run = running(apply=(1, State.DONE), destroy=(1, State.CLAIMED))
            await Client(store, "destroy").lock("b")

        store.write_chunks = breaking
        assert await mine.write(b"{}", "a") == 403
        assert not store.blobs

    @pytest.mark.parametrize("done", [False, True])
    async def test_chunks_of_an_unwritten_head_are_dropped(self, store, done):
        """Retries of Terraform would fill the storage. Chunks stay if the head refers to them."""
        mine, swap = Client(store), store.swap
        await mine.lock("a")

        async def refusing(*asked):
            if done:
                await swap(*asked)
            raise OSError(122, "Disk quota exceeded")

        store.swap = refusing
        with pytest.raises(OSError, match="quota"):
            await mine.write(b"{}", "a")
        assert len(store.blobs) == done
        store.swap = swap
        assert await mine.write(b"{}", "a") == 200
        assert await mine.read() == b"{}"
        assert len(store.blobs) == 1

    async def test_ended_run_refuses_all_requests(self, store):
        mine = Client(store)
        store.run = None
        assert [(await mine.lock("a"))[0], await mine.write(b"{}", "a")] == [423, 403]
        assert not store.heads

    def test_ledger_older_than_the_holder_proves_nothing(self):
        assert not head.has_ended(running(apply=(1, State.DONE)), LockHolder(unit="stack/apply", attempt=2))
        assert not head.has_ended(running(), LockHolder(unit="stack/apply", attempt=1))


@given(st.integers(min_value=0, max_value=2**32))
async def test_ended_attempt_never_writes_after_its_successor_locks(seed):
    """Requests of the first attempt continue after the ledger has recorded its end and the next attempt has started."""
    chance = random.Random(seed)
    store, schedule = Memory(ALIVE), Schedule(chance)
    first, second = Client(store), Client(store, "destroy")
    store.loses = lambda: chance.choice(["done", "not done", "later"]) if chance.random() < 0.25 else None

    async def turn():
        await schedule.turn()
        if chance.random() < 0.2:
            store.arrive()

    store.turn = turn
    taken: list[bytes] = []

    async def again(ask, good=(200,)):
        for _ in range(30):
            if (status := await ask()) not in (503, 423, 409) or status in good:
                return status
        return 503

    async def zombie():
        await again(lambda: _status(first.lock("a")))
        for number in range(chance.randrange(1, 5)):
            state = b"first %d" % number
            taken.extend([state] * (await again(lambda state=state: first.write(state, "a")) == 200))

    async def successor():
        for _ in range(chance.randrange(25)):
            await schedule.turn()
        store.run = running(apply=(1, State.DONE), destroy=(1, State.CLAIMED))
        if await again(lambda: _status(second.lock("b"))) != 200:
            return
        found = await second.read()
        assert not taken or found is not None, "an accepted state is lost"
        for number in range(3):
            assert await second.read() == found, "another attempt has written despite the lock"
            found = b"second %d" % number
            if await again(lambda state=found: second.write(state, "b")) != 200:
                return

    await schedule.play(zombie(), successor())
    store.arrive()
    newest = store.heads[PLACE].head.newest if PLACE in store.heads else None
    assert newest is None or len(store.blobs[newest.blob]) == newest.chunks, "a head refers to deleted chunks"


@pytest.mark.parametrize(("state", "freed"), [(State.CLAIMED, False), (State.DONE, True)])
def test_lock_of_an_ended_attempt_can_be_released_by_others(state, freed):
    owner, other = LockHolder(unit="stack/apply", attempt=1), LockHolder(unit="stack/destroy", attempt=1)
    held = Head(lock=head.Lock(id="a", info="{}", holder=owner, at=0))
    step = head.unlock(held, running(apply=(1, state)), other, "a")
    assert (step.answer.status, step.head) == ((200, Head()) if freed else (409, None))


@pytest.mark.parametrize(("size", "kept"), [(3, 2), (4, 1)])
def test_versions_are_kept_within_the_size_limit(size, kept):
    who = LockHolder(unit="u", attempt=1)
    found = Head(lock=head.Lock(id="a", info="{}", holder=who, at=0))
    for stored in (head.MAX_STORED_BYTES - 3, size):
        version = Version(number=0, at=0, holder=who, size=1, digest=str(stored), stored=stored)
        found = head.write(found, ALIVE, who, "a", version).head
    assert len(found.versions) == kept


def test_deletion_drops_only_the_oldest_version_beyond_the_limit():
    who = LockHolder(unit="u", attempt=1)
    found = Head(lock=head.Lock(id="a", info="{}", holder=who, at=0))
    for number in range(head.MAX_VERSIONS):
        version = Version(number=0, at=0, holder=who, size=1, digest=str(number), blob=str(number))
        found = head.write(found, ALIVE, who, "a", version).head
    step = head.delete(found, who, "a", 1)
    assert [version.number for version in step.dropped] == [1]
    assert [version.number for version in step.head.versions] == [*range(2, head.MAX_VERSIONS + 2)]


@given(st.lists(st.integers(0, head.MAX_STORED_BYTES), max_size=40))
@example([5, head.MAX_STORED_BYTES + 1])
def test_newest_version_is_always_kept(sizes):
    who = LockHolder(unit="u", attempt=1)
    found = Head(lock=head.Lock(id="a", info="{}", holder=who, at=0))
    for number, size in enumerate(sizes):
        version = Version(number=0, at=0, holder=who, size=1, digest=str(number), blob=str(number), stored=size)
        step = head.write(found, ALIVE, who, "a", version)
        assert {*found.versions, step.head.versions[-1]} == {*step.head.versions, *step.dropped}
        found = step.head
        assert found.newest.digest == str(number)
        assert len(found.versions) <= head.MAX_VERSIONS
        assert found.stored <= head.MAX_STORED_BYTES or len(found.versions) == 1


@given(st.binary(max_size=2000), st.integers(0, 1 << 30))
def test_sealed_state_is_unreadable_and_unalterable_without_key(state, where):
    who = LockHolder(unit="u", attempt=1)
    (chunk,) = chunks = seal.seal(KEYS, ("u", "stack", "b"), state)
    version = Version(
        number=1, at=0, holder=who, size=len(state), digest=seal.digest(state), blob="b", chunks=1, key=KEYS.name
    )
    assert seal.unseal(KEYS, ("u", "stack"), version, chunks) == state
    assert len(state) < 8 or state not in chunk
    altered = bytearray(chunk)
    altered[where % len(chunk)] ^= 1
    wrong = [
        (KEYS, ("u", "stack"), version, [bytes(altered)]),
        (KEYS, ("u", "stack"), version, []),
        (KEYS, ("u", "other"), version, chunks),
        (KEYS, ("v", "stack"), version, chunks),
        (KEYS, ("u", "stack"), msgspec.structs.replace(version, blob="c"), chunks),
        (access.StateKeys.derive(b"x" * 32), ("u", "stack"), version, chunks),
    ]
    for given_ in wrong:
        with pytest.raises(seal.SpoiledError):
            seal.unseal(*given_)


def test_state_of_another_key_is_reported():
    chunks = seal.seal(KEYS, ("u", "stack", "b"), b"{}")
    who = LockHolder(unit="u", attempt=1)
    version = Version(number=4, at=0, holder=who, size=2, digest=seal.digest(b"{}"), blob="b", chunks=1, key=KEYS.name)
    other = access.StateKeys.derive(b"x" * 32)
    said = f"version 4 of the state of stack was written with the key {KEYS.name}; the key here is {other.name}"
    with pytest.raises(seal.SpoiledError, match=said):
        seal.unseal(other, ("u", "stack"), version, chunks)


async def test_version_dropped_while_read_is_read_again(store):
    mine, looks, chunks = Client(store), [], store.read_chunks
    await mine.lock("a")
    await mine.write(b"{}", "a")

    async def late(*which):
        looks.append(which)
        return await chunks(*which) if len(looks) > 1 else []

    store.read_chunks = late
    assert (await mine.read(), len(looks)) == (b"{}", 2)
    assert (await mine.read(), len(looks)) == (b"{}", 3), "a complete state is read once"


async def test_lock_conflict_is_reported_as_json(store):
    """Terraform shows this information."""
    mine = Client(store)
    await mine.lock("a")
    found = await mine.service.handle(mine.who, "POST", "b", b"{}")
    assert (found.status, found.json) == (409, True)


@pytest.mark.parametrize(("size", "beside"), [(2, False), (seal.CHUNK_BYTES * 4, True)])
async def test_only_large_states_are_sealed_in_another_thread(store, monkeypatch, size, beside):
    """Other requests do not wait for a large state."""
    mine, threads, sealed = Client(store), [], seal.seal

    def sealing(*what):
        threads.append(threading.current_thread())
        return sealed(*what)

    monkeypatch.setattr(seal, "seal", sealing)
    await mine.lock("a")
    assert await mine.write(msgspec.json.encode({"x": random.Random(1).randbytes(size)}), "a") == 200
    assert [thread is not threading.current_thread() for thread in threads] == [beside]


async def test_lock_description_is_shortened(store):
    store.run = running(apply=(1, State.CLAIMED), other=(1, State.CLAIMED))
    mine, other = Client(store), Client(store, name="other")
    told = {"ID": "a", "k" * 40: "kept", "k" * 41: "not", "Operation": "o" * 300, "Count": 3}
    assert (await mine.ask("LOCK", msgspec.json.encode(told)))[0] == 200
    status, held = await other.lock("b")
    said = {key: value for key, value in msgspec.json.decode(held).items() if key not in ("ID", "Info")}
    assert (status, said) == (423, {"k" * 40: "kept", "Operation": "o" * 200})


def test_chunks_fit_a_secret_and_keep_their_order():
    state = random.Random(1).randbytes(seal.CHUNK_BYTES * 2)
    chunks = seal.seal(KEYS, ("u", "stack", "b"), state)
    assert [len(chunk) for chunk in chunks][:2] == [seal.CHUNK_BYTES] * 2
    who = LockHolder(unit="u", attempt=1)
    version = Version(
        number=1, at=0, holder=who, size=len(state), digest=seal.digest(state), blob="b", chunks=3, key=KEYS.name
    )
    assert seal.unseal(KEYS, ("u", "stack"), version, chunks) == state
    with pytest.raises(seal.SpoiledError):
        seal.unseal(KEYS, ("u", "stack"), version, chunks[::-1])


async def _status(asked):
    return (await asked)[0]
