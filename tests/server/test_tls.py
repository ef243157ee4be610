"""The renewal of a certificate while the server runs."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess

import pytest

from dayfly.server.http import tls
from dayfly.server.http.tls import Certificate, CertificateReloader


def issue(folder, name, days=1):
    """Write a certificate for that name and its key, replacing the old files."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"]
    files = ["-days", str(days), "-keyout", folder / "tls.key", "-out", folder / "tls.crt"]
    subprocess.run([*command, f"/CN={name}", *files], check=True, capture_output=True)
    return Certificate(str(folder / "tls.crt"), str(folder / "tls.key"))


@pytest.fixture
def certificate(tmp_path):
    return issue(tmp_path, "first")


async def shown(context, name):
    """Return whether a new connection gets the certificate in the file."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    trusting = ssl.create_default_context(cafile=name)
    trusting.check_hostname = False
    try:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.close()
        return True
    except ssl.SSLCertVerificationError:
        return False
    finally:
        server.close()


@pytest.fixture
def context(certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    return context


async def test_new_connections_get_the_renewed_certificate(certificate, context, tmp_path):
    renewal = CertificateReloader(context, certificate)
    renewal.reload_if_changed()
    assert await shown(context, certificate.chain)
    issue(tmp_path, "second")
    assert not await shown(context, certificate.chain)
    renewal.reload_if_changed()
    assert await shown(context, certificate.chain)


@pytest.mark.parametrize("spoil", ["missing", "half", "another's key"])
async def test_unusable_renewed_certificate_keeps_the_old_one(certificate, context, tmp_path, spoil, caplog):
    kept = tmp_path / "kept.crt"
    kept.write_bytes((tmp_path / "tls.crt").read_bytes())
    renewal = CertificateReloader(context, certificate)
    if spoil == "missing":
        (tmp_path / "tls.key").unlink()
    elif spoil == "half":
        (tmp_path / "tls.crt").write_text("-----BEGIN CERT")
    else:
        key = (tmp_path / "tls.key").read_bytes()
        issue(tmp_path, "second")
        (tmp_path / "tls.key").write_bytes(key)
    with caplog.at_level(logging.WARNING):
        renewal.reload_if_changed()
    assert await shown(context, str(kept))
    assert ("so the old one stays" in caplog.text) == (spoil != "missing")
    issue(tmp_path, "third")
    renewal.reload_if_changed()
    assert await shown(context, certificate.chain)


async def test_renewed_certificate_is_loaded_in_the_background(certificate, context, tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "CHECK_INTERVAL_S", 0)
    task = asyncio.create_task(CertificateReloader(context, certificate).run())
    await asyncio.sleep(0)
    issue(tmp_path, "second")
    while not await shown(context, certificate.chain):
        pass  # each wait lets the other task run
    task.cancel()
