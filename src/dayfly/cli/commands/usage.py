"""`dayfly usage`: how long sandboxes lived, by label."""

from __future__ import annotations

import csv
import datetime as dt
import re
import sys

import click

from dayfly.cli import options
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show


@verb("usage")
@options.server
@click.option(
    "--by",
    metavar="LABEL",
    default="createdBy",
    show_default=True,
    help="Add up by this label, such as dayfly.dev/owner, or by createdBy or cluster.",
)
@click.option(
    "--since",
    type=options.Duration(),
    metavar="DURATION",
    default="30d",
    show_default=True,
    help="The period until now. A server keeps usage for 400 days.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@options.list_output
def command(by: str, since: float, output: str | None, *, as_csv: bool) -> None:
    """Show how many sandboxes there were and how many hours they lived, by label.

    Sandboxes that still exist are included. The hours are those within the period.
    """
    if not (key := re.match(r"[\w./-]*", by)) or key[0] != by:
        problem = f"--by takes the key of a label, not {by!r}: write --by {key[0] if key and key[0] else 'LABEL'}"
        raise click.UsageError(problem, click.get_current_context())
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=since)
    found = ServerClient.open().get("usage", by=by, since=begin.isoformat(timespec="seconds").replace("+00:00", "Z"))
    rows = [(each["value"], str(each["sandboxes"]), f"{each['hours']:.2f}") for each in found["sums"]]
    if as_csv:
        if output:
            raise click.UsageError("give either --csv or -o", click.get_current_context())
        csv.writer(sys.stdout, lineterminator="\n").writerows([("value", "sandboxes", "hours"), *rows])
    elif output:
        show.emit(found, output)
    elif rows:
        show.print_table((by.upper(), "SANDBOXES", "HOURS"), [(value or "-", *rest) for value, *rest in rows])
    else:
        show.print_message("There were no sandboxes in this period.")
