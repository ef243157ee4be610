"""`dayfly retry`: what waits to be tried again is tried now."""

from __future__ import annotations

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.output import show


@click.command("retry")
@options.named("sandbox", "subjects")
@options.named("unit", "units", required=False, default="")
@options.cluster
def command(sandbox: str, unit: str, context: str | None, namespace: str | None) -> None:
    """Retry the steps and forks of a sandbox that are waiting to be retried, or only UNIT, at once.

    UNIT is as `dayfly get sandbox` shows it, like db/drop. Only the current wait is ended: an attempt that fails after
    that waits again. A create step that has failed is never run again in its sandbox.
    """
    host = hosts.find(context, namespace)
    for name, attempt in host.retry(sandbox, unit).items():
        show.talk(f"{name}: attempt {attempt} has failed; it is retried now.")
    show.talk(f"See: dayfly why {sandbox}{host.flags}")
