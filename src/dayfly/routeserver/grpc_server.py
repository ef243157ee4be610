"""The rules by gRPC: all that hold now, and each change at once."""

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

    from dayfly.routeserver.board import Board
    from dayfly.spec.routing.rules import RoutingRule

MOST_STREAMS = 1000
MOST_OF_ONE = 100
"""Streams of one address: no single pod takes all there are. On one machine all have the same, so it is not counted."""
# Clients ask every few seconds whether we are there; without these, gRPC takes that for an attack.
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

    def __init__(self, board: Board, closing: asyncio.Event) -> None:
        self._board, self._closing = board, closing
        self._streams = 0
        self._streams_of: collections.Counter[str] = collections.Counter()

    def handler(self) -> grpc.GenericRpcHandler:
        asked, found = pb.WorkloadRoutingRulesRequest, pb.GetWorkloadRoutingRulesResponse
        get = grpc.unary_unary_rpc_method_handler(self.get, asked.FromString, found.SerializeToString)
        watch = grpc.unary_stream_rpc_method_handler(
            self.watch, asked.FromString, pb.WorkloadRoutingRuleOp.SerializeToString
        )
        methods = {"GetWorkloadRoutingRules": get, "WatchWorkloadRoutingRules": watch}
        return grpc.method_handlers_generic_handler("routes.Routes", methods)

    async def get(self, asked: Any, context: Any) -> Any:
        if not self._board.known:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the routing rules are not known yet; ask again")
        found = self._board.rules(_query(asked))
        return pb.GetWorkloadRoutingRulesResponse(routingRules=[_rule(each) for each in found])

    async def watch(self, asked: Any, context: Any) -> AsyncIterator[Any]:
        whose = address_of(context.peer())
        if self._streams >= MOST_STREAMS or self._streams_of[whose] >= MOST_OF_ONE:
            whole = self._streams >= MOST_STREAMS
            said = f"{MOST_STREAMS} listen already" if whole else f"{MOST_OF_ONE} of your address listen already"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{said}; ask again later")
        self._streams += 1
        self._streams_of[whose] += bool(whose)
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            if not await _unless(closing, self._board.wait_known()):
                return
            with self._board.watch(_query(asked)) as watcher:
                for op, rule in watcher.changes():
                    yield pb.WorkloadRoutingRuleOp(op=op, route=_rule(rule))
                yield pb.WorkloadRoutingRuleOp(op="SYNCED")
                while await _unless(closing, watcher.wait()):
                    for op, rule in watcher.changes():
                        yield pb.WorkloadRoutingRuleOp(op=op, route=_rule(rule))
        finally:
            closing.cancel()
            self._streams -= 1
            self._streams_of[whose] -= bool(whose)
            self._streams_of += collections.Counter()  # of those that have any


@contextlib.asynccontextmanager
async def serving(board: Board, address: str, port: int, *, grace_s: float = 2.0) -> AsyncIterator[int]:
    """Serve while the context lasts; gives the port. Who listens then is told that it is over, and dials again.

    Raises:
        OSError: that port cannot be had.
    """
    closing = asyncio.Event()
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((_Routes(board, closing).handler(),))
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


async def _unless(closing: asyncio.Future[Any], what: Any) -> bool:
    """Wait for something; whether it came before the end."""
    waiting = asyncio.ensure_future(what)
    try:
        await asyncio.wait({closing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return not closing.done()


def address_of(peer: str) -> str:
    """Whose a stream is, of gRPC's name of whom it speaks to; empty on the machine itself."""
    address = unquote(peer).rpartition(":")[0]
    return "" if address.startswith(("ipv4:127.", "ipv6:[::1]", "unix")) else address


def _query(asked: Any) -> Query:
    of = asked.baseline_workload
    return Query(of.kind, of.namespace, of.name, asked.routing_key, asked.destination_sandbox.name)


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
