"""`dayfly plugin`: apply, get, list, delete; init and lint, for whoever writes one."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import click

from dayfly.cli import options
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.options import Noun
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit, not_there
from dayfly.spec.plugin import Plugin
from dayfly.spec.scalars import semver


@click.group("plugin", cls=Noun)
def command() -> None:
    """Start, check, test, apply, get, list and delete resource plugins (rp). Published versions never change."""


@command.command("apply")
@options.server
@options.files()
@options.sets
@options.output
def apply(files: tuple[str, ...], sets: tuple[str, ...], output: str | None) -> None:
    """Publish the one plugin of a file; the same version with the same content is left as it is."""
    from dayfly.cli import apply_spec
    from dayfly.client import files as reading

    wished = reading.load_one(files, sets, "plugin")
    stored = apply_spec.hand_over(ServerClient.open(), wished)
    if output:
        show.emit(stored, output)


@command.command("get")
@options.server
@options.named("name", "plugins", metavar="NAME[@VERSION]")
@click.option("--readme", is_flag=True, help="Print its README alone.")
@options.output
def get(name: str, output: str | None, *, readme: bool) -> None:
    """Show one version of a plugin, the highest if none is named."""
    if readme and output:
        raise click.UsageError("give either --readme or -o; -o has the README as well", click.get_current_context())
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
    show.facts(
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
        show.line()
        rows = [(user["name"], user["sandbox"], user["cluster"]) for user in users]
        show.table(("RESOURCE NAME", "SANDBOX", "CLUSTER"), rows)


@command.command("list")
@options.server
@click.option("-A", "--all-versions", is_flag=True, help="Every version, not only the highest.")
@options.output
def list_(all_versions: bool, output: str | None) -> None:
    """List plugins."""
    found = ServerClient.open().get("resource-plugins", version="all" if all_versions else "latest")
    if output:
        show.emit(found, output)
    elif found:
        rows = [(*semver.split_name(each["name"]), show.age(each["createdAt"]), _in_use(each)) for each in found]
        show.table(("NAME", "VERSION", "CREATED", "STATUS"), rows)
    else:
        show.talk("There are no plugins; publish one with: dayfly plugin apply -f FILE")


@command.command("delete")
@options.server
@options.named("name", "plugins", metavar="NAME[@VERSION]", required=False)
@options.files(required=False)
@options.sets
def delete(name: str | None, files: tuple[str, ...], sets: tuple[str, ...]) -> None:
    """Delete one version of a plugin, the highest if none is named. One that a sandbox uses stays."""
    if bool(name) == bool(files):
        raise click.UsageError("give either a name or -f FILE", click.get_current_context())
    if name:
        chosen = [name]
    else:
        from dayfly.client import files as reading

        chosen = reading.only_names(files, sets, "ResourcePlugin")
    client = ServerClient.open()
    for each in chosen:
        bare, version = semver.split_reference(each)
        versions = [semver.split_name(one["name"])[1] for one in client.get("resource-plugins", bare, "versions")]
        if not versions:
            message = f'resource plugin "{bare}" has no published versions to delete'
            raise _unknown(client, bare, message)
        version = versions[0] if version == semver.LATEST else version
        _delete(client, bare, version)
        left = len(versions) - 1
        remain = f"; {left} other version{'s remain' if left > 1 else ' remains'}" if left else ""
        show.talk(f'Deleted resource plugin "{bare}@{version}"{remain}.')


@command.command("lint")
@click.argument("paths", metavar="[FILE|DIR|-]...", nargs=-1)
@options.files(required=False)
@options.sets
@click.option("--select", multiple=True, metavar="CODES", help="Only these rules; DF2 means all that begin so.")
@click.option("--ignore", multiple=True, metavar="CODES", help="All rules but these.")
@click.option("-o", "--output", type=click.Choice(["json", "sarif"]), help="Print data instead of text.")
@click.option("--explain", metavar="CODE", help="Say what a rule means, and look at nothing.")
def lint(
    paths: tuple[str, ...],
    files: tuple[str, ...],
    sets: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    output: str | None,
    explain: str | None,
) -> int:
    """Find mistakes in plugins: what apply would refuse, and what you would regret later.

    It reports all mistakes at once and needs no server. Without a file, it reads the plugins in this folder. The exit
    code is 1 if anything was found. The comment "# dayfly: ignore=CODE" turns a rule off for its line or the next one.
    """
    from dayfly.cli import linter

    if explain:
        linter.explain(explain)
        return Exit.OK
    return linter.report((*paths, *files) or (".",), sets, select, ignore, output)


@command.command("test")
@options.files()
@options.sets
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A param of the plugin. Repeatable.")
@options.secrets_file
@click.option("--only", default="", metavar="WORDS", help="Play only the lives with these words in their names.")
@options.timeout("1m")
@options.allow_webhook
@options.within
@click.option("--publish", is_flag=True, help="Publish the plugin for the test, which takes a publisher's rights.")
@click.option("-o", "--output", type=click.Choice(["json", "junit"]), help="Print data instead of text.")
def test(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    params: tuple[str, ...],
    secrets_file: str | None,
    only: str,
    timeout: float,
    webhooks: tuple[str, ...],
    context: str | None,
    namespace: str | None,
    *,
    publish: bool,
    output: str | None,
) -> int:
    """Play many lives of a plugin, in each of which something goes wrong, and report what is left behind.

    Each step is killed at its start, in its middle and at its end. The sandbox is deleted while a step is running.
    Outputs are lost. Delete steps run twice. Two sandboxes exist at once. Params are missing, very long or full of
    quotes. The plugin's inventory reports what is left. --timeout limits each wait. The exit code is 1 after a finding.

    Without --context, everything runs on this machine, with a server of its own.
    """
    from dayfly.cli.plugin_test import session
    from dayfly.cli.temporary_spec import params_of
    from dayfly.client import files as reading

    plugin = reading.load_one(files, sets, "plugin").wish
    assert isinstance(plugin, Plugin), "asked for by its kind"
    given = params_of(plugin, params)
    if context is None and namespace is None and not publish:
        from dayfly.cli import secret_files
        from dayfly.cli.plugin_test import local_host

        bench = local_host.bench(plugin, timeout, webhooks, secret_files.given_to(plugin, secrets_file))
        return session.play(plugin, given, bench, only=only, output=output)
    bench = _in_cluster(plugin, context, namespace, timeout, publish=publish)
    return session.play(plugin, given, bench, only=only, output=output)


def _in_cluster(plugin: Plugin, context: str | None, namespace: str | None, timeout: float, *, publish: bool) -> Any:
    """A place in a cluster where a plugin is tested: a context manager of `session.Bench`."""
    from dayfly.cli.backends import hosts

    if context is None:
        if publish:
            raise DayflyError(Exit.USAGE, "--publish is for a cluster", "name it too, with --context NAME")
        raise hosts.no_cluster()
    if secrets := plugin.spec.secrets():
        from dayfly.plan.messages import secrets_not_available

        raise DayflyError(Exit.USAGE, secrets_not_available(tuple(sorted(secrets))), "leave --context out")
    cluster = hosts.cluster(context, namespace)
    from dayfly.cli.plugin_test import cluster_host

    return cluster_host.bench(plugin, cluster, timeout, publish=publish)


@command.command("init")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--from", "example", metavar="NAME", help="Copy this example of the gallery.")
def init(folder: str, example: str | None) -> None:
    """Start a plugin: make a new folder with a plugin, a sandbox, a README and a test that passes.

    The plugin is named after DIR. Existing files are never changed.
    """
    from dayfly.cli import scaffold

    scaffold.begin(folder, example)


def _print_readme(plugin: Any) -> None:
    told = plugin.get("readme", "")
    if not told:
        message = f'resource plugin "{plugin["name"]}" has no README'
        raise DayflyError(Exit.NOT_FOUND, message, "put a README.md beside its plugin.yaml and apply that again")
    show.block(told.removesuffix("\n"))


def _params(spec: Any) -> list[str]:
    """What a sandbox may give, as `PluginSpec.params` has it: this verb reads the plugin as it came."""
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
            raise _unknown(client, bare, fault.message) from None
        raise


def _unknown(client: ServerClient, bare: str, message: str) -> DayflyError:
    known: list[str] = []
    with contextlib.suppress(DayflyError):
        every = [semver.split_name(each["name"]) for each in client.get("resource-plugins", version="all")]
        versions = [have for name, have in every if name == bare]
        if versions:
            return DayflyError(Exit.NOT_FOUND, message, f"published: {', '.join(versions)}")
        known = [name for name, _ in every]
    return not_there(message, bare, known, "dayfly plugin list --all-versions")


def _delete(client: ServerClient, bare: str, version: str) -> None:
    try:
        client.delete("resource-plugins", bare, version=version)
    except DayflyError as fault:
        if "in use" not in fault.message:
            raise
        users = client.get("resource-plugins", bare, version=version)["status"].get("resources") or []
        names = ", ".join(sorted({user["sandbox"] for user in users})) or "outside the scope of your key"
        message = f"resource plugin {bare}@{version} is still referenced by sandbox(es): {names}"
        raise DayflyError(Exit.FAILED, message, "delete them first, with: dayfly sandbox delete NAME") from None


def _in_use(plugin: Any) -> str:
    count = len(plugin["status"].get("resources") or [])
    return f"{count} resource{'' if count == 1 else 's'}"
