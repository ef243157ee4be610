"""The scenarios of `dayfly plugin test`. In each scenario, one thing goes wrong with a sandbox of the plugin.

`scenarios` derives them from a plugin: killed steps, lost outputs, a deletion during a step, unexpected params.
`cluster_scenarios` derives those for pods. `findings` judges the outcome, and `report` prints it. The package is pure
and imports only `spec`; `cli.plugin_test` runs the scenarios.
"""

from dayfly.testing.cluster_scenarios import (
    MissingRights,
    SkippedScenario,
    cluster_fault_scenarios,
    undisturbed_cluster_scenario,
)
from dayfly.testing.findings import Fault, ScenarioFinding, judge
from dayfly.testing.report import ScenarioResult, as_json, as_junit, as_line, summary
from dayfly.testing.scenarios import DeleteAt, Outcome, Scenario, Tampering, fault_scenarios, undisturbed_scenario

__all__ = [
    "DeleteAt",
    "Fault",
    "MissingRights",
    "Outcome",
    "Scenario",
    "ScenarioFinding",
    "ScenarioResult",
    "SkippedScenario",
    "Tampering",
    "as_json",
    "as_junit",
    "as_line",
    "cluster_fault_scenarios",
    "fault_scenarios",
    "judge",
    "summary",
    "undisturbed_cluster_scenario",
    "undisturbed_scenario",
]
