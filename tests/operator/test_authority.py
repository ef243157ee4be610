"""The Secret with the certificate authority for the state servers."""

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
from tests.kube.fake import FakeCluster
from tests.operator.rig.world import KINDS

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES, SECRETS
from dayfly.operator.states import authority


@pytest.fixture
def server() -> FakeCluster:
    return FakeCluster(seed=1, extra=KINDS)


@pytest.fixture
async def client(server: FakeCluster) -> KubeClient:
    found = KubeClient(server.transport("operator"), seed=1)
    await found.create(NAMESPACES, {"metadata": {"name": "dayfly-system"}})
    return found


async def test_authority_secret_is_created_once_and_immutable(server, client):
    first = await authority.load(client, "dayfly-system")
    assert await authority.load(client, "dayfly-system") == first
    [made] = server.objects("secrets")
    assert made["immutable"] is True
    assert made["type"] == authority.TYPE


async def test_reader_creates_no_authority(server, client):
    """The command that reads a state needs no key."""
    with pytest.raises(authority.BrokenAuthorityError, match="no state was ever stored in this cluster"):
        await authority.load(client, "dayfly-system", create=False)
    assert server.objects("secrets") == []
    made = await authority.load(client, "dayfly-system")
    assert await authority.load(client, "dayfly-system", create=False) == made


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"key": "eA=="},
        # Steps get the certificate in their environment.
        msgspec.to_builtins({"key": bytes(32), "ca.crt": b"\x30\x82\xff", "ca.key": b""}),
    ],
    ids=["empty", "only a key", "a certificate that is not text"],
)
async def test_broken_authority_is_reported_and_not_replaced(client, data):
    meta = {"name": authority.NAME}
    await client.create(SECRETS, {"metadata": meta, "type": authority.TYPE, "data": data}, "dayfly-system")
    with pytest.raises(authority.BrokenAuthorityError, match=r"cannot be used: "):
        await authority.load(client, "dayfly-system")


def _key(key: PrivateKeyTypes, kept: KeySerializationEncryption) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, kept)


@pytest.mark.parametrize(
    "damage",
    [
        {"certificate": b"no PEM"},
        {"private_key": b"no PEM"},
        {"private_key": _key(ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"x"))},
        {"private_key": _key(ed25519.Ed25519PrivateKey.generate(), NoEncryption())},
    ],
    ids=["no certificate", "no key", "a key with a password", "a key of another kind"],
)
async def test_authority_that_cannot_sign_is_reported(client, damage):
    """An admin may have created the Secret by hand, or restored a part of it."""
    found = await authority.load(client, "dayfly-system")
    assert authority.create_leaf(found, ["10.0.0.1"])
    with pytest.raises(authority.BrokenAuthorityError, match="dayfly-state cannot be used: "):
        authority.create_leaf(msgspec.structs.replace(found, **damage), ["10.0.0.1"])
