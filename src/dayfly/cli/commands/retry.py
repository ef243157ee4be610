"""`dayfly retry`: run waiting retries now."""

from __future__ import annotations

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show


@verb("retry")
@options.name_argument("sandbox", "subjects")
@options.name_argument("unit", "units", required=False, default="")
@options.backend_options
def command(sandbox: str, unit: str, context: str | None, namespace: str | None) -> None:
    """Retry the waiting steps and forks of a sandbox now, or only UNIT.

    UNIT is as `dayfly get sandbox` shows it, like db/drop. Only the current wait ends: after another failure, the unit
    waits again. A create step that has failed is never run again in its sandbox.
    """
    host = hosts.find(context, namespace)
    for name, attempt in host.retry(sandbox, unit).items():
        show.print_message(f"{name}: attempt {attempt} has failed; it is retried now.")
    show.print_message(f"See: dayfly why {sandbox}{host.flags}")
