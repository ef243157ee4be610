"""What a plugin is put through by `dayfly plugin test`: one life after another, in each of which one thing goes wrong.

`lives` makes them of a plugin: its steps killed at a moment, their outputs lost, the sandbox deleted while they work,
two at once, params that nobody expects. Each is a plugin of its own, whose scripts `harm` has wrapped; how it has to
come out stands beside it. `findings` says what is wrong with one that came out otherwise, and what its author can do
about it, and `report` lays all of it out.

Where steps are pods of a cluster, `outside` makes the lives, and whoever plays them comes to the steps from outside.

Pure: no server, process, file or clock. Whoever plays the lives hands in what happened (`cli.testing`, and beside it
one file for each place). Knows `spec`.
"""

from dayfly.testing.cluster_scenarios import Lacking, NotPlayed, first_outside, lives_outside
from dayfly.testing.findings import Fault, LifeFinding, judge
from dayfly.testing.lives import DeleteAt, Hand, Life, Played, first, lives
from dayfly.testing.report import LifeResult, as_json, as_junit, as_line, summary

__all__ = [
    "DeleteAt",
    "Fault",
    "Hand",
    "Lacking",
    "Life",
    "LifeFinding",
    "LifeResult",
    "NotPlayed",
    "Played",
    "as_json",
    "as_junit",
    "as_line",
    "first",
    "first_outside",
    "judge",
    "lives",
    "lives_outside",
    "summary",
]
