"""`dayfly plugin`: apply, get, list and delete plugins; init, lint and test for authors."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import installed, options
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit, unknown_name_error
from dayfly.spec.plugin import Plugin
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from dayfly.cli.backends.cluster import ClusterBackend


@click.group("plugin", cls=NounGroup)
def command() -> None:
    """Start, check, test, apply, get, list and delete resource plugins (rp). Published versions never change."""


@command.command("apply")
@options.server
@options.files()
@options.variables_option
@options.output
def apply(files: tuple[str, ...], sets: tuple[str, ...], output: str | None) -> None:
    """Publish the plugin in a file. The same version with the same content is not changed."""
    from dayfly.cli import apply_spec
    from dayfly.client import files as reading

    wished = reading.load_one(files, sets, "plugin", show.print_message)
    stored = apply_spec.apply_one(ServerClient.open(), wished)
    if output:
        show.emit(stored, output)


@command.command("get")
@options.server
@options.name_argument("name", "plugins", metavar="NAME[@VERSION]")
@click.option("--readme", is_flag=True, help="Only print its README.")
@options.output
def get(name: str, output: str | None, *, readme: bool) -> None:
    """Show a version of a plugin, by default the highest."""
    if readme and output:
        raise click.UsageError("use either --readme or -o, which includes the README", click.get_current_context())
    bare, version = semver.split_reference(name)
    plugin = _find(ServerClient.open(), bare, version)
    if readme:
        _print_readme(plugin)
        return
    if output:
        show.emit(plugin, output)
        return
    spec = plugin["spec"]
    bare, version = semver.split_name(plugin["name"])
    show.print_facts(
        [
            ("Name", bare),
            ("Version", version),
            ("Description", spec.get("description", "")),
            ("Created", f"{plugin['createdAt']} ({show.age(plugin['createdAt'])} ago)"),
            ("Image", (spec.get("runner") or {}).get("image", "")),
            ("Params", ", ".join(_params(spec))),
            ("Create", ", ".join(step["name"] for step in spec.get("create") or [])),
            ("Delete", ", ".join(step["name"] for step in spec.get("delete") or [])),
            ("README", f"see: dayfly plugin get {name} --readme" if plugin.get("readme") else ""),
            ("Status", _in_use(plugin)),
        ]
    )
    if users := plugin["status"].get("resources"):
        show.print_line()
        rows = [(user["name"], user["sandbox"], user["cluster"]) for user in users]
        show.print_table(("RESOURCE NAME", "SANDBOX", "CLUSTER"), rows)


@command.command("list")
@options.server
@click.option("-A", "--all-versions", is_flag=True, help="List all versions, not only the highest.")
@options.list_output
def list_(all_versions: bool, output: str | None) -> None:
    """List plugins."""
    found = ServerClient.open().get("resource-plugins", version="all" if all_versions else "latest")
    if output:
        show.emit(found, output)
    elif found:
        rows = [(*semver.split_name(each["name"]), show.age(each["createdAt"]), _in_use(each)) for each in found]
        show.print_table(("NAME", "VERSION", "CREATED", "STATUS"), rows)
    else:
        show.print_message("There are no plugins; publish one with: dayfly plugin apply -f FILE")


@command.command("delete")
@options.server
@options.name_argument("name", "plugins", metavar="NAME[@VERSION]", required=False)
@options.files(required=False)
@options.variables_option
def delete(name: str | None, files: tuple[str, ...], sets: tuple[str, ...]) -> None:
    """Delete a version of a plugin, by default the highest. A version that sandboxes use is not deleted."""
    if bool(name) == bool(files):
        raise click.UsageError("give either a name or -f FILE", click.get_current_context())
    if name:
        chosen = [name]
    else:
        from dayfly.client import files as reading

        chosen = reading.read_names(files, sets, "ResourcePlugin")
    client = ServerClient.open()
    for each in chosen:
        bare, version = semver.split_reference(each)
        versions = [semver.split_name(one["name"])[1] for one in client.get("resource-plugins", bare, "versions")]
        if not versions:
            message = f'resource plugin "{bare}" has no published versions to delete'
            raise _not_found_error(client, bare, message)
        version = versions[0] if version == semver.LATEST else version
        if version not in versions:
            message = f'resource plugin "{bare}" version {version} not found'
            raise DayflyError(Exit.NOT_FOUND, message, f"published: {', '.join(versions)}")
        _delete(client, bare, version)
        left = len(versions) - 1
        remain = f"; {left} other version{'s remain' if left > 1 else ' remains'}" if left else ""
        show.print_message(f'Deleted resource plugin "{bare}@{version}"{remain}.')


@command.command("lint")
@click.argument("paths", metavar="[FILE|DIR|-]...", nargs=-1)
@options.files(required=False)
@options.variables_option
@click.option(
    "--select", multiple=True, metavar="CODES", help="Use only these rules. A prefix such as DF2 selects several."
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Do not use these rules.")
@click.option("-o", "--output", type=click.Choice(["json", "sarif"]), help="Print data instead of text.")
@click.option("--explain", metavar="CODE", help="Only explain this rule.")
def lint(
    paths: tuple[str, ...],
    files: tuple[str, ...],
    sets: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    output: str | None,
    explain: str | None,
) -> int:
    """Find mistakes in plugins: what apply would reject, and what causes trouble later.

    The command reports all mistakes at once and needs no server. Without a file, it reads the plugins in this folder.
    The exit code is 1 after a finding. The comment "# dayfly: ignore=CODE" disables a rule in its line or the next one.
    """
    from dayfly.cli import linter

    if explain:
        linter.explain(explain)
        return Exit.OK
    return linter.report((*paths, *files) or (".",), sets, select, ignore, output)


_paths = click.argument("paths", metavar="[FILE]...", nargs=-1)
_params_option = click.option(
    "-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A param of the plugin. Repeatable."
)


def _load_plugin(paths: tuple[str, ...], files: tuple[str, ...], sets: tuple[str, ...]) -> Plugin:
    """Return the only plugin of the files."""
    from dayfly.client import files as reading

    if not (paths or files):
        raise click.UsageError("give the file of a plugin", click.get_current_context())
    plugin = reading.load_one((*paths, *files), sets, "plugin", show.print_message).content
    assert isinstance(plugin, Plugin), "the kind is an argument"
    return plugin


@command.command("plan")
@_paths
@options.files(required=False)
@options.variables_option
@_params_option
@options.output
def plan(
    paths: tuple[str, ...], files: tuple[str, ...], sets: tuple[str, ...], params: tuple[str, ...], output: str | None
) -> None:
    """Show the steps of a plugin in the order in which they run, with their inputs and outputs. It needs no server."""
    from dayfly.cli import plugin_preview
    from dayfly.cli.temporary_spec import pairs

    plugin_preview.print_plan(_load_plugin(paths, files, sets), dict(pairs("-p", params)), output)


@command.command("diff")
@options.server
@_paths
@options.files(required=False)
@options.variables_option
def diff(paths: tuple[str, ...], files: tuple[str, ...], sets: tuple[str, ...]) -> int:
    """Compare a plugin with its published version, or with the highest one if the version is new.

    The exit code is 1 if they differ.
    """
    from dayfly.cli import plugin_preview

    differs = plugin_preview.print_difference(ServerClient.open(), _load_plugin(paths, files, sets))
    return Exit.FAILED if differs else Exit.OK


@command.command("test")
@_paths
@options.files(required=False)
@options.variables_option
@_params_option
@options.param_files
@options.secrets_file
@click.option("--only", multiple=True, metavar="TEXT", help="Run only scenarios whose names contain it. Repeatable.")
@click.option("--skip", multiple=True, metavar="TEXT", help="Skip scenarios whose names contain it. Repeatable.")
@click.option("--keep-going", is_flag=True, help="Continue if the plugin does not work even without a fault.")
@click.option("-x", "--fail-fast", is_flag=True, help="Stop after the first finding.")
@click.option(
    "-j", "--parallel", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N",
    help="The number of scenarios that run at the same time.",
)  # fmt: skip
@options.timeout("1m")
@options.allow_webhook
@options.cluster_options
@click.option("--publish", is_flag=True, help="Publish the plugin for the test, which needs the right to publish.")
@click.option("-o", "--output", type=click.Choice(["json", "junit"]), help="Print data instead of text.")
def test(
    paths: tuple[str, ...],
    files: tuple[str, ...],
    sets: tuple[str, ...],
    params: tuple[str, ...],
    param_files: tuple[str, ...],
    secrets_file: str | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    parallel: int,
    timeout: float,
    webhooks: tuple[str, ...],
    context: str | None,
    namespace: str | None,
    *,
    keep_going: bool,
    fail_fast: bool,
    publish: bool,
    output: str | None,
) -> int:
    """Run many scenarios of a plugin, each with one fault, and report what is left behind.

    Each step is killed at its start, in its middle and at its end. The sandbox is deleted while a step is running.
    Outputs are lost. Delete steps run twice. Two sandboxes exist at once. Params are missing, very long or full of
    quotes. The plugin's inventory reports what is left. --timeout limits each wait. The exit code is 1 after a finding.

    Without --context, everything runs on this machine with a separate server. There, a plugin with a shared parent is
    tested with the files of its parents.
    """
    from dayfly.cli.plugin_test import session, shared_parents
    from dayfly.cli.temporary_spec import plugin_params

    if not (paths or files):
        raise click.UsageError("give the file of a plugin", click.get_current_context())
    plugin, parents = shared_parents.load((*paths, *files), sets)
    if keep_going and fail_fast:
        raise click.UsageError("use either --keep-going or --fail-fast", click.get_current_context())
    chosen = session.Selection(only, skip, keep_going=keep_going, fail_fast=fail_fast)
    given = plugin_params(plugin, params, param_files)
    if context is None and namespace is None and not publish:
        from dayfly.cli import secret_files

        installed.require_linux()
        from dayfly.cli.plugin_test import local_host

        secrets = secret_files.choose_for_plugin(plugin, secrets_file)
        workers = local_host.start_workers(plugin, given, timeout, webhooks, secrets, parents, parallel)
    else:
        clusters = _connect_for_test(plugin, context, namespace, parallel, publish=publish)
        from dayfly.cli.plugin_test import cluster_host

        workers = cluster_host.use_workers(plugin, clusters, timeout, publish=publish)
    return session.run_scenarios(plugin, given, workers, chosen=chosen, output=output)


def _connect_for_test(
    plugin: Plugin, context: str | None, namespace: str | None, count: int, *, publish: bool
) -> list[ClusterBackend]:
    """Return connections to a cluster in which the plugin can be tested, each for one thread."""
    from dayfly.cli.backends import hosts

    if context is None:
        if publish:
            raise DayflyError(Exit.USAGE, "--publish needs a cluster", "add --context NAME")
        raise hosts.namespace_without_cluster()
    if plugin.spec.parent is not None:
        message = f"{plugin.wire_name} has a shared parent, and a test in a cluster cannot create it"
        raise DayflyError(Exit.USAGE, message, "remove --context, or test the plugin with a sandbox")
    if secrets := plugin.spec.secrets():
        from dayfly.plan.messages import secrets_not_available

        raise DayflyError(Exit.USAGE, secrets_not_available(tuple(sorted(secrets))), "remove --context")
    return [hosts.cluster(context, namespace) for _ in range(count)]


@command.command("init")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--from", "example", metavar="NAME", help="Copy this example of the gallery.")
def init(folder: str, example: str | None) -> None:
    """Start a plugin: create a folder with a plugin, a sandbox, a README and a test that passes.

    The plugin gets the name of DIR. Existing files are never changed.
    """
    from dayfly.cli import scaffold

    scaffold.create(folder, example)


def _print_readme(plugin: Any) -> None:
    text = plugin.get("readme", "")
    if not text:
        message = f'resource plugin "{plugin["name"]}" has no README'
        raise DayflyError(Exit.NOT_FOUND, message, "add a README.md next to its plugin.yaml and apply it again")
    show.print_block(text.removesuffix("\n"))


def _params(spec: Any) -> list[str]:
    """Return the params as text. This function reads JSON, where `PluginSpec.params` needs the typed spec."""
    found: dict[str, str] = {}
    for wanted in (each for event in ("create", "delete") for step in spec.get(event) or [] for each in step["inputs"]):
        if wanted.get("valueFromSandbox"):
            rule = next((word for word in ("required", "secret") if wanted.get(word)), "")
            if "default" in wanted:
                rule = f"default {json.dumps(wanted['default'], ensure_ascii=False)}"
            found[wanted["name"]] = rule or found.get(wanted["name"], "")
    return [f"{name} ({rule})" if rule else name for name, rule in found.items()]


def _find(client: ServerClient, bare: str, version: str) -> Any:
    try:
        return client.get("resource-plugins", bare, version=version)
    except DayflyError as fault:
        if fault.code == Exit.NOT_FOUND:
            raise _not_found_error(client, bare, fault.message) from None
        raise


def _not_found_error(client: ServerClient, bare: str, message: str) -> DayflyError:
    known: list[str] = []
    with contextlib.suppress(DayflyError):
        every = [semver.split_name(each["name"]) for each in client.get("resource-plugins", version="all")]
        versions = [have for name, have in every if name == bare]
        if versions:
            return DayflyError(Exit.NOT_FOUND, message, f"published: {', '.join(versions)}")
        known = [name for name, _ in every]
    return unknown_name_error(message, bare, known, "dayfly plugin list --all-versions")


def _delete(client: ServerClient, bare: str, version: str) -> None:
    try:
        client.delete("resource-plugins", bare, version=version)
    except DayflyError as fault:
        if "in use by pool" in fault.message:
            in_use = fault.message.partition(";")[0]
            raise DayflyError(Exit.FAILED, in_use, "delete them first with: dayfly pool delete NAME") from None
        if "in use" not in fault.message:
            raise
        users = client.get("resource-plugins", bare, version=version)["status"].get("resources") or []
        names = ", ".join(sorted({user["sandbox"] for user in users})) or "outside the scope of your key"
        message = f"resource plugin {bare}@{version} is still referenced by sandbox(es): {names}"
        raise DayflyError(Exit.FAILED, message, "delete them first with: dayfly sandbox delete NAME") from None


def _in_use(plugin: Any) -> str:
    count = len(plugin["status"].get("resources") or [])
    return f"{count} resource{'' if count == 1 else 's'}"
