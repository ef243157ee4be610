"""Colours of states and of differences, for a standard output that is a terminal."""

from __future__ import annotations

import os
import sys

STATE_COLUMNS = frozenset({"PHASE", "REASON", "STATE", "STATUS", "Phase", "Reason", "State", "Status", "Ended"})
"""The table columns and facts whose values are states."""
_FAILED = (
    "CleanupStuck",
    "ExitCode",
    "ForkFailed",
    "HookFailed",
    "LedgerLost",
    "PlanLost",
    "Refused",
    "ResourceFailed",
)
_PENDING = ("Creating", "Deleting", "Paused", "Starting", "WaitingToRetry")
_STYLES = {
    "green": ("Ready", "ready", "AllDesiredWorkloadsReady", "succeeded", "ok"),
    "bold red": ("Failed", "failed", "stuck", *_FAILED),
    "bold magenta": ("unknown", "OutcomeUnknown"),
    "yellow": ("deleting", "retrying", "starting", "warning", *_PENDING),
    "dim": ("Ended", "Cleaned", "Abandoned", "skipped", "stopped"),
}
_STYLE_OF_STATE = {state: style for style, states in _STYLES.items() for state in states}


def is_enabled() -> bool:
    """Return whether to print colours: standard output is a terminal that has them, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")


def apply(text: str, style: str) -> str:
    """Return text in a style of rich, such as `bold red`, if colours are enabled."""
    if not style or not text or not is_enabled():
        return text
    import click

    words = style.split()
    color = next((word for word in words if word not in ("bold", "dim")), None)
    return click.style(text, fg=color, bold="bold" in words or None, dim="dim" in words or None)


def apply_to_state(text: str) -> str:
    """Return a cell or value in the colour of the state that it begins with."""
    first = text.split(maxsplit=1)[:1]
    return apply(text, _STYLE_OF_STATE.get(first[0].rstrip(":"), "")) if first else text


def apply_to_difference(line: str) -> str:
    """Return a line of a difference: added lines are green, removed lines red."""
    return apply(line, {"+": "green", "-": "red"}.get(line[:1], ""))
