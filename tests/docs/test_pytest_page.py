"""The guide for pytest: its examples pass, and it names each fixture and option."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from tests.docs.conftest import ROOT

from dayfly import pytest_plugin

PAGE = (ROOT / "docs" / "guides/pytest.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_pytest_page_examples_pass(tmp_path: Path):
    assert len(EXAMPLES) == 2
    for number, example in enumerate(EXAMPLES):
        (tmp_path / f"test_page{number}.py").write_text(example)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAYFLY_", "PYTEST_"))}
    runner = {"DAYFLY_RUNNER": os.environ["DAYFLY_RUNNER"]} if "DAYFLY_RUNNER" in os.environ else {}
    plugins = ["-p", "dayfly.pytest_plugin", "-p", "no:asyncio", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-q", "test_page0.py", "test_page1.py"],
        cwd=tmp_path,
        env={**kept, **runner, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_every_fixture_and_option_is_documented():
    fixtures = [name for name in vars(pytest_plugin) if name.startswith("dayfly_")]
    assert len(fixtures) == 6
    group = mock.Mock()
    pytest_plugin.pytest_addoption(mock.Mock(getgroup=lambda *_: group))
    options = [call.args[0] for call in group.addoption.call_args_list]
    assert len(options) == 3
    shown = {*fixtures, *options} - {"dayfly_sandbox_module", "dayfly_sandbox_session"}
    assert [name for name in shown if name not in PAGE] == []
    assert "the same for `dayfly_sandbox`" in PAGE
