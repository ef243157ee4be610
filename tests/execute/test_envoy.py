"""Envoy's configuration: routing of requests, unchanged headers, and limits."""

import pytest

from dayfly.execute.route.envoy import (
    PROBE,
    EnvoyEntry,
    KeyRoute,
    bootstrap,
    clusters,
    discovery_response,
    file_of,
    listeners,
    route_table,
)
from dayfly.spec.routing import routing_keys
from dayfly.spec.routing.routing_keys import Forms

PLAIN = Forms()
LEADS = (KeyRoute(("k1", "k2"), 7001), KeyRoute(("k3",), 7002))
WAY = EnvoyEntry("baseline/shop/web", 9090, 8080, LEADS)
ANYTHING = {"prefix": "/"}


def routes(way, forms=PLAIN):
    """Return the routes of a table: the probe and all others."""
    [host] = route_table(way, forms, token="t", version=17)["virtual_hosts"]
    assert host["domains"] == ["*"]
    return host["routes"][0], host["routes"][1:]


def led(way, forms=PLAIN):
    """Return the matched part and the port of each route."""
    return [(route["match"], int(route["route"]["cluster"].rpartition(":")[2])) for route in routes(way, forms)[1]]


def header(name, pattern):
    return {"prefix": "/", "headers": [{"name": name, "string_match": {"safe_regex": {"regex": pattern}}}]}


class TestTable:
    def test_probe_with_token_returns_the_active_version(self):
        assert routes(WAY)[0] == {
            "match": {"prefix": "/", "headers": [{"name": PROBE, "string_match": {"exact": "t"}}]},
            "direct_response": {"status": 200, "body": {"inline_string": "17"}},
        }
        assert route_table(WAY, PLAIN, token="t", version=1)["name"] == WAY.name

    def test_key_is_matched_in_each_place_and_first_lead_wins(self):
        found = led(WAY)
        each = len(found) // 2
        assert [port for _, port in found] == [7001] * each + [7002] * each + [8080]
        assert found[-1][0] == ANYTHING
        assert [match for match, _ in found[:each]] == [
            header("baggage", routing_keys.baggage_pattern(("k1", "k2"))),
            header("tracestate", routing_keys.tracestate_pattern(("k1", "k2"))),
            *(header(name, routing_keys.plain_pattern(("k1", "k2"), escapes=True)) for name in routing_keys.PLAIN),
        ]

    def test_custom_headers_and_query_are_matched(self):
        usual, more = led(WAY), led(WAY, Forms(("x-key",), "key"))
        query = {"name": "key", "string_match": {"safe_regex": {"regex": routing_keys.query_pattern(("k3",))}}}
        assert len(more) == len(usual) + 4
        assert [match for match, _ in more[-3:-1]] == [
            header("x-key", routing_keys.plain_pattern(("k3",), escapes=False)),
            {"prefix": "/", "query_parameters": [query]},
        ]

    @pytest.mark.parametrize(("key", "port"), [("k1", 7001), ("k3", 7002), ("k9", 8080)])
    def test_preview_key_is_added_and_decides_the_route(self, key, port):
        way = WAY._replace(key=key)
        assert led(way) == [(ANYTHING, port)]
        [route] = routes(way)[1]
        given = [(each["header"]["key"], each["header"]["value"]) for each in route["request_headers_to_add"]]
        assert given == list(routing_keys.injected_headers(key))
        assert {each["append_action"] for each in route["request_headers_to_add"]} == {"APPEND_IF_EXISTS_OR_ADD"}

    def test_unsent_requests_are_retried_and_have_no_timeout(self):
        for route in routes(WAY)[1]:
            to = route["route"]
            assert (to["timeout"], to["idle_timeout"]) == ("0s", "0s")
            assert to["retry_policy"] == {
                "retry_on": "connect-failure,refused-stream,reset-before-request",
                "num_retries": 4,
                "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.5s"},
            }


class TestListeners:
    def test_each_entry_has_a_listener_and_a_table(self):
        other = EnvoyEntry("preview/u/x", 9091, 8081)
        found = listeners([WAY, other], "/tables")
        for way, listener in zip((WAY, other), found, strict=True):
            assert listener["name"] == way.name
            assert listener["address"] == {"socket_address": {"address": "127.0.0.1", "port_value": way.listen_port}}
            assert self.manager(listener)["rds"]["route_config_name"] == way.name
        paths = [self.manager(each)["rds"]["config_source"]["path_config_source"]["path"] for each in found]
        assert paths == ["/tables/baseline~shop~web.json", "/tables/preview~u~x.json"]
        assert file_of(WAY.name) == "baseline~shop~web.json"

    def test_requests_are_forwarded_unchanged(self):
        [listener] = listeners([WAY], "/tables")
        manager = self.manager(listener)
        [router] = manager["http_filters"]
        assert router["typed_config"]["suppress_envoy_headers"] is True
        assert manager["skip_xff_append"] is True
        assert manager["generate_request_id"] is False
        assert manager["server_header_transformation"] == "PASS_THROUGH"

    def test_large_headers_and_old_protocols_are_accepted(self):
        manager = self.manager(listeners([WAY], "/tables")[0])
        assert manager["codec_type"] == "AUTO"
        assert manager["upgrade_configs"] == [{"upgrade_type": "websocket"}]
        assert manager["http_protocol_options"] == {"accept_http_10": True}
        assert manager["max_request_headers_kb"] == 96
        assert (manager["stream_idle_timeout"], manager["request_headers_timeout"]) == ("0s", "30s")

    @staticmethod
    def manager(listener):
        [chain] = listener["filter_chains"]
        [only] = chain["filters"]
        return only["typed_config"]


class TestClusters:
    def test_every_target_port_has_one_cluster(self):
        found = clusters([WAY, EnvoyEntry("preview/u/x", 9091, 8080)], [6001, 7001])
        assert [each["name"] for each in found] == [f"127.0.0.1:{port}" for port in (6001, 7001, 7002, 8080)]
        for each in found:
            [[endpoint]] = [lb["lb_endpoints"] for lb in each["load_assignment"]["endpoints"]]
            address = endpoint["endpoint"]["address"]["socket_address"]
            assert f"{address['address']}:{address['port_value']}" == each["name"]
            assert each["load_assignment"]["cluster_name"] == each["name"]
        assert clusters([]) == []

    def test_concurrent_requests_are_not_limited(self):
        [each] = clusters([], [6001])
        [bounds] = each["circuit_breakers"]["thresholds"]
        assert bounds == dict.fromkeys(
            ("max_connections", "max_pending_requests", "max_requests", "max_retries"), 1 << 20
        )

    def test_clusters_keep_the_protocol_and_close_idle_connections(self):
        [each] = clusters([], [6001])
        [options] = each["typed_extension_protocol_options"].values()
        assert options["use_downstream_protocol_config"] == {"http_protocol_options": {}, "http2_protocol_options": {}}
        assert options["common_http_protocol_options"] == {"idle_timeout": "2s"}
        assert (each["type"], each["connect_timeout"]) == ("STATIC", "1s")


def test_bootstrap_has_a_private_admin_socket_and_large_patterns():
    found = bootstrap(admin="admin.sock", listeners="/l", clusters="/c")
    assert found["admin"] == {"address": {"pipe": {"path": "admin.sock", "mode": 0o600}}}
    [layer] = found["layered_runtime"]["layers"]
    assert layer["static_layer"] == {
        "re2.max_program_size.error_level": 1 << 24,
        "re2.max_program_size.warn_level": 1 << 24,
    }
    sources = found["dynamic_resources"]
    assert [sources[name]["path_config_source"]["path"] for name in ("lds_config", "cds_config")] == ["/l", "/c"]


def test_watched_files_have_a_version_and_resources():
    assert discovery_response(3, ({"name": "a"},)) == {"version_info": "3", "resources": [{"name": "a"}]}
