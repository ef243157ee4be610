"""`dayfly env`: print a sandbox's outputs as environment variables."""

from __future__ import annotations

import os
import sys

import click

from dayfly.cli import options, outputs
from dayfly.cli.backends import hosts
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client.errors import Exit


@verb("env")
@options.name_argument("sandbox", "sandboxes")
@click.argument("wanted", metavar="[OUTPUT]", required=False)
@options.backend_options
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["shell", "dotenv", outputs.GITHUB, outputs.GITLAB, outputs.DOCKER, "json"]),
    default="shell",
    show_default=True,
    help="The reader: a shell, dotenv readers, $GITHUB_ENV, dotenv reports of GitLab, docker --env-file, or programs.",
)
def command(sandbox: str, wanted: str | None, context: str | None, namespace: str | None, form: str) -> int:
    """Print a sandbox's outputs as environment variables, including sensitive ones, or the value of one OUTPUT.

    An output is named <RESOURCE>_<STEP>_<OUTPUT>. Read them with: vars=$(dayfly env SANDBOX) && eval "$vars". If there
    are none, the exit code is 1. OUTPUT is RESOURCE.OUTPUT, STEP.OUTPUT or RESOURCE/STEP.OUTPUT.

    In a job of GitHub Actions, `-o github` also masks sensitive values. `-o gitlab` leaves them out, because GitLab
    cannot mask them.
    """
    host = hosts.find(context, namespace)
    found = host.outputs(sandbox)
    if wanted is not None:
        show.print_bytes(outputs.find_output(found, wanted) + (b"\n" if sys.stdout.isatty() else b""))
        return Exit.OK
    if form == "json":
        show.emit(found, form)
    elif form in ("shell", "dotenv"):
        show.print_bytes("".join(outputs.format_dotenv(each) + "\n" for each in outputs.variables(found)).encode())
    else:
        _print_verbatim(outputs.variables(found, form), form)
    if found:
        return Exit.OK
    ready = host.report(sandbox).get("ready")
    show.print_message(
        f'Sandbox "{sandbox}" has no outputs{"" if ready else f" yet; see: dayfly why {sandbox}{host.flags}"}'
    )
    if form == "shell" and not sys.stdout.isatty():
        show.print_bytes(b"false\n")  # makes `eval "$(...)"` fail, which ignores the exit code of the command
    return Exit.FAILED


def _print_verbatim(found: list[outputs.Variable], form: str) -> None:
    """Print what a variable can hold. These files have no comments, so the rest is reported on standard error."""
    given = list(outputs.settable_variables(found, show.print_message))
    if form == outputs.GITLAB:
        lines = outputs.format_gitlab(given)
        for each in given:
            if each.sensitive:
                show.print_message(f"{each.name} is sensitive, and GitLab cannot mask it, so it is left out")
    elif form == outputs.DOCKER:
        lines = outputs.format_docker(given)
    else:
        lines = "".join(map(outputs.format_github, given))
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for mask in outputs.github_masks(given):
                show.print_message(mask)
    show.print_bytes(lines.encode())
