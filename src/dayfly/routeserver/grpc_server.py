"""The gRPC API of the rules: all current rules, and a stream of changes."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc
import grpc.aio

from dayfly.routeserver import routes_pb2 as pb
from dayfly.spec.routing.rules import Query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dayfly.routeserver.rule_store import RuleStore
    from dayfly.spec.routing.rules import RoutingRule

MAX_STREAMS = 1000
MAX_STREAMS_PER_ADDRESS = 100
"""Limit of streams for each client address, so that one pod cannot use all. Loopback addresses are not limited."""
# Clients send keepalive pings every few seconds. Without these options, gRPC closes such connections.
_OPTIONS = (
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 15_000),
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.so_reuseport", 0),
)


class _Routes:
    """The methods of `routes.proto`."""

    def __init__(self, store: RuleStore, closing: asyncio.Event) -> None:
        self._store, self._closing = store, closing
        self._streams = 0
        self._streams_of: collections.Counter[str] = collections.Counter()

    def handler(self) -> grpc.GenericRpcHandler:
        request, response = pb.WorkloadRoutingRulesRequest, pb.GetWorkloadRoutingRulesResponse
        get = grpc.unary_unary_rpc_method_handler(self.get, request.FromString, response.SerializeToString)
        watch = grpc.unary_stream_rpc_method_handler(
            self.watch, request.FromString, pb.WorkloadRoutingRuleOp.SerializeToString
        )
        methods = {"GetWorkloadRoutingRules": get, "WatchWorkloadRoutingRules": watch}
        return grpc.method_handlers_generic_handler("routes.Routes", methods)

    async def get(self, request: Any, context: Any) -> Any:
        if not self._store.is_complete:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the routing rules are not known yet; retry")
        found = self._store.find(_query(request))
        return pb.GetWorkloadRoutingRulesResponse(routingRules=[_rule(each) for each in found])

    async def watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        address = address_of(context.peer())
        if self._streams >= MAX_STREAMS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"the limit of {MAX_STREAMS} streams is reached; retry later"
            )
        if self._streams_of[address] >= MAX_STREAMS_PER_ADDRESS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the limit of {MAX_STREAMS_PER_ADDRESS} streams of your address is reached; retry later",
            )
        self._streams += 1
        self._streams_of[address] += bool(address)
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            if not await _wait_unless(closing, self._store.wait_complete()):
                return
            with self._store.subscribe(_query(request)) as subscription:
                for op, rule in subscription.take_changes():
                    yield pb.WorkloadRoutingRuleOp(op=op, route=_rule(rule))
                yield pb.WorkloadRoutingRuleOp(op="SYNCED")
                while await _wait_unless(closing, subscription.wait()):
                    for op, rule in subscription.take_changes():
                        yield pb.WorkloadRoutingRuleOp(op=op, route=_rule(rule))
        finally:
            closing.cancel()
            self._streams -= 1
            self._streams_of[address] -= bool(address)
            self._streams_of += collections.Counter()  # removes entries that are 0


@contextlib.asynccontextmanager
async def serve(store: RuleStore, address: str, port: int, *, grace_s: float = 2.0) -> AsyncIterator[int]:
    """Serve during the context and yield the port. At its end, open streams end, so that their clients reconnect.

    Raises:
        OSError: The port cannot be bound.
    """
    closing = asyncio.Event()
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((_Routes(store, closing).handler(),))
    host = f"[{address}]" if ":" in address else address
    try:
        got = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as fault:
        raise OSError(str(fault)) from None
    await server.start()
    try:
        yield got
    finally:
        closing.set()
        await server.stop(grace_s)


async def _wait_unless(closing: asyncio.Future[Any], event: Any) -> bool:
    """Wait for an event; return false if the server closes before it."""
    waiting = asyncio.ensure_future(event)
    try:
        await asyncio.wait({closing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return not closing.done()


def address_of(peer: str) -> str:
    """Return the client address from gRPC's peer name; empty for loopback."""
    address = unquote(peer).rpartition(":")[0]
    return "" if address.startswith(("ipv4:127.", "ipv6:[::1]", "unix")) else address


def _query(request: Any) -> Query:
    of = request.baseline_workload
    return Query(of.kind, of.namespace, of.name, request.routing_key, request.destination_sandbox.name)


def _rule(rule: RoutingRule) -> Any:
    of = rule.baseline
    return pb.WorkloadRoutingRule(
        routing_key=rule.routing_key,
        baseline=pb.BaselineWorkload(kind=of.kind, namespace=of.namespace, name=of.name),
        destination_sandbox=pb.DestinationSandbox(name=rule.destination_sandbox.name),
        mappings=[
            pb.WorkloadPortMapping(
                workload_port=each.workload_port,
                destinations=[pb.Location(host=at.host, port=at.port) for at in each.destinations],
            )
            for each in rule.mappings
        ],
    )
