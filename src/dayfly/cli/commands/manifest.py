"""`dayfly manifest`: print files as Kubernetes objects for kubectl. It needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.cli import options
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client import files as reading
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec import documents, readme
from dayfly.spec.leak_check import LeakCheck
from dayfly.spec.lifecycle import API_VERSION
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.plugin import Plugin
from dayfly.spec.resource_pool import ResourcePool
from dayfly.spec.route_group import RouteGroup
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from dayfly.spec.documents import TypedDocument


@verb("manifest")
@options.files()
@options.variables_option
@options.output
def command(files: tuple[str, ...], sets: tuple[str, ...], output: str | None) -> None:
    """Print plugins, sandboxes, route groups and hooks from files as objects for `kubectl apply -f -`.

    Variables are filled in and scripts are included from their files. You choose the namespace with kubectl.
    """
    wishes = reading.load(files, sets, show.print_message)
    items = [_object(each.content) for each in wishes if not isinstance(each.content, Workload)]
    if not items:
        message = f"{', '.join(files)}: contains nothing for a cluster"
        raise DayflyError(Exit.USAGE, message, "write a plugin, sandbox or hook")
    for wished in wishes:
        if isinstance(wished.content, Workload):
            show.print_message(f"left out: the baseline {wished.name}, because a cluster has its own Deployments")
    show.emit({"apiVersion": "v1", "kind": "List", "items": items}, output or "yaml")


def _object(wish: TypedDocument) -> dict[str, Any]:
    metadata: dict[str, Any]
    kind, metadata, spec = "Sandbox", {"name": wish.name}, documents.export(wish)["spec"]
    if isinstance(wish, Plugin):
        kind, spec = "ResourcePlugin", {"name": wish.wire_name, **spec}
        metadata = {"name": documents.object_name(wish)}
        if wish.readme:
            metadata |= {"annotations": {readme.ANNOTATION: wish.readme}}
    elif isinstance(wish, LifecycleHook | RouteGroup | ResourcePool | LeakCheck):
        kind = type(wish).__name__
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
