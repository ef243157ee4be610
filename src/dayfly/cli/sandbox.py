"""`dayfly sandbox`: apply, get, list, extend, delete. What only some need is imported in them: `list` is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import extending, of_cluster, options, show
from dayfly.cli.client import Client
from dayfly.cli.exits import Exit
from dayfly.cli.nouns import Noun

if TYPE_CHECKING:
    from dayfly.spec.documents import Kind


@click.group("sandbox", cls=Noun)
def command() -> None:
    """Apply, get, list, extend and delete sandboxes (sb)."""


@command.command("apply")
@options.server
@options.files()
@options.sets
@options.secrets_file
@options.wait
@options.timeout("3m")
@options.output
def apply(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    secrets_file: str | None,
    wait: bool,
    timeout: float,
    output: str | None,
) -> int:
    """Apply the one sandbox of a file and wait until it is ready."""
    from dayfly.cli import applying, watch
    from dayfly.client import files as reading

    wished = reading.load_one(files, sets, "sandbox")
    client = Client.open()
    secrets = None
    if secrets_file is not None:
        from dayfly.cli import secret_files

        secrets = secret_files.of_wishes([wished], secrets_file, client)[wished.name]
    sandbox = applying.hand_over(client, wished, secrets)
    code = Exit.OK
    if wait:
        code, sandbox = watch.settle(client, wished.subject, sandbox, timeout)
    _print(sandbox, output)
    return code


@command.command("get")
@options.cluster
@options.named("name", "sandboxes")
@options.output
def get(name: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Show one sandbox."""
    _print(of_cluster.one(name, context, namespace), output)


@command.command("list")
@options.cluster
@options.labels
@options.output
def list_(labels: tuple[str, ...], context: str | None, namespace: str | None, output: str | None) -> None:
    """List all sandboxes, or those whose labels match."""
    found = of_cluster.every("sandboxes", labels, context, namespace)
    if output:
        show.emit(found, output)
    elif found:
        header = ("NAME", "ROUTING KEY", "DESCRIPTION", "CLUSTER", "CREATED", "STATUS")
        show.table(header, map(_row, found), elastic="DESCRIPTION")
    elif labels:
        show.talk("No sandbox has matching labels.")
    else:
        show.talk("There are no sandboxes; create one with: dayfly apply -f FILE")


@command.command("delete")
@options.named("name", "sandboxes", required=False)
@options.files(required=False)
@options.sets
@options.wait
@options.timeout("5m")
@options.cluster
def delete(
    name: str | None,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    wait: bool,
    timeout: float,
    context: str | None,
    namespace: str | None,
) -> int:
    """Delete a sandbox, by name or by its file, and wait until everything it had is gone."""
    from dayfly.cli import ending

    chosen = named(name, files, sets, "Sandbox")
    return ending.end(chosen, wait=wait, timeout=timeout, context=context, namespace=namespace)


@command.command("extend")
@options.named("name", "sandboxes")
@extending.how_long
@options.cluster
def extend(name: str, seconds: float | None, until: str | None, context: str | None, namespace: str | None) -> None:
    """Let a sandbox live longer: by default for its full time to live again, counted from now.

    This never makes its life shorter.
    """
    extending.extend(name, seconds, until, context, namespace)


def named(name: str | None, files: tuple[str, ...], sets: tuple[str, ...], kind: Kind) -> list[str]:
    """Those of a kind that are given by name or by file.

    Raises:
        UsageError: neither is, or both are.
    """
    if bool(name) == bool(files):
        raise click.UsageError("give either a name or -f FILE", click.get_current_context())
    if name:
        return [name]
    from dayfly.client import files as reading

    return reading.only_names(files, sets, kind)


def _print(sandbox: Any, output: str | None) -> None:
    if output:
        show.emit(sandbox, output)
        return
    spec, status = sandbox["spec"], sandbox["status"]
    show.facts(
        [
            ("Name", sandbox["name"]),
            ("Cluster", spec["cluster"]),
            ("Routing key", sandbox.get("routingKey", "")),
            ("Description", spec.get("description", "")),
            ("Created", f"{sandbox['createdAt']} ({show.age(sandbox['createdAt'])} ago)"),
            ("Expires", extending.expires(status)),
            ("Resources", ", ".join(_resource(resource) for resource in spec.get("resources") or [])),
            ("Status", _state(sandbox)),
            ("Message", status.get("message", "")),
        ]
    )
    if endpoints := sandbox.get("endpoints"):
        show.line()
        rows = [(each["name"], each.get("routeType", ""), each.get("url", "")) for each in endpoints]
        show.table(("SANDBOX ENDPOINT", "TYPE", "URL"), rows)


def _resource(resource: Any) -> str:
    return f"{resource['name']} ({resource.get('plugin') or 'its own steps'})"


def _row(sandbox: Any) -> tuple[str, ...]:
    spec = sandbox["spec"]
    return (
        sandbox["name"],
        sandbox.get("routingKey", ""),
        spec.get("description", ""),
        spec["cluster"],
        show.age(sandbox["createdAt"]),
        _state(sandbox),
    )


def _state(sandbox: Any) -> str:
    status = sandbox["status"]
    if status.get("ready"):
        return "Ready (Unserved)" if status.get("unserved") else "Ready"
    return str(status.get("reason") or "Not Ready")
