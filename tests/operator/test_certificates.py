"""Certificates of state servers, checked by another TLS implementation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from dayfly.operator.states import certificates

NAMES = ["10.0.0.1", "fd00::7", "dayfly-state.dayfly-system.svc"]


@pytest.fixture
def made() -> tuple[x509.Certificate, x509.Certificate]:
    """Return an authority and a server certificate of it."""
    authority, private = certificates.create_authority()
    pem = certificates.create_leaf(authority, private, NAMES)
    assert isinstance(load_pem_private_key(pem, None), ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate(authority), x509.load_pem_x509_certificate(pem)


def test_certificates_are_valid_for_late_clocks(made):
    late = datetime.now(UTC) - timedelta(hours=23)
    assert all(each.not_valid_before_utc < late < each.not_valid_after_utc for each in made)


def test_authority_may_only_sign_certificates(made):
    authority, leaf = made
    leaf.verify_directly_issued_by(authority)
    found = {type(each.value): each for each in authority.extensions}
    basic, usage = found[x509.BasicConstraints], found[x509.KeyUsage]
    assert basic.value == x509.BasicConstraints(ca=True, path_length=0)
    uses = ("digital_signature", "content_commitment", "key_encipherment", "key_agreement", "key_cert_sign", "crl_sign")
    assert [use for use in uses if getattr(usage.value, use)] == ["key_cert_sign"]
    critical = {kind for kind, each in found.items() if each.critical}
    assert critical == {x509.BasicConstraints, x509.KeyUsage}, "RFC 5280 has the key's identifier never be"


def test_server_certificate_has_its_names_and_signs_nothing(made):
    authority, leaf = made
    found = {type(each.value): each for each in leaf.extensions}
    names = found[x509.SubjectAlternativeName].value
    assert names.get_values_for_type(x509.IPAddress) == [ip_address(name) for name in NAMES[:2]]
    assert names.get_values_for_type(x509.DNSName) == NAMES[2:]
    assert list(found[x509.ExtendedKeyUsage].value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert found[x509.BasicConstraints].value == x509.BasicConstraints(ca=False, path_length=None)
    own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert found[x509.AuthorityKeyIdentifier].value.key_identifier == own.digest
    assert {kind for kind, each in found.items() if each.critical} == {x509.BasicConstraints}
