"""Certificates for the servers of states. This module is imported only where states are served, as it takes 10 MB."""

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

_CLOCK_TOLERANCE = dt.timedelta(days=1)
_AUTHORITY_LIFETIME, _LEAF_LIFETIME = dt.timedelta(days=7300), dt.timedelta(days=365)


def create_authority() -> tuple[bytes, bytes]:
    """Return the certificate and the private key of a new authority, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _common_name("dayfly state authority")
    others = "digital_signature content_commitment key_encipherment data_encipherment key_agreement crl_sign"
    usage = dict.fromkeys(f"{others} encipher_only decipher_only".split(), False)
    made = (
        _builder(name, name, key, _AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM), _pem(key)


def create_leaf(certificate: bytes, private: bytes, names: Sequence[str]) -> bytes:
    """Return a new private key with a certificate of the authority for these names and addresses, as one PEM file.

    Raises:
        ValueError: the authority is invalid.
        TypeError: its key has a password.
    """
    issuer = x509.load_pem_x509_certificate(certificate)
    signing = serialization.load_pem_private_key(private, None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ValueError("its private key is not an elliptic curve key")  # noqa: TRY004 - like other invalid keys
    key = ec.generate_private_key(ec.SECP256R1())
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    made = (
        _builder(issuer.subject, _common_name("dayfly state"), key, _LEAF_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(known, critical=False)
        .sign(signing, hashes.SHA256())
    )
    return _pem(key) + made.public_bytes(serialization.Encoding.PEM)


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey, span: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_TOLERANCE)
        .not_valid_after(now + span)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
