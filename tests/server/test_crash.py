"""kill -9 between any two steps, then a restart: store and host agree, and no step is done twice."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.server import databases, specs
from tests.server.client import Client, serving, wait_for
from tests.server.fake_host import FakeHost

from dayfly.lib import http_server
from dayfly.link.host_state import HostState
from dayfly.server.admin import audit_chain

TESTS = Path(__file__).parent.parent


@contextlib.contextmanager
def server(home, die_at="", store=""):
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS.parent / "src")])
    environment = {**os.environ, "DIE_AT": die_at, "STORE": store, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "tests.server.small_server", home]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=TESTS)
    try:
        yield Client(int(process.stdout.readline()), None), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def known(home):
    path = home / "host.json"
    return json.loads(path.read_text()) if path.exists() else {"offers": {}, "closed": {}, "over": []}


def killed_by(call, process):
    """Send a request that kills its server."""
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        call()
    assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(("die_at", "offered"), [("before offer", 0), ("after offer", 1)])
def test_sandbox_is_offered_once_after_any_crash(tmp_path, die_at, offered):
    with server(tmp_path, die_at) as (client, process):
        client.put("resource-plugins/db", specs.plugin())
        killed_by(lambda: client.put("sandboxes/sb1", specs.sandbox()), process)
    assert len(known(tmp_path)["offers"]) == offered
    with server(tmp_path) as (client, _):
        wait_for(lambda: client.get("sandboxes/sb1")["status"]["ready"])
        made = client.get("sandboxes/sb1")
        assert client.put("sandboxes/sb1", specs.sandbox())["routingKey"] == made["routingKey"]
    assert len(known(tmp_path)["offers"]) == 1


@pytest.mark.parametrize(("die_at", "told"), [("before stop", 0), ("after stop", 1)])
def test_deletion_is_carried_out_after_any_crash(tmp_path, die_at, told):
    with server(tmp_path, die_at) as (client, process):
        client.put("sandboxes/sb1", specs.empty())
        killed_by(lambda: client.delete("sandboxes/sb1"), process)
    assert len(known(tmp_path)["closed"]) == told
    (uid,) = known(tmp_path)["offers"]
    with server(tmp_path) as (client, _):
        assert client.get("sandboxes/sb1")["status"]["ready"] is False
        wait_for(lambda: uid in known(tmp_path)["closed"])
        (tmp_path / f"end-{uid}").touch()
        wait_for(lambda: client.call("GET", "sandboxes/sb1").status == 404)


@pytest.mark.parametrize("die_at", ["before abandon", "after abandon"])
def test_abandonment_is_carried_out_after_any_crash(tmp_path, die_at):
    with server(tmp_path, die_at) as (client, process):
        client.put("sandboxes/sb1", specs.empty())
        killed_by(lambda: client.delete("sandboxes/sb1?force=true"), process)
    with server(tmp_path) as (client, _):
        wait_for(lambda: client.call("GET", "sandboxes/sb1").status == 404)
    assert len(known(tmp_path)["over"]) == 1


@pytest.mark.parametrize("die_at", ["before archive", "after archive"])
def test_end_is_noticed_after_any_crash(tmp_path, die_at):
    with server(tmp_path, die_at) as (client, process):
        client.put("sandboxes/sb1", specs.empty())
        (uid,) = known(tmp_path)["offers"]
        (tmp_path / f"end-{uid}").touch()
        assert process.wait(20) == -signal.SIGKILL
    with server(tmp_path) as (client, _):
        wait_for(lambda: client.call("GET", "sandboxes/sb1").status == 404)
        assert client.get("sandboxes/sb1/report")["phase"] == "cleaned"
        again = client.put("sandboxes/sb1", specs.empty())
        assert again["status"]["ready"] is True
    assert known(tmp_path)["over"] == [uid]
    assert len(known(tmp_path)["offers"]) == 1


@pytest.mark.long_story
def test_server_killed_at_random_times_converges(tmp_path):
    """Eight kills at random times during requests, each after at least seven answers."""
    numbers = itertools.count()

    def load(client, killing):
        for done, number in enumerate(numbers):
            if done == 7:
                killing.start()
            client.put(f"sandboxes/sb{number % 7}", specs.empty(labels={"n": str(number)}))

    for round_ in range(8):
        with server(tmp_path) as (client, process), pytest.raises((http.client.HTTPException, ConnectionError)):
            load(client, threading.Timer(0.013 * round_, process.kill))
    assert next(numbers) > 50, "it was killed during work"
    with server(tmp_path) as (client, _):
        wait_for(lambda: all(sandbox["status"]["ready"] for sandbox in client.get("sandboxes")))
        keys = {sandbox["routingKey"] for sandbox in client.get("sandboxes")}
    offers = known(tmp_path)["offers"]
    assert len(keys) == len(offers) == 7
    assert len({json.loads(offer)["name"] for offer in offers.values()}) == 7


class Ledger:
    """The requests that were answered, and those without an answer."""

    def __init__(self):
        self.keys, self.plugins, self.clusters = set(), set(), set()
        self.sandboxes: dict[str, int | None] = {}
        self.unanswered: set[str] = set()

    def ask(self, client, number):
        """Send the request with this number; record its answer or that there was none."""
        name = f"sb{number % 9}"
        kinds = (
            lambda: self._sandbox(client, name, number),
            lambda: self.keys.add(_done(client, "POST", "keys", {"name": f"k{number}", "role": "viewer"})["id"]),
            lambda: self._sandbox(client, name, number),
            lambda: self._plugin(client, f"db@0.0.{number}"),
            lambda: self._gone(client, name),
            lambda: self._cluster(client, f"c{number}"),
        )
        try:
            kinds[number % len(kinds)]()
        except (http.client.HTTPException, ConnectionError):
            self.unanswered.add(name)
            raise

    def _sandbox(self, client, name, number):
        _done(client, "PUT", f"sandboxes/{name}", specs.empty(labels={"n": str(number)}))
        self.sandboxes[name] = number
        self.unanswered.discard(name)

    def _gone(self, client, name):
        if client.call("DELETE", f"sandboxes/{name}?force=true").status == 200:
            self.sandboxes[name] = None
            self.unanswered.discard(name)

    def _plugin(self, client, name):
        _done(client, "PUT", "resource-plugins/db", specs.plugin(name))
        self.plugins.add(name)

    def _cluster(self, client, name):
        _done(client, "PUT", f"clusters/{name}", None)
        self.clusters.add(name)


def _done(client, method, path, body):
    answer = client.call(method, path, body)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", databases.BOTH)
def test_killed_server_loses_and_repeats_nothing_under_load(tmp_path, request, database, played):
    store = request.getfixturevalue("postgres").fresh() if database == "postgresql" else ""
    ledger, numbers, kills = Ledger(), iter(range(1000)), 0
    while True:
        with server(tmp_path, store=store) as (client, process):
            timer = threading.Timer(0.1 + 0.017 * kills, process.kill)
            timer.start()
            try:
                for number in numbers:
                    ledger.ask(client, number)
                break
            except (http.client.HTTPException, ConnectionError):
                kills += 1
            finally:
                timer.cancel()
    played("requests amid which the server was killed", 1000)
    assert kills > 10
    with server(tmp_path, store=store) as (client, _):
        wait_for(lambda: all(sandbox["status"]["ready"] for sandbox in client.get("sandboxes")))
        found = {sandbox["name"]: int(sandbox["spec"]["labels"]["n"]) for sandbox in client.get("sandboxes")}
        for name, number in ledger.sandboxes.items():
            assert name in ledger.unanswered or found.get(name) == number
        assert ledger.keys <= {key["id"] for key in client.get("keys")}
        assert ledger.plugins <= {each["name"] for each in client.get("resource-plugins?version=all")}
        assert ledger.clusters <= {each["name"] for each in client.get("clusters")}
        entries = []
        while len(page := client.get(f"audit?after={len(entries)}")["entries"]):
            entries += page
        head = msgspec.convert(client.get("audit")["head"], audit_chain.ChainHead)
        assert audit_chain.find_fault("local", msgspec.convert(entries, list[audit_chain.ChainEntry]), head) == ""
        made = [
            entry["object"] for entry in entries if entry["action"] == "create" and "sandboxes" not in entry["object"]
        ]
        assert len(made) == len(set(made)), "no sandbox was created twice"
        wait_for(lambda: len(known(tmp_path)["offers"]) == len(found))
    names = [json.loads(offer)["name"] for offer in known(tmp_path)["offers"].values()]
    assert sorted(names) == sorted(found), "each sandbox has one run"


def test_long_poll_does_not_delay_the_end_of_the_server(tmp_path, monkeypatch):
    host, asked = FakeHost(), threading.Event()
    changed = HostState.wait_for_change

    def noted(self, uid, version, seconds):
        asked.set()
        return changed(self, uid, version, seconds)

    monkeypatch.setattr(HostState, "wait_for_change", noted)
    monkeypatch.setattr(http_server, "GRACE_S", 60)  # much longer than a slow machine needs
    with ThreadPoolExecutor(1) as pool:
        with serving(tmp_path / "control.db", {"local": host}) as client:
            client.put("sandboxes/sb1", specs.empty())
            waiting = pool.submit(client.get, "sandboxes/sb1/report?after=1&wait=30")
            assert asked.wait(20)
            began = time.monotonic()
        assert time.monotonic() - began < 25
        assert waiting.result()["name"] == "sb1"
