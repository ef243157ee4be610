"""The Secret with what signs for states: nobody changes it, and each process reads the same."""

from __future__ import annotations

import msgspec
import pytest
from rig.world import KINDS

from dayfly.kube.client import Client
from dayfly.kube.objects import NAMESPACES, SECRETS
from dayfly.operator.states import authority
from kube.fake import FakeCluster, run


def test_it_is_made_once_and_cannot_be_changed():
    async def story():
        server = FakeCluster(seed=1, extra=KINDS)
        client = Client(server.transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "dayfly-system"}})
        first = await authority.load(client, "dayfly-system")
        assert await authority.load(client, "dayfly-system") == first
        [made] = server.objects("secrets")
        assert made["immutable"] is True
        assert made["type"] == authority.TYPE

    run(story())


def test_whoever_only_reads_states_makes_none():
    """The command that reads one is no reason for a cluster to have a key."""

    async def story():
        server = FakeCluster(seed=1, extra=KINDS)
        client = Client(server.transport("reader"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "dayfly-system"}})
        with pytest.raises(authority.BrokenAuthorityError, match="no state was ever kept here"):
            await authority.load(client, "dayfly-system", make_it=False)
        assert server.objects("secrets") == []
        made = await authority.load(client, "dayfly-system")
        assert await authority.load(client, "dayfly-system", make_it=False) == made

    run(story())


@pytest.mark.parametrize("data", [None, {"key": "eA=="}])
def test_one_that_was_emptied_is_said_and_not_made_anew(data):
    async def story():
        client = Client(FakeCluster(seed=1, extra=KINDS).transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "dayfly-system"}})
        meta = {"name": authority.NAME}
        await client.create(SECRETS, {"metadata": meta, "type": authority.TYPE, "data": data}, "dayfly-system")
        with pytest.raises(authority.BrokenAuthorityError, match=r"cannot be used: "):
            await authority.load(client, "dayfly-system")

    run(story())


@pytest.mark.parametrize("which", ["certificate", "private"])
def test_one_that_signs_nothing_is_said(which):
    """The Secret was made by hand, or restored in part; its key may be good for all that."""

    async def story():
        client = Client(FakeCluster(seed=1, extra=KINDS).transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "dayfly-system"}})
        found = await authority.load(client, "dayfly-system")
        assert authority.leaf(found, ["10.0.0.1"])
        with pytest.raises(authority.BrokenAuthorityError, match="dayfly-state cannot be used: "):
            authority.leaf(msgspec.structs.replace(found, **{which: b"no PEM"}), ["10.0.0.1"])

    run(story())
