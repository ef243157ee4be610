"""Apply specs to the server, one at a time, and print the result of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.cli.output.show import print_message
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit, RefusedError
from dayfly.client.files import LoadedDocument, refusal_with_places, with_place
from dayfly.spec import documents
from dayfly.spec.leak_check import LeakCheck
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.scalars import semver
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from dayfly.cli.backends.target_server import ServerClient

_CONFLICT = 409
_NOT_FOUND = 404


def apply_one(
    client: ServerClient, wished: LoadedDocument, secrets: Any = None, recreate_within: float | None = None
) -> Any:
    """Apply one spec, print the result and return the stored object.

    Args:
        client: A client of the server.
        wished: The document.
        secrets: The secrets of a sandbox.
        recreate_within: Delete a sandbox that has failed or whose changes are not allowed, wait at most these seconds
            until it is gone, and create it again; None to keep it.

    Raises:
        DayflyError: the server rejects it. The message has the position in the file if the server names a field.
    """
    try:
        if isinstance(wished.content, Plugin):
            return _publish(client, wished.content, wished.document.file)
        if isinstance(wished.content, Workload):
            return _declare_baseline(client, wished.content)
        if isinstance(wished.content, LeakCheck):
            return _apply_check(client, wished.content)
        if recreate_within is not None:
            _delete_if_stuck(client, wished, recreate_within)
        return _apply_run(client, wished, {"secrets": secrets} if secrets else {})
    except RefusedError as fault:
        raise refusal_with_places(fault, wished.document) from None


def _publish(client: ServerClient, plugin: Plugin, file: str) -> Any:
    at = ("resource-plugins", plugin.name)
    before = _find_existing(client, *at, version=plugin.version) if plugin.readme is not None else None
    try:
        client.put(*at, body=documents.export(plugin))
    except RefusedError as fault:
        if fault.status != _CONFLICT:
            raise
        stored = client.get(*at, version=plugin.version)
        published = documents.from_wire(stored, "ResourcePlugin")
        if not isinstance(published, Plugin) or published.spec != plugin.spec:
            raise _immutable(plugin, file) from None
        print_message(f'Resource plugin "{plugin.name}@{plugin.version}" is unchanged.')
        return stored
    done = "Created" if before is None else "Changed the README of"
    print_message(f'{done} resource plugin "{plugin.name}@{plugin.version}".')
    return client.get(*at, version=plugin.version)


def _immutable(plugin: Plugin, file: str) -> DayflyError:
    if plugin.version == semver.UNVERSIONED:
        which, advice = f"default version ({plugin.version})", "add an @<semver> suffix to publish a new revision"
        example = f"{plugin.name}@0.0.1"
    else:
        which, advice = f'version "{plugin.version}"', "bump the @<semver> suffix on name to publish a new revision"
        major, minor, patch = plugin.version.partition("-")[0].partition("+")[0].split(".")
        example = f"{plugin.name}@{major}.{minor}.{int(patch) + 1}"
    message = f'resource plugin "{plugin.name}" {which} already exists with other content; versions are immutable'
    return DayflyError(
        Exit.FAILED, f"{file}: {message}", f"{advice} (e.g. {example}); compare: dayfly plugin diff {file}"
    )


def _declare_baseline(client: ServerClient, workload: Workload) -> Any:
    at = ("workloads", workload.namespace, workload.name)
    before = _find_existing(client, *at)
    stored = client.put(*at, body=documents.export(workload))
    print_message(f'{_change(before, stored)} baseline "{workload.namespace}/{workload.name}".')
    return stored


def _apply_check(client: ServerClient, check: LeakCheck) -> Any:
    at = ("leakchecks", check.name)
    before = _find_existing(client, *at)
    stored = client.put(*at, body=documents.export(check))
    done = "Created" if before is None else "Updated" if before["spec"] != stored["spec"] else "Unchanged:"
    print_message(f'{done} leak check "{check.name}" in cluster "{check.spec.cluster}".')
    return stored


def _apply_run(client: ServerClient, wished: LoadedDocument, more: dict[str, Any]) -> Any:
    at = subject.path(wished.subject)
    before = _find_existing(client, *at)
    try:
        stored = client.put(*at, body={**documents.export(wished.content), **more})
    except RefusedError as fault:
        if fault.status == _CONFLICT:
            raise DayflyError(Exit.FAILED, fault.message, f"see: dayfly why {wished.subject}{client.flags}") from None
        raise
    done, key, cluster = _change(before, stored), stored.get("routingKey", ""), stored["spec"].get("cluster")
    where = f'in cluster "{cluster}"' if cluster else "in all clusters"
    told = f" (routing key: {key})" if key else ""
    print_message(f"{done} {subject.title(wished.subject)}{told} {where}.")
    for warning in stored.get("warnings", ()):
        print_message(f"warning: {with_place(warning, wished.document)}")
    return stored


def _delete_if_stuck(client: ServerClient, wished: LoadedDocument, seconds: float) -> None:
    """Delete the sandbox of this name if it has failed or cannot change as its file requires; wait until it is gone."""
    from dayfly.cli import watch
    from dayfly.cli.output import plan_diff

    existing = _find_existing(client, *subject.path(wished.subject)) if wished.kind == "sandbox" else None
    if existing is None:
        return
    assert isinstance(wished.content, Sandbox), "the kind was checked"
    fixed = plan_diff.find_difference(plan_diff.parse_existing(existing["spec"], wished.name), wished.content).immutable
    progress = existing["progress"]
    has_failed = progress["severity"] == "failed" and progress["phase"] == "open"
    if not (fixed or has_failed):
        return
    why = f"{', '.join(fixed)} cannot be changed" if fixed else "it has failed"
    print_message(f"Recreating {subject.title(wished.subject)}, because {why}.")
    uid = client.get(*subject.path(wished.subject), "report").get("uid", "")
    client.delete(*subject.path(wished.subject))
    watch.until_gone(client, wished.subject, uid, seconds)


def _find_existing(client: ServerClient, *at: str, **query: str) -> Any:
    try:
        return client.get(*at, **query)
    except RefusedError as fault:
        if fault.status == _NOT_FOUND:
            return None
        raise


def _change(before: Any, after: Any) -> str:
    if before is None:
        return "Created"
    return "Unchanged:" if before.get("updatedAt") == after.get("updatedAt") else "Updated"
