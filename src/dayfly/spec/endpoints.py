"""Where a sandbox answers: targets and ports, as they are written."""

from __future__ import annotations

from dayfly.spec.errors import Path, SpecError, quote

SCHEMES = ("http", "https", "grpc", "tcp")


def split_target(target: str, keys: Path = ()) -> tuple[str, str, int]:
    """`http://shop.default.svc:8080` -> `("http", "shop.default.svc", 8080)`.

    Raises:
        SpecError: another form.
    """
    scheme, colon, rest = target.partition("://")
    host, _, port = rest.rpartition(":")
    good = colon and scheme in SCHEMES and host and not set(host) & set("/ @?#:")
    if not good or not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        problem = f"{quote(target)} is not a target: write <scheme>://<host>:<port> with {', '.join(SCHEMES)}"
        raise SpecError(problem, keys)
    return scheme, host, int(port)


def check_port(port: int, keys: Path = ()) -> None:
    """Refuse a port outside 1 to 65535."""
    if not 0 < port < 1 << 16:
        raise SpecError(f"{port} is not a port: write a number from 1 to 65535", keys)
