"""`dayfly get`: show the state of sandboxes, resources, parents, groups and pools, or one run with all its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import options, run_view
from dayfly.cli.backends import hosts
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit, unknown_name_error
from dayfly.spec.scalars.label_selector import matches, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dayfly.cli.backends.protocol import Backend, RunView
    from dayfly.spec.scalars.label_selector import Term

_KINDS = {
    "sandbox": "sandboxes",
    "sandboxes": "sandboxes",
    "sb": "sandboxes",
    "dfs": "sandboxes",
    "resource": "resources",
    "resources": "resources",
    "dfr": "resources",
    "routegroup": "routegroups",
    "routegroups": "routegroups",
    "rg": "routegroups",
    "dfg": "routegroups",
    "pool": "pools",
    "pools": "pools",
    "resourcepool": "pools",
    "resourcepools": "pools",
    "parent": "parents",
    "parents": "parents",
}
_OTHER_COMMANDS = {
    "cluster": "cluster list",
    "key": "key list",
    "leak": "leaks",
    "leakcheck": "leaks",
    "plugin": "plugin list",
    "resourceplugin": "plugin list",
}
"""The commands that show other kinds."""
_POLL_INTERVAL_S = 1.0


class _Listing:
    """The list of one kind: the selected objects and their table.

    Args:
        terms: The label selector.
        name: The only object to select; empty for all.
        mine: Whether to list only sandboxes that the caller created, or their resources.
    """

    title, titles = "sandbox", "sandboxes"
    header: tuple[str, ...] = (
        *("SANDBOX", "PHASE", "REASON", "PROGRESS", "AGE"),
        *("ROUTING KEY", "CLUSTER", "EXPIRES", "CREATED BY", "LABELS"),
    )
    elastic = ""
    wide = 5
    """The number of columns at the end that only `-o wide` shows."""
    keys = 1
    """The number of columns at the beginning that identify an object."""
    has_steps = True
    """Whether one object is shown with all its steps."""

    def __init__(self, terms: tuple[Term, ...], name: str, *, mine: bool = False) -> None:
        self.terms = terms
        self.name = name
        self.mine = mine

    @property
    def subject(self) -> str:
        """The subject of the name."""
        return self.name

    def fetch(self, host: Backend) -> list[RunView]:
        """Return all runs of the kind."""
        return host.sandboxes(mine=self.mine)

    def rows_of(self, runs: Iterable[RunView]) -> list[Any]:
        """Return the objects that are listed for some runs."""
        return [{"name": one.name, "run": one} for one in runs]

    def select(self, runs: Iterable[RunView]) -> list[Any]:
        """Return the selected objects."""
        chosen = [one for one in runs if matches(self.terms, one.spec.get("labels") or {})]
        return [each for each in self.rows_of(chosen) if self.name in ("", each["name"])]

    def data(self, each: Any) -> Any:
        """Return an object as data."""
        return run_view.data(each["run"])

    def row(self, each: Any) -> tuple[str, ...]:
        """Return the cells of an object."""
        one: RunView = each["run"]
        report = one.report
        state = (run_view.phase(report), run_view.reason(report), run_view.progress(report))
        more = (one.routing_key, one.spec.get("cluster", ""), run_view.expiry(one.status or {}))
        return (one.name, *state, show.age(one.created), *more, one.created_by, run_view.labels(one))


class _Groups(_Listing):
    title, titles = "route group", "route groups"
    header = ("ROUTE GROUP", "PHASE", "REASON", "SANDBOXES", "AGE", "ROUTING KEY", "CLUSTER", "LABELS")
    elastic = "SANDBOXES"
    wide = 3

    @property
    def subject(self) -> str:
        return subject.group_subject(self.name)

    def fetch(self, host: Backend) -> list[RunView]:
        return host.groups()

    def row(self, each: Any) -> tuple[str, ...]:
        one: RunView = each["run"]
        matched = ", ".join(run_view.matched_sandboxes(one))
        state = (run_view.phase(one.report), run_view.reason(one.report), matched, show.age(one.created))
        return (one.name, *state, one.routing_key, one.spec.get("cluster", ""), run_view.labels(one))


class _Resources(_Listing):
    title, titles = "resource", "resources"
    header = ("RESOURCE", "SANDBOX", "PLUGIN", "PHASE", "PROGRESS", "MESSAGE")
    elastic = "MESSAGE"
    wide = 0
    keys = 2
    has_steps = False

    def rows_of(self, runs: Iterable[RunView]) -> list[Any]:
        return [each for one in runs for each in _resources_of(one)]

    def data(self, each: Any) -> Any:
        return each

    def row(self, each: Any) -> tuple[str, ...]:
        return tuple(each[key] for key in ("name", "sandbox", "plugin", "phase", "progress", "message"))


class _Parents(_Listing):
    """The shared parents that resources of sandboxes use. The reports of these sandboxes name them."""

    title, titles = "shared parent", "shared parents"
    header = ("PARENT", "PHASE", "USES", "HOLDERS")
    elastic = "HOLDERS"
    wide = 0
    has_steps = False

    def rows_of(self, runs: Iterable[RunView]) -> list[Any]:
        from dayfly.cli.shared_parents import parents_of

        found: dict[str, dict[str, Any]] = {}
        for use in (each for one in runs for each in parents_of(one)):
            known = found.setdefault(use.parent, {"name": use.parent, "phase": use.phase, "holders": []})
            known["holders"].append(use.holder)
            known["phase"] = "Ready" if use.phase == "Ready" else known["phase"]
        return [found[name] for name in sorted(found)]

    def data(self, each: Any) -> Any:
        return each

    def row(self, each: Any) -> tuple[str, ...]:
        return (each["name"], each["phase"], str(len(each["holders"])), ", ".join(each["holders"]))


_LISTINGS = {"parents": _Parents, "sandboxes": _Listing, "routegroups": _Groups, "resources": _Resources}


@verb("get")
@options.name_argument("kind", "kinds", required=False, default="sandboxes")
@options.name_argument("name", "names_of_kind", required=False, default="")
@options.labels
@click.option("--mine", is_flag=True, help="List only sandboxes that you created, or their resources and parents.")
@click.option("-w", "--watch", is_flag=True, help="Print the table, then each row that changes, until Ctrl-C.")
@options.backend_options
@options.list_output
def command(
    kind: str,
    name: str,
    labels: tuple[str, ...],
    *,
    mine: bool,
    watch: bool,
    context: str | None,
    namespace: str | None,
    output: str | None,
) -> None:
    """Show the state of sandboxes, resources, shared parents, route groups or pools, or of NAME with all its steps.

    KIND is sandboxes (the default), resources, parents, routegroups or pools. KIND/NAME is the same as KIND NAME.
    """
    kind, name = _parse_kind(kind, name)
    if name and labels and kind not in ("resources", "parents"):
        raise click.UsageError("give either a name or --label", click.get_current_context())
    if mine and (kind in ("routegroups", "pools") or (name and kind == "sandboxes")):
        raise click.UsageError("--mine is for lists of sandboxes, resources and parents", click.get_current_context())
    if kind == "pools":
        _print_pools(name, labels, context, namespace, output, watch=watch)
        return
    listing = _LISTINGS[kind](parse(labels), name, mine=mine)
    host = hosts.find(context, namespace)
    if watch:
        _watch(host, listing, output)
    elif name and listing.has_steps:
        run_view.print_one(host, listing.subject, output)
    else:
        _print_list(host, listing, output)


def _parse_kind(kind: str, name: str) -> tuple[str, str]:
    """Return the plural of the kind, and the name. `kind` may be `KIND/NAME`."""
    if "/" in kind and not name:
        kind, _, name = kind.partition("/")
    if kind not in _KINDS:
        for noun, other in _OTHER_COMMANDS.items():
            if kind in (noun, f"{noun}s"):
                raise DayflyError(Exit.USAGE, f"{kind!r} are not shown by get", f"type: dayfly {other}")
        message = f"unknown kind {kind!r}: the kinds are sandboxes, resources, parents, routegroups and pools"
        raise DayflyError(Exit.USAGE, message, f"for one sandbox: dayfly get sandbox {kind}")
    return _KINDS[kind], name


def _print_list(host: Backend, listing: _Listing, output: str | None) -> None:
    every = listing.fetch(host)
    found = listing.select(every)
    if listing.name and not found:
        known = [each["name"] for each in listing.rows_of(every)]
        see = f"dayfly get {listing.titles.rpartition(' ')[2]}{host.flags}"
        raise unknown_name_error(f'no {listing.title} "{listing.name}"', listing.name, known, see)
    if output:
        show.emit([listing.data(each) for each in found], output)
    elif found:
        show.print_table(listing.header, map(listing.row, found), elastic=listing.elastic, wide=listing.wide)
    else:
        show.print_message(show.describe_empty(listing.title, listing.titles, len(every) if listing.terms else 0))


def _watch(host: Backend, listing: _Listing, output: str | None) -> None:
    """Print all rows, then each row that changes, until the user interrupts."""
    if output not in (None, "name"):
        raise click.UsageError("--watch prints a table: give -o wide, or no -o", click.get_current_context())
    if listing.name and listing.has_steps:
        host.sandbox(listing.subject)  # reports an unknown name
    phase = listing.header.index("PHASE")
    aging = listing.header.index("AGE") if "AGE" in listing.header else None
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    widths: list[int] = []
    while True:
        rows = {row[: listing.keys]: row for row in map(listing.row, listing.select(listing.fetch(host)))}
        gone = [(*row[:phase], "Gone", *row[phase + 1 :]) for key, row in known.items() if key not in rows]
        changed = [row for key, row in rows.items() if _without(known.get(key, ()), aging) != _without(row, aging)]
        known = rows
        if output == "name":
            for row in changed:
                show.print_line(row[0])
        elif changed or gone:
            show.print_table(listing.header, [*changed, *gone], wide=listing.wide, widths=widths)
        show.flush()
        host.pause(_POLL_INTERVAL_S)


def _without(row: tuple[str, ...], column: int | None) -> tuple[str, ...]:
    """Return a row without the cell of a column."""
    return row if column is None else (*row[:column], *row[column + 1 :])


def _print_pools(
    name: str, labels: tuple[str, ...], context: str | None, namespace: str | None, output: str | None, *, watch: bool
) -> None:
    from dayfly.cli.commands import pool

    if labels or watch:
        option, problem = ("--label", "have no labels") if labels else ("--watch", "cannot be watched")
        raise DayflyError(Exit.USAGE, f"pools {problem}", f"leave {option} out")
    host = hosts.find(context, namespace)
    if name:
        pool.print_one(host, name, output)
    else:
        pool.print_all(host, output)


def _resources_of(one: RunView) -> Iterator[dict[str, Any]]:
    import msgspec

    from dayfly.plan.phases import resource_progress
    from dayfly.plan.status import describe_unit
    from dayfly.spec.report import UnitReport

    units = msgspec.convert(one.report["units"], list[UnitReport])
    for resource in one.spec.get("resources") or ():
        status = resource_progress(units, resource["name"], closed=bool(one.report.get("closed")))
        worst = status.worst
        yield {
            "name": resource["name"],
            "sandbox": one.name,
            "plugin": resource.get("plugin") or "(its own steps)",
            "phase": status.phase if units else run_view.phase(one.report),
            "progress": f"{status.done}/{status.total}",
            "message": f"{worst.name}: {describe_unit(worst, worst.message)}" if worst and status.has_trouble else "",
        }
