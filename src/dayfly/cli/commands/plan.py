"""`dayfly plan`: show what files would do. It needs a server only for plugins that are in none of the files."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from dayfly import compile as compiler
from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.backends import target_server as api
from dayfly.cli.command_classes import verb
from dayfly.cli.output import plan_diff, plan_lines, show
from dayfly.client import files as reading
from dayfly.client.address import START
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.errors import Faults
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.plugin import Plugin
from dayfly.spec.resource_pool import ResourcePool
from dayfly.spec.route_group import RouteGroup
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.scalars import semver
from dayfly.spec.unsupported_fields import LocalRouting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dayfly.cli.backends.protocol import Backend
    from dayfly.compile import CompiledPool
    from dayfly.compile.preview import CompilePreview
    from dayfly.spec.parsing.text import ParsedDocument

    Plugins = dict[tuple[str, str], Plugin]

# Shown instead of values that are generated when a sandbox is created.
_GENERATED = "drawn-at-apply"


@verb("plan")
@options.files()
@options.variables_option
@click.option("--diff", is_flag=True, help="Compare with the existing sandboxes of these names.")
@options.backend_options
@options.output
def command(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    *,
    diff: bool,
    context: str | None,
    namespace: str | None,
    output: str | None,
) -> None:
    """Show what files would do: steps in waves, values and their sources, and the deletion.

    Plugins are read from the same files, or else from the running server or the cluster.
    """
    host = functools.cache(lambda: _find_backend(context, namespace))
    find = functools.partial(_fetch_plugin, host)
    local = LocalRouting.CLUSTER if context else LocalRouting.UNKNOWN
    wishes = reading.load(files, sets, show.print_message)
    plugins = {(w.content.name, w.content.version): w.content for w in wishes if isinstance(w.content, Plugin)}
    sources = {(w.content.name, w.content.version): w.document for w in wishes if isinstance(w.content, Plugin)}
    pools = _compile_pools(wishes, plugins, find)
    found: list[_Planned] = []
    for wished in wishes:
        wish, document = wished
        if isinstance(wish, Sandbox):
            preview = _preview(wish, document, plugins, sources, find, local, pools.values())
            planned = _Planned({"sandbox": wish.name}, preview, plan_lines.sandbox_lines(wish, preview))
            found.append(_compare(planned, wish, document, plugins, host, find) if diff else planned)
        elif isinstance(wish, ResourcePool):
            found.append(_plan_pool(pools[wish.name]))
        elif isinstance(wish, LifecycleHook | RouteGroup):
            found.append(_plan_hooks(wish, document))
    if not found:
        message = f"{', '.join(files)}: contains no sandbox, pool, route group or lifecycle hook"
        raise DayflyError(Exit.USAGE, message, "add a sandbox that uses the plugin: plans are made for sandboxes")
    if output:
        show.emit([{**each.name, **msgspec.to_builtins(each.preview)} for each in found], output)
    else:
        _print(found)


class _Planned(NamedTuple):
    """The plan of one document: its name by kind, as data, and as lines."""

    name: dict[str, Any]
    preview: CompilePreview
    lines: Iterable[str]
    is_difference: bool = False


def _print(found: list[_Planned]) -> None:
    for number, each in enumerate(found):
        if number:
            show.print_line()
        for line in each.lines:
            (show.print_difference if each.is_difference else show.print_block)(line)
        for warning in each.preview.warnings:
            show.print_message(f"warning: {warning}")


def _compare(
    planned: _Planned,
    wish: Sandbox,
    document: ParsedDocument,
    plugins: Plugins,
    host: Callable[[], Backend | None],
    find: Callable[[str, str], Plugin],
) -> _Planned:
    """Compare the plan of a sandbox's file with the existing sandbox of that name."""
    backend = host()
    if backend is None:
        raise DayflyError(Exit.NO_SERVER, "no server is running, so there is no sandbox to compare with", START)
    existing = backend.sandbox(wish.name)
    if not existing.spec:
        raise DayflyError(Exit.NOT_FOUND, f'"{wish.name}" has ended', "see the plan of the file without --diff")
    now = plan_diff.parse_existing(existing.spec, wish.name)
    preview = _preview(now, document, plugins, {}, find)
    between = plan_diff.find_difference(now, wish)
    lines = plan_diff.diff_lines(plan_lines.sandbox_lines(now, preview), planned.lines)
    data = {**planned.name, "changes": between.changes, "refused": between.immutable}
    return _Planned(data, planned.preview, [*lines, "", between.sentence(wish.name)], is_difference=True)


def _plan_hooks(wish: LifecycleHook | RouteGroup, document: ParsedDocument) -> _Planned:
    """Return the plan of a document that has hooks and no workloads."""
    if isinstance(wish, RouteGroup):
        preview = compiler.preview_hook(compiler.check_group(wish, source=document))
        return _Planned({"routeGroup": wish.name}, preview, plan_lines.route_group_lines(wish, preview))
    made = compiler.check_hook(wish, source=document)
    preview = compiler.preview_hook(made, compiler.hook_warnings(wish, source=document))
    return _Planned({"hook": wish.name}, preview, plan_lines.lifecycle_hook_lines(wish, preview))


def _preview(
    sandbox: Sandbox,
    document: ParsedDocument,
    plugins: Plugins,
    sources: dict[tuple[str, str], ParsedDocument],
    find: Callable[[str, str], Plugin],
    local: LocalRouting = LocalRouting.UNKNOWN,
    pools: Iterable[CompiledPool] = (),
) -> CompilePreview:
    known = _with_plugins(plugins, compiler.required_plugins(sandbox), find)
    compiled = compiler.compile(
        sandbox,
        known,
        uid=_GENERATED,
        routing_key=_GENERATED,
        local=local,
        pools=tuple(pools),
        source=document,
        plugin_sources=sources,
    )
    return compiler.preview(compiled)


def _with_plugins(plugins: Plugins, required: Iterable[tuple[str, str]], find: Callable[[str, str], Plugin]) -> Plugins:
    """Return the plugins of the files, the required ones that are in no file, and the parents of all of them."""
    known = dict(plugins)
    for name, version in required:
        if not any(bare == name and version in ("", semver.LATEST, have) for bare, have in known):
            plugin = find(name, version)
            known[plugin.name, plugin.version] = plugin
    return compiler.add_parents(known, find)


def _compile_pools(
    wishes: Iterable[reading.LoadedDocument], plugins: Plugins, find: Callable[[str, str], Plugin]
) -> dict[str, CompiledPool]:
    """Return the compiled pools of the files by name.

    Raises:
        SpecError: A pool is refused, or has the plugin and params of another one.
    """
    made: dict[str, CompiledPool] = {}
    faults = Faults()
    for wish, document in wishes:
        if isinstance(wish, ResourcePool):
            with faults:
                known = _with_plugins(plugins, [compiler.pool_plugin(wish)], find)
                plugin = compiler.select_plugin(wish.spec.plugin, known, ("spec", "plugin"))
                pool = compiler.compile_pool(wish, plugin, parents=known, source=document)
                compiler.check_duplicate(pool, made.values(), source=document)
                made[wish.name] = pool
    faults.settle()
    return made


def _plan_pool(pool: CompiledPool) -> _Planned:
    preview = compiler.preview_pool(pool)
    return _Planned({"pool": pool.name}, preview, plan_lines.pool_lines(pool, preview))


def _find_backend(context: str | None, namespace: str | None) -> Backend | None:
    """Return the backend for plugins that are in no file; None if no server runs."""
    return hosts.find(context, namespace) if context or namespace or api.find() else None


def _fetch_plugin(host: Callable[[], Backend | None], name: str, version: str) -> Plugin:
    wanted = f"{name}@{version}" if version else name
    found = host()
    if found is None:
        message = f'the plugin "{wanted}" is in none of these files, and no server is running'
        raise DayflyError(Exit.NOT_FOUND, message, "add its file with -f, or start the server with: dayfly up")
    try:
        return found.plugin(name, version)
    except DayflyError as fault:
        if fault.code != Exit.NOT_FOUND:
            raise
    where, see = (
        ("in the cluster", "kubectl get resourceplugins") if found.flags else ("on the server", "dayfly plugin list -A")
    )
    message = f'the plugin "{wanted}" is neither in these files nor {where}'
    raise DayflyError(Exit.NOT_FOUND, message, f"add its file with -f, or see: {see}")
