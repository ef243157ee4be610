"""`dayfly state`: the Terraform states that are kept, read where they lie with the reader's own rights; no server's."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Protocol

import click

from dayfly.cli import options
from dayfly.cli.options import Noun
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


class Kept(Protocol):
    """The states of a home or a cluster."""

    def heads(self) -> Mapping[StateOwner, Head | DamagedError]:
        """All that there are, also those of sandboxes that were abandoned; why one cannot be read, in its place."""

    def keys(self) -> StateKeys:
        """What they were sealed with."""

    def chunks(self, place: StateOwner, version: Version) -> list[bytes]:
        """The chunks of a version."""


@click.group("state", cls=Noun)
def command() -> None:
    """List the Terraform states of resources, or print one.

    They are read directly from this home, or with --context from the cluster. There you need the right to read the
    Secrets in dayfly-system.
    """


@command.command("list")
@click.argument("sandbox", required=False, default="")
@options.within
def list_(sandbox: str, context: str | None, namespace: str | None) -> None:
    """List the versions that are kept of all states, or of those of SANDBOX; the last one of each is the newest."""
    rows, every = [], kept(context, namespace).heads()
    for head in _whole(every).values():
        if sandbox in ("", head.sandbox) and namespace in (None, head.namespace):
            rows += [_row(head, version) for version in head.versions]
    if rows:
        show.table(_HEADER, rows)
    # Whose a damaged one is cannot be known, so it may be of those that are asked for.
    if damaged := _damaged(every):
        raise DayflyError(Exit.FAILED, damaged)
    if not rows:
        raise DayflyError(Exit.NOT_FOUND, f"no state is kept{f' for {sandbox}' if sandbox else ''}")


@command.command("show")
@click.argument("sandbox")
@click.argument("resource")
@click.option("--version", "number", type=click.IntRange(min=1), help="Print this version, not the newest.")
@options.within
def show_(sandbox: str, resource: str, number: int | None, context: str | None, namespace: str | None) -> None:
    """Print a state to standard output, as `terraform state pull` does. It may contain secrets."""
    from dayfly.execute.state.seal import SpoiledError, unseal

    states = kept(context, namespace)
    every = states.heads()
    named = {
        place: head
        for place, head in _whole(every).items()
        if (head.sandbox, head.resource) == (sandbox, resource) and namespace in (None, head.namespace)
    }
    if not named and (damaged := _damaged(every)):
        raise DayflyError(Exit.FAILED, damaged)
    if not named:
        raise DayflyError(Exit.NOT_FOUND, f"no state of {sandbox}/{resource} is kept", "see: dayfly state list")
    # A sandbox of that name that was abandoned may have left another one.
    place, head = max(named.items(), key=lambda each: max((version.at for version in each[1].versions), default=0))
    found = head.newest if number is None else next((v for v in head.versions if v.number == number and v.blob), None)
    if found is None:
        what = f"version {number}" if number else "content"
        raise DayflyError(Exit.NOT_FOUND, f"the state of {sandbox}/{resource} has no {what}", "see: dayfly state list")
    try:
        show.put(unseal(states.keys(), place, found, states.chunks(place, found)))
    except SpoiledError as error:
        raise DayflyError(Exit.FAILED, str(error)) from None
    show.finish()


def resources(states: Kept, sandbox: str, namespace: str | None) -> list[str]:
    """The resources of a sandbox of which there is a state to be read.

    Raises:
        DayflyError: that may not be looked at.
    """
    every = _whole(states.heads()).values()
    mine = [head for head in every if head.sandbox == sandbox and namespace in (None, head.namespace) and head.newest]
    return sorted(head.resource for head in mine)


def _whole(found: Mapping[StateOwner, Head | DamagedError]) -> dict[StateOwner, Head]:
    return {place: head for place, head in found.items() if not isinstance(head, Exception)}


def _damaged(found: Mapping[StateOwner, Head | DamagedError]) -> str:
    return "; ".join(str(head) for head in found.values() if isinstance(head, Exception))


def kept(context: str | None, namespace: str | None = None) -> Kept:
    """The states of this home; with a context, of that cluster.

    Raises:
        DayflyError: there is a namespace, and no cluster that it is part of.
    """
    from dayfly.cli.backends import hosts

    if context is None:
        if namespace is not None:
            raise hosts.no_cluster()
        return _OfHome(Home.find())
    return kept_by(hosts.find(context, None))


def kept_by(host: Backend) -> Kept:
    """The states of a host that was found already."""
    from dayfly.cli.backends import hosts

    return _OfHome(Home.find()) if isinstance(host, hosts.Served) else _OfCluster(host)


class _OfHome:
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


class _OfCluster:
    def __init__(self, cluster: Any) -> None:
        self._cluster: ClusterBackend = cluster

    def heads(self) -> Mapping[StateOwner, Head | DamagedError]:
        from dayfly.operator.states import state_secrets

        return self._cluster.ask(lambda client: state_secrets.heads(client, _SYSTEM))

    def keys(self) -> StateKeys:
        from dayfly.operator.states import authority

        try:
            return self._cluster.ask(lambda client: authority.load(client, _SYSTEM, create=False)).keys
        except authority.BrokenAuthorityError as error:
            raise DayflyError(Exit.FAILED, str(error)) from None

    def chunks(self, place: StateOwner, version: Version) -> list[bytes]:
        from dayfly.operator.states import state_secrets

        return self._cluster.ask(lambda client: state_secrets.chunks(client, _SYSTEM, place, version))


def _row(head: Head, version: Version) -> tuple[str, ...]:
    at = dt.datetime.fromtimestamp(version.at / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    size = str(version.size) if version.blob else "deleted"
    return head.sandbox, head.resource, str(version.number), at, str(version.holder), size
