"""A backup of a server's file, made while it serves as docs/guides/back-up.md describes, and a server restored from it."""

from __future__ import annotations

import contextlib
import sqlite3

from tests.server import specs
from tests.server.client import Client, serving
from tests.server.fake_host import FakeHost

from dayfly.server.http import auth_middleware


def test_server_restores_backup_of_its_file(blank, tmp_path, monkeypatch):
    monkeypatch.setattr(auth_middleware, "KEY_CHECK_INTERVAL_S", 0.05)
    first, second = tmp_path / "server.db", tmp_path / "restored.db"
    first.write_bytes(blank.read_bytes())
    with serving(first, {"local": FakeHost()}) as client:
        client.put("clusters/far", None)
        client.put("sandboxes/kept", specs.empty(cluster="far"))
        kept = client.call("POST", "keys", {"name": "kept", "role": "member", "scope": ["name:k*"]}).json
        with contextlib.closing(sqlite3.connect(first)) as of, contextlib.closing(sqlite3.connect(second)) as to:
            of.backup(to)  # as `.backup` does
        later = client.call("POST", "keys", {"name": "later", "role": "admin"}).json
        client.delete(f"keys/{kept['id']}")
        client.put("sandboxes/late", specs.empty(cluster="far"))
        head = client.get("audit")["head"]
    for made in (kept, later):
        assert made["key"].split("_", 2)[2].encode() not in second.read_bytes()
    with serving(second, {"local": FakeHost()}) as client:
        assert [each["name"] for each in client.get("sandboxes")] == ["kept"]
        assert Client(client.port, client.store, later["key"]).call("GET", "sandboxes").status == 401
        again = Client(client.port, client.store, kept["key"])
        assert [each["name"] for each in again.get("sandboxes")] == ["kept"], (
            "it was revoked after the backup, so it works again"
        )
        assert client.get("audit")["head"]["number"] < head["number"], "`audit --verify --since` reports it"
