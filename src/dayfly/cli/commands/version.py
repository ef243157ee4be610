"""`dayfly version`: print the versions of the client, the server, its clusters and the API."""

from __future__ import annotations

from typing import Any

from dayfly import __version__
from dayfly.cli import options
from dayfly.cli.backends import target_server
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError

API = "v2"
"""The version of the REST API that this client uses."""


@verb("version")
@options.server
@options.output
def command(output: str | None) -> None:
    """Show the versions of this program, of the server, of the operators that connect to it, and of the REST API."""
    found: dict[str, Any] = {"client": __version__, "api": API}
    if address := target_server.find():
        client = target_server.ServerClient(address)
        try:
            found["server"] = client.health()["version"]
            found["operators"] = operators(client)
        except DayflyError as fault:
            found["server"] = f"not reachable: {fault.message}"
    if output:
        show.emit(found, output)
        return
    clusters = (f"{name}: {version}" for name, version in found.get("operators", {}).items())
    show.print_facts(
        [
            ("Client", found["client"]),
            ("API", found["api"]),
            ("Server", found.get("server", "none runs")),
            ("Operators", ", ".join(clusters)),
        ]
    )


def operators(client: target_server.ServerClient) -> dict[str, str]:
    """Return the version of the operator of each cluster that is connected; none if the key may not list clusters."""
    try:
        every: list[Any] = client.get("clusters")
    except DayflyError:
        return {}
    return {each["name"]: each["operator"]["version"] for each in every if each["operator"]["version"]}
