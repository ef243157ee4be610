"""`dayfly login`: store the address and key of a server, for `--server NAME`."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.commands.key import describe_rights
from dayfly.cli.output import show
from dayfly.client import servers
from dayfly.client.address import Address
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MAX_NAME_LENGTH = 63


@verb("login")
@click.argument("url")
@click.option("--name", help="The name for --server; by default the host name.")
@click.option("--ca", metavar="FILE", help="Trust only these CA certificates (PEM), such as those of a private CA.")
@click.option("--insecure", is_flag=True, help="Send the key unencrypted to a server without TLS.")
def command(url: str, name: str | None, ca: str | None, insecure: bool) -> None:
    """Store a server's address and key, for --server NAME.

    The command prompts for the key, or reads it from standard input, and checks it before storing it.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme != "https" and host not in _LOOPBACK and not insecure:
        message = f"the key would be sent unencrypted to {url}"
        raise DayflyError(Exit.USAGE, message, "use https://HOST, or add --insecure")
    name = name or host
    if not 0 < len(name) <= _MAX_NAME_LENGTH or not name.isprintable() or " " in name:
        raise DayflyError(Exit.USAGE, f"{name!r} is not a valid name for a server", "choose another with --name NAME")
    trusted = _read_certificates(ca) if ca else ""
    key = click.prompt("Key", hide_input=True, err=True) if sys.stdin.isatty() else _read_key()
    address = Address(f"{parts.scheme}://{parts.netloc}", key.strip(), name=name, ca=trusted)
    client = ServerClient(address)
    found = client.request("GET", "/api/v2/orgs", {})
    client.close()
    try:
        org, user = str(found["orgs"][0]["name"]), found["user"]
        rights = describe_rights(user.get("role", ""), user.get("scope", ()))
    except (LookupError, TypeError, AttributeError):
        message = f"{address.url} is not Dayfly: it returns no organisation for this key"
        raise DayflyError(Exit.NO_SERVER, message, "ask the administrator of the server for its address") from None
    servers.put(Home.find(), name, servers.Server(address.url, org, address.key, trusted))
    show.print_message(f'Logged in to {address.url} (organisation "{org}", {rights}); use it with: --server {name}')


def _read_key() -> str:
    """Return the first line of standard input."""
    return sys.stdin.buffer.readline().decode(errors="replace")


def _read_certificates(path: str) -> str:
    """Return the certificates in a file. Later changes of the file have no effect.

    Raises:
        DayflyError: the file contains no certificates.
    """
    import ssl

    try:
        text = Path(path).read_text(encoding="ascii")
        ssl.create_default_context(cadata=text)
    except (UnicodeDecodeError, ssl.SSLError):
        reason = "contains no certificates"
    except OSError as fault:
        reason = (fault.strerror or "cannot be read").lower()
    else:
        return text
    raise DayflyError(Exit.USAGE, f"{path}: {reason}", "name a file with certificates (PEM)")
