"""Rules in VirtualServices with Istio itself: its control plane, and a proxy that it configures."""

import contextlib
import http.client
import http.server
import socket
import threading

import pytest
from testcluster import build, istio
from tests.deploy.conftest import thing
from tests.echo_server import call, echo_server, expected, request
from tests.policy.apiserver import eventually

from dayfly.execute.gateway.rules import build_key_matches
from dayfly.execute.istio.rules import MAX_PATTERN_CHARS, ForkRules, RuleOwner, insert_rules
from dayfly.execute.istio.run import VIRTUAL_SERVICES, render_shared, shared_name
from dayfly.kube.objects import Key
from dayfly.spec.routing.routing_keys import PLAIN, Forms, injected_headers

pytestmark = [pytest.mark.cluster, pytest.mark.proof, pytest.mark.timeout(1500, func_only=True)]

TEAM = "istiod-team"
KEY, OTHER = "k7xw0q1m2n3p4", "another-key"
FORMS = Forms(("x-team-key",), "sd")
KEYED = build_key_matches([KEY], FORMS, max_chars=MAX_PATTERN_CHARS)
MERGE = "application/merge-patch+json"


class Answering(http.server.ThreadingHTTPServer):
    """Answers with its name."""

    daemon_threads = True

    def __init__(self, address: str, word: str) -> None:
        super().__init__((address, 0), Handler)
        self.word = word
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.server.word.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        """Drop the log."""


def free() -> int:
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def reachable(server: str) -> str:
    """The address of this machine as that one sees it."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as held:
        held.connect((server, 1))
        return held.getsockname()[0]


@pytest.fixture(scope="module")
def mesh(api, tmp_path_factory):
    """A proxy's port for calls, with the Services of a team behind it."""
    try:
        build.istiod()
    except build.UnavailableError as why:
        pytest.skip(f"no istiod: {why}")
    api.apply(istio.definitions())
    for name in (istio.SYSTEM, TEAM):
        api.ask("POST", "/api/v1/namespaces", thing("v1", "Namespace", name))
    address = reachable(api.cluster.network.node)
    servers = []
    for name in ("web", "f-old", "f-new", "api"):
        servers.append(Answering(address, name))
        _stand(api, name, address, {"http": servers[-1].server_address[1]})
    ports = istio.Ports(*(free() for _ in istio.Ports._fields))
    with istio.running(api.cluster, tmp_path_factory.mktemp("istio"), ports, TEAM):
        eventually(lambda: asked(ports.calls) == "web", 180)
        yield ports.calls
    for server in servers:
        server.shutdown()
        server.server_close()
    api.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=istio.definitions())


def _stand(api, name, address, ports):
    """Create a Service with ports from 80 on, which lead to this machine. Their names define the protocol."""
    at = [{"name": each, "port": 80 + number, "protocol": "TCP"} for number, each in enumerate(ports)]
    service = thing("v1", "Service", name, spec={"ports": at})
    assert api.ask("POST", f"/api/v1/namespaces/{TEAM}/services", service).status == 201
    behind = {
        **thing("discovery.k8s.io/v1", "EndpointSlice", name, addressType="IPv4"),
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": each, "port": port, "protocol": "TCP"} for each, port in ports.items()],
    }
    behind["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    path = f"/apis/discovery.k8s.io/v1/namespaces/{TEAM}/endpointslices"
    assert api.ask("POST", path, behind).status == 201


def asked(port, headers=None, path="/", host="web"):
    """Return the workload that answers a call of a workload of the team."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers={"Host": f"{host}.{TEAM}.svc.cluster.local", **(headers or {})})
        answer = connection.getresponse()
        said = answer.read().decode()
        return said if answer.status == 200 else f"{answer.status} {said}"
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()


def thread(fork, key, born, number=0):
    keys = [key, *(f"{'k' * 28}{each:04}" for each in range(number))]
    return ForkRules(
        RuleOwner(born, f"run-{fork}", fork),
        TEAM,
        {"web": fork},
        build_key_matches(keys, FORMS, max_chars=MAX_PATTERN_CHARS),
    )


def ways(key):
    yield from ({name: value} for name, value in injected_headers(key))
    yield {"baggage": f"a=b, sd-routing-key={key};p=1,c=d"}
    yield {"tracestate": f"vendor=1,sd-routing-key={key}"}
    yield from ({name: key} for name in (*PLAIN, "x-team-key"))


def test_rule_routes_every_form_of_its_key_and_no_other(api, mesh):
    manifest = render_shared(Key(TEAM, shared_name("web")), "web")
    for each in (thread("f-new", OTHER, 2), thread("f-old", KEY, 1, number=40)):
        manifest["spec"]["http"] = list(insert_rules(manifest["spec"]["http"], each, TEAM).rules)
    path = VIRTUAL_SERVICES.path(TEAM)
    assert api.ask("POST", path, manifest).status == 201
    eventually(lambda: asked(mesh, {"baggage": f"sd-routing-key={KEY}"}) == "f-old")
    for key, fork in ((KEY, "f-old"), (OTHER, "f-new"), (f"{'k' * 28}0039", "f-old")):
        for headers in ways(key):
            assert asked(mesh, headers) == fork, headers
        assert asked(mesh, path=f"/?a=1&sd={key}") == fork
    both = {"baggage": f"sd-routing-key={OTHER},sd-routing-key={KEY}"}
    assert asked(mesh, both) == "f-old", "the oldest of several keys counts"
    for headers in ({}, *ways("nobodys"), {"baggage": f"other={KEY}"}, {"baggage": f"xsd-routing-key={KEY}"}):
        assert asked(mesh, headers) == "web", headers
    assert asked(mesh, {"baggage": f"sd-routing-key={KEY}"}, host="api") == "api"
    assert api.ask("DELETE", f"{path}/{manifest['metadata']['name']}").status == 200
    eventually(lambda: asked(mesh, {"baggage": f"sd-routing-key={KEY}"}) == "web")


def test_copied_rule_matches_only_requests_with_its_key(api, mesh):
    """Each rule that leads to the baseline gets a copy before it, which leads to the fork. A removal restores all."""

    def led(to, *matches):
        return {**({"match": list(matches)} if matches else {}), "route": [{"destination": {"host": to}}]}

    rules = [
        led("api", {"uri": {"prefix": "/api"}}),
        led("web", {"uri": {"prefix": "/shop"}, "headers": {"x-team": {"exact": "t"}}}),
        led("api", {"headers": {"x-team": {"exact": "t"}}}),
        led("web"),
    ]
    body = thing(VIRTUAL_SERVICES.api_version, VIRTUAL_SERVICES.kind, "web", spec={"hosts": ["web"], "http": rules})
    path = VIRTUAL_SERVICES.path(TEAM)
    assert api.ask("POST", path, body).status == 201
    eventually(lambda: asked(mesh, path="/api") == "api")
    both = list(insert_rules(rules, thread("f-old", KEY, 1), TEAM).rules)
    assert api.ask("PATCH", f"{path}/web", {"spec": {"http": both}}, kind=MERGE).status == 200
    eventually(lambda: asked(mesh, {"baggage": f"sd-routing-key={KEY}"}) == "f-old")
    for where, team, answer in (
        ("/", "", "f-old"),
        ("/api/x", "", "api"),
        ("/shop", "t", "f-old"),
        ("/else", "t", "api"),
    ):
        headers = {"x-team": team} if team else {}
        plain = "web" if answer == "f-old" else answer
        assert asked(mesh, headers, where) == plain
        assert asked(mesh, {**headers, "tracestate": f"sd-routing-key={KEY}"}, where) == answer
    assert api.ask("PATCH", f"{path}/web", {"spec": {"http": rules}}, kind=MERGE).status == 200
    eventually(lambda: asked(mesh, {"baggage": f"sd-routing-key={KEY}"}) == "web")
    assert api.ask("DELETE", f"{path}/web").status == 200


def test_each_protocol_is_led_as_it_came(api, mesh):
    """HTTP/1.1, HTTP/2 and WebSocket use one Service, gRPC another with a port of that name.

    Each Service has one port. With several, a proxy that is called as an HTTP proxy cannot distinguish the ports.
    """
    address = reachable(api.cluster.network.node)
    keyed = {"baggage": f"sd-routing-key={KEY}"}
    talk, say = ({"Host": f"{name}.{TEAM}.svc.cluster.local"} for name in ("talk", "say"))
    path = VIRTUAL_SERVICES.path(TEAM)
    with contextlib.ExitStack() as stack:
        for prefix, word in (("", "base"), ("f-", "fork")):
            ports = stack.enter_context(echo_server(word, address))
            _stand(api, f"{prefix}talk", address, {"http": ports.http})
            _stand(api, f"{prefix}say", address, {"grpc": ports.grpc})
        eventually(lambda: asked(mesh, host="talk") == "base")
        for name in ("talk", "say"):
            manifest = render_shared(Key(TEAM, shared_name(name)), name)
            mine = ForkRules(RuleOwner(1, f"run-{name}", f"f-{name}"), TEAM, {name: f"f-{name}"}, KEYED)
            manifest["spec"]["http"] = list(insert_rules(manifest["spec"]["http"], mine, TEAM).rules)
            assert api.ask("POST", path, manifest).status == 201
        eventually(lambda: asked(mesh, keyed, host="talk") == "fork")
        eventually(lambda: call("127.0.0.1", mesh, say | keyed) == ["fork one", "fork two"])
        for key, word in (({}, "base"), (keyed, "fork"), ({"baggage": "sd-routing-key=nobodys"}, "base")):
            assert request("127.0.0.1", mesh, talk | key) == expected(word)
            assert call("127.0.0.1", mesh, say | key) == [f"{word} one", f"{word} two"]
        assert call("127.0.0.1", mesh, say | {"tracestate": f"sd-routing-key={KEY}"}) == ["fork one", "fork two"]
        for name in ("talk", "say"):
            assert api.ask("DELETE", f"{path}/{shared_name(name)}").status == 200
        eventually(lambda: asked(mesh, keyed, host="talk") == "base")
        eventually(lambda: call("127.0.0.1", mesh, say | keyed) == ["base one", "base two"])
