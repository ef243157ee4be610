"""`dayfly env`: print a sandbox's outputs as environment variables."""

from __future__ import annotations

import sys

import click

from dayfly.cli import options, outputs
from dayfly.cli.backends import hosts
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client.errors import Exit


@verb("env")
@options.name_argument("sandbox", "sandboxes")
@options.backend_options
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["shell", outputs.GITHUB, outputs.GITLAB, "json"]),
    default="shell",
    show_default=True,
    help="The format: for shells and dotenv readers, $GITHUB_ENV, dotenv reports of GitLab, or programs.",
)
def command(sandbox: str, context: str | None, namespace: str | None, form: str) -> int:
    """Print a sandbox's outputs as environment variables, including sensitive ones.

    An output is named <RESOURCE>_<STEP>_<OUTPUT>. Read them with: vars=$(dayfly env SANDBOX) && eval "$vars". If there
    are none, the exit code is 1.
    """
    host = hosts.find(context, namespace)
    found = host.outputs(sandbox)
    if form == "json":
        show.emit(found, form)
    elif form == "shell":
        show.print_bytes("".join(outputs.format_dotenv(each) + "\n" for each in outputs.variables(found)).encode())
    else:
        _print_for_ci(outputs.variables(found, form), form)
    if found:
        return Exit.OK
    ready = host.report(sandbox).get("ready")
    show.print_message(
        f'Sandbox "{sandbox}" has no outputs{"" if ready else f" yet; see: dayfly why {sandbox}{host.flags}"}'
    )
    if form == "shell" and not sys.stdout.isatty():
        show.print_bytes(b"false\n")  # makes `eval "$(...)"` fail, which ignores the exit code of the command
    return Exit.FAILED


def _print_for_ci(found: list[outputs.Variable], form: str) -> None:
    """Print what a variable can hold. These files have no comments, so the rest is reported on standard error."""
    given = list(outputs.settable_variables(found, show.print_message))
    lines = outputs.format_gitlab(given) if form == outputs.GITLAB else "".join(map(outputs.format_github, given))
    show.print_bytes(lines.encode())
