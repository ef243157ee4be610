"""The guide for controllers: its code runs, and passes strict type checks."""

from __future__ import annotations

import ast
import asyncio
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.conftest import ROOT
from tests.kube.fake import run
from tests.kube.website_controller import MAPS, SITES, ask, cluster, manager, running, site

PAGE = ROOT / "docs" / "guides/controllers.md"
CODE = "\n\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def test_kube_page_controller_works_as_described(tmp_path: Path, monkeypatch):
    """Create, change and delete Websites on a fake server."""
    (tmp_path / "page_on_controllers.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    page = importlib.import_module("page_on_controllers")

    async def main():
        server = cluster()
        site(server, "a", "hello")
        managed = manager(server)
        page.Websites(managed)

        def shown() -> dict[str, str]:
            return {item["metadata"]["name"]: item["data"]["text"] for item in server.objects("configmaps")}

        async with running(managed):
            await asyncio.sleep(1)
            assert shown() == {"a": "hello"}
            ask(server, "PATCH", f"{SITES}/a", {"spec": {"text": "good day"}})
            site(server, "b", "")
            await asyncio.sleep(1)
            assert shown() == {"a": "good day", "b": ""}
            ask(server, "DELETE", f"{MAPS}/a")
            ask(server, "DELETE", f"{SITES}/b")
            await asyncio.sleep(1)
            assert shown() == {"a": "good day"}

    run(main())


def test_example_controller_has_at_most_twenty_lines():
    """Count the class and `main`, without the types."""
    [controller] = [node for node in ast.parse(CODE).body if isinstance(node, ast.ClassDef) and node.name == "Websites"]
    main = next(node for node in ast.parse(CODE).body if isinstance(node, ast.AsyncFunctionDef))
    lines = [number for node in (controller, main) for number in range(node.lineno, node.end_lineno + 1)]
    assert sum(bool(CODE.splitlines()[number - 1].strip()) for number in lines) <= 20


@pytest.mark.slow
def test_kube_page_code_passes_strict_types(tmp_path: Path):
    (tmp_path / "page.py").write_text(CODE)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", tmp_path / "page.py"]
    done = subprocess.run(command, cwd=ROOT, env={"MYPYPATH": "src", "PATH": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
