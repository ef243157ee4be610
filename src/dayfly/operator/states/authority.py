"""What the replicas share: the key that seals states and signs tokens, and the authority by which steps know them.

Both lie in one Secret of the operator's namespace, made by whichever replica is first. Each replica makes itself a
certificate of its own.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dayfly.execute.pod.names import GROUP
from dayfly.execute.state.access import KEY_BYTES, Keys
from dayfly.kube import errors
from dayfly.kube.objects import SECRETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.kube.client import Client

NAME = "dayfly-state"
"""Of the Secret, and of the Service."""
TYPE = f"{GROUP}/state-key"
_KEY, _CERTIFICATE, _PRIVATE = "key", "ca.crt", "ca.key"
_BACK = dt.timedelta(days=1)
_LONG, _SHORT = dt.timedelta(days=7300), dt.timedelta(days=365)


class BrokenAuthorityError(Exception):
    """The Secret is there and not what was written; the text says which."""


class Authority(msgspec.Struct, frozen=True):
    """The key, and the authority's certificate and private key (PEM)."""

    keys: Keys
    certificate: bytes
    private: bytes


async def load(client: Client, namespace: str, *, make_it: bool = True) -> Authority:
    """As it lies in the cluster; made if there is none.

    Raises:
        BrokenAuthorityError: what lies there cannot be used.
        errors.ApiError: the server cannot be asked, or does not let us.
    """
    found = await client.find(SECRETS, NAME, namespace)
    if found is None and not make_it:
        raise BrokenAuthorityError(f"there is no Secret {namespace}/{NAME}: no state was ever kept here")
    if found is None:
        try:
            found = await client.create(SECRETS, _secret(namespace), namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            found = await client.get(SECRETS, NAME, namespace)
    data = found.data or {}
    try:
        return Authority(Keys.of(data[_KEY]), data[_CERTIFICATE], data[_PRIVATE])
    except (KeyError, ValueError) as error:
        raise BrokenAuthorityError(f"Secret {namespace}/{NAME} cannot be used: {error}") from None


def leaf(authority: Authority, names: Sequence[str]) -> bytes:
    """A private key with a certificate for these names and addresses, as one PEM file."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signing = serialization.load_pem_private_key(authority.private, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey), "an authority's key is of this kind"
    key = ec.generate_private_key(ec.SECP256R1())
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    made = (
        _begun(issuer.subject, _named("dayfly state"), key, _SHORT)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(known, critical=False)
        .sign(signing, hashes.SHA256())
    )
    return _pem(key) + made.public_bytes(serialization.Encoding.PEM)


def _secret(namespace: str) -> dict[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("dayfly state authority")
    others = "digital_signature content_commitment key_encipherment data_encipherment key_agreement crl_sign"
    usage = dict.fromkeys(f"{others} encipher_only decipher_only".split(), False)
    made = (
        _begun(name, name, key, _LONG)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    data = {
        _KEY: secrets.token_bytes(KEY_BYTES),
        _CERTIFICATE: made.public_bytes(serialization.Encoding.PEM),
        _PRIVATE: _pem(key),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "immutable": True,
        "type": TYPE,
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def _begun(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey, span: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACK)
        .not_valid_after(now + span)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
