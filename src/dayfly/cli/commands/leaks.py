"""`dayfly leaks`: report what is left behind, and delete it by a plan."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.leak_plans import read_plan, write_plan
from dayfly.cli.output import leaks, show
from dayfly.client.errors import DayflyError, Exit, RefusedError, unknown_name_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FIRST_POLL_S, _POLL_INTERVAL_S = 0.05, 0.5
_NOT_FOUND = 404
_MAX_SHOWN = 10
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
    if plan_from is not None:
        _refuse_unused({"names of checks": bool(names), "--check": exits, "--output": bool(output)})
    client = _open(context, namespace)
    if delete_check:
        return _delete_checks(client, names)
    if plan_from is not None:
        return _apply(client, plan_from, timeout)
    found = _select(client, names)
    found = [_sweep(client, each, timeout) if sweep or not leaks.has_result(each) else each for each in found]
    if plan_to is not None:
        count = _count(write_plan(plan_to, found))
        apply = f"dayfly leaks{client.flags} --apply {plan_to}"
        show.print_message(f"Wrote a plan that deletes {count} to {plan_to}. Apply it with: {apply}")
    _print(found, output, "dayfly" if context is None else "kubectl")
    for notice in (leaks.hidden_notice, leaks.waiting_notice):
        for text in filter(None, map(notice, found)):
            show.print_message(text)
    has_problem = not found or any(map(leaks.has_problem, found))
    return Exit.FAILED if exits and has_problem else Exit.OK


def _print(found: list[Any], output: str | None, tool: str) -> None:
    """Print checks. `tool` is the command that creates one."""
    if output == "junit":
        show.print_block(leaks.as_junit(found).rstrip("\n"))
    elif output:
        show.emit(found, output)
    elif found:
        leaks.print_checks(found)
    else:
        show.print_message(f"There are no leak checks; create one with: {tool} apply -f FILE")


def _refuse_unused(options: Mapping[str, bool]) -> None:
    """Refuse options that have no effect on `--apply`. `options` has whether each was given."""
    if unused := [name for name, is_given in options.items() if is_given]:
        problem = f"--apply cannot be used with {unused[0]}: it applies the plans of all checks in its file"
        raise click.UsageError(problem, click.get_current_context())


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
            problem = f'leak check "{check["name"]}" has not listed in time'
            see = f"dayfly leaks{client.flags} {check['name']}"
            raise DayflyError(
                Exit.TIMED_OUT,
                f"{problem}, and may still apply the plan" if plan else problem,
                f"see its state with: {see}; use --timeout to wait longer",
            )
        time.sleep(pause)
        pause = min(2 * pause, _POLL_INTERVAL_S)


def _count(resources: int) -> str:
    return f"{resources} resource{'s' * (resources != 1)}"


def _apply(client: _Checks, path: str, timeout: float) -> int:
    """Apply the plans of a file, and print the result of each. Return the exit code.

    Raises:
        DayflyError: the file is not a plan, a check does not exist, or a result is not known in time.
    """
    plans = read_plan(path, client.flags)
    checks = [_find(client, plan.check, path) for plan in plans]  # all, before anything is deleted
    code = Exit.OK
    for plan, check in zip(plans, checks, strict=True):
        status = _sweep(client, check, timeout, plan.digest)["status"]
        left = [each for each in status["findings"] if each["deletable"]]
        if status["applied"] == "done" and not left:
            show.print_message(f'Leak check "{plan.check}": deleted {_count(len(status["deleted"]))}.')
            continue
        code = Exit.FAILED
        show.print_message(f'Leak check "{plan.check}": {_describe_failure(status, left)}.')
        show.print_message(f"See what is left with: dayfly leaks{client.flags} {plan.check} --plan {path}")
    if not plans:
        show.print_message(f"{path} deletes nothing.")
    return code


def _find(client: _Checks, name: str, path: str) -> Any:
    """Return the check of a plan in the file `path`."""
    try:
        return client.get(name)
    except DayflyError as fault:
        if fault.code != Exit.NOT_FOUND:
            raise
        known = [each["name"] for each in client.list_all()]
        message = f'{path} has the plan of the leak check "{name}", which does not exist; nothing was deleted'
        raise unknown_name_error(message, name, known, f"dayfly leaks{client.flags}") from None


def _describe_failure(status: Any, left: Sequence[Any]) -> str:
    """Return why a plan was refused, or what it has not deleted."""
    if status["applied"] != "done":
        return "; ".join(filter(None, (status["applied"], status["error"])))
    reasons = "; ".join(f"{each['name']} is left: {each['reason']}" for each in left[:_MAX_SHOWN])
    more = f"; {len(left) - _MAX_SHOWN} more are left" if len(left) > _MAX_SHOWN else ""
    return f"deleted {_count(len(status['deleted']))}; {reasons}{more}"


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
