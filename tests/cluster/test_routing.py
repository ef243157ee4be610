"""Requests by their key through a real Gateway: Envoy Gateway of its module drives a real Envoy, on the real cluster."""

import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import aiohttp
import pytest
from testcluster import dns, gateway, stand_ins
from tests import echo_server
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, SYSTEM, Installed
from tests.cluster.waiting import eventually

from dayfly.spec.routing.routing_keys import PLAIN

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1500, func_only=True)]

GATEWAY = "edge"
SERVED = 600  # requests in each round, by routes that certainly are there
SANDBOXES, ROUNDS, REQUESTS = 5, 10, 100_000
# Answers with the word that it was started with, over connections that stay open.
ANSWERS = """
import http.server, os, signal, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = os.environ["WORD"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("", 8080), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
"""


class Answer(NamedTuple):
    at: float
    key: str
    status: int
    said: str


class Edge:
    """A Gateway of the team, with a baseline behind it."""

    def __init__(self, operator: Installed, installed: gateway.Installed) -> None:
        self.operator = operator
        self.installed = installed
        self.address = ""

    def begin(self) -> None:
        own = self.operator.own
        self.operator.apply(self.installed.gateway(GATEWAY, TEAM), *self.baseline())
        gateway.wait_programmed(own, GATEWAY, TEAM)
        own.kubectl("rollout", "status", "-n", TEAM, "deployment/front", "--timeout=120s")
        self.address = self.installed.address(GATEWAY, TEAM)
        eventually(lambda: self.get("") == (200, "baseline"), "the baseline to answer")

    def baseline(self) -> list[dict[str, Any]]:
        labels = {"app": "front"}
        container = {
            "name": "main",
            "image": stand_ins.PYTHON,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-c", ANSWERS],
            "env": [{"name": "WORD", "value": "baseline"}],
            "ports": [{"containerPort": 8080}],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        }
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        meta = {"name": "front", "namespace": TEAM}
        rules = [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/deep"}}],
                "backendRefs": [{"name": "front", "port": 80}],
            },
            {"backendRefs": [{"name": "front", "port": 80}]},
        ]
        return [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": meta,
                "spec": {"selector": {"matchLabels": labels}, "template": template},
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": meta,
                "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
            },
            {
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "HTTPRoute",
                "metadata": meta,
                "spec": {"parentRefs": [{"name": GATEWAY}], "rules": rules},
            },
        ]

    def get(self, key: str, *, headers: dict[str, str] | None = None, path: str = "/") -> tuple[int, str]:
        """Send one request over a new connection."""
        connection = http.client.HTTPConnection(self.address, 80, timeout=10)
        try:
            connection.request("GET", path, headers=headers or carrying(key, random.Random(key)))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def sandbox(self, name: str, of: str = "front") -> dict[str, Any]:
        of = {"kind": "Deployment", "namespace": TEAM, "name": of}
        change = {"env": [{"name": "WORD", "value": name}]}
        spec = {"cluster": "c", "labels": {"team": "edge"}, "forks": [{"forkOf": of, "customizations": change}]}
        return {"apiVersion": API, "kind": "Sandbox", "metadata": {"name": name, "namespace": TEAM}, "spec": spec}

    def said_at(self, group: str) -> list[tuple[int, str]]:
        """Return the answers of a route group's addresses."""
        found = json.loads(self.operator.own.kubectl("get", "dfg", group, "-n", TEAM, "-o", "json"))
        urls = [each["url"] for each in found.get("status", {}).get("endpoints", ())]
        return [self.get("", headers={"Host": url.removeprefix("http://")}) for url in urls]

    def key(self, name: str) -> str:
        return self.operator.status(name, TEAM)["routingKey"]

    def routed(self, name: str) -> None:
        """Until it is ready, with its route."""

        def so(status: dict[str, Any]) -> bool:
            routes = [unit for unit in status.get("units", ()) if unit["kind"] == "route"]
            return status["ready"] and bool(routes) and routes[0]["state"] == "running"

        self.operator.wait_status(name, TEAM, so, "Ready, with a route")


def group(name: str, **more: Any) -> dict[str, Any]:
    """A route group of all these sandboxes."""
    meta = {"name": name, "namespace": TEAM}
    spec = {"match": {"label": {"key": "team", "value": "edge"}}, **more}
    return {"apiVersion": API, "kind": "RouteGroup", "metadata": meta, "spec": spec}


def carrying(key: str, chance: random.Random) -> dict[str, str]:
    """Headers that carry a key in one of the forms in which they may."""
    if not key:
        return {}
    forms = [
        {"baggage": f"a=b, sd-routing-key={key};p=1,c=d"},
        {"baggage": f"sd-sandbox = {key}"},
        {"tracestate": f"vendor=1,sd-routing-key={key}"},
        {chance.choice(PLAIN): key},
    ]
    return chance.choice(forms)


class Load(threading.Thread):
    """Sends requests with changing keys over one connection."""

    def __init__(self, edge: Edge, keys: dict[str, str], seed: int) -> None:
        super().__init__(daemon=True)
        self.edge, self.keys = edge, keys
        self.answers: list[Answer] = []
        self.over = threading.Event()
        self._chance = random.Random(seed)

    def run(self) -> None:
        connection = http.client.HTTPConnection(self.edge.address, 80, timeout=10)
        while not self.over.is_set():
            key = self._chance.choice([*self.keys.values(), "", "nobodys-key"])
            path = self._chance.choice(("/", "/deep/er"))
            began = time.monotonic()
            try:
                connection.request("GET", path, headers=carrying(key, self._chance))
                answer = connection.getresponse()
                self.answers.append(Answer(began, key, answer.status, answer.read().decode()))
            except (OSError, http.client.HTTPException) as error:
                self.answers.append(Answer(began, key, 0, repr(error)))
                connection.close()
        connection.close()


def served(load: list[Load], more: int) -> None:
    """Wait for `more` further answers."""
    had = answered(load)
    eventually(lambda: answered(load) >= had + more, f"{more} more answers")


def answered(load: list[Load]) -> int:
    """Return the number of answers."""
    return sum(len(each.answers) for each in load)


@pytest.fixture(scope="module")
def edge(operator: Installed) -> Iterator[Edge]:
    operator.own.load(stand_ins.python())
    with dns.names(operator.own):
        installed = gateway.install(operator.own)
        try:
            edge = Edge(operator, installed)
            edge.begin()
            yield edge
        finally:
            for kind in ("httproute", "grpcroute", "gateway", "deployment", "service"):
                names = ("front", "talk", "h2c", "say", GATEWAY)
                operator.own.kubectl("delete", kind, "-n", TEAM, "--ignore-not-found", *names)
            installed.remove()


@pytest.mark.timeout(4500, func_only=True)
def test_requests_are_routed_correctly_while_sandboxes_change(edge, played):
    """From Ready to its deletion each request with a sandbox's key is its fork's; all others are the baseline's."""
    edge.operator.apply(edge.sandbox("first"))
    edge.routed("first")  # an operator that started before the Gateway API polls for it every minute
    keys: dict[str, str] = {}
    spans: dict[str, tuple[str, float, float]] = {}  # by key: whose, from when until when it certainly leads there
    load = [Load(edge, keys, seed) for seed in range(4)]
    for each in load:
        each.start()
    try:
        for turn in itertools.count():
            if turn >= ROUNDS and answered(load) >= REQUESTS:
                break
            names = [f"s{turn}-{number}" for number in range(SANDBOXES)]
            edge.operator.apply(*(edge.sandbox(name) for name in names))
            for name in names:
                edge.routed(name)
                key = edge.key(name)
                spans[key] = name, time.monotonic(), float("inf")
                keys[name] = key
            served(load, SERVED)
            for name in names:
                key = keys[name]
                spans[key] = name, spans[key][1], time.monotonic()
                edge.operator.own.kubectl("delete", "sandbox.dayfly.dev", name, "-n", TEAM, "--wait=false")
            for name in names:
                edge.operator.wait_gone(name, TEAM)
                del keys[name]
    finally:
        for each in load:
            each.over.set()
        for each in load:
            each.join(30)
        edge.operator.delete("first", TEAM)
    answers = [answer for each in load for answer in each.answers]
    lost = [answer for answer in answers if answer.status != 200]
    wrong = [answer for answer in answers if answer.status == 200 and not _fits(answer, spans)]
    said = f"{len(answers):,} requests, {len(lost)} lost, {len(wrong)} to a wrong place, {len(spans)} sandboxes"
    played("requests through a Gateway while 50 sandboxes come and go", len(answers), said)
    assert not lost, _told(lost, spans)
    assert not wrong, _told(wrong, spans)
    edge.operator.check_nothing_left()


def _told(answers: list[Answer], spans: dict[str, tuple[str, float, float]]) -> list[str]:
    """Describe each answer, with the time since its sandbox was Ready and since it was deleted."""
    found = [(each, spans.get(each.key, ("nobody", 0.0, 0.0))) for each in answers[:20]]
    return [
        f"{each.status} {each.said} for {whose}, {each.at - since:.2f} s after Ready, {each.at - until:.2f} s after its end"
        for each, (whose, since, until) in found
    ]


def _fits(answer: Answer, spans: dict[str, tuple[str, float, float]]) -> bool:
    if answer.key not in spans:
        return answer.said == "baseline"
    name, since, until = spans[answer.key]
    if since <= answer.at and answer.at < until - 0.1:
        return answer.said == name
    return answer.said in (name, "baseline")


def test_each_protocol_is_led_as_it_came(edge):
    """HTTP/1.1, HTTP/2, WebSocket, and gRPC by a GRPCRoute as well as by an HTTPRoute: to the fork, or the baseline."""

    def all_by(word: str, key: str) -> bool:
        """Return whether all answers come from this workload."""
        carried = {"baggage": f"a=b,sd-routing-key={key}"} if key else {}
        try:
            found = echo_server.request(edge.address, 80, carried | {"Host": "talk.test"})
            said = [echo_server.call(edge.address, 80, carried | {"Host": each}) for each in ("say.test", "h2c.test")]
        except (aiohttp.ClientError, AssertionError):  # the Gateway does not have the route yet
            return False
        return found == echo_server.expected(word) and said == [[f"{word} one", f"{word} two"]] * 2

    own = edge.operator.own
    where = ["-n", SYSTEM, "deployment/dayfly-operator", "-o", "jsonpath={.spec.template.spec.containers[0].image}"]
    program = own.kubectl("get", *where)  # it has what speaks all of these
    edge.operator.apply(*echo_server.routed(program, TEAM, GATEWAY))
    own.kubectl("rollout", "status", "-n", TEAM, "deployment/talk", "--timeout=120s")
    eventually(lambda: all_by("baseline", ""), "the baseline to speak")
    edge.operator.apply(edge.sandbox("spoken", "talk"))
    edge.routed("spoken")
    key = edge.key("spoken")
    assert all_by("spoken", key), "from Ready on"
    assert all_by("baseline", "")
    assert all_by("baseline", "nobodys-key")
    edge.operator.delete("spoken", TEAM)
    eventually(lambda: all_by("baseline", key), "the key to be unknown")
    edge.operator.check_nothing_left()


def test_an_endpoint_has_an_address_that_leads_to_the_fork(edge):
    """The operator has options for a Gateway and a domain; `status.endpoints` contains the address once it works."""
    operator, of = edge.operator, ("-n", SYSTEM, "deployment/dayfly-operator")
    told = (f"DAYFLY_PREVIEW_GATEWAY={TEAM}/{GATEWAY}", "DAYFLY_PREVIEW_DOMAIN=preview.example.com")
    operator.own.kubectl("set", "env", *of, *told)
    try:
        operator.own.kubectl("rollout", "status", *of, "--timeout=180s")
        box = edge.sandbox("seen")
        front = f"front.{TEAM}.svc"
        endpoints = [{"name": "site", "target": f"http://{front}:80"}]
        box["spec"]["defaultRouteGroup"] = {"endpoints": endpoints}
        with operator.ending("seen", TEAM):
            operator.apply(box)
            status = operator.wait_status("seen", TEAM, lambda status: status.get("endpoints"), "an address")
            assert status["ready"]
            [found] = status["endpoints"]
            assert found["name"] == "site"
            host = found["url"].removeprefix("http://")
            assert host.startswith("site-seen-")
            assert host.endswith(".preview.example.com")
            assert edge.get("", headers={"Host": host}) == (200, "seen")
            assert edge.get("", headers={"Host": "site-other.preview.example.com"}) != (200, "seen")
            assert edge.get("") == (200, "baseline")
            operator.apply(group("seen-by-all", endpoints=endpoints))
            eventually(lambda: edge.said_at("seen-by-all") == [(200, "seen")], "a group's address to lead there too")
        eventually(lambda: edge.said_at("seen-by-all") == [(200, "baseline")], "and to the baseline without it")
        operator.own.kubectl("delete", "dfg", "seen-by-all", "-n", TEAM, "--timeout=60s")
    finally:
        operator.own.kubectl("set", "env", *of, *(f"{each.partition('=')[0]}-" for each in told))
        operator.own.kubectl("rollout", "status", *of, "--timeout=180s")
    operator.check_nothing_left()


def test_a_groups_key_leads_to_its_oldest_member(edge):
    edge.operator.apply(group("edges"), edge.sandbox("one"))
    edge.routed("one")
    edge.operator.own.kubectl("wait", "--for=condition=Ready", "dfg/edges", "-n", TEAM, "--timeout=60s")
    found = json.loads(edge.operator.own.kubectl("get", "dfg", "edges", "-n", TEAM, "-o", "json"))
    key = found["status"]["routingKey"]
    eventually(lambda: edge.get(key) == (200, "one"), "the group's key to lead to its one member")
    made = datetime.fromisoformat(edge.operator.sandbox("one", TEAM)["metadata"]["creationTimestamp"])
    # The older one goes first, and creation has a second's grain.
    eventually(lambda: datetime.now(UTC) >= made + timedelta(seconds=1), "another second")
    edge.operator.apply(edge.sandbox("two"))
    edge.routed("two")
    assert edge.get(key) == (200, "one")
    assert edge.get(edge.key("two")) == (200, "two")
    edge.operator.delete("one", TEAM)
    eventually(lambda: edge.get(key) == (200, "two"), "the group's key to lead to the other one")
    edge.operator.own.kubectl("delete", "dfg", "edges", "-n", TEAM, "--timeout=60s")
    eventually(lambda: edge.get(key) == (200, "baseline"), "the group's key to be unknown")
    edge.operator.delete("two", TEAM)
    edge.operator.check_nothing_left()
