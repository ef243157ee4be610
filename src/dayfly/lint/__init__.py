"""What a plugin's author will regret: rules over a plugin beyond what its types and the compiler refuse.

A file is handed in as values: its document, filled in, with the text it was read from and the files it embeds
(`sources`). `check` gives every finding with its place: what `apply` would refuse, and what the rules say. A rule is a
small function beside its words (`rules`); the groups of rules are `names`, `removal`, `secrecy`, `wiring` and
`settings`. They look at a plugin through `view`, which knows whose output a variable holds, and at a script through
`shell`, which is no shell: it reads lines, quotes and here-documents, and where it is not sure it knows nothing. A rule
is silent then, because a false alarm costs more than it is worth: whoever has met one reads no further.

Pure: no files, processes, clock or printing; what shellcheck has found is handed in. It knows `spec` and `compile`.
Called by `cli` alone.
"""

from dayfly.lint.check import check, rules
from dayfly.lint.report import as_json, as_lines, as_sarif, as_tables
from dayfly.lint.rules import RULES, Finding, Rule, chosen
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
    "chosen",
    "rules",
]
