"""Where a server listens, whose it is, and the key that it takes."""

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
    """Where a server listens, the key it takes, whose it is, and its name for `--server`; empty for the home's own.

    `ca` are the certificates (PEM) that its own is trusted by; empty for the machine's. `by_variable`: whether
    DAYFLY_URL says so.
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
        return "ask whoever runs it" if self.name else otherwise

    def __repr__(self) -> str:
        return f"Address({self.url}, organisation {self.org})"  # without the key: a traceback shows what is printed


class ServerAddress(NamedTuple):
    """An address as a connection is made to it; `host` is as it stands in requests, `ca` as in `Address`."""

    name: str
    port: int
    tls: bool
    host: str
    ca: str = ""


def below(org: str, *path: str) -> str:
    """Return the path of something in an organisation, each part as one encoded segment.

    Raises:
        RefusedError: a part is no name of anything. A proxy could take "." and ".." for the folder and its parent.
    """
    for part in path:
        if part in ("", ".", ".."):
            raise refusal(404, f"there is nothing called {part!r}")
    # An argument that is not text names nothing on the server either, and the server reports that.
    return "/".join(["/api/v2/orgs", *(quote(part, safe="@", errors="replace") for part in (org, *path))])


def find(home: Home | None = None, server: str = "", *, of_home: bool = False) -> Address | None:
    """The server of that name, else that of `DAYFLY_URL`, else the home's own; None if no server runs there.

    With `of_home` what the environment says is passed over.

    Raises:
        DayflyError: nobody has logged in to a server of that name, or the home is not to be trusted.
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
    """Whether it is a server of this machine, or the home's own: to others that key is none, and they could use it."""
    try:
        return urlsplit(url).hostname in _LOOPBACK or url == home.read(home.url).rstrip("/")
    except ValueError:  # no address, as is said where it is connected to
        return False


def place(address: Address) -> ServerAddress:
    """Where to connect to.

    Raises:
        DayflyError: the address or the key is none.
    """
    try:
        parts = urlsplit(address.url)
        name = (parts.hostname or "").encode("idna").decode()
    except ValueError:  # brackets without an end, a name that no DNS takes
        name = ""
    if "@" in address.url:  # not with the address, for that is told wherever the server is
        message = "the server's address has a name or password in it, and none is used"
        raise DayflyError(Exit.USAGE, message, "write http://host:port, and give the key as DAYFLY_API_KEY")
    if not name or parts.scheme not in _PORTS or not name.isprintable() or " " in name:
        raise DayflyError(Exit.USAGE, f"{address.url!r} is not the address of a server", "write http://host:port")
    if parts.path.strip("/") or parts.query or parts.fragment:  # what is there is somebody else, who is sent no key
        raise DayflyError(
            Exit.USAGE, f"{address.url!r} has a path, and no server is below one", "write http://host:port"
        )
    if not address.key.isascii() or not address.key.isprintable():
        advice = "look at DAYFLY_API_KEY or the file key of the home"
        raise DayflyError(Exit.DENIED, "the key contains characters that no key has", advice)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise DayflyError(Exit.USAGE, f"{address.url!r} has no usable port", "write http://host:port")
    written = f"[{name}]" if ":" in name else name
    host = written if port is None else f"{written}:{port}"
    return ServerAddress(name, port or _PORTS[parts.scheme], parts.scheme == "https", host, address.ca)
