"""`NotSent` names the failed part and the solution: the name, the connection, or the certificate."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.webhook.server import Server
from tests.webhook.webhook_sender import send, unit

from dayfly.execute.webhook.read import explain_exit_code

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def certificate(folder, *, address="127.0.0.1", begins=NOW - DAY, ends=NOW + DAY):
    """Return a self-signed certificate in a file with its key, and its text without the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    text = made.public_bytes(pem).decode()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    file = folder / "certificate.pem"
    file.write_text(text + private)
    return file, text


def explained(sent, made):
    reason, message = explain_exit_code(sent.code, made)
    assert (reason, sent.reason) == ("NotSent", "NotSent")
    assert message.startswith("nothing was sent: ")
    return message


def failing(fault):
    def resolve(*_):
        raise fault

    return resolve


@pytest.mark.parametrize("resolver", [failing(OSError(-2, "Name or service not known")), lambda *_: []])
def test_unknown_name_is_reported_as_the_name(tmp_path, resolver):
    made = unit("https://nowhere.example/")
    assert "the server's name was not found; check the host in `url`" in explained(
        send(tmp_path, made, resolver=resolver), made
    )


def test_refused_connection_is_reported_as_refused(tmp_path):
    with Server(lambda *_: None) as server:
        name = server.name
    made = unit(f"http://{name}/")
    assert "the connection was refused; check the port" in explained(send(tmp_path, made, allowed=[name]), made)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (TimeoutError("timed out"), "no connection in time; check firewalls"),
        (OSError(113, "No route to host"), "unreachable"),
        (OSError(101, "Network is unreachable"), "unreachable"),
        (OSError(1, "Operation not permitted"), "unreachable"),
        (OSError(5, "Input/output error"), "could not be reached"),
    ],
)
def test_failed_connection_is_reported_by_its_cause(tmp_path, monkeypatch, fault, message):
    class Broken(socket.socket):
        def connect(self, _address):
            raise fault

    monkeypatch.setattr("dayfly.execute.webhook.http_exchange.socket.socket", Broken)
    address = [(socket.AF_INET, ("127.0.0.1", 9))]
    made = unit("http://api.example:9/")
    assert message in explained(send(tmp_path, made, resolver=lambda *_: address, allowed=["api.example:9"]), made)


@pytest.mark.parametrize(
    ("how", "trusted", "message"),
    [
        ({}, False, "not from a trusted authority; set `tls.ca` to that authority"),
        ({"begins": NOW - 3 * DAY, "ends": NOW - DAY}, True, "has expired or is not valid yet"),
        ({"begins": NOW + DAY, "ends": NOW + 3 * DAY}, True, "has expired or is not valid yet"),
        ({"address": "127.0.0.9"}, True, "is for another host"),
    ],
)
def test_refused_certificate_is_reported_by_its_cause(tmp_path, how, trusted, message):
    file, ca = certificate(tmp_path, **how)
    with Server(lambda *_: None, certificate=file) as server:
        made = unit(server.url, **({"tls": {"ca": ca}} if trusted else {}))
        sent = send(tmp_path, made, allowed=[server.name])
    assert message in explained(sent, made)
    assert sent.pauses == [], "a retry would not help"


def test_server_without_tls_is_reported_as_the_handshake(tmp_path):
    with Server(lambda *_: None) as server:
        made = unit(server.url.replace("http://", "https://"))
        sent = send(tmp_path, made, allowed=[server.name])
    assert "the TLS handshake failed" in explained(sent, made)
