"""Where endpoints have their addresses: how an administrator says it, and how people are shown them."""

import pytest

from dayfly.cli import get
from dayfly.cli.exits import CliError
from dayfly.cli.operator import _edge
from dayfly.cli.port import Standing
from dayfly.execute.gateway.preview import Edge

REPORT = {"phase": "open", "ready": True, "reason": "AllDesiredWorkloadsReady", "message": "All is there.", "units": []}


@pytest.mark.parametrize(
    ("domain", "url"),
    [
        ("preview.example.com", "http://a.preview.example.com"),
        ("https://preview.example.com/", "https://a.preview.example.com"),
        ("http://Preview.example.com:8080", "http://a.preview.example.com:8080"),
    ],
)
def test_a_gateway_and_a_domain(domain, url):
    edge = _edge("edges/edge", domain)
    assert isinstance(edge, Edge)
    assert (edge.namespace, edge.gateway) == ("edges", "edge")
    assert edge.url(f"a.{edge.domain}") == url
    assert _edge("", "") is None


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
def test_one_that_can_be_none_is_refused(gateway, domain):
    with pytest.raises(CliError, match="at a Gateway and below a domain"):
        _edge(gateway, domain)


def test_the_address_of_an_endpoint_is_shown_where_the_sandbox_is(capsys):
    status = {"endpoints": [{"name": "site", "url": "https://site.example.com"}, {"name": "none", "url": ""}]}
    get._one(Standing("box", "", "key", {}, REPORT, status), None)
    out = capsys.readouterr().out
    assert "site: https://site.example.com" in out
    assert "none" not in out
