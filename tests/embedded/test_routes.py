"""Requests with a routing key reach the fork, with a real Envoy; all others reach the baseline, during all changes."""

import asyncio
import contextlib
import itertools
import os
import signal
import socket

import aiohttp
import pytest
import pytest_asyncio
from tests.embedded import documents as doc
from tests.embedded.machine import Machine, until
from tests.embedded.routed_machine import FORK, ROUTE, Routed, preview, route

from dayfly.embedded.routes.envoy_process import holder, is_closed
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Route, Unit
from dayfly.spec.routing.routing_keys import Forms
from dayfly.spec.workload import Workload

KEY, OTHER, GROUP = "wtmb8kfswrrtb", "vf0ju8vw50wpu", "0123456789abc"
FORMS = Forms(("x-team-key",), "sd-key")
SERVED = 70  # requests while a route certainly exists


@pytest_asyncio.fixture
async def ways(tmp_path, runner):
    found = Routed(Machine(tmp_path, runner))
    await found.up(forms=FORMS)
    yield found
    await found.machine.end()
    found.close()
    assert not holder(f"{found.machine.home}/routing/lock"), "the proxy is still running"


def key(value):
    return ("baggage", f"sd-routing-key={value}")


async def test_next_baseline_takes_over_the_routed_port(ways):
    """A baseline that is declared again under another name."""
    await ways.host.forget_baseline(Workload(name="app", command=()))
    await until(lambda: is_closed(ways.port), "the port to be free")
    assert await ways.declare("web", routed_port=ways.port) == ways.port
    assert await ways.who() == "web"


async def test_every_key_form_reaches_the_fork_and_no_other_does(ways):
    await ways.offer("u", KEY)
    await ways.machine.ready("u")
    forms = [
        ("baggage", f"a=b, sd-routing-key = {KEY} ;p=1"),
        ("tracestate", f"v=1,sd-sandbox={KEY}"),
        ("ot-baggage-sd-workspace", KEY),
        ("uberctx-sd-routing-key", f"%{ord(KEY[0]):x}{KEY[1:]}"),
        ("X-Team-Key", KEY),
    ]
    for name, value in forms:
        assert await ways.who((name, value)) == "u", name
        assert await ways.who((name, value.replace(KEY[1:], OTHER[1:]))) == "app", name
    assert await ways.who(path=f"/a?x=1&sd-key={KEY}") == "u"
    # If two headers have the same name, both count. A request without a key reaches the baseline.
    assert await ways.who(("baggage", "a=b"), key(KEY)) == "u"
    assert await ways.who() == await ways.who(("cookie", f"sd-routing-key={KEY}")) == "app"
    await ways.machine.finish("u")
    assert await ways.who(key(KEY)) == "app"


async def test_preview_adds_its_key_and_works_without_a_fork(ways):
    await ways.declare("front")
    also = (preview(KEY), preview(KEY, "other", "front"), preview(KEY, "nowhere", "missing"))
    await ways.offer("u", KEY, also=also)
    await ways.machine.ready("u")
    where = {each.unit: each.port for each in ways.host.run_status("u").endpoints}
    said = await ways.ask(("baggage", "a=b"), key(OTHER), port=where["preview:front"])
    assert said.who == "u"
    members = f"sd-routing-key={KEY},sd-sandbox={KEY}"
    assert ",".join(said.all("baggage")) == f"a=b,sd-routing-key={OTHER},{members}"
    assert said.all("tracestate") == [members]
    assert (await ways.ask(port=where["preview:other"])).who == "front"
    assert "preview:nowhere" not in where
    assert "the endpoint nowhere (no baseline default/missing with a port is declared)" in ways.machine.report().message
    await ways.machine.finish("u")
    with pytest.raises(OSError):
        await ways.ask(port=where["preview:front"])


async def test_route_keys_change_and_the_older_sandbox_wins(ways):
    await ways.offer("u", KEY, GROUP)
    await ways.machine.ready("u")
    await ways.offer("v", OTHER, GROUP)
    await ways.machine.ready("v")
    assert [await ways.who(key(each)) for each in (KEY, OTHER, GROUP)] == ["u", "v", "u"]
    assert await ways.who(("baggage", f"sd-routing-key={OTHER},sd-sandbox={KEY}")) == "u"
    await ways.offer("u", KEY, generation=1)
    await until_who(ways, GROUP, "v")
    claims = [unit for move, unit, _, _ in ways.machine.history("u") if move == "Claim"]
    assert claims == [FORK, ROUTE]  # no process was restarted
    # A fork that is removed from a running sandbox ends after its route.
    await ways.offer("u", forks=(), generation=2)
    ends = lambda: [unit for move, unit, _, _ in ways.machine.history("u") if move == "Record"]  # noqa: E731
    await until(lambda: len(ends()) == 2, ends)
    assert ends() == [ROUTE, FORK]
    assert await ways.who(key(KEY)) == "app"


async def until_who(ways, value, who):
    async def ask():
        while await ways.who(key(value)) != who:  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.01)

    async with asyncio.timeout(30):
        await ask()


async def test_fork_outlives_its_route_while_it_drains(ways):
    await ways.offer("u", forks=(doc.fork(env=[doc.set_env("WHO", "u")]), route(KEY, drain_ms=1500)))
    await ways.machine.ready("u")
    await ways.machine.delete("u")
    await until_who(ways, KEY, "app")
    assert ways.machine.unit(ROUTE).reason == "Stopping"
    assert ways.machine.unit(FORK).reason == "WaitingForLater"
    assert ways.host.run_status("u").endpoints, "the fork is gone before its route has drained"
    await ways.machine.gone("u")


async def test_killed_proxy_is_restarted_and_readiness_follows(ways):
    await ways.offer("u", KEY)
    await ways.machine.ready("u")
    first = ways.proxy
    os.kill(first, signal.SIGKILL)
    await until(lambda: not ways.machine.report("u").ready or ways.proxy not in (0, first))
    await ways.machine.ready("u")
    assert ways.proxy != first
    assert [await ways.who(key(each)) for each in (KEY, OTHER)] == ["u", "app"]


async def test_next_server_adopts_the_proxy_and_its_connections(ways):
    await ways.offer("u", KEY)
    await ways.offer("gone", OTHER)
    await ways.machine.ready("u")
    await ways.machine.ready("gone")
    first = ways.proxy
    async with aiohttp.ClientSession() as session:
        url, headers = f"http://127.0.0.1:{ways.port}/", dict([key(KEY)])
        await (await session.get(url, headers=headers)).read()
        await ways.machine.down(stop_forks=False)
        assert (await (await session.get(url, headers=headers)).json(content_type=None))["who"] == "u"
        await ways.machine.up(start=False)
        await ways.host.baseline(ways.baseline)
        await ways.machine.delete("gone")
        ways.host.start()
        await ways.machine.gone("gone")
        await ways.machine.ready("u")
        assert (await (await session.get(url, headers=headers)).json(content_type=None))["who"] == "u"
    assert ways.proxy == first
    assert [await ways.who(key(each)) for each in (KEY, OTHER)] == ["u", "app"]


async def test_server_without_routing_cleans_up_routes_of_another(ways):
    await ways.offer("u", KEY)
    await ways.machine.ready("u")
    await ways.machine.down()
    await ways.machine.up(start=False, proxy="")
    await ways.host.baseline(ways.baseline)
    ways.host.start()
    assert "dayfly up --routing" in await ways.machine.said(ROUTE, "NotRouted")
    await ways.machine.finish("u")


async def test_local_workload_gets_requests_with_its_key(ways):
    mine = Unit(name="mine", kind="route", route=Route(baseline=ways.app, keys=(KEY,), local_port=ways.serve("mine")))
    await ways.offer("u", forks=(mine, preview(KEY)))
    await ways.machine.ready("u")
    assert [await ways.who(key(each)) for each in (KEY, OTHER)] == ["mine", "app"]
    (front,) = ways.host.run_status("u").endpoints
    assert (await ways.ask(port=front.port)).who == "mine"


async def test_port_in_use_is_reported_and_bound_once_free(ways):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        await ways.declare("app", routed_port=port, waits=False)
        await ways.offer("u", KEY)
        said = await ways.machine.said(ROUTE, "NotRouted")
        assert said == f"requests cannot be taken in on port {port} of this machine: address already in use"
    ways.port = port
    await ways.machine.ready("u")
    assert await ways.who(key(KEY)) == "u"


async def test_hostile_requests_are_answered_without_harm(ways):
    await ways.offer("u", KEY)
    await ways.machine.ready("u")
    for value in (f"{KEY[:-1]}.", ".*", f"({KEY})", f"{KEY}|x", "%", "%0d%0a", "a" * 60_000, f"{KEY}%00", "="):
        assert await ways.who(("baggage", f"sd-routing-key={value}")) == "app", value[:20]
    members = ",".join(f"k{number}=v" for number in range(6_000))
    assert await ways.who(("baggage", f"{members},sd-routing-key={KEY}")) == "u"
    assert (await ways.ask(("baggage", "a" * 200_000))).status == 431
    # Requests must not control this proxy with headers.
    for name in ("x-envoy-retry-on", "x-envoy-original-dst-host", "x-envoy-upstream-alt-stat-name", "x-dayfly-probe"):
        assert await ways.who((name, "127.0.0.1:1")) == "app"
    assert await ways.who(key(KEY)) == "u"


async def test_key_prefix_is_another_key_and_the_older_one_wins(ways):
    await ways.offer("u", KEY)
    await ways.machine.ready("u")
    await ways.offer("v", KEY[:-1])
    await ways.machine.ready("v")
    assert [await ways.who(key(each)) for each in (KEY, KEY[:-1], KEY[:-2], f"{KEY}x")] == ["u", "v", "app", "app"]
    # In any order and position.
    for own, others in ((KEY, KEY[:-1]), (KEY[:-1], KEY)):
        assert await ways.who(key(own), path=f"/?sd-key={others}") == "u"
        assert await ways.who(key(own), ("tracestate", f"sd-sandbox={others}")) == "u"
        assert await ways.who(("baggage", f"sd-routing-key={own},sd-sandbox={others}")) == "u"


async def test_slow_or_malformed_requests_delay_no_other(ways):
    await ways.offer("u", KEY)
    await ways.machine.ready("u")
    begun = b"GET / HTTP/1.1\r\nhost: x\r\nbaggage: sd-routing-key="
    with contextlib.ExitStack() as held:
        for number in range(400):
            slow = held.enter_context(socket.create_connection(("127.0.0.1", ways.port), timeout=20))
            slow.sendall(begun[: number % len(begun)])
        async with asyncio.timeout(10):
            assert [await ways.who(key(each)) for each in (KEY, OTHER)] == ["u", "app"]
    carried = f"sd-routing-key={KEY}".encode()
    for line in (
        b"baggage: a\0" + carried,
        b"baggage : " + carried,
        b" baggage: " + carried,
        b"content-length: 5\r\ntransfer-encoding: chunked\r\nbaggage: " + carried,
    ):
        with socket.create_connection(("127.0.0.1", ways.port), timeout=20) as wrong:
            wrong.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n" + line + b"\r\n\r\n")
            assert wrong.recv(12) == b"HTTP/1.1 400", line
    with socket.create_connection(("127.0.0.1", ways.port), timeout=20) as torn:
        torn.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nbaggage: a\rbaggage: " + carried + b"\r\nconnection: close\r\n\r\n")
        answer = torn.makefile("rb").read()
    # Only the carriage return is removed, so that it ends no header for the receiver either.
    assert b'"who": "app"' in answer
    assert b'["baggage", "abaggage: ' in answer
    assert await ways.who(key(KEY)) == "u"


async def test_document_with_an_invalid_key_is_refused(ways):
    for bad in ("a.*", "", "A", "a|b", "a\r\nx: y"):
        for unit in (route(bad), preview(bad)):
            with pytest.raises(DocumentsRefusedError, match="is not a routing key"):
                ways.host.admit((), (unit,))
    for kind in ("route", "preview"):
        with pytest.raises(DocumentsRefusedError, match=f"a unit of kind {kind} needs"):
            ways.host.admit((), (Unit(name="app", kind=kind),))


@pytest.mark.long_story
async def test_requests_meet_the_right_one_while_sandboxes_come_and_go(ways, played):
    """No request is lost or misrouted."""
    asked = await storm(ways, sandboxes=3, rounds=2, least=2_000)
    played("requests through a route while sandboxes come and go", asked)


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_requests_survive_fifty_sandboxes_coming_and_going(ways, played):
    asked = await storm(ways, sandboxes=10, rounds=5, least=100_000)
    played("requests through a route while 50 sandboxes come and go", asked, f"{asked} requests, none lost")


def mine(some, who):
    return {each for each in some if who and each.startswith(f"{who}.")}


async def storm(ways, *, sandboxes, rounds, least=0):
    """Send requests with and without keys while sandboxes are created and deleted; return their number.

    From Ready until the deletion, a key must route to its fork; before and after, the baseline may answer too.
    """
    keys = [f"k{number:012d}" for number in range(sandboxes)]
    ready, over, count, wrong = set(), asyncio.Event(), 0, []

    async def ask(session, number):
        nonlocal count
        who, headers = (f"u{number}", dict([key(keys[number])])) if number >= 0 else ("", {})
        while not over.is_set():
            before, sure = mine(live, who), mine(ready, who)
            async with session.get(f"http://127.0.0.1:{ways.port}/", headers=headers) as answer:
                said = (await answer.json(content_type=None))["who"] if answer.status == 200 else str(answer.status)
            count += 1
            # Ready before the request and after the response: then only the fork may answer.
            good = before | mine(live, who) | (set() if sure & ready else {"app"})
            if said not in good:
                wrong.append((who, said, good))

    live, lives = set(), itertools.count()

    async def live_on(number):
        for _ in range(rounds):
            uid = f"u{number}.{next(lives)}"
            live.add(uid)
            await ways.offer(uid, keys[number])
            while not ways.machine.report(uid).ready:  # noqa: ASYNC110 - looked at seldom: the processor is for requests
                await asyncio.sleep(0.05)
            ready.add(uid)
            enough = count + SERVED
            while count < enough:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.05)
            # A request that was sent earlier may still get its response from the fork.
            ready.discard(uid)
            await ways.machine.delete(uid)
            while not ways.host.has_ended(uid):  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.05)
            live.discard(uid)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        askers = [asyncio.create_task(ask(session, number)) for number in (*range(sandboxes), -1) for _ in range(4)]
        await asyncio.gather(*(live_on(number) for number in range(sandboxes)))
        while count < least:
            await asyncio.gather(*(live_on(number) for number in range(sandboxes)))
        over.set()
        await asyncio.gather(*askers)
    assert not wrong, wrong[:5]
    return count
