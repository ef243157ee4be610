"""The scenarios of `dayfly plugin test`: lives of a plugin in which one thing goes wrong.

`lives` makes them from a plugin: killed steps, lost outputs, a deletion during a step, unexpected params.
`cluster_scenarios` makes those for pods. `findings` judges the result, and `report` prints it. The package is pure
and imports only `spec`; `cli.plugin_test` plays the scenarios.
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
