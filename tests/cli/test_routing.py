"""From a sandbox's file to a request that its fork answers, with the real server and a real Envoy."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.cli.command import Cli, refused, until

from dayfly.cli.verbs import run
from dayfly.embedded.routes.envoy_process import holder
from dayfly.routeserver import routes_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOP = """\
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = json.dumps([os.environ.get("DAYFLY_SANDBOX_NAME", "baseline"), self.headers.get_all("baggage")]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def sandbox(name: str, label: str = "none") -> str:
    return f"""\
name: {name}
spec:
  cluster: local
  labels: {{team: {label}}}
  forks:
  - forkOf: {{kind: Deployment, namespace: default, name: shop}}
  defaultRouteGroup:
    endpoints:
    - {{name: front, target: "http://front.default.svc:80"}}
    - {{name: shop, target: "http://shop.default.svc:80"}}
    - {{name: raw, target: "tcp://shop.default.svc:80"}}
"""


GROUP = """\
name: pay
spec:
  cluster: local
  match: {label: {key: team, value: "pay*"}}
  endpoints:
  - {name: shop, target: "http://shop.default.svc:80"}
"""


class Shop:
    """The server with two baselines: `shop` with an entry at `port`, and `front` without an entry."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.port, own, front = free(), free(), free()
        cli.write("shop.py", SHOP)
        head = f"kind: Deployment\ncommand: [{sys.executable}, {cli.folder}/shop.py]\n"
        cli.write("base.yaml", f"{head}name: shop\nport: {own}\nroutedPort: {self.port}\n")
        cli.write("front.yaml", f"{head}name: front\nport: {front}\n")
        self.baselines = [
            subprocess.Popen([sys.executable, f"{cli.folder}/shop.py"], env={"PORT": str(port)})
            for port in (own, front)
        ]

    def ask(self, url: str = "", **headers: str) -> list[object]:
        where = url.removeprefix("http://") or f"127.0.0.1:{self.port}"
        connection = http.client.HTTPConnection(where, timeout=30)
        with closing(connection):
            connection.request("GET", "/", headers=headers)
            said: list[object] = json.loads(connection.getresponse().read())
            return said

    def get(self, what: str, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.cli(what, "get", name, "-o", "json").out)
        return found

    def urls(self, what: str, name: str) -> dict[str, str]:
        return {each["name"]: each["url"] for each in self.get(what, name)["endpoints"]}

    def api(self, path: str) -> object:
        url = (self.cli.home / "url").read_text().strip().removeprefix("http://")
        connection = http.client.HTTPConnection(url, timeout=30)
        with closing(connection):
            connection.request("GET", path, headers={"signadot-api-key": (self.cli.home / "key").read_text().strip()})
            return json.loads(connection.getresponse().read())

    def up(self, *options: str) -> subprocess.Popen[bytes]:
        files = ("--baseline", "base.yaml", "--baseline", "front.yaml")
        server = self.cli.start("up", "--port", "0", *files, *options)
        assert any(b"is up at" in line for line in iter(server.stderr.readline, b""))
        return server

    def close(self) -> None:
        for each in self.baselines:
            each.kill()
            each.wait()


@pytest.fixture
def shop(cli: Cli) -> Iterator[Shop]:
    found = Shop(cli)
    yield found
    found.close()
    if left := holder(f"{cli.home}/routing/lock"):
        os.kill(left, signal.SIGKILL)
    assert not left, "the proxy is left"


@pytest.fixture
def routed(shop: Shop) -> Iterator[Shop]:
    server = shop.up("--routing")
    yield shop
    server.terminate()
    assert (server.wait(30), server.stderr.read().decode()) == (0, "")


def test_two_sandboxes_and_a_group(routed: Shop):
    shop, cli = routed, routed.cli
    for name, label in (("one", "payments"), ("two", "none")):
        cli.write(f"{name}.yaml", sandbox(name, label))
        done = cli("apply", "-f", f"{name}.yaml")
        assert done.code == 0, done.err
    keys = {name: shop.get("sandbox", name)["routingKey"] for name in ("one", "two")}
    assert shop.ask() == ["baseline", None]
    for name, key in keys.items():
        assert shop.ask(baggage=f"sd-routing-key={key}")[0] == name
        assert shop.get("sandbox", name)["status"]["ready"]
    # An endpoint adds the key: for the fork, or for the requests of a baseline without a fork.
    urls = shop.urls("sandbox", "one")
    given = f"sd-routing-key={keys['one']},sd-sandbox={keys['one']}"
    assert shop.ask(urls["shop"], baggage="a=b") == ["one", ["a=b", given]]
    assert shop.ask(urls["front"]) == ["baseline", [given]]
    assert urls["raw"].startswith("tcp://127.0.0.1:")

    cli.write("group.yaml", GROUP)
    done = cli("apply", "-f", "group.yaml")
    assert done.code == 0, done.err
    group = shop.get("routegroup", "pay")
    assert group["status"]["ready"]
    assert "unsupported" not in group["status"]
    until(lambda: shop.ask(baggage=f"sd-routing-key={group['routingKey']}")[0] == "one")
    assert shop.ask(shop.urls("routegroup", "pay")["shop"])[0] == "one"

    rules = shop.api("/api/v1/workloads/routing-rules")["routingRules"]
    assert {(rule["routingKey"], rule["destinationSandbox"]["name"]) for rule in rules} == {
        (keys["one"], "one"),
        (keys["two"], "two"),
        (group["routingKey"], "one"),
    }
    (rule,) = shop.api(f"/api/v1/workloads/routing-rules?baselineName=shop&routingKey={keys['two']}")["routingRules"]
    (mapping,) = rule["mappings"]
    assert rule["baseline"] == {"kind": "Deployment", "namespace": "default", "name": "shop"}
    (destination,) = mapping["destinations"]
    assert shop.ask(f"http://{destination['host']}:{destination['port']}")[0] == "two"
    assert shop.api("/api/v2/workloads/routing-rules?destinationSandboxName=three") == {"routingRules": []}

    # Sandboxes leave and join the group without a change of their forks.
    cli.write("one.yaml", sandbox("one"))
    cli.write("two.yaml", sandbox("two", "pay"))
    assert cli("apply", "-f", "one.yaml", "-f", "two.yaml").code == 0
    until(lambda: shop.ask(baggage=f"sd-routing-key={group['routingKey']}")[0] == "two")
    assert cli("routegroup", "delete", "pay").code == 0
    until(lambda: shop.ask(baggage=f"sd-routing-key={group['routingKey']}")[0] == "baseline")
    assert shop.ask(baggage=f"sd-routing-key={keys['one']}")[0] == "one"


def test_route_server_serves_queries_and_streams_changes(routed: Shop):
    shop, cli = routed, routed.cli
    server = cli.start("routeserver", "--port", "0", "--grpc-port", "0")
    line = next(line for line in iter(server.stderr.readline, b"") if b"routing rules" in line).decode()
    url, at = line.split()[2].rstrip(","), line.split()[-1]
    with grpc.insecure_channel(at) as channel:
        watch = channel.unary_stream(
            "/routes.Routes/WatchWorkloadRoutingRules",
            pb.WorkloadRoutingRulesRequest.SerializeToString,
            pb.WorkloadRoutingRuleOp.FromString,
        )
        told = watch(pb.WorkloadRoutingRulesRequest())
        assert next(told).op == pb.SYNCED
        cli.write("one.yaml", sandbox("one"))
        assert cli("apply", "-f", "one.yaml").code == 0
        op = next(told)
        key = shop.get("sandbox", "one")["routingKey"]
        assert (op.op, op.route.routing_key, op.route.destination_sandbox.name) == (pb.ADD, key, "one")
        (at,) = op.route.mappings[0].destinations
        assert shop.ask(f"http://{at.host}:{at.port}")[0] == "one"
        with urllib.request.urlopen(f"{url}?baselineName=shop", timeout=30) as answer:
            assert [each["routingKey"] for each in json.load(answer)["routingRules"]] == [key]
        assert cli("sandbox", "delete", "one").code == 0
        assert next(told).op == pb.REMOVE
    server.terminate()
    assert (server.wait(30), server.stderr.read().decode()) == (0, "")


@pytest.mark.slow
def test_routes_survive_a_killed_server_and_its_successor(shop: Shop):
    killed = shop.up("--routing")
    shop.cli.write("one.yaml", sandbox("one"))
    assert shop.cli("apply", "-f", "one.yaml").code == 0
    key = f"sd-routing-key={shop.get('sandbox', 'one')['routingKey']}"
    lock = f"{shop.cli.home}/routing/lock"
    proxy = holder(lock)
    killed.kill()
    killed.wait()
    assert shop.ask(baggage=key)[0] == "one"
    server = shop.up("--routing")
    until(lambda: shop.get("sandbox", "one")["status"].get("ready"))
    assert holder(lock) == proxy
    assert (shop.ask(baggage=key)[0], shop.ask()[0]) == ("one", "baseline")
    server.terminate()
    assert server.wait(30) == 0


def test_without_it_ready_says_that_nothing_routes(shop: Shop):
    server = shop.up()
    shop.cli.write("one.yaml", sandbox("one"))
    assert shop.cli("apply", "-f", "one.yaml").code == 0
    message = str(shop.get("sandbox", "one")["status"]["message"])
    assert (
        "the route from default/shop (this server does not route by routing key; start it with: dayfly up --routing)"
        in message
    )
    assert "spec.defaultRouteGroup.endpoints[0] (no fork answers for" in message
    assert shop.ask(shop.urls("sandbox", "one")["shop"]) == ["one", None]
    server.terminate()
    assert server.wait(30) == 0


def test_up_routing_without_envoy_names_the_installer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("DAYFLY_HOME", str(tmp_path / "home"))
    assert run(["up", "--routing", "--port", "0"]) == 1
    error = capsys.readouterr().err
    assert "no Envoy is installed" in error
    assert error.endswith("/scripts/setup.sh dev\n")
    assert not (tmp_path / "home" / "url").exists()


def test_unusable_routing_option_is_refused_before_start(cli: Cli):
    refused(cli("up", "--routing-header", "host"), 2, "the header", "has another meaning")
    refused(cli("up", "--routing-query", "a&b"), 2, "cannot be the parameter")


@pytest.mark.slow
def test_a_port_of_another_baseline_is_not_taken(served: Cli):
    head = "kind: Deployment\ncommand: [sleep, '1']\n"
    served.write("a.yaml", f"{head}name: a\nport: 20001\nroutedPort: 20002\n")
    assert served("apply", "-f", "a.yaml").code == 0
    for port in (20001, 20002):
        served.write("b.yaml", f"{head}name: b\nport: 20003\nroutedPort: {port}\n")
        done = served("apply", "-f", "b.yaml")
        assert done.code != 0
        assert f'{port} is a port of the baseline "default/a"; choose another' in done.err
    served.write("b.yaml", f"{head}name: b\nport: 20002\n")
    assert '20002 is a port of the baseline "default/a"; choose another' in served("apply", "-f", "b.yaml").err
    served.write("b.yaml", f"{head}name: b\nport: 20001\n")
    assert served("apply", "-f", "b.yaml").code == 0, "two may listen at one port, if not at once"
    served.write("b.yaml", f"{head}name: b\nport: 20003\nroutedPort: 20003\n")
    assert "where the workload itself listens" in served("apply", "-f", "b.yaml").err
    served.write("b.yaml", f"{head}name: b\nroutedPort: 20004\n")
    assert "write the port too" in served("apply", "-f", "b.yaml").err
