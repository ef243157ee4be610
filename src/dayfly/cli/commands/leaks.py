"""`dayfly leaks`: report what is left behind, and delete it by a plan."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.output import leaks, show
from dayfly.client.errors import DayflyError, Exit, RefusedError, unknown_name_error

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST_POLL_S, _POLL_INTERVAL_S = 0.05, 0.5
_NOT_FOUND = 404
_EXCLUSIVE = ("--plan", "--apply", "--delete-check")


@verb("leaks")
@click.argument("names", nargs=-1, metavar="[CHECK]...")
@options.backend_options
@click.option("--sweep", is_flag=True, help="List now, and wait for the result.")
@click.option("--check", "exits", is_flag=True, help="Exit with 1 if there is a leak, no complete list, or no check.")
@click.option("--plan", "plan_to", metavar="FILE", help="Write which orphans --apply will delete.")
@click.option("--apply", "plan_from", metavar="FILE", help="Delete the orphans of a plan, unless they have changed.")
@click.option("--delete-check", is_flag=True, help="Delete the named checks, but nothing that they have found.")
@options.timeout("10m")
@click.option(
    "-o", "--output", metavar="FORMAT", type=click.Choice(["json", "yaml", "junit"]), help="json, yaml or junit."
)
def command(
    names: tuple[str, ...],
    *,
    context: str | None,
    namespace: str | None,
    sweep: bool,
    exits: bool,
    plan_to: str | None,
    plan_from: str | None,
    delete_check: bool,
    timeout: float,
    output: str | None,
) -> int:
    """Show what plugins have left behind, as the leak checks have found it.

    A file of kind LeakCheck, applied with `dayfly apply`, creates a check. An orphan was made by this Dayfly,
    and its run has ended. A missing resource belongs to a sandbox but is not in the account. Everything in doubt is
    unknown, and is never deleted.
    """
    if sum(map(bool, (plan_to, plan_from, delete_check))) > 1:
        raise click.UsageError(f"use only one of {', '.join(_EXCLUSIVE)}", click.get_current_context())
    client = _open(context, namespace)
    if delete_check:
        return _delete_checks(client, names)
    if plan_from is not None:
        return _apply(client, _read_plan(plan_from), timeout)
    found = _select(client, names)
    found = [_sweep(client, each, timeout) if sweep or not leaks.has_result(each) else each for each in found]
    if plan_to is not None:
        _write_plan(plan_to, found)
    if output == "junit":
        show.print_block(leaks.as_junit(found).rstrip("\n"))
    elif output:
        show.emit(found, output)
    elif found:
        leaks.print_checks(found)
    else:
        tool = "dayfly" if context is None else "kubectl"
        show.print_message(f"There are no leak checks; create one with: {tool} apply -f FILE")
    for notice in (leaks.hidden_notice, leaks.waiting_notice):
        for text in filter(None, map(notice, found)):
            show.print_message(text)
    has_problem = not found or any(map(leaks.has_problem, found))
    return Exit.FAILED if exits and has_problem else Exit.OK


class _Checks(Protocol):
    """The leak checks of a server or a cluster. `flags` select it in further commands."""

    @property
    def flags(self) -> str: ...
    def list_all(self) -> list[Any]: ...
    def get(self, name: str) -> Any: ...
    def request_sweep(self, name: str, plan: str = "") -> None: ...
    def delete(self, name: str) -> bool: ...


class _ServerLeaks:
    """The leak checks of a server."""

    def __init__(self) -> None:
        self._client = ServerClient.open()
        self.flags = self._client.flags

    def list_all(self) -> list[Any]:
        return list(self._client.get("leakchecks"))

    def get(self, name: str) -> Any:
        return self._client.get("leakchecks", name)

    def request_sweep(self, name: str, plan: str = "") -> None:
        self._client.post("leakchecks", name, "sweep", body={"plan": plan})

    def delete(self, name: str) -> bool:
        try:
            self._client.delete("leakchecks", name)
        except RefusedError as fault:
            if fault.status != _NOT_FOUND:
                raise
            return False
        return True


def _open(context: str | None, namespace: str | None) -> _Checks:
    """Return the leak checks of a cluster if `context` is given, otherwise those of the server."""
    if context is not None:
        hosts.reject_server_option()
        return hosts.cluster(context, namespace).leak_checks()
    if namespace is not None:
        raise hosts.namespace_without_cluster()
    return _ServerLeaks()


def _select(client: _Checks, names: Sequence[str]) -> list[Any]:
    found = client.list_all()
    by_name = {each["name"]: each for each in found}
    if unknown := [name for name in names if name not in by_name]:
        message = f'no leak check "{unknown[0]}"'
        raise unknown_name_error(message, unknown[0], by_name, f"dayfly leaks{client.flags}")
    return [by_name[name] for name in names] or found


def _sweep(client: _Checks, check: Any, timeout: float, plan: str = "") -> Any:
    """Let a check list, and return it with the result.

    Raises:
        DayflyError: there is no result in time.
    """
    number, deadline = check["status"]["number"], time.monotonic() + timeout
    # A sweep that has begun before may have listed too early.
    wanted = number + 1 + check["status"]["sweeping"]
    client.request_sweep(check["name"], plan)
    pause = _FIRST_POLL_S
    while True:
        found = client.get(check["name"])
        status = found["status"]
        is_applied = not plan or (status["appliedPlan"] == plan and status["appliedNumber"] > number)
        if is_applied and status["number"] >= wanted:
            return found
        if time.monotonic() > deadline:
            raise DayflyError(Exit.TIMED_OUT, f'leak check "{check["name"]}" has not listed in time', "use --timeout")
        time.sleep(pause)
        pause = min(2 * pause, _POLL_INTERVAL_S)


def _write_plan(path: str, checks: Sequence[Any]) -> None:
    plan = {
        "checks": [
            {
                "name": each["name"],
                "plan": each["status"]["plan"],
                "delete": [finding for finding in each["status"]["findings"] if finding["deletable"]],
            }
            for each in checks
            if each["status"]["plan"]
        ]
    }
    Path(path).write_text(json.dumps(plan, indent=2) + "\n")
    count = sum(len({finding["id"] for finding in each["delete"]}) for each in plan["checks"])
    show.print_message(
        f"Wrote a plan that deletes {_count(count)} to {path}. Apply it with: dayfly leaks --apply {path}"
    )


def _count(resources: int) -> str:
    return f"{resources} resource{'s' * (resources != 1)}"


def _read_plan(path: str) -> list[tuple[str, str]]:
    """Return the names and digests of a plan.

    Raises:
        DayflyError: the file is not a plan.
    """
    try:
        plan = json.loads(Path(path).read_text())
        return [(str(each["name"]), str(each["plan"])) for each in plan["checks"]]
    except (OSError, ValueError, KeyError, TypeError) as fault:
        problem = f"{path} is not a plan: {fault}"
        raise DayflyError(Exit.USAGE, problem, "write one with: dayfly leaks --plan FILE") from None


def _apply(client: _Checks, plan: Sequence[tuple[str, str]], timeout: float) -> int:
    code = Exit.OK
    for name, digest in plan:
        found = _sweep(client, client.get(name), timeout, digest)
        status = found["status"]
        left = [each for each in status["findings"] if each["deletable"]]
        if status["applied"] == "done" and not left:
            show.print_message(f'Leak check "{name}": deleted {_count(len(status["deleted"]))}.')
            continue
        code = Exit.FAILED
        reason = status["applied"] if status["applied"] != "done" else "; ".join(each["reason"] for each in left)
        show.print_message(f'Leak check "{name}": {reason}.')
    if not plan:
        show.print_message("The plan deletes nothing.")
    return code


def _delete_checks(client: _Checks, names: Sequence[str]) -> int:
    if not names:
        raise click.UsageError("--delete-check needs the names of checks", click.get_current_context())
    code = Exit.OK
    for name in names:
        if client.delete(name):
            show.print_message(f'Deleted leak check "{name}".')
        else:
            code = Exit.NOT_FOUND
            show.print_message(f'There is no leak check "{name}".')
    return code
