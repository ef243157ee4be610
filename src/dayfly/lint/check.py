"""All findings of one file: what `apply` would refuse, what the rules say, what shellcheck has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.compile import check_hook, check_plugin
from dayfly.lint import names, removal, secrecy, settings, wiring
from dayfly.lint.rules import REFUSED, RULES, SHELLCHECK, Finding, Rule
from dayfly.lint.sources import has_directive
from dayfly.lint.view import PluginView
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.plugin import Plugin, PluginSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dayfly.lint.sources import Source
    from dayfly.spec.errors import Path

_GROUPS = (names, removal, secrecy, wiring, settings)
"""Imported for their rules, which enter the table by themselves."""


class Shellchecked(NamedTuple):
    """Something that shellcheck says of a script: the way to the script, the line in it, its code and words."""

    keys: Path
    line: int
    code: int
    message: str


def rules() -> list[Rule]:
    """All rules, in the order of their codes."""
    return [RULES[code] for code in sorted(RULES)]


def scripts(source: Source) -> Iterator[tuple[Path, str]]:
    """The shell scripts of a document's plugins, each with the way to it."""
    for plugin in _plugins(source):
        for step in plugin.steps:
            if step.script.is_shell:
                yield step.script_keys, step.script.text


def check(source: Source, shellchecked: Iterable[Shellchecked] = ()) -> list[Finding]:
    """What is wrong with one document, in the order of its lines, without what its comments silence."""
    found = list(_refused(source))
    for plugin in _plugins(source):
        for code, rule in RULES.items():
            if rule.find is not None:
                found += [_finding(source, code, spot.keys, spot.problem, spot.line) for spot in rule.find(plugin)]
    for each in shellchecked:
        problem = f"{each.message.rstrip('.')} (SC{each.code})"
        found.append(_finding(source, SHELLCHECK, each.keys, problem, each.line))
    kept = (finding for finding, silenced in found if not silenced)
    return sorted(dict.fromkeys(kept), key=lambda each: (each.file, each.line, each.column, each.code))


def refusal(fault: SpecError) -> Iterator[Finding]:
    """A fault and the others in it, as findings."""
    for each in (fault, *fault.others):
        advice = RULES[REFUSED].advice
        yield Finding(REFUSED, each.file, each.line, each.column, each.path, each.problem, advice)


def _refused(source: Source) -> Iterator[tuple[Finding, bool]]:
    try:
        wish = documents.load(source.document)
        if isinstance(wish, Plugin):
            check_plugin(wish, source=source.document)
        elif isinstance(wish, LifecycleHook):
            check_hook(wish, source=source.document)
    except SpecError as fault:
        for each in (fault, *fault.others):
            # A variable that has no value here may have a good one when the file is applied.
            if not has_directive(source.document, each.keys):
                yield from ((finding, False) for finding in refusal(_alone(each)))


def _alone(fault: SpecError) -> SpecError:
    return SpecError(fault.problem, fault.keys, file=fault.file, line=fault.line, column=fault.column)


def _plugins(source: Source) -> Iterator[PluginView]:
    """The plugins of a document that can be read as such, whatever else is wrong with them."""
    data = source.document.data
    found: list[tuple[Any, Path]] = []
    try:
        kind = documents.classify(source.document)
    except SpecError:
        return
    if kind == "ResourcePlugin":
        found.append((data.get("spec"), ("spec",)))
    elif kind == "Sandbox":
        resources = data["spec"].get("resources")
        inline = enumerate(resources if isinstance(resources, list) else ())
        found += [
            (each.get("spec"), ("spec", "resources", at, "spec"))
            for at, each in inline
            if isinstance(each, dict) and "spec" in each
        ]
    for spec, keys in found:
        try:
            yield PluginView(msgspec.convert(spec, PluginSpec), keys)
        except msgspec.ValidationError:
            continue  # what does not fit is refused, and told as that


def _finding(source: Source, code: str, keys: Path, problem: str, line: int) -> tuple[Finding, bool]:
    place = source.place(keys, line)
    fault = source.written.error(problem, keys)
    finding = Finding(code, place.file, place.line, place.column, fault.path, problem, RULES[code].advice)
    return finding, source.silences(place, code)
