"""`dayfly status`: show the server, the number of sandboxes by state, and the sandboxes that are not ready."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dayfly.cli import options
from dayfly.cli.backends.target_server import ServerClient, is_remote
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client.home import Home

# The state for each reason of a run, problems first. All other reasons mean `starting`.
_STATES = {
    "CleanupStuck": "stuck",
    "OutcomeUnknown": "unknown",
    "ResourceFailed": "failed",
    "HookFailed": "failed",
    "ForkFailed": "failed",
    "Refused": "failed",
    "LedgerLost": "failed",
    "PlanLost": "failed",
    "Deleting": "deleting",
    "Abandoned": "deleting",
    "Cleaned": "deleting",
    "AllDesiredWorkloadsReady": "ready",
}
_ORDER = ("stuck", "unknown", "failed", "deleting", "starting", "ready")


@verb("status")
@options.server
@options.list_output
def command(output: str | None) -> None:
    """Show the state of the server and all sandboxes, worst first."""
    home = Home.find()
    client = ServerClient.open(home)
    version = client.health().get("version", "")
    sandboxes = client.get("sandboxes")
    counts = Counter(_state(sandbox) for sandbox in sandboxes)
    pid = None if is_remote() else home.server_process()
    if output:
        troubled = [
            {key: one[key] for key in ("name", "createdBy") if key in one} | {"state": _state(one), **one["status"]}
            for one in _unready(sandboxes)
        ]
        found = {"home": str(home.path), "url": client.address.url, "version": version, "process": pid}
        show.emit({**found, "counts": {word: counts[word] for word in _ORDER}, "notReady": troubled}, output)
        return
    summary = ", ".join(f"{counts[word]} {word}" for word in _ORDER if counts[word])
    process = f"process {pid}, " if pid else ""
    show.print_facts(
        [
            ("Server", f"{client.address.url} ({process}dayfly {version})"),
            ("Home", str(home.path)),
            ("Sandboxes", f"{len(sandboxes)}: {summary}" if sandboxes else "none"),
        ]
    )
    if unready := _unready(sandboxes):
        show.print_line()
        rows = [
            (one["name"], _state(one), one.get("createdBy", ""), one["status"].get("message", "")) for one in unready
        ]
        show.print_table(("SANDBOX", "STATE", "CREATED BY", "MESSAGE"), rows, elastic="MESSAGE")


def _state(sandbox: Any) -> str:
    status = sandbox["status"]
    return "ready" if status.get("ready") else _STATES.get(status.get("reason", ""), "starting")


def _unready(sandboxes: list[Any]) -> list[Any]:
    """Return the sandboxes that are not ready, the worst first."""
    found = [sandbox for sandbox in sandboxes if _state(sandbox) != "ready"]
    return sorted(found, key=lambda sandbox: (_ORDER.index(_state(sandbox)), sandbox["name"]))
