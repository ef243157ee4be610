"""No request is sent to an address that is not public, in any notation and with any resolver."""

import errno
import socket

import pytest
from tests.webhook.server import Server, answer
from tests.webhook.webhook_sender import send, unit

from dayfly.execute.webhook import address_policy
from dayfly.execute.work_order import CannotRenderError
from dayfly.spec.errors import SpecError
from dayfly.spec.steps import webhook

# Notations of 127.0.0.1, 169.254.169.254 and 10.0.0.1 that programs accept.
QUADS = {
    "127.0.0.1": 0x7F000001,
    "169.254.169.254": 0xA9FEA9FE,
    "10.0.0.1": 0x0A000001,
    "192.168.0.1": 0xC0A80001,
    "0.0.0.0": 0,
}


def _forms(quad, number):
    parts = [int(part) for part in quad.split(".")]
    yield quad
    yield f"{quad}."
    yield str(number)
    yield f"0x{number:x}"
    yield f"0X{number:X}"
    yield f"0{number:o}"
    yield ".".join(f"0{part:o}" for part in parts)
    yield ".".join(f"0x{part:x}" for part in parts)
    if parts[0] != 10:  # 010 is 8, which is a public address
        yield ".".join(f"{part:03d}" for part in parts)
    yield f"{parts[0]}.{number & 0xFFFFFF}"
    yield f"{parts[0]}.{parts[1]}.{number & 0xFFFF}"
    yield f"0x{parts[0]:x}.{parts[1]}.0{parts[2]:o}.{parts[3]}"
    high, low = number >> 16, number & 0xFFFF
    for prefix in ("::ffff:", "::ffff:0:", "::", "64:ff9b::", "64:ff9b:1::", "64:ff9b:1:ffff::"):
        yield f"[{prefix}{high:x}:{low:x}]"
        yield f"[{prefix}{quad}]"
    yield f"[2002:{high:x}:{low:x}::1]"
    yield f"[2001:0:{0x01010101 >> 16:x}:{0x0101:x}::{~high & 0xFFFF:x}:{~low & 0xFFFF:x}]"
    yield f"[2001:0:{high:x}:{low:x}::1]"
    yield f"public.example@{quad}"
    yield f"{quad}#@public.example"
    yield f"{quad}\\@public.example"
    yield f"{quad}%2f@public.example"
    yield "".join(chr(0xFF10 + int(char)) if char.isdigit() else "。" for char in quad)
    yield "".join(chr(0x2460 + int(char) - 1) if char in "123456789" else char for char in quad)


HOSTS = (
    *(host for quad, number in QUADS.items() for host in _forms(quad, number)),
    *("0", "0.0.0.0", "0x0", "127.1", "127.0.1", "127.127.127.127", "0.0.0.1", "localhost", "localhost.", "LOCALHOST"),
    *("[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]"),
    *("100.100.100.200", "168.63.129.16", "192.0.0.192", "100.64.0.1", "172.16.0.1", "172.31.255.255", "198.18.0.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1"),
    *("[2001:db8::1]", "[100::1]", "[fec0::1]", "[5f00::1]", "[3fff::1]", "192.88.99.1"),
    *(" 127.0.0.1", "127.0.0.1 ", "127.0.0.1\t", "127.0.0.1\n", "127.0.0.1\r\nHost: x", "user:pass@127.0.0.1", ""),
    *("[::ffff:7f00:1%25x]", "127.0.0.1:0", "[", "]", "[127.0.0.1]", "127.0.0.1:99999", "127.0.0.1:-1"),
)
URLS = (
    *(f"https://{host}/" for host in HOSTS),
    *(f"{scheme}://127.0.0.1/" for scheme in ("http", "ftp", "file", "gopher", "dict", "ldap", "jar", "ws", "HTTPS")),
    *(
        "file:///etc/passwd",
        "//127.0.0.1/",
        "https:127.0.0.1",
        "https:///127.0.0.1/",
        "https:/\\127.0.0.1",
        "127.0.0.1",
    ),
)


@pytest.fixture
def no_connection(monkeypatch):
    made = []

    def connect(_self, address):
        made.append(address)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(socket.socket, "connect", connect)
    return made


def _names(host, port):
    """Resolve numbers as the system does, without a DNS server."""
    if host.rstrip(".").lower() == "localhost":
        host = "127.0.0.1"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError) as fault:
        raise OSError(str(fault)) from None
    return [(family, address) for family, _, _, _, address in found]


def test_no_spelling_of_an_address_reaches_a_private_one(tmp_path, no_connection):
    assert len(set(URLS)) >= 200
    passed = []
    for url in URLS:
        try:
            webhook.check_url(url)
        except SpecError:
            pass
        else:
            passed.append(url)
        # The sender also checks documents that bypassed `spec`.
        try:
            sent = send(tmp_path, unit(url), resolver=_names)
        except CannotRenderError:
            continue
        assert sent.reason in ("AddressRefused", "NotSent", "InputInvalid"), (url, sent.log)
    assert no_connection == []
    # Only the sender can refuse these, because they look like ordinary addresses and names.
    assert all(url.startswith(("https://", "http://127.0.0.1/")) for url in passed), passed


def test_every_resolved_address_is_checked_at_each_connection(tmp_path, no_connection):
    told = []
    answers = [["93.184.216.34"], ["127.0.0.1"]]

    def rebinding(host, port):
        told.append(host)
        return [(socket.AF_INET, (each, port)) for each in answers[min(len(told), 2) - 1]]

    # The first connection is refused. For the second try, the name resolves to another address.
    assert send(tmp_path, unit("https://api.example/"), resolver=rebinding).reason == "AddressRefused"
    assert (told, no_connection) == (["api.example"] * 2, [("93.184.216.34", 443)])
    answers[0] = ["93.184.216.34", "10.0.0.1"]
    told.clear()
    no_connection.clear()
    assert send(tmp_path, unit("https://api.example/"), resolver=rebinding).reason == "AddressRefused"
    assert no_connection == []


def test_plain_http_is_refused_without_permission(tmp_path, no_connection):
    def public(_host, port):
        return [(socket.AF_INET, ("93.184.216.34", port))]

    sent = send(tmp_path, unit("http://api.example/"), resolver=public)
    assert (sent.reason, no_connection, sent.pauses) == ("AddressRefused", [], [])
    assert "--allow-webhook api.example:80" in sent.log


def test_permission_covers_only_that_host_and_port(tmp_path):
    with Server(lambda *_: answer(200)) as server:
        assert send(tmp_path, unit(server.url)).reason == "AddressRefused"
        assert send(tmp_path, unit(server.url), allowed=["127.0.0.1:1"]).reason == "AddressRefused"
        assert send(tmp_path, unit(server.url), allowed=[f"localhost:{server.port}"]).reason == "AddressRefused"
        assert server.connections == 0
        assert send(tmp_path, unit(server.url), allowed=[server.name]).code == 0


@pytest.mark.parametrize("public", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_address_is_allowed(public):
    assert address_policy.why_refused(public) == ""


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1", "is loopback"),
        ("169.254.169.254", "is a metadata service"),
        ("169.254.1.1", "is link-local"),
        ("0.0.0.0", "is unspecified"),
        ("224.0.0.1", "is multicast"),
        ("10.0.0.1", "is private"),
        ("100.64.0.1", "is not global"),
        ("2002:7f00:1::1", "contains 127.0.0.1, which is loopback"),
        ("64:ff9b::a00:1", "is private"),
        ("nowhere", "is not an IP address"),
        ("fe80::1%eth0", "is link-local"),
    ],
)
def test_refused_address_has_a_reason(address, said):
    assert address_policy.why_refused(address) == said


@pytest.mark.parametrize(
    ("fault", "said"),
    [(OSError(111, "Connection refused"), "connection refused"), (TimeoutError("timed out"), "timed out")],
)
def test_connection_error_is_reported(tmp_path, monkeypatch, fault, said):
    """Some errors have no message of the system."""

    def connect(*_):
        raise fault

    monkeypatch.setattr(socket.socket, "connect", connect)
    sent = send(tmp_path, unit("http://127.0.0.1:7/"), allowed=["127.0.0.1:7"])
    assert sent.reason == "NotSent"
    assert f"cannot connect to 127.0.0.1:7: {said}" in sent.log
