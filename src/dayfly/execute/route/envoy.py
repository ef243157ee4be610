"""Ways in and where they lead, as what Envoy reads of them: bootstrap, listeners, clusters, a table for each way. Pure.

Tables are files of their own, so that a change of one closes no connection. A cluster is called by its address and
never changes. One worker serves all: what it answers to a probe holds for every request that follows.
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
# Below what servers close idle connections after: a request must not meet one that is just being closed.
_IDLE: Final = "2s"
# Envoy's own bounds would lose requests of a test that sends many at once.
_PLENTY: Final = 1 << 20
_HEADERS_KB: Final = 96
# By itself it refuses a whole table for one pattern as large as that of a key is. Ours match in linear time.
_RUNTIME: Final = {f"re2.max_program_size.{level}_level": 1 << 24 for level in ("error", "warn")}


class Lead(NamedTuple):
    """Requests with one of these keys go to that port of this machine."""

    keys: tuple[str, ...]
    port: int


class EnvoyEntry(NamedTuple):
    """Where requests come in, and where they go: by `leads` in their order, else to `port`, where the baseline listens.

    With `key` each of them is given that one and follows it, whatever else it carries.
    """

    name: str
    listens: int
    port: int
    leads: tuple[Lead, ...] = ()
    key: str = ""


def bootstrap(*, admin: str, listeners: str, clusters: str) -> dict[str, Any]:
    """What Envoy begins with; the arguments are paths."""
    return {
        "node": {"id": "dayfly", "cluster": "dayfly"},
        "admin": {"address": {"pipe": {"path": admin, "mode": 0o600}}},
        "layered_runtime": {"layers": [{"name": "dayfly", "static_layer": _RUNTIME}]},
        "dynamic_resources": {"lds_config": _file(listeners), "cds_config": _file(clusters)},
    }


def clusters(ways: Iterable[EnvoyEntry], lingering: Collection[int] = ()) -> list[dict[str, Any]]:
    """All ports that ways lead to, and those that still answer what has come by a route that is gone."""
    ports = {port for way in ways for port in (way.port, *(lead.port for lead in way.leads))}
    return [_cluster(port) for port in sorted({*ports, *lingering})]


def listeners(ways: Iterable[EnvoyEntry], tables: str) -> list[dict[str, Any]]:
    """One for each way; `tables` is the folder of their tables."""
    return [_listener(way, f"{tables}/{file_of(way.name)}") for way in ways]


def table(way: EnvoyEntry, forms: Forms, *, token: str, version: int) -> dict[str, Any]:
    """The table of a way. Who asks with the token is told the version that is in force."""
    probe = {
        "match": {"prefix": "/", "headers": [_exact(PROBE, token)]},
        "direct_response": {"status": 200, "body": {"inline_string": str(version)}},
    }
    return {
        "@type": f"{_TYPE}config.route.v3.RouteConfiguration",
        "name": way.name,
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [probe, *_routes(way, forms)]}],
    }


def answer(version: int, resources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Resources of one kind, as a file that Envoy watches holds them."""
    return {"version_info": str(version), "resources": list(resources)}


def file_of(name: str) -> str:
    """The file of a way's table; a way's name has no other sign in it than these."""
    return name.replace("/", "~") + ".json"


def _routes(way: EnvoyEntry, forms: Forms) -> list[dict[str, Any]]:
    if way.key:
        leads = ((lead.keys, lead.port) for lead in way.leads)
        port = routing_keys.first_route(tuple(leads), frozenset({way.key})) or way.port
        return [{"match": {"prefix": "/"}, "route": _to(port), "request_headers_to_add": _given(way.key)}]
    found: list[dict[str, Any]] = []
    for lead in way.leads:
        found += ({"match": {"prefix": "/", **match}, "route": _to(lead.port)} for match in _matches(lead.keys, forms))
    return [*found, {"match": {"prefix": "/"}, "route": _to(way.port)}]


def _matches(keys: Sequence[str], forms: Forms) -> Iterable[dict[str, Any]]:
    """Each of the places where a key may stand."""
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


def _to(port: int) -> dict[str, Any]:
    # A request that was never sent may be sent again: a fork that is being started anew has no place to be refused.
    retry = {"retry_on": "connect-failure,refused-stream,reset-before-request", "num_retries": 4}
    back_off = {"base_interval": "0.025s", "max_interval": "0.5s"}
    return {
        "cluster": _name(port),
        "timeout": "0s",
        "idle_timeout": "0s",
        "retry_policy": retry | {"retry_back_off": back_off},
    }


def _given(key: str) -> list[dict[str, Any]]:
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
        # A request goes on in the protocol in which it came.
        "use_downstream_protocol_config": both,
        "common_http_protocol_options": {"idle_timeout": _IDLE},
    }
    bounds = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), _PLENTY)
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


def _listener(way: EnvoyEntry, table_path: str) -> dict[str, Any]:
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
        "rds": {"route_config_name": way.name, "config_source": _file(table_path)},
        "http_filters": [router],
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "http_protocol_options": {"accept_http_10": True},
        "max_request_headers_kb": _HEADERS_KB,
        # What a request says of itself is for whom it is sent to; nothing is added but what was asked for.
        "skip_xff_append": True,
        "generate_request_id": False,
        "server_header_transformation": "PASS_THROUGH",
        "stream_idle_timeout": "0s",
        "request_headers_timeout": "30s",
    }
    return {
        "@type": f"{_TYPE}config.listener.v3.Listener",
        "name": way.name,
        "address": _address(way.listens),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
