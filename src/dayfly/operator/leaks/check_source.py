"""The documents of checks: compiled from the plugins of this cluster, or from the order of a server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from dayfly.operator.catalog import Catalog, PluginMissingError
from dayfly.operator.cluster.objects import served_uid
from dayfly.spec.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.operator.cluster.objects import LeakCheckObject
    from dayfly.operator.leaks.check_store import ServedCheck
    from dayfly.spec.leak_check import LeakCheckSpec
    from dayfly.spec.lifecycle import Lifecycle

_EDITED: Final = (
    "a server has made this check for {org}, and its spec was edited in the cluster, so it does nothing: undo the "
    "edit, or apply the check at the server again"
)


class CompiledCheck(NamedTuple):
    """A compiled check.

    Attributes:
        spec: Its spec.
        plugin: Its plugin with the version.
        inventory: The document that lists.
        find_deletion: Returns the document that deletes, by `name@version` of the plugin; None if there is none.
        find_plan_deletion: The same for the plan with a digest, which may have further documents.
        lacks_deletion: Whether no plan can bring a document for the plugin, which is given in the same way.
        served: The order of the server that has made it; None for a check of this cluster.
    """

    spec: LeakCheckSpec
    plugin: str
    inventory: Lifecycle
    find_deletion: Callable[[str], Lifecycle | None]
    find_plan_deletion: Callable[[str, str], Lifecycle | None]
    lacks_deletion: Callable[[str], bool]
    served: ServedCheck | None = None


class CheckSource:
    """Compiles checks."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def compile(self, seen: LeakCheckObject, served: ServedCheck | None) -> CompiledCheck:
        """Return the documents of a check. `served` is the order of the server that has made it.

        Raises:
            PluginMissingError: the plugin is not published.
            SpecError: the check or the plugin is invalid, or the check of a server was edited in this cluster.
        """
        if served is not None:
            if not has_ordered_spec(seen, served):
                raise SpecError(_EDITED.format(org=served.org), ("spec",))
            put = served.put
            find_for_plan = partial(_find_served, served)
            lacks = put.undeletable.__contains__
            return CompiledCheck(put.spec, put.plugin, put.inventory, put.deletes.get, find_for_plan, lacks, served)
        if served_uid(seen.metadata):
            # Never the plugins of this cluster: those have grants that the organisation's plugins lack.
            raise SpecError("a server has made this check, and its order is missing: apply it at the server again")
        made = self._catalog.leak_check(seen)
        find = partial(self._find, seen)
        return CompiledCheck(
            made.spec,
            made.plugin,
            made.inventory,
            find,
            lambda plugin, _plan: find(plugin),
            lambda plugin: find(plugin) is None,
        )

    def _find(self, seen: LeakCheckObject, plugin: str) -> Lifecycle | None:
        try:
            return self._catalog.leak_check(seen, plugin.partition("@")[2]).delete
        except (SpecError, PluginMissingError):
            return None


def _find_served(served: ServedCheck, plugin: str, plan: str) -> Lifecycle | None:
    """Return the document that deletes. An order for a plan cannot replace the documents of the check."""
    found = served.put.deletes.get(plugin)
    return served.plan_deletes.get(plugin) if found is None and plan and plan == served.plan else found


def has_ordered_spec(seen: LeakCheckObject, served: ServedCheck) -> bool:
    """Return whether the object of a server's check has the spec that the server has ordered."""
    try:
        return seen.parsed().spec == served.put.spec
    except SpecError:
        return False
