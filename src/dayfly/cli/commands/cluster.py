"""`dayfly cluster`: the clusters of an organisation, and the tokens of their agents."""

from __future__ import annotations

import shlex

import click

from dayfly.cli import options
from dayfly.cli.backends.lookup import see_if_not_found
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit


@click.group("cluster", cls=NounGroup)
def command() -> None:
    """Add, list and remove clusters, and the tokens of their agents."""


@command.command("add")
@options.server
@click.argument("name")
def add(name: str) -> None:
    """Add a cluster, so that its agent can connect. An existing cluster is not changed."""
    ServerClient.open().put("clusters", name, body={})
    show.print_message(
        f'Cluster "{name}" exists. Its agent needs a token: dayfly cluster token create {shlex.quote(name)}'
    )


@command.command("list")
@options.server
@options.list_output
def list_(output: str | None) -> None:
    """List all clusters."""
    found = ServerClient.open().get("clusters")
    if output:
        show.emit(found, output)
    elif found:
        rows = [(each["name"], each["createdAt"], each["operator"]["version"] or "-") for each in found]
        show.print_table(("NAME", "CREATED", "OPERATOR"), rows)
    else:
        show.print_message("There are no clusters; add one with: dayfly cluster add NAME")


@command.command("remove")
@options.server
@click.argument("name")
def remove(name: str) -> None:
    """Remove a cluster without sandboxes and route groups, and its tokens."""
    ServerClient.open().delete("clusters", name)
    show.print_message(f'Removed cluster "{name}".')


@command.command("thaw")
@options.server
@click.argument("name")
@click.option("--yes", is_flag=True, help="Continue from the cluster's present state.")
@options.output
def thaw(name: str, yes: bool, output: str | None) -> None:
    """Show both sides of a cluster that was frozen after a restore; with --yes, continue from its present state.

    Older sandboxes in the server's database count as started, and are never started again. Sandboxes that only the
    cluster knows stay there until their time to live is over.
    """
    client = ServerClient.open()
    found = client.get("clusters", name, "thaw")
    if yes and found["frozen"]:
        if not found["compared"]:
            advice = "it will when it connects: then compare both sides with: dayfly cluster thaw"
            raise DayflyError(
                Exit.FAILED, f'the cluster "{name}" has not reported its sandboxes yet', f"{advice} {shlex.quote(name)}"
            )
        client.post("clusters", name, "thaw", body={})
    if output:
        show.emit(client.get("clusters", name, "thaw") if yes else found, output)
    elif not found["frozen"]:
        show.print_message(f'Cluster "{name}" is not frozen.')
    elif not found["compared"]:
        show.print_message(f'Cluster "{name}" is frozen since {found["since"]}: {found["why"]}.')
        show.print_message("It has not reported its sandboxes yet, and will when it connects: try again in a moment.")
    elif yes:
        show.print_message(f'Cluster "{name}" continues from its present state.')
    else:
        show.print_message(f'Cluster "{name}" is frozen since {found["since"]}: {found["why"]}.')
        for key, text in (("onlyInCluster", "Only in the cluster (UIDs)"), ("onlyHere", "Only on the server")):
            show.print_message(f"{text}: {', '.join(found[key]) or 'nothing'}")
        show.print_message(f"Continue from its present state with: dayfly cluster thaw {shlex.quote(name)} --yes")


@command.group("token")
def token() -> None:
    """Create, list and delete the tokens with which a cluster's agent connects."""


@token.command("create")
@options.server
@click.argument("cluster")
@options.output
def create(cluster: str, output: str | None) -> None:
    """Create a token and print it. It is shown only this once."""
    made = ServerClient.open().post("clusters", cluster, "tokens", body={})
    if output:
        show.emit(made, output)
        return
    show.print_message(f'Created the token {made["id"]} of cluster "{cluster}". It cannot be shown again:')
    show.print_line(made["token"])


@token.command("list")
@options.server
@click.argument("cluster")
@options.list_output
def list_tokens(cluster: str, output: str | None) -> None:
    """List a cluster's tokens, without their secrets."""
    found = ServerClient.open().get("clusters", cluster, "tokens")
    if output:
        show.emit(found, output)
    elif found:
        rows = []
        for each in found:
            status = each["status"]
            at, ip = status.get("lastConnectedAt", "never"), status.get("lastConnectedIp", "-")
            rows.append((each["id"], each["createdAt"], at, ip))
        show.print_table(("ID", "CREATED", "LAST CONNECTED", "FROM"), rows)
    else:
        show.print_message(f"There are no tokens; create one with: dayfly cluster token create {shlex.quote(cluster)}")


@token.command("delete")
@options.server
@click.argument("cluster")
@click.argument("id_", metavar="ID")
def delete(cluster: str, id_: str) -> None:
    """Revoke a token. The agent that uses it is disconnected."""
    client = ServerClient.open()
    with see_if_not_found(f"dayfly cluster token list {cluster}{client.flags}"):
        client.delete("clusters", cluster, "tokens", id_)
    show.print_message(f"Revoked the token {id_}.")
