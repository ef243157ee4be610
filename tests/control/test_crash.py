"""kill -9 between any two steps, then a restart: the store and the host agree, and nothing is done twice."""

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

import pytest

from control import wishes
from control.client import Client, serving
from control.fake_host import FakeHost
from dayfly.control import app
from dayfly.control.picture import Picture

TESTS = Path(__file__).parent.parent


@contextlib.contextmanager
def server(home, die_at=""):
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    environment = {**os.environ, "DIE_AT": die_at, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "control.small_server", home]
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


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it has not come to pass"
        time.sleep(0.05)


def killed_by(call, process):
    """The request dies with the server that it kills."""
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        call()
    assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(("die_at", "offered"), [("before offer", 0), ("after offer", 1)])
def test_a_sandbox_is_offered_once_whatever_dies(tmp_path, die_at, offered):
    with server(tmp_path, die_at) as (client, process):
        client.put("resource-plugins/db", wishes.plugin())
        killed_by(lambda: client.put("sandboxes/sb1", wishes.sandbox()), process)
    assert len(known(tmp_path)["offers"]) == offered
    with server(tmp_path) as (client, _):
        until(lambda: client.get("sandboxes/sb1")["status"]["ready"])
        made = client.get("sandboxes/sb1")
        assert client.put("sandboxes/sb1", wishes.sandbox())["routingKey"] == made["routingKey"]
    assert len(known(tmp_path)["offers"]) == 1


@pytest.mark.parametrize(("die_at", "told"), [("before stop", 0), ("after stop", 1)])
def test_a_deletion_is_carried_out_whatever_dies(tmp_path, die_at, told):
    with server(tmp_path, die_at) as (client, process):
        client.put("sandboxes/sb1", wishes.empty())
        killed_by(lambda: client.delete("sandboxes/sb1"), process)
    assert len(known(tmp_path)["closed"]) == told
    (uid,) = known(tmp_path)["offers"]
    with server(tmp_path) as (client, _):
        assert client.get("sandboxes/sb1")["status"]["ready"] is False
        until(lambda: uid in known(tmp_path)["closed"])
        (tmp_path / f"end-{uid}").touch()
        until(lambda: client.call("GET", "sandboxes/sb1").status == 404)


@pytest.mark.parametrize("die_at", ["before abandon", "after abandon"])
def test_giving_up_is_carried_out_whatever_dies(tmp_path, die_at):
    with server(tmp_path, die_at) as (client, process):
        client.put("sandboxes/sb1", wishes.empty())
        killed_by(lambda: client.delete("sandboxes/sb1?force=true"), process)
    with server(tmp_path) as (client, _):
        until(lambda: client.call("GET", "sandboxes/sb1").status == 404)
    assert len(known(tmp_path)["over"]) == 1


@pytest.mark.parametrize("die_at", ["before archive", "after archive"])
def test_an_end_is_noticed_whatever_dies(tmp_path, die_at):
    with server(tmp_path, die_at) as (client, process):
        client.put("sandboxes/sb1", wishes.empty())
        (uid,) = known(tmp_path)["offers"]
        (tmp_path / f"end-{uid}").touch()
        assert process.wait(20) == -signal.SIGKILL
    with server(tmp_path) as (client, _):
        until(lambda: client.call("GET", "sandboxes/sb1").status == 404)
        assert client.get("sandboxes/sb1/report")["phase"] == "cleaned"
        again = client.put("sandboxes/sb1", wishes.empty())
        assert again["status"]["ready"] is True
    assert known(tmp_path)["over"] == [uid]
    assert len(known(tmp_path)["offers"]) == 1


def test_a_server_that_is_killed_at_any_moment_converges(tmp_path):
    """Moments that nobody chose: eight kills amid requests, each after seven answers or more."""
    numbers = itertools.count()

    def load(client, killing):
        for done, number in enumerate(numbers):
            if done == 7:
                killing.start()
            client.put(f"sandboxes/sb{number % 7}", wishes.empty(labels={"n": str(number)}))

    for round_ in range(8):
        with server(tmp_path) as (client, process), pytest.raises((http.client.HTTPException, ConnectionError)):
            load(client, threading.Timer(0.013 * round_, process.kill))
    assert next(numbers) > 50, "it was killed while it had work"
    with server(tmp_path) as (client, _):
        until(lambda: all(sandbox["status"]["ready"] for sandbox in client.get("sandboxes")))
        keys = {sandbox["routingKey"] for sandbox in client.get("sandboxes")}
    offers = known(tmp_path)["offers"]
    assert len(keys) == len(offers) == 7
    assert len({json.loads(offer)["name"] for offer in offers.values()}) == 7


def test_an_idle_server_ends_at_once_and_long_polls_do_not_hold_it(tmp_path, monkeypatch):
    host, asked = FakeHost(), threading.Event()
    changed = Picture.changed

    def noted(self, uid, version, seconds):
        asked.set()
        return changed(self, uid, version, seconds)

    monkeypatch.setattr(Picture, "changed", noted)
    monkeypatch.setattr(app, "GRACE_S", 60)  # much longer than a slow machine needs
    with ThreadPoolExecutor(1) as pool:
        with serving(tmp_path / "control.db", {"local": host}) as client:
            client.put("sandboxes/sb1", wishes.empty())
            waiting = pool.submit(client.get, "sandboxes/sb1/report?after=1&wait=30")
            assert asked.wait(20)
            began = time.monotonic()
        assert time.monotonic() - began < 25
        assert waiting.result()["name"] == "sb1"
