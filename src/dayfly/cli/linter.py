"""What `plugin lint` needs of the machine: files as values for `dayfly.lint`, and shellcheck, where there is one."""

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
from dayfly.lint.check import Shellchecked, refusal, scripts
from dayfly.lint.rules import SHELLCHECK
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.parsing import template, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dayfly.lint import Finding
    from dayfly.spec.parsing.text import ParsedDocument

NO_SHELLCHECK = "shellcheck is not on PATH, so scripts were not searched for variables without quotes (DF502)"
_SHELLCHECK_S = 30
_DIRECTIVE = re.compile(r"@\{\s*([a-zA-Z][\w.-]*)\s*(?:\[\w*\]\s*)?\}")
_QUOTES = "SC2086,SC2046,SC2068,SC2048,SC2206"
"""Of shellcheck's many rules those on values that fall apart at blanks, which a param may hold."""


class Linted(NamedTuple):
    """All findings in some files, and what could not be looked at."""

    findings: list[Finding]
    notes: list[str]


def lint(paths: Iterable[str], sets: Iterable[str]) -> Linted:
    """Look at files; a variable without a value stays what it is, and nothing is said of the value that it is in.

    Raises:
        DayflyError: a file cannot be read, or holds nothing.
        SpecError: a `--set` is none.
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
                findings += refusal(fault)
                continue
            if not documents:
                raise DayflyError(Exit.USAGE, f"{name}: it contains no document", "write a plugin")
            for document in documents:
                try:
                    source = _source(document, data, variables)
                except SpecError as fault:
                    findings += refusal(fault)
                    continue
                found = list(scripts(source))
                checked = checked or bool(found)
                findings += check(source, _shellchecked(program, found) if program else ())
    return Linted(findings, [NO_SHELLCHECK] if checked and program is None else [])


def report(
    paths: Iterable[str], sets: Iterable[str], select: Iterable[str], ignore: Iterable[str], output: str | None
) -> Exit:
    """Look at files and print what was found."""
    try:
        wanted = selected_codes(select, ignore)
    except ValueError as fault:
        raise DayflyError(Exit.USAGE, str(fault), f"there are {', '.join(sorted(RULES))}") from None
    linted = lint(paths, sets)
    notes = linted.notes if SHELLCHECK in wanted else []
    found = [each for each in linted.findings if each.code in wanted]
    if output == "json":
        show.emit(as_json(found), output)
    elif output == "sarif":
        show.emit(as_sarif(found, __version__, notes), "json")
    else:
        for line in as_lines(found):
            show.line(line)
        show.talk(f"{len(found)} mistake{'' if len(found) == 1 else 's'} found." if found else "No mistakes found.")
    if output != "sarif":
        for note in notes:
            show.talk(f"note: {note}")
    return Exit.FAILED if found else Exit.OK


def explain(code: str) -> None:
    """Print what a rule means.

    Raises:
        DayflyError: there is none of that code.
    """
    rule = RULES.get(code.upper())
    if rule is None:
        raise DayflyError(Exit.USAGE, f"there is no rule {quote(code)}", f"there are {', '.join(sorted(RULES))}")
    show.line(f"{rule.code} {rule.name}")
    show.line(rule.wrong)
    show.line(rule.advice)
    show.line(f"Silence it in one line with: # dayfly: ignore={rule.code}")


def _source(document: ParsedDocument, data: bytes, variables: Mapping[str, str]) -> Source:
    """A document with what it embeds; variables that have no value are left standing."""
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


def _shellchecked(program: str, found: Iterable[tuple[tuple[str | int, ...], str]]) -> Iterator[Shellchecked]:
    """What shellcheck says of each script, in its own words. It follows no other file and reads no settings."""
    for keys, script in found:
        asked = [program, "--norc", "--format=json1", f"--include={_QUOTES}", "-"]
        try:
            ended = subprocess.run(
                asked, input=script.encode(), capture_output=True, timeout=_SHELLCHECK_S, check=False
            )
            comments = json.loads(ended.stdout)["comments"]
        except (OSError, subprocess.TimeoutExpired, ValueError, LookupError) as fault:
            message = f"shellcheck does not answer as it should: {type(fault).__name__}"
            raise DayflyError(Exit.FAILED, message, f"try it by itself: {program} --version") from None
        for each in comments:
            yield Shellchecked(keys, each["line"], each["code"], each["message"])
