"""Targets and ports of endpoints."""

from __future__ import annotations

import re

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.scalars import kube_names, numbers

SCHEMES = ("http", "https", "grpc", "tcp")


def split_target(target: str, keys: Path = ()) -> tuple[str, str, int]:
    """Return `("http", "shop.default.svc", 8080)` for `http://shop.default.svc:8080`.

    Raises:
        SpecError: Another form.
    """
    scheme, colon, rest = target.partition("://")
    host, _, written = rest.rpartition(":")
    good = colon and scheme in SCHEMES and is_host(host)
    if not good or (port := numbers.parse_port(written)) is None:
        problem = f"{quote(target)} is not a target: write <scheme>://<host>:<port> with {', '.join(SCHEMES)}"
        raise SpecError(problem, keys)
    return scheme, host, port


def is_host(text: str) -> bool:
    """Return whether it is a valid host name or IPv4 address. Its parts become parts of requests to an API server."""
    return len(text) <= kube_names.MAX_OBJECT_LENGTH and re.fullmatch(kube_names.HOST, text) is not None


def check_port(port: int, keys: Path = ()) -> None:
    """Refuse a port outside 1 to 65535."""
    if not 0 < port < 1 << 16:
        raise SpecError(f"{port} is not a port: write a number from 1 to 65535", keys)
