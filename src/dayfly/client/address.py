"""Addresses of servers, with the keys and organisations for them."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from dayfly.client.errors import DayflyError, Exit, refusal
from dayfly.client.home import Home

ORGANISATION = "local"
START = "start one with: dayfly up"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """A server: its URL, the key and organisation to use, and its name for `--server` (empty for the home's server).

    `ca` holds the certificates (PEM) to trust; empty for the system's. `by_variable`: whether DAYFLY_URL set the
    address.
    """

    url: str
    key: str
    org: str = ORGANISATION
    name: str = ""
    ca: str = ""
    by_variable: bool = False

    def advice(self, otherwise: str, *, is_other: bool = False) -> str:
        """Return what to do about a server that cannot be used.

        Args:
            otherwise: The advice for the server of the home.
            is_other: Whether another program answers at the address.
        """
        if self.by_variable:
            what = "DAYFLY_URL points to another program" if is_other else "DAYFLY_URL points there"
            return f"{what}: correct it, or unset it to use the server of your home"
        return "ask its administrator" if self.name else otherwise

    def __repr__(self) -> str:
        return f"Address({self.url}, organisation {self.org})"  # without the key, as tracebacks print it


class ServerAddress(NamedTuple):
    """A host and port to connect to; `host` is the value of the Host header, `ca` as in `Address`."""

    name: str
    port: int
    tls: bool
    host: str
    ca: str = ""


def org_path(org: str, *path: str) -> str:
    """Return the path of something in an organisation, each part as one encoded segment.

    Raises:
        RefusedError: a part cannot be a name. A proxy could resolve "." and ".." as path segments.
    """
    for part in path:
        if part in ("", ".", ".."):
            raise refusal(404, f"there is nothing called {part!r}")
    # An argument that is not text names nothing on the server either, and the server reports that.
    return "/".join(["/api/v2/orgs", *(quote(part, safe="@", errors="replace") for part in (org, *path))])


def find(home: Home | None = None, server: str = "", *, of_home: bool = False) -> Address | None:
    """Return the server `server`, otherwise that of `DAYFLY_URL`, otherwise the home's; None if no server runs there.

    With `of_home` the environment is ignored.

    Raises:
        DayflyError: there was no `dayfly login` with that name, or the home is not trusted.
    """
    home = home or Home.find()
    if server:
        from dayfly.client import servers

        known = servers.get(home, server)
        return Address(known.url, known.key, known.org, server, known.ca)
    said = {} if of_home else os.environ
    url = (said.get("DAYFLY_URL") or home.read(home.url)).rstrip("/")
    if not url:
        return None
    key = said.get("DAYFLY_API_KEY") or (home.read(home.key) if _may_have_the_key_of(home, url) else "")
    return Address(url, key, said.get("DAYFLY_ORG") or ORGANISATION, by_variable=bool(said.get("DAYFLY_URL")))


def _may_have_the_key_of(home: Home, url: str) -> bool:
    """Return whether the server is on this machine or the home's own. Another one could misuse the home's key."""
    try:
        return urlsplit(url).hostname in _LOOPBACK or url == home.read(home.url).rstrip("/")
    except ValueError:  # not an address; the connection reports that
        return False


def resolve(address: Address) -> ServerAddress:
    """Return the host and port to connect to.

    Raises:
        DayflyError: the address or the key is invalid.
    """
    try:
        parts = urlsplit(address.url)
        host = parts.hostname or ""
        # The codec is imported when it is used, and takes longer than the rest of this function.
        name = host if host in _LOOPBACK else host.encode("idna").decode()
    except ValueError:  # unclosed brackets, or a name that DNS does not allow
        name = ""
    if "@" in address.url:  # the message has no URL, as it contains a password
        message = "the server's address contains a user name or password, which Dayfly does not support"
        raise DayflyError(Exit.USAGE, message, "write http://host:port, and give the key as DAYFLY_API_KEY")
    if not name or parts.scheme not in _PORTS or not name.isprintable() or " " in name:
        raise DayflyError(Exit.USAGE, f"{address.url!r} is not the address of a server", "write http://host:port")
    if parts.path.strip("/") or parts.query or parts.fragment:  # the path may be another service; it gets no key
        raise DayflyError(Exit.USAGE, f"{address.url!r} has a path, but a server has none", "write http://host:port")
    if not address.key.isascii() or not address.key.isprintable():
        advice = "check DAYFLY_API_KEY or the file key of the home"
        raise DayflyError(Exit.DENIED, "the key contains invalid characters", advice)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise DayflyError(Exit.USAGE, f"{address.url!r} has no usable port", "write http://host:port")
    written = f"[{name}]" if ":" in name else name
    host = written if port is None else f"{written}:{port}"
    return ServerAddress(name, port or _PORTS[parts.scheme], parts.scheme == "https", host, address.ca)
