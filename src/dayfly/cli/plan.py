"""`dayfly plan`: what some files would do. It needs no server, unless a plugin is in none of the files."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import click
import msgspec

from dayfly import compile as compiler
from dayfly.cli import client as api
from dayfly.cli import files as reading
from dayfly.cli import hosts, options, show
from dayfly.cli.exits import CliError, Exit
from dayfly.spec import semver
from dayfly.spec.lifecycle import Event
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dayfly.cli.port import Host
    from dayfly.compile.preview import EnvLine, InputLine, Preview, StepLine
    from dayfly.spec.text import Document

    Plugins = dict[tuple[str, str], Plugin]

# Drawn when a sandbox is made; what a plan shows instead.
_NOT_YET = "drawn-at-apply"


@click.command("plan")
@options.files()
@options.sets
@options.cluster
@options.output
def command(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    context: str | None,
    namespace: str | None,
    output: str | None,
) -> None:
    """Show what sandboxes in files would do: steps in waves, values and their sources, forks, and the way back.

    Plugins are taken from the same files, else from the running server or the cluster.
    """
    find = functools.partial(_fetched, functools.cache(lambda: _host(context, namespace)))
    wishes = reading.load(files, sets)
    plugins = {(w.wish.name, w.wish.version): w.wish for w in wishes if isinstance(w.wish, Plugin)}
    sources = {(w.wish.name, w.wish.version): w.document for w in wishes if isinstance(w.wish, Plugin)}
    sandboxes = [(w.wish, w.document) for w in wishes if isinstance(w.wish, Sandbox)]
    if not sandboxes:
        message = f"{', '.join(files)}: it contains no sandbox"
        raise CliError(Exit.USAGE, message, "a plan is made for a sandbox; add one that uses the plugin")
    previews = [(sandbox, _preview(sandbox, document, plugins, sources, find)) for sandbox, document in sandboxes]
    if output:
        data = [{"sandbox": sandbox.name, **msgspec.to_builtins(preview)} for sandbox, preview in previews]
        show.emit(data, output)
        return
    for number, (sandbox, preview) in enumerate(previews):
        if number:
            show.line()
        for line in _lines(sandbox, preview):
            show.block(line)
        for warning in preview.warnings:
            show.talk(f"warning: {warning}")


def _preview(
    sandbox: Sandbox,
    document: Document,
    plugins: Plugins,
    sources: dict[tuple[str, str], Document],
    find: Callable[[str, str], Plugin],
) -> Preview:
    known = dict(plugins)
    for name, version in compiler.missing(sandbox):
        if not any(bare == name and version in ("", semver.LATEST, have) for bare, have in known):
            plugin = find(name, version)
            known[plugin.name, plugin.version] = plugin
    compiled = compiler.compile(
        sandbox, known, uid=_NOT_YET, routing_key=_NOT_YET, source=document, plugin_sources=sources
    )
    return compiler.preview(compiled)


def _host(context: str | None, namespace: str | None) -> Host | None:
    """Who may have the plugins that are in no file; None if no server runs."""
    return hosts.find(context, namespace) if context or namespace or api.find() else None


def _fetched(host: Callable[[], Host | None], name: str, version: str) -> Plugin:
    wanted = f"{name}@{version}" if version else name
    found = host()
    if found is None:
        message = f'the plugin "{wanted}" is in none of these files, and no server is running that might have it'
        raise CliError(Exit.NOT_FOUND, message, "add its file with -f, or start the server with: dayfly up")
    try:
        return found.plugin(name, version)
    except CliError as fault:
        if fault.code != Exit.NOT_FOUND:
            raise
    where, see = (
        ("in the cluster", "kubectl get resourceplugins") if found.flags else ("on the server", "dayfly plugin list -A")
    )
    message = f'the plugin "{wanted}" is neither in these files nor {where}'
    raise CliError(Exit.NOT_FOUND, message, f"add its file with -f, or see: {see}")


def _lines(sandbox: Sandbox, preview: Preview) -> Iterator[str]:
    yield f'Sandbox "{sandbox.name}" in cluster "{sandbox.spec.cluster}"'
    yield from _waves(preview, Event.PRE_START)
    yield from _forks(preview)
    yield from _waves(preview, Event.POST_START)
    yield from _deletion(preview)


def _waves(preview: Preview, wanted: Event) -> Iterator[str]:
    for event in preview.events:
        for number, wave in enumerate(event.waves if event.event == wanted else (), 1):
            yield f"\n{wanted}, wave {number}"
            for step in wave:
                yield from _step(step)


def _deletion(preview: Preview) -> Iterator[str]:
    steps = {step.id: step for event in preview.events for wave in event.waves for step in wave}
    for number, stage in enumerate(preview.deletion, 1):
        yield f"\ndelete, stage {number}: {stage.what}"
        for unit in stage.units:
            if unit in steps:
                yield from _step(steps[unit])
            else:
                yield f"  {unit} stops"
    if not preview.deletion:
        yield "\ndelete: nothing to run"


def _forks(preview: Preview) -> Iterator[str]:
    if preview.forks:
        yield "\nstart"
    for fork in preview.forks:
        yield f"  {fork.id} ({fork.kind})"
        yield from (f"    image {image}" for image in fork.images)
        yield from (f"    {_env(change)}" for change in fork.env)
        if fork.patch:
            yield f"    {fork.patch} patch"


def _env(change: EnvLine) -> str:
    where = f" in {change.container}" if change.container else ""
    if change.delete:
        return f"${change.name}{where} is removed"
    return f"${change.name}{where} = {_source(change.source, change.value, change.sensitive)}"


def _step(step: StepLine) -> Iterator[str]:
    image = f", image {step.image}" if step.image else ""
    yield f"  {step.id} ({step.tries}{image})"
    if step.request:
        yield f"    {step.request}"
    for each in step.inputs:
        yield f"    {_targets(each)} = {_source(each.source, each.value, each.sensitive)}"
    for out in step.outputs:
        yield f"    {out.path} -> {out.name}{' (sensitive)' if out.sensitive else ''}"


def _targets(line: InputLine) -> str:
    found = [f"${line.env}"] if line.env else []
    return " and ".join([*found, line.path] if line.path else found) or line.name


def _source(source: str, value: str | None, sensitive: bool) -> str:
    if source:
        return f"{source}{' (sensitive)' if sensitive else ''}"
    return show.cut(_quoted(value), 80) if value is not None else "nothing: no value is given"


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
