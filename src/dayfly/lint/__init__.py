"""Lint rules for plugins, beyond what their types and the compiler refuse.

`check` returns every finding with its position. A rule is a function next to its text (`rules`); it reads a plugin
through `plugin_view` and a script through `shell`, and stays silent if it is not sure. The package is pure: files and
the output of shellcheck are handed in. It imports `spec` and `compile`; `cli` calls it.
"""

from dayfly.lint.check import check, rules
from dayfly.lint.report import as_json, as_lines, as_sarif, as_tables
from dayfly.lint.rules import RULES, Finding, Rule, selected_codes
from dayfly.lint.sources import Embedded, Source

__all__ = [
    "RULES",
    "Embedded",
    "Finding",
    "Rule",
    "Source",
    "as_json",
    "as_lines",
    "as_sarif",
    "as_tables",
    "check",
    "rules",
    "selected_codes",
]
