"""Configuration of Envoy: bootstrap, listeners, clusters, and a route table for each listener. Pure.

Each route table is a separate file, so that a change closes no connections. A cluster is named by its address and never
changes. Envoy runs one worker thread, so the response to a probe is true for all later requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dayfly.spec.routing import routing_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dayfly.spec.routing.routing_keys import Forms

HOST: Final = "127.0.0.1"
PROBE: Final = "x-dayfly-probe"
_TYPE: Final = "type.googleapis.com/envoy."
_HTTP: Final = "extensions.upstreams.http.v3.HttpProtocolOptions"
# Shorter than the idle timeout of servers, so that no request uses a connection that the server is closing.
_IDLE: Final = "2s"
# Envoy's default limits would reject requests of a test that sends many concurrently.
_UNLIMITED: Final = 1 << 20
_HEADERS_KB: Final = 96
# By default, Envoy refuses a route table with a pattern as large as that of a key. RE2 matches in linear time.
_RUNTIME: Final = {f"re2.max_program_size.{level}_level": 1 << 24 for level in ("error", "warn")}


class KeyRoute(NamedTuple):
    """Requests with one of these keys are routed to a port of this machine."""

    keys: tuple[str, ...]
    port: int


class EnvoyEntry(NamedTuple):
    """A listener: its port `listen_port`, its routes in order, and the baseline's `port` for all other requests.

    With `key`, Envoy adds this key to each request and routes by it, whatever keys the request has.
    """

    name: str
    listen_port: int
    port: int
    key_routes: tuple[KeyRoute, ...] = ()
    key: str = ""


def bootstrap(*, admin: str, listeners: str, clusters: str) -> dict[str, Any]:
    """Return the bootstrap configuration; the arguments are paths."""
    return {
        "node": {"id": "dayfly", "cluster": "dayfly"},
        "admin": {"address": {"pipe": {"path": admin, "mode": 0o600}}},
        "layered_runtime": {"layers": [{"name": "dayfly", "static_layer": _RUNTIME}]},
        "dynamic_resources": {"lds_config": _file(listeners), "cds_config": _file(clusters)},
    }


def clusters(entries: Iterable[EnvoyEntry], lingering: Collection[int] = ()) -> list[dict[str, Any]]:
    """Return the clusters for all ports, including `lingering` ones with open requests of removed routes."""
    ports = {port for entry in entries for port in (entry.port, *(lead.port for lead in entry.key_routes))}
    return [_cluster(port) for port in sorted({*ports, *lingering})]


def listeners(entries: Iterable[EnvoyEntry], tables: str) -> list[dict[str, Any]]:
    """Return a listener for each entry; `tables` is the folder of their route tables."""
    return [_listener(entry, f"{tables}/{file_of(entry.name)}") for entry in entries]


def route_table(entry: EnvoyEntry, forms: Forms, *, token: str, version: int) -> dict[str, Any]:
    """Return the route table of an entry. A request with the token receives the version of the active table."""
    probe = {
        "match": {"prefix": "/", "headers": [_exact(PROBE, token)]},
        "direct_response": {"status": 200, "body": {"inline_string": str(version)}},
    }
    return {
        "@type": f"{_TYPE}config.route.v3.RouteConfiguration",
        "name": entry.name,
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [probe, *_routes(entry, forms)]}],
    }


def discovery_response(version: int, resources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a file that Envoy watches, with resources of one kind."""
    return {"version_info": str(version), "resources": list(resources)}


def file_of(name: str) -> str:
    """Return the file name of a route table. `/` is the only character in an entry's name that must be replaced."""
    return name.replace("/", "~") + ".json"


def _routes(entry: EnvoyEntry, forms: Forms) -> list[dict[str, Any]]:
    if entry.key:
        leads = ((lead.keys, lead.port) for lead in entry.key_routes)
        port = routing_keys.first_route(tuple(leads), frozenset({entry.key})) or entry.port
        return [{"match": {"prefix": "/"}, "route": _route_to(port), "request_headers_to_add": _key_headers(entry.key)}]
    found: list[dict[str, Any]] = []
    for lead in entry.key_routes:
        found += (
            {"match": {"prefix": "/", **match}, "route": _route_to(lead.port)} for match in _matches(lead.keys, forms)
        )
    return [*found, {"match": {"prefix": "/"}, "route": _route_to(entry.port)}]


def _matches(keys: Sequence[str], forms: Forms) -> Iterable[dict[str, Any]]:
    """Yield a match for each part of a request that can carry a key."""
    yield {"headers": [_matching(routing_keys.BAGGAGE, routing_keys.baggage_pattern(keys))]}
    yield {"headers": [_matching(routing_keys.TRACESTATE, routing_keys.tracestate_pattern(keys))]}
    for name in routing_keys.PLAIN:
        yield {"headers": [_matching(name, routing_keys.plain_pattern(keys, escapes=True))]}
    for name in forms.headers:
        yield {"headers": [_matching(name, routing_keys.plain_pattern(keys, escapes=False))]}
    if forms.query:
        pattern = {"safe_regex": {"regex": routing_keys.query_pattern(keys)}}
        yield {"query_parameters": [{"name": forms.query, "string_match": pattern}]}


def _matching(header: str, pattern: str) -> dict[str, Any]:
    return {"name": header, "string_match": {"safe_regex": {"regex": pattern}}}


def _exact(header: str, value: str) -> dict[str, Any]:
    return {"name": header, "string_match": {"exact": value}}


def _route_to(port: int) -> dict[str, Any]:
    # Retry requests that were not sent, because a restarting fork refuses connections for a moment.
    retry = {"retry_on": "connect-failure,refused-stream,reset-before-request", "num_retries": 4}
    back_off = {"base_interval": "0.025s", "max_interval": "0.5s"}
    return {
        "cluster": _name(port),
        "timeout": "0s",
        "idle_timeout": "0s",
        "retry_policy": retry | {"retry_back_off": back_off},
    }


def _key_headers(key: str) -> list[dict[str, Any]]:
    return [
        {"header": {"key": name, "value": value}, "append_action": "APPEND_IF_EXISTS_OR_ADD"}
        for name, value in routing_keys.injected_headers(key)
    ]


def _name(port: int) -> str:
    return f"{HOST}:{port}"


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": HOST, "port_value": port}}


def _file(path: str) -> dict[str, Any]:
    return {"resource_api_version": "V3", "path_config_source": {"path": path}}


def _cluster(port: int) -> dict[str, Any]:
    both: dict[str, Any] = {"http_protocol_options": {}, "http2_protocol_options": {}}
    options = {
        "@type": f"{_TYPE}{_HTTP}",
        # Requests are forwarded with the protocol of the client.
        "use_downstream_protocol_config": both,
        "common_http_protocol_options": {"idle_timeout": _IDLE},
    }
    bounds = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), _UNLIMITED)
    return {
        "@type": f"{_TYPE}config.cluster.v3.Cluster",
        "name": _name(port),
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": _name(port),
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(port)}}]}],
        },
        "circuit_breakers": {"thresholds": [bounds]},
        "typed_extension_protocol_options": {f"envoy.{_HTTP}": options},
    }


def _listener(entry: EnvoyEntry, table_path: str) -> dict[str, Any]:
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": f"{_TYPE}extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": True,
        },
    }
    manager = {
        "@type": f"{_TYPE}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "way",
        "codec_type": "AUTO",
        "rds": {"route_config_name": entry.name, "config_source": _file(table_path)},
        "http_filters": [router],
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "http_protocol_options": {"accept_http_10": True},
        "max_request_headers_kb": _HEADERS_KB,
        # Requests and responses are forwarded without additional headers.
        "skip_xff_append": True,
        "generate_request_id": False,
        "server_header_transformation": "PASS_THROUGH",
        "stream_idle_timeout": "0s",
        "request_headers_timeout": "30s",
    }
    return {
        "@type": f"{_TYPE}config.listener.v3.Listener",
        "name": entry.name,
        "address": _address(entry.listen_port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
