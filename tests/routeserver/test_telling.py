"""The rules as clients are told them: by gRPC with a real client, and by REST over a real socket."""

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
from dayfly.routeserver.board import Board
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
def board():
    return Board()


class Dialled:
    """A client of the service, without any code of the server's but the types of `routes.proto`."""

    def __init__(self, port):
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        asked = {"request_serializer": pb.WorkloadRoutingRulesRequest.SerializeToString}
        self.get = self.channel.unary_unary(
            "/routes.Routes/GetWorkloadRoutingRules",
            response_deserializer=pb.GetWorkloadRoutingRulesResponse.FromString,
            **asked,
        )
        self.watch = self.channel.unary_stream(
            "/routes.Routes/WatchWorkloadRoutingRules",
            response_deserializer=pb.WorkloadRoutingRuleOp.FromString,
            **asked,
        )


@pytest_asyncio.fixture
async def dialled(board):
    async with grpc_server.serving(board, "127.0.0.1", 0) as port:
        found = Dialled(port)
        yield found
        await found.channel.close()


def told(op):
    return pb.WatchOp.Name(op.op), op.route.routing_key, op.route.destination_sandbox.name


async def some(stream, count):
    return [told(await asyncio.wait_for(stream.read(), 30)) for _ in range(count)]


async def test_the_whole_of_a_rule(board, dialled):
    board.replace([rule("k1")])
    (found,) = (await dialled.get(pb.WorkloadRoutingRulesRequest())).routingRules
    assert (found.routing_key, found.destination_sandbox.name) == ("k1", "one")
    assert (found.baseline.kind, found.baseline.namespace, found.baseline.name) == ("Deployment", "shop", "web")
    (mapping,) = found.mappings
    assert (mapping.workload_port, [(at.host, at.port) for at in mapping.destinations]) == (
        8083,
        [("f.shop.svc", 4000)],
    )


async def test_each_filter(board, dialled):
    board.replace([rule("k1"), rule("k2", "two", "api")])
    for asked in (
        pb.WorkloadRoutingRulesRequest(routing_key="k2"),
        pb.WorkloadRoutingRulesRequest(destination_sandbox=pb.DestinationSandbox(name="two")),
        pb.WorkloadRoutingRulesRequest(baseline_workload=pb.BaselineWorkload(name="api")),
        pb.WorkloadRoutingRulesRequest(baseline_workload=pb.BaselineWorkload(namespace="shop", name="api")),
    ):
        assert [each.routing_key for each in (await dialled.get(asked)).routingRules] == ["k2"]
    for of in (pb.BaselineWorkload(namespace="x"), pb.BaselineWorkload(kind="x")):
        assert not (await dialled.get(pb.WorkloadRoutingRulesRequest(baseline_workload=of))).routingRules


async def test_all_that_holds_then_synced_then_each_change(board, dialled):
    board.replace([rule("k1")])
    stream = dialled.watch(pb.WorkloadRoutingRulesRequest())
    assert await some(stream, 2) == [("ADD", "k1", "one"), ("SYNCED", "", "")]
    board.replace([rule("k1", "two"), rule("k2")])
    assert sorted(await some(stream, 2)) == [("ADD", "k2", "one"), ("REPLACE", "k1", "two")]
    board.replace([rule("k2", port=4001)])
    assert await some(stream, 2) == [("REMOVE", "k1", "two"), ("REPLACE", "k2", "one")]
    stream.cancel()


async def test_nothing_is_served_before_rules_are_known(board, dialled):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await dialled.get(pb.WorkloadRoutingRulesRequest())
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    stream = dialled.watch(pb.WorkloadRoutingRulesRequest())
    first = asyncio.create_task(some(stream, 1))
    _, pending = await asyncio.wait({first}, timeout=0.2)
    assert pending
    board.replace([])
    assert await first == [("SYNCED", "", "")]
    stream.cancel()


async def test_server_end_closes_the_stream_normally(board):
    board.replace([])
    async with grpc_server.serving(board, "127.0.0.1", 0) as port:
        client = Dialled(port)
        stream = client.watch(pb.WorkloadRoutingRulesRequest())
        assert await some(stream, 1) == [("SYNCED", "", "")]
    assert await asyncio.wait_for(stream.read(), 30) is grpc.aio.EOF
    assert board.watchers == 0
    await client.channel.close()


async def test_too_many_streams_are_refused(board, dialled, monkeypatch):
    monkeypatch.setattr(grpc_server, "MOST_STREAMS", 1)
    board.replace([])
    first = dialled.watch(pb.WorkloadRoutingRulesRequest())
    assert await some(first, 1) == [("SYNCED", "", "")]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await some(dialled.watch(pb.WorkloadRoutingRulesRequest()), 1)
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


async def test_one_address_does_not_take_all_streams(board, dialled, monkeypatch):
    monkeypatch.setattr(grpc_server, "MOST_OF_ONE", 2)
    board.replace([])
    here = [dialled.watch(pb.WorkloadRoutingRulesRequest()) for _ in range(3)]
    for stream in here:
        assert await some(stream, 1) == [("SYNCED", "", "")]
    addresses = iter(["one", "one", "one", "two"])
    monkeypatch.setattr(grpc_server, "address_of", lambda _peer: next(addresses))
    first, second, third = (dialled.watch(pb.WorkloadRoutingRulesRequest()) for _ in range(3))
    for stream in (first, second):
        assert await some(stream, 1) == [("SYNCED", "", "")]
    with pytest.raises(grpc.aio.AioRpcError, match="2 of your address listen already"):
        await some(third, 1)
    other = dialled.watch(pb.WorkloadRoutingRulesRequest())
    assert await some(other, 1) == [("SYNCED", "", "")]
    for stream in (*here, first, second, other):
        stream.cancel()


async def test_client_that_never_reads_delays_no_other(board, dialled):
    """Far more than a connection holds is told, over and over; the other hears of the last of it."""
    board.replace([])
    deaf = dialled.watch(pb.WorkloadRoutingRulesRequest())
    stream = dialled.watch(pb.WorkloadRoutingRulesRequest(routing_key="last"))
    assert await some(deaf, 1) == await some(stream, 1) == [("SYNCED", "", "")]
    for port in range(20):
        board.replace([rule(f"k{number}", name="w" * 200, port=port + 1) for number in range(500)])
        await asyncio.sleep(0)
    board.replace([rule("last")])
    assert await some(stream, 1) == [("ADD", "last", "one")]
    deaf.cancel()
    stream.cancel()


async def test_a_port_that_is_taken_is_said(board):
    async with grpc_server.serving(board, "127.0.0.1", 0) as port:
        with pytest.raises(OSError, match=str(port)):
            async with grpc_server.serving(board, "127.0.0.1", port):
                pass


@pytest_asyncio.fixture
async def url(board):
    stop = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(serve(rest.application(board, loopback=True), [sock], stop=stop))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        stop.set()
        await serving


async def test_rest(board, url):
    async def ask(path, status):
        async with client.get(url + path) as answer:
            assert answer.status == status, path
            return await (answer.json() if path.startswith("/api") else answer.text())

    async with aiohttp.ClientSession() as client:
        assert "not known yet" in (await ask(rest.PATH, 503))["error"]
        await ask("/readyz", 503)
        assert await ask("/healthz", 200) == "ok\n"
        board.replace([rule("k1"), rule("k2", "two", "api")])
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


async def test_request_with_a_foreign_host_header_is_refused(board, url):
    """So does a page whose own name was made to lead to this machine, in a browser here."""
    board.replace([rule("k1")])
    async with aiohttp.ClientSession() as client:
        for host, status in (("evil.example", 403), ("localhost:7778", 200)):
            async with client.get(url + rest.PATH, headers={"Host": host}) as answer:
                assert answer.status == status
