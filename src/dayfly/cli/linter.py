"""`plugin lint`: read files for `dayfly.lint`, and run shellcheck if it is installed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly import __version__
from dayfly.cli.output import show
from dayfly.client import files as reading
from dayfly.client.errors import DayflyError, Exit
from dayfly.lint import RULES, Embedded, Source, as_json, as_lines, as_sarif, check, selected_codes
from dayfly.lint.check import ShellcheckFinding, fault_findings, scripts
from dayfly.lint.rules import SHELLCHECK
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.parsing import template, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dayfly.lint import Finding
    from dayfly.spec.parsing.text import ParsedDocument

NO_SHELLCHECK = "shellcheck is not on PATH, so scripts were not checked for unquoted variables (DF502)"
_SHELLCHECK_TIMEOUT_S = 30
_DIRECTIVE = re.compile(r"@\{\s*([a-zA-Z][\w.-]*)\s*(?:\[\w*\]\s*)?\}")
_SHELLCHECK_RULES = "SC2086,SC2046,SC2068,SC2048,SC2206"
"""The rules about word splitting: the value of a param may contain spaces."""


class LintResult(NamedTuple):
    """Findings in files, and notes on checks that were not possible."""

    findings: list[Finding]
    notes: list[str]


def lint(paths: Iterable[str], sets: Iterable[str]) -> LintResult:
    """Lint files. A variable without a value is kept, and the value that contains it is not checked.

    Raises:
        DayflyError: a file cannot be read, or contains no document.
        SpecError: a `--set` is malformed.
    """
    variables = template.parse_sets(sets)
    program = shutil.which("shellcheck")
    findings: list[Finding] = []
    checked = False
    for path in paths:
        for name in reading.expand(path):
            data = reading.read(name)
            try:
                documents = text.parse(data, file=name)
            except SpecError as fault:
                findings += fault_findings(fault)
                continue
            if not documents:
                raise DayflyError(Exit.USAGE, f"{name}: contains no document", "write a plugin")
            for document in documents:
                try:
                    source = _source(document, data, variables)
                except SpecError as fault:
                    findings += fault_findings(fault)
                    continue
                found = list(scripts(source))
                checked = checked or bool(found)
                findings += check(source, _run_shellcheck(program, found) if program else ())
    return LintResult(findings, [NO_SHELLCHECK] if checked and program is None else [])


def report(
    paths: Iterable[str], sets: Iterable[str], select: Iterable[str], ignore: Iterable[str], output: str | None
) -> Exit:
    """Lint files and print the findings."""
    try:
        wanted = selected_codes(select, ignore)
    except ValueError as fault:
        raise DayflyError(Exit.USAGE, str(fault), f"the rules are {', '.join(sorted(RULES))}") from None
    linted = lint(paths, sets)
    notes = linted.notes if SHELLCHECK in wanted else []
    found = [each for each in linted.findings if each.code in wanted]
    if output == "json":
        show.emit(as_json(found), output)
    elif output == "sarif":
        show.emit(as_sarif(found, __version__, notes), "json")
    else:
        for line in as_lines(found):
            show.print_line(line)
        show.print_message(
            f"{len(found)} mistake{'' if len(found) == 1 else 's'} found." if found else "No mistakes found."
        )
    if output != "sarif":
        for note in notes:
            show.print_message(f"note: {note}")
    return Exit.FAILED if found else Exit.OK


def explain(code: str) -> None:
    """Print the explanation of a rule.

    Raises:
        DayflyError: no rule has that code.
    """
    rule = RULES.get(code.upper())
    if rule is None:
        raise DayflyError(Exit.USAGE, f"there is no rule {quote(code)}", f"the rules are {', '.join(sorted(RULES))}")
    show.print_line(f"{rule.code} {rule.name}")
    show.print_line(rule.wrong)
    show.print_line(rule.advice)
    show.print_line(f"Silence it in one line with: # dayfly: ignore={rule.code}")


def _source(document: ParsedDocument, data: bytes, variables: Mapping[str, str]) -> Source:
    """Return a document with the files that it embeds. Variables without a value are kept."""
    embedded: dict[str, Embedded] = {}
    take = reading.reader(document.file)
    folder = Path(document.file).parent

    def read(path: str) -> bytes:
        content = take(path)
        place = folder / path.lstrip("/")
        shown = place if place.exists() else Path(path)
        with contextlib.suppress(text.NotTextError):
            embedded[path] = Embedded(str(shown), text.decode(content))
        return content

    left = {name: f"@{{{name}}}" for name in _variables(document.data)}
    filled = template.expand(document, {**left, **variables}, read)
    return Source(document, filled, text.decode(data), embedded)


def _variables(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for value in data.values():
            yield from _variables(value)
    elif isinstance(data, list):
        for value in data:
            yield from _variables(value)
    elif isinstance(data, str):
        yield from _DIRECTIVE.findall(data)


def _run_shellcheck(program: str, found: Iterable[tuple[tuple[str | int, ...], str]]) -> Iterator[ShellcheckFinding]:
    """Return the comments of shellcheck on each script. It reads no other files and no settings."""
    for keys, script in found:
        command = [program, "--norc", "--format=json1", f"--include={_SHELLCHECK_RULES}", "-"]
        try:
            ended = subprocess.run(
                command, input=script.encode(), capture_output=True, timeout=_SHELLCHECK_TIMEOUT_S, check=False
            )
            comments = json.loads(ended.stdout)["comments"]
        except (OSError, subprocess.TimeoutExpired, ValueError, LookupError) as fault:
            message = f"shellcheck failed: {type(fault).__name__}"
            raise DayflyError(Exit.FAILED, message, f"test it with: {program} --version") from None
        for each in comments:
            yield ShellcheckFinding(keys, each["line"], each["code"], each["message"])
