"""How a life is extended, and how its end is shown: of sandboxes and route groups alike."""

from __future__ import annotations

from typing import Any

import click

from dayfly.cli import options, show
from dayfly.client import subject


def how_long(command: Any) -> Any:
    """`--for` and `--until`."""
    span = click.option(
        "--for", "seconds", type=options.Duration(), help="How long it is to live from now on, like 90m, 2h or 3d."
    )
    moment = click.option("--until", metavar="TIME", help="Until when, like 2026-01-02T15:00:00Z.")
    return span(moment(command))


def extend(name: str, seconds: float | None, until: str | None, context: str | None, namespace: str | None) -> None:
    """Extend it where it lives, and say until when it lives now."""
    from dayfly.cli import hosts

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
