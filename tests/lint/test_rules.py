"""Each planted mistake is found in its line, and well-written plugins have no findings."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dayfly.cli import linter
from dayfly.lint import RULES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLANTED = sorted((HERE / "planted").glob("*.yaml"))
CLEAN = sorted([*(HERE / "clean").glob("*.yaml"), *ROOT.glob("examples/*/plugin*.yaml")])
_EXPECTED = re.compile(r"# expect: (DF\d{3})")


@pytest.fixture(autouse=True)
def shellcheck(monkeypatch: pytest.MonkeyPatch):
    """The shellcheck that `make dev` installs."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))


def planted(path: Path) -> list[tuple[str, int]]:
    lines = path.read_text().splitlines()
    return [(match[1], number) for number, line in enumerate(lines, 1) if (match := _EXPECTED.search(line))]


@pytest.mark.parametrize("path", PLANTED, ids=lambda path: path.stem)
def test_a_planted_mistake_is_found_in_its_line(path: Path):
    linted = linter.lint([str(path)], ())
    assert [(each.code, each.line) for each in linted.findings] == planted(path), linted.findings
    assert (planted(path) != [], linted.notes) == (True, [])


@pytest.mark.parametrize("path", CLEAN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_well_written_plugin_has_no_findings(path: Path):
    assert linter.lint([str(path)], ()).findings == []


def test_the_plugin_of_the_readme_is_clean(tmp_path: Path):
    (plugin,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "plugin.yaml").write_text(plugin)
    # For brevity, it has no inventory.
    assert {each.code for each in linter.lint([str(tmp_path)], ()).findings} == {"DF208"}


def test_number_of_rules():
    assert (len(PLANTED) >= 20, len(CLEAN) >= 10) == (True, True)
    assert {code for path in PLANTED for code, _ in planted(path)} == set(RULES)


def test_each_rule_states_fault_and_advice():
    for code, rule in RULES.items():
        assert re.fullmatch(r"DF[1-6]\d\d", code)
        assert rule.code == code
        for words in (rule.wrong, rule.advice):
            assert words.endswith((".", "page.")), code
            assert len(words) > 20
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
