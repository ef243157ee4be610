"""The verbs that sandboxes and route groups share: list, delete and extend, and a short form of their state.

A benchmark measures the start of `list`, so the other verbs import their own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dayfly.cli import options
from dayfly.cli.backends import wire
from dayfly.cli.output import show

if TYPE_CHECKING:
    from dayfly.spec.documents import Kind


_WIDE_COLUMNS = 2
"""The columns of a list that only `-o wide` shows: the expiry time and the labels."""


class VerbKind(NamedTuple):
    """Sandbox or route group: its title, and its names in the API, in documents and in the client."""

    title: str
    titles: str
    plural: str
    kind: Kind
    subject: Callable[[str], str]


def _lifetime_options(command: Any) -> Any:
    """Add `--for` and `--until`."""
    span = click.option(
        "--for",
        "seconds",
        type=options.Duration(needs_unit=True),
        help="The new lifetime from now on, like 90m, 2h or 3d.",
    )
    moment = click.option("--until", metavar="TIME", help="The new expiry time, like 2026-01-02T15:00:00Z.")
    return span(moment(command))


def add_list(
    group: click.Group, kind: VerbKind, header: Sequence[str], row: Callable[[Any], Sequence[str]], *, elastic: str
) -> None:
    """Add the verb `list`. `row` returns the cells of a table row, and `elastic` is the column to cut."""

    @group.command("list", help=f"List all {kind.titles}, or those whose labels match.")
    @options.backend_options
    @options.labels
    @options.list_output
    def list_(labels: tuple[str, ...], context: str | None, namespace: str | None, output: str | None) -> None:
        found = wire.list_all(kind.plural, labels, context, namespace)
        if output:
            show.emit(found, output)
        elif found:
            show.print_table(header, map(row, found), elastic=elastic, wide=_WIDE_COLUMNS)
        elif labels:
            others = len(wire.list_all(kind.plural, (), context, namespace))
            show.print_message(show.describe_empty(kind.title, kind.titles, others))
        else:
            show.print_message(f"There are no {kind.titles}; create one with: dayfly apply -f FILE")


def add_delete(group: click.Group, kind: VerbKind, text: str) -> None:
    """Add the verb `delete`, with `text` as its help."""

    @group.command("delete", help=text)
    @options.name_argument("names", kind.plural, nargs=-1, metavar="[NAME]...")
    @options.files(required=False)
    @options.variables_option
    @options.labels
    @click.option("--all", "everything", is_flag=True, help=f"Delete all {kind.titles}.")
    @click.option("-y", "--yes", is_flag=True, help="Do not ask before --label or --all deletes, on a terminal.")
    @click.option("--ignore-not-found", is_flag=True, help="Missing names are not an error.")
    @options.wait
    @options.timeout("5m")
    @options.backend_options
    def delete(
        names: tuple[str, ...],
        files: tuple[str, ...],
        sets: tuple[str, ...],
        labels: tuple[str, ...],
        *,
        everything: bool,
        yes: bool,
        ignore_not_found: bool,
        wait: bool,
        timeout: float,
        context: str | None,
        namespace: str | None,
    ) -> int:
        from dayfly.cli.delete import delete_all
        from dayfly.client import subject

        if sum(map(bool, (names, files, labels, everything))) != 1:
            raise click.UsageError("give either names, -f FILE, --label or --all", click.get_current_context())
        if labels or everything:
            chosen = _select(kind, labels, context, namespace, yes=yes)
        else:
            bare = [subject.bare_name(subject.normalize(each)) for each in names]
            chosen = bare or resolve_names(None, files, sets, kind.kind)
        return delete_all(
            [kind.subject(each) for each in chosen],
            wait=wait,
            timeout=timeout,
            context=context,
            namespace=namespace,
            ignore_not_found=ignore_not_found,
        )


def _select(
    kind: VerbKind, labels: tuple[str, ...], context: str | None, namespace: str | None, *, yes: bool
) -> list[str]:
    """Return the names that labels select, or all names; on a terminal, ask first.

    Raises:
        Abort: the user does not agree.
    """
    import sys

    found = [each["name"] for each in wire.list_all(kind.plural, labels, context, namespace)]
    if not found:
        others = len(wire.list_all(kind.plural, (), context, namespace)) if labels else 0
        show.print_message(show.describe_empty(kind.title, kind.titles, others))
    elif not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(found)}?", abort=True, err=True)
    return found


def add_extend(group: click.Group, kind: VerbKind) -> None:
    """Add the verb `extend`."""
    text = f"""Extend the lifetime of a {kind.title}: by default to its full time to live, counted from now.

    The lifetime is never shortened.
    """

    @group.command("extend", help=text)
    @options.name_argument("name", kind.plural)
    @_lifetime_options
    @options.backend_options
    def extend(name: str, seconds: float | None, until: str | None, context: str | None, namespace: str | None) -> None:
        _extend(kind.subject(name), seconds, until, context, namespace)


def short_state(found: Any) -> str:
    """Return the state in one or two words."""
    status = found["status"]
    if status.get("ready"):
        return "Ready (Unsupported)" if status.get("unsupported") else "Ready"
    return str(status.get("reason") or "Not Ready")


def _extend(name: str, seconds: float | None, until: str | None, context: str | None, namespace: str | None) -> None:
    """Extend the lifetime and print the new expiry time."""
    from dayfly.cli.backends import hosts
    from dayfly.client import subject

    if seconds is not None and until is not None:
        raise click.UsageError("give either --for or --until", click.get_current_context())
    if seconds is not None and seconds < 1:
        raise click.UsageError("--for must be at least 1s", click.get_current_context())
    host = hosts.find(context, namespace)
    before = host.sandbox(name).status or {}
    end = host.extend(name, int(seconds or 0), until or "")
    is_unchanged = end in (before.get("scheduledDeleteTime"), before.get("expiresAt"))
    remark = ", which is later; it is unchanged" if is_unchanged else ""
    show.print_message(
        f"{show.capitalize(subject.title(name))} {'already expires' if is_unchanged else 'expires'} at {end}{remark}."
    )


def print_one(name: str, output: str | None, context: str | None = None, namespace: str | None = None) -> None:
    """Print a sandbox or `routegroup/NAME` with its endpoints, outputs and steps."""
    from dayfly.cli import run_view
    from dayfly.cli.backends import hosts

    run_view.print_one(hosts.find(context, namespace), name, output)


def resolve_names(name: str | None, files: tuple[str, ...], sets: tuple[str, ...], kind: Kind) -> list[str]:
    """Return the names on the command line, or those of this kind in the files.

    Raises:
        UsageError: there is neither a name nor a file, or both.
    """
    if bool(name) == bool(files):
        raise click.UsageError("give either a name or -f FILE", click.get_current_context())
    if name:
        return [name]
    from dayfly.client import files as reading

    return reading.read_names(files, sets, kind)
