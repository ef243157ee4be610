"""Addresses of endpoints: the options of the operator, and the output for users."""

from types import SimpleNamespace

import pytest

from dayfly.cli.backends import hosts
from dayfly.cli.backends.protocol import RunView
from dayfly.cli.verbs import run
from dayfly.execute.gateway.preview import PreviewGateway, read_edge
from dayfly.spec.errors import SpecError

REPORT = {"phase": "open", "ready": True, "reason": "AllDesiredWorkloadsReady", "message": "All is there.", "units": []}


@pytest.mark.parametrize(
    ("domain", "url"),
    [
        ("preview.example.com", "http://a.preview.example.com"),
        ("https://preview.example.com/", "https://a.preview.example.com"),
        ("http://Preview.example.com:8080", "http://a.preview.example.com:8080"),
    ],
)
def test_preview_options_name_gateway_and_domain(domain, url):
    edge = read_edge("edges/edge", domain)
    assert isinstance(edge, PreviewGateway)
    assert (edge.namespace, edge.gateway) == ("edges", "edge")
    assert edge.url(f"a.{edge.domain}") == url
    assert read_edge("", "") is None


@pytest.mark.parametrize(
    ("gateway", "domain"),
    [
        ("edges/edge", ""),
        ("", "preview.example.com"),
        ("edge", "preview.example.com"),
        ("a/b/c", "preview.example.com"),
        ("edges/edge", "ftp://preview.example.com"),
        ("edges/edge", "https://me@preview.example.com"),
        ("edges/edge", "https://preview.example.com/path"),
        ("edges/edge", "*.example.org"),
        ("edges/edge", "under_score.example.org"),
        ("edges/edge", "x" * 64 + ".example.org"),
        ("edges/edge", "x." * 100 + "org"),
        ("edges/edge", "http://preview.example.com:none"),
    ],
)
def test_malformed_preview_options_are_refused(gateway, domain):
    with pytest.raises(SpecError, match="previews need a Gateway"):
        read_edge(gateway, domain)


def test_get_sandbox_shows_addresses_of_its_endpoints(capsys, monkeypatch):
    status = {"endpoints": [{"name": "site", "url": "https://site.example.com"}, {"name": "none", "url": ""}]}
    host = SimpleNamespace(sandbox=lambda name: RunView(name, "", "key", {}, REPORT, status))
    monkeypatch.setattr(hosts, "find", lambda *_: host)
    assert run(["get", "sandbox", "box"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["site", "https://site.example.com"] in lines
    assert ["none"] in lines
