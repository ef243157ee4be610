"""Knowledge of a Run: our own last write, until its end is known from any source."""

from __future__ import annotations

import msgspec
import pytest
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.kube import errors
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.operator.cluster.objects import RUNS, RunObject
from dayfly.operator.cluster.runs import RunStore
from dayfly.plan.actions import Close
from dayfly.plan.sealed import seal
from dayfly.spec.kinds import Pin, RunSpec
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import EndRequest, Run

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
BODY = RunObject(metadata=AnnotatedMeta(name="box"), ledger=Run(uid="u", target=TARGET, plan="sha256:0"))


@pytest.fixture
def cluster():
    return FakeCluster(extra=KINDS)


@pytest.fixture
def client(cluster):
    return KubeClient(cluster.transport("operator"), seed=1)


@pytest.fixture
def cache():
    return Cache()


@pytest.fixture
def runs(client, cache):
    return RunStore(client, cache)


async def test_own_birth_is_known_before_the_cache_has_it(runs, cache):
    cache.begun += 1
    made = await runs.create(BODY)
    cache.replace([])  # a list that began before
    assert runs.get("box") == made


async def test_a_later_list_without_it_is_its_end(runs, cache):
    await runs.create(BODY)
    cache.begun += 1
    cache.replace([])
    assert runs.get("box") is None


async def test_unsupported_runs_raise_instead_of_counting_as_gone(runs, cluster):
    made = await runs.create(BODY)
    taken = cluster.forget("runs")
    with pytest.raises(errors.NotServed):
        await runs.read_current("box")
    assert runs.get("box") == made
    cluster.serve(taken)
    assert await runs.read_current("box") == made


async def test_its_deletion_is_its_end_whatever_was_written_last(runs, cache):
    made = await runs.create(BODY)
    cache.put(made)
    later = msgspec.structs.replace(made.ledger, seq=1)
    assert await runs.replace(made, msgspec.structs.replace(made, ledger=later))
    cache.drop(Key("", "box"))
    assert runs.get("box") is None


async def test_own_revision_is_known_before_the_cache_has_it(runs, cache):
    """New forks do not change the ledger: the cached ledger is as new, but the cached spec is older."""
    made = await runs.create(BODY)
    cache.put(made)
    pin = Pin(name="d", uid="d", digest="sha256:0")
    assert await runs.replace(made, msgspec.structs.replace(made, spec=RunSpec(documents=(pin,))))
    revised = runs.get("box")
    assert revised.spec.documents == (pin,)
    cache.put(revised)
    assert runs.get("box") is cache.get("box")


async def test_late_news_of_one_that_is_gone_is_none(runs, cache, client):
    """A quorum read is newer than a delayed watch."""
    made = await runs.create(BODY)
    cache.put(made)
    await client.delete(RUNS, "box")
    assert await runs.read_current("box") is None
    assert runs.get("box") is None
    again = await runs.create(BODY)
    assert again.metadata.uid != made.metadata.uid
    assert runs.get("box") == again


async def test_watch_deletion_of_a_living_run_is_corrected_by_a_read(runs, cache):
    made = await runs.create(BODY)
    cache.put(made)
    cache.drop(Key("", "box"))
    assert await runs.read_current("box") == made
    assert runs.get("box") == made


async def test_the_cache_alone_is_believed_where_we_wrote_nothing(client, cache):
    made = await RunStore(client, cache).create(BODY)
    runs = RunStore(client, cache)
    assert runs.get("box") is None
    cache.put(made)
    assert runs.get("box") is made


async def test_recreated_run_is_not_the_earlier_one(runs, cache, client):
    """Our last write was for the previous run."""
    made = await runs.create(BODY)
    await client.delete(RUNS, "box")
    other = await client.create(RUNS, BODY)
    cache.put(other)
    assert runs.get("box") is other
    cache.drop(Key("", "box"))
    assert runs.get("box") == made, "no event has reported that ours is gone"


async def test_run_missing_from_a_later_list_stays_absent(runs, cache):
    """Neither late events of a delayed watch nor our own write restore it."""
    made = await runs.create(BODY)
    cache.begun += 1
    cache.replace([])
    assert runs.get("box") is None
    cache.put(made)
    assert runs.get("box") is None


async def test_deletions_of_the_oldest_runs_are_forgotten(runs, cache):
    """The number of remembered deletions is limited; a second deletion counts as a new one."""

    def seen(name: str) -> RunObject:
        return msgspec.structs.replace(BODY, metadata=AnnotatedMeta(name=name, uid=name, resource_version="1"))

    names = ["a", "b", *(f"r{number}" for number in range(4_000)), "a", *(f"s{number}" for number in range(200))]
    for name in names:
        cache.put(seen(name))
        cache.drop(Key("", name))
    for name in ("a", "b", "s199"):
        cache.put(seen(name))
    assert [runs.get(name) for name in ("a", "b", "s199")] == [None, seen("b"), None]


@pytest.mark.parametrize("written", [True, False])
async def test_lost_answer_is_resolved_by_reading_the_run(runs, client, written):
    """The stored object shows whether the change was made."""
    made = await runs.create(BODY)
    after = msgspec.structs.replace(made, ledger=msgspec.structs.replace(made.ledger, seq=1))
    update = client.update

    async def lost(*arguments):
        if written:
            await update(*arguments)
        raise errors.OutcomeUnknown("PUT box", "no answer came")

    client.update = lost
    if written:
        assert await runs.replace(made, after)
    else:
        # There was no conflict: an immediate retry would repeat while the server is in trouble.
        with pytest.raises(errors.OutcomeUnknown):
            await runs.replace(made, after)
    assert runs.get("box").ledger.seq == int(written)


async def test_lost_answer_and_a_foreign_write_mean_not_written(runs, client):
    made = await runs.create(BODY)
    update = client.update
    after = msgspec.structs.replace(made, ledger=msgspec.structs.replace(made.ledger, seq=1))

    async def lost(kind, body, name):
        await update(kind, msgspec.structs.replace(made, ledger=msgspec.structs.replace(made.ledger, seq=7)), name)
        raise errors.OutcomeUnknown("PUT box", "no answer came")

    client.update = lost
    assert await runs.replace(made, after) is False
    assert runs.get("box").ledger.seq == 7


async def test_lost_answer_for_a_deleted_run_means_not_written(runs, client):
    made = await runs.create(BODY)
    await client.delete(RUNS, "box")

    async def lost(*_arguments):
        raise errors.OutcomeUnknown("PUT box", "no answer came")

    client.update = lost
    assert await runs.replace(made, made) is False
    assert runs.get("box") is None


async def test_conflicting_write_adopts_the_stored_run(runs, client):
    made = await runs.create(BODY)
    other = await client.update(
        RUNS, msgspec.structs.replace(made, ledger=msgspec.structs.replace(made.ledger, seq=7)), "box"
    )
    ours = msgspec.structs.replace(made, ledger=msgspec.structs.replace(made.ledger, seq=1))
    assert await runs.replace(made, ours) is False
    assert runs.get("box") == other


async def test_commit_is_reported_once_when_written(runs, client):
    told = []
    runs.on_commit = lambda run, moves: told.append((run.ledger.closed is not None, moves))
    made = await runs.create(BODY)
    close = TestOwn.CLOSE
    assert await runs.commit(made, TestOwn.PLAN, (close,))
    assert told == [(True, (close,))]
    assert not await runs.commit(made, TestOwn.PLAN, (close,)), "another writer was first: ourselves"
    assert len(told) == 1


async def test_forgotten_run_is_known_only_from_the_cache(runs):
    await runs.create(BODY)
    runs.forget("box")
    assert runs.get("box") is None


class TestOwn:
    """The watch skips our own commits, but reports any other change that came with them."""

    PLAN = seal(())
    CLOSE = Close(request=EndRequest(at=1, reason="Deleted", message="deleted"))

    async def committed(self, runs: RunStore, cache: Cache[RunObject]) -> tuple[RunObject, RunObject]:
        """A Run in the cache, and the server's version after our commit."""
        made = await runs.create(BODY)
        cache.put(made)
        assert await runs.commit(made, self.PLAN, (self.CLOSE,))
        return made, runs.get("box")

    async def test_a_commit_is_known_once(self, runs, cache):
        made, after = await self.committed(runs, cache)
        assert after.ledger.closed
        assert runs.is_own(ObjectChange(Key("", "box"), made, after))
        assert not runs.is_own(ObjectChange(Key("", "box"), made, after)), "then it is something else"

    async def test_with_the_run_its_commits_are_forgotten(self, runs, cache):
        """A commit with the same name and number would be another program's."""
        made, after = await self.committed(runs, cache)
        cache.drop(Key("", "box"))
        assert not runs.is_own(ObjectChange(Key("", "box"), made, after))

    async def test_forgotten_run_has_no_own_commits(self, runs, cache):
        made, after = await self.committed(runs, cache)
        runs.forget("box")
        assert not runs.is_own(ObjectChange(Key("", "box"), made, after))

    async def test_a_birth_is_news(self, runs, cache):
        made = await runs.create(BODY)
        assert not runs.is_own(ObjectChange(Key("", "box"), None, made))

    async def test_commit_of_another_is_not_our_own(self, runs, cache, client):
        made, after = await self.committed(runs, cache)
        other = msgspec.structs.replace(after, ledger=msgspec.structs.replace(after.ledger, born_at=7))
        assert not runs.is_own(ObjectChange(Key("", "box"), made, other))

    @pytest.mark.parametrize(
        "mark", [{"finalizers": ["x"]}, {"annotations": {"a": "b"}}, {"deletion_timestamp": "now"}]
    )
    async def test_own_commit_with_other_changes_is_not_only_ours(self, runs, cache, mark):
        """A list only shows the newest version: our commit, and changes after it."""
        made, after = await self.committed(runs, cache)
        marked = msgspec.structs.replace(after, metadata=msgspec.structs.replace(after.metadata, **mark))
        assert not runs.is_own(ObjectChange(Key("", "box"), made, marked))


@pytest.mark.parametrize("version", ["1", "9"])
async def test_a_later_list_that_has_it_is_not_its_end(runs, cache, version):
    """The newer one of both is returned."""
    made = await runs.create(BODY)
    cache.begun += 1
    meta = msgspec.structs.replace(made.metadata, resource_version=version)
    cache.replace([msgspec.structs.replace(made, metadata=meta)])
    assert runs.get("box") is not None
