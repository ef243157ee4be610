"""Forks: processes like those of their baselines, kept running as long as they are desired."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import urllib.request

import pytest
from tests.embedded import documents as doc
from tests.embedded.machine import until

from dayfly.spec.host_errors import DocumentsRefusedError

NAME = "fork:default/app"
SAY = (
    "import http.server,json,os\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "  def do_GET(s): s.send_response(200); s.end_headers(); s.wfile.write(json.dumps(dict(os.environ)).encode())\n"
    "  def log_message(*a): pass\n"
    "http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), H).serve_forever()\n"
)
COMMAND = ("/bin/sh", "-c", 'echo "up $DAYFLY" >> "$JOURNAL"; exec python3 -S -c "$CODE"')


async def declare(machine, name="app", **env):
    await machine.baseline(name, COMMAND, env={"CODE": SAY, **env})


def port(machine, name=NAME):
    return next(found.port for found in machine.host.run_status("u").endpoints if found.unit == name)


async def environment(machine, name=NAME):
    def ask():
        with urllib.request.urlopen(f"http://127.0.0.1:{port(machine, name)}") as answer:
            return json.load(answer)

    return await asyncio.to_thread(ask)


def listens(number):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", number)) == 0


def pid(machine):
    [marker] = machine.work.glob("*fork@*/marker")
    return int(marker.read_text().split("\n")[1])


async def test_a_fork_answers_with_its_changed_environment_and_goes(machine):
    await declare(machine, KEPT="base", CHANGED="base", DROPPED="base")
    db = doc.resource("db", [doc.step("make", "printf url > /tmp/u", outputs=[("url", "/tmp/u")])])
    env = [
        doc.set_env("CHANGED", "fork"),
        doc.set_env("DROPPED", delete=True),
        doc.set_env("URL", input="url"),
    ]
    await machine.host.offer(doc.offer(db, forks=[doc.fork(inputs=["url=db:make.url"], env=env)]))
    await machine.ready()
    seen = await environment(machine)
    assert (seen["KEPT"], seen["CHANGED"], seen["URL"], seen["PORT"]) == ("base", "fork", "url", str(port(machine)))
    assert "DROPPED" not in seen
    number = port(machine)
    await machine.finish()
    assert not listens(number)
    assert machine.host.run_status("u").endpoints == ()


async def test_fork_is_ready_only_when_its_port_answers(machine):
    await machine.baseline(
        command=("/bin/sh", "-c", 'while [ ! -e "$JOURNAL.go" ]; do sleep 0.01; done; exec python3 -S -c "$CODE"'),
        env={"CODE": SAY},
    )
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.said(NAME, "NotAnswering")
    assert machine.report().reason == "ForksPending"
    machine.journal.with_name("journal.go").touch()
    await machine.ready()


async def test_failing_fork_is_restarted_with_growing_pauses(machine):
    await machine.baseline(command=("/bin/sh", "-c", 'echo x >> "$JOURNAL"; echo oops; exit 3'))
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    waits = {}

    def seen():
        unit = machine.unit(NAME)
        if unit.reason == "WaitingToRetry":
            waits[unit.attempt] = unit
        return 3 in waits

    await until(seen, "three tries")
    for number, unit in waits.items():
        assert unit.until - unit.since == 1000 << number - 1
        assert "exit code 3" in unit.message
    claims = {entry.attempt: entry.at for entry in machine.host.history("u") if entry.move == "Claim"}
    # The clock may be set back, and only the reported time counts.
    assert claims[2] >= waits[1].until
    assert claims[3] >= waits[2].until
    assert machine.log(NAME, 2) == b"oops\n"
    await machine.finish()


async def test_fork_is_adopted_after_a_server_kill(machine):
    await declare(machine)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.ready()
    before = (pid(machine), port(machine))
    await machine.down(stop_forks=False)
    await machine.up(start=False)
    await declare(machine)
    machine.host.start()
    await machine.ready()
    assert (pid(machine), port(machine)) == before
    assert len(machine.lines()) == 1
    await machine.finish()
    assert not listens(before[1])


async def test_down_ends_it_and_the_next_server_starts_it_again(machine):
    await declare(machine)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.ready()
    number = port(machine)
    await machine.down()
    assert not listens(number)
    await machine.up(start=False)
    await declare(machine)
    machine.host.start()
    await machine.ready()
    assert (port(machine), len(machine.lines())) == (number, 2)


async def test_fork_restarts_when_its_baseline_changes(machine):
    await declare(machine, WORD="old")
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.ready()
    number = port(machine)
    await declare(machine, WORD="new")
    await until(lambda: machine.unit(NAME).attempt == 2, "a second process")
    await machine.ready()
    assert (await environment(machine))["WORD"] == "new"
    assert port(machine) == number
    await declare(machine, WORD="new")
    await asyncio.sleep(0.2)
    assert machine.unit(NAME).attempt == 2


async def test_forks_of_a_live_run_can_be_edited_added_and_taken_away(machine):
    await declare(machine)
    await declare(machine, "other")
    await machine.host.offer(doc.offer(forks=[doc.fork(env=[doc.set_env("N", "1")])]))
    await machine.ready()
    first = port(machine)
    await machine.host.offer(doc.offer(forks=[doc.fork(env=[doc.set_env("N", "2")]), doc.fork("other")]))
    await until(lambda: machine.unit(NAME).attempt == 2, "a second process")
    await machine.ready()
    assert (await environment(machine))["N"] == "2"
    other = port(machine, "fork:default/other")
    await machine.host.offer(doc.offer(forks=[doc.fork("other")]))
    await until(lambda: not listens(first), "the first fork's end")
    await machine.ready()
    assert port(machine, "fork:default/other") == other
    await machine.finish()
    assert not listens(other)


async def test_fork_removed_while_no_server_ran_is_ended(machine):
    await declare(machine)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.ready()
    number = port(machine)
    await machine.down(stop_forks=False)
    await machine.up(start=False)
    await machine.host.offer(doc.offer(forks=[]))
    machine.host.start()
    await until(lambda: not listens(number), "its end")
    await machine.ready()


async def test_fork_waits_for_its_baseline_and_names_the_remedy(machine):
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    message = await machine.said(NAME, "BaselineMissing")
    assert message == "its baseline default/app is not declared; apply a file of kind Deployment"
    await declare(machine)
    await machine.ready()


async def test_forks_know_where_each_other_answers(machine):
    await declare(machine)
    await declare(machine, "peer")

    def address(of):
        expression = "http://{{ .Service.Host }}:{{.Service.Port}}/x"
        source = {
            "fork": {"forkOf": {"kind": "Deployment", "namespace": "default", "name": of}, "expression": expression}
        }
        return [doc.set_env("PEER", source=source)]

    forks = [doc.fork(env=address("peer")), doc.fork("peer", env=address("app"))]
    machine.host.admit((), forks)
    await machine.host.offer(doc.offer(forks=forks))
    await machine.ready()
    peer = "fork:default/peer"
    assert (await environment(machine))["PEER"] == f"http://127.0.0.1:{port(machine, peer)}/x"
    assert (await environment(machine, peer))["PEER"] == f"http://127.0.0.1:{port(machine)}/x"


async def test_fork_restarts_when_an_address_it_reads_changes(machine):
    await declare(machine)
    await declare(machine, "peer")
    source = {
        "fork": {
            "forkOf": {"kind": "Deployment", "namespace": "default", "name": "app"},
            "expression": "{{.Service.Port}}",
        }
    }
    peer = "fork:default/peer"
    await machine.host.offer(doc.offer(forks=[doc.fork(), doc.fork("peer", env=[doc.set_env("PEER", source=source)])]))
    await machine.ready()
    before = port(machine)
    assert (await environment(machine, peer))["PEER"] == str(before)
    [marker] = machine.work.glob("*fork@default.app.*/marker")
    os.kill(int(marker.read_text().split("\n")[1]), signal.SIGKILL)
    await until(lambda: not listens(before), "its end")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", before))
        taken.listen()
        await until(lambda: machine.unit(peer).attempt == 2 and machine.report().ready, machine.report)
        assert port(machine) != before
        assert (await environment(machine, peer))["PEER"] == str(port(machine))
    assert machine.unit(NAME).attempt == 2
    await machine.down(stop_forks=False)
    await machine.up(start=False)
    for name in ("app", "peer"):
        await declare(machine, name)
    machine.host.start()
    await machine.ready()
    assert machine.unit(peer).attempt == 2, "the next server has the same address"


async def test_fork_reading_an_address_without_port_waits(machine):
    await declare(machine)
    await machine.baseline("mute", ("/bin/sleep", "60"), port=None)
    source = {
        "fork": {
            "forkOf": {"kind": "Deployment", "namespace": "default", "name": "mute"},
            "expression": "{{.Service.Port}}",
        }
    }
    forks = [doc.fork("mute"), doc.fork(env=[doc.set_env("PEER", source=source)])]
    await machine.host.offer(doc.offer(forks=forks))
    assert "baseline mute has no port" in await machine.said(NAME, "ForkWithoutPort")
    assert machine.unit(NAME).attempt == 0  # the fork was not started in vain


async def test_occupied_port_is_replaced_after_a_restart(machine):
    await declare(machine)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.ready()
    number = port(machine)
    await machine.down()
    with contextlib.closing(socket.create_server(("127.0.0.1", number))):
        await machine.up(start=False)
        await declare(machine)
        machine.host.start()
        await machine.ready()
        assert port(machine) != number


async def test_cluster_only_values_and_kinds_are_refused(machine):
    for kind in ("configMap", "secret"):
        env = [doc.set_env("TOKEN", source={kind: {"name": "n", "key": "k"}})]
        with pytest.raises(DocumentsRefusedError, match=rf"fork of app: TOKEN comes from a {kind}.*write it as value"):
            machine.host.admit((), (doc.fork(env=env),))
    stateful = doc.Baseline(kind="StatefulSet", namespace="default", name="db")
    unit = doc.Unit(name="db", kind="fork", fork=doc.ForkUnit(baseline=stateful))
    with pytest.raises(DocumentsRefusedError, match=r"fork of db: .*not StatefulSet"):
        machine.host.admit((), (unit,))


async def test_images_and_patches_are_not_applied_and_its_log_says_so(machine):
    await declare(machine)
    wish = doc.fork(images=[{"image": "shop:2"}], patch={"type": "strategic", "value": {}})
    machine.host.admit((), (wish,))
    await machine.host.offer(doc.offer(forks=[wish]))
    await machine.ready()
    assert machine.log(NAME).startswith(b"[dayfly: not supported here: images and patch of the fork of")
    report = machine.report()
    assert report.ready
    words = "images and patch of the fork of default/app (this host runs the process of its baseline)"
    assert report.unsupported == (words,)
    assert report.message == f"All desired workloads are available. Not supported here: {words}."


async def test_the_hooks_surround_it(machine):
    await declare(machine)

    def hook(name):
        return doc.step(name, f'echo {name} >> "$JOURNAL"')

    hooks = doc.hooks(
        pre_start=[hook("pre")], post_start=[hook("post")], pre_stop=[hook("stop")], post_stop=[hook("end")]
    )
    await machine.host.offer(doc.offer(hooks, forks=[doc.fork()]))
    await machine.ready()
    await machine.finish()
    assert machine.lines() == ["pre", "up ", "post", "stop", "end"]


async def test_a_killed_process_is_started_again(machine):
    await declare(machine)
    await machine.host.offer(doc.offer(forks=[doc.fork()]))
    await machine.ready()
    os.kill(pid(machine), signal.SIGKILL)
    await until(lambda: machine.unit(NAME).attempt == 2, "a second process")
    await machine.ready()
