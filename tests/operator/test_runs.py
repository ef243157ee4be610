"""What an operator believes of a Run: its own last word, until there is news of its end by any way there is."""

from __future__ import annotations

import msgspec
import pytest
from rig.world import KINDS

from dayfly.kube.cache import Cache, Change
from dayfly.kube.client import Client
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.operator.cluster.objects import RUNS, RunObject
from dayfly.operator.cluster.runs import Runs
from dayfly.plan.actions import Close
from dayfly.plan.sealed import seal
from dayfly.spec.kinds import Pin, RunSpec
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Request, Run
from kube.fake import FakeCluster

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
BODY = RunObject(metadata=AnnotatedMeta(name="box"), ledger=Run(uid="u", target=TARGET, plan="sha256:0"))


@pytest.fixture
def client():
    return Client(FakeCluster(extra=KINDS).transport("operator"), seed=1)


@pytest.fixture
def cache():
    return Cache()


@pytest.fixture
def runs(client, cache):
    return Runs(client, cache)


async def test_what_we_made_is_there_before_the_cache_has_it(runs, cache):
    cache.begun += 1
    made = await runs.birth(BODY)
    cache.replace([])  # a list that had begun before
    assert runs.get("box") == made


async def test_a_later_list_without_it_is_its_end(runs, cache):
    await runs.birth(BODY)
    cache.begun += 1
    cache.replace([])
    assert runs.get("box") is None


async def test_its_deletion_is_its_end_whatever_was_written_last(runs, cache):
    made = await runs.birth(BODY)
    cache.put(made)
    later = msgspec.structs.replace(made.ledger, seq=1)
    assert await runs.replace(made, msgspec.structs.replace(made, ledger=later))
    cache.drop(Key("", "box"))
    assert runs.get("box") is None


async def test_what_we_revised_is_known_before_the_cache_has_it(runs, cache):
    """New forks do not move the ledger: what the cache has of it is as new, and older all the same."""
    made = await runs.birth(BODY)
    cache.put(made)
    pin = Pin(name="d", uid="d", digest="sha256:0")
    assert await runs.replace(made, msgspec.structs.replace(made, spec=RunSpec(documents=(pin,))))
    revised = runs.get("box")
    assert revised.spec.documents == (pin,)
    cache.put(revised)
    assert runs.get("box") is cache.get("box")


async def test_late_news_of_one_that_is_gone_is_none(runs, cache, client):
    """A quorum read knows more than a watch that is behind."""
    made = await runs.birth(BODY)
    cache.put(made)
    await client.delete(RUNS, "box")
    assert await runs.fresh("box") is None
    assert runs.get("box") is None
    again = await runs.birth(BODY)
    assert again.metadata.uid != made.metadata.uid
    assert runs.get("box") == again


async def test_who_said_that_it_is_gone_may_have_been_wrong(runs, cache):
    made = await runs.birth(BODY)
    cache.put(made)
    cache.drop(Key("", "box"))
    assert await runs.fresh("box") == made
    assert runs.get("box") == made


class TestOwn:
    """Of our own commits the watch brings no news; of anything else that came with them it does."""

    PLAN = seal(())
    CLOSE = Close(request=Request(at=1, reason="Deleted", message="deleted"))

    async def committed(self, runs: Runs, cache: Cache[RunObject]) -> tuple[RunObject, RunObject]:
        """A Run in the cache, and what our commit has made of it at the server."""
        made = await runs.birth(BODY)
        cache.put(made)
        assert await runs.commit(made, self.PLAN, (self.CLOSE,))
        return made, runs.get("box")

    async def test_a_commit_is_known_once(self, runs, cache):
        made, after = await self.committed(runs, cache)
        assert after.ledger.closed
        assert runs.is_own(Change(Key("", "box"), made, after))
        assert not runs.is_own(Change(Key("", "box"), made, after)), "then it is something else"

    async def test_a_birth_is_news(self, runs, cache):
        made = await runs.birth(BODY)
        assert not runs.is_own(Change(Key("", "box"), None, made))

    async def test_a_commit_of_somebody_else_is_news(self, runs, cache, client):
        made, after = await self.committed(runs, cache)
        other = msgspec.structs.replace(after, ledger=msgspec.structs.replace(after.ledger, born_at=7))
        assert not runs.is_own(Change(Key("", "box"), made, other))

    @pytest.mark.parametrize(
        "mark", [{"finalizers": ["x"]}, {"annotations": {"a": "b"}}, {"deletion_timestamp": "now"}]
    )
    async def test_what_came_with_it_is_news(self, runs, cache, mark):
        """A list tells only of the newest form: our commit, and what was done after it."""
        made, after = await self.committed(runs, cache)
        marked = msgspec.structs.replace(after, metadata=msgspec.structs.replace(after.metadata, **mark))
        assert not runs.is_own(Change(Key("", "box"), made, marked))
