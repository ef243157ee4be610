"""The Secret with what signs for states: nobody changes it, and each process reads the same."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
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


def _key(key: PrivateKeyTypes, kept: KeySerializationEncryption) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, kept)


@pytest.mark.parametrize(
    "private",
    [
        _key(ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"x")),
        _key(ed25519.Ed25519PrivateKey.generate(), NoEncryption()),
    ],
    ids=["with a password", "of another kind"],
)
def test_one_that_was_made_by_hand_in_another_form_is_said(private):
    """Whoever serves states looks again: what it did not know would be the last that it did."""

    async def story():
        client = Client(FakeCluster(seed=1, extra=KINDS).transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "dayfly-system"}})
        found = await authority.load(client, "dayfly-system")
        with pytest.raises(authority.BrokenAuthorityError, match="dayfly-state cannot be used: "):
            authority.leaf(msgspec.structs.replace(found, private=private), ["10.0.0.1"])

    run(story())


def test_a_certificate_that_is_no_text_is_said():
    """Steps are given it in their environment."""

    async def story():
        client = Client(FakeCluster(seed=1, extra=KINDS).transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "dayfly-system"}})
        data = {"key": bytes(32), "ca.crt": b"\x30\x82\xff", "ca.key": b""}
        body = {"metadata": {"name": authority.NAME}, "type": authority.TYPE, "data": data}
        await client.create(SECRETS, msgspec.to_builtins(body), "dayfly-system")
        with pytest.raises(authority.BrokenAuthorityError, match=r"cannot be used: "):
            await authority.load(client, "dayfly-system")

    run(story())
