"""Messages for text that is not YAML, with the remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dayfly.spec.errors import SpecError, quote

if TYPE_CHECKING:
    import yaml

# The text that needs quotes: a directive with the text after it, or a word.
_WORD_AT = re.compile(r"@\{[^}]*\}[^\s,\]}:]*|[^\s,\]}]+")
_OPEN_DIRECTIVE = re.compile(r"@\{[^}\s]*")


def _unquoted(line: str, column: int, problem: str) -> str:
    """Return the remedy with the text that needs quotes, if missing quotes are the fault."""
    if "cannot start any token" in problem:
        word = _WORD_AT.match(line, column)
        example = f": {quote(word[0])}" if word else ""
        return f"{quote(line[column : column + 1])} cannot begin a value in YAML; write it in quotes{example}"
    if "mapping values are not allowed" in problem:
        if directive := _OPEN_DIRECTIVE.search(line[: column + 1]):
            return f"{quote(directive[0])}... must be in quotes, with the whole value around it"
        return 'a value that contains ": " must be in quotes; or the line has the wrong indentation'
    if "alias" in problem or "anchor" in problem or "expected alphabetic or numeric" in problem:
        return '"*" and "&" begin aliases and anchors in YAML; write the value in quotes if it is text'
    if "did not find expected ',' or" in problem:
        close = problem.rsplit("or ", 1)[1]
        return f"a comma or the closing {close} is missing here, or in a line above"
    if "did not find expected node content" in problem:
        return "a value is missing here, or a bracket in a line above is not closed"
    return ""


def syntax_fault(fault: yaml.MarkedYAMLError, text: str, file: str) -> SpecError:
    """Return the parser's fault with a message of our own and its place in the text."""
    mark = fault.problem_mark or fault.context_mark
    assert mark is not None, "scanner and parser always report a place"
    line, column = mark.line, mark.column
    lines = text.splitlines()
    text_of_line = lines[line] if line < len(lines) else ""
    if text_of_line[column : column + 1] == "\t":
        problem = "a tab cannot indent YAML; use spaces"
    elif hint := _unquoted(text_of_line, column, str(fault.problem)):
        problem = hint
    else:
        problem = ", ".join(part for part in (fault.context, fault.problem) if part)
        braced = text.lstrip()[:1] in ("{", "[")
        problem = (
            f"{'not JSON' if file.endswith('.json') else 'neither JSON nor YAML' if braced else 'not YAML'}: {problem}"
        )
    return SpecError(problem, file=file, line=line + 1, column=column + 1)
