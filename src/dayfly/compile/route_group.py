"""A route group's hooks to a sealed-ready document: a run has it alone, and no forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.compile import compiler, routes, units
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import API_VERSION, Lifecycle, Target
from dayfly.spec.plugin import Runner
from dayfly.spec.route_group import GROUP_VARIABLES, KIND, RouteGroup

if TYPE_CHECKING:
    from dayfly.spec.lifecycle import Unit
    from dayfly.spec.parsing.text import ParsedDocument


def compile_group(
    group: RouteGroup, *, uid: str, routing_key: str, namespace: str = "", source: ParsedDocument | None = None
) -> Lifecycle:
    """Say what a route group means, but for whom it matches: that is no work of a step.

    Args:
        group: As `spec` has loaded and checked it.
        uid: The target's identity.
        routing_key: The group's own.
        namespace: Namespace of the RouteGroup object where it is one.
        source: The document the group was read from, for lines and columns in errors.

    Raises:
        SpecError: a reference that leads nowhere or to a later event, a cycle, or a limit.
    """
    try:
        workflows = compiler.hooks_of(group.spec.hooks)
        compiler.check_count([workflows], whose="route group")
        compiler.check_workflows(workflows)
        env = dict(zip(GROUP_VARIABLES, (group.name, routing_key, namespace), strict=True))
        # Whoever wrote the group wrote its steps, so their origin is nobody else's.
        shared = units.Setting("", {}, (), units.work(group.spec.runner or Runner(), env))
        target = Target(api_version=API_VERSION, kind=KIND, namespace=namespace, name=group.name, uid=uid)
        made = compiler.document(target, workflows, shared)
        compiler.check_size(made, ("spec", "hooks"))
    except SpecError as fault:
        raise compiler.located(fault, source) from None
    return made


def group_previews(group: RouteGroup, routing_key: str, cluster: str | None = "") -> tuple[Unit, ...]:
    """Its kept units where the host routes requests by their key: an address for each endpoint of that cluster.

    None is for a cluster that does not know what it is called: then whatever an endpoint names is not heeded.
    """
    here = (each for each in group.spec.endpoints if cluster is None or each.cluster in ("", cluster))
    return routes.previews(here, routing_key)


def check_group(group: RouteGroup, *, source: ParsedDocument | None = None) -> Lifecycle:
    """Refuse whatever can be refused before any host is asked.

    Returns:
        What it becomes without an identity.

    Raises:
        SpecError: as `compile_group`.
    """
    return compile_group(group, uid="", routing_key="", source=source)
