"""The findings of one document: refusals of `apply`, findings of the rules, and findings of shellcheck."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.compile import check_hook, check_plugin, check_steps
from dayfly.lint import delete_rules, input_rules, name_rules, parent_rules, pool_rules, script_rules, secret_rules
from dayfly.lint.plugin_view import PluginView
from dayfly.lint.rules import REFUSED, RULES, SHELLCHECK, Finding, Rule
from dayfly.lint.sources import has_directive
from dayfly.spec import documents
from dayfly.spec.errors import Faults, SpecError
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.parsing.convert import repair
from dayfly.spec.plugin import Plugin, PluginSpec, check_plugin_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dayfly.lint.sources import Source
    from dayfly.spec.errors import Path

_RULE_MODULES = (name_rules, delete_rules, secret_rules, input_rules, script_rules, pool_rules, parent_rules)
"""The import of these modules registers their rules."""


class ShellcheckFinding(NamedTuple):
    """A finding of shellcheck: the path to the script, the line in it, its code and text."""

    keys: Path
    line: int
    code: int
    message: str


def rules() -> list[Rule]:
    """Return all rules in the order of their codes."""
    return [RULES[code] for code in sorted(RULES)]


def scripts(source: Source) -> Iterator[tuple[Path, str]]:
    """Return the shell scripts of a document's plugins, each with its path."""
    for plugin in _plugins(source):
        for step in plugin.steps:
            if step.script.is_shell:
                yield step.script_keys, step.script.text


def check(source: Source, shellchecked: Iterable[ShellcheckFinding] = ()) -> list[Finding]:
    """Return the findings for one document, in line order, without those that a comment silences."""
    found = [(finding, False) for fault in _faults(source) for finding in fault_findings(fault)]
    for plugin, unreadable in _read_plugins(source):
        for code, rule in RULES.items():
            if rule.find is not None:
                spots = (spot for spot in rule.find(plugin) if not _is_unreadable(spot.keys, unreadable))
                found += [_finding(source, code, spot.keys, spot.problem, spot.line) for spot in spots]
    for each in shellchecked:
        problem = f"{each.message.rstrip('.')} (SC{each.code})"
        found.append(_finding(source, SHELLCHECK, each.keys, problem, each.line))
    kept = (finding for finding, silenced in found if not silenced)
    return sorted(dict.fromkeys(kept), key=lambda each: (each.file, each.line, each.column, each.code))


def fault_findings(fault: SpecError) -> Iterator[Finding]:
    """Return a fault and its further faults as findings."""
    for each in (fault, *fault.others):
        advice = RULES[REFUSED].advice
        yield Finding(REFUSED, each.file, each.line, each.column, each.path, each.problem, advice)


def _faults(source: Source) -> Iterator[SpecError]:
    """Return the faults for which `apply` refuses the document, its steps, or the references between them."""
    faults = Faults()
    with faults:
        document = documents.load(source.document)
        if isinstance(document, Plugin):
            check_plugin(document, source=source.document)
        elif isinstance(document, LifecycleHook):
            check_hook(document, source=source.document)
    for plugin, unreadable in _read_plugins(source):
        try:
            (check_steps if plugin.has_all_steps else check_plugin_spec)(plugin.written, plugin.keys)
        except SpecError as fault:
            placed = (source.document.with_positions(each) for each in (fault, *fault.others))
            faults.found += [each for each in placed if not _is_unreadable(each.keys, unreadable)]
    for each in faults.found:
        # A value that still contains a variable, such as `@{image}`, may be valid when the file is applied.
        if not has_directive(source.document, each.keys):
            yield _without_others(each)


def _without_others(fault: SpecError) -> SpecError:
    return SpecError(fault.problem, fault.keys, file=fault.file, line=fault.line, column=fault.column)


def _is_unreadable(keys: Path, unreadable: Iterable[Path]) -> bool:
    """Return whether nothing can be reported about a value, because it is in an unreadable part.

    An unreadable field directly in `spec` hides only findings about `spec` itself: the steps are still checked.
    """
    return any(keys[: len(path)] == path if "spec" not in path[-1:] else keys == path for path in unreadable)


def _plugins(source: Source) -> Iterator[PluginView]:
    return (plugin for plugin, _ in _read_plugins(source))


def _read_plugins(source: Source) -> Iterator[tuple[PluginView, list[Path]]]:
    """Return the plugins of a document, despite its faults, with the paths of parts that could not be read.

    Nothing is reported about those parts. For example, a misspelt `script` is not also reported as a missing one.
    """
    data = source.document.data
    found: list[tuple[Any, Path]] = []
    try:
        kind = documents.classify(source.document)
    except SpecError:
        return
    if kind == "ResourcePlugin":
        found.append((data.get("spec"), ("spec",)))
    elif kind == "Sandbox" and isinstance(data.get("spec"), dict):
        resources = data["spec"].get("resources")
        inline = enumerate(resources if isinstance(resources, list) else ())
        found += [
            (each.get("spec"), ("spec", "resources", at, "spec"))
            for at, each in inline
            if isinstance(each, dict) and "spec" in each
        ]
    for spec, keys in found:
        read, _, wrong = repair(spec, PluginSpec, keys, source.document.spelled)
        if read is not None:
            unreadable = [path[:-1] for path in wrong]
            yield PluginView(read, keys, has_all_steps=keys not in unreadable), unreadable


def _finding(source: Source, code: str, keys: Path, problem: str, line: int) -> tuple[Finding, bool]:
    place = source.position_of(keys, line)
    fault = source.written.error(problem, keys)
    finding = Finding(code, place.file, place.line, place.column, fault.path, problem, RULES[code].advice)
    return finding, source.silences(place, code)
