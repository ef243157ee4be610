"""Completions for shells: names that the chosen server or cluster has.

A completion cannot report an error, so after an error or a timeout it offers nothing.
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

_TIMEOUT_S = 2.0
# Shells split candidates at other characters, and terminals may interpret them.
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._/-]*")


@add_completion_class
class _Bash(BashComplete):
    """Click's completion for bash, which also completes `--file=PATH`: bash splits that into three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [each for each in args if each != "="], "" if incomplete == "=" else incomplete


def _completion(find: Callable[[click.Context], Iterable[str]]) -> Offer:
    @functools.wraps(find)
    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:  # noqa: ARG001 # click's signature
        try:
            found = list(find(ctx))
        except Exception:  # noqa: BLE001 # no error can be reported here
            return []
        names = dict.fromkeys(name for name in found if name.startswith(incomplete) and _SAFE_NAME.fullmatch(name))
        return [CompletionItem(name) for name in sorted(names)]

    return offer


def file_paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:  # noqa: ARG001 # click's signature
    """Let the shell complete a file."""
    return [CompletionItem(incomplete, type="file")]


@_completion
def servers(ctx: click.Context) -> Iterable[str]:  # noqa: ARG001 # the protocol of completions
    """Complete servers stored by `dayfly login`."""
    from dayfly.client import servers as known
    from dayfly.client.home import Home

    return known.names(Home.find())


@_completion
def sandboxes(ctx: click.Context) -> Iterable[str]:
    """Complete sandboxes."""
    return [one["name"] for one in _fetch(ctx, "sandboxes")]


@_completion
def routegroups(ctx: click.Context) -> Iterable[str]:
    """Complete route groups."""
    return [one["name"] for one in _fetch(ctx, "routegroups")]


@_completion
def pools(ctx: click.Context) -> Iterable[str]:
    """Complete pools."""
    return [one["name"] for one in _fetch(ctx, "resourcepools")]


@_completion
def subjects(ctx: click.Context) -> Iterable[str]:
    """Complete sandboxes, `routegroup/NAME` and `pool/NAME`, as `why` and `logs` take them."""
    found = [one["name"] for one in _fetch(ctx, "sandboxes")]
    with contextlib.suppress(Exception):  # older servers have no route groups
        found += [subject.group_subject(one["name"]) for one in _fetch(ctx, "routegroups")]
        if _context(ctx) is None:
            found += [subject.pool_subject(one["name"]) for one in _fetch(ctx, "resourcepools")]
    return found


@_completion
def plugins(ctx: click.Context) -> Iterable[str]:
    """Complete plugins without a version: some shells split words at @."""
    return [one["name"].partition("@")[0] for one in _fetch(ctx, "resource-plugins")]


@_completion
def resources(ctx: click.Context) -> Iterable[str]:
    """Complete the second argument of `logs`: resources, hooks and forks of the sandbox."""
    return [unit.get("resource") or unit["id"].rpartition("/")[2] for unit in _units(ctx)]


@_completion
def steps(ctx: click.Context) -> Iterable[str]:
    """Complete the steps of the resource on the command line."""
    return [unit["name"] for unit in _units(ctx) if unit.get("resource") == ctx.params.get("resource")]


@_completion
def units(ctx: click.Context) -> Iterable[str]:
    """Complete the units of the sandbox on the command line."""
    return [unit["id"] for unit in _units(ctx)]


@_completion
def names_of_kind(ctx: click.Context) -> Iterable[str]:
    """Complete objects of the kind on the command line of `get`."""
    if str(ctx.params.get("kind", "")) in ("rg", "dfg", "routegroup", "routegroups"):
        return [one["name"] for one in _fetch(ctx, "routegroups")]
    if str(ctx.params.get("kind", "")) in ("pool", "pools", "resourcepool", "resourcepools"):
        return [one["name"] for one in _fetch(ctx, "resourcepools")]
    if str(ctx.params.get("kind", "")).startswith(("r", "dfr")):
        return [each["name"] for one in _fetch(ctx, "sandboxes") for each in one["spec"].get("resources") or ()]
    return [one["name"] for one in _fetch(ctx, "sandboxes")]


@_completion
def kinds(ctx: click.Context) -> Iterable[str]:  # noqa: ARG001 # the protocol of completions
    """Complete the kinds that `get` shows."""
    return ["sandboxes", "sandbox", "resources", "parents", "routegroups", "routegroup", "pools", "pool"]


@_completion
def contexts(ctx: click.Context) -> Iterable[str]:  # noqa: ARG001 # the protocol of completions
    """Complete the contexts of the kubeconfig."""
    import yaml

    for path in os.environ.get("KUBECONFIG", os.path.expanduser("~/.kube/config")).split(os.pathsep):  # noqa: PTH111 # Path.expanduser raises where there is no home
        if os.path.isfile(path):  # noqa: PTH113 # as above
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 # as above
                yield from (each["name"] for each in yaml.safe_load(file).get("contexts") or ())


def _units(ctx: click.Context) -> Iterable[Any]:
    name = ctx.params["sandbox"]
    if _context(ctx) is None:
        return _fetch(ctx, *subject.path(name), "report").get("units") or ()
    return [unit for one in _fetch(ctx, "sandboxes") if one["name"] == name for unit in one["units"]]


def _fetch(ctx: click.Context, *path: str) -> Any:
    """Return the JSON of a path from the server, or the sandboxes or route groups of the cluster."""
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
    return ServerClient(address, timeout=_TIMEOUT_S).get(*path) if address else []


def _context(ctx: click.Context) -> str | None:
    context: str | None = ctx.params.get("context")
    return context
