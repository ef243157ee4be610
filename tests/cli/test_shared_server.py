"""A server for many as its administrator and its users have it: TLS, logins, keys, what is refused."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import ipaddress
import json
import sqlite3
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dayfly import __version__


def certificate(folder, called="cert"):
    """The files of a certificate for 127.0.0.1, signed by itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dayfly")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, secret = folder / f"{called}.pem", folder / f"{called}-key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return str(chain), str(secret)


@contextlib.contextmanager
def running(cli, *arguments):
    """Start a shared server and yield its address."""
    server = cli.start("server", "--listen", "127.0.0.1:0", *arguments)
    said = server.stderr.readline().decode()
    assert "serves at" in said, said + server.stderr.read().decode()
    yield said.split()[-1]
    server.terminate()
    assert (server.wait(30), server.stderr.read().decode()) == (0, "")


@pytest.mark.slow
@pytest.mark.long_story
def test_keys_travel_by_tls_and_are_kept_for_their_owner_alone(cli, tmp_path):
    chain, secret = certificate(tmp_path)
    key = cli("server", "init", "acme").out.strip()
    again = cli("server", "init", "acme")
    assert (again.code, again.out) == (1, "")
    assert "already exists" in again.err
    with running(cli, "--tls-cert", chain, "--tls-key", secret) as url:
        assert url.startswith("https://")
        trusting = {"SSL_CERT_FILE": chain}
        stranger = cli("login", url, "--name", "work", stdin=key)
        assert stranger.code == 6, "its certificate is not trusted"
        wrong = cli("login", url, "--name", "work", stdin=key + "x", **trusting)
        assert wrong.code == 5
        assert not (cli.home / "servers").exists(), "the key is checked before it is stored"
        done = cli("login", url, "--name", "work", stdin=key + "\n", **trusting)
        assert done.code == 0, done.err
        assert 'organisation "acme", role admin' in done.err
        assert key not in done.err + done.out
        assert cli("login", url, "--name", "own", "--ca", chain, stdin=key).code == 0
        assert cli("sandbox", "list", "--server", "own").code == 0, "it is kept with the server"
        assert cli("login", url, "--name", "own", "--ca", secret, stdin=key).err.count("contains no certificates") == 1
        other, _ = certificate(tmp_path, "other")
        assert cli("login", url, "--name", "own", "--ca", other, stdin=key, **trusting).code == 6, "these alone"
        assert (cli.home / "servers").stat().st_mode & 0o777 == 0o600
        made = json.loads(
            cli("key", "create", "eyes", "--role", "viewer", "-o", "json", "--server", "work", **trusting).out
        )
        assert cli("login", url, "--name", "look", stdin=made["key"], **trusting).code == 0
        refused = cli("cluster", "add", "far", "--server", "look", **trusting)
        assert refused.code == 5
        assert "needs the role admin" in refused.err
        assert "ask an admin of the organisation" in refused.err
        assert cli("cluster", "add", "far", "--server", "work", **trusting).code == 0
        assert cli("get", "--server", "look", **trusting).code == 0
        context = ssl.create_default_context(cafile=chain)
        connection = http.client.HTTPSConnection(url.removeprefix("https://"), context=context, timeout=20)
        connection.request("GET", "/api/v2/meta/health")
        assert connection.getresponse().headers["strict-transport-security"] == "max-age=31536000"
        connection.close()

        assert f"dayfly/{__version__}" in cli("audit", "--server", "work", **trusting).out, "which program asked"
        head = cli("audit", "--verify", "--server", "work", **trusting)
        assert head.code == 0, head.err
        with contextlib.closing(sqlite3.connect(cli.home / "server.db", isolation_level=None)) as database:
            database.execute("DELETE FROM audit WHERE number > 3")
            database.execute("UPDATE audit_heads SET number = 3, digest = (SELECT digest FROM audit WHERE number = 3)")
        assert cli("audit", "--verify", "--server", "work", **trusting).code == 0, (
            "the change cannot be detected without a stored head"
        )
        since = cli("audit", "--verify", "--since", head.out.strip(), "--server", "work", **trusting)
        assert since.code == 1
        assert "no longer exists" in since.err


def test_lost_admin_key_is_replaced_at_the_database(cli):
    """The server runs, and its other keys stay valid."""
    first = cli("server", "init", "acme").out.strip()
    cli("server", "init", "globex")
    with running(cli) as url:
        done = cli("server", "admin-key", "acme")
        assert (done.code, done.out.count("\n")) == (0, 1), done.err
        for key in (first, done.out.strip()):
            where = {"DAYFLY_URL": url, "DAYFLY_ORG": "acme", "DAYFLY_API_KEY": key}
            assert cli("cluster", "list", **where).code == 0
        assert "dayfly server admin-key" in cli("audit", **where).out
        listed = json.loads(cli("key", "list", "-o", "json", **where).out)
        assert [each["role"] for each in listed] == ["admin", "admin"]
        assert cli("audit", "--verify", **where).code == 0


def test_admin_key_of_an_unknown_organisation_creates_nothing(cli):
    unknown = cli("server", "admin-key", "acme")
    assert (unknown.code, unknown.out) == (1, "")
    assert not (cli.home / "server.db").exists()
    key = cli("server", "init", "acme").out.strip()
    unknown = cli("server", "admin-key", "acne")
    assert (unknown.code, unknown.out) == (1, "")
    assert 'no organisation "acne"' in unknown.err
    with running(cli) as url:
        where = {"DAYFLY_URL": url, "DAYFLY_ORG": "acme", "DAYFLY_API_KEY": key}
        assert len(json.loads(cli("key", "list", "-o", "json", **where).out)) == 1


def test_a_server_answers_at_the_loopback_address_that_it_names(cli):
    """Under Linux all of 127.0.0.0/8 is this machine."""
    key = cli("server", "init", "acme").out.strip()
    server = cli.start("server", "--listen", "127.0.0.2:0")
    url = server.stderr.readline().decode().split()[-1]
    assert url.startswith("http://127.0.0.2:")
    done = cli("sandbox", "list", DAYFLY_URL=url, DAYFLY_ORG="acme", DAYFLY_API_KEY=key)
    assert done.code == 0, done.err


def test_audit_verify_prints_its_head_as_json(cli):
    key = cli("server", "init", "acme").out.strip()
    with running(cli) as url:
        where = {"DAYFLY_URL": url, "DAYFLY_ORG": "acme", "DAYFLY_API_KEY": key}
        plain = cli("audit", "--verify", **where).out
        head = json.loads(cli("audit", "--verify", "-o", "json", **where).out)
    assert plain == f"{head['number']}:{head['digest']}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("server", "--listen", "0.0.0.0:0"), 2, "keys would be sent unencrypted"),
        (("server", "--listen", "127.0.0.1"), 2, "write --listen HOST:PORT"),
        (("server", "--listen", "127.0.0.1:" + "9" * 5000), 2, "write --listen HOST:PORT"),
        (("up", "--allow-webhook", "a:" + "9" * 5000), 2, "write --allow-webhook HOST:PORT"),
        (("audit", "--since", "9" * 5000 + ":" + "0" * 64), 2, "use a head that --verify has printed"),
        (("server", "--tls-cert", "none.pem"), 2, "use both"),
        (("server", "--tls-cert", "none.pem", "--tls-key", "none.key"), 2, "none.pem: no such file"),
        (("server", "--database", "mysql://a:geheim@b/c"), 1, "write sqlite:///PATH or postgresql://"),
        (("server", "init", "Acme!"), 2, "is not a valid name for an organisation"),
        (("server", "init", "*"), 2, "is not a valid name for an organisation"),
        (("server", "admin-key", "*"), 2, "is not a valid name for an organisation"),
        (("server", "migrate", "9999"), 1, "there is no schema 9999"),
        (("login", "http://a.example"), 2, "would be sent unencrypted"),
        (("sandbox", "list", "--server", "none"), 3, 'no server "none" is known here'),
        (("get", "--server", "none", "--context", "c"), 2, "cannot be combined"),
        (("audit", "--since", "7"), 2, "use a head that --verify has printed"),
        (("key", "create", "ci", "--expires", "0s"), 2, "--expires must be at least 1s"),
        (("key", "create", "ci", "--expires", "30"), 2, "'30' has no unit"),
        (("mcp", "--lease", "0"), 2, "--lease must be at least 1s"),
    ],
)
def test_bad_server_arguments_are_explained_without_secrets(cli, capfd, monkeypatch, arguments, code, says):
    from dayfly.cli.verbs import run

    monkeypatch.setenv("DAYFLY_HOME", str(cli.home))
    monkeypatch.chdir(cli.folder)
    assert run(list(arguments)) == code
    err = capfd.readouterr().err
    assert says in err
    assert "geheim" not in err


def freeze(url, token, number=9):
    """Say as an agent what this database knows nothing of; the status of the answer."""
    opening = {"clusterUid": "u", "previous": number, "number": number, "digest": "x", "runs": ["of-another-time"]}
    headers = {"signadot-cluster-token": token, "Dayfly-Agent-Protocol": "2", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(url.partition("://")[2])
    connection.request("POST", "/api/v2/agent/session", json.dumps(opening), headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_cluster_that_is_frozen_is_looked_at_and_thawed(cli):
    """Frozen by an agent that remembers more than this database does."""
    key = cli("server", "init", "acme").out.strip()
    with running(cli) as url:
        assert cli("login", url, "--name", "work", stdin=key).code == 0
        assert cli("cluster", "add", "east", "--server", "work").code == 0
        token = cli("cluster", "token", "create", "east", "--server", "work").out.strip()
        assert freeze(url, token) == 423

        shown = cli("cluster", "thaw", "east", "--server", "work")
        assert (shown.code, shown.out) == (0, "")
        for says in ('"east" is frozen since 20', "Only in the cluster (UIDs): of-another-time", "the server: nothing"):
            assert says in shown.err
        assert shown.err.endswith("with: dayfly cluster thaw east --yes\n")
        assert json.loads(cli("cluster", "thaw", "east", "-o", "json", "--server", "work").out)["frozen"] is True
        assert cli("cluster", "thaw", "east", "--yes", "--server", "work").err.endswith(
            "continues from its present state.\n"
        )
        assert cli("cluster", "thaw", "east", "--server", "work").err == 'Cluster "east" is not frozen.\n'
        assert freeze(url, token, 99) == 423
        shown = cli("cluster", "thaw", "east", "--yes", "-o", "json", "--server", "work")
        assert json.loads(shown.out)["frozen"] is False


@pytest.mark.proof
def test_two_servers_share_a_postgresql(cli):
    from tests.server import databases

    with databases.postgres() as postgres:
        where = {"DAYFLY_DATABASE": postgres.fresh()}
        key = cli("server", "init", "acme", **where).out.strip()
        with (
            running(cli, "--database", where["DAYFLY_DATABASE"]) as one,
            running(cli, "--database", where["DAYFLY_DATABASE"]) as other,
        ):
            for name, url in (("one", one), ("other", other)):
                assert cli("login", url, "--name", name, stdin=key).code == 0
            assert cli("cluster", "add", "far", "--server", "one").code == 0
            assert "far" in cli("cluster", "list", "--server", "other").out
            token = cli("cluster", "token", "create", "far", "--server", "other").out
            assert token.startswith("acme@")
            assert cli("audit", "--verify", "--server", "one").code == 0
