"""`dayfly state`: read stored Terraform states directly from a home or a cluster, with the rights of the user."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Protocol

import click

from dayfly.cli import options
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.cli.backends.cluster import ClusterBackend
    from dayfly.cli.backends.protocol import Backend
    from dayfly.execute.state.access import StateKeys
    from dayfly.execute.state.head import DamagedError, Head, Version
    from dayfly.execute.state.service import StateOwner

_SYSTEM = "dayfly-system"
_HEADER = ("SANDBOX", "RESOURCE", "VERSION", "WRITTEN", "BY", "BYTES")


class StateSource(Protocol):
    """The states of a home or a cluster."""

    def heads(self) -> Mapping[StateOwner, Head | DamagedError]:
        """Return all states, also of abandoned sandboxes. A damaged state is an error instead."""

    def keys(self) -> StateKeys:
        """Return the keys with which the states are encrypted."""

    def chunks(self, place: StateOwner, version: Version) -> list[bytes]:
        """Return the chunks of a version."""


@click.group("state", cls=NounGroup)
def command() -> None:
    """List the Terraform states of resources, or print one.

    They are read directly from this home, or with --context from the cluster. There you need the right to read the
    Secrets in dayfly-system.
    """


@command.command("list")
@click.argument("sandbox", required=False, default="")
@options.cluster_options
@options.list_output
def list_(sandbox: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """List the stored versions of all states, or those of SANDBOX. The last version of each state is the newest."""
    every = open_store(context, namespace).heads()
    found = [
        (head, version)
        for head in _readable(every).values()
        if sandbox in ("", head.sandbox) and namespace in (None, head.namespace)
        for version in head.versions
    ]
    if output:
        show.emit([_as_data(head, version) for head, version in found], output)
    elif found:
        show.print_table(_HEADER, [_row(head, version) for head, version in found])
    # The owner of a damaged state is unknown: it may be one of the requested states.
    if damaged := _damage(every):
        raise DayflyError(Exit.FAILED, damaged)
    if not found and not output:
        show.print_message(f"There are no states{f' of sandbox {sandbox}' if sandbox else ''}.")


@command.command("show")
@click.argument("sandbox")
@click.argument("resource")
@click.option("--version", "number", type=click.IntRange(min=1), help="Print this version, not the newest.")
@options.cluster_options
def show_(sandbox: str, resource: str, number: int | None, context: str | None, namespace: str | None) -> None:
    """Print a state to standard output, as `terraform state pull` does. It may contain secrets."""
    from dayfly.execute.state.seal import SpoiledError, unseal

    states = open_store(context, namespace)
    every = states.heads()
    named = {
        place: head
        for place, head in _readable(every).items()
        if (head.sandbox, head.resource) == (sandbox, resource) and namespace in (None, head.namespace)
    }
    if not named and (damaged := _damage(every)):
        raise DayflyError(Exit.FAILED, damaged)
    if not named:
        raise DayflyError(Exit.NOT_FOUND, f"no state of {sandbox}/{resource} is stored", "see: dayfly state list")
    # An abandoned sandbox of the same name may have left another state.
    place, head = max(named.items(), key=lambda each: max((version.at for version in each[1].versions), default=0))
    found = head.newest if number is None else next((v for v in head.versions if v.number == number and v.blob), None)
    if found is None:
        what = f"version {number}" if number else "content"
        raise DayflyError(Exit.NOT_FOUND, f"the state of {sandbox}/{resource} has no {what}", "see: dayfly state list")
    try:
        show.print_bytes(unseal(states.keys(), place, found, states.chunks(place, found)))
    except SpoiledError as error:
        raise DayflyError(Exit.FAILED, str(error)) from None
    show.flush_terminal()


def resources(states: StateSource, sandbox: str, namespace: str | None) -> list[str]:
    """Return the resources of a sandbox that have a readable state.

    Raises:
        DayflyError: the user may not read states.
    """
    every = _readable(states.heads()).values()
    mine = [head for head in every if head.sandbox == sandbox and namespace in (None, head.namespace) and head.newest]
    return sorted(head.resource for head in mine)


def _readable(found: Mapping[StateOwner, Head | DamagedError]) -> dict[StateOwner, Head]:
    return {place: head for place, head in found.items() if not isinstance(head, Exception)}


def _damage(found: Mapping[StateOwner, Head | DamagedError]) -> str:
    return "; ".join(str(head) for head in found.values() if isinstance(head, Exception))


def open_store(context: str | None, namespace: str | None = None) -> StateSource:
    """Return the states of this home, or of the cluster of a context.

    Raises:
        DayflyError: there is a namespace without a context.
    """
    from dayfly.cli.backends import hosts

    if context is None:
        if namespace is not None:
            raise hosts.namespace_without_cluster()
        return _HomeStore(Home.find())
    return store_of(hosts.find(context, None))


def store_of(host: Backend) -> StateSource:
    """Return the states of a backend."""
    from dayfly.cli.backends import hosts

    return _HomeStore(Home.find()) if isinstance(host, hosts.ServerBackend) else _ClusterStore(host)


class _HomeStore:
    def __init__(self, home: Home) -> None:
        home.check()
        self._home = home.path

    def heads(self) -> Mapping[StateOwner, Head | DamagedError]:
        from dayfly.embedded import states

        return states.heads(self._home)

    def keys(self) -> StateKeys:
        from dayfly.embedded import states

        try:
            return states.keys(self._home, make_them=False)
        except (FileNotFoundError, ValueError) as error:
            raise DayflyError(Exit.FAILED, f"the key of the states cannot be read: {error}") from None

    def chunks(self, place: StateOwner, version: Version) -> list[bytes]:
        from dayfly.embedded import states

        return states.chunks(self._home, place, version)


class _ClusterStore:
    def __init__(self, cluster: Any) -> None:
        self._cluster: ClusterBackend = cluster

    def heads(self) -> Mapping[StateOwner, Head | DamagedError]:
        from dayfly.operator.states import state_secrets

        return self._cluster.call(lambda client: state_secrets.heads(client, _SYSTEM))

    def keys(self) -> StateKeys:
        from dayfly.operator.states import authority

        try:
            return self._cluster.call(lambda client: authority.load(client, _SYSTEM, create=False)).keys
        except authority.BrokenAuthorityError as error:
            raise DayflyError(Exit.FAILED, str(error)) from None

    def chunks(self, place: StateOwner, version: Version) -> list[bytes]:
        from dayfly.operator.states import state_secrets

        return self._cluster.call(lambda client: state_secrets.chunks(client, _SYSTEM, place, version))


def _row(head: Head, version: Version) -> tuple[str, ...]:
    size = str(version.size) if version.blob else "deleted"
    return head.sandbox, head.resource, str(version.number), _written_at(version), str(version.holder), size


def _as_data(head: Head, version: Version) -> dict[str, Any]:
    return {
        "name": f"{head.sandbox}/{head.resource}",
        "sandbox": head.sandbox,
        "resource": head.resource,
        "version": version.number,
        "writtenAt": _written_at(version),
        "writtenBy": str(version.holder),
        "bytes": version.size if version.blob else None,
    }


def _written_at(version: Version) -> str:
    return dt.datetime.fromtimestamp(version.at / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
