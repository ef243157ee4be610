"""What a plugin is put through by `dayfly plugin test`: one life after another, in each of which one thing goes wrong.

`lives` makes them of a plugin: its steps killed at a moment, their outputs lost, the sandbox deleted while they work,
two at once, params that nobody expects. Each is a plugin of its own, whose scripts `harm` has wrapped; how it has to
come out stands beside it. `findings` says what is wrong with one that came out otherwise, and what its author can do
about it, and `report` lays all of it out.

Pure: no server, process, file or clock. Whoever plays the lives hands in what happened (`cli.testing`). Knows `spec`.
"""

from dayfly.testing.findings import Fault, Finding, judge
from dayfly.testing.lives import Ends, Life, Played, first, lives
from dayfly.testing.report import Told, as_json, as_junit, as_line, summary

__all__ = [
    "Ends",
    "Fault",
    "Finding",
    "Life",
    "Played",
    "Told",
    "as_json",
    "as_junit",
    "as_line",
    "first",
    "judge",
    "lives",
    "summary",
]
