"""The compiler for route groups: the hooks of a group become the only document of its run."""

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
    """Compile a route group's hooks. Its match needs no steps.

    Args:
        group: The group, loaded and checked by `spec`.
        uid: The target's identity.
        routing_key: The group's routing key.
        namespace: Namespace of the RouteGroup object, if there is one.
        source: The document of the group, for lines and columns in errors.

    Raises:
        SpecError: A reference without a target or to a later event, a cycle, or a limit.
    """
    try:
        workflows = compiler.hook_workflows(group.spec.hooks)
        compiler.check_unit_count([workflows], whose="route group")
        compiler.check_workflows(workflows)
        env = dict(zip(GROUP_VARIABLES, (group.name, routing_key, namespace), strict=True))
        # The group's author wrote its steps, so they have no publisher.
        shared = units.DocumentSettings("", {}, (), units.exec_template(group.spec.runner or Runner(), env))
        target = Target(api_version=API_VERSION, kind=KIND, namespace=namespace, name=group.name, uid=uid)
        made = units.build_document(target, workflows, shared)
        compiler.check_document_size(made, ("spec", "hooks"))
    except SpecError as fault:
        raise compiler.with_position(fault, source) from None
    return made


def group_previews(group: RouteGroup, routing_key: str, cluster: str | None = "") -> tuple[Unit, ...]:
    """Return the kept units if the host routes requests by their key: an address for each endpoint of that cluster.

    None is for a cluster that does not know its name, and so ignores the cluster of an endpoint.
    """
    here = (each for each in group.spec.endpoints if cluster is None or each.cluster in ("", cluster))
    return routes.preview_units(here, routing_key)


def check_group(group: RouteGroup, *, source: ParsedDocument | None = None) -> Lifecycle:
    """Check a route group by every rule that needs no host.

    Returns:
        The compiled document without an identity.

    Raises:
        SpecError: As for `compile_group`.
    """
    return compile_group(group, uid="", routing_key="", source=source)
