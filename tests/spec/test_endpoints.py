"""Targets of endpoints, and messages for invalid ones."""

import pytest

from dayfly.spec.errors import SpecError
from dayfly.spec.routing.endpoints import split_target


def test_targets():
    assert split_target("grpc://a.b.svc:8080") == ("grpc", "a.b.svc", 8080)


@pytest.mark.parametrize(
    "target",
    [
        "",
        "a:80",
        "ftp://a:80",
        "http://a",
        "http://:80",
        "http://a:0",
        "http://a:65536",
        "http://a:x",
        "http://a/b:80",
        "http://u@a:80",
        "http://a:80/x",
        "http://a:b:80",
        "http://a:000000080999",
        "http://a:" + "0" * 8 + "8" + "0" * 5000,
    ],
)
def test_no_targets(target):
    with pytest.raises(SpecError):
        split_target(target)
