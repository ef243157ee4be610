"""What sandboxes and route groups have alike: list, delete, extend, and a word for how one stands.

`list` is measured, so what only the others need is imported in them.
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


class Sort(NamedTuple):
    """Which of the two: how it is spoken of, and how the API, a document and the client name it."""

    title: str
    titles: str
    plural: str
    kind: Kind
    subject: Callable[[str], str]


def _how_long(command: Any) -> Any:
    """`--for` and `--until`."""
    span = click.option(
        "--for", "seconds", type=options.Duration(), help="How long it is to live from now on, like 90m, 2h or 3d."
    )
    moment = click.option("--until", metavar="TIME", help="Until when, like 2026-01-02T15:00:00Z.")
    return span(moment(command))


def lists(
    group: click.Group, sort: Sort, header: Sequence[str], row: Callable[[Any], Sequence[str]], *, elastic: str
) -> None:
    """The verb `list`; each row of its table has what the header says, and `elastic` is the column that gives way."""

    @group.command("list", help=f"List all {sort.titles}, or those whose labels match.")
    @options.cluster
    @options.labels
    @options.output
    def list_(labels: tuple[str, ...], context: str | None, namespace: str | None, output: str | None) -> None:
        found = wire.every(sort.plural, labels, context, namespace)
        if output:
            show.emit(found, output)
        elif found:
            show.table(header, map(row, found), elastic=elastic)
        elif labels:
            show.talk(f"No {sort.title} has matching labels.")
        else:
            show.talk(f"There are no {sort.titles}; create one with: dayfly apply -f FILE")


def deletes(group: click.Group, sort: Sort, text: str) -> None:
    """The verb `delete`, of which its help says this."""

    @group.command("delete", help=text)
    @options.named("name", sort.plural, required=False)
    @options.files(required=False)
    @options.sets
    @options.wait
    @options.timeout("5m")
    @options.cluster
    def delete(
        name: str | None,
        files: tuple[str, ...],
        sets: tuple[str, ...],
        wait: bool,
        timeout: float,
        context: str | None,
        namespace: str | None,
    ) -> int:
        from dayfly.cli.delete import end

        chosen = [sort.subject(each) for each in _named(name, files, sets, sort.kind)]
        return end(chosen, wait=wait, timeout=timeout, context=context, namespace=namespace)


def extends(group: click.Group, sort: Sort) -> None:
    """The verb `extend`."""
    text = f"""Let a {sort.title} live longer: by default for its full time to live again, counted from now.

    This never makes its life shorter.
    """

    @group.command("extend", help=text)
    @options.named("name", sort.plural)
    @_how_long
    @options.cluster
    def extend(name: str, seconds: float | None, until: str | None, context: str | None, namespace: str | None) -> None:
        _extend(sort.subject(name), seconds, until, context, namespace)


def state(found: Any) -> str:
    """How one stands, in a word or two."""
    status = found["status"]
    if status.get("ready"):
        return "Ready (Unsupported)" if status.get("unsupported") else "Ready"
    return str(status.get("reason") or "Not Ready")


def _extend(name: str, seconds: float | None, until: str | None, context: str | None, namespace: str | None) -> None:
    """Extend it where it lives, and say until when it lives now."""
    from dayfly.cli.backends import hosts
    from dayfly.client import subject

    if seconds is not None and until is not None:
        raise click.UsageError("give either --for or --until", click.get_current_context())
    if seconds is not None and seconds < 1:
        raise click.UsageError("--for is at least 1s", click.get_current_context())
    host = hosts.find(context, namespace)
    title, end = subject.title(name), host.extend(name, int(seconds or 0), until or "")
    show.talk(f"{title[0].upper()}{title[1:]} lives until {end}.")


def expires(status: Any) -> str:
    """When it ends, and whether that is soon."""
    end: str = status.get("scheduledDeleteTime", "")
    soon = any(each["type"] == "ExpiresSoon" and each["status"] == "True" for each in status.get("conditions") or ())
    return f"{end} (soon; extend it if it is still needed)" if soon else end


def _named(name: str | None, files: tuple[str, ...], sets: tuple[str, ...], kind: Kind) -> list[str]:
    """Those of a kind that are given by name or by file.

    Raises:
        UsageError: neither is, or both are.
    """
    if bool(name) == bool(files):
        raise click.UsageError("give either a name or -f FILE", click.get_current_context())
    if name:
        return [name]
    from dayfly.client import files as reading

    return reading.only_names(files, sets, kind)
