"""The servers of the rules: gRPC with a real client, and REST over a real socket."""

import asyncio
import socket

import aiohttp
import grpc
import grpc.aio
import pytest
import pytest_asyncio

from dayfly.lib.http_server import serve
from dayfly.routeserver import grpc_server, rest
from dayfly.routeserver import routes_pb2 as pb
from dayfly.routeserver.rule_store import RuleStore
from dayfly.spec.routing.rules import RoutedBaseline, RoutedDestination, RoutedPort, RoutedSandbox, RoutingRule


def rule(key, sandbox="one", name="web", port=4000):
    answers = RoutedPort(workload_port=8083, destinations=(RoutedDestination(host="f.shop.svc", port=port),))
    return RoutingRule(
        routing_key=key,
        baseline=RoutedBaseline(kind="Deployment", namespace="shop", name=name),
        destination_sandbox=RoutedSandbox(name=sandbox),
        mappings=(answers,),
    )


@pytest.fixture
def store():
    return RuleStore()


class GrpcClient:
    """A client that uses only the types of `routes.proto`, and no other code of the server."""

    def __init__(self, port):
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        request = {"request_serializer": pb.WorkloadRoutingRulesRequest.SerializeToString}
        self.get = self.channel.unary_unary(
            "/routes.Routes/GetWorkloadRoutingRules",
            response_deserializer=pb.GetWorkloadRoutingRulesResponse.FromString,
            **request,
        )
        self.watch = self.channel.unary_stream(
            "/routes.Routes/WatchWorkloadRoutingRules",
            response_deserializer=pb.WorkloadRoutingRuleOp.FromString,
            **request,
        )


@pytest_asyncio.fixture
async def client(store):
    async with grpc_server.serve(store, "127.0.0.1", 0) as port:
        found = GrpcClient(port)
        yield found
        await found.channel.close()


def summary(op):
    return pb.WatchOp.Name(op.op), op.route.routing_key, op.route.destination_sandbox.name


async def read(stream, count):
    async with asyncio.timeout(30):
        return [summary(await stream.read()) for _ in range(count)]


async def test_get_returns_all_fields_of_a_rule(store, client):
    store.replace([rule("k1")])
    (found,) = (await client.get(pb.WorkloadRoutingRulesRequest())).routingRules
    assert (found.routing_key, found.destination_sandbox.name) == ("k1", "one")
    assert (found.baseline.kind, found.baseline.namespace, found.baseline.name) == ("Deployment", "shop", "web")
    (mapping,) = found.mappings
    assert (mapping.workload_port, [(at.host, at.port) for at in mapping.destinations]) == (
        8083,
        [("f.shop.svc", 4000)],
    )


async def test_get_filters_rules(store, client):
    store.replace([rule("k1"), rule("k2", "two", "api")])
    for asked in (
        pb.WorkloadRoutingRulesRequest(routing_key="k2"),
        pb.WorkloadRoutingRulesRequest(destination_sandbox=pb.DestinationSandbox(name="two")),
        pb.WorkloadRoutingRulesRequest(baseline_workload=pb.BaselineWorkload(name="api")),
        pb.WorkloadRoutingRulesRequest(baseline_workload=pb.BaselineWorkload(namespace="shop", name="api")),
    ):
        assert [each.routing_key for each in (await client.get(asked)).routingRules] == ["k2"]
    for of in (pb.BaselineWorkload(namespace="x"), pb.BaselineWorkload(kind="x")):
        assert not (await client.get(pb.WorkloadRoutingRulesRequest(baseline_workload=of))).routingRules


async def test_watch_sends_rules_then_synced_then_changes(store, client):
    store.replace([rule("k1")])
    stream = client.watch(pb.WorkloadRoutingRulesRequest())
    assert await read(stream, 2) == [("ADD", "k1", "one"), ("SYNCED", "", "")]
    store.replace([rule("k1", "two"), rule("k2")])
    assert sorted(await read(stream, 2)) == [("ADD", "k2", "one"), ("REPLACE", "k1", "two")]
    store.replace([rule("k2", port=4001)])
    assert await read(stream, 2) == [("REMOVE", "k1", "two"), ("REPLACE", "k2", "one")]
    stream.cancel()


async def test_nothing_is_served_before_rules_are_known(store, client):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.get(pb.WorkloadRoutingRulesRequest())
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    stream = client.watch(pb.WorkloadRoutingRulesRequest())
    first = asyncio.create_task(read(stream, 1))
    _, pending = await asyncio.wait({first}, timeout=0.2)
    assert pending
    store.replace([])
    assert await first == [("SYNCED", "", "")]
    stream.cancel()


async def test_server_end_closes_the_stream_normally(store):
    store.replace([])
    async with grpc_server.serve(store, "127.0.0.1", 0) as port:
        client = GrpcClient(port)
        stream = client.watch(pb.WorkloadRoutingRulesRequest())
        assert await read(stream, 1) == [("SYNCED", "", "")]
    async with asyncio.timeout(30):
        assert await stream.read() is grpc.aio.EOF
    assert store.subscriptions == 0
    await client.channel.close()


async def test_too_many_streams_are_refused(store, client, monkeypatch):
    monkeypatch.setattr(grpc_server, "MAX_STREAMS", 1)
    store.replace([])
    first = client.watch(pb.WorkloadRoutingRulesRequest())
    assert await read(first, 1) == [("SYNCED", "", "")]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await read(client.watch(pb.WorkloadRoutingRulesRequest()), 1)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    first.cancel()


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:4711", "ipv4:10.0.0.7"),
        ("ipv6:%5Bfd00::7%5D:4711", "ipv6:[fd00::7]"),
        ("ipv4:127.0.0.1:4711", ""),
        ("ipv6:%5B::1%5D:4711", ""),
        ("unix:", ""),
    ],
)
def test_stream_is_counted_by_its_peer_address(peer, address):
    assert grpc_server.address_of(peer) == address


async def test_one_address_does_not_take_all_streams(store, client, monkeypatch):
    monkeypatch.setattr(grpc_server, "MAX_STREAMS_PER_ADDRESS", 2)
    store.replace([])
    here = [client.watch(pb.WorkloadRoutingRulesRequest()) for _ in range(3)]
    for stream in here:
        assert await read(stream, 1) == [("SYNCED", "", "")]
    addresses = iter(["one", "one", "one", "two"])
    monkeypatch.setattr(grpc_server, "address_of", lambda _peer: next(addresses))
    first, second, third = (client.watch(pb.WorkloadRoutingRulesRequest()) for _ in range(3))
    for stream in (first, second):
        assert await read(stream, 1) == [("SYNCED", "", "")]
    with pytest.raises(grpc.aio.AioRpcError, match="the limit of 2 streams of your address is reached"):
        await read(third, 1)
    other = client.watch(pb.WorkloadRoutingRulesRequest())
    assert await read(other, 1) == [("SYNCED", "", "")]
    for stream in (*here, first, second, other):
        stream.cancel()


async def test_client_that_never_reads_delays_no_other(store, client):
    """The rules exceed the buffers of a connection many times."""
    store.replace([])
    silent = client.watch(pb.WorkloadRoutingRulesRequest())
    stream = client.watch(pb.WorkloadRoutingRulesRequest(routing_key="last"))
    assert await read(silent, 1) == await read(stream, 1) == [("SYNCED", "", "")]
    for port in range(20):
        store.replace([rule(f"k{number}", name="w" * 200, port=port + 1) for number in range(500)])
        await asyncio.sleep(0)
    store.replace([rule("last")])
    assert await read(stream, 1) == [("ADD", "last", "one")]
    silent.cancel()
    stream.cancel()


async def test_port_in_use_raises_an_error_with_the_port(store):
    async with grpc_server.serve(store, "127.0.0.1", 0) as port:
        with pytest.raises(OSError, match=str(port)):
            async with grpc_server.serve(store, "127.0.0.1", port):
                pass


@pytest_asyncio.fixture
async def url(store):
    stop = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(serve(rest.application(store, loopback=True), [sock], stop=stop))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        stop.set()
        await serving


async def test_rest(store, url):
    async def ask(path, status):
        async with client.get(url + path) as answer:
            assert answer.status == status, path
            return await (answer.json() if path.startswith("/api") else answer.text())

    async with aiohttp.ClientSession() as client:
        assert "not known yet" in (await ask(rest.PATH, 503))["error"]
        await ask("/readyz", 503)
        assert await ask("/healthz", 200) == "ok\n"
        store.replace([rule("k1"), rule("k2", "two", "api")])
        assert await ask("/readyz", 200) == "ok\n"
        assert await ask(f"{rest.PATH}?routingKey=k1&baselineKind=Deployment", 200) == {
            "routingRules": [
                {
                    "routingKey": "k1",
                    "baseline": {"kind": "Deployment", "namespace": "shop", "name": "web"},
                    "destinationSandbox": {"name": "one"},
                    "mappings": [{"workloadPort": 8083, "destinations": [{"host": "f.shop.svc", "port": 4000}]}],
                }
            ]
        }
        assert len((await ask(f"{rest.PATH}?destinationSandboxName=", 200))["routingRules"]) == 2
        assert (await ask(f"{rest.PATH}?destinationSandboxName=three", 200)) == {"routingRules": []}


async def test_request_with_a_foreign_host_header_is_refused(store, url):
    """A web page can resolve its own host name to this machine (DNS rebinding)."""
    store.replace([rule("k1")])
    async with aiohttp.ClientSession() as client:
        for host, status in (("evil.example", 403), ("localhost:7778", 200)):
            async with client.get(url + rest.PATH, headers={"Host": host}) as answer:
                assert answer.status == status
