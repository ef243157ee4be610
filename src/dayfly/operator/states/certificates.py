"""Certificates by which steps know whoever serves their states. Loaded by those who serve states alone: 10 MB."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

_BACK = dt.timedelta(days=1)
_LONG, _SHORT = dt.timedelta(days=7300), dt.timedelta(days=365)


def authority() -> tuple[bytes, bytes]:
    """A new authority: its certificate and its private key, as PEM."""
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
    return made.public_bytes(serialization.Encoding.PEM), _pem(key)


def leaf(certificate: bytes, private: bytes, names: Sequence[str]) -> bytes:
    """A private key with a certificate of that authority for these names and addresses, as one PEM file.

    Raises:
        ValueError: that is no authority of ours.
        TypeError: its key has a password.
    """
    issuer = x509.load_pem_x509_certificate(certificate)
    signing = serialization.load_pem_private_key(private, None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ValueError("its private key is none of an elliptic curve")  # noqa: TRY004 - as any other that cannot be used
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
