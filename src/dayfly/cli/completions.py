"""What a shell is offered behind Tab: names of what is there, asked of the server or the cluster that is meant.

Nobody can be told anything here: what cannot be had in a moment is not offered, and that is all.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from typing import TYPE_CHECKING, Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from dayfly.client import subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]

# Whoever waits has pressed a key.
_PATIENCE_S = 2.0
# A shell splits what it is offered, and a terminal shows it.
_OFFERED = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._/-]*")


@add_completion_class
class _Bash(BashComplete):
    """As click's, also for `--file=PATH`, which bash cuts into three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [each for each in args if each != "="], "" if incomplete == "=" else incomplete


def _offering(find: Callable[[click.Context], Iterable[str]]) -> Offer:
    @functools.wraps(find)
    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:  # noqa: ARG001 # click's signature
        try:
            found = list(find(ctx))
        except Exception:  # noqa: BLE001 # see above
            return []
        names = dict.fromkeys(name for name in found if name.startswith(incomplete) and _OFFERED.fullmatch(name))
        return [CompletionItem(name) for name in sorted(names)]

    return offer


def a_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:  # noqa: ARG001 # click's signature
    """The shell's own files."""
    return [CompletionItem(incomplete, type="file")]


@_offering
def servers(ctx: click.Context) -> Iterable[str]:  # noqa: ARG001 # all of the home
    """Names of servers that somebody has logged in to."""
    from dayfly.client import servers as known
    from dayfly.client.home import Home

    return known.names(Home.find())


@_offering
def sandboxes(ctx: click.Context) -> Iterable[str]:
    """Names of sandboxes."""
    return [one["name"] for one in _ask(ctx, "sandboxes")]


@_offering
def routegroups(ctx: click.Context) -> Iterable[str]:
    """Names of route groups."""
    return [one["name"] for one in _ask(ctx, "routegroups")]


@_offering
def subjects(ctx: click.Context) -> Iterable[str]:
    """What `why` and its like are about: names of sandboxes, and `routegroup/NAME`."""
    found = [one["name"] for one in _ask(ctx, "sandboxes")]
    with contextlib.suppress(Exception):  # an older server has none
        found += [subject.group(one["name"]) for one in _ask(ctx, "routegroups")]
    return found


@_offering
def plugins(ctx: click.Context) -> Iterable[str]:
    """Names of plugins, without a version: some shells cut a word at its @."""
    return [one["name"].partition("@")[0] for one in _ask(ctx, "resource-plugins")]


@_offering
def resources(ctx: click.Context) -> Iterable[str]:
    """What may stand behind a sandbox for `logs`: its resources, hooks and forks."""
    return [unit.get("resource") or unit["id"].rpartition("/")[2] for unit in _units(ctx)]


@_offering
def steps(ctx: click.Context) -> Iterable[str]:
    """The steps of the resource that was named."""
    return [unit["name"] for unit in _units(ctx) if unit.get("resource") == ctx.params.get("resource")]


@_offering
def units(ctx: click.Context) -> Iterable[str]:
    """The units of the sandbox that was named."""
    return [unit["id"] for unit in _units(ctx)]


@_offering
def of_kind(ctx: click.Context) -> Iterable[str]:
    """Names of the kind that was named to `get`."""
    if str(ctx.params.get("kind", "")) in ("rg", "dfg", "routegroup", "routegroups"):
        return [one["name"] for one in _ask(ctx, "routegroups")]
    if str(ctx.params.get("kind", "")).startswith(("r", "dfr")):
        return [each["name"] for one in _ask(ctx, "sandboxes") for each in one["spec"].get("resources") or ()]
    return [one["name"] for one in _ask(ctx, "sandboxes")]


@_offering
def kinds(ctx: click.Context) -> Iterable[str]:  # noqa: ARG001 # one of several
    """What `get` shows."""
    return ["sandboxes", "sandbox", "resources", "routegroups", "routegroup"]


@_offering
def contexts(ctx: click.Context) -> Iterable[str]:  # noqa: ARG001 # one of several
    """The contexts of the kubeconfig."""
    import yaml

    for path in os.environ.get("KUBECONFIG", os.path.expanduser("~/.kube/config")).split(os.pathsep):  # noqa: PTH111 # Path.expanduser raises where there is no home
        if os.path.isfile(path):  # noqa: PTH113 # as above
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 # as above
                yield from (each["name"] for each in yaml.safe_load(file).get("contexts") or ())


def _units(ctx: click.Context) -> Iterable[Any]:
    name = ctx.params["sandbox"]
    if _context(ctx) is None:
        return _ask(ctx, *subject.at(name), "report").get("units") or ()
    return [unit for one in _ask(ctx, "sandboxes") if one["name"] == name for unit in one["units"]]


def _ask(ctx: click.Context, *path: str) -> Any:
    """What the home's server, or of sandboxes the cluster, says."""
    from dayfly.cli.backends.target_server import ServerClient, find

    if (context := _context(ctx)) is not None:
        from dayfly.cli.backends.cluster import ClusterBackend

        cluster = ClusterBackend.connect(context, ctx.params.get("namespace"))
        try:
            found = cluster.groups() if path[0] == "routegroups" else cluster.sandboxes()
        finally:
            cluster.close()
        return [{"name": each.name, "spec": each.spec, "units": each.report["units"]} for each in found]
    address = find()
    return ServerClient(address, timeout=_PATIENCE_S).get(*path) if address else []


def _context(ctx: click.Context) -> str | None:
    context: str | None = ctx.params.get("context")
    return context
